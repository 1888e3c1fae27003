"""How a command says no: what happened, what was kept, what to do; and an exit code that programs can tell apart."""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import click

from holdfast.cli.failures.codes import CODES, NOTHING, remedies
from holdfast.cli.show.style import clean, cut, err_look, escaped, fold, is_terminal, tame
from holdfast.core import errors
from holdfast.core.errors import HoldfastError

FAILED, USAGE, NOT_FOUND, CONFLICT, STORE, WAITING, INTERRUPTED, UNREAD = 1, 2, 3, 4, 5, 6, 130, 141

EXIT_CODES: tuple[tuple[type[HoldfastError], int], ...] = (
    (errors.InvalidValue, USAGE),
    (errors.NotSerializable, USAGE),
    (errors.TaskNotFound, NOT_FOUND),
    (errors.TaskCollected, NOT_FOUND),
    (errors.StepNotFound, NOT_FOUND),
    (errors.SeqOutOfRange, NOT_FOUND),
    (errors.TaskBusy, CONFLICT),
    (errors.TaskExists, CONFLICT),
    (errors.TaskFinished, CONFLICT),
    (errors.InputConflict, CONFLICT),
    (errors.Conflict, CONFLICT),
    (errors.PatchConflict, CONFLICT),
    (errors.KeyTaken, CONFLICT),
    (errors.InvalidEvent, CONFLICT),
    (errors.ResumeExpired, CONFLICT),
    (errors.StoreError, STORE),
    (errors.LogCorrupt, STORE),
    (errors.UnknownEvent, STORE),
    (errors.ValueDamaged, STORE),
)
"""2 the command was given something wrong, 3 not there, 4 another writer was first, 5 the store; 1 is all the rest."""

_VALUE_LENGTH = 80
_WRITTEN = re.compile(r"\b(was|were) not touched|nothing was (written|made|changed)|was not made", re.I)


class Refused(Exception):
    """An error as it is shown."""

    def __init__(
        self, code: str, message: str, *, hint: str = "", where: str = "", details: Any = None, options: str = ""
    ) -> None:
        """`options` are what a command typed next needs too, in order to find the same store."""
        super().__init__(message)
        self.code, self.message, self.hint, self.where, self.options = code, message, hint, where, options
        self.details: dict[str, Any] = dict(details or {})


def exit_code_of(error: type[HoldfastError]) -> int:
    """Return the exit code of a command that this error stops."""
    return next((code for kind, code in EXIT_CODES if issubclass(error, kind)), FAILED)


@contextmanager
def refusing(
    *, as_json: bool = False, debug: bool = False, where: str = "", options: str = "", id: str | None = None
) -> Generator[None, None, None]:
    """Let errors, and Ctrl-C, end the command as people and programs expect it.

    `where` is the store it looked in, `options` what names it, `id` the task it is about, if the error names none.
    """
    try:
        yield
    except HoldfastError as error:
        if debug:
            _trace()
        code = exit_code_of(type(error))
        environment = where if code in (NOT_FOUND, STORE, CONFLICT) else ""
        details = error.details if id is None else {"id": id, **error.details}
        more: dict[str, Any] = {"hint": error.hint, "where": environment, "details": details, "options": options}
        named = id is not None and isinstance(error, errors.ValueDamaged)  # it knows of no task
        message = f"task {id!r}: {error.message}" if named else error.message
        show(Refused(error.code, in_commands(message), **more), as_json=as_json)
        raise click.exceptions.Exit(code) from None
    except OverflowError as error:
        message = f"a number is larger than any there can be: {error}; nothing was written"
        show(Refused("invalid-value", message, hint="give a smaller one"), as_json=as_json)
        raise click.exceptions.Exit(USAGE) from None
    except errors.LeaseLost as lost:
        show(Refused("lease-lost", f"another worker has taken the task: {lost}", where=where), as_json=as_json)
        raise click.exceptions.Exit(CONFLICT) from None
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
    except (click.exceptions.Exit, click.ClickException, click.Abort, BrokenPipeError):
        raise
    except Exception as error:  # noqa: BLE001 — whatever it is, people get a line and not a traceback
        if debug:
            _trace()
        show(Refused("unexpected", f"{type(error).__name__}: {error}", where=where), as_json=as_json)
        raise click.exceptions.Exit(FAILED) from None
    except BaseException as error:  # noqa: BLE001 — only what agents are given to execute leaves in such a way
        told = f"an agent raised {type(error).__name__}: {error}, which would end a process"
        show(Refused("unexpected", told, hint="raise an Exception, or return"), as_json=as_json)
        raise click.exceptions.Exit(FAILED) from None


def _trace() -> None:
    import traceback

    traceback.print_exc()


def show(refused: Refused, *, as_json: bool) -> None:
    """Say no on stderr."""
    if as_json:
        from holdfast.engine.reading import values as plain

        told = {"code": refused.code, "message": refused.message, "hint": _hint(refused)}
        text = plain.text({"error": {**told, "details": _plain(refused.details)}})
        click.echo(escaped(text) if is_terminal(sys.stderr) else text, err=True)
        return
    style = err_look()
    for line in lines(refused):
        for part in fold(tame(line), style.width):
            click.echo(part, err=True, color=True)


def lines(refused: Refused) -> list[str]:
    """An error for people: what happened, its values, what was kept, what to do."""
    style = err_look()
    head = style.paint(f"error[{refused.code}]", "bad") + f": {clean(refused.message)}"
    values = [
        f"  {name:<10} {cut(clean(_text(value)), _VALUE_LENGTH)}"
        for name, value in refused.details.items()
        if name in _SHOWN and _text(value) not in refused.message
    ]
    code = CODES.get(refused.code)
    written = [] if _WRITTEN.search(refused.message) or code is None else [f"  {code.written}"]
    environment = [f"  looked in {refused.where}"] if refused.where else []
    helps = [*_help(refused), f"holdfast explain {refused.code}   says more"]
    label = style.paint("help", "head")
    return [
        head,
        *values,
        *written,
        *environment,
        *(f"{label}: {one}" if not n else f"      {one}" for n, one in enumerate(helps)),
    ]


_SHOWN = ("recorded", "given", "mine", "theirs", "base", "path", "expected", "actual")
"""Details that are worth a line of their own, where the message has no room for them."""


def _help(refused: Refused) -> list[str]:
    """The error's own remedy if it can be typed here, and commands of its code that do something else."""
    hint = in_commands(refused.hint, refused.details.get("id"))
    own = [clean(hint)] if hint and not _python(hint) else []
    others = remedies(refused.code, refused.details) if refused.code in CODES else []
    found = own + [one for one in others if not own or _adds(one, own[0])]
    return [in_commands(one, options=refused.options) for one in found]


def _adds(other: str, own: str) -> bool:
    """Return whether a remedy of a code says something beside the error's own: a command that is not in it already."""
    return other.startswith("holdfast ") and other.split("   ")[0] not in own


def _hint(refused: Refused) -> str:
    own = in_commands(refused.hint, refused.details.get("id"), refused.options)
    return own or "; ".join(_help(refused))


_COMMANDS: Sequence[tuple[str, str]] = (
    (r"app\.(approve|reject)\(id, '([^']+)'\)", r"holdfast \1 ID '\2'"),
    (r"app\.signal\(id, '([^']+)', value\)", r"holdfast signal ID '\1' VALUE"),
    (r"app\.settle\(id, '([^']+)', happened=…\)", r"holdfast settle ID '\1' --happened | --did-not-happen"),
    (r"app\.raise_budget\('([^']+)', Budget\((\w+)=…\)\)", r"holdfast budget \1 \2=MORE"),
    (r"app\.resume\(id, agent, anyway=True\)", "holdfast resume ID FILE --anyway"),
    (r"app\.resume\('([^']+)', agent, deadline=\"10m\"\)", r"holdfast resume \1 FILE --deadline 10m"),
    (
        r"give it: app\.resume\(id, agent\), or open\(…, agents=\[…\]\)",
        "name the file it is in: holdfast resume ID FILE",
    ),
    (r"app\.resume\(id, agent\)", "holdfast resume ID FILE"),
    (r"app\.fork\(id, at=…\)", "holdfast fork ID --at SEQ"),
    (r", or app\.worker\(\[…\]\)\.run\(\)", ""),
    (r"app\.list\(\)", "holdfast list"),
    (r'write seconds, a timedelta, or text like "1h30m"', "write numbers with their units: 90s, 1h30m, 2d"),
    (r"app\.steps\(id\)", "holdfast log ID"),
    (r"app\.run\(…, wait=\"1m\"\)", "holdfast run … --wait 1m"),
    (r"app\.run\(…, user=…\)", "holdfast run … --user NAME"),
    (r"\bapp\.(answer|approve|cancel|reject|resume|settle|signal)\b(?!\()", r"holdfast \1"),
    (r"app\.copy_to\('sqlite:///copy\.db'\)", "holdfast copy copy.db"),
)


def in_commands(text: str, id: Any = None, options: str = "") -> str:
    """Return an error's text, with commands in place of the Python that it suggests.

    >>> in_commands("app.resume(id, agent) lets it go on", "trip-1", "--store a.db")
    'holdfast resume --store a.db trip-1 FILE lets it go on'
    """
    for python, command in _COMMANDS:
        text = re.sub(python, command, text)
    if isinstance(id, str) and _PLAIN_ID.fullmatch(id):
        text = re.sub(r"\bID\b", id, text)
    return _ON_STORES.sub(lambda found: f"{found[0]} {options}", text) if options and "--store" not in text else text


_ON_STORES = re.compile(
    r"\bholdfast (answer|approve|audit|budget|cancel|doctor|fork|gc|inbox|list|log|reject|resume|rollback|run|settle"
    r"|show|signal|stats|verify|worker)\b(?=[ ]|$)"
)
"""Commands that look for a task, or work on one: they need to know in which store."""

_PLAIN_ID = re.compile(r"[\w.:/~#+=,-]+")


def _python(hint: str) -> bool:
    return "app." in hint


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _plain(details: dict[str, Any]) -> dict[str, Any]:
    """Details as JSON; what is none is told in words."""
    from holdfast.engine.reading import values

    plain: dict[str, Any] = {}
    for name, value in details.items():
        try:
            plain[name] = values.as_json(value)
        except (HoldfastError, TypeError, ValueError, NotImplementedError):
            plain[name] = repr(value)
    return plain


# Click's own


def misused(error: click.ClickException, arguments: Sequence[str]) -> int:
    """A command that was not understood, in the same shape; gives its exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return USAGE
    ctx = cast("click.Context | None", getattr(error, "ctx", None))
    path = ctx.command_path if ctx is not None else "holdfast"
    refused = Refused("usage", error.format_message().rstrip("."), hint=f"{path} --help")
    if any(one in ("--json", "--jsonl") for one in arguments):
        show(refused, as_json=True)
    else:
        style = err_look()
        click.echo(f"{style.paint('error[usage]', 'bad')}: {clean(refused.message)}\n  {NOTHING}", err=True, color=True)
        click.echo(f"{style.paint('help', 'head')}: {refused.hint}", err=True, color=True)
    return error.exit_code

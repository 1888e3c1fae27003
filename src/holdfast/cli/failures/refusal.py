"""Errors as people and programs get them: what failed, why, one next command; and an exit code."""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from shlex import quote
from typing import Any, cast

import click

from holdfast.cli.failures.codes import CODES, NOTHING, remedies
from holdfast.cli.show.catalog import COMMANDS, READING
from holdfast.cli.show.style import clean, cut, err_look, escaped, fold, is_terminal, tame
from holdfast.core import errors
from holdfast.core.errors import HoldfastError
from holdfast.core.errors.commands import in_commands

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
_WRITTEN = re.compile(r"\b(was|were) not touched|nothing was (written|made|changed|started|decided)|was not made", re.I)


class Refused(Exception):
    """An error as it is shown."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str = "",
        where: str = "",
        details: Any = None,
        options: str = "",
        file: str | None = None,
        reads: bool = False,
    ) -> None:
        """`options` are what a command typed next needs too, in order to find the same store.

        `file`: the file of the agent, as it was typed. With `reads`, the command never writes.
        """
        super().__init__(message)
        self.code, self.message, self.hint, self.where, self.options = code, message, hint, where, options
        self.file, self.reads = file, reads
        self.details: dict[str, Any] = dict(details or {})


def exit_code_of(error: type[HoldfastError]) -> int:
    """Return the exit code of a command that this error stops."""
    return next((code for kind, code in EXIT_CODES if issubclass(error, kind)), FAILED)


def lost_task(lost: errors.LeaseLost, where: str = "", *, id: str | None = None, options: str = "") -> Refused:
    """Return what is shown when this process may no longer write to its task."""
    message = f"this process no longer has the task: {lost}"
    return Refused("lease-lost", message, where=where, options=options, details={} if id is None else {"id": id})


@contextmanager
def refusing(
    *,
    as_json: bool = False,
    debug: bool = False,
    where: str = "",
    options: str = "",
    id: str | None = None,
    file: str | None = None,
    reads: bool = False,
) -> Generator[None, None, None]:
    """Let errors, and Ctrl-C, end the command as people and programs expect it.

    `where` is the store it looked in, `options` what names it, `id` the task it is about, if the error names none, and
    `file` the file of its agent. With `reads`, it never writes.
    """
    try:
        yield
    except HoldfastError as error:
        if debug:
            _trace()
        code = exit_code_of(type(error))
        environment = where if code in (NOT_FOUND, STORE, CONFLICT) else ""
        details = error.details if id is None else {"id": id, **error.details}
        more: dict[str, Any] = {"hint": error.hint, "where": environment, "details": details}
        more |= {"options": options, "reads": reads, "file": file if code == CONFLICT else None}
        named = id is not None and isinstance(error, errors.ValueDamaged)  # it knows of no task
        message = f"task {id!r}: {error.message}" if named else error.message
        show(Refused(error.code, in_commands(message), **more), as_json=as_json)
        raise click.exceptions.Exit(code) from None
    except OverflowError as error:
        message = f"a number is larger than any there can be: {error}; nothing was written"
        show(Refused("invalid-value", message, hint="give a smaller one"), as_json=as_json)
        raise click.exceptions.Exit(USAGE) from None
    except errors.LeaseLost as lost:
        show(lost_task(lost, where, id=id, options=options), as_json=as_json)
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
    """Print an error to stderr."""
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
    """Return an error for people: what failed, why and what was written, one next command; a line each."""
    style = err_look()
    what, why = _parted(clean(refused.message))
    why = re.sub(r"(^|; |, and )nothing was written$", "", why)
    facts, todo = _advice(refused)
    values = [
        f"  {name:<10} {cut(clean(_text(value)), _VALUE_LENGTH)}"
        for name, value in refused.details.items()
        if name in _SHOWN and _text(value) not in refused.message
    ]
    code = CODES.get(refused.code)
    written = "" if code is None else NOTHING if _WRITTEN.search(refused.message) else code.written
    written = "" if _WRITTEN.search(f"{what} {why}") else written
    written = written.replace(NOTHING, "").strip() if refused.reads else written
    store = f"Store: {refused.where}" if refused.where else ""
    reasons = " ".join(_sentence(one) for one in (why, facts, written, store) if one)
    return [
        style.paint(f"error[{refused.code}]", "bad") + f": {what}",
        *values,
        *([f"  {reasons}"] if reasons else []),
        f"{style.paint('help', 'head')}: {todo}",
    ]


_SHOWN = ("recorded", "given", "mine", "theirs", "base", "path", "expected", "actual")
"""Details that are worth a line of their own, where the message has no room for them."""


def _parted(message: str) -> tuple[str, str]:
    """Return what failed, and the rest of the message: it begins after the first semicolon outside of quotes.

    >>> _parted("there is no file 'a; b'; nothing was written")
    ("there is no file 'a; b'", 'nothing was written')
    """
    for found in re.finditer("; ", message):
        before = message[: found.start()]
        quotes = re.sub(r"(?<=\w)'(?=[a-z])", "", before)  # without those of can't and isn't
        if not quotes.count("'") % 2 and not quotes.count('"') % 2:
            return before, message[found.end() :]
    return message, ""


def _sentence(text: str) -> str:
    """Return a text as a sentence; a path or a name at its beginning stays as it is."""
    text = text.strip()
    first = text[:1].upper() + text[1:] if text.split(" ")[0].isalpha() else text
    return first if first.endswith((".", "?", "!", "…")) else f"{first}."


def _advice(refused: Refused) -> tuple[str, str]:
    """Return what the error's hint states, and the one thing to do: a command, if there is one."""
    hint = clean(_typed(refused, in_commands(refused.hint, refused.details.get("id"), refused.options)))
    others = remedies(refused.code, refused.details) if refused.code in CODES else []
    commands = [_typed(refused, in_commands(one, options=refused.options)) for one in others if _is_command(one)]
    typed = [one.split("   ")[0] for one in commands]
    if not hint or _python(hint):
        return "", next(iter([*typed, *others]), f"holdfast explain {refused.code}")
    if found := _AT_THE_END.search(hint):
        before = hint[: found.start()].rstrip(" :")
        said = [part for part in before.split("; ") if part and not part.startswith("to ")]  # the command says its aim
        return "; ".join(said), found[0]
    return (hint, typed[0]) if typed else ("", hint)


def _typed(refused: Refused, text: str) -> str:
    """Return commands with the file that was typed in place of FILE."""
    return text if refused.file is None else re.sub(r"\bFILE\b", lambda _: quote(refused.file or ""), text)


def _is_command(text: str) -> bool:
    return text.startswith("holdfast ")


_AT_THE_END = re.compile(rf"holdfast ({'|'.join(COMMANDS)})( [^;]*)?$")
"""A command that a text ends with."""


def _help(refused: Refused) -> list[str]:
    """Return the error's own remedy if it can be typed here, and commands of its code that do something else."""
    hint = in_commands(refused.hint, refused.details.get("id"))
    own = [clean(hint)] if hint and not _python(hint) else []
    others = remedies(refused.code, refused.details) if refused.code in CODES else []
    found = own + [one for one in others if not own or _adds(one, own[0])]
    return [_typed(refused, in_commands(one, options=refused.options)) for one in found]


def _adds(other: str, own: str) -> bool:
    """Return whether a remedy of a code adds a command that the error's own remedy does not have."""
    return _is_command(other) and other.split("   ")[0] not in own


def _hint(refused: Refused) -> str:
    own = _typed(refused, in_commands(refused.hint, refused.details.get("id"), refused.options))
    return own or "; ".join(_help(refused))


def _python(hint: str) -> bool:
    return "app." in hint


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _plain(details: dict[str, Any]) -> dict[str, Any]:
    """Return details as JSON; what is not JSON becomes text."""
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
    """Report a command that was not understood, in the same shape; return its exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return USAGE
    ctx = cast("click.Context | None", getattr(error, "ctx", None))
    typed = next((f"holdfast {one}" for one in arguments if one in COMMANDS), "holdfast")
    path = ctx.command_path if ctx is not None else typed  # an option without its value comes without a context
    message = error.format_message().rstrip(".")
    hint = f"{path} --help"
    if ctx is not None and ctx.command.name in ("run", "test") and (meant := _with_parameters(error, arguments)):
        message = f"{message.split('. (')[0]}; a parameter of the agent is given with -p"
        hint = meant
    refused = Refused("usage", message, hint=hint, reads=path.removeprefix("holdfast ") in READING)
    show(refused, as_json=any(one in ("--json", "--jsonl") for one in arguments))
    return error.exit_code


def _with_parameters(error: click.ClickException, arguments: Sequence[str]) -> str:
    """Return the command with `-p city=oslo` for `--city oslo` or `city=oslo`; empty if that was not the slip."""
    import shlex

    words = list(arguments)
    odd = getattr(error, "option_name", "")
    found = next((n for n, one in enumerate(words) if odd and one.split("=")[0] == odd), None)
    if found is not None and odd.startswith("--"):
        name, equals, value = words[found].removeprefix("--").partition("=")
        has_value = bool(equals) or (len(words) > found + 1 and not words[found + 1].startswith("-"))
        value = value if equals else words[found + 1] if has_value else "true"
        words[found : found + (1 if equals or not has_value else 2)] = ["-p", f"{name}={value}"]
    elif "unexpected extra argument" in error.format_message():
        plain = [
            n for n, one in enumerate(words) if _PARAMETER.fullmatch(one) and words[n - 1] not in ("-p", "--param")
        ]
        for n in reversed(plain):
            words[n : n + 1] = ["-p", words[n]]
        words = words if plain else []
    else:
        return ""
    return f"holdfast {shlex.join(words)}" if words else ""


_PARAMETER = re.compile(r"[A-Za-z_]\w*:?=.*", re.S)

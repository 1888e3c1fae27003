"""The frame of every command: its common options, its surroundings, its way of failing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import click

from holdfast.cli.completion import files, ids
from holdfast.cli.environment import Environment, whoami
from holdfast.cli.failures.refusal import refusing
from holdfast.cli.show.catalog import PLACEHOLDERS, READING
from holdfast.cli.show.help_page import HelpContext
from holdfast.core.errors import TaskNotFound

Body = Callable[..., Any]


class Command(click.Command):
    """A command whose help fits a narrow terminal."""

    context_class = HelpContext


LOOKING = READING | {"backup", "budget", "copy", "export"}
"""Commands that write nothing to the store, or need not: a file that can only be read will do for them."""


def command(
    name: str, *, lines: bool = False, store: bool = True, namespace: bool = True
) -> Callable[[Body], click.Command]:
    """Make a command of a function that takes an Environment first. With `lines` it also gives JSON Lines.

    Without `store` it opens none; without `namespace` it looks after tenants itself.
    """

    def make(body: Body) -> click.Command:
        @functools.wraps(body)
        def called(**given: Any) -> Any:
            _refuse_placeholders(given)
            given = _from_group(given)
            common = {"as_json": given.pop("as_json"), "debug": given.pop("debug")}
            if namespace:
                common["namespace"] = given.pop("namespace", None)
            common |= {"jsonl": given.pop("jsonl", False), "looks": name in LOOKING}
            environment = Environment(given.pop("store", None), **common)
            where = environment.where if store else ""
            about = {"where": where, "options": environment.options if store else ""}
            with refusing(
                as_json=environment.for_programs,
                debug=environment.debug,
                id=given.get("id"),
                file=given.get("target"),
                reads=name in READING,
                **about,
            ):
                try:
                    return body(environment, **given)
                except TaskNotFound as error:
                    raise environment.suggesting(error) from None
                finally:
                    environment.close()

        made = called
        for option in reversed(_common(lines, store, store and namespace)):
            made = option(made)
        return click.command(name, cls=Command, no_args_is_help=False)(made)

    return make


def _from_group(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options with --store and --namespace that stood before the command, unless it has its own."""
    before: dict[str, Any] = click.get_current_context().find_root().obj or {}
    if before.get("namespace"):
        before = {**before, "namespaces": (before["namespace"],)}  # a worker may have several
    return {name: before.get(name, value) if value in (None, ()) else value for name, value in given.items()}


def _refuse_placeholders(given: dict[str, Any]) -> None:
    """Refuse a word of a hint that was pasted as it is: it stands for something that only the person knows."""
    for name, value in given.items():
        every = cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,))
        for one in every:
            if isinstance(one, str) and one in PLACEHOLDERS:
                option = next((one for one in click.get_current_context().command.params if one.name == name), None)
                where = option.opts[0] if isinstance(option, click.Option) else name.upper()
                where = f" for {where}" if where not in ("TARGET", one) else ""
                raise click.UsageError(f"{one} is a placeholder: give {PLACEHOLDERS[one]}{where}")


def _common(lines: bool, store: bool, namespace: bool) -> list[Callable[[Body], Body]]:
    made: list[Callable[[Body], Body]] = []
    if store:
        text = "A path or an address. Default: HOLDFAST_URL, or holdfast.db."
        made.append(click.option("--store", metavar="URL", help=text, shell_complete=files))
    if namespace:
        made.append(
            click.option("--namespace", metavar="NAME", help="Work in this tenant. Default: HOLDFAST_NAMESPACE.")
        )
    made.append(click.option("--json", "as_json", is_flag=True, help="Print one JSON document."))
    if lines:
        made.append(click.option("--jsonl", is_flag=True, help="Print JSON Lines."))
    made.append(click.option("--debug", is_flag=True, help="Show Holdfast's own tracebacks."))
    return made


def task_argument(body: Body) -> Body:
    """Take the task a command is about: its id, or @last."""
    return click.argument("id", shell_complete=ids)(body)


def param_option(body: Body) -> Body:
    """Take the input of a task, value by value."""
    text = "A parameter of the agent; repeatable. VALUE is JSON, or else text."
    return click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help=text)(body)


def resume_option(body: Body) -> Body:
    """Take --resume, and the file of the agent to resume with."""
    file = click.argument("target", metavar="[FILE[:AGENT]]", required=False, shell_complete=files)
    text = "Then resume the task here, with the agent from FILE or pyproject.toml."
    return file(click.option("--resume", is_flag=True, help=text)(body))


def bound_option(body: Body) -> Body:
    """Take the digest of what the person was shown."""
    text = "The digest that `holdfast inbox` showed. If the arguments have changed since, nothing is decided."
    return click.option("--bound", metavar="DIGEST", help=text)(body)


def by_options(body: Body) -> Body:
    """Add `--by` and `--why`: the person, and the reason."""
    return by_option(click.option("--why", default="", help="The reason, recorded with it.")(body))


def by_option(body: Body) -> Body:
    """Add `--by`. An empty name is refused: it was forgotten."""
    text = "Your name, recorded with it. Default: HOLDFAST_BY, or your login name."
    return click.option("--by", default=None, callback=_person, help=text)(body)


def _person(ctx: click.Context, param: click.Parameter, name: str | None) -> str:
    """Return the person who types. An empty name is often a variable that is not set: nothing is done under another."""
    if name is not None and not name.strip():
        raise click.BadParameter("it is empty; give your name, or leave --by out", ctx=ctx, param=param)
    return whoami() if name is None else name

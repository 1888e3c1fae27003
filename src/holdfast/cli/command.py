"""The frame of every command: its common options, its surroundings, its way of failing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from holdfast.cli.completion import files, ids
from holdfast.cli.environment import Environment, whoami
from holdfast.cli.failures.refusal import refusing
from holdfast.core.errors import TaskNotFound

Body = Callable[..., Any]

LOOKING = frozenset(
    (
        *("audit", "backup", "budget", "copy", "diff", "doctor", "export"),
        *("inbox", "list", "log", "show", "stats", "traces", "verify", "workers"),
    )
)
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
            common = {"as_json": given.pop("as_json"), "debug": given.pop("debug")}
            if namespace:
                common["namespace"] = given.pop("namespace", None)
            common |= {"jsonl": given.pop("jsonl", False), "looks": name in LOOKING}
            environment = Environment(given.pop("store", None), **common)
            where = environment.where if store else ""
            about = {"where": where, "options": environment.options if store else ""}
            with refusing(as_json=environment.for_programs, debug=environment.debug, id=given.get("id"), **about):
                try:
                    return body(environment, **given)
                except TaskNotFound as error:
                    raise environment.suggesting(error) from None
                finally:
                    environment.close()

        made = called
        for option in reversed(_common(lines, store, store and namespace)):
            made = option(made)
        return click.command(name, no_args_is_help=False)(made)

    return make


def _common(lines: bool, store: bool, namespace: bool) -> list[Callable[[Body], Body]]:
    made: list[Callable[[Body], Body]] = []
    if store:
        told = "The store; else HOLDFAST_URL, else holdfast.db."
        made.append(click.option("--store", metavar="URL", help=told, shell_complete=files))
    if namespace:
        made.append(click.option("--namespace", metavar="NAME", help="Only this tenant's; else HOLDFAST_NAMESPACE."))
    made.append(click.option("--json", "as_json", is_flag=True, help="Print the same facts as one JSON document."))
    if lines:
        made.append(click.option("--jsonl", is_flag=True, help="Print the same facts as JSON Lines."))
    made.append(click.option("--debug", is_flag=True, help="Show tracebacks of Holdfast's own."))
    return made


def task_argument(body: Body) -> Body:
    """The task a command is about: its id, or @last."""
    return click.argument("id", shell_complete=ids)(body)


def param_option(body: Body) -> Body:
    """Take the input of a task, value by value."""
    told, form = "A value for the agent; repeatable.", "KEY=TEXT|KEY:=JSON"
    return click.option("-p", "--param", "params", multiple=True, metavar=form, help=told)(body)


def resume_option(body: Body) -> Body:
    """Take --resume, and the file of the agent to resume with."""
    file = click.argument("target", metavar="[FILE[:AGENT]]", required=False, shell_complete=files)
    told = "Then resume the task, here and now, with the agent of FILE or of pyproject.toml."
    return file(click.option("--resume", is_flag=True, help=told)(body))


def bound_option(body: Body) -> Body:
    """The digest of what the person was shown."""
    told = "The digest that `holdfast inbox` showed. Nothing is decided if the arguments have changed since."
    return click.option("--bound", metavar="DIGEST", help=told)(body)


def by_options(body: Body) -> Body:
    """Add `--by` and `--why`: the person, and the reason."""
    return by_option(click.option("--why", default="", help="The reason, kept with it.")(body))


def by_option(body: Body) -> Body:
    """Add `--by`. An empty name is refused: it was forgotten."""
    told = "Your name, kept with it; else HOLDFAST_BY, else your login name."
    return click.option("--by", default=None, callback=_person, help=told)(body)


def _person(ctx: click.Context, param: click.Parameter, name: str | None) -> str:
    """Return the person who types. An empty name is often a variable that is not set: nothing is done under another."""
    if name is not None and not name.strip():
        raise click.BadParameter("it is empty; give your name, or leave --by out", ctx=ctx, param=param)
    return whoami() if name is None else name

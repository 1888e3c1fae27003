"""`holdfast fork`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from holdfast.cli.command import by_option, command, task_argument
from holdfast.cli.environment import Environment

if TYPE_CHECKING:
    from holdfast import StatePatch


@command("fork")
@task_argument
@click.option("--at", "seq", type=int, metavar="SEQ", help="The last event of its past; else all there is.")
@click.option("--id", "new", help="The id of the fork; else a new one. The same fork asked for again is found.")
@click.option(
    "--effects",
    type=click.Choice(["ask", "live", "recorded"]),
    default="ask",
    show_default=True,
    help="Calls that can be made once: ask first, make them, or only replay.",
)
@click.option("--set", "sets", multiple=True, metavar="PATH=JSON", help="Change state.NAME or facts.NAME; repeatable.")
@by_option
def fork_(
    environment: Environment,
    id: str,
    seq: int | None,
    new: str | None,
    effects: Literal["ask", "live", "recorded"],
    sets: tuple[str, ...],
    by: str,
) -> None:
    """Begin a new task whose past is another's, up to an event.

    Nothing is copied, and the other task goes on as it was. PATH is a name of the state, state.NAME or facts.NAME.

    Example: holdfast fork trip-oslo --at 5 --id trip-oslo-2 --set 'state.max_price=600'
    """
    from holdfast.cli.input.suggestions import resume_command

    patch = _patch(sets)
    app = environment.app()
    id = environment.task(id)
    state = app.fork(id, at=seq, id=new, patch=patch, effects=effects, by=by)
    resume = resume_command(state.id, None, environment.options)
    if environment.as_json:
        environment.data(
            {"id": state.id, "from": id, "at": seq, "effects": effects, "status": state.status, "seq": state.seq}
        )
        return
    environment.lines([state.id])
    environment.say(f"forked from {id} at {'its end' if seq is None else seq}; effects: {effects}")
    environment.say_store()
    environment.say(f"to go on: {resume}")


def _patch(sets: tuple[str, ...]) -> StatePatch | None:
    from holdfast import StatePatch
    from holdfast.cli.input.values import json_value
    from holdfast.core.errors import InvalidValue

    if not sets:
        return None
    state: dict[str, Any] = {}
    facts: list[dict[str, Any]] = []
    for one in sets:
        path, equals, text = one.partition("=")
        section, _, name = path.partition(".") if path.startswith(("state.", "facts.")) else ("state", "", path)
        if not equals or not name or ("." in path and not path.startswith(("state.", "facts."))):
            raise InvalidValue(
                f"{one!r} changes nothing; nothing was written",
                hint="write --set 'state.NAME=JSON' or 'facts.NAME=JSON'",
            )
        value = json_value(text, path)
        if section == "facts":
            facts.append({"key": name, "value": value, "source": "fork"})
        else:
            state[name] = value
    return StatePatch(set=state, append_facts=facts)

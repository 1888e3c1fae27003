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
@click.option("--at", "seq", type=int, metavar="SEQ", help="The last event to keep. Default: all events.")
@click.option("--id", "new", help="The fork's id. If that fork exists already, it is returned. Default: a new id.")
@click.option(
    "--effects",
    type=click.Choice(["ask", "live", "recorded"]),
    default="ask",
    show_default=True,
    help="`once` calls of the fork: ask for approval, make them (live), or answer them from the log (recorded).",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change the fork's state. PATH is NAME or state.NAME for a field, facts.NAME for a fact; repeatable.",
)
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
    """Start a new task from a past event of another task.

    The fork shares the log of ID up to --at and continues on its own from there. ID itself is not changed. VALUE is
    JSON, or else text.

    Example: holdfast fork trip-oslo --at 5 --id trip-oslo-2 --set 'state.max_price=600'
    """
    from holdfast.cli.input.suggestions import is_block, resume_command

    patch = _patch(sets)
    app = environment.app()
    id = environment.task(id)
    existed = new is not None and app.find(new) is not None
    state = app.fork(id, at=seq, id=new, patch=patch, effects=effects, by=by)
    resume = resume_command(state.id, None, environment.options, block=is_block(app, state.id))
    if environment.as_json:
        told = {
            "id": state.id,
            "from": id,
            "at": state.forked_at,
            "effects": effects,
            "status": state.status,
            "seq": state.seq,
        }
        environment.data(told)
        return
    environment.lines([state.id])
    forked = f"forked from {id} at seq {state.forked_at}"
    environment.say(f"{'already ' if existed else ''}{forked}; {_EFFECTS[effects]}")
    environment.say_store()
    environment.say(f"to resume it: {resume}")


_EFFECTS = {
    "ask": "its `once` calls ask for approval (--effects ask)",
    "live": "its `once` calls are made (--effects live)",
    "recorded": "its `once` calls are answered from the log (--effects recorded)",
}
"""What becomes of a fork's calls, in words."""


def _patch(sets: tuple[str, ...]) -> StatePatch | None:
    from holdfast import StatePatch
    from holdfast.cli.input.values import pair
    from holdfast.core.errors import InvalidValue

    if not sets:
        return None
    state: dict[str, Any] = {}
    facts: list[dict[str, Any]] = []
    for one in sets:
        path, value = pair(one, "--set")
        section, dot, name = path.partition(".")
        section, name = (section, name) if dot else ("state", path)
        if section not in ("state", "facts") or not name:
            raise InvalidValue(
                f"--set {one!r} does not start with state. or facts.; nothing was written"
                if name
                else f"--set {one!r} has no name after {path}; nothing was written",
                hint="write --set state.price=600 or --set facts.city=oslo",
            )
        if section == "facts":
            facts.append({"key": name, "value": value, "source": "fork"})
        else:
            state[name] = value
    return StatePatch(set=state, append_facts=facts)

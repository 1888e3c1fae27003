"""What people do to a task from the command line, and what is printed about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast import App, Budget
from holdfast.cli.environment import Environment, whoami
from holdfast.cli.input.suggestions import (
    command,
    entry_json,
    files_are_declared,
    is_block,
    resume_command,
    waiting_lines,
)
from holdfast.cli.show.style import clean
from holdfast.core.errors import InvalidValue
from holdfast.engine.reading.task_state import TaskState

Act = Callable[[App, str], TaskState]

CANCELLING = "cancellation requested"


def changed(environment: Environment, id: str, act: Act, done: str, *, for_workers: bool = False) -> None:
    """Do something to a task, and say how it stands now and what comes next.

    With `for_workers` it is for workers to continue it.
    """
    app = environment.app()
    id = environment.task(id)
    state = act(app, id)
    entries, store = list(app.inbox(id)), environment.options
    resume = resume_command(id, None, store, block=is_block(app, id))
    if environment.as_json:
        on = [entry_json(one, whoami(), store) for one in entries]
        environment.data({"id": id, "did": done, "status": state.status, "seq": state.seq, "waiting_on": on})
        return
    environment.lines([stands_now(id, done, state)])
    environment.say_store()
    if for_workers and state.status == "pending":
        _say_for_workers(environment, state, resume)
    elif state.waiting is not None:
        for line in waiting_lines(state, entries, whoami(), store, resume, environment.agents):
            environment.say(line)
    elif state.status in ("pending", "failed"):
        environment.say(f"to resume it: {resume}")


def _say_for_workers(environment: Environment, state: TaskState, resume: str) -> None:
    """Say what continues a pending task: a worker that is there, one that has to be started, or this shell."""
    if state.waiting is None:
        environment.say(f"a worker that serves {state.agent} will take it; or resume it here: {resume}")
        return
    file = [] if files_are_declared() else ["FILE"]
    environment.say(f"start a worker for it: {command('worker', *file, options=environment.options)}")
    environment.say(f"or resume it here: {resume}")


def stands_now(id: str, done: str, state: TaskState) -> str:
    """Return how a task stands after something was done to it."""
    if state.status == "pending":
        return f"{id}: {clean(done)}; the task is ready to resume (pending, seq {state.seq})"
    if done == CANCELLING and state.status == "cancelled":
        return f"{id}: cancelled at seq {state.seq}"
    return f"{id}: {clean(done)}; the task is {state.status} at seq {state.seq}"


_LIMITS: dict[str, Callable[[str], Any]] = {
    "turns": int,
    "steps": int,
    "calls": int,
    "tokens": int,
    "cost": float,
    "wall_time": str,
}


def limits_given(given: Sequence[str]) -> Budget:
    """Limits as they are typed: `tokens=200000`."""
    found: dict[str, Any] = {}
    for one in given:
        name, equals, most = one.partition("=")
        try:
            found[name] = _LIMITS[name](most.replace(",", "").replace("_", "") if name != "wall_time" else most)
        except (KeyError, ValueError):
            wrong = f"{one!r} is not a limit" if equals else f"{one!r} has no number"
            raise InvalidValue(
                f"{wrong}; nothing was written", hint=f"write one of {', '.join(_LIMITS)} and a number: tokens=200000"
            ) from None
    if isinstance(found.get("wall_time"), str) and found["wall_time"].replace(".", "").isdigit():
        found["wall_time"] = float(found["wall_time"])
    return Budget(**found)

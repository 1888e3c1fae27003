"""Checks of who may resume a task, and whether there is anything to do for it now."""

from __future__ import annotations

from typing import Any

from holdfast.core import codec, events as ev
from holdfast.core.durations import shown
from holdfast.core.errors import InputConflict, InvalidInput, InvalidValue, ResumeExpired
from holdfast.core.events import Fields
from holdfast.core.state import rules
from holdfast.core.state.shapes import State
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading import steps


def same_input(logs: Logs, log: Log, given: Fields) -> None:
    """The same id with other input is other work."""
    recorded = {name: codec.resolve(raw, logs.blob) for name, raw in log.state.input.items()}
    now = {name: codec.resolve(raw, logs.blob) for name, raw in given.items()}
    if recorded != now:
        shown = [{name: codec.unpack(raw, logs.blob) for name, raw in one.items()} for one in (log.state.input, given)]
        raise InputConflict(log.name, *shown)


def same_owner(log: Log, given: ev.TaskCreated) -> None:
    """The same id for another user, or in another thread, is other work. Resuming a task needs neither."""
    known = log.state.summary
    for what, there, wanted in (("user", known.user, given.user), ("thread", known.thread, given.thread)):
        if wanted is not None and wanted != there:
            belongs = f"belongs to {what} {there!r}" if there is not None else f"has no {what}"
            raise InvalidValue(
                f"task {log.name!r} {belongs}, and {what}={wanted!r} is given", hint="give its own, or another id"
            )


def check_agent(log: Log, agent: Agent | str) -> None:
    """Refuse a task that belongs to another user."""
    summary = log.state.summary
    if log.state.block:
        raise InvalidValue(
            f"task {log.name!r} was made by `with app.task(…)` in a program",
            hint=f"enter the block again: with app.task({summary.agent!r}, …, id={log.name!r})",
        )
    name = agent if isinstance(agent, str) else agent.name
    if summary.agent != name:
        raise InvalidValue(
            f"task {log.name!r} belongs to the agent {summary.agent!r}, and not to {name!r}",
            hint="give the agent it belongs to, or start other work under another id",
        )


def check_resumable(logs: Logs, log: Log, agent: Agent, *, anyway: bool = False) -> None:
    """Refuse, before anything is written, a task that this agent cannot resume."""
    check_agent(log, agent)
    if not anyway:
        rules.refuse_diverged(log.state)
    try:
        agent.parameters.check(input_of(logs, log.state))
    except InvalidInput as error:
        raise InvalidInput(
            f"agent {agent.name!r} no longer takes what task {log.name!r} was started with: {error.message}",
            hint="give the new parameter a default, or start it again under another id",
        ) from None
    age = (logs.clock.now_us() - log.state.updated_us) / 1_000_000
    limit = None if anyway else agent.resume_within
    if log.state.steps_done and limit is not None and age > limit:
        raise ResumeExpired(
            f"task {log.name!r} has had no event for {shown(age)}; agent {agent.name!r} resumes within {shown(limit)}",
            hint="start it again, or resume it anyway: app.resume(id, agent, anyway=True)",
        )


def can_go_on(logs: Logs, log: Log, hold: float) -> bool:
    """Return whether there is anything to do now: not ended, and not waiting for something that has not come."""
    summary = log.state.summary
    if log.state.ended:
        return False
    if summary.status != "waiting" or rules.is_answered(log.state):
        return True
    if summary.waiting == "child":
        children = [wait.name for wait in log.state.waits.values() if wait.kind == "child"]
        if any(logs.store.origin(id) is None or can_go_on(logs, logs.load(id), hold) for id in children):
            return True
    others = (one for one in log.state.blockers if one.why == "doubt" and one.task != summary.id)
    if any(not steps.is_in_doubt(logs, one.task, one.key) for one in others):
        return True
    if summary.wake_us is None:
        return False
    sat_out = hold if summary.waiting == "timer" else 0.0
    return summary.wake_us - logs.clock.now_us() <= sat_out * 1_000_000


def input_of(logs: Logs, state: State) -> dict[str, Any]:
    return {name: codec.unpack(raw, logs.blob) for name, raw in state.input.items()}

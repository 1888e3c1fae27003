"""The one way others write to a task: read its log, decide, append; decide again if it moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.core import events as ev, limits
from holdfast.core.codec import UniqueKey, Write
from holdfast.core.errors import Conflict, InvalidValue, TaskCollected
from holdfast.core.events import Event, Failure
from holdfast.core.phases import ERROR, following
from holdfast.core.state import budget
from holdfast.core.state.shapes import State
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.logs import Logs

Decide = Callable[[State], Sequence[Event]]


Keys = Callable[[State], tuple[tuple[UniqueKey, ...], tuple[str, ...]]]
"""Gives the unique keys that a change takes, and those that it frees."""


def change(logs: Logs, id: str, decide: Decide, keys: Keys | None = None, tries: int = limits.MAX_APPEND_TRIES) -> Log:
    """Append what a decision about the present state asks for. If the log moves meanwhile, decide again."""
    log = logs.load(id)
    for _ in range(tries):
        events = decide(log.state)
        if not events:
            return log
        _refuse_no_text(events)
        log.check(events)
        try:
            parent = log.state.summary.parent if isinstance(events[-1], ev.TaskCancelled) else None
            also = () if parent is None else child_ended(logs, parent, id, events[-1])
            if log.state.payers:
                told = list(budget.shares(log.state, events))
                also += tuple(logs.write_at_head(one, told, log.state.salt) for one in log.state.payers if told)
            taken, freed = ((), ()) if keys is None else keys(log.state)
            log.append(events, unique_keys=taken, freed_keys=freed, also=also)
            log.remember()
        except Conflict:
            log.refresh()
        else:
            return log
    raise Conflict(id, log.head.seq, None)


def _refuse_no_text(events: Sequence[Event]) -> None:
    """Refuse a name, or a reason, that is not text."""
    for event in events:
        for name in ("by", "why"):
            given: object = getattr(event, name, "")
            if not isinstance(given, str) and not isinstance(event, ev.StateIncremented):
                raise InvalidValue(f"{name}={given!r} is not text; nothing was written", hint=f'write {name}="…"')


def stopped(state: State, asked: ev.CancelRequested, *, alone: bool) -> tuple[Event, ...]:
    """Return the events that ask a task to stop. Without a worker it ends at once, unless its children are at work."""
    open_calls = any(step.unsettled for step in state.steps.values())
    at_rest = state.summary.status in ("pending", "waiting") and not open_calls and not state.undo and alone
    if not at_rest:
        return (asked,)
    if asked.failure is not None:
        phase = following(state.phases, state.phase, ERROR)
        return asked, ev.TaskFailed(failure=asked.failure, state_seq=state.seq, phase=phase)
    return asked, ev.TaskCancelled(by=asked.by, why=asked.why)


def children_end(logs: Logs, failed: State, failure: Failure) -> tuple[Write, ...]:
    """Return the events for the logs of a task's children, in the group of its failure: they fail with it.

    One that is held, or has something to settle or to undo, is asked to stop. If the task is resumed, so are they.
    """
    parent = failed.summary.id
    told = Failure(failure.type, f"its parent {parent!r} failed: {failure.message}", code=failure.code)
    return _stop_children(logs, failed, ev.CancelRequested(why=f"its parent {parent!r} failed", failure=told))[0]


def _stop_children(logs: Logs, parent: State, asked: ev.CancelRequested) -> tuple[tuple[Write, ...], bool]:
    """Return the events that stop the children of a task, and theirs, and whether all of them end with that."""
    writes: tuple[Write, ...] = ()
    all_end = True
    for wait in parent.waits.values():
        log = _living_child(logs, wait.name, parent.summary.id) if wait.kind == "child" else None
        if log is None:
            continue
        below, alone = _stop_children(logs, log.state, asked)
        events: tuple[Event, ...] = ()
        if log.state.cancel is None:
            events = stopped(log.state, asked, alone=alone and not budget.forsaken(log.state))
        writes += (*below, log.draft(events)) if events else below
        all_end &= len(events) > 1
    return writes, all_end


def _living_child(logs: Logs, id: str, parent: str) -> Log | None:
    """A child that has begun and not ended. Those that a fork inherited are not its own."""
    try:
        log = None if logs.store.origin(id) is None else logs.load(id)
    except TaskCollected:
        return None
    if log is None or log.state.ended or log.state.summary.parent != parent or log.state.summary.waiting == "diverged":
        return None
    return log


def child_ended(logs: Logs, parent: str, child: str, ending: Event) -> tuple[Write, ...]:
    """Return the event for the parent's log, in the group of a child's end; none if the parent no longer waits."""
    try:
        log = logs.load(parent)
    except TaskCollected:
        return ()
    events = end_of_wait(log.state, child, ending)
    return (log.draft(events),) if events else ()


def end_of_wait(parent: State, child: str, ending: Event) -> tuple[Event, ...]:
    """Return the event that ends the parent's wait for a child; none if it no longer waits."""
    key = _key_of(parent, child)
    if key is None or parent.ended:
        return ()
    match ending:
        case ev.TaskCompleted():
            return (ev.WaitEnded(key=key, value=ending.result),)
        case ev.TaskFailed():
            return (ev.WaitEnded(key=key, failure=ending.failure),)
        case _:
            failure = ev.Failure("Cancelled", f"task {child!r} was cancelled", code="cancelled")
            return (ev.WaitEnded(key=key, failure=failure),)


def _key_of(parent: State, child: str) -> str | None:
    """The key under which a parent waits for a child: most often it stands in the child's id."""
    place = child.removeprefix(f"{parent.summary.id}/")
    for key in (place, place.partition("/")[2]):
        wait = parent.waits.get(key)
        if wait is not None and wait.kind == "child" and wait.name == child:
            return key
    return next((wait.key for wait in parent.waits.values() if wait.kind == "child" and wait.name == child), None)

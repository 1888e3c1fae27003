"""The one way others write to a task: read its log, decide, append; decide again if it moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.core import events as ev, limits
from holdfast.core.codec import UniqueKey, Write
from holdfast.core.errors import Conflict, TaskCollected
from holdfast.core.events import Event
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


def child_ended(logs: Logs, parent: str, child: str, ending: Event) -> tuple[Write, ...]:
    """What to write to the parent's log in the same group as a child's end; nothing if it no longer waits."""
    try:
        log = logs.load(parent)
    except TaskCollected:
        return ()
    key = next((wait.key for wait in log.state.waits.values() if wait.kind == "child" and wait.name == child), None)
    if key is None or log.state.ended:
        return ()
    match ending:
        case ev.TaskCompleted():
            ended = ev.WaitEnded(key=key, value=ending.result)
        case ev.TaskFailed():
            ended = ev.WaitEnded(key=key, failure=ending.failure)
        case _:
            failure = ev.Failure("Cancelled", f"task {child!r} was cancelled", code="cancelled")
            ended = ev.WaitEnded(key=key, failure=failure)
    return (log.draft([ended]),)

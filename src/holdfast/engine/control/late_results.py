"""Results that came too late, and how a worker learns that its task was taken over."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from msgspec import UNSET, Raw

from holdfast.core import events as ev
from holdfast.core.codec import Stored
from holdfast.core.errors import Diverged, HoldfastError, LeaseLost
from holdfast.core.events import Event
from holdfast.core.state import rules
from holdfast.core.state.fold import address
from holdfast.core.state.shapes import State
from holdfast.engine.control.change import change
from holdfast.engine.logs.logs import Logs

Late = ev.StepCompleted | ev.StepFailed | ev.AttemptFailed | ev.StepDoubted


def observed(event: Late, key: str, holder: str, *, ended: bool = False) -> ev.StepObserved:
    """A result that came too late to be one. `ended` says that the abandoned thread of the attempt has ended."""
    if isinstance(event, ev.StepCompleted):
        return ev.StepObserved(key=key, result=event.result, holder=holder, ended=ended)
    return ev.StepObserved(key=key, failure=event.failure, holder=holder, ended=ended)


def keep_late(logs: Logs, id: str, turn: int, events: Sequence[Event], *, ended: bool = False) -> None:
    """Results of a turn that came too late are kept as observations, if that is possible, and not used."""
    results = ev.StepCompleted | ev.StepFailed
    late = [one for one in events if isinstance(one, Late) and (ended or isinstance(one, results))]
    late = [one for one in late if isinstance(one, ev.StepCompleted) or one.failure is not None]

    def decide(state: State) -> Sequence[Event]:
        keys = [one.key if turn == state.turn else address(turn, one.key) for one in late]
        holder = logs.store.holder()
        return [observed(one, key, holder, ended=ended) for one, key in zip(late, keys, strict=True)]

    with contextlib.suppress(HoldfastError):
        if late:
            change(logs, id, decide)


def lost_to(state: State, rows: Sequence[Stored]) -> LeaseLost | Diverged | None:
    """Why a worker no longer holds a task, by what others wrote; `state` is the state after it."""
    if any(row.kind == "task_diverged" for row in rows):
        try:
            rules.refuse_diverged(state)
        except Diverged as error:
            return error
    fence = next((row for row in rows if row.kind in ("task_claimed", "rolled_back", "task_diverged")), None)
    if fence is None:
        return None
    how = "rolled back" if fence.kind == "rolled_back" else "taken over"
    return LeaseLost(f"task {state.summary.id!r} was {how} at seq {fence.seq}")


def observe(logs: Logs, id: str, key: str, result: Raw | None, failure: ev.Failure | None) -> None:
    """Keep an answer that came after the wait was over. If even that is not possible, it is as if it had never come."""
    late = ev.StepObserved(key=key, result=UNSET if result is None else result, failure=failure, ended=True)
    with contextlib.suppress(HoldfastError):
        change(logs, id, lambda state: (late,))

"""Events → summary: the few facts that a list or a queue cares about, as a row of its own. Itself a fold."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.core import codec, events as ev
from holdfast.core.codec import Summary
from holdfast.core.events import Event
from holdfast.core.state.shapes import State


def summarise(summary: Summary | None, log: str, event: Event, at_us: int) -> Summary:
    """Return the row of a task after this event; the same object if nothing changes."""
    if summary is None:
        return first_summary(log, event, at_us)
    if isinstance(event, ev.TaskForked):
        return forked_summary(summary, log, event, at_us)
    if isinstance(event, ev.RolledBack):
        return replace(codec.load(event.hot, State).summary, changed_us=at_us)
    changed = _summary_change(summary, event)
    return replace(summary, changed_us=at_us, **changed) if changed else summary


def first_summary(log: str, event: Event, at_us: int) -> Summary:
    """Return the row of a new task."""
    same = ("agent", "user", "thread", "parent", "queue", "priority", "deadline_us", "mock", "version")
    given: dict[str, Any] = {"agent": ""}
    if isinstance(event, ev.TaskCreated):
        given = {name: getattr(event, name) for name in same} | {"wake_us": event.start_us, "key": event.queue_key}
        given["expire_us"] = event.expire_us or None
    return Summary(id=log, created_us=at_us, changed_us=at_us, **given)


def forked_summary(parent: Summary, log: str, event: ev.TaskForked, at_us: int) -> Summary:
    """Return the row of a new fork."""
    return Summary(
        id=log,
        **{
            name: getattr(parent, name)
            for name in ("agent", "stage", "user", "thread", "queue", "priority", "mock", "version")
        },
        deadline_us=event.deadline_us,
        created_us=at_us,
        changed_us=at_us,
    )


def _summary_change(summary: Summary, event: Event) -> dict[str, Any]:
    match event:
        case ev.TaskClaimed():
            held = {"holder": event.holder, "lease_seconds": event.lease_seconds, "claims": summary.claims + 1}
            return {"status": "running", "waiting": None, "wake_us": None, **held}
        case ev.TaskReleased():
            return {"status": "pending", "holder": None, "wake_us": event.wake_us}
        case ev.TaskSuspended():
            return {"status": "waiting", "waiting": event.why, "wake_us": event.wake_us, "holder": None}
        case ev.SignalReceived(unawaited=True) | ev.StepObserved(ended=False):
            return {}
        case ev.TaskDiverged():
            frozen = {"status": "waiting", "waiting": "diverged", "wake_us": None, "holder": None}
            return {} if summary.status in ("completed", "failed", "cancelled") else frozen
        case ev.DivergenceAccepted():
            return {"status": "pending", **_AT_REST}
        case (
            ev.SignalReceived()
            | ev.WaitEnded()
            | ev.StepSettled()
            | ev.CancelRequested()
            | ev.ApprovalGiven()
            | ev.ApprovalRefused()
            | ev.BudgetRaised()
            | ev.StepObserved()
        ):
            awake = summary.status == "waiting" and summary.waiting != "diverged"  # that ends when a person says so
            return {"status": "pending", "waiting": None, "wake_us": None} if awake else {}
        case ev.TaskCompleted():
            return {"status": "completed", **_AT_REST}
        case ev.TaskFailed():
            return {"status": "failed", **_AT_REST}
        case ev.TaskCancelled():
            return {"status": "cancelled", **_AT_REST}
        case ev.TaskReopened():
            again = {} if event.deadline_us is None else {"deadline_us": event.deadline_us}
            return {"status": "pending", **_AT_REST, **again}
        case ev.StageSet():
            return {"stage": event.stage} if event.stage != summary.stage else {}
        case _:
            return {}


ROLLED_BACK = ("stage",)
"""Columns that a rollback takes back to what they were; the others stay as they are."""

ANSWERING = frozenset[type[Event]](
    (
        *(ev.SignalReceived, ev.WaitEnded, ev.StepSettled, ev.CancelRequested, ev.ApprovalGiven, ev.ApprovalRefused),
        ev.BudgetRaised,
    )
)
"""Events that may be what a task waits for."""

DOUBTING = frozenset[type[Event]]((ev.StepDoubted, ev.TaskReopened, ev.TaskForked, ev.RolledBack))
"""After these events a call may be in doubt that was not before. Which ones, only the whole state tells: see `fold`."""

_AT_REST: dict[str, Any] = {"waiting": None, "wake_us": None, "holder": None}
SUMMARISED = frozenset[type[Event]](
    (
        *(ev.TaskCreated, ev.TaskForked, ev.TaskClaimed, ev.TaskReleased, ev.TaskSuspended, ev.SignalReceived),
        *(ev.WaitEnded, ev.StepSettled, ev.CancelRequested, ev.TaskCompleted, ev.TaskFailed, ev.TaskCancelled),
        *(ev.TaskReopened, ev.StageSet, ev.RolledBack, ev.ApprovalGiven, ev.ApprovalRefused, ev.BudgetRaised),
        *(ev.TaskDiverged, ev.DivergenceAccepted, ev.StepObserved, ev.StepDoubted),
    )
)
"""After these events a list may show something else."""

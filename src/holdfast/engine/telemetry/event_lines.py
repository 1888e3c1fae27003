"""Log lines: one for each event that this process writes, to the logger `holdfast.events`, with values of its own.

A line names its kind, task and step. It has nothing that users wrote. It is logged by the background thread.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from holdfast.core import events as ev, limits
from holdfast.core.events.kinds import KIND
from holdfast.engine.logs.committer import PlacedEvent

_LEVELS: dict[type[ev.Event], int] = {
    ev.TaskFailed: logging.ERROR,
    ev.TaskDiverged: logging.ERROR,
    ev.StepFailed: logging.WARNING,
    ev.AttemptFailed: logging.WARNING,
    ev.StepDoubted: logging.WARNING,
    ev.PatchRefused: logging.WARNING,
    **dict.fromkeys(
        (ev.TaskCreated, ev.TaskForked, ev.TaskClaimed, ev.TaskReleased, ev.TaskSuspended, ev.TaskCompleted),
        logging.INFO,
    ),
    **dict.fromkeys(
        (ev.TaskCancelled, ev.TaskReopened, ev.CancelRequested, ev.StepStarted, ev.StepCompleted, ev.StepSettled),
        logging.INFO,
    ),
    **dict.fromkeys(
        (ev.WaitStarted, ev.WaitEnded, ev.ApprovalAsked, ev.ApprovalGiven, ev.ApprovalRefused, ev.RolledBack),
        logging.INFO,
    ),
}
"""How important an event is; all others are for DEBUG."""


class EventLines:
    """Writes events to Python's logging."""

    def __init__(self) -> None:
        self._logger = logging.getLogger(limits.EVENT_LOGGER)

    def take(self, namespace: str, task: str, events: Sequence[PlacedEvent], trace_id: bytes) -> None:
        """Log events of one task, in order."""
        for one in events:
            level = _LEVELS.get(type(one.event), logging.DEBUG)
            if self._logger.isEnabledFor(level):
                self._write(level, namespace, task, one, trace_id)

    def _write(self, level: int, namespace: str, task: str, one: PlacedEvent, trace_id: bytes) -> None:
        kind = KIND[type(one.event)]
        step = getattr(one.event, "key", "") if isinstance(one.event, _OF_STEPS) else ""
        told = {
            "namespace": namespace,
            "task": task,
            "step": step,
            "seq": one.seq,
            "kind": kind,
            "at_us": one.at_us,
            "trace_id": trace_id.hex(),
        }
        place = f"{task} {step}" if step else task
        extra = {f"holdfast_{name}": value for name, value in told.items()} | {"trace_id": told["trace_id"]}
        self._logger.log(level, "%s %s (seq %d)", kind, place, one.seq, extra=extra)


_OF_STEPS = (
    *(ev.StepStarted, ev.AttemptFailed, ev.StepCompleted, ev.StepFailed, ev.StepDoubted, ev.StepSettled),
    *(ev.StepVoided, ev.StepObserved, ev.WaitStarted, ev.WaitEnded),
    *(ev.ApprovalAsked, ev.ApprovalGiven, ev.ApprovalRefused),
)

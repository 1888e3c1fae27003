"""The attempts of a step, over all resumes of its task: what failed, when, and when the next one was due."""

from __future__ import annotations

from datetime import datetime

from holdfast.core import codec, events as ev
from holdfast.core.codec import moment
from holdfast.core.events import Event, Failure
from holdfast.core.state.fold import address
from holdfast.engine.logs.log import decoded
from holdfast.engine.logs.logs import Logs


class StepAttempt(codec.JsonStruct, frozen=True):
    """One attempt of a step that came to an end. `failure` is None if it succeeded.

    `number` counts on when a failed task is resumed. `next_at` is when the attempt after it was due, if one was.
    """

    number: int
    seq: int
    at: datetime
    failure: Failure | None = None
    next_at: datetime | None = None


_KINDS = ("attempt_failed", "step_failed", "step_completed", "step_settled")


def attempts_of(logs: Logs, id: str, turn: int, key: str, upto: int | None) -> list[StepAttempt]:
    """Return the attempts of a step, in order. Costs what its turn weighs."""
    starts = {turn_of(id, row): row.seq for row in logs.rows_of_kind(id, "turn_started", upto=upto)} if turn else {}
    last = starts.get(turn + 1)
    found: list[StepAttempt] = []
    for log, row in logs.live_rows(id, after=starts.get(turn, 0), upto=upto):
        own = key if last is None or row.seq < last else address(turn, key)  # from later turns it has its turn with it
        event = decoded(log, row) if row.kind in _KINDS else None
        if event is not None and getattr(event, "key", "") == own:
            ended = _ended(event)
            if ended is not None:
                failure, next_us = ended
                next_at = moment(next_us) if next_us else None
                found.append(StepAttempt(len(found) + 1, row.seq, moment(row.at_us), failure, next_at))
    return found


def turn_of(id: str, row: codec.Stored) -> int:
    """The turn that begins with an event."""
    return getattr(decoded(id, row), "turn", 0)


def _ended(event: Event) -> tuple[Failure | None, int] | None:
    """How an attempt ended, and when another was due; None if the event is not the end of one that was made here."""
    match event:
        case ev.AttemptFailed():
            return event.failure, event.retry_us
        case ev.StepFailed() if event.attempts and not event.source:
            return event.failure, 0
        case ev.StepCompleted() if not event.source:
            return None, 0
        case ev.StepSettled() if event.happened:
            return None, 0
        case _:
            return None

"""The read side: events, steps of any turn, differences, verification."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, cast

from msgspec.structs import replace

from holdfast.core import limits
from holdfast.core.codec import LoggedEvent, Stored, Summary
from holdfast.core.errors import InvalidEvent, InvalidValue, SeqOutOfRange, StepNotFound
from holdfast.core.state.fold import address, evolve
from holdfast.core.state.shapes import ENDED, State, Step
from holdfast.engine.logs.log import Log, decoded
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading import timeline
from holdfast.engine.reading.task_state import StepState, TaskState


def records(logs: Logs, id: str, *, after: int = 0, limit: int | None = None) -> Iterator[LoggedEvent]:
    """A task's events in order, a fork's inherited ones included."""
    rows = logs.rows(id, after=min(after, limits.MAX_SEQ))
    for count, (log, row) in enumerate(rows):
        if limit is not None and count >= limit:
            return
        yield LoggedEvent(log, row.seq, row.kind, row.at_us, decoded(log, row), row.digest)


def state_at(logs: Logs, id: str, seq: int | None = None) -> TaskState:
    """A task as it was just after an event."""
    if seq is not None and not isinstance(seq, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"seq={seq!r} is not a number", hint="seqs are whole numbers from 1 on")
    if seq is not None and seq < 1:
        raise SeqOutOfRange(id, seq, logs.head(id).seq)
    return TaskState(logs.load(id, upto=seq), logs)


def diff(logs: Logs, id: str, a: int, b: int) -> list[dict[str, Any]]:
    """What changed between two moments, as a JSON Patch (RFC 6902) that turns the first into the second."""
    return difference(state_at(logs, id, a).to_dict(), state_at(logs, id, b).to_dict())


def difference(before: Any, after: Any) -> list[dict[str, Any]]:
    """A JSON Patch from one document to another."""
    import jsonpatch  # takes 15 ms to import, and few programs compare

    return list(jsonpatch.make_patch(before, after))


def steps(logs: Logs, id: str, turn: int | None = None, upto: int | None = None) -> list[StepState]:
    """The steps of one turn, or of all of them in order. Costs what the turn weighs, not what the log does."""
    starts = [(0, 0), *((_turn(id, row), row.seq) for row in logs.rows_of_kind(id, "turn_started", upto=upto))]
    if turn is not None and not 0 <= turn <= starts[-1][0]:
        raise StepNotFound(id, f"{turn}/…")
    ends = [seq - 1 for _, seq in starts[1:]] + [upto]
    return [
        StepState(step, logs, number)
        for (number, start), end in zip(starts, ends, strict=True)
        if turn in (None, number)
        for step in _steps_between(logs, id, number, start, end, upto)
    ]


def step_by_key(logs: Logs, id: str, key: str) -> StepState:
    """One step by its key: the last `draft#1` there is, or `3/draft#1`, that of turn 3."""
    head, _, rest = key.partition("/")
    in_turn = int(head) if head.isascii() and head.isdigit() and rest else None
    for step in reversed(steps(logs, id, in_turn)):
        if step.key == (key if in_turn is None else rest):
            return step
    raise StepNotFound(id, key)


def raw_step(logs: Logs, id: str, key: str) -> Step:
    """One step by its key, with its values as they are stored."""
    return step_by_key(logs, id, key).raw


def calls_after(logs: Logs, id: str, seq: int) -> list[Step]:
    """Calls of tools whose last word came after a seq, in every turn since."""
    state = logs.load(id, upto=seq).state
    found: dict[str, Step] = {}
    for log, row in logs.rows(id, after=seq):
        event = decoded(log, row)
        state = evolve(state, log, row.seq, row.at_us, event)
        step = state.steps.get(getattr(event, "key", ""))
        if step is not None and step.tool:
            found[step.idempotency_key or f"{state.turn}/{step.key}"] = step
    return list(found.values())


_MAKING_STEPS = (
    *("step_started", "step_completed", "step_failed", "attempt_failed", "wait_started", "checkpoint_made"),
    *("approval_asked", "approval_given", "approval_refused"),
)
_CHANGING_STEPS = ("step_doubted", "step_settled", "wait_ended")


def _turn(id: str, row: Stored) -> int:
    return getattr(decoded(id, row), "turn", 0)


def _steps_between(
    logs: Logs, id: str, turn: int, after: int, upto: int | None, last: int | None = None
) -> Iterable[Step]:
    """Fold only what concerns the steps of one turn; what it left open may have ended in a later one."""
    state = State(summary=Summary(id=id, agent=""))
    for log, row in logs.live_rows(id, after=after, upto=upto):
        if row.kind in _MAKING_STEPS or row.kind in _CHANGING_STEPS:
            event = decoded(log, row)
            if not getattr(event, "key", "").split("/", 1)[0].isdigit():
                evolve(state, log, row.seq, row.at_us, event)
    left = {address(turn, key): key for key, step in state.steps.items() if step.open} | {
        key: key for key in state.waits
    }
    if upto is not None and left:
        for log, row in logs.live_rows(id, after=upto, upto=last):
            event = decoded(log, row)
            key = left.get(getattr(event, "key", ""))
            if key is not None:
                evolve(state, log, row.seq, row.at_us, replace(cast("Any", event), key=key))
    return state.steps.values()


# Verification


def rollback_target(logs: Logs, log: Log, back: int, to: int | str | None) -> int:
    """The seq to go back to: before so many steps, or at a seq, or at a checkpoint."""
    if isinstance(to, str):
        if to not in log.state.checkpoints:
            raise InvalidValue(
                f"there is no checkpoint {to!r}",
                hint=f"checkpoints: {', '.join(sorted(log.state.checkpoints)) or 'none'}",
            )
        return log.state.checkpoints[to]
    if to is not None:
        return to
    done = sorted((step.after, step.before) for step in steps(logs, log.name) if step.status in ("completed", "failed"))
    if not 1 <= back <= len(done):
        raise InvalidEvent(f"cannot roll back {back} steps of {log.name!r}", hint=f"it has done {len(done)}")
    return done[-back][1]


class Follow:
    """Gives each event once, and ends with the task, or when the time is up."""

    def __init__(self, logs: Logs, id: str, after: int, seconds: float | None) -> None:
        logs.segments(id)
        self._logs = logs
        self._id = id
        self._after = after
        self._until = None if seconds is None else time.monotonic() + seconds

    def __iter__(self) -> Iterator[LoggedEvent]:
        while True:
            found, over = self._look()
            yield from found
            if over:
                return
            if not found:
                time.sleep(limits.FOLLOW_SECONDS)

    async def __aiter__(self) -> AsyncIterator[LoggedEvent]:
        import asyncio

        while True:
            found, over = await asyncio.to_thread(self._look)
            for record in found:
                yield record
            if over:
                return
            if not found:
                await asyncio.sleep(limits.FOLLOW_SECONDS)

    def _look(self) -> tuple[list[LoggedEvent], bool]:
        """What is new, and whether there will be no more."""
        summary = self._logs.store.summary(self._id)
        found = list(timeline.records(self._logs, self._id, after=self._after))
        if found:
            self._after = found[-1].seq
        late = self._until is not None and time.monotonic() >= self._until
        return found, late or summary is None or summary.status in ENDED


def step_of(logs: Logs, id: str, key: str) -> Step | None:
    """A step of any task, by the key it has seen from outside."""
    try:
        return timeline.raw_step(logs, id, key)
    except StepNotFound:
        return None


def kept_step(logs: Logs, id: str, unique: str) -> Step | None:
    """A call that a rollback voided, by its unique key: the world has seen it."""
    return next((one for one in logs.load(id).state.kept.values() if one.unique == unique), None)

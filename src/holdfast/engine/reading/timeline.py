"""The read side: events, steps of any turn, differences, verification."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, TypeVar

from holdfast.core import limits, names
from holdfast.core.codec import LoggedEvent
from holdfast.core.errors import InvalidEvent, InvalidValue, SeqOutOfRange
from holdfast.core.state.shapes import ENDED
from holdfast.engine.logs.log import Log, decoded
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading import timeline
from holdfast.engine.reading.steps import steps
from holdfast.engine.reading.task_state import TaskState

T = TypeVar("T")


def records(logs: Logs, id: str, *, after: int = 0, limit: int | None = None) -> Iterator[LoggedEvent]:
    """A task's events in order, a fork's inherited ones included."""
    after = names.whole(after, "after")
    if limit is not None:
        names.whole(limit, "limit")
    rows = logs.rows(id, after=min(after, limits.MAX_SEQ))
    for count, (log, row) in enumerate(rows):
        if limit is not None and count >= limit:
            return
        yield LoggedEvent(log, row.seq, row.kind, row.at_us, decoded(log, row), row.digest)


def state_at(logs: Logs, id: str, seq: int | None = None) -> TaskState:
    """A task as it was just after an event."""
    if seq is not None:
        names.seq(seq)
    if seq is not None and seq < 1:
        raise SeqOutOfRange(id, seq, logs.head(id).seq)
    return TaskState(logs.load(id, upto=seq), logs)


def difference(before: Any, after: Any) -> list[dict[str, Any]]:
    """A JSON Patch from one document to another."""
    import jsonpatch  # takes 15 ms to import, and few programs compare

    return list(jsonpatch.make_patch(before, after))


# Verification


def rollback_target(logs: Logs, log: Log, back: int, versions: int | None, to: int | str | None) -> int:
    """The seq to go back to: before so many steps or changes of the state, or at a seq, or at a checkpoint.

    Who asks for more steps or changes than there are goes back to before the first.
    """
    for name, count in (("steps", back), ("versions", versions)):
        if count is not None and (type(count) is not int or count < 1):
            raise InvalidValue(f"{name}={count!r} is not a way back", hint="give a whole number of at least 1")
    given = [back != 1, versions is not None, to is not None]
    if sum(given) > 1:
        raise InvalidValue(
            f"steps={back}, versions={versions!r} and to={to!r} name different places", hint="give one of them"
        )
    if isinstance(to, str):
        if to not in log.state.checkpoints:
            raise InvalidValue(
                f"there is no checkpoint {to!r}",
                hint=f"checkpoints: {', '.join(sorted(log.state.checkpoints)) or 'none'}",
            )
        return log.state.checkpoints[to]
    if to is not None:
        return to
    if versions is not None:
        nothing = f"the state of task {log.name!r} has no change that could be taken back"
        changes = [row.seq - 1 for _, row in logs.live_rows(log.name) if row.kind in CHANGING_STATE]
        return _before(changes, versions, nothing, "give steps=…, or to=…")
    done = sorted((step.after, step.before) for step in steps(logs, log.name) if step.status in ("completed", "failed"))
    nothing = f"task {log.name!r} has done no step that could be taken back"
    return _before([before for _, before in done], back, nothing, "give to=…, or versions=1: by changes of its state")


CHANGING_STATE = frozenset(
    (
        *("state_set", "state_incremented", "state_appended", "state_deleted", "state_updated", "state_patched"),
        "state_migrated",
    )
)
"""Events that change a task's state: each makes a version of it."""


def _before(places: list[int], back: int, nothing: str, hint: str) -> int:
    if not places:
        raise InvalidEvent(nothing, hint=hint)
    return places[-back] if back <= len(places) else min(places)


class Polling(Generic[T]):
    """Looks again and again, and gives what is new; with `for`, or with `async for` in a thread."""

    def look(self) -> tuple[list[T], bool]:
        """Return what is new, and whether there will be no more."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[T]:
        while True:
            found, over = self.look()
            yield from found
            if over:
                return
            if not found:
                time.sleep(limits.FOLLOW_SECONDS)

    async def __aiter__(self) -> AsyncIterator[T]:
        import asyncio

        while True:
            found, over = await asyncio.to_thread(self.look)
            for record in found:
                yield record
            if over:
                return
            if not found:
                await asyncio.sleep(limits.FOLLOW_SECONDS)


class Follow(Polling[LoggedEvent]):
    """Gives each event once, and ends with the task, or when the time is up."""

    def __init__(self, logs: Logs, id: str, after: int, seconds: float | None) -> None:
        logs.segments(id)
        self._logs = logs
        self._id = id
        self._after = names.whole(after, "after")
        self._until = None if seconds is None else time.monotonic() + seconds

    def look(self) -> tuple[list[LoggedEvent], bool]:
        summary = self._logs.store.summary(self._id)
        found = list(timeline.records(self._logs, self._id, after=self._after))
        if found:
            self._after = found[-1].seq
        late = self._until is not None and time.monotonic() >= self._until
        return found, late or summary is None or summary.status in ENDED

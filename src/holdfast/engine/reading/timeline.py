"""A task's events: all of them, those that come, and the state and the difference they make."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, TypeVar

from holdfast.core import limits, names
from holdfast.core.codec import LoggedEvent
from holdfast.core.errors import SeqOutOfRange
from holdfast.core.state.shapes import ENDED
from holdfast.engine.logs.log import decoded
from holdfast.engine.logs.logs import Logs
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
        found = list(records(self._logs, self._id, after=self._after))
        if found:
            self._after = found[-1].seq
        late = self._until is not None and time.monotonic() >= self._until
        return found, late or summary is None or summary.status in ENDED

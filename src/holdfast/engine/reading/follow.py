"""A task's events as they come: the same for `for` and for `async for`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator

from holdfast.core import limits
from holdfast.core.codec import Record
from holdfast.core.state.shapes import ENDED
from holdfast.engine.logs.log import Logs
from holdfast.engine.reading import timeline


class Follow:
    """Gives each event once, and ends with the task, or when the time is up."""

    def __init__(self, logs: Logs, id: str, after: int, seconds: float | None) -> None:
        logs.segments(id)
        self._logs = logs
        self._id = id
        self._after = after
        self._until = None if seconds is None else time.monotonic() + seconds

    def __iter__(self) -> Iterator[Record]:
        while True:
            found, over = self._look()
            yield from found
            if over:
                return
            if not found:
                time.sleep(limits.FOLLOW_SECONDS)

    async def __aiter__(self) -> AsyncIterator[Record]:
        import asyncio

        while True:
            found, over = await asyncio.to_thread(self._look)
            for record in found:
                yield record
            if over:
                return
            if not found:
                await asyncio.sleep(limits.FOLLOW_SECONDS)

    def _look(self) -> tuple[list[Record], bool]:
        """What is new, and whether there will be no more."""
        summary = self._logs.store.summary(self._id)
        found = list(timeline.records(self._logs, self._id, after=self._after))
        if found:
            self._after = found[-1].seq
        late = self._until is not None and time.monotonic() >= self._until
        return found, late or summary is None or summary.status in ENDED

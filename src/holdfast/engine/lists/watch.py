"""Watching tasks: a feed of what changes in lists, for as many as want it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any

from holdfast.core import codec, durations, limits
from holdfast.core.codec import Summary
from holdfast.core.durations import Duration
from holdfast.core.errors import StoreClosed
from holdfast.engine.lists.feed import Feed
from holdfast.engine.lists.query import refuse_odd
from holdfast.engine.logs.logs import Logs
from holdfast.store.protocol import Query, RowChange, change_place


class TaskChange(codec.JsonStruct, frozen=True):
    """A task whose row has changed: its status, stage, wait, worker or calls in doubt.

    `seq` is how far its log had come when it was read. `cursor` is where to watch on: `app.watch(after=change.cursor)`.
    """

    id: str
    seq: int
    status: str
    row: Summary
    cursor: str


class TaskWatch:
    """Changes of tasks as they are committed, whichever process they come from. Also `async for`."""

    def __init__(self, logs: Logs, feed: Feed, query: Query, *, after: str | None, seconds: float | None) -> None:
        if after is not None:
            change_place(after)  # refused here, and not where it is first used
        self._logs = logs
        self._feed = feed
        self._query = query
        self._cursor = after
        self._until = None if seconds is None else time.monotonic() + seconds

    @property
    def cursor(self) -> str:
        """The place up to which was watched. The first look fixes the start, if `after` was not given."""
        if self._cursor is None:
            self._cursor = self._logs.store.last_change()
        return self._cursor

    @property
    def is_ahead(self) -> bool:
        """True if nothing in the store is as new as this place: it is of another store, or of before a restore."""
        return change_place(self.cursor) > change_place(self._logs.store.last_change())

    def __iter__(self) -> Iterator[TaskChange]:
        woken = threading.Event()
        listener = self._feed.listen(self.cursor, woken.set)
        try:
            while True:
                yield from self._given(listener.read() if listener.is_behind else listener.take())
                left = self._left()
                if left <= 0 or self._feed.is_closed:
                    return
                if not listener.is_behind and woken.wait(min(left, limits.FEED_WAIT_SECONDS)):
                    woken.clear()
        except StoreClosed:
            return
        finally:
            listener.leave()

    def __aiter__(self) -> AsyncIterator[TaskChange]:
        return self.changes()

    async def changes(self) -> AsyncGenerator[TaskChange]:
        """The same to be awaited, as a generator: close it (`contextlib.aclosing`) to stop listening at once."""
        import asyncio

        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        cursor = self._cursor or await asyncio.to_thread(lambda: self.cursor)
        listener = self._feed.listen(cursor, _safely(loop.call_soon_threadsafe, woken.set))
        try:
            while True:
                found = await asyncio.to_thread(listener.read) if listener.is_behind else listener.take()
                for one in self._given(found):
                    yield one
                left = self._left()
                if left <= 0 or self._feed.is_closed:
                    return
                if not listener.is_behind:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(woken.wait(), min(left, limits.FEED_WAIT_SECONDS))
                        woken.clear()
        except StoreClosed:
            return
        finally:
            listener.leave()

    def _given(self, found: list[RowChange]) -> Iterator[TaskChange]:
        """Those of some changes that are asked for. What is not asked for moves the cursor too."""
        for one in found:
            self._cursor = one.cursor
            row = one.summary
            if self._query.asks_for(row):
                yield TaskChange(row.id, one.seq, row.status, row, one.cursor)

    def _left(self) -> float:
        return float("inf") if self._until is None else self._until - time.monotonic()


def watch_tasks(logs: Logs, feed: Feed, *, after: str | None, seconds: Duration | None, **asked: Any) -> TaskWatch:
    """Check what is asked for, and begin to watch."""
    refuse_odd(asked)
    limit = None if seconds is None else durations.seconds(seconds, "seconds")
    return TaskWatch(logs, feed, Query(**asked, namespace=logs.namespace), after=after, seconds=limit)


def _safely(call_soon: Callable[[Callable[[], object]], object], wake: Callable[[], object]) -> Callable[[], object]:
    """Wake an event loop from another thread. One that is closed needs no waking."""

    def call() -> None:
        with contextlib.suppress(RuntimeError):
            call_soon(wake)

    return call

"""Waiting for the end of a task, in whichever process it is worked on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from holdfast.core import durations, limits, names
from holdfast.core.durations import Duration
from holdfast.core.errors import TimeLimit
from holdfast.core.state.shapes import ENDED
from holdfast.engine.definitions.call import refuse_own
from holdfast.engine.lists.feed import Feed
from holdfast.engine.lists.watch import TaskChange, TaskWatch
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading.task_state import TaskState
from holdfast.store.protocol import Query


class TaskEnd:
    """The end of one task. However many callers wait, one thread reads the store."""

    def __init__(self, logs: Logs, feed: Feed, id: str, timeout: Duration | None) -> None:
        refuse_own(logs, id, "wait")
        self._logs = logs
        self._feed = feed
        self._id = id
        limit = float("inf") if timeout is None else durations.seconds(timeout, "timeout")
        self._until = time.monotonic() + limit

    def wait(self) -> TaskState[Any]:
        """Block until the task has ended, and return it."""
        while True:
            watch = self._watch()
            if (found := self._look()) is not None:
                return found
            for change in watch:
                if self._is_end(change):
                    break

    async def wait_async(self) -> TaskState[Any]:
        """`wait` on the running event loop. It takes no thread of the loop's pool while it waits."""
        while True:
            watch = await asyncio.to_thread(self._watch)
            if (found := await asyncio.to_thread(self._look)) is not None:
                return found
            async with contextlib.aclosing(watch.changes()) as changes:
                async for change in changes:
                    if self._is_end(change):
                        break

    def _watch(self) -> TaskWatch:
        """Changes from now on, for a while: a task that ended and was removed at once is not among them."""
        rest = min(limits.WAIT_LOOK_SECONDS, max(self._until - time.monotonic(), 0.0))
        query = Query(prefix=self._id, namespace=self._logs.namespace)
        return TaskWatch(self._logs, self._feed, query, after=self._logs.store.last_change(), seconds=rest)

    def _look(self) -> TaskState[Any] | None:
        """The task, if it has ended; if there is none, this says so."""
        name = names.task_log(self._id)
        row = self._logs.store.summary(name)
        if row is None or row.status in ENDED:
            return TaskState(self._logs.load(name), self._logs)
        if time.monotonic() >= self._until:
            raise TimeLimit(
                f"task {self._id!r} is {row.status} and has not ended in time",
                hint="wait again, or if no worker has it: app.resume(id, agent)",
            )
        return None

    def _is_end(self, change: TaskChange) -> bool:
        return change.id == self._id and change.status in ENDED

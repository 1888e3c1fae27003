"""DurableStream: the events of a run as they happen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from agents import StreamEvent

from holdfast import InvalidValue, TaskState

Emit = Callable[[StreamEvent], None]
"""Takes an event of a run that is under way."""


class DurableStream:
    """A run whose events are read while it works, as the SDK's `Runner.run_streamed` gives them.

        stream = runner.run_streamed("One book, please.", id="order-7")
        async for event in stream.stream_events(): ...
        done = await stream.done()

    The run starts when events are asked for, or `done` is awaited. It doesn't depend on its reader: if you stop
    reading, it works on until it ends or waits.
    """

    def __init__(self, start: Callable[[Emit], Coroutine[Any, Any, TaskState[Any]]]) -> None:
        self._start = start
        self._events: asyncio.Queue[StreamEvent | None] = asyncio.Queue()
        self._run: asyncio.Task[TaskState[Any]] | None = None
        self._is_read = False

    async def stream_events(self) -> AsyncGenerator[StreamEvent, None]:
        """Give the events of the run until it ends or waits. They can be read once."""
        if self._is_read:
            raise InvalidValue("the events of this stream were read already", hint="call run_streamed again")
        self._is_read = True
        run = self._started()
        while (event := await self._events.get()) is not None:
            yield event
        await asyncio.shield(run)  # raises what the run raised

    async def done(self) -> TaskState[Any]:
        """Return the task when it has ended, or waits, as `run` does."""
        return await asyncio.shield(self._started())

    def _started(self) -> asyncio.Task[TaskState[Any]]:
        if self._run is None:
            self._run = asyncio.create_task(self._start(self._events.put_nowait))
            _RUNNING.add(self._run)
            self._run.add_done_callback(self._ended)
        return self._run

    def _ended(self, run: asyncio.Task[TaskState[Any]]) -> None:
        _RUNNING.discard(run)
        self._events.put_nowait(None)


_RUNNING: set[asyncio.Task[TaskState[Any]]] = set()
"""Runs under way: asyncio itself keeps only weak references to its tasks."""

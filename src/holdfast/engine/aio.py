"""`app.aio`: every verb of an app, to be awaited. The event loop goes on while a thread waits for the store.

There is no second implementation here: each name wraps the method of App of that name.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.engine.app import App

P = ParamSpec("P")
R = TypeVar("R")

_BATCH = 100


def _awaited(method: Callable[Concatenate[App, P], R]) -> Callable[Concatenate[AsyncApp, P], Awaitable[R]]:
    """Run a method in a thread, and wait for it on the event loop."""

    @functools.wraps(method)
    async def call(self: AsyncApp, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, self.app, *args, **kwargs)

    return call


def _iterated(
    method: Callable[Concatenate[App, P], Iterator[R]],
) -> Callable[Concatenate[AsyncApp, P], AsyncIterator[R]]:
    """Iterate in a thread, a batch at a time."""

    @functools.wraps(method)
    async def call(self: AsyncApp, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        found = await asyncio.to_thread(method, self.app, *args, **kwargs)
        while batch := await asyncio.to_thread(_some, found):
            for one in batch:
                yield one

    return call


def _some(found: Iterator[R]) -> list[R]:
    return [one for _, one in zip(range(_BATCH), found, strict=False)]


def _direct(method: Callable[Concatenate[App, P], R]) -> Callable[Concatenate[AsyncApp, P], R]:
    """Call a method that waits for nothing, and gives something that is used with `async` itself."""

    @functools.wraps(method)
    def call(self: AsyncApp, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(self.app, *args, **kwargs)

    return call


def _coroutine(
    method: Callable[Concatenate[App, P], Awaitable[R]],
) -> Callable[Concatenate[AsyncApp, P], Awaitable[R]]:
    """Await a method that is async already."""

    @functools.wraps(method)
    async def call(self: AsyncApp, *args: P.args, **kwargs: P.kwargs) -> R:
        return await method(self.app, *args, **kwargs)

    return call


class AsyncApp:
    """The verbs of an app, to be awaited: `await app.aio.get(id)`, `async for event in app.aio.follow(id)`."""

    def __init__(self, app: App) -> None:
        self.app = app

    run = _coroutine(App.arun)
    arun = _coroutine(App.arun)
    start = _awaited(App.start)
    resume = _coroutine(App.aresume)
    aresume = _coroutine(App.aresume)
    signal = _awaited(App.signal)
    answer = _awaited(App.answer)
    settle = _awaited(App.settle)
    approve = _awaited(App.approve)
    reject = _awaited(App.reject)
    patch = _awaited(App.patch)
    raise_budget = _awaited(App.raise_budget)
    cancel = _awaited(App.cancel)
    append = _awaited(App.append)
    fork = _awaited(App.fork)
    rollback = _awaited(App.rollback)
    get = _awaited(App.get)
    find = _awaited(App.find)
    wait = _awaited(App.wait)
    at = _awaited(App.at)
    list = _awaited(App.list)
    counts = _awaited(App.counts)
    row = _awaited(App.row)
    head = _awaited(App.head)
    inbox = _iterated(App.inbox)
    audit = _iterated(App.audit)
    describe = _iterated(App.describe)
    events = _iterated(App.events)
    follow = _direct(App.follow)
    follow_inbox = _direct(App.follow_inbox)
    watch = _direct(App.watch)
    fetch = _awaited(App.fetch)
    is_interrupted = _awaited(App.is_interrupted)
    steps = _awaited(App.steps)
    step = _awaited(App.step)
    under_way = _awaited(App.under_way)
    diff = _awaited(App.diff)
    deltas = _iterated(App.deltas)
    workers = _awaited(App.workers)
    verify = _awaited(App.verify)
    doctor = _awaited(App.doctor)
    export = _awaited(App.export)
    export_lines = _iterated(App.export_lines)
    import_ = _awaited(App.import_)
    stats = _awaited(App.stats)
    depths = _awaited(App.depths)
    gc = _awaited(App.gc)
    collectable = _awaited(App.collectable)
    backup = _awaited(App.backup)
    copy_to = _awaited(App.copy_to)
    close = _awaited(App.close)
    worker = _direct(App.worker)
    records = _direct(App.records)
    user = _direct(App.user)
    thread = _direct(App.thread)
    new_id = _direct(App.new_id)
    on_events = _direct(App.on_events)

    async def __aenter__(self) -> AsyncApp:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.close()

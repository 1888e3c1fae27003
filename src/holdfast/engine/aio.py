"""`app.aio`: every verb of an app, to be awaited. The event loop keeps running while a thread waits for the store.

There is no second implementation here: each name wraps the method of App of that name.
"""

from __future__ import annotations

import asyncio
import builtins
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from datetime import datetime
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from holdfast.core import limits
from holdfast.core.durations import Duration
from holdfast.engine.app import App
from holdfast.engine.definitions.tool import Tool
from holdfast.engine.lists.end import TaskEnd
from holdfast.engine.people.thread import Thread
from holdfast.engine.people.user import User
from holdfast.engine.reading.task_state import TaskState
from holdfast.engine.records.records import Records

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_BATCH = 100


class _Awaited(Generic[T]):
    """Something whose methods are awaited here."""

    def __init__(self, of: T) -> None:
        self.of = of

    def __repr__(self) -> str:
        return f"<awaited {self.of!r}>"


def _awaited(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[_Awaited[T], P], Awaitable[R]]:
    """Run a method in a thread, and wait for it on the event loop."""

    @functools.wraps(method)
    async def call(self: _Awaited[T], *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, self.of, *args, **kwargs)

    return call


class AsyncRows(Generic[R]):
    """Rows that are read in a thread, a batch at a time: `async for row in …`, or `await …` for a list of all."""

    def __init__(self, read: Callable[[], Iterator[R]]) -> None:
        self._read = read

    async def __aiter__(self) -> AsyncIterator[R]:
        found = await asyncio.to_thread(self._read)
        while batch := await asyncio.to_thread(_some, found):
            for one in batch:
                yield one

    def __await__(self) -> Generator[Any, Any, list[R]]:
        return asyncio.to_thread(lambda: list(self._read())).__await__()


def _iterated(
    method: Callable[Concatenate[T, P], Iterator[R]],
) -> Callable[Concatenate[_Awaited[T], P], AsyncRows[R]]:
    """Iterate in a thread, or give all of it to one who awaits it."""

    @functools.wraps(method)
    def call(self: _Awaited[T], *args: P.args, **kwargs: P.kwargs) -> AsyncRows[R]:
        return AsyncRows(functools.partial(method, self.of, *args, **kwargs))

    return call


def _some(found: Iterator[R]) -> list[R]:
    return [one for _, one in zip(range(_BATCH), found, strict=False)]


def _direct(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[_Awaited[T], P], R]:
    """Call a method that waits for nothing, and gives something that is used with `async` itself."""

    @functools.wraps(method)
    def call(self: _Awaited[T], *args: P.args, **kwargs: P.kwargs) -> R:
        return method(self.of, *args, **kwargs)

    return call


def _coroutine(
    method: Callable[Concatenate[T, P], Awaitable[R]],
) -> Callable[Concatenate[_Awaited[T], P], Awaitable[R]]:
    """Await a method that is async already."""

    @functools.wraps(method)
    async def call(self: _Awaited[T], *args: P.args, **kwargs: P.kwargs) -> R:
        return await method(self.of, *args, **kwargs)

    return call


class AsyncRecords(_Awaited[Records]):
    """The verbs of `app.records(space)`, to be awaited."""

    append = _awaited(Records.append)
    write = _awaited(Records.write)
    read = _awaited(Records.read)
    head = _awaited(Records.head)
    keys = _awaited(Records.keys)
    latest = _awaited(Records.latest)
    changes = _awaited(Records.changes)
    pop = _awaited(Records.pop)
    erase = _awaited(Records.erase)
    trim = _awaited(Records.trim)
    drop = _awaited(Records.drop)
    verify = _awaited(Records.verify)
    export = _awaited(Records.export)
    export_lines = _iterated(Records.export_lines)


class AsyncUser(_Awaited[User]):
    """The verbs of `app.user(id)`, to be awaited."""

    get = _awaited(User.get)
    at = _awaited(User.at)
    events = _iterated(User.events)
    patch = _awaited(User.patch)
    change = _awaited(User.change)
    update = _awaited(User.update)
    rollback = _awaited(User.rollback)
    tasks = _awaited(User.tasks)
    erase = _awaited(User.erase)


class AsyncThread(_Awaited[Thread]):
    """The verbs of `app.thread(id)`, to be awaited; so is what the thread has as attributes."""

    create = _awaited(Thread.create)
    update = _awaited(Thread.update)
    patch = _awaited(Thread.patch)
    page = _awaited(Thread.page)
    find = _awaited(Thread.find)
    message = _awaited(Thread.message)
    add = _awaited(Thread.add)
    pop = _awaited(Thread.pop)
    clear = _awaited(Thread.clear)
    delete = _awaited(Thread.delete)
    window = _awaited(Thread.window)
    render = _awaited(Thread.render)
    events = _iterated(Thread.events)

    @property
    def id(self) -> str:
        """The thread's id."""
        return self.of.id

    async def messages(self) -> list[Any]:
        """All messages."""
        return await asyncio.to_thread(lambda: self.of.messages)

    async def exists(self) -> bool:
        """Whether there is such a thread."""
        return await asyncio.to_thread(lambda: self.of.exists)

    async def metadata(self) -> dict[str, Any]:
        """What your program noted about the thread."""
        return await asyncio.to_thread(lambda: self.of.metadata)

    async def state(self) -> dict[str, Any]:
        """What tasks of the thread share, all of it; `patch` changes it."""
        return await asyncio.to_thread(lambda: self.of.state.all())

    async def context_tokens(self) -> int:
        """How many tokens the whole conversation has."""
        return await asyncio.to_thread(lambda: self.of.context_tokens)

    async def expires_at(self) -> datetime | None:
        """When `gc` may remove it; None if it never expires."""
        return await asyncio.to_thread(lambda: self.of.expires_at)

    async def tasks(self) -> list[str]:
        """The tasks that belong to it."""
        return await asyncio.to_thread(lambda: self.of.tasks)

    async def seq(self) -> int:
        """The seq of its last event; 0 if there is none."""
        return await asyncio.to_thread(lambda: self.of.seq)


class AsyncApp(_Awaited[App]):
    """The verbs of an app, to be awaited: `await app.aio.get(id)`, `async for event in app.aio.follow(id)`."""

    run = _coroutine(App.arun)
    arun = _coroutine(App.arun)
    start = _awaited(App.start)
    resume = _coroutine(App.aresume)
    aresume = _coroutine(App.aresume)
    reconcile = _awaited(App.reconcile)
    reopen = _awaited(App.reopen)
    signal = _awaited(App.signal)
    answer = _awaited(App.answer)
    settle = _awaited(App.settle)
    approve = _awaited(App.approve)
    reject = _awaited(App.reject)
    patch = _awaited(App.patch)
    migrate_states = _awaited(App.migrate_states)
    raise_budget = _awaited(App.raise_budget)
    cancel = _awaited(App.cancel)
    append = _awaited(App.append)
    fork = _awaited(App.fork)
    forks = _awaited(App.forks)
    rollback = _awaited(App.rollback)
    get = _awaited(App.get)
    find = _awaited(App.find)
    at = _awaited(App.at)
    list = _awaited(App.list)
    counts = _awaited(App.counts)
    namespaces = _awaited(App.namespaces)
    row = _awaited(App.row)
    head = _awaited(App.head)
    heads = _awaited(App.heads)
    inbox = _iterated(App.inbox)
    audit = _iterated(App.audit)
    describe = _iterated(App.describe)
    events = _iterated(App.events)
    follow = _direct(App.follow)
    follow_inbox = _direct(App.follow_inbox)
    watch = _direct(App.watch)
    artifact = _awaited(App.artifact)
    fetch = _awaited(App.fetch)
    is_interrupted = _awaited(App.is_interrupted)
    steps = _awaited(App.steps)
    step = _awaited(App.step)
    under_way = _awaited(App.under_way)
    diff = _awaited(App.diff)
    deltas = _iterated(App.deltas)
    workers = _awaited(App.workers)
    due = _awaited(App.due)
    work = _coroutine(App.awork)
    awork = _coroutine(App.awork)
    verify = _awaited(App.verify)
    doctor = _awaited(App.doctor)
    export = _awaited(App.export)
    export_lines = _iterated(App.export_lines)
    import_ = _awaited(App.import_)
    stats = _awaited(App.stats)
    depths = _awaited(App.depths)
    metrics = _awaited(App.metrics)
    gc = _awaited(App.gc)
    collectable = _awaited(App.collectable)
    expired = _awaited(App.expired)
    backup = _awaited(App.backup)
    copy_to = _awaited(App.copy_to)
    close = _awaited(App.close)
    worker = _direct(App.worker)
    new_id = _direct(App.new_id)
    on_events = _direct(App.on_events)

    @overload
    async def call(
        self,
        tool: Tool[..., Coroutine[Any, Any, R]],
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        key: str,
        by: str = "",
        **named: Any,
    ) -> R: ...
    @overload
    async def call(
        self, tool: Tool[..., R], arguments: Mapping[str, Any] | None = None, /, *, key: str, by: str = "", **named: Any
    ) -> R: ...
    async def call(
        self, tool: Tool, arguments: Mapping[str, Any] | None = None, /, *, key: str, by: str = "", **named: Any
    ) -> Any:
        """`app.call` on this event loop: an async tool runs on it, a def tool in a thread of its own."""
        return await self.of.acall(tool, arguments, key=key, by=by, **named)

    acall = call

    async def wait(self, id: str, *, timeout: Duration | None = None) -> TaskState[Any]:
        """`app.wait` without a thread that blocks: wait for any number of tasks at once."""
        return await TaskEnd(self.of.logs, self.of.feed, id, timeout).wait_async()

    def records(self, space: str) -> AsyncRecords:
        """Opaque bytes in ordered, named logs, to be awaited: `await app.aio.records(space).append(key, data)`."""
        return AsyncRecords(self.of.records(space))

    def user(self, id: str) -> AsyncUser:
        """A person, to be awaited: `await app.aio.user(id).patch(…)`."""
        return AsyncUser(self.of.user(id))

    def thread(self, id: str | None = None) -> AsyncThread:
        """A conversation that spans tasks, to be awaited: `await app.aio.thread(id).messages()`."""
        return AsyncThread(self.of.thread(id))

    async def users(self, *, after: str | None = None, limit: int = limits.PAGE_SIZE) -> builtins.list[AsyncUser]:
        """Return the users there are, in the order of their ids, to be awaited."""
        found = await asyncio.to_thread(self.of.users, after=after, limit=limit)
        return [AsyncUser(one) for one in found]

    async def threads(self, *, after: str | None = None, limit: int = limits.PAGE_SIZE) -> builtins.list[AsyncThread]:
        """Return the threads there are, in the order of their ids, to be awaited."""
        found = await asyncio.to_thread(self.of.threads, after=after, limit=limit)
        return [AsyncThread(one) for one in found]

    async def __aenter__(self) -> AsyncApp:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.close()

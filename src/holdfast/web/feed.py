"""What is new, as Server-Sent Events: of one task, and of the list.

However many tabs watch a task, one loop looks at its log, and what it finds is read and written out once. A stream
carries its place (`id:`), so a client that comes back gets exactly what it missed. While no one watches, nothing runs.
See decision 0082.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator
from itertools import islice
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread

from holdfast.core.errors import HoldfastError, InvalidValue, TaskCollected, TaskNotFound
from holdfast.engine.lists.query import row_json
from holdfast.engine.lists.watch import TaskChange, TaskWatch
from holdfast.engine.lists.waterfall import Waterfall
from holdfast.engine.reading import values
from holdfast.engine.reading.values import LoggedEvent
from holdfast.web.access.gate import Denied
from holdfast.web.reading import everywhere, inbox, shown, tasks
from holdfast.web.requests.site import Site

T = TypeVar("T")

LOOK_SECONDS = 0.05
ALIVE_SECONDS = 0.25
"""How often a worker of a task that is watched is looked for. A killed one writes nothing, so it must be looked for."""

PULSE_SECONDS = 1.0
KEEP_OPEN_SECONDS = 15.0
GATHER_SECONDS = 0.05
MOST_GROUP = 500
MOST_GROUPS = 8
MOST_STREAMS = 64
MOST_STREAMS_EACH = 8
RETRY = b"retry: 1000\n\n"
STILL_HERE = b": still here\n\n"
END = b"event: end\ndata: {}\n\n"
"""The server ends; a client comes back as soon as there is one again."""


def frame(event: str, data: Any, id: str = "") -> bytes:
    """An event of a stream. JSON has no line breaks, so it is one line."""
    place = f"id: {id}\n".encode() if id else b""
    return place + f"event: {event}\ndata: ".encode() + values.dump(data) + b"\n\n"


def server_ends() -> bool:
    """Return whether a signal ends the server of this process.

    uvicorn waits for answers that are under way, so it would wait for a stream for ever. An app that is mounted gets no
    word of it, but the handler of the signal is a method of the server, which knows.
    """
    return any(
        getattr(getattr(signal.getsignal(one), "__self__", None), "should_exit", False) is True
        for one in (signal.SIGINT, signal.SIGTERM)
    )


class Feeds:
    """Every stream of a page."""

    def __init__(self, site: Site, readers: CapacityLimiter | None = None) -> None:
        self.site = site
        self._readers = readers
        self._tasks: dict[str, TaskFeed] = {}
        self._pulse: Pulse | None = None
        self._open: dict[str, int] = {}
        self.ending = False
        """Whether the server ends: streams are closed then."""

    async def reading(self, make: Callable[[], T]) -> T:
        """Read in a thread; few at a time."""
        if self._readers is None:
            self._readers = CapacityLimiter(8)
        return await to_thread.run_sync(make, limiter=self._readers)

    async def task(self, person: str, id: str, after: int) -> AsyncGenerator[bytes, None]:
        """What is new in a task's log after a seq, in order, each event once, and whether its worker is alive."""
        with self._counted(person):
            feed = self._tasks.get(id)
            if feed is None:
                feed = self._tasks[id] = TaskFeed(self, id)
            async with self.pulse.listening(), contextlib.aclosing(feed.stream(after)) as parts:
                async for part in parts:
                    yield part

    async def tasks(self, person: str, cursor: str) -> AsyncGenerator[bytes, None]:
        """Tasks whose rows change, and how many there are."""
        with self._counted(person):
            async with contextlib.aclosing(self.pulse.stream(cursor)) as parts:
                async for part in parts:
                    yield part

    @property
    def pulse(self) -> Pulse:
        """What all streams of this page tell: how many tasks there are."""
        if self._pulse is None:
            self._pulse = Pulse(self)
        return self._pulse

    def wake(self) -> None:
        """Wake those who watch tasks: the numbers changed."""
        for feed in self._tasks.values():
            feed.moved()

    def forget(self, id: str) -> None:
        """Drop a feed that no one watches."""
        self._tasks.pop(id, None)

    def check(self, person: str) -> None:
        """Refuse a stream beyond the limits, before its answer begins."""
        if self._open.get(person, 0) >= MOST_STREAMS_EACH or sum(self._open.values()) >= MOST_STREAMS:
            raise Denied(429, "too-many-streams", "Too many streams are open.", "Close some tabs of this page.")

    @contextlib.contextmanager
    def _counted(self, person: str) -> Generator[None, None, None]:
        self._open[person] = self._open.get(person, 0) + 1
        try:
            yield
        finally:
            self._open[person] -= 1
            if not self._open[person]:
                del self._open[person]


class _Shared:
    """A loop that runs while someone listens, and wakes them all."""

    def __init__(self, feeds: Feeds) -> None:
        self.feeds, self.site = feeds, feeds.site
        self._listeners = 0
        self._loop: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        self.error: HoldfastError | None = None

    async def look(self) -> None:
        """Look until cancelled; call `moved` when there is something new."""
        raise NotImplementedError

    def moved(self) -> None:
        """Wake all who listen."""
        self._moved.set()
        self._moved = asyncio.Event()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator[None, None]:
        """Take part: the first one starts the loop, the last one ends it."""
        self._listeners += 1
        if self._loop is None or self._loop.done():  # it ends by itself when the store does not answer
            self.error = None
            self._loop = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self._listeners -= 1
            if self._listeners == 0:
                self._loop.cancel()
                self._loop = None
                self.over()

    def over(self) -> None:
        """Do what is to be done when the last one has left."""

    async def _run(self) -> None:
        try:
            await self.look()
        except HoldfastError as error:  # listeners see it, and connect again
            self.error = error
            self.moved()

    async def wait(self, seconds: float) -> bool:
        """Wait until something is new; False if nothing was for so long."""
        moved = self._moved
        try:
            await asyncio.wait_for(moved.wait(), seconds)
        except TimeoutError:
            return False
        return True


class TaskFeed(_Shared):
    """The log of one task, for all who watch it."""

    def __init__(self, feeds: Feeds, id: str) -> None:
        super().__init__(feeds)
        self.id = id
        self.head = 0
        self.holder: dict[str, Any] = {}
        self._groups: OrderedDict[int, asyncio.Task[tuple[int, bytes]]] = OrderedDict()

    async def stream(self, after: int) -> AsyncGenerator[bytes, None]:
        """Everything after a seq, in groups, for as long as one listens."""
        yield RETRY
        told: dict[str, Any] = {}
        numbers: dict[str, Any] = {}
        pulse = self.feeds.pulse
        async with self.listening():
            await self._first_look()
            after = min(after, self.head)
            while self.error is None and pulse.error is None and not self.feeds.ending:
                if after < self.head:
                    try:
                        after, part = await self._group(after)
                    except HoldfastError as error:  # the store went away while it was read
                        self.error = error
                        continue
                    yield part
                elif self.holder != told:
                    told = self.holder
                    yield frame("holder", told)
                elif pulse.numbers != numbers:
                    numbers = pulse.numbers
                    yield frame("counts", numbers)
                elif not await self.wait(KEEP_OPEN_SECONDS):
                    yield STILL_HERE
            if self.error is None and pulse.error is None:
                yield END
                return
            gone = isinstance(self.error, TaskNotFound | TaskCollected)
            yield frame("gone" if gone else "failed", _told(self.error or pulse.error))

    def over(self) -> None:
        self.feeds.forget(self.id)

    async def _first_look(self) -> None:
        while self.head == 0 and self.error is None and await self.wait(KEEP_OPEN_SECONDS):
            pass

    async def look(self) -> None:
        """Look at the head often, and now and then for the worker."""
        alive = 0.0
        while True:
            head = await self.feeds.reading(lambda: self.site.app.head(self.id))
            if head == 0:
                await self.feeds.reading(lambda: self.site.app.get(self.id))  # which says why it is not there
                raise TaskNotFound(self.id)
            news = head != self.head
            alive -= LOOK_SECONDS
            if news or alive <= 0:
                alive = ALIVE_SECONDS
                holder = await self.feeds.reading(self._look_for_holder)
                news |= holder != self.holder
                self.holder = holder
            if news:
                self.head = head
                self.moved()
            await asyncio.sleep(LOOK_SECONDS)

    def _look_for_holder(self) -> dict[str, Any]:
        row = self.site.app.row(self.id)
        if row is None:
            raise TaskNotFound(self.id)
        dead = self.site.app.is_interrupted(row)
        return {"status": row.status, "holder": shown.holder_json(self.site, row.holder), "interrupted": dead}

    async def _group(self, after: int) -> tuple[int, bytes]:
        """The next events after a seq, up to 500, written out once for all who are at the same place."""
        made = self._groups.get(after)
        if made is None:
            upto = min(self.head, after + MOST_GROUP)
            made = asyncio.create_task(self.feeds.reading(lambda: self._read(after, upto)))
            self._groups[after] = made
            made.add_done_callback(
                lambda done: self._groups.pop(after, None) if done.cancelled() or done.exception() else None
            )
            while len(self._groups) > MOST_GROUPS:
                self._groups.popitem(last=False)
        return await asyncio.shield(made)

    def _read(self, after: int, upto: int) -> tuple[int, bytes]:
        app = self.site.app
        events = list(islice(app.events(self.id, after=after), upto - after))
        last = events[-1].seq

        def told(went: Waterfall) -> dict[str, Any]:
            changed = {*_touched(events, went, after)}
            rows = [tasks.step_row(row) for key, row in went.rows.items() if key in changed]
            more = {"steps": rows, "lanes": tasks.lanes(self.site, went), "stages": list(went.stages)}
            return {**more, "header": tasks.header(self.site, app.get(self.id), went, is_now=True)}

        data = {
            "rows": [shown.row_of(app, one) for one in events],
            "deltas": tasks.deltas_of(app, self.id, after, last),
        }
        return last, frame("rows", data | self.site.went(self.id, told), str(last))


def _told(error: HoldfastError | None) -> dict[str, Any]:
    assert error is not None
    return {"code": error.code, "detail": error.message, "hint": error.hint}


def _touched(events: list[LoggedEvent], went: Waterfall, after: int) -> list[str]:
    """The keys of rows that events may have changed. A claim ends what a dead worker left running."""
    lost = any(one.kind in ("task_claimed", "rolled_back") for one in events)
    return [key for key, row in went.rows.items() if row.last > after or lost]


class Pulse(_Shared):
    """What changes in lists: rows by the feed of changes, and numbers at most once a second, for all who watch."""

    def __init__(self, feeds: Feeds) -> None:
        super().__init__(feeds)
        self.numbers: dict[str, Any] = {}
        self._cursor = ""

    async def stream(self, cursor: str) -> AsyncGenerator[bytes, None]:
        """Changes after a cursor, gathered for a moment, and numbers when they change.

        After a cursor that leads nowhere in this store it begins now, and says so first: `reset`.
        """
        yield RETRY
        async with self.listening():
            try:
                begin, reset = await self.feeds.reading(lambda: self._from(cursor))
            except HoldfastError as error:  # the store does not answer
                yield frame("failed", _told(error))
                return
            if reset:
                yield frame("reset", {}, reset)
            async with contextlib.aclosing(self._frames(begin)) as parts:
                async for part in parts:
                    yield part

    async def _frames(self, begin: TaskWatch) -> AsyncGenerator[bytes, None]:
        told: dict[str, Any] = {}
        changes: list[TaskChange] = []
        failed: list[HoldfastError] = []
        watch = asyncio.create_task(self._watch(begin, changes, failed))
        try:
            while self.error is None and not failed and not self.feeds.ending:
                if changes:
                    await asyncio.sleep(GATHER_SECONDS)
                    taken, changes[:] = list(changes), []
                    rows = {one.id: one.row for one in taken}.values()
                    found = [row_json(row, interrupted=False) for row in rows]
                    yield frame("changed", {"tasks": found}, taken[-1].cursor)
                if self.numbers != told:
                    told = self.numbers
                    yield frame("counts", told)
                elif not changes and not await self.wait(KEEP_OPEN_SECONDS):
                    yield STILL_HERE
            error = self.error or next(iter(failed), None)
            yield END if error is None else frame("failed", _told(error))
        finally:
            watch.cancel()

    def _from(self, cursor: str) -> tuple[TaskWatch, str]:
        """Watch from a place on. If it is none of this store, watch from now on, and return the place of now."""
        app = self.site.app
        with contextlib.suppress(InvalidValue):
            found = app.watch(after=cursor or None)
            if not cursor or not found.is_ahead:
                return found, ""
        now = app.watch()
        return now, now.cursor

    async def _watch(self, begin: TaskWatch, changes: list[TaskChange], failed: list[HoldfastError]) -> None:
        """Gather the changes of one stream. What goes wrong here ends this stream, and no other."""
        try:
            async for change in begin:
                changes.append(change)
                self.moved()
        except HoldfastError as error:
            failed.append(error)
            self.moved()

    async def look(self) -> None:
        """Count once a second if something changed; running tasks are looked after all the same."""
        while True:
            self.feeds.ending = server_ends()
            if self.feeds.ending:
                self.moved()
                self.feeds.wake()
            cursor, numbers = await self.feeds.reading(self._count)
            self._cursor = cursor  # not before: a look that is cut short gives no numbers
            if numbers != self.numbers:
                self.numbers = numbers
                self.moved()
                self.feeds.wake()
            await asyncio.sleep(PULSE_SECONDS)

    def _count(self) -> tuple[str, dict[str, Any]]:
        """The place in the feed, and the numbers there; those of before if nothing has changed."""
        app = self.site.app
        cursor = app.watch().cursor  # of all namespaces
        if cursor == self._cursor and not self.numbers.get("by_status", {}).get("running"):
            return cursor, self.numbers
        if self.site.spread().sites:
            return cursor, {**everywhere.counted(self.site), "place": cursor}
        waiting = self.numbers.get("inbox", 0)
        if cursor != self._cursor:
            waiting = sum(1 for _ in islice(app.inbox(), inbox.MOST_INBOX))
        numbers = tasks.counted(app)
        del numbers["as_of"]
        return cursor, {**numbers, "inbox": waiting}

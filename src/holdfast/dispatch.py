"""Tell another job system which tasks are due: `due` gives their ids, and a `Pump` sends them until they are taken.

    from holdfast import dispatch

    for id in dispatch.due(app):                 # new, woken and orphaned tasks, as they become due
        queue.send(id)                           # a message that is lost is sent again after some seconds

What receives an id calls `app.work(id)`. The store decides which process works on a task, so a message may be lost,
doubled or late. `holdfast.on_celery` and `holdfast.on_temporal` are pumps for those systems.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import random
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Literal, TypedDict, Unpack

from holdfast import Agent, App, InvalidValue, Queue, StoreClosed, StoreError
from holdfast.core.errors import Diverged
from holdfast.engine.reading.values import Duration, seconds as as_seconds

LOOK_SECONDS = 0.2
"""How often the store is asked for tasks that are due."""

LOOK_SHARE = 10
"""It rests for so many times as long as a look took, if that is longer."""

AGAIN_SECONDS = 5.0
"""How long a task that was given may stay untaken before it is given again."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 5.0
"""How long it waits before it tries again what failed: a store that can't be reached, a broker that is away."""

_log = logging.getLogger("holdfast")


class Which(TypedDict, total=False):
    """Which tasks to tell of: agents, queues and namespaces as for `app.worker`, and how often and how many."""

    agents: Sequence[Agent] | None
    queues: Sequence[str | Queue] | None
    namespaces: Sequence[str] | Literal["*"] | None
    again: Duration
    """How long a task may stay untaken before its id is given again. Default 5 s."""
    limit: int
    """How many ids may be given and not taken. Default 1,000."""


def due(app: App, *, seconds: Duration | None = None, **which: Unpack[Which]) -> Iterator[str]:
    """Give the ids of tasks that are due and that no process works on, as they become due; for ever, or so long.

    An id is given again every `again` (default 5 s) until a process has taken its task. At most `limit` (default 1,000)
    are given and not taken at any time. `agents`, `queues` and `namespaces` are as for `app.worker`; without `agents`,
    those the app was opened with. The store is asked every 0.2 s, by index. While it can't be reached, nothing is
    given.
    """
    until = None if seconds is None else time.monotonic() + as_seconds(seconds, "seconds")
    return _due(_DueTasks(app, **which), until)


def _due(tasks: _DueTasks, until: float | None) -> Iterator[str]:
    while until is None or time.monotonic() < until:
        try:
            found = tasks.look()
        except StoreClosed:
            return
        for id in found:
            tasks.given([id])
            yield id
        time.sleep(tasks.rest_seconds())


class Pump:
    """Sends the ids of due tasks to another system, again until they are taken. `run` it in one process, or in two.

    `send` is called with a list of ids. What it raises is logged, and the ids are sent again: a broker may go and come
    back. `room` says how many messages the system takes now; default: any number. The rest is as for `due`.
    """

    def __init__(
        self,
        app: App,
        send: Callable[[list[str]], object],
        *,
        room: Callable[[], int] | None = None,
        **which: Unpack[Which],
    ) -> None:
        if not callable(send) or inspect.iscoroutinefunction(send):
            raise InvalidValue(
                f"send={send!r} can't be called to send something",
                hint="give a def function that takes a list of ids; one of asyncio is called by "
                "asyncio.run_coroutine_threadsafe(…, loop).result()",
            )
        self._tasks = _DueTasks(app, **which)
        self._send = send
        self._room = room
        self._stopping = threading.Event()
        self._pause = 0.0
        self.sent = 0
        """How many messages were sent."""
        self.trouble = ""
        """Why nothing can be sent, while that is so."""

    def run(self) -> None:
        """Send until `stop`; in the main thread also until SIGTERM or Ctrl-C."""
        is_main = threading.current_thread() is threading.main_thread()
        with self._signals() if is_main else contextlib.nullcontext():
            while not self._stopping.is_set():
                try:
                    self._round()
                except StoreClosed:
                    return
                self._stopping.wait(max(self._pause, self._tasks.rest_seconds()))

    def stop(self) -> None:
        """Send no more. May be called from any thread, and twice."""
        self._stopping.set()

    def _round(self) -> None:
        found = self._tasks.look()
        try:
            most = len(found) if self._room is None or not found else self._room()
            if ids := found[: max(0, most)]:
                self._send(ids)
                self.sent += len(ids)
                self._tasks.given(ids)
        except Exception as error:  # noqa: BLE001 — whatever a broker's client raises while the broker is away
            self._pause = min(LONGEST_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, self._pause * 2))
            if not self.trouble:
                _log.warning("pump: %s: %s; it keeps trying", type(error).__name__, error)
            self.trouble = f"{type(error).__name__}: {error}"
            return
        if self.trouble:
            _log.warning("pump: messages can be sent again")
        self._pause, self.trouble = 0.0, ""

    @contextlib.contextmanager
    def _signals(self) -> Generator[None, None, None]:
        """Stop when the process is asked to."""

        def stop(number: int, frame: object) -> None:
            self.stop()

        numbers = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, stop) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


class _DueTasks:
    """Looks for tasks that are due, and remembers which of them were given and not taken yet."""

    def __init__(self, app: App, *, again: Duration = AGAIN_SECONDS, **asked: Any) -> None:
        inspect.signature(app.due).bind(**asked)  # refuse an unknown name here, not at the first look
        at_least_one(asked.get("limit", 1), "limit")
        self._app = app
        self._asked = asked
        self._again = as_seconds(again, "again", above_zero=True)
        self._found: dict[str, int] = {}
        self._given: dict[str, tuple[int, float]] = {}
        """The seq at which a task was given, and when."""
        self._next = self._pause = 0.0
        self._trouble = ""

    def look(self) -> list[str]:
        """Return the ids to give now: tasks that became due, and those that were given and not taken in time."""
        if self._app.feed.is_closed:
            raise StoreClosed("the app is closed, so no task is due", hint="open the store again")
        began = time.monotonic()
        try:
            self._found = self._app.due(**self._asked)
        except (StoreClosed, Diverged):
            raise
        except StoreError as error:
            self._ill(error)
            return []
        now = time.monotonic()
        self._well(now, now - began)
        self._given = {id: one for id, one in self._given.items() if self._found.get(id) == one[0]}
        return [id for id in self._found if id not in self._given or now >= self._given[id][1] + self._again]

    def given(self, ids: Sequence[str]) -> None:
        """Note that these were given."""
        now = time.monotonic()
        self._given |= {id: (self._found[id], now) for id in ids}

    def rest_seconds(self) -> float:
        """Return how long to wait before the next look."""
        return max(0.0, self._next - time.monotonic())

    def _ill(self, error: StoreError) -> None:
        """The store can't be reached: say so once, and wait."""
        if not self._trouble:
            _log.warning("due tasks: %s; it keeps trying", error.message)
        self._trouble = error.message
        self._pause = min(LONGEST_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, self._pause * 2))
        self._next = time.monotonic() + self._pause * (0.5 + random.random())

    def _well(self, now: float, took: float) -> None:
        if self._trouble:
            _log.warning("due tasks: the store is back")
        self._trouble, self._pause = "", 0.0
        self._next = now + max(LOOK_SECONDS, LOOK_SHARE * took)


def at_least_one(value: int, what: str) -> int:
    """Return a number of messages or tasks, or refuse one with which nothing would ever happen."""
    if not isinstance(value, int) or value < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"{what}={value!r} lets nothing happen", hint="give 1 or more")
    return value

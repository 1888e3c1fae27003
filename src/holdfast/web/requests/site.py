"""One page over one store: its settings, and what it keeps between requests."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, TypeVar, cast

from msgspec import Struct

from holdfast import Agent, App, Tool
from holdfast.core.errors import StoreUnreachable
from holdfast.engine.lists.waterfall import Waterfall
from holdfast.engine.reading import values
from holdfast.engine.reading.describe import process_name
from holdfast.engine.reading.serving import LiveWorker
from holdfast.web.access.gate import Denied
from holdfast.web.access.sessions import Sessions

T = TypeVar("T")

MOST_KEPT = 128
MOST_ACTS_KEPT = 1_000
MOST_STATES = 2_000
MOST_MACHINES = 2_000
MOST_ANSWERS = 20
MACHINES_SECONDS = 2.0
GONE_MS = 60 * 60 * 1000
MOST_GONE = 20


class Settings(Struct, frozen=True, kw_only=True):
    """How a page was opened."""

    store: str = ""
    namespace: str = ""
    read_only: bool = False
    by: str = ""
    login: str = "link"
    loopback: bool = False
    """Whether only this machine reaches it."""
    debug: bool = False
    one_of_many: bool = False
    """Whether the page of all namespaces lies above this one."""


class Known(Struct, frozen=True):
    """The code that a page was given: agents to start tasks of, and tools whose destinations can be asked."""

    agents: Mapping[str, Agent] = {}
    tools: Mapping[str, Tool] = {}
    demo: Callable[[], str] | None = None
    """Begins the demo in this store, in processes of its own, and returns the id of its task."""


class DestinationAnswer(Struct, frozen=True):
    """An answer of a destination that a person asked from this page."""

    at_ms: int
    by: str
    told: str


class Spread(Struct, frozen=True):
    """The sites of namespaces that are shown together, and how many namespaces there are beyond them."""

    sites: tuple[Site, ...] = ()
    left_out: int = 0


class _Act:
    """An act of a person: what was asked for, and what came of it once it is done."""

    def __init__(self, asked: str) -> None:
        self.asked, self.lock = asked, threading.Lock()
        self.done, self.answer = False, cast("Any", None)


class _Kept:
    """How one task went, and the lock under which it is read."""

    def __init__(self, fall: Waterfall) -> None:
        self.lock, self.fall = threading.Lock(), fall


class Site:
    """What handlers share: the store, the settings, and what is kept for a while. Safe from several threads."""

    def __init__(
        self,
        app: App,
        settings: Settings,
        sessions: Sessions | None,
        known: Known = Known(),  # noqa: B008
    ) -> None:
        self._app, self.settings, self.sessions, self.known = app, settings, sessions, known
        self._path = values.path_of(settings.store) if settings.store else None
        self._file = _identity(self._path)
        self._lock = threading.Lock()
        self._went: OrderedDict[str, _Kept] = OrderedDict()
        self._kept: dict[str, tuple[float, Any]] = {}
        self.spread: Callable[[], Spread] = Spread
        """The sites of all namespaces, if this one shows them together."""
        self.site_of: Callable[[str], Site | None] = lambda namespace: None
        """The site of one of them."""
        self.jobs: dict[str, Any] = {}
        """Acts on many tasks that are under way, or were lately."""
        self._states: OrderedDict[tuple[str, str], tuple[int, Any]] = OrderedDict()
        self._acts: OrderedDict[tuple[str, str], _Act] = OrderedDict()
        self._machines: dict[str, str] = {}
        self._seen: OrderedDict[str, tuple[int, LiveWorker]] = OrderedDict()
        self._answers: OrderedDict[tuple[str, str], list[DestinationAnswer]] = OrderedDict()

    @property
    def app(self) -> App:
        """The app of the store. Raises if the store's file is gone: a file that is open could be read long after."""
        if self._file is not None and _identity(self._path) != self._file:
            raise StoreUnreachable(
                f"{self.settings.store} was removed or replaced while this page was open",
                hint="put the file back, or start the page again: holdfast ui",
            )
        return self._app

    def went(self, id: str, use: Callable[[Waterfall], T], upto: int | None = None) -> T:
        """Use how a task went. What was read before is kept, and only later events are added."""
        if upto is not None:
            made = Waterfall(self.app.fetch)
            made.extend(islice(self.app.events(id), upto))
            return use(made)
        with self._lock:
            kept = self._went.pop(id, None) or _Kept(Waterfall(self.app.fetch))
            self._went[id] = kept
            while len(self._went) > MOST_KEPT:
                self._went.popitem(last=False)
        with kept.lock:
            head = self.app.head(id)
            if head != kept.fall.seq or head == 0:
                kept.fall.extend(self.app.events(id, after=kept.fall.seq))
            return use(kept.fall)

    def kept(self, name: str, seconds: float, make: Callable[[], T]) -> T:
        """Return what was made at most so long ago, else make it."""
        with self._lock:
            at, value = self._kept.get(name, (0.0, None))
        if at and time.monotonic() - at < seconds:
            return value
        value = make()
        with self._lock:
            self._kept[name] = (time.monotonic(), value)
        return value

    def remembered(self, name: tuple[str, str, int], make: Callable[[], T]) -> T:
        """Return what was made for a state of a task; only the newest states of tasks are kept."""
        kind, id, changed = name
        with self._lock:
            at, value = self._states.pop((kind, id), (None, None))
        if at != changed:
            value = make()
        with self._lock:
            self._states[kind, id] = (changed, value)
            while len(self._states) > MOST_STATES:
                self._states.popitem(last=False)
        return cast("T", value)

    def machine(self, holder: str) -> str:
        """Return the machine of a process, if a worker announced it; it is remembered when the worker has died."""
        if holder not in self._machines:
            self.kept("machines", MACHINES_SECONDS, self._learn_machines)
        return self._machines.get(holder, "")

    def gone(self, alive: Iterable[LiveWorker]) -> list[dict[str, Any]]:
        """Workers that this page saw alive in the last hour and that are no longer, the last seen first.

        They ended or died: the store does not tell which, once no task is theirs.
        """
        now_ms = self.app.clock.now_us() // 1000
        with self._lock:
            for one in alive:
                self._seen.pop(one.holder, None)
                self._seen[one.holder] = (now_ms, one)
            while self._seen and now_ms - next(iter(self._seen.values()))[0] > GONE_MS:
                self._seen.popitem(last=False)
            seen = list(reversed(self._seen.values()))
        here = {one.holder for one in alive}
        return [
            {
                "holder": one.holder,
                "pid": str(one.serving.pid or process_name(one.holder)),
                "machine": one.serving.host,
                "agents": sorted(one.serving.agents),
                "queues": list(one.serving.queues),
                "seen_ms": seen_ms,
            }
            for seen_ms, one in seen
            if one.holder not in here
        ][:MOST_GONE]

    def _learn_machines(self) -> bool:
        alive = self.app.workers()
        self.gone(alive)
        announced = {one.holder: one.serving.host for one in alive if one.serving.host}
        known = {**self._machines, **announced}
        self._machines = dict(islice(known.items(), max(0, len(known) - MOST_MACHINES), None))
        return True

    def heard(self, id: str, call: str, answer: DestinationAnswer) -> None:
        """Keep an answer about a call. The log has only the one that settles it."""
        with self._lock:
            answers = self._answers.pop((id, call), [])
            self._answers[id, call] = [*answers, answer][-MOST_ANSWERS:]
            while len(self._answers) > MOST_STATES:
                self._answers.popitem(last=False)

    def answers(self, id: str, call: str) -> list[DestinationAnswer]:
        """Return every answer about a call since this page was started, oldest first."""
        with self._lock:
            return list(self._answers.get((id, call), ()))

    def once(self, person: str, key: str, asked: str, act: Callable[[], T]) -> T:
        """Do something once for a key: asked again, it returns what it returned. What fails may be tried again.

        The same act can't be under way twice; others need not wait for it. A key that was used for something else is
        refused: its answer would say that this was done.
        """
        with self._lock:
            known = self._acts.setdefault((person, key), _Act(asked))
            over = max(0, len(self._acts) - MOST_ACTS_KEPT)
            ended = (name for name, one in self._acts.items() if one is not known and not one.lock.locked())
            for name in list(islice(ended, over)):
                del self._acts[name]
        if known.asked != asked:
            hint = "send a new random key with each act"
            raise Denied(409, "key-used", f"The Idempotency-Key {key!r} was used for another act.", hint)
        with known.lock:
            if not known.done:
                known.answer, known.done = act(), True
            return cast("T", known.answer)


def _identity(path: str | None) -> tuple[int, int] | None:
    """Which file is at a path; None if there is none."""
    try:
        found = None if path is None else os.stat(path)
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)

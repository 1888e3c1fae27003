"""One page over one store: its settings, and what it keeps between requests."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, TypeVar, cast

from msgspec import Struct

from holdfast import Agent, App, Tool
from holdfast.core.errors import StoreUnreachable
from holdfast.engine.lists.waterfall import Waterfall
from holdfast.engine.reading import values
from holdfast.web.access.sessions import Sessions

T = TypeVar("T")

MOST_KEPT = 128
MOST_ACTS_KEPT = 1_000
MOST_STATES = 2_000


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
        self._lock, self._acting = threading.Lock(), threading.Lock()
        self._went: OrderedDict[str, _Kept] = OrderedDict()
        self._kept: dict[str, tuple[float, Any]] = {}
        self.spread: Callable[[], list[Site]] = list
        """The sites of all namespaces, if this one shows them together."""
        self.jobs: dict[str, Any] = {}
        """Acts on many tasks that are under way, or were lately."""
        self._states: OrderedDict[tuple[str, str], tuple[int, Any]] = OrderedDict()
        self._acts: OrderedDict[tuple[str, str], Any] = OrderedDict()

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

    def once(self, person: str, key: str, act: Callable[[], T]) -> T:
        """Do something once for a key: asked again, it returns what it returned. What fails may be tried again.

        Acts are done one after the other, so that the same one can't be under way twice.
        """
        with self._acting:
            if (person, key) not in self._acts:
                self._acts[person, key] = act()
                while len(self._acts) > MOST_ACTS_KEPT:
                    self._acts.popitem(last=False)
            return self._acts[person, key]


def _identity(path: str | None) -> tuple[int, int] | None:
    """Which file is at a path; None if there is none."""
    try:
        found = None if path is None else os.stat(path)
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)

"""The feed of changes of a store: one thread reads it in this process, however many apps and listeners there are.

Changes that were read are kept for a while. A listener that is further behind reads the store itself, from its own
place, so a slow listener costs the others nothing. While there is no listener, nothing is read.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from weakref import WeakValueDictionary

from holdfast.core import limits
from holdfast.core.errors import HoldfastError, StoreClosed
from holdfast.store.protocol import Generation, RowChange, Store, change_place
from holdfast.store.tenants import Tenant

Place = tuple[int, int]

_Which = tuple[str, str, int]
"""A store as this process knows it: its address, its identity (a copy of a file has the same), and the process itself,
because a forked child inherits objects but no threads."""


class Feed:
    """The changes that one app hears of. Safe from several threads."""

    def __init__(self, store: Store) -> None:
        self._tenant = store if isinstance(store, Tenant) else None
        self._store = store.whole if isinstance(store, Tenant) else store
        self._reader: _Reader | None = None
        self._closed = False

    def listen(self, cursor: str, wake: Callable[[], object]) -> FeedListener:
        """Begin to hear of changes after a place. `wake` is called, in any thread, when there may be some."""
        self._reader = self._reader or _reader_of(self._store)
        listener = FeedListener(self, self._reader, cursor)
        if not self._closed:
            self._reader.add(listener, wake)
        return listener

    def close(self) -> None:
        """End all listening of this app. Other apps of the process keep theirs."""
        self._closed = True
        if self._reader is not None:
            self._reader.remove_all(self)

    @property
    def is_closed(self) -> bool:
        """True if there will be no more."""
        return self._closed

    def read(self, cursor: str) -> list[RowChange]:
        """Changes after a place, from the store, of all namespaces."""
        return self._store.changes(cursor, limit=limits.LIST_CHUNK)

    def begin(self) -> str:
        """The place after which come the changes that are committed from now on."""
        return self._store.last_change()

    def own(self, found: list[RowChange]) -> list[RowChange]:
        """Those of some changes that this app may see, as it sees them."""
        return found if self._tenant is None else self._tenant.own_changes(found)


class FeedListener:
    """One listener, and how far it has come."""

    def __init__(self, feed: Feed, reader: _Reader, cursor: str) -> None:
        self.feed = feed
        self._reader = reader
        self.cursor = cursor

    def take(self) -> list[RowChange]:
        """Return the changes at hand; empty if the store must be asked, or if there are none."""
        return self._taken(self._reader.kept_after(change_place(self.cursor)) or [])

    @property
    def is_behind(self) -> bool:
        """True if the store must be asked."""
        return not self.feed.is_closed and self._reader.kept_after(change_place(self.cursor)) is None

    def read(self) -> list[RowChange]:
        """Read the changes from the store itself. It may take a while."""
        return self._taken(self.feed.read(self.cursor))

    def leave(self) -> None:
        """Hear no more. When the last listener of a store has left, its thread ends."""
        self._reader.remove(self)

    def _taken(self, found: list[RowChange]) -> list[RowChange]:
        if found:
            self.cursor = found[-1].cursor
        return self.feed.own(found)


class _Reader:
    """Reads the changes of one store while there are listeners, through the app of one of them."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._listeners: dict[FeedListener, Callable[[], object]] = {}
        self._kept: list[tuple[Place, RowChange]] = []
        self._floor: Place | None = None
        self._thread: threading.Thread | None = None
        self._busy_with: Feed | None = None
        self._error: HoldfastError | None = None

    def add(self, listener: FeedListener, wake: Callable[[], object]) -> None:
        with self._lock:
            self._error = None
            self._listeners[listener] = wake
            if self._thread is None:
                self._thread = threading.Thread(target=self._read, name="holdfast-feed", daemon=True)
                self._thread.start()

    def remove(self, listener: FeedListener) -> None:
        with self._lock:
            self._listeners.pop(listener, None)
            self._lock.notify_all()

    def remove_all(self, feed: Feed) -> None:
        """Remove the listeners of an app, and wait until its store is not being read."""
        with self._lock:
            for listener in [one for one in self._listeners if one.feed is feed]:
                self._listeners.pop(listener)()
            self._lock.notify_all()
            self._lock.wait_for(lambda: self._busy_with is not feed, limits.FEED_CLOSE_SECONDS)

    def kept_after(self, place: Place) -> list[RowChange] | None:
        """Changes after a place that are kept; None if some may be missing, and the store must be asked."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._floor is None or place < self._floor:
                return None
            first = bisect_right(self._kept, place, key=lambda one: one[0])
            return [one for _, one in self._kept[first:]]

    def _read(self) -> None:
        cursor = ""
        while (feed := self._next_feed()) is not None:
            began = time.monotonic()
            try:
                cursor = cursor or self._begin(feed)
                found = feed.read(cursor)
            except HoldfastError as error:  # the listeners get the error, and may listen again
                if self._goes_on_after(error, feed):
                    continue
                return
            cursor = found[-1].cursor if found else cursor
            self._give(found, time.monotonic() - began)

    def _next_feed(self) -> Feed | None:
        """The app whose store is read next; None, and the thread ends, if there is no listener."""
        with self._lock:
            self._busy_with = next((one.feed for one in self._listeners), None)
            if self._busy_with is None:
                self._end()
            return self._busy_with

    def _begin(self, feed: Feed) -> str:
        cursor = feed.begin()
        with self._lock:
            self._floor, self._kept = change_place(cursor), []
            self._wake()  # what came before must be read from the store
        return cursor

    def _goes_on_after(self, error: HoldfastError, feed: Feed) -> bool:
        """Return whether the error concerns only an app that is closing, and others can be read through."""
        with self._lock:
            self._not_busy()
            if isinstance(error, StoreClosed) and feed.is_closed:
                return True
            self._error = error
            self._end()
            return False

    def _give(self, found: list[RowChange], took: float) -> None:
        with self._lock:
            self._not_busy()
            self._kept += [(change_place(one.cursor), one) for one in found]
            extra = len(self._kept) - limits.FEED_KEPT
            if extra > 0:
                self._floor = self._kept[extra - 1][0]
                del self._kept[:extra]
            if found:
                self._wake()
            else:
                rest = max(limits.FOLLOW_SECONDS, limits.NOTICE_SHARE * took)
                self._lock.wait_for(lambda: not self._listeners, rest)  # one who leaves costs no look

    def _not_busy(self) -> None:
        self._busy_with = None
        self._lock.notify_all()

    def _end(self) -> None:
        self._thread, self._busy_with, self._floor, self._kept = None, None, None, []
        self._wake()

    def _wake(self) -> None:
        for wake in self._listeners.values():
            wake()


_readers: WeakValueDictionary[_Which, _Reader] = WeakValueDictionary()
_readers_lock = threading.Lock()


def _reader_of(store: Store) -> _Reader:
    """The one reader of a store in this process."""
    which = (store.url, store.identity().id, Generation.now)
    with _readers_lock:
        found = _readers.get(which)
        if found is None:
            found = _readers[which] = _Reader()
        return found

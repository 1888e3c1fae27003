"""The feed of changes of a store: one thread reads it, however many listen.

Changes that were read are kept for a while. A listener that is further behind reads the store itself, from its own
place, so a slow one costs nobody else anything. While no one listens, nothing is read.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable

from holdfast.core import limits
from holdfast.core.errors import HoldfastError
from holdfast.store.protocol import RowChange, Store, change_place

Place = tuple[int, int]


class Feed:
    """Reads the changes of one store while there are listeners. Safe from several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Condition()
        self._listeners: dict[FeedListener, Callable[[], object]] = {}
        self._kept: list[tuple[Place, RowChange]] = []
        self._floor: Place | None = None
        self._thread: threading.Thread | None = None
        self._error: HoldfastError | None = None
        self._closed = False

    def listen(self, cursor: str, wake: Callable[[], object]) -> FeedListener:
        """Begin to hear of changes after a place. `wake` is called, in any thread, when there may be some."""
        listener = FeedListener(self, cursor)
        with self._lock:
            self._error = None
            self._listeners[listener] = wake
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._read, name="holdfast-feed", daemon=True)
                self._thread.start()
        return listener

    def leave(self, listener: FeedListener) -> None:
        """Hear no more. When the last one has left, the thread ends."""
        with self._lock:
            self._listeners.pop(listener, None)
            self._lock.notify_all()

    def close(self) -> None:
        """End all listening."""
        with self._lock:
            self._closed = True
            thread = self._thread
            self._wake()
            self._lock.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(limits.FEED_CLOSE_SECONDS)

    @property
    def is_closed(self) -> bool:
        """Whether there will be no more."""
        return self._closed

    def kept_after(self, place: Place) -> list[RowChange] | None:
        """Changes after a place that are kept; None if some may be missing, and the store must be asked."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._floor is None or place < self._floor:
                return None
            first = bisect_right(self._kept, place, key=lambda one: one[0])
            return [one for _, one in self._kept[first:]]

    def read(self, cursor: str) -> list[RowChange]:
        """Changes after a place, from the store."""
        return self._store.changes(cursor, limit=limits.LIST_CHUNK)

    def _read(self) -> None:
        cursor = ""
        while True:
            began = time.monotonic()
            try:
                cursor = cursor or self._begin()
                found = self._store.changes(cursor, limit=limits.LIST_CHUNK)
            except HoldfastError as error:  # those who listen are told, and may listen again
                with self._lock:
                    self._error = None if self._closed else error
                    self._end()
                return
            cursor = found[-1].cursor if found else cursor
            took = time.monotonic() - began
            with self._lock:
                self._keep(found)
                if not found:
                    self._lock.wait(max(limits.FOLLOW_SECONDS, limits.NOTICE_SHARE * took))
                if self._closed or not self._listeners:
                    self._end()
                    return

    def _begin(self) -> str:
        cursor = self._store.last_change()
        with self._lock:
            self._floor, self._kept = change_place(cursor), []
            self._wake()  # what came before must be read from the store
        return cursor

    def _keep(self, found: list[RowChange]) -> None:
        self._kept += [(change_place(one.cursor), one) for one in found]
        extra = len(self._kept) - limits.FEED_KEPT
        if extra > 0:
            self._floor = self._kept[extra - 1][0]
            del self._kept[:extra]
        if found:
            self._wake()

    def _end(self) -> None:
        self._thread, self._floor, self._kept = None, None, []
        self._wake()

    def _wake(self) -> None:
        for wake in self._listeners.values():
            wake()


class FeedListener:
    """One who listens, and how far it has come."""

    def __init__(self, feed: Feed, cursor: str) -> None:
        self._feed = feed
        self.cursor = cursor

    def take(self) -> list[RowChange]:
        """What is new and at hand; empty if the store must be asked, or if there is nothing."""
        found = self._feed.kept_after(change_place(self.cursor))
        return self._taken(found or [])

    @property
    def is_behind(self) -> bool:
        """Whether the store must be asked."""
        return not self._feed.is_closed and self._feed.kept_after(change_place(self.cursor)) is None

    def read(self) -> list[RowChange]:
        """What is new, from the store itself. It may take a while."""
        return self._taken(self._feed.read(self.cursor))

    def _taken(self, found: list[RowChange]) -> list[RowChange]:
        if found:
            self.cursor = found[-1].cursor
        return found

"""Hearing of tasks on a server without LISTEN and NOTIFY: this process looks now and then what has become ready.

It looks soon after something was found, and ever less often while there is nothing. A transaction may end after one
that began later. So each look begins again at the oldest transaction that was under way at the last one, and what was
reported then is not reported again.
"""

from __future__ import annotations

import threading
import time

from psycopg.types.numeric import Int8

from holdfast.core.errors import StoreError
from holdfast.store.postgres.server import queries as q
from holdfast.store.postgres.server.connections import Connections
from holdfast.store.queues import LoneWakeListener

FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.5


class PollingListener(LoneWakeListener):
    """Looks for tasks that were made ready since the last look."""

    def __init__(self, links: Connections) -> None:
        self._links = links
        self._woken = threading.Event()
        self._pause = FIRST_PAUSE_SECONDS
        self._since, self._known = 0, set[int]()
        changes, self._since = self._look(to_begin=True)
        self._known = set(changes)

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while True:
            if self._has_changed():
                self._pause = FIRST_PAUSE_SECONDS
                return True
            left = until - time.monotonic()
            if self._woken.wait(max(0.0, min(left, self._pause))):
                self._woken.clear()
                return True
            if left <= self._pause:
                return False
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)

    def _has_changed(self) -> bool:
        """Return whether a task became ready. A server that is away may have missed one, so that counts too."""
        try:
            changes, since = self._look()
        except StoreError:
            self._woken.wait(LONGEST_PAUSE_SECONDS)
            return True
        known, self._known, self._since = self._known, set(changes), since
        return not self._known <= known

    def _look(self, *, to_begin: bool = False) -> tuple[list[int], int]:
        """Return the newest changes that made a task ready, and where to begin the next look."""
        asked = {"since": Int8(self._since), "limit": Int8(0 if to_begin else q.READY_CHANGES)}
        rows = self._links.rows(q.BECAME_READY, asked)
        return rows[0][0], rows[0][1]

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        """There is no connection of its own to close."""

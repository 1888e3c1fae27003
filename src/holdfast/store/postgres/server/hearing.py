"""What a worker hears of other sessions: that a task became ready, and that nothing is left to take.

A task that becomes ready is news for every worker. Were each to ask for it at once, all but one would ask in vain. So
they take turns: each computes its place from the names of all and from the transaction that made the task ready. The
first asks at once. When it finds nothing more, it tells those that serve the same, and they don't ask. If they hear
nothing for as long as asking takes, because it is dead or has no room, the second asks, and so on.

Nothing depends on these notes. One that is lost costs a query, or a second: each worker looks by itself now and then.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
import zlib
from typing import Protocol

from holdfast.core import limits
from holdfast.core.errors import StoreError


class ListeningSession(Protocol):
    """The session that listens: this process's sign of life."""

    name: str

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of all that serve as workers, as far as is known."""
        ...

    def listen(self, listener: PostgresWakeListener) -> None:
        """Begin to pass on what is heard."""
        ...

    def unlisten(self, listener: PostgresWakeListener) -> None: ...


class Notify(Protocol):
    """Tells all sessions that listen to a channel."""

    def __call__(self, channel: str, payload: str) -> object: ...


def channels(schema: str) -> tuple[str, str]:
    """Return two channels of a schema: of tasks that became ready, and of workers that found nothing more."""
    name = hashlib.md5(schema.encode(), usedforsecurity=False).hexdigest()
    return f"holdfast_{name}", f"holdfast_{name}_none"


class PostgresWakeListener:
    """Hears by the session that proves this process alive. When it broke, something may have been missed."""

    def __init__(self, session: ListeningSession, schema: str, notify: Notify, kind: str) -> None:
        """`kind` is the same for workers that serve the same tasks; empty: notes of others are ignored."""
        self._session = session
        self._ready, self._none = channels(schema)
        self._notify = notify
        self._kind, self._own = kind, os.urandom(8).hex()
        self._news = threading.Condition()
        self._is_woken = False
        self._turn_at: float | None = None
        self._quiet_until = 0.0
        self._asking_since: float | None = None
        self._takes = limits.TURN_SECONDS
        """How long it takes to ask, as of late: a busy machine takes longer, and so do turns."""
        session.listen(self)
        self._turn_at = None  # what became ready before is found by the first look

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        with self._news:
            self._measure()
            while True:
                now = time.monotonic()
                if self._is_woken or (self._turn_at is not None and self._turn_at <= now):
                    self._is_woken, self._turn_at = False, None
                    self._asking_since = now
                    return True
                if until <= now:
                    return False
                self._news.wait((until if self._turn_at is None else min(until, self._turn_at)) - now)

    def wake(self) -> None:
        with self._news:
            self._is_woken = True
            self._news.notify()

    def hear(self) -> None:
        self._hear(os.urandom(8).hex())

    def _hear(self, event: str) -> None:
        turn_at = time.monotonic() + self._pause(event)
        with self._news:
            if self._turn_at is None or turn_at < self._turn_at:
                self._turn_at = turn_at
                self._news.notify()

    def nothing_left(self, seconds: float) -> None:
        if self._kind and len(self._session.workers) > 1:
            self._measure()
            with contextlib.suppress(StoreError):  # the others ask for themselves
                self._notify(self._none, f"{self._own} {self._kind} {max(0.0, seconds):.3f}")

    def quiet_seconds(self) -> float:
        return max(0.0, self._quiet_until - time.monotonic())

    def heard(self, channel: str, payload: str) -> None:
        """Take note of what the session heard, in its thread."""
        if channel == self._ready:
            self._hear(payload)
            return
        sender, _, rest = payload.partition(" ")
        kind, _, seconds = rest.partition(" ")
        if channel == self._none and sender != self._own and kind == self._kind:
            with contextlib.suppress(ValueError):  # a later version may say it in another way
                quiet = min(float(seconds), limits.QUIET_SECONDS)
                with self._news:
                    self._turn_at = None
                    self._quiet_until = time.monotonic() + quiet + self._takes + self._pause(sender)

    def _pause(self, event: str) -> float:
        """Return how long to wait after something all have heard: by the place that this worker has then."""
        if len(self._session.workers) < 2:
            return 0.0
        mine = _draw(self._session.name, event)
        before = sum(_draw(name, event) < mine for name in self._session.workers)
        return min(before * limits.ASKS_PER_TURN * self._takes, limits.TURNS_SECONDS)

    def _measure(self) -> None:
        """Note how long it took from a turn until it was over."""
        since, self._asking_since = self._asking_since, None
        if since is not None:
            took = min(max(time.monotonic() - since, limits.TURN_SECONDS), limits.TURNS_SECONDS)
            self._takes += (took - self._takes) / 4

    def close(self) -> None:
        self._session.unlisten(self)


def _draw(name: str, event: str) -> int:
    """A number that all workers compute alike."""
    return zlib.crc32(f"{event} {name}".encode())

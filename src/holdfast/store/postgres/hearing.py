"""What a worker hears of other sessions: that a task became ready, and that nothing is left to take.

A task that becomes ready is news for every worker. Were each to ask for it at once, all but one would ask in vain. So a
worker waits for a random time first, longer where there are more of them. The one that asked tells the others that
serve the same when it found nothing more. They then don't ask, until something new becomes ready or its own next look
is overdue.

Nothing depends on these notes. One that is lost costs a query, or a second: each worker looks by itself now and then.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import threading
import time
from typing import Protocol

from holdfast.core import limits
from holdfast.core.errors import StoreError


class Session(Protocol):
    """The session that listens: this process's sign of life."""

    @property
    def workers(self) -> int:
        """The number of processes that serve as workers, as far as is known."""
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

    def __init__(self, session: Session, schema: str, notify: Notify, kind: str) -> None:
        """`kind` is the same for workers that serve the same tasks; empty: notes of others are ignored."""
        self._session = session
        self._ready, self._none = channels(schema)
        self._notify = notify
        self._kind, self._own = kind, os.urandom(8).hex()
        self._news = threading.Condition()
        self._is_woken = False
        self._turn_at: float | None = None
        self._quiet_until = 0.0
        session.listen(self)
        self._turn_at = None  # what became ready before is found by the first look

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        with self._news:
            while True:
                now = time.monotonic()
                if self._is_woken or (self._turn_at is not None and self._turn_at <= now):
                    self._is_woken, self._turn_at = False, None
                    return True
                if until <= now:
                    return False
                self._news.wait((until if self._turn_at is None else min(until, self._turn_at)) - now)

    def wake(self) -> None:
        with self._news:
            self._is_woken = True
            self._news.notify()

    def hear(self) -> None:
        with self._news:
            if self._turn_at is None:
                self._turn_at = time.monotonic() + self._pause()
                self._news.notify()

    def nothing_left(self, seconds: float) -> None:
        if self._kind and self._session.workers > 1:
            with contextlib.suppress(StoreError):  # the others ask for themselves
                self._notify(self._none, f"{self._own} {self._kind} {max(0.0, seconds):.3f}")

    def quiet_seconds(self) -> float:
        return max(0.0, self._quiet_until - time.monotonic())

    def heard(self, channel: str, payload: str) -> None:
        """Take note of what the session heard, in its thread."""
        if channel == self._ready:
            self.hear()
            return
        sender, _, rest = payload.partition(" ")
        kind, _, seconds = rest.partition(" ")
        if channel == self._none and sender != self._own and kind == self._kind:
            with contextlib.suppress(ValueError):  # a later version may say it in another way
                quiet = min(float(seconds), limits.QUIET_SECONDS)
                with self._news:
                    self._turn_at = None
                    self._quiet_until = time.monotonic() + quiet + limits.TURN_SECONDS + self._pause()

    def _pause(self) -> float:
        """A random time, so that workers ask one after the other; none for a worker that is alone."""
        workers = self._session.workers
        return 0.0 if workers < 2 else random.random() * min(workers * limits.TURN_SECONDS, limits.TURNS_SECONDS)

    def close(self) -> None:
        self._session.unlisten(self)

"""This process's sign of life: an advisory lock on a session of its own, which the server drops when the process dies,
in whatever way.

The server also drops it when only the connection breaks: a restart, a fail-over, an administrator, a pooler. So a
thread blocks on the socket of that session. When the session ends, it takes the lock again at once, under the same
name. Others presume nothing before the lock was missing for a while (`liveness`). Until it is back, nothing that can't
be repeated is begun (`await_held`).

The same session listens for workers of this process: they need no connection of their own for that (`hearing`).

A lock says nothing of a process that is frozen or cut off. So the same thread lets the process be heard of several
times within its lease, by the server's clock. With `presence=lease` that is all there is: no lock is taken.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
import weakref
from typing import Any

import psycopg
from psycopg import sql

from holdfast.core import limits
from holdfast.core.errors import StoreError, StoreReadOnly, StoreUnreachable
from holdfast.store import processes
from holdfast.store.postgres.server import queries as q
from holdfast.store.postgres.server.connecting import (
    Link,
    ServerAddress,
    connect,
    first_line,
    is_lost,
    keep_idle,
    translated,
)
from holdfast.store.postgres.server.hearing import PostgresWakeListener, channels

LOCK_PREFIX, LEASE_PREFIX = "pg-", "lease-"

_FIRST_PAUSE_SECONDS = 0.01
_GHOST_SECONDS = 0.2
"""How often the lock is asked for while the server has not noticed that our last session is gone."""


class ServerPresence:
    """This process's sign of life on one database, under one name."""

    def __init__(self, address: ServerAddress) -> None:
        """Take the lock. The thread that keeps it begins with `start`."""
        self._address = address
        self._key = int.from_bytes(os.urandom(8)) >> 1
        self._own = processes.current()
        self.name = f"{LEASE_PREFIX if address.by_lease else LOCK_PREFIX}{self._key:016x}"
        self.serves = ""
        self._arrival = q.QueryTexts(address.schema)[q.ARRIVE_BY_LEASE if address.by_lease else q.ARRIVE]
        self._goodbye = q.QueryTexts(address.schema)[q.GOODBYE]
        self._is_closed = False
        self._news = threading.Condition()
        self._asked = self._answered = 0
        """How often a beat was asked for, and which of them the last beat has answered."""
        self._is_held = False
        self._locked = False
        """Whether the present session has the lock. If not, an older one of ours has it, of which the server still
        believes that it lives."""
        self._began = time.monotonic()
        self._beat_at = 0.0
        self._listeners: tuple[PostgresWakeListener, ...] = ()
        self._listens = False
        self._workers: tuple[str, ...] = ()
        self._failing_since: float | None = None
        self._is_told = False
        self._link: Link | None = self._connected()
        self._forget_others(self._link)
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)
        self._thread = threading.Thread(target=self._keep, name="holdfast-beat", daemon=True)

    def start(self) -> None:
        """Keep being alive, in a thread of its own, until `close`."""
        self._thread.start()
        _mine.add(self)

    def _forget_others(self, link: Link) -> None:
        """Remove the rows of processes that are long gone. A failure here does not end this process."""
        by_lease, texts = self._address.by_lease, q.QueryTexts(self._address.schema)
        with contextlib.suppress(psycopg.Error):
            forget = (q.FORGET_SILENT,) if by_lease else (q.FORGET_HOLDERS, q.FORGET_INCARNATIONS)
            for text in (*forget, q.ADD_UP_COUNTS, q.RENUMBER_CHANGES):
                link.execute(texts[text])

    @property
    def is_held(self) -> bool:
        """True if the session is well, as far as is known."""
        return self._is_held

    @property
    def key(self) -> int:
        """The number of the lock."""
        return self._key

    @property
    def lasted_seconds(self) -> float:
        """The age of the present session."""
        return time.monotonic() - self._began

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of all that serve as workers, as of the last beat."""
        return self._workers

    def listen(self, listener: PostgresWakeListener) -> None:
        """Pass on what the session hears of tasks that become ready."""
        with self._news:
            self._listeners += (listener,)
        self.renew()  # if the server is away, its return is heard

    def unlisten(self, listener: PostgresWakeListener) -> None:
        """Pass nothing on to it any more."""
        with self._news:
            self._listeners = tuple(one for one in self._listeners if one is not listener)
            self._asked += 1
            self._wake()

    def facts(self) -> dict[str, Any]:
        """Return this process's row as others see it."""
        own = {"name": self.name, "serves": self.serves, "lease": self._address.lease_seconds}
        return {**own, "machine": self._own.machine, "process": self._own.process}

    def await_held(self) -> bool:
        """Return whether the lock is held, waiting for it for as long as others do before they presume us dead."""
        if self._is_held:
            return True
        with self._news:
            return self._news.wait_for(lambda: self._is_held, limits.ABSENT_SECONDS)

    def renew(self) -> bool:
        """Have the session looked at now, as another one broke, and wait as `await_held` does; whether it is well."""
        with self._news:
            self._asked += 1
            mine = self._asked
            self._wake()
            return self._news.wait_for(lambda: self._answered >= mine, limits.ABSENT_SECONDS)

    def serve(self, serves: str) -> None:
        """Tell others what this process serves."""
        self.serves = serves
        if not self.renew():
            where = self._address.shown
            raise StoreUnreachable(
                f"{where} could not record what this process serves", hint="it is recorded when the server is back"
            )

    def close(self) -> None:
        """Say goodbye, if the server can be reached, and be gone."""
        if self._is_closed:
            return
        self._is_closed = True
        with self._news:
            self._wake()
        if self._thread.ident is None:  # it was never started
            self._leave()
        else:  # it signs off now, or has signed off already
            self._thread.join(limits.GOODBYE_SECONDS)

    # In the thread

    def _keep(self) -> None:
        """Be heard of now and then; come back when the session ends; say goodbye at the end."""
        pause = _FIRST_PAUSE_SECONDS
        while not self._is_closed:
            try:
                if self._link is None:
                    self._link = self._connected()
                elif self._rest(self._link):
                    self._beat(self._link)
                pause = _FIRST_PAUSE_SECONDS
            except (psycopg.Error, StoreError, OSError) as error:
                self._note(error)
                if self._link is None or self._link.closed or self._link.broken:
                    self._drop()
                self._wait(pause)
                pause = min(2 * pause, limits.RECONNECT_SECONDS)
        self._leave()

    def _connected(self) -> Link:
        """Begin a session, take the lock and be heard of."""
        link = connect(self._address, direct=True)
        try:
            # Silence that lasts half the lease is worth a new connection, however long statements may take elsewhere.
            link.patience = min(self._address.patience, max(1.0, self._address.lease_seconds / 2))
            keep_idle(link)
            link.add_notify_handler(lambda said: self._pass_on(said.channel, said.payload))
            self._began, self._locked, self._listens = time.monotonic(), False, False
            self._beat(link)
        except psycopg.Error as error:
            is_cut = is_lost(error, link)
            link.close()
            if is_cut:
                raise  # the next try may succeed
            raise translated(error, self._address) from error
        return link

    def _beat(self, link: Link) -> None:
        """Hold the lock and be heard of."""
        if not (self._locked or self._address.by_lease):
            row = link.execute(q.HOLD, {"key": self._key}).fetchone()
            self._locked = bool(row and row[0])
        asked = self._asked
        self._attend(link)
        found = link.execute(self._arrival, {**self.facts(), "most": limits.MAX_WORKERS_TAKING_TURNS}).fetchone()
        self._workers = tuple(found[0]) if found else ()
        is_ghost = not (self._locked or self._address.by_lease)
        beat = self._address.lease_seconds / limits.BEATS_PER_LEASE
        self._beat_at = time.monotonic() + (min(beat, _GHOST_SECONDS) if is_ghost else beat)
        self._failing_since, self._is_told = None, False
        with self._news:
            self._answered, self._is_held = asked, True
            self._news.notify_all()

    def _attend(self, link: Link) -> None:
        """Listen if there are workers in this process, and only then. What came before may have been missed."""
        listeners = self._listeners
        if self._listens == bool(listeners):
            return
        for channel in channels(self._address.schema):
            text = "listen {}" if listeners else "unlisten {}"
            link.execute(sql.SQL(text).format(sql.Identifier(channel)))
        self._listens = bool(listeners)
        for one in listeners:
            one.hear()

    def _pass_on(self, channel: str, payload: str) -> None:
        for one in self._listeners:
            one.heard(channel, payload)

    def _rest(self, link: Link) -> bool:
        """Block on the socket until it is time to be heard of; False if there was something to read first."""
        if self._asked != self._answered:
            return True
        left = self._beat_at - time.monotonic()
        if left <= 0 or not self._wait(left, link):
            return True
        link.pgconn.consume_input()  # raises when the session has ended
        link.pgconn.is_busy()  # takes in what came
        while (said := link.pgconn.notifies()) is not None:
            self._pass_on(said.relname.decode(), said.extra.decode())
        return False

    def _wait(self, seconds: float, link: Link | None = None) -> bool:
        """Wait for so long, or until it is woken, or the server says something; whether that was it."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if link is not None:
            poll.register(link.fileno(), select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(seconds * 1000)}
        if self._woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 4096)
        return link is not None and link.fileno() in ready

    def _wake(self) -> None:
        """End the wait of the thread. Its caller has `_news`, so that the pipe is not closed meanwhile."""
        if self._waker >= 0:
            with contextlib.suppress(BlockingIOError):  # a full pipe wakes as well
                os.write(self._waker, b"!")

    def _note(self, error: Exception) -> None:
        """Say once what keeps this process from being heard of, if that lasts until others may presume it dead.

        A server that is away, or that waits to take over, is reported by everything that needs it. One that answers,
        and refuses just this, is not.
        """
        now = time.monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        is_away = isinstance(error, (StoreUnreachable, StoreReadOnly)) and not error.details.get("answered")
        if not (is_away or self._is_told) and now - self._failing_since >= limits.ABSENT_SECONDS:
            self._is_told = True
            said = error.message if isinstance(error, StoreError) else first_line(error)
            _log.warning("%s: this process can't show that it is alive: %s; it keeps trying", self._address.shown, said)

    def _drop(self) -> None:
        self._is_held = False
        if self._link is not None:
            self._link.close()
            self._link = None

    def _leave(self) -> None:
        """Sign off. A process that misses it finds the lock gone."""
        link = self._link
        if link is not None and not (link.closed or link.broken):
            with contextlib.suppress(psycopg.Error):
                link.execute(self._goodbye, {"name": self.name})
        self._drop()
        with self._news:
            os.close(self._woken)
            os.close(self._waker)
            self._woken = self._waker = -1  # the numbers may soon be those of other files

    def forget(self) -> None:
        """Take the parent's socket from a forked child, sending nothing, or it would outlive the parent.

        Something else stands in its place: what is left of the connection here must not close a file of the child's.
        """
        self._is_closed = True
        if self._link is not None and not self._link.closed:
            with contextlib.suppress(OSError), open(os.devnull, "rb") as nothing:
                os.dup2(nothing.fileno(), self._link.fileno(), inheritable=False)


_log = logging.getLogger("holdfast")
_mine: weakref.WeakSet[ServerPresence] = weakref.WeakSet()


def _forget_after_fork() -> None:
    for presence in list(_mine):
        presence.forget()


os.register_at_fork(after_in_child=_forget_after_fork)

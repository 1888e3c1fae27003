"""Who is alive: an advisory lock on a connection of its own. The server drops it when the process dies, in
whatever way.

A holder whose connection breaks looks dead until it is back under the same name: others may take its tasks over then,
which is safe, since the claim in the log decides. So everyone who notices a broken connection calls `renew`.

A lock says nothing of a process that is frozen or cut off. So a holder also lets itself be heard of several times
within its lease, by the server's clock, from a thread that does nothing else.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref

import psycopg

from holdfast.core.errors import StoreClosed, StoreError
from holdfast.store.postgres import queries as q
from holdfast.store.postgres.server import Link, ServerAddress, connect, keep_alive, translated

_PREFIX = "pg-"
_BEATS = 5


class ServerPresence:
    """This process's sign of life on one database, under one name."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._key = int.from_bytes(os.urandom(8)) >> 1
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._held = False
        self._texts = q.QueryTexts(address.schema)
        self._serves = ""
        self._closed = threading.Event()
        self.name = f"{_PREFIX}{self._key:016x}"
        with self._lock:
            link = self._connected()
            with contextlib.suppress(psycopg.Error):
                link.execute(self._texts[q.FORGET_HOLDERS])
        threading.Thread(target=self._beat_on, name="holdfast-beat", daemon=True).start()
        _mine.add(self)

    def renew(self) -> None:
        """Come back under the same name, if the connection was lost."""
        with contextlib.suppress(StoreError):
            self.alive(self.name)

    def serve(self, serves: str) -> None:
        """Say what this process serves."""
        with self._lock:
            self._serves = serves
            try:
                self._connected().execute(self._texts[q.SERVE], {"name": self.name, "serves": serves})
            except psycopg.Error as error:
                raise translated(error, self._address) from error

    def _beat(self, link: Link) -> None:
        """Be heard of."""
        row = {"name": self.name, "serves": self._serves}
        link.execute(self._texts[q.SERVE if self._serves else q.BEAT], row)

    def _beat_on(self) -> None:
        while not self._closed.wait(self._address.lease_seconds / _BEATS):
            with contextlib.suppress(StoreError, psycopg.Error), self._lock:  # the next beat is soon enough
                if not self._closed.is_set():
                    self._beat(self._connected())

    def alive(self, name: str, lease: float | None = None) -> bool:
        """Whether the holder of that name still lives, and was heard of within its lease."""
        try:
            key = int(name.removeprefix(_PREFIX), 16) if name.startswith(_PREFIX) else -1
        except ValueError:
            return False
        if not 0 <= key < 1 << 63:
            return False
        with self._lock:
            try:
                return self._is_held(key, name, lease)
            except psycopg.OperationalError:
                pass  # it was lost since it was last used
            try:
                return self._is_held(key, name, lease)
            except psycopg.Error as error:
                raise translated(error, self._address) from error

    def _is_held(self, key: int, name: str, lease: float | None) -> bool:
        link = self._connected()
        row = link.execute(q.IS_HELD, {"key": key}).fetchone()
        if not (row and row[0]) or lease is None:
            return bool(row and row[0])
        silent = link.execute(self._texts[q.IS_SILENT], {"name": name, "lease": lease}).fetchone()
        return not (silent and silent[0])

    def _connected(self) -> Link:
        """The connection, with the lock on it. The server may still be unaware that an older one of ours is gone."""
        if self._closed.is_set():
            raise StoreClosed(f"{self._address.shown} was closed", hint="open it again")
        if self._link is not None and not (self._link.closed or self._link.broken):
            if not self._held:
                self._hold(self._link)
            return self._link
        self._held = False
        self._link = connect(self._address, direct=True)
        self._link.patience = self._address.patience
        keep_alive(self._link)
        self._hold(self._link)
        return self._link

    def _hold(self, link: Link) -> None:
        row = link.execute(q.HOLD, {"key": self._key}).fetchone()
        self._held = bool(row and row[0])
        self._beat(link)

    def close(self) -> None:
        """Be gone, as if the process had died."""
        self._closed.set()
        with self._lock:
            if self._link is not None:
                self._link.close()

    def forget(self) -> None:
        """In a forked child: let go of the parent's socket without a word, or it would outlive the parent."""
        self._lock = threading.Lock()
        if self._link is not None and not self._link.closed:
            with contextlib.suppress(OSError):
                os.close(self._link.fileno())


_mine: weakref.WeakSet[ServerPresence] = weakref.WeakSet()


def _forget_after_fork() -> None:
    for presence in list(_mine):
        presence.forget()


os.register_at_fork(after_in_child=_forget_after_fork)

"""Connections of a PostgreSQL store: a pool with limits, and what is done when one of them is lost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, LiteralString, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8

from holdfast.core.errors import NotAStore, StoreBusy, StoreClosed, StoreError, StorePoisoned
from holdfast.store.postgres.server import queries as q
from holdfast.store.postgres.server.connecting import (
    LEASE_REMEDY,
    Durability,
    Link,
    ServerAddress,
    configured,
    connect,
    is_lost,
    settings,
    translated,
)
from holdfast.store.postgres.server.presence import ServerPresence
from holdfast.store.postgres.server.statements import Insert, Result, StatementRunner, roll_back
from holdfast.store.protocol import written_inside

_READ_TRIES = 3
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0

_EVENT = (int, bytes, str, bytes, str, int, bytes, bytes)

Parameters = Mapping[str, Any]
Question = tuple[LiteralString, Parameters | None]
"""One of our queries, and its parameters."""

Connected = TypeVar("Connected")


class IdleLinks:
    """Connections of this process that nobody uses now. Apps with the same address share them."""

    _shared: ClassVar[dict[tuple[int, ServerAddress, Durability], IdleLinks]] = {}
    _sharing = threading.Lock()

    def __init__(self, key: tuple[int, ServerAddress, Durability]) -> None:
        self._key = key
        self._users = 0
        self._lock = threading.Lock()
        self._links: list[Link] = []
        self.statements = StatementRunner()
        """Those that were prepared on them."""

    @classmethod
    def of(cls, address: ServerAddress, durability: Durability) -> IdleLinks:
        """Return those of an address, for one app more. A forked child has its own."""
        key = (os.getpid(), address, durability)
        with cls._sharing:
            found = cls._shared.setdefault(key, cls(key))
            found._users += 1
            return found

    def leave(self) -> None:
        """Be used by one app less; the last one closes them all."""
        with self._sharing:
            self._users -= 1
            if self._users:
                return
            self._shared.pop(self._key, None)
        self.close()

    @property
    def is_used(self) -> bool:
        """True if an app has them."""
        return self._users > 0

    def take(self) -> Link | None:
        """Return the one that was used last, or None."""
        with self._lock:
            return self._links.pop() if self._links else None

    def keep(self, link: Link) -> None:
        """Take one back."""
        with self._lock:
            self._links.append(link)

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            links, self._links = self._links, []
        for link in links:
            link.close()


class Connections:
    """A small pool, and the connection that proves this process alive.

    Connections are made where one is needed, so that an error is raised where it matters.
    """

    def __init__(self, address: ServerAddress, durability: Durability) -> None:
        self.address = address
        self.durability: Durability = durability
        self.texts = q.QueryTexts(address.schema)
        self._append_event = Insert("holdfast_append", self.texts[q.APPEND_EVENT], _EVENT)
        self._pid = os.getpid()
        self._presence: ServerPresence | None = None
        self._lock = threading.Lock()
        self._appearing = threading.Lock()
        self._inside: set[int] = set()
        self._local = settings(address, durability, local=True)
        self._free = threading.BoundedSemaphore(address.connections)
        self._idle = IdleLinks.of(address, durability)
        self._is_closed = False

    @contextmanager
    def link(self) -> Generator[Link, None, None]:
        """Borrow a connection. What is left open on it is rolled back when it is given back."""
        self.refuse_after_fork()
        if self._is_closed:
            raise self._closed()
        if not self._free.acquire(timeout=self.address.wait_seconds):
            raise StoreBusy(
                f"all {self.address.connections} connections were in use for {self.address.wait_seconds:g} s; "
                "nothing was written",
                hint="raise ?connections=, or wait longer: ?wait_seconds=",
            )
        link: Link | None = None
        try:
            link = self._idle.take() or self._new_link()
            yield link
        finally:
            if link is not None:
                self._give_back(link)
            self._free.release()

    def _new_link(self) -> Link:
        """Connect, and set what holds for all we do."""
        return self._patiently(lambda: configured(connect(self.address), self.address, self.durability))

    def _patiently(self, connecting: Callable[[], Connected]) -> Connected:
        """Connect. Waits for a server that is restarting, and for a standby that takes over."""
        until = time.monotonic() + self.address.wait_seconds
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return connecting()
            except StoreError as error:
                if not error.details.get("passing") or time.monotonic() + pause > until or self._is_closed:
                    raise
            except psycopg.Error as error:
                if time.monotonic() + pause > until:
                    raise translated(error, self.address) from error
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _give_back(self, link: Link) -> None:
        """Keep a connection that is as it should be; close any other."""
        self.undo(link)
        usable = not link.closed and link.pgconn.transaction_status == TransactionStatus.IDLE
        if usable and not self._is_closed:
            self._idle.keep(link)
            if self._is_closed and not self._idle.is_used:  # closed meanwhile: nobody else would close it
                self._idle.close()
        else:
            link.close()

    @contextmanager
    def writing(self) -> Generator[Link, None, None]:
        """Borrow a connection to write with: not from inside of a transaction of this very thread."""
        self.refuse_inside()
        with self.link() as link:
            yield link

    @contextmanager
    def inside(self) -> Generator[None, None, None]:
        """While user code runs, this thread may not write anything else."""
        me = threading.get_ident()
        self._inside.add(me)
        try:
            yield
        finally:
            self._inside.discard(me)

    def refuse_inside(self) -> None:
        """Work that waited for what its own transaction holds would wait for ever."""
        if threading.get_ident() in self._inside:
            raise written_inside()

    def refuse_after_fork(self) -> None:
        """Before any lock is taken: a forked child may have inherited it locked."""
        if self._pid != os.getpid():
            raise self._closed()

    def _closed(self) -> StoreClosed:
        if self._pid != os.getpid():
            return StoreClosed(
                f"{self.address.shown} was opened before this process was forked", hint="open it after the fork"
            )
        return StoreClosed(f"{self.address.shown} was closed", hint="open it again")

    # Statements

    def run(
        self, link: Link, text: LiteralString, bindings: Parameters | None = None, *, prepare: bool = True
    ) -> Result:
        """Run one of our queries, prepared where the connection stays ours."""
        if prepare and not self.address.pooled:
            return self._idle.statements.run(link, self.texts[text], bindings)
        return _fetched(link.execute(self.texts[text], bindings, prepare=None, binary=True))

    def together(self, link: Link, *statements: Question) -> list[Result]:
        """Run queries one after the other, in one round trip. Behind a pooler, settings go with a transaction."""
        if not self.address.pooled:
            return self._idle.statements.together(link, [(self.texts[text], bindings) for text, bindings in statements])
        cursors: list[psycopg.Cursor[tuple[Any, ...]]] = []
        with link.pipeline():
            for text, bindings in statements:
                cursors.append(link.execute(self.texts[text], bindings, binary=True))
                if text == q.BEGIN:
                    link.execute(q.SET, self._local)
        return [_fetched(cursor) for cursor in cursors]

    def begin(self, link: Link) -> None:
        """Begin a transaction."""
        self.together(link, (q.BEGIN, None))

    def write(self, link: Link, text: LiteralString, bindings: Parameters) -> int:
        """One statement that commits by itself, in one round trip; gives how many rows it wrote."""
        if not self.address.pooled:
            return self.run(link, text, bindings).rowcount
        return self.together(link, (q.BEGIN, None), (text, bindings), (q.COMMIT, None))[1].rowcount

    def write_event(self, link: Link, *row: Any) -> int:
        """One event in one round trip, its columns in the order in which `APPEND_EVENT` names them."""
        if self.address.pooled:
            values = [Int8(value) if type(value) is int else value for value in row]
            return self.write(link, q.APPEND_EVENT, dict(zip(self._append_event.parameters, values, strict=True)))
        return self._append_event.run(link, row)

    def rows(self, text: LiteralString, bindings: Parameters | None = None, *, prepare: bool = True) -> list[Any]:
        """Everything a query gives. Reading again on a new connection is always safe."""
        for tries in range(1, _READ_TRIES + 1):
            with self.link() as link:
                try:
                    return self.run(link, text, bindings, prepare=prepare).fetchall()
                except psycopg.Error as error:
                    if tries == _READ_TRIES or not is_lost(error, link):
                        raise translated(error, self.address) from error
            self.lost()
        raise AssertionError("the loop ends by itself")

    def row(self, text: LiteralString, bindings: Parameters | None = None) -> Any:
        """The first row a query gives, or None."""
        found = self.rows(text, bindings)
        return found[0] if found else None

    @contextmanager
    def changing(self) -> Generator[Link, None, None]:
        """A transaction for the rarer writes, all of which may be repeated."""
        self.refuse_inside()
        self.rows(q.PING)  # a connection that broke while it was idle is found here, where nothing is in doubt
        with self.writing() as link:
            try:
                self.begin(link)
                yield link
                self.run(link, q.COMMIT)
            except psycopg.Error as error:
                if is_lost(error, link):
                    self.lost()
                    raise StorePoisoned(
                        f"the connection to {self.address.shown} was lost; whether it was done is not known",
                        hint="do it again: doing it twice is harmless",
                    ) from error
                raise translated(error, self.address) from error

    def undo(self, link: Link) -> None:
        """Roll back what is open; a connection that cannot do that is not used again."""
        if link.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            try:
                roll_back(link)
            except psycopg.Error:
                link.close()

    def end(self, link: Link) -> None:
        """Commit what is open, if it wrote nothing: a server that counts rollbacks has no trouble to report."""
        if link.pgconn.transaction_status == TransactionStatus.INTRANS:
            self.run(link, q.COMMIT)

    def tidy(self, link: Link) -> None:
        """Take away what user code may have left on a connection."""
        self.undo(link)
        if not self.address.pooled and not link.closed:
            try:
                link.execute(q.TIDY_WITHOUT_LOCKS if self.address.by_lease else q.TIDY)
            except psycopg.Error:
                link.close()

    def lost(self) -> None:
        """A connection broke: likely the idle ones did too. Be alive under the old name again."""
        self._idle.close()
        if self._presence is not None:
            self._presence.renew()

    # Being alive

    def presence(self) -> ServerPresence:
        """Our sign of life, from the first time it is asked for."""
        self.refuse_after_fork()
        with self._appearing:
            if self._is_closed:
                raise self._closed()
            if self._presence is None:
                self._presence = self._arrived(self._patiently(lambda: ServerPresence(self.address)))
            return self._presence

    def _arrived(self, presence: ServerPresence) -> ServerPresence:
        """Begin to be alive. Another session looks whether the lock can be seen, as every other process does."""
        if not self.address.by_lease and not self.row(q.IS_HELD, {"key": Int8(presence.key)})[0]:
            presence.close()
            raise NotAStore(
                f"other sessions of {self.address.shown} don't see the lock that proves this process alive",
                hint=LEASE_REMEDY,
            )
        presence.start()
        return presence

    @property
    def is_unseen(self) -> bool:
        """True if this process has a sign of life, and it is broken now."""
        return self._presence is not None and not self._presence.is_held

    def await_presence(self) -> None:
        """Wait a moment for a sign of life that broke."""
        if self._presence is not None:
            self._presence.await_held()

    def close(self) -> None:
        """Close everything. Connections that are lent out are closed when they come back."""
        if self._pid != os.getpid():
            return
        self.refuse_inside()
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if not was_closed:
            self._idle.leave()

    def depart(self) -> None:
        """End the sign of life of this process."""
        if self._pid == os.getpid() and self._presence is not None:
            self._presence.close()


def _fetched(cursor: psycopg.Cursor[tuple[Any, ...]]) -> Result:
    return Result(cursor.fetchall() if cursor.description else [], cursor.rowcount)

"""Queues of a SQLite store: workers are processes and threads of one machine.

A claim is one transaction, and SQLite lets one write at a time: that is all the locking. A worker that finds nothing
to take has only read. That something was written shows in the index of the write-ahead log, which is cheap to ask.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import apsw

from holdfast.core import codec
from holdfast.core.codec import Group, Head
from holdfast.store import queues
from holdfast.store.columns import to_summary
from holdfast.store.protocol import Outcome
from holdfast.store.queues import (
    EVER_US,
    Claim,
    ClaimRequest,
    Due,
    Loss,
    QueueDepth,
    Rate,
    ServedRow,
    Slot,
    Taken,
    WaitDepth,
)
from holdfast.store.sqlite import queries as q
from holdfast.store.sqlite.file import fetch_all, fetch_one
from holdfast.store.sqlite.file_guard import INDEX_HEADER_BYTES
from holdfast.store.sqlite.locks import close_file, open_file

_QUICKEST_SECONDS, _SLOWEST_SECONDS = 0.002, 0.01


class SqliteWakeListener(queues.LoneWakeListener):
    """Looks at the index of the write-ahead log now and then: often at first, less often while nothing happens.

    Its first bytes change with every commit. Reading them needs no lock and no connection.
    """

    def __init__(self, path: str) -> None:
        self._index = open_file(f"{path}-shm", os.O_RDONLY)
        self._version = self._now()
        self._woken = threading.Event()

    def _now(self) -> bytes:
        return os.pread(self._index, INDEX_HEADER_BYTES, 0)

    def wait(self, seconds: float) -> bool:
        until, pause = time.monotonic() + seconds, _QUICKEST_SECONDS
        while True:
            version = self._now()
            if version != self._version or self._woken.is_set():
                self._version = version
                self._woken.clear()
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._woken.wait(min(pause, left))
            pause = min(pause * 1.2, _SLOWEST_SECONDS)

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        close_file(self._index)


class SqliteQueues:
    """Claims and counts, by index."""

    def __init__(
        self,
        changing: Callable[[], AbstractContextManager[apsw.Connection]],
        reading: Callable[[], AbstractContextManager[apsw.Connection]],
        append: Callable[[apsw.Connection, Group], Outcome],
        path: str,
        holder: Callable[[], str],
        alive: Callable[[str], bool],
    ) -> None:
        self._changing = changing
        self._reading = reading
        self._append = append
        self._path = path
        self._holder = holder
        self._alive = alive

    def claim(self, wanted: ClaimRequest, claim: Claim) -> Taken:
        return queues.in_rounds(wanted, lambda rest: self._claim(rest, claim))

    def _claim(self, wanted: ClaimRequest, claim: Claim) -> tuple[Taken, bool]:
        """Those that were taken, and whether that is all there was to look at."""
        with self._reading() as reader:
            if not self._due(reader, wanted, [], limit=1, starts=True):
                return {}, True
        with self._changing() as writer:
            running = self._running(writer, wanted)
            tokens = self._tokens(writer, wanted)
            most = queues.allowed(wanted, running)
            reach = {"limit": most * (queues.SPARE if wanted.is_limited else 1)}
            starts = queues.may_start(wanted, tokens)
            due = self._due(writer, wanted, queues.full_keys(wanted, running), **reach, starts=starts) if most else []
            chosen, won = queues.chosen(due, wanted, most, running, tokens), list[Due]()
            for one, group in queues.groups(chosen, claim):
                if isinstance(self._append(writer, group), tuple):
                    won.append(one)
            if wanted.rate is not None:
                left = {"tokens": tokens - queues.spent(won), "now": wanted.now_us}
                writer.execute(q.PUT_RATE, {**_place(wanted), **left})
            return {one.summary.id: [] for one in won}, len(chosen) in (most, len(due))

    def _due(
        self, connection: apsw.Connection, wanted: ClaimRequest, full: list[str], *, limit: int, starts: bool
    ) -> list[Due]:
        """Tasks to take, those that were lost first."""
        bindings: dict[str, Any] = {**_place(wanted), "full": codec.dump(full).decode(), "starts": starts}
        bindings |= {"now": wanted.now_us, "lost": codec.dump(wanted.lost).decode(), "limit": limit}
        lost: list[Any] = []
        later: list[Any] = []
        for agent, version in wanted.served:
            of_agent = bindings | {"agent": agent, "version": version}
            if wanted.lost:
                lost += fetch_all(connection, q.DUE_LOST, of_agent)
            later += fetch_all(connection, q.DUE_READY, of_agent)
            later += fetch_all(connection, q.DUE_WOKEN, of_agent | {"limit": limit + queues.REACH})
        found: list[Due] = []
        for number, *row in (*sorted(lost, key=_order), *sorted(later, key=_order))[:limit]:
            head = fetch_one(connection, q.HEAD, (number,))
            if head is not None:
                found.append(Due(to_summary(tuple(row)), Head(*head)))
        return found

    def _running(self, writer: apsw.Connection, wanted: ClaimRequest) -> dict[str | None, int]:
        if not wanted.is_limited:
            return {}
        able = {"lost": codec.dump(wanted.lost).decode(), "served": codec.dump(wanted.served).decode()}
        return dict(fetch_all(writer, q.RUNNING_BY_KEY, _place(wanted) | able))

    def _tokens(self, writer: apsw.Connection, wanted: ClaimRequest) -> float:
        if wanted.rate is None:
            return 0.0
        tokens, at_us = fetch_one(writer, q.RATE, _place(wanted)) or (None, 0)
        return queues.refilled(wanted.rate, tokens, at_us, wanted.now_us)

    def lost(self) -> dict[str, Loss]:
        """Return dead processes. All ran on this machine: no network can come between, so it is proven."""
        with self._reading() as reader:
            held = [row[0] for row in fetch_all(reader, q.HOLDING)]
        return {name: "proven" for name in held if not self._alive(name)}

    def tenants(self, queues: Sequence[str], now_us: int, lost: Sequence[str] = ()) -> list[str]:
        asked = {"queues": codec.dump(list(queues)).decode(), "lost": codec.dump(list(lost)).decode(), "now": now_us}
        with self._reading() as reader:
            return [row[0] for row in fetch_all(reader, q.TENANTS, asked)]

    def next_wake(self, namespace: str | None, queues: Sequence[str], after_us: int = EVER_US) -> int | None:
        if namespace is None:
            asked = {"queues": codec.dump(list(queues)).decode(), "lost": "[]", "after": after_us}
            with self._reading() as reader:
                return fetch_one(reader, q.NEXT_WAKE_OF_ALL, asked)[0]
        place: dict[str, Any] = {"namespace": namespace, "after": after_us}
        with self._reading() as reader:
            found = [fetch_one(reader, q.NEXT_WAKE, place | {"queue": one})[0] for one in queues]
            return min((wake for wake in found if wake is not None), default=None)

    def depths(self, namespace: str | None = None) -> list[QueueDepth]:
        with self._reading() as reader:
            return [QueueDepth(*row) for row in fetch_all(reader, q.DEPTHS, {"namespace": namespace})]

    def waits(self, namespace: str | None = None) -> list[WaitDepth]:
        with self._reading() as reader:
            return [WaitDepth(*row) for row in fetch_all(reader, q.WAITS, {"namespace": namespace})]

    def ready(self, namespace: str, queue: str, most: int) -> int:
        with self._reading() as reader:
            return fetch_one(reader, q.COUNT_READY, {"namespace": namespace, "queue": queue, "most": most})[0]

    def reserve(self, tool: str, rate: Rate, now_us: int) -> Slot:
        wanted = queues.places(tool, rate)
        place: dict[str, Any] = {"owner": wanted.owner, "last": wanted.last, "window": wanted.window_us}
        with self._changing() as writer:
            if fetch_one(writer, q.COUNT_PLACES, place)[0] < wanted.count:
                names = codec.dump(wanted.names).decode()
                writer.execute(q.FILL_PLACES, {"owner": wanted.owner, "names": names})
            found = fetch_one(writer, q.RESERVE, place | {"now": now_us, "ahead": wanted.ahead_us})
            return wanted.slot(None if found is None else found[0] - now_us)

    def announce(self, serves: str) -> None:
        with self._changing() as writer:
            gone = [row[0] for row in fetch_all(writer, q.ANNOUNCED) if not self._alive(row[0])]
            writer.execute(q.FORGET_HOLDERS, (codec.dump(gone).decode(),))
            writer.execute(q.ANNOUNCE, {"name": self._holder(), "serves": serves, "beat": time.time_ns() // 1000})

    def announced(self) -> list[ServedRow]:
        with self._reading() as reader:
            return [ServedRow(*row) for row in fetch_all(reader, q.ANNOUNCED) if self._alive(row[0])]

    def listen(self, kind: str = "") -> SqliteWakeListener:
        return SqliteWakeListener(self._path)


_PRIORITY = 12


def _order(row: tuple[Any, ...]) -> tuple[int, int]:
    """By priority, then the oldest first: a log's number, which comes first, is its age."""
    return (-row[_PRIORITY], row[0])


def _place(wanted: ClaimRequest) -> dict[str, str]:
    return {"namespace": wanted.namespace, "queue": wanted.queue}

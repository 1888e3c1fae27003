"""Group commit: groups of many tasks that arrive while a commit is under way share the next one.

A lone caller finds the lock free, commits by itself and pays nothing. When several come at once, one of them writes
everything that has queued up, and each of the others sleeps until its own group is settled: none has to pass through
the lock to learn that. What queues while the lock is held is left to one thread, as are the groups of callers that
cannot block (async agents). A transaction with user code in it is written alone: the others queue until it is over.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, TypeVarTuple, cast

from msgspec import Struct

from holdfast.core import limits
from holdfast.core.codec import Draft, Group, Head, Write
from holdfast.core.errors import StoreClosed, StoreError
from holdfast.core.events import Event
from holdfast.store.protocol import Generation, Outcome, Placed, Store, Work, written_inside

Resolve = Callable[[Sequence["Ticket"]], None]
"""Called with tickets that are settled, from the committing thread."""


class PlacedEvent(Struct, frozen=True, gc=False):
    """An event at its place in a log."""

    seq: int
    at_us: int
    event: Event


Observer = Callable[[str, Sequence[PlacedEvent]], None]
"""Called with the name of a log and the events that this process has appended to it, once they are durable."""


class Ticket:
    """A group on its way, and what became of it."""

    __slots__ = ("error", "group", "outcome", "resolve", "waiter")

    def __init__(self, group: Group, resolve: Resolve | None = None, waiter: object = None) -> None:
        self.group = group
        self.resolve = resolve
        self.waiter = waiter
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None

    def result(self) -> tuple[Placed, ...]:
        """Return the places of the writes, or raise the error that kept them out."""
        if self.error is not None:
            raise self.error
        assert self.outcome is not None
        return placed_of(self.outcome)


class Committer:
    """Every write of one store goes through here."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._append, self._append_event = store.append, store.append_event
        self._append_at_once = store.append_at_once
        self.record: Callable[[float], object] | None = None
        """Called with the seconds that each commit took, if that is measured."""
        self._lock = threading.Lock()
        self._queue: deque[Ticket] = deque()
        self._wake = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._transacting: int | None = None
        self._born = Generation.now
        self.observers: list[Observer] = []
        self.tenant = ""
        """Prefix of the names of logs that observers get, if this is the committer of a tenant."""

    def commit(self, group: Group) -> tuple[Placed, ...]:
        """Write a group, alone or with others. Durable when it returns; Conflict or KeyTaken if it was refused."""
        self._refuse_after_fork()
        if not self._queue and self._lock.acquire(blocking=False):
            try:
                placed = placed_of(self._append((group,))[0])
            finally:
                self._release()
            if self.observers:
                self.observe(group.writes, placed)
            return placed
        return self._commit_with_others(group)

    @property
    def must_wait(self) -> bool:
        """True if a write would have to wait now, as far as that is known without a try."""
        return self._store.always_waits or bool(self._queue)

    def commit_at_once(self, group: Group) -> Outcome | None:
        """Write a group if no wait for the store or for other writers is needed; else None, and nothing is done.

        It is called on event loops.
        """
        self._refuse_after_fork()
        if self.must_wait or not self._lock.acquire(False):
            return None
        try:
            outcome = self._append_at_once(group)
        finally:
            self._release()
        if self.observers and isinstance(outcome, tuple):
            self.observe(group.writes, outcome)
        return outcome

    def commit_event_at_once(self, log: str, expect: Head, draft: Draft) -> bytes | None:
        """Write one event after a known head if no wait is needed, and give its digest; else None."""
        outcome = self.commit_at_once(Group((Write(log, (draft,), expect),)))
        return None if outcome is None else placed_of(outcome)[0].digests[0]

    def commit_event(self, log: str, expect: Head, draft: Draft) -> bytes:
        """Write one event after a known head; gives its digest. Shares a commit only if others are at it."""
        if self._born != Generation.now:  # every step comes by here, so what others call is written out
            self._refuse_after_fork()
        if self._queue or not self._lock.acquire(False):
            return self._commit_with_others(Group((Write(log, (draft,), expect),)))[0].digests[0]
        try:
            digest = self._append_event(log, expect, draft)
        finally:
            self._lock.release()
            if self._queue:
                self._call_thread()
        if not isinstance(digest, bytes):
            raise digest
        if self.observers and draft.event is not None:
            self._tell_observers(log, (PlacedEvent(expect.seq + 1, draft.at_us, draft.event),))
        return digest

    def transact(self, log: str, expect: Head, work: Work, seconds: float | None = None) -> tuple[Placed, ...]:
        """Run `work` in a transaction of the store and write what it gives with it; see `Store.transact`."""
        self._refuse_after_fork()
        self._refuse_inside()
        self._lock.acquire()
        try:
            self._transacting = threading.get_ident()
            groups: list[Group] = []
            placed = placed_of(
                self._store.transact(log, expect, lambda connection: _noted(work, connection, groups), seconds)
            )
        finally:
            self._transacting = None
            self._release()
        if self.observers:
            self.observe(groups[-1].writes, placed)
        return placed

    def time_commits(self, record: Callable[[float], object]) -> None:
        """Measure commits from now on. What is not measured costs nothing: the store is called directly."""
        self.record = record
        self._append, self._append_event = _timed(self._store.append, record), _timed(self._store.append_event, record)
        self._append_at_once = _timed(self._store.append_at_once, record)

    def observe(self, writes: Sequence[Write], placed: Sequence[Placed]) -> None:
        """Tell observers what was written, in the thread that wrote it. What they raise is logged and fails nothing."""
        for write, where in zip(writes, placed, strict=True):
            events = tuple(
                PlacedEvent(seq, draft.at_us, draft.event)
                for seq, draft in enumerate(write.drafts, start=where.first)
                if draft.event is not None
            )
            if events:  # records are not events
                self._tell_observers(write.log, events)

    def _tell_observers(self, log: str, events: Sequence[PlacedEvent]) -> None:
        for observer in self.observers:
            try:
                observer(f"{self.tenant}!{log}" if self.tenant else log, events)
            except Exception:  # noqa: BLE001 — it watches; what was written is written
                _report("an observer of events failed")

    def _refuse_inside(self) -> None:
        """Work that waited for a lock which its own transaction holds would wait for ever."""
        if self._transacting == threading.get_ident():
            raise written_inside()

    def _commit_with_others(self, group: Group) -> tuple[Placed, ...]:
        """Queue up. The thread that finds the lock free writes for all; each other sleeps until its own is settled."""
        self._refuse_inside()
        settled = threading.Lock()
        settled.acquire()
        ticket = Ticket(group, _wake_up, settled)
        self._queue.append(ticket)
        if self._lock.acquire(blocking=False):
            try:
                self._commit_queued()
            finally:
                self._release()
        settled.acquire()
        return ticket.result()

    def _release(self) -> None:
        """Release the lock, then look: a thread that queued while it was held failed to get it, and counts on us."""
        self._lock.release()
        if self._queue:
            self._call_thread()

    def _call_thread(self) -> None:
        if self._thread is None:
            self._start()
        if not self._wake.is_set():
            self._wake.set()

    def submit(self, group: Group, resolve: Resolve, waiter: object) -> None:
        """Queue a group for the committing thread; `resolve` is called when it is settled."""
        self._queue.append(Ticket(group, resolve, waiter))
        self._call_thread()

    def close(self) -> None:
        """Write what is queued and stop the thread."""
        self._refuse_inside()
        self._stopping = True
        if self._thread is not None:
            self._wake.set()
            self._thread.join()
            self._thread = None

    def _refuse_after_fork(self) -> None:
        if self._born != Generation.now:
            raise StoreClosed("this app was opened before the process was forked", hint="open it after the fork")

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._stopping:
                self._thread = threading.Thread(target=self._serve, name="holdfast-commit", daemon=True)
                self._thread.start()

    def _serve(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            while self._queue:
                with self._lock:
                    self._commit_queued()
            if self._stopping and not self._queue:
                return

    def _commit_queued(self) -> None:
        """Write what is queued, up to a limit. The caller holds the lock."""
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), limits.MAX_GROUPS_PER_COMMIT))]
        if batch:
            try:
                self._commit_batch(batch)
            finally:
                _tell(batch)

    def _commit_batch(self, batch: list[Ticket]) -> None:
        """Write a batch. What is wrong with one group must not fail the others."""
        try:
            outcomes = self._append([ticket.group for ticket in batch])
        except StoreError as error:
            for ticket in batch:
                ticket.error = error
        except Exception as error:  # noqa: BLE001 — a group that cannot be written at all: find out which
            if len(batch) == 1:
                batch[0].error = error
            else:
                for ticket in batch:
                    self._commit_batch([ticket])
        except BaseException:  # Ctrl-C hit the one who was writing for all: the others must not think anything
            for ticket in batch:
                ticket.error = StoreError("the commit was interrupted, and its fate is not known", hint="read the log")
            raise
        else:
            for ticket, outcome in zip(batch, outcomes, strict=True):
                ticket.outcome = outcome
                if self.observers and isinstance(outcome, tuple):
                    self.observe(ticket.group.writes, outcome)


Args = TypeVarTuple("Args")
R = TypeVar("R")


def _timed(call: Callable[[*Args], R], record: Callable[[float], object]) -> Callable[[*Args], R]:
    clock = time.perf_counter

    def timed(*args: *Args) -> R:
        began = clock()
        try:
            return call(*args)
        finally:
            record(clock() - began)

    return timed


def _noted(work: Work, connection: Any, groups: list[Group]) -> Group:
    groups.append(work(connection))
    return groups[-1]


def _wake_up(tickets: Sequence[Ticket]) -> None:
    """Wake the threads that wait, each by its own lock."""
    for ticket in tickets:
        cast("threading.Lock", ticket.waiter).release()


def _tell(batch: list[Ticket]) -> None:
    """Tell each listener once of all its tickets."""
    listeners: dict[Resolve, list[Ticket]] = {}
    for ticket in batch:
        if ticket.resolve is not None:
            listeners.setdefault(ticket.resolve, []).append(ticket)
    for resolve, tickets in listeners.items():
        try:
            resolve(tickets)
        except Exception:  # noqa: BLE001 — a listener's fault must not keep others from their commits
            _report("a listener could not be notified of its commit")


def _report(what: str) -> None:
    import logging

    logging.getLogger("holdfast").exception(what)


def placed_of(outcome: Outcome) -> tuple[Placed, ...]:
    """Return the places of a group's writes, or raise what kept them out."""
    if isinstance(outcome, tuple):
        return outcome
    raise outcome


# What was acknowledged

"""All logs of one store: find, begin and fork them, walk through their past, read large values.

Loading is the newest valid snapshot plus the tail. A fork's past is read from its parents, so it copies nothing.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import codec, limits, names
from holdfast.core.codec import Blob, Draft, Head, Origin, Stored, Write
from holdfast.core.errors import (
    Conflict,
    Diverged,
    InvalidValue,
    LogCorrupt,
    SeqOutOfRange,
    StoreBusy,
    TaskCollected,
    TaskNotFound,
    ValueDamaged,
)
from holdfast.core.events import Event, Pins, RolledBack, ThreadCreated, UserCreated
from holdfast.core.names import begins_again, namespaced, thread_log, user_log
from holdfast.engine.logs import loading
from holdfast.engine.logs.cache import Cache, Ground
from holdfast.engine.logs.committer import Committer
from holdfast.engine.logs.foreseen import ForeseenLogs
from holdfast.engine.logs.heads import Heads, KnownHead, RecordHeads
from holdfast.engine.logs.log import Log, decoded
from holdfast.engine.system.clock import Clock
from holdfast.engine.system.entropy import random_hex
from holdfast.store.protocol import Identity, Store
from holdfast.store.tenants import Tenant

_HASH = re.compile("[0-9a-f]{64}")


class OnLost(Protocol):
    """What is done about a log that no longer has what was acknowledged to this process."""

    def head_missing(self, logs: Logs, log: Log) -> list[Stored]:
        """The head in memory is not in the store."""
        ...

    def confirm(self, logs: Logs, log: Log, known: KnownHead) -> None:
        """Before the first write to a log that was read: refuse if it lost what is known of it."""
        ...


class RefuseLost:
    """Raises Diverged and writes nothing: for logs that are only read."""

    def head_missing(self, logs: Logs, log: Log) -> list[Stored]:
        raise Diverged(log.name, log.head.seq, logs.head(log.name).seq, frozen=False)

    def confirm(self, logs: Logs, log: Log, known: KnownHead) -> None:
        raise Diverged(log.name, known.head.seq, log.head.seq, frozen=False)


class OnUser(Protocol):
    """What a program declares of its users' state."""

    states: Any
    """The model and its versions, as `definitions` has them."""

    def migrate(self, logs: Logs, name: str) -> None:
        """Write a user's state anew if it was written under an older version."""
        ...


class Segment(Struct, frozen=True):
    """A stretch of a fork's past: one log's own events, after one seq up to another."""

    log: str
    after: int
    upto: int | None


class Logs:
    """All logs of one store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        cache: Cache | None = None,
        *,
        on_lost: OnLost | None = None,
        key_space: str | None = None,
    ) -> None:
        self._key_space = key_space
        self.store = store
        self.clock = clock
        self.cache = cache or Cache()
        self.committer = Committer(store)
        self.on_lost = on_lost or RefuseLost()
        self.heads = Heads()
        self.foreseen = ForeseenLogs(self.load, self.heads)
        self.record_heads = RecordHeads()
        self.users: OnUser | None = None
        """The model of users' state, if the program declares one."""
        self._blobs: OrderedDict[str, bytes] = OrderedDict()
        self._blob_bytes = 0

    @functools.cached_property
    def identity(self) -> Identity:
        """The store's own id and key, read once."""
        return self.store.identity()

    def secret_key(self) -> bytes:
        """Return a random key that is kept with the store, for fingerprints of secrets."""
        return self.identity.key

    @property
    def key_space(self) -> str:
        """The id that tells idempotency keys of this store and tenant from those of others."""
        return self.identity.id[: limits.KEY_SPACE_LENGTH] if self._key_space is None else self._key_space

    def begun(self, name: str, rows: Sequence[Stored]) -> Log:
        """A log and its state, of all its events."""
        log = Log(self, name)
        log.follow(rows, name)
        log.ground = Ground()
        known = self.heads.get(name)
        log.promised = known if known is not None and known.head != log.head else None
        return log

    def load(self, name: str, *, upto: int | None = None) -> Log:
        """A log and its state, at its head or at an earlier seq."""
        known = self.heads.get(name)  # before anything is read: what comes later may not be in it
        log = loading.load(self, Log(self, name), upto)
        if known is not None and known.head != log.head and upto is None:
            log.promised = known
        return log

    def news(self, log: Log) -> list[Stored]:
        """Return the events that other writers have added since a log was read.

        Diverged if what was read is gone; LeaseLost if only a claim is gone, with no event after it.
        """
        head = log.head
        rows = self.store.read(log.name, after=head.seq - 1)
        if rows and rows[0].seq == head.seq and rows[0].digest == head.digest:
            return rows[1:]
        return self.on_lost.head_missing(self, log)

    def segments(self, name: str, upto: int | None = None) -> list[Segment]:
        """Return the segments of a log, oldest first."""
        found: list[Segment] = []
        log = name
        for _ in range(limits.MAX_FORK_DEPTH):
            origin = self.store.origin(log)
            if origin is None:
                raise self.missing(name)
            if upto is None or upto > origin.at:
                found.append(Segment(log, origin.at, upto))
            if origin.parent is None:
                break
            upto = origin.at if upto is None else min(upto, origin.at)
            log = origin.parent
        found.reverse()
        if not found:
            raise SeqOutOfRange(name, upto or 0, self.head(name).seq)
        return found

    def missing(self, name: str) -> TaskNotFound | TaskCollected:
        """Why there is no such log. Of what is not a task, the name can be used again."""
        gone = not begins_again(name) and self.store.tombstone(name) is not None
        return TaskCollected(name) if gone else TaskNotFound(name)

    @property
    def namespace(self) -> str:
        """The tenant whose logs these are; empty if they are not of one."""
        return self.store.namespace if isinstance(self.store, Tenant) else ""

    def full_name(self, name: str) -> str:
        """A log's name as the whole store knows it: `tenant!id` if it is a tenant's."""
        return namespaced(self.namespace, name) if self.namespace else name

    def head(self, name: str) -> Head:
        """The last position of a log."""
        head = self.store.head(name)
        if head is None:
            raise self.missing(name)
        return head

    def rows(self, name: str, *, after: int = 0, upto: int | None = None) -> Iterator[tuple[str, Stored]]:
        """A log's events with the log each was written to, inherited ones first."""
        for segment in self.segments(name, upto):
            seq = max(after, segment.after)
            while chunk := self.store.read(segment.log, after=seq, upto=segment.upto, limit=limits.READ_CHUNK):
                for row in chunk:
                    yield segment.log, row
                seq = chunk[-1].seq
        if self.store.origin(name) is None:
            raise self.missing(name)  # it was removed while we read

    def rows_of_kind(self, name: str, kind: str, *, upto: int | None = None) -> list[Stored]:
        """Events of a cold kind that still count, by index, inherited ones first."""
        live = self.live(name, upto)
        return [row for row in self._all_of_kind(name, kind, upto) if any(a < row.seq <= b for a, b in live)]

    def live(self, name: str, upto: int | None = None) -> list[tuple[int, int]]:
        """Which stretches of a log still count, after one seq up to another: what was rolled back does not."""
        end = self.head(name).seq if upto is None else upto
        returns = {row.seq: decoded(name, row) for row in self._all_of_kind(name, "rolled_back", end)}
        stretches: list[tuple[int, int]] = []
        while end > 0:
            last = max((seq for seq in returns if seq <= end), default=0)
            stretches.append((last, end))
            event = returns.get(last)
            end = event.to if isinstance(event, RolledBack) else 0
            if end >= last > 0:
                raise LogCorrupt(name, last, f"it goes back to {end}, which had not come yet")
        return stretches[::-1]

    def live_rows(self, name: str, *, after: int = 0, upto: int | None = None) -> Iterator[tuple[str, Stored]]:
        """The events between two seqs that still count."""
        for begin, end in self.live(name, upto):
            if end > after:
                yield from self.rows(name, after=max(begin, after), upto=end)

    def _all_of_kind(self, name: str, kind: str, upto: int | None) -> list[Stored]:
        return [
            row
            for segment in self.segments(name, upto)
            for row in self.store.read_kind(segment.log, kind, after=segment.after, upto=segment.upto)
        ]

    def create(self, name: str, events: Sequence[Event]) -> Log:
        """Begin a log. Conflict if there is one of that name; or was, unless it is one that may begin again."""
        log = Log(self, name)
        stone = self.store.tombstone(name) if begins_again(name) else None
        if stone is not None:
            log.head = Head(stone.seq, stone.digest)
        log.append(events, origin=Origin(None, log.head.seq))
        return log

    def fork(self, parent: Log, name: str, events: Sequence[Event]) -> Log:
        """Begin a log whose past is another's, up to where that one was loaded."""
        past = self.segments(parent.name, parent.head.seq)
        if len(past) >= limits.MAX_FORK_DEPTH:
            raise InvalidValue(f"{parent.name!r} stands on {len(past)} forks", hint="start again from its state")
        log = Log(self, name)
        log.head, log.folded, log.ground = parent.head, parent.folded, None
        # The pointer leads to the log that holds the event itself, which for an early one is not the parent's own.
        log.append(events, origin=Origin(past[-1].log, parent.head.seq))
        return log

    def write_at_head(self, name: str, events: Sequence[Event], salt: str = "") -> Write:
        """Events for the head of another log, wherever that is when they are written."""
        at_us = self.clock.now_us()
        drafts: list[Draft] = []
        blobs: tuple[Blob, ...] = ()
        for event in events:
            draft, values = codec.draft(replace(event, nonce=random_hex(8)) if salt else event, at_us, salt)
            drafts.append(draft)
            blobs += values
        return Write(name, tuple(drafts), None, blobs=blobs)

    def blob(self, hash: str) -> bytes:
        """A blob's stored bytes, kept in memory for a while."""
        data = self._blobs.get(hash)
        if data is not None:
            return data
        data = self.store.blob(hash) if _HASH.fullmatch(names.text(hash, "hash")) else None
        if data is None:
            raise ValueDamaged(hash, "is missing")
        self.keep(hash, data)
        return data

    def keep(self, hash: str, data: bytes) -> None:
        """Keep a blob in memory for a while."""
        if hash in self._blobs:
            return
        self._blobs[hash] = data
        self._blob_bytes += len(data)
        while self._blob_bytes > limits.BLOB_CACHE_BYTES and len(self._blobs) > 1:
            _, dropped = self._blobs.popitem(last=False)
            self._blob_bytes -= len(dropped)

    def forget(self, names: Iterable[str]) -> None:
        """Keep nothing of these logs in memory, and no large value at all: some of them may have been erased."""
        self._blobs.clear()
        self._blob_bytes = 0
        self.cache.forget(names)

    def pins(self, user: str | None, thread: str | None) -> Pins | None:
        """Return the heads of the logs that a task looks at; they are begun if they are not there."""
        if user is None and thread is None:
            return None
        people = 0 if user is None else self.ensure(user_log(user), UserCreated(salt=random_hex(8)))
        if user is not None and self.users is not None:
            self.users.migrate(self, user_log(user))
            people = self.head(user_log(user)).seq
        salt = "" if user is None else random_hex(8)
        talk = 0 if thread is None else self.ensure(thread_log(thread), ThreadCreated(salt=salt, user=user))
        return Pins(people, talk)

    def ensure(self, name: str, first: UserCreated | ThreadCreated) -> int:
        """Begin the log of a user or a thread if it is not there, or anew if all of it was erased; gives its head."""
        for _ in range(limits.MAX_APPEND_TRIES):
            head = self.store.head(name)
            with contextlib.suppress(Conflict, TaskNotFound):  # another writer was first, or removed it
                if head is None:
                    return self.create(name, [first]).head.seq
                if not first.salt or self.salt(name):
                    return head.seq
                self.load(name).append([first])
        raise StoreBusy(f"the log {name!r} kept changing while it was read; nothing was written", hint="try again")

    def salt(self, name: str) -> str:
        """What the large values of a user's or a thread's log are salted with: its first event says so."""
        rows = self.store.read(name, limit=1)
        first = decoded(name, rows[0]) if rows else None
        if isinstance(first, UserCreated | ThreadCreated) and first.salt:
            return first.salt
        with contextlib.suppress(TaskNotFound):  # it was removed
            return self.load(name).state.salt  # a thread may get one with its first user
        return ""

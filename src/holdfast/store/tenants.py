"""A tenant's part of a store: a store of its own to its users, with no way to anything else.

Names of logs and unique keys get the namespace before them on the way in, and lose it on the way out; what does not
begin with it is not shown. `!` is in no id, so no name of one tenant can pass for another's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TypeVar

from msgspec.structs import replace

from holdfast.core import names
from holdfast.core.codec import Blob, Draft, Group, Head, Origin, Snapshot, Stored, Summary, UniqueKey, Write
from holdfast.core.errors import Conflict, InvalidValue, KeyTaken, StoreError
from holdfast.core.names import NAMESPACE_END, namespaced
from holdfast.store.chunks import ChunkBatch
from holdfast.store.protocol import (
    ActPlace,
    ActQuery,
    Connection,
    Erasure,
    Identity,
    Opening,
    Outcome,
    Query,
    RowChange,
    Since,
    Stats,
    Store,
    TaskCounts,
    Tombstone,
    Work,
)
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
    WakeListener,
)

T = TypeVar("T")


class TenantQueues:
    """The queues of a tenant."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._queues = tenant.whole.queues

    def claim(self, wanted: ClaimRequest, claim: Claim) -> Taken:
        tenant = self._tenant

        def inside(due: Due) -> Write | None:
            write = claim(Due(tenant.shown(due.summary), due.head))
            return None if write is None else tenant.write_in(write)

        found = self._queues.claim(replace(wanted, namespace=tenant.namespace), inside)
        return {tenant.outside(name): rows for name, rows in found.items()}

    def lost(self) -> dict[str, Loss]:
        return self._queues.lost()

    def next_wake(self, namespace: str | None, queues: Sequence[str], after_us: int = EVER_US) -> int | None:
        return self._queues.next_wake(self._tenant.namespace, queues, after_us)

    def tenants(self, queues: Sequence[str], now_us: int, lost: Sequence[str] = ()) -> list[str]:
        return [one for one in self._queues.tenants(queues, now_us, lost) if one == self._tenant.namespace]

    def depths(self, namespace: str | None = None) -> list[QueueDepth]:
        return self._queues.depths(self._tenant.namespace)

    def waits(self, namespace: str | None = None) -> list[WaitDepth]:
        return self._queues.waits(self._tenant.namespace)

    def ready(self, namespace: str, queue: str, most: int) -> int:
        return self._queues.ready(self._tenant.namespace, queue, most)

    def reserve(self, tool: str, rate: Rate, now_us: int) -> Slot:
        """A destination does not know our tenants: what it allows is for all of them."""
        return self._queues.reserve(tool, rate, now_us)

    def announce(self, serves: str) -> None:
        self._queues.announce(serves)

    def announced(self) -> list[ServedRow]:
        return self._queues.announced()

    def listen(self, kind: str = "") -> WakeListener:
        return self._queues.listen(kind)


class TenantChunks:
    """What steps of a tenant's tasks stream."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._chunks = tenant.whole.chunks

    def put(self, batches: Sequence[ChunkBatch]) -> None:
        self._chunks.put([replace(one, log=self._tenant.inside(one.log)) for one in batches])

    def read(self, log: str, seen: Mapping[str, int]) -> list[ChunkBatch]:
        return [replace(one, log=log) for one in self._chunks.read(self._tenant.inside(log), seen)]

    def drop(self, log: str, streams: Sequence[str]) -> None:
        self._chunks.drop(self._tenant.inside(log), streams)

    def drop_old(self, before_us: int) -> int:
        """Delete old streams of all tenants: they count for none of them."""
        return self._chunks.drop_old(before_us)


class Tenant:
    """A view of one namespace."""

    def __init__(self, store: Store, namespace: str) -> None:
        if isinstance(store, Tenant):
            raise InvalidValue(f"namespace {namespace!r} cannot be inside of another", hint="open the store itself")
        self.namespace = names.namespace(namespace)
        self.whole = store
        self.url = store.url
        self.lease_seconds = store.lease_seconds
        self.always_waits = store.always_waits
        self.queues = TenantQueues(self)
        self.chunks = TenantChunks(self)

    # Names

    def inside(self, name: str) -> str:
        """A name as it is in the store."""
        return namespaced(self.namespace, name)

    def outside(self, name: str) -> str:
        """A name of the store as the tenant knows it."""
        return name.partition(NAMESPACE_END)[2]

    def is_own(self, name: str) -> bool:
        """Return whether something in the store is this tenant's."""
        return name.startswith(self.namespace + NAMESPACE_END)

    def shown(self, summary: Summary) -> Summary:
        """A task's row as the tenant knows it."""
        return replace(summary, id=self.outside(summary.id))

    def write_in(self, write: Write) -> Write:
        """Return a write with the names that the store uses."""
        origin, summary = write.origin, write.summary
        if origin is not None and origin.parent is not None:
            origin = Origin(self.inside(origin.parent), origin.at)
        if summary is not None:
            summary = replace(summary, id=self.inside(summary.id), namespace=self.namespace)
        return replace(write, log=self.inside(write.log), origin=origin, summary=summary)

    def _group_in(self, group: Group) -> Group:
        writes = tuple(self.write_in(write) for write in group.writes)
        keys = tuple(self._take_in(take) for take in group.unique_keys)
        erasures = tuple(replace(one, log=self.inside(one.log)) for one in group.erasures)
        cuts = tuple(replace(cut, stone=self._stone_in(cut.stone)) for cut in group.cuts)
        return Group(writes, keys, tuple(self.inside(key) for key in group.freed_keys), erasures, cuts)

    def _take_in(self, take: UniqueKey) -> UniqueKey:
        return UniqueKey(self.inside(take.key), self.inside(take.log), take.step, take.input_hash)

    def _take_out(self, take: UniqueKey) -> UniqueKey:
        return UniqueKey(self.outside(take.key), self.outside(take.log), take.step, take.input_hash)

    def _stone_in(self, stone: Tombstone) -> Tombstone:
        return replace(stone, log=self.inside(stone.log))

    def _stone_out(self, stone: Tombstone) -> Tombstone:
        return replace(stone, log=self.outside(stone.log))

    def _outcome(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Conflict):
            told = outcome.details
            return Conflict(self.outside(told["log"]), told["expected"], told["actual"])
        if isinstance(outcome, KeyTaken):
            told = outcome.details
            return KeyTaken(self.outside(told["key"]), self.outside(told["log"]), told["step"])
        return outcome

    # Writing

    def append(self, groups: Sequence[Group]) -> list[Outcome]:
        return [self._outcome(one) for one in self.whole.append([self._group_in(group) for group in groups])]

    def append_at_once(self, group: Group) -> Outcome | None:
        done = self.whole.append_at_once(self._group_in(group))
        return None if done is None else self._outcome(done)

    def append_event(self, log: str, expect: Head, draft: Draft) -> bytes | Conflict:
        done = self.whole.append_event(self.inside(log), expect, draft)
        if isinstance(done, Conflict):
            return Conflict(log, done.details["expected"], done.details["actual"])
        return done

    def transact(self, log: str, expect: Head, work: Work, seconds: float | None = None) -> Outcome:
        def inside(connection: Connection) -> Group:
            return self._group_in(work(connection))

        return self._outcome(self.whole.transact(self.inside(log), expect, inside, seconds))

    # Reading

    def head(self, log: str) -> Head | None:
        return self.whole.head(self.inside(log))

    def heads(self, logs: Sequence[str]) -> dict[str, int]:
        found = self.whole.heads([self.inside(name) for name in logs])
        return {self.outside(name): seq for name, seq in found.items()}

    def origin(self, log: str) -> Origin | None:
        found = self.whole.origin(self.inside(log))
        if found is None or found.parent is None:
            return found
        return Origin(self.outside(found.parent), found.at)

    def read(
        self,
        log: str,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        last: int | None = None,
    ) -> list[Stored]:
        return self.whole.read(self.inside(log), after=after, upto=upto, limit=limit, last=last)

    def read_kind(
        self, log: str, kind: str, *, after: int = 0, upto: int | None = None, last: int | None = None
    ) -> list[Stored]:
        return self.whole.read_kind(self.inside(log), kind, after=after, upto=upto, last=last)

    def opening(self, log: str, *, upto: int | None = None, version: int) -> Opening | None:
        found = self.whole.opening(self.inside(log), upto=upto, version=version)
        if found is None or found.origin.parent is None:
            return found
        return replace(found, origin=Origin(self.outside(found.origin.parent), found.origin.at))

    def since(
        self, log: str, seq: int, *, past: Sequence[str] = (), upto: int | None = None, limit: int | None = None
    ) -> Since:
        inside = [self.inside(name) for name in past]
        return self.whole.since(self.inside(log), seq, past=inside, upto=upto, limit=limit)

    def blob(self, hash: str, *, within: str = "") -> bytes | None:
        return self.whole.blob(hash, within=self.inside(within))

    def blobs_of(self, log: str) -> list[Blob]:
        return self.whole.blobs_of(self.inside(log))

    def snapshot(self, log: str, *, upto: int | None = None, version: int) -> Snapshot | None:
        return self.whole.snapshot(self.inside(log), upto=upto, version=version)

    def drop_snapshots(self, *, log: str | None = None, before_us: int | None = None) -> int:
        if log is not None:
            return self.whole.drop_snapshots(log=self.inside(log), before_us=before_us)
        return sum(self.whole.drop_snapshots(log=name, before_us=before_us) for name in self._own_logs())

    def summary(self, log: str) -> Summary | None:
        found = self.whole.summary(self.inside(log))
        return None if found is None else self.shown(found)

    def list(self, query: Query) -> list[Summary]:
        after = None if query.after is None else self.inside(query.after)
        prefix = None if query.prefix is None else self.inside(query.prefix)
        found = self.whole.list(replace(query, namespace=self.namespace, after=after, prefix=prefix))
        return [self.shown(one) for one in found]

    def counts(self, namespace: str | None = None) -> TaskCounts:
        return self.whole.counts(self.namespace)

    def namespaces(self) -> list[str]:
        return [one for one in self.whole.namespaces() if one == self.namespace]

    def acts(self, query: ActQuery) -> list[tuple[str, Stored]]:
        """Those of others are read and left out: the index has no tenant in it."""
        last = None if query.before is None else replace(query.before, log=self.inside(query.before.log))
        found: list[tuple[str, Stored]] = []
        while len(found) < query.limit and (page := self.whole.acts(replace(query, before=last, limit=1000))):
            found += [(self.outside(name), row) for name, row in page if self.is_own(name)]
            last = ActPlace(page[-1][1].at_us, page[-1][0], page[-1][1].seq)
        return found[: query.limit]

    def changes(self, after: str | None, *, limit: int = 1000) -> list[RowChange]:
        found: list[RowChange] = []
        while len(found) < limit and (page := self.whole.changes(after, limit=1000)):
            found += self.own_changes(page)
            after = page[-1].cursor
        return found[:limit]

    def own_changes(self, found: Sequence[RowChange]) -> list[RowChange]:
        """Those of some changes that are of this namespace, as the tenant knows them."""
        own = (one for one in found if one.summary.namespace == self.namespace)
        return [replace(one, summary=self.shown(one.summary)) for one in own]

    def last_change(self) -> str:
        return self.whole.last_change()

    def logs(self, *, prefix: str | None = None, after: str | None = None, limit: int = 1000) -> list[str]:
        if prefix is not None:
            last = None if after is None else self.inside(after)
            named = self.whole.logs(prefix=self.inside(prefix), after=last, limit=limit)
            return [self.outside(name) for name in named]
        own = self._pages(
            lambda last: self.whole.logs(after=last, limit=1000),
            None if after is None else self.inside(after),
            lambda name: name,
            limit,
        )
        return [self.outside(name) for name in own]

    def newest(self, *, prefix: str, after: str | None = None, limit: int = 1000) -> list[tuple[str, Stored]]:
        last = None if after is None else self.inside(after)
        found = self.whole.newest(prefix=self.inside(prefix), after=last, limit=limit)
        return [(self.outside(name), row) for name, row in found]

    def _own_logs(self) -> list[str]:
        return [self.inside(name) for name in self.logs(limit=1 << 62)]

    def _pages(
        self, page: Callable[[str | None], list[T]], last: str | None, name_of: Callable[[T], str], limit: int
    ) -> list[T]:
        """Return this tenant's logs, page by page: for maintenance, not for lists that people wait for."""
        found: list[T] = []
        while len(found) < limit and (rows := page(last)):
            found += [row for row in rows if self.is_own(name_of(row))]
            last = name_of(rows[-1])
        return found[:limit]

    def forks(self, log: str) -> list[str]:
        return [self.outside(name) for name in self.whole.forks(self.inside(log))]

    def finished(self, *, before_us: int | None, skip: int, limit: int) -> list[str]:
        own: list[str] = []
        at = 0
        while len(own) < skip + limit and (rows := self.whole.finished(before_us=None, skip=at, limit=1000)):
            own += [self.outside(name) for name in rows if self.is_own(name)]
            at += len(rows)
        old = own[skip : skip + limit]
        if before_us is None:
            return old
        rows_of = ((name, self.summary(name)) for name in old)
        return [name for name, row in rows_of if row is not None and row.changed_us < before_us]

    def owner_of_key(self, key: str) -> UniqueKey | None:
        found = self.whole.owner_of_key(self.inside(key))
        return None if found is None else self._take_out(found)

    def unique_keys(self, *, after: str = "", limit: int = 1000) -> list[UniqueKey]:
        found = self._pages(
            lambda last: self.whole.unique_keys(after=last or "", limit=1000),
            self.inside(after),
            lambda take: take.key,
            limit,
        )
        return [self._take_out(take) for take in found]

    def tombstone(self, log: str) -> Tombstone | None:
        found = self.whole.tombstone(self.inside(log))
        return None if found is None else self._stone_out(found)

    def tombstones(self, *, after: str = "", limit: int = 1000) -> list[Tombstone]:
        found = self._pages(
            lambda last: self.whole.tombstones(after=last or "", limit=1000),
            self.inside(after),
            lambda stone: stone.log,
            limit,
        )
        return [self._stone_out(stone) for stone in found]

    # Erasing and removing

    def erasures(self, log: str) -> list[Erasure]:
        return [replace(one, log=log) for one in self.whole.erasures(self.inside(log))]

    def erase(self, erasures: Sequence[Erasure]) -> None:
        self.whole.erase([replace(one, log=self.inside(one.log)) for one in erasures])

    def remove(self, tombstones: Sequence[Tombstone]) -> list[str]:
        inside = [self._stone_in(stone) for stone in tombstones]
        return [self.outside(name) for name in self.whole.remove(inside)]

    def restore_marks(self, tombstones: Sequence[Tombstone], keys: Sequence[UniqueKey]) -> None:
        stones = [self._stone_in(stone) for stone in tombstones]
        self.whole.restore_marks(stones, [self._take_in(take) for take in keys])

    # Looking after it

    def rows(self, log: str) -> list[Stored]:
        return self.whole.rows(self.inside(log))

    def anchor(self, log: str) -> Head | None:
        return self.whole.anchor(self.inside(log))

    def check(self) -> list[str]:
        return self.whole.check()

    def stats(self) -> Stats:
        """Count a tenant's tasks. Bytes are the whole store's, and are not shown."""
        counts, events = self.counts(), 0
        for name in self.logs(limit=1 << 62):
            head, origin = self.head(name), self.origin(name)
            events += head.seq - origin.at if head is not None and origin is not None else 0
        return Stats(counts.tasks, counts.by_status, events, 0, 0, 0, {})

    def backup(self, path: str) -> None:
        raise StoreError(
            f"a backup holds every tenant's tasks, not only those of {self.namespace!r}",
            hint="open the store without a namespace; app.copy_to(url) copies this tenant alone",
        )

    def identity(self) -> Identity:
        """Return an identity of its own, so that one tenant's copies elsewhere are not found by another."""
        whole = self.whole.identity()
        return Identity(sha256(self.inside(whole.id).encode()).hexdigest()[:32], whole.key)

    def holder(self) -> str:
        return self.whole.holder()

    def alive(self, holder: str, lease: float | None = None) -> bool:
        return self.whole.alive(holder, lease)

    def loss(self, holder: str, lease: float | None = None) -> Loss | None:
        return self.whole.loss(holder, lease)

    def close(self, *, present: bool = False) -> None:
        self.whole.close(present=present)

    def depart(self) -> None:
        self.whole.depart()

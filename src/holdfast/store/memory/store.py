"""A store in memory: for tests and for work that may be forgotten. The shortest reading of the protocol."""

from __future__ import annotations

import itertools
import os
import threading
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import codec, limits
from holdfast.core.codec import Blob, Draft, Group, Head, LogCut, Origin, Snapshot, Stored, Summary, UniqueKey, Write
from holdfast.core.errors import Conflict, HoldfastError, StoreClosed, StoreError, TaskNotFound
from holdfast.core.state.shapes import ENDED
from holdfast.failpoints import failpoint
from holdfast.store.acceptance import decide
from holdfast.store.memory.chunks import MemoryChunks
from holdfast.store.memory.queues import MemoryQueues
from holdfast.store.protocol import (
    TO_THE_END,
    ActQuery,
    Erasure,
    Identity,
    Opening,
    Outcome,
    Placed,
    Query,
    RowChange,
    Since,
    Stats,
    TaskCounts,
    Tombstone,
    Work,
    change_place,
    gone_from_list,
    is_act,
    written_inside,
)
from holdfast.store.queues import Due, Loss

if TYPE_CHECKING:
    import apsw


class _Log(Struct):
    number: int
    origin: Origin
    start: Head
    rows: list[Stored]
    summary: Summary | None = None
    change: int = 0
    snapshots: list[Snapshot] = []
    blobs: set[str] = set()
    erasures: list[Erasure] = []

    @property
    def head(self) -> Head:
        return Head(self.rows[-1].seq, self.rows[-1].digest) if self.rows else self.start


class _Standing(Struct):
    """What `decide` asks."""

    logs: dict[str, _Log]
    tombstones: dict[str, Tombstone]
    keys: dict[str, UniqueKey]

    def head(self, log: str) -> Head | None:
        return self.logs[log].head if log in self.logs else None

    def base(self, log: str) -> int | None:
        return self.logs[log].origin.at if log in self.logs else None

    def name(self, log: str) -> tuple[bool, Head | None]:
        stone = self.tombstones.get(log)
        return log in self.logs, stone and Head(stone.seq, stone.digest)

    def owner(self, key: str) -> UniqueKey | None:
        return self.keys.get(key)


class MemoryStore:
    """Logs in dictionaries, under one lock."""

    lease_seconds = limits.LEASE_SECONDS
    always_waits = False

    def __init__(self) -> None:
        self.url = "memory:"
        self._lock = threading.RLock()
        self._logs: dict[str, _Log] = {}
        self._blobs: dict[str, bytes] = {}
        self._effects: dict[str, UniqueKey] = {}
        self._tombstones: dict[str, Tombstone] = {}
        self._standing = _Standing(self._logs, self._tombstones, self._effects)
        self._numbered = self._changed = 0
        self._places: dict[str, int] = {}
        self._holder = f"memory-{os.urandom(8).hex()}"
        self._identity = Identity(os.urandom(16).hex(), os.urandom(32))
        self._closed = False
        self._tables: apsw.Connection | None = None
        self._shut = False
        self.chunks = MemoryChunks(self._lock, self._logs.__contains__)
        self.queues = MemoryQueues(self._lock, self._unended, self.append, self.holder)

    def append(self, groups: Sequence[Group]) -> list[Outcome]:
        with self._lock:
            if self._shut:
                raise self._refusal()
            failpoint("append.before")
            # Everything is decided before anything is changed, so a crash between the two leaves no half group.
            done = [self._append(group) for group in groups]
            failpoint("append.after")
            return done

    def append_at_once(self, group: Group) -> Outcome | None:
        return self.append((group,))[0]

    def append_event(self, log: str, expect: Head, draft: Draft) -> bytes | Conflict:
        with self._lock:
            if self._shut:
                raise self._refusal()
            found = self._logs.get(log)
            if found is None:
                return Conflict(log, expect.seq, None)
            last = found.rows[-1] if found.rows else found.start
            if last.digest != expect.digest or last.seq != expect.seq:
                return Conflict(log, expect.seq, last.seq)
            seq = expect.seq + 1
            digest = codec.chain(expect.digest, seq, draft.kind, draft.at_us, draft.body_hash)
            failpoint("append.before")
            failpoint("commit.before")
            found.rows.append(Stored(seq, draft.kind, draft.at_us, draft.body, draft.body_hash, digest))
            failpoint("commit.after")
            failpoint("append.after")
            return digest

    def transact(self, log: str, expect: Head, work: Work, seconds: float | None = None) -> Outcome:
        """User code gets tables of a SQLite database in memory, which commits just before the group is written."""
        with self._lock:
            if self._shut:
                raise self._refusal()
            found = self._logs.get(log)
            if found is None or found.head != expect:
                return Conflict(log, expect.seq, found.head.seq if found else None)
            failpoint("append.before")
            try:
                self._shut = True
                done = self._transact(work, seconds)
            finally:
                self._shut = False
                if self._tables is not None and self._tables.in_transaction:
                    self._tables.execute("rollback")
            failpoint("append.after")
            return done

    def _transact(self, work: Work, seconds: float | None) -> Outcome:
        import apsw

        from holdfast.store.sqlite.guard import run_guarded

        if self._tables is None:
            self._tables = apsw.Connection(":memory:")
        self._tables.execute("begin immediate")
        group = run_guarded(self._tables, work, seconds)
        places = decide(group, self._standing)
        if isinstance(places, tuple):
            failpoint("commit.before")
            self._tables.execute("commit")
            self._put(group, places)
            failpoint("commit.after")
        return places

    @contextmanager
    def _changing(self) -> Generator[None, None, None]:
        """For the rarer writes."""
        with self._lock:
            if self._shut:
                raise self._refusal()
            yield

    def _refusal(self) -> HoldfastError:
        return StoreClosed("this store was closed", hint="open it again") if self._closed else written_inside()

    def _append(self, group: Group) -> Outcome:
        places = decide(group, self._standing)
        if isinstance(places, tuple):
            failpoint("commit.before")
            self._put(group, places)
            failpoint("commit.after")
        return places

    def _put(self, group: Group, places: tuple[Placed, ...]) -> None:
        for key in group.freed_keys:
            self._effects.pop(key, None)
        for take in group.unique_keys:
            self._effects[take.key] = take
        for write, placed in zip(group.writes, places, strict=True):
            self._write(write, placed)
        for erasure in group.erasures:
            self._erase(erasure)
        for cut in group.cuts:
            self._cut(cut)

    def _write(self, write: Write, placed: Placed) -> None:
        if write.origin is not None:
            assert write.expect is not None
            self._numbered += 1
            self._logs[write.log] = _Log(self._numbered, write.origin, write.expect, [])
        log = self._logs[write.log]
        for offset, (draft, digest) in enumerate(zip(write.drafts, placed.digests, strict=True)):
            row = (placed.first + offset, draft.kind, draft.at_us, draft.body, draft.body_hash, digest)
            log.rows.append(Stored(*row))
        if write.summary is not None:
            self._changed += 1
            log.summary, log.change = write.summary, self._changed
            if write.summary.status == "pending":
                self.queues.tell()
        for blob in write.blobs:
            self._blobs.setdefault(blob.hash, blob.data)
            log.blobs.add(blob.hash)
        if write.snapshot is not None:
            insort(log.snapshots, write.snapshot, key=lambda snapshot: snapshot.seq)
            del log.snapshots[: -limits.SNAPSHOTS_KEPT]

    def head(self, log: str) -> Head | None:
        with self._lock:
            found = self._logs.get(log)
            return found.head if found else None

    def heads(self, logs: Sequence[str]) -> dict[str, int]:
        with self._lock:
            return {name: self._logs[name].head.seq for name in logs if name in self._logs}

    def origin(self, log: str) -> Origin | None:
        with self._lock:
            found = self._logs.get(log)
            return found.origin if found else None

    def read(
        self,
        log: str,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        last: int | None = None,
    ) -> list[Stored]:
        with self._lock:
            rows = self._logs[log].rows if log in self._logs else []
            first = bisect_right(rows, after, key=lambda row: row.seq)
            end = len(rows) if upto is None else bisect_right(rows, upto, key=lambda row: row.seq)
            if last is not None:
                return rows[max(first, end - last) : end]
            return rows[first : end if limit is None else min(end, first + limit)]

    def read_kind(
        self, log: str, kind: str, *, after: int = 0, upto: int | None = None, last: int | None = None
    ) -> list[Stored]:
        found = [row for row in self.read(log, after=after, upto=upto) if row.kind == kind]
        return found if last is None else found[max(0, len(found) - last) :]

    def opening(self, log: str, *, upto: int | None = None, version: int) -> Opening | None:
        with self._lock:
            found = self._logs.get(log)
            if found is None:
                return None
            return Opening(found.origin, len(found.erasures), self.snapshot(log, upto=upto, version=version))

    def since(
        self, log: str, seq: int, *, past: Sequence[str] = (), upto: int | None = None, limit: int | None = None
    ) -> Since:
        with self._lock:
            erased = sum(len(self._logs[name].erasures) for name in (log, *past) if name in self._logs)
            base = self._logs[log].origin.at if log in self._logs else 0
            return Since(erased, self.read(log, after=seq - 1, upto=upto, limit=limit), base)

    def blob(self, hash: str, *, within: str = "") -> bytes | None:
        with self._lock:
            is_used = not within or any(
                hash in one.blobs for name, one in self._logs.items() if name.startswith(within)
            )
            return self._blobs.get(hash) if is_used else None

    def blobs_of(self, log: str) -> list[Blob]:
        with self._lock:
            used = self._logs[log].blobs if log in self._logs else ()
            return [Blob(hash, self._blobs[hash]) for hash in sorted(used)]

    def snapshot(self, log: str, *, upto: int | None = None, version: int) -> Snapshot | None:
        with self._lock:
            kept = self._logs[log].snapshots if log in self._logs else []
            fitting = [one for one in kept if one.version == version and (upto is None or one.seq <= upto)]
            return fitting[-1] if fitting else None

    def drop_snapshots(self, *, log: str | None = None, before_us: int | None = None) -> int:
        with self._changing():
            dropped = 0
            for found in [one for name, one in self._logs.items() if log in (None, name)]:
                kept = [one for one in found.snapshots if before_us is not None and one.at_us >= before_us]
                dropped += len(found.snapshots) - len(kept)
                found.snapshots = kept
            return dropped

    def summary(self, log: str) -> Summary | None:
        with self._lock:
            found = self._logs.get(log)
            return found.summary if found else None

    def list(self, query: Query) -> list[Summary]:
        with self._lock:
            after = None if query.after is None else self._place(query.after)
            rows = [(log, log.summary) for log in self._logs.values() if log.summary is not None]
            if query.order == "changed":
                return self._by_change(query, rows)
            if query.order == "newest":
                rows.reverse()
            is_oldest = query.order == "oldest"
            left = (
                row for log, row in rows if after is None or ((log.number > after) == is_oldest and log.number != after)
            )
            return [*itertools.islice(query.matching(left), query.limit)]

    def _by_change(self, query: Query, rows: Sequence[tuple[_Log, Summary]]) -> list[Summary]:
        placed = sorted(((row.changed_us, log.number, row) for log, row in rows), key=lambda one: one[:2], reverse=True)
        if query.after is not None:
            changed_us = query.after_changed_us
            if changed_us is None:
                changed_us = next((one[0] for one in placed if one[2].id == query.after), None)
            if changed_us is None:
                raise gone_from_list(query.after)
            last = (changed_us, self._place(query.after))
            placed = [one for one in placed if one[:2] < last]
        return [*itertools.islice(query.matching(one[2] for one in placed), query.limit)]

    def counts(self, namespace: str | None = None) -> TaskCounts:
        with self._lock:
            rows = [log.summary for log in self._logs.values() if log.summary is not None]
            own = [row for row in rows if namespace in (None, row.namespace)]
            by_status = Counter(row.status for row in own)
            return TaskCounts(dict(sorted(by_status.items())), sum(bool(row.doubts) for row in own))

    def namespaces(self) -> list[str]:
        with self._lock:
            return sorted({log.summary.namespace for log in self._logs.values() if log.summary is not None})

    def acts(self, query: ActQuery) -> list[tuple[str, Stored]]:
        with self._lock:
            before, last = query.before, (TO_THE_END, 0, 0)
            if before is not None:
                last = (before.at_us, self._place(before.log), before.seq)
            placed = [
                ((row.at_us, log.number, row.seq), name, row)
                for name, log in self._logs.items()
                for row in log.rows
                if is_act(row) and query.since_us <= row.at_us <= query.until_us
            ]
            placed.sort(key=lambda one: one[0], reverse=True)
            return [(name, row) for place, name, row in placed if place < last][: query.limit]

    def changes(self, after: str | None, *, limit: int = 1000) -> list[RowChange]:
        with self._lock:
            last = change_place(after)
            changed = [(log.change, log.number, log) for log in self._logs.values() if log.summary is not None]
            changed.sort(key=lambda one: one[:2])
            rows = [one for one in changed if one[:2] > last][:limit]
            return [
                RowChange(log.summary, log.head.seq, f"{at}.{number}")
                for at, number, log in rows
                if log.summary is not None
            ]

    def last_change(self) -> str:
        return f"{self._changed}.{TO_THE_END}"

    def logs(self, *, prefix: str | None = None, after: str | None = None, limit: int = 1000) -> list[str]:
        with self._lock:
            if prefix is not None:
                return sorted(name for name in self._logs if name.startswith(prefix) and name > (after or ""))[:limit]
            start = 0 if after is None else self._place(after)
            return [name for name, log in self._logs.items() if log.number > start][:limit]

    def newest(self, *, prefix: str, after: str | None = None, limit: int = 1000) -> list[tuple[str, Stored]]:
        with self._lock:
            names = self.logs(prefix=prefix, after=after, limit=limit)
            return [(name, self._logs[name].rows[-1]) for name in names]

    def _place(self, name: str) -> int:
        """Return the place of a name in the order of logs, also of one that was removed."""
        if name in self._logs:
            return self._logs[name].number
        if name not in self._tombstones:
            raise TaskNotFound(name)
        return self._places.get(name, 0)

    def forks(self, log: str) -> list[str]:
        with self._lock:
            return [name for name, other in self._logs.items() if other.origin.parent == log]

    def finished(self, *, before_us: int | None, skip: int, limit: int) -> list[str]:
        with self._lock:
            rows = [log.summary for log in self._logs.values() if log.summary and log.summary.status in ENDED]
            rows.sort(key=lambda row: (row.changed_us, self._logs[row.id].number), reverse=True)
            old = [row.id for row in rows[skip:] if before_us is None or row.changed_us < before_us]
            return old[:limit]

    def owner_of_key(self, key: str) -> UniqueKey | None:
        return self._effects.get(key)

    def unique_keys(self, *, after: str = "", limit: int = 1000) -> list[UniqueKey]:
        with self._lock:
            return [self._effects[key] for key in sorted(self._effects) if key > after][:limit]

    def tombstone(self, log: str) -> Tombstone | None:
        return self._tombstones.get(log)

    def tombstones(self, *, after: str = "", limit: int = 1000) -> list[Tombstone]:
        with self._lock:
            return [self._tombstones[name] for name in sorted(self._tombstones) if name > after][:limit]

    def erasures(self, log: str) -> list[Erasure]:
        with self._lock:
            return list(self._logs[log].erasures) if log in self._logs else []

    def erase(self, erasures: Sequence[Erasure]) -> None:
        with self._changing():
            for one in erasures:
                self._erase(one)

    def _erase(self, one: Erasure) -> None:
        log = self._logs[one.log]
        log.erasures.append(replace(one, blobs=()))
        log.rows = [replace(row, body=None) if row.seq == one.seq else row for row in log.rows]
        log.snapshots = []
        self.chunks.drop_log(one.log)
        self._release(log, one.blobs)

    def _cut(self, cut: LogCut) -> None:
        stone, log = cut.stone, self._logs[cut.stone.log]
        if stone.seq <= log.origin.at:
            return
        assert stone.seq < log.head.seq, "a whole log is removed, not cut"
        log.rows = [row for row in log.rows if row.seq > stone.seq]
        log.erasures = [one for one in log.erasures if one.seq > stone.seq]
        log.origin, log.start = Origin(None, stone.seq), Head(stone.seq, stone.digest)
        self._tombstones[stone.log] = stone
        self._release(log, cut.blobs)

    def _release(self, log: _Log, hashes: Sequence[str]) -> None:
        """Drop large values that a log no longer refers to, unless another does."""
        for hash in hashes:
            log.blobs.discard(hash)
            if not any(hash in other.blobs for other in self._logs.values()):
                self._blobs.pop(hash, None)

    def remove(self, tombstones: Sequence[Tombstone]) -> list[str]:
        with self._changing():
            return [stone.log for stone in tombstones if self._remove(stone)]

    def _remove(self, stone: Tombstone) -> bool:
        if self.head(stone.log) != Head(stone.seq, stone.digest) or self.forks(stone.log):
            return False
        gone = self._logs.pop(stone.log)
        self.chunks.drop_log(stone.log)
        self._places[stone.log] = gone.number
        self._tombstones[stone.log] = stone
        used = {hash for log in self._logs.values() for hash in log.blobs & gone.blobs}
        for hash in gone.blobs - used:
            del self._blobs[hash]
        return True

    def restore_marks(self, tombstones: Sequence[Tombstone], keys: Sequence[UniqueKey]) -> None:
        with self._changing():
            for stone in tombstones:
                there = self._tombstones.get(stone.log)
                if there is None or there.seq < stone.seq:
                    self._tombstones[stone.log] = stone
            self._effects.update({take.key: take for take in keys if take.key not in self._effects})

    def rows(self, log: str) -> list[Stored]:
        return self.read(log)

    def anchor(self, log: str) -> Head | None:
        return self.head(log)

    def check(self) -> list[str]:
        return []

    def stats(self) -> Stats:
        with self._lock:
            by_status = self.counts().by_status
            sizes = {
                "events": sum(len(row.body or b"") for log in self._logs.values() for row in log.rows),
                "blobs": sum(map(len, self._blobs.values())),
                "snapshots": sum(len(one.body) for log in self._logs.values() for one in log.snapshots),
            }
            return Stats(
                tasks=sum(by_status.values()),
                by_status=by_status,
                events=sum(len(log.rows) for log in self._logs.values()),
                blobs=len(self._blobs),
                snapshots=sum(len(log.snapshots) for log in self._logs.values()),
                bytes=sum(sizes.values()),
                bytes_by_table=sizes,
            )

    def backup(self, path: str) -> None:
        raise StoreError(
            "a store in memory has no file to copy", hint="app.copy_to('sqlite:///copy.db') writes it to one"
        )

    def _unended(self) -> Generator[Due, None, None]:
        for log in self._logs.values():
            if log.summary is not None and log.summary.status not in ENDED:
                yield Due(log.summary, log.head)

    def identity(self) -> Identity:
        return self._identity

    def holder(self) -> str:
        return self._holder

    def alive(self, holder: str, lease: float | None = None) -> bool:
        return holder == self._holder and not self._closed

    def loss(self, holder: str, lease: float | None = None) -> Loss | None:
        return None if self.alive(holder, lease) else "proven"

    def depart(self) -> None:
        """No other process could see that it is alive."""

    def close(self, *, present: bool = False) -> None:
        with self._lock:
            if self._shut and not self._closed:
                raise written_inside()
            self._closed = self._shut = True
            if self._tables is not None:
                self._tables.close()
                self._tables = None

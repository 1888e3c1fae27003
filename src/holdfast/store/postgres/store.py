"""A store in a PostgreSQL database: any number of processes on any number of machines.

Writing is `writer`'s; reading may be repeated on another connection when one is lost.
With `durability="full"` an acknowledged event survives a crash of the server; with `"process"` it survives our own.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg.types.numeric import Int8

from holdfast.core import limits
from holdfast.core.codec import Blob, Draft, Group, Head, Origin, Snapshot, Stored, Summary, UniqueKey
from holdfast.core.errors import Conflict, StoreError, TaskNotFound
from holdfast.store.columns import to_summary
from holdfast.store.postgres.chunks import PostgresChunks
from holdfast.store.postgres.liveness import Liveness
from holdfast.store.postgres.queues import PostgresQueues
from holdfast.store.postgres.server import queries as q
from holdfast.store.postgres.server.connecting import Durability, Link, parse, prepare
from holdfast.store.postgres.server.connections import Connections
from holdfast.store.postgres.server.statements import Bytes, Texts
from holdfast.store.postgres.writer import Writer
from holdfast.store.protocol import (
    TO_THE_END,
    ActQuery,
    Erasure,
    Identity,
    Opening,
    Outcome,
    Query,
    RowChange,
    Since,
    Stats,
    TaskCounts,
    Tombstone,
    Work,
    change_place,
    gone_from_list,
    miscounted,
    name_range,
)
from holdfast.store.queues import Loss


class PostgresStore:
    """Logs in one schema of a database."""

    def __init__(
        self,
        url: str,
        *,
        durability: Durability | None = None,
        at_us: int = 0,
        snapshots_kept: int = limits.SNAPSHOTS_KEPT,
    ) -> None:
        address = parse(url)
        self.url = address.shown
        self.durability: Durability = durability or address.durability or "full"
        prepare(address, q.QueryTexts(address.schema), at_us)
        self._links = Connections(address, self.durability)
        self._writer = Writer(self._links, snapshots_kept)
        self.lease_seconds = address.lease_seconds
        self.always_waits = True
        self._liveness = Liveness(self._links)
        self.queues = PostgresQueues(self._links, self._liveness, snapshots_kept)
        self.chunks = PostgresChunks(self._links)

    # Writing

    def append(self, groups: Sequence[Group]) -> list[Outcome]:
        return self._writer.append(groups)

    def append_at_once(self, group: Group) -> Outcome | None:
        return None

    def append_event(self, log: str, expect: Head, draft: Draft) -> bytes | Conflict:
        return self._writer.append_event(log, expect, draft)

    def transact(self, log: str, expect: Head, work: Work, seconds: float | None = None) -> Outcome:
        return self._writer.transact(log, expect, work, seconds)

    # Reading

    def head(self, log: str) -> Head | None:
        row = self._links.row(q.HEAD, {"name": log})
        return Head(*row) if row else None

    def heads(self, logs: Sequence[str]) -> dict[str, int]:
        return dict(self._links.rows(q.HEADS, {"names": Texts(logs)}))

    def origin(self, log: str) -> Origin | None:
        row = self._links.row(q.ORIGIN, {"name": log})
        return Origin(*row) if row else None

    def read(
        self,
        log: str,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        last: int | None = None,
    ) -> list[Stored]:
        bounds = {"name": log, "after": Int8(after), "upto": _bound(upto)}
        if last is not None:
            return [Stored(*row) for row in reversed(self._links.rows(q.READ_LAST, {**bounds, "limit": Int8(last)}))]
        return [Stored(*row) for row in self._links.rows(q.READ, {**bounds, "limit": _bound(limit)})]

    def read_kind(
        self, log: str, kind: str, *, after: int = 0, upto: int | None = None, last: int | None = None
    ) -> list[Stored]:
        bounds = {"name": log, "kind": kind, "after": Int8(after), "upto": _bound(upto), "limit": _bound(last)}
        return [Stored(*row) for row in reversed(self._links.rows(q.READ_KIND, bounds))]

    def opening(self, log: str, *, upto: int | None = None, version: int) -> Opening | None:
        row = self._links.row(q.OPENING, {"name": log, "upto": _bound(upto), "version": Int8(version)})
        if row is None:
            return None
        return Opening(Origin(*row[:2]), row[2], None if row[3] is None else Snapshot(*row[3:]))

    def since(
        self, log: str, seq: int, *, past: Sequence[str] = (), upto: int | None = None, limit: int | None = None
    ) -> Since:
        bounds = {"name": log, "names": Texts([log, *past]), "seq": Int8(seq)}
        rows = self._links.rows(q.SINCE, {**bounds, "upto": _bound(upto), "limit": _bound(limit)})
        return Since(rows[0][0], [Stored(*row[2:]) for row in rows if row[2] is not None], rows[0][1])

    def blob(self, hash: str, *, within: str = "") -> bytes | None:
        row = self._links.row(q.BLOB_WITHIN if within else q.BLOB, {"hash": bytes.fromhex(hash), "within": within})
        return row[0] if row else None

    def blobs_of(self, log: str) -> list[Blob]:
        return [Blob(hash.hex(), data) for hash, data in self._links.rows(q.BLOBS_OF, {"name": log})]

    def snapshot(self, log: str, *, upto: int | None = None, version: int) -> Snapshot | None:
        row = self._links.row(q.SNAPSHOT, {"name": log, "upto": _bound(upto), "version": Int8(version)})
        return Snapshot(*row) if row else None

    def drop_snapshots(self, *, log: str | None = None, before_us: int | None = None) -> int:
        with self._links.changing() as link:
            bounds = {"name": log, "before": before_us}
            return self._links.run(link, q.DROP_SNAPSHOTS, bounds, prepare=False).rowcount

    def summary(self, log: str) -> Summary | None:
        row = self._links.row(q.TASK, {"name": log})
        return to_summary(row) if row else None

    def list(self, query: Query) -> list[Summary]:
        first, end = name_range(query.prefix or "", None)
        bounds: dict[str, object] = {"first": first, "end": end, "changed": Int8(TO_THE_END), "limit": query.limit}
        bounds["place"] = Int8(0 if query.order == "oldest" else TO_THE_END)
        if query.after is not None:
            place = bounds["place"] = Int8(self._place(query.after))
            if query.order == "changed":
                bounds["changed"] = self._changed(query, place)
        asked = {**query.filters(), **bounds}
        return [to_summary(row) for row in self._links.rows(q.LISTS[query.lead, query.order], asked, prepare=False)]

    def _changed(self, query: Query, place: Int8) -> Int8:
        seen = query.after_changed_us
        row = self._links.row(q.CHANGED, {"log": place}) if seen is None else (seen,)
        if row is None:
            raise gone_from_list(query.after)
        return Int8(row[0])

    def counts(self, namespace: str | None = None) -> TaskCounts:
        of = {"namespace": namespace}
        by_status: dict[str, int] = dict(self._links.rows(q.COUNTED, of, prepare=False))
        return TaskCounts(by_status, self._links.rows(q.IN_DOUBT, of, prepare=False)[0][0])

    def namespaces(self) -> list[str]:
        return [name for (name,) in self._links.rows(q.NAMESPACES, {}, prepare=False)]

    def acts(self, query: ActQuery) -> list[tuple[str, Stored]]:
        place: dict[str, object] = {"at": _bound(None), "log": _bound(None), "seq": _bound(None)}
        if (last := query.before) is not None:
            place = {"at": Int8(last.at_us), "log": Int8(self._place(last.log)), "seq": Int8(last.seq)}
        bounds = {"since": Int8(query.since_us), "until": Int8(query.until_us), "limit": Int8(query.limit)}
        found = self._links.rows(q.ACTS, {**place, **bounds}, prepare=False)
        return [(name, Stored(*row)) for name, *row in found]

    def changes(self, after: str | None, *, limit: int = 1000) -> list[RowChange]:
        change, log = change_place(after)
        found = self._links.rows(q.CHANGES, {"change": Int8(change), "log": Int8(log), "limit": Int8(limit)})
        return [RowChange(to_summary(tuple(row)), seq, f"{at}.{number}") for *row, seq, at, number in found]

    def last_change(self) -> str:
        return f"{self._links.row(q.LAST_CHANGE)[0]}.{TO_THE_END}"

    def logs(self, *, prefix: str | None = None, after: str | None = None, limit: int = 1000) -> list[str]:
        if prefix is not None:
            return [row[0] for row in self._links.rows(q.LOGS_BY_NAME, _between(prefix, after, limit))]
        begin = 0 if after is None else self._place(after)
        return [row[0] for row in self._links.rows(q.LOGS, {"after": Int8(begin), "limit": Int8(limit)})]

    def newest(self, *, prefix: str, after: str | None = None, limit: int = 1000) -> list[tuple[str, Stored]]:
        found = self._links.rows(q.NEWEST_BY_NAME, _between(prefix, after, limit))
        return [(name, Stored(*row)) for name, *row in found]

    def _place(self, name: str) -> int:
        """Return the place of a name in the order of logs, also of one that was removed."""
        found = self._links.row(q.PLACE_OF, {"name": name})
        if found is None:
            raise TaskNotFound(name)
        return found[0]

    def forks(self, log: str) -> list[str]:
        return [row[0] for row in self._links.rows(q.FORKS, {"name": log})]

    def finished(self, *, before_us: int | None, skip: int, limit: int) -> list[str]:
        bounds = {"before": _bound(before_us), "skip": Int8(skip), "limit": Int8(limit)}
        return [row[0] for row in self._links.rows(q.FINISHED, bounds)]

    def owner_of_key(self, key: str) -> UniqueKey | None:
        row = self._links.row(q.TAKEN, {"key": key})
        return UniqueKey(*row) if row else None

    def unique_keys(self, *, after: str = "", limit: int = 1000) -> list[UniqueKey]:
        return [UniqueKey(*row) for row in self._links.rows(q.TAKES, {"after": after, "limit": Int8(limit)})]

    def tombstone(self, log: str) -> Tombstone | None:
        row = self._links.row(q.TOMBSTONE, {"name": log})
        return Tombstone(*row) if row else None

    def tombstones(self, *, after: str = "", limit: int = 1000) -> list[Tombstone]:
        return [Tombstone(*row) for row in self._links.rows(q.TOMBSTONES, {"after": after, "limit": Int8(limit)})]

    # Erasing and removing

    def erasures(self, log: str) -> list[Erasure]:
        return [Erasure(*row) for row in self._links.rows(q.ERASURES, {"name": log})]

    def erase(self, erasures: Sequence[Erasure]) -> None:
        with self._links.changing() as link:
            for one in erasures:
                self._erase(link, one)

    def _erase(self, link: Link, one: Erasure) -> None:
        """Say who erases a body and why, then erase it and what only it referred to."""
        run = self._links.run
        row = run(link, q.LOCK, {"names": Texts([one.log])}).fetchone()
        if row is None:
            raise TaskNotFound(one.log)
        place = {"log": Int8(row[1]), "seq": Int8(one.seq)}
        run(link, q.INSERT_ERASURE, {**place, "by": one.by, "why": one.why, "at": Int8(one.at_us)})
        run(link, q.ERASE_BODY, place)
        run(link, q.REMOVE_SNAPSHOTS, place)
        run(link, q.REMOVE_CHUNKS, place)
        for hash in map(bytes.fromhex, sorted(one.blobs)):
            run(link, q.DROP_BLOB_USE, {**place, "hash": hash})
            run(link, q.LOCK_BLOB, {"hash": hash})
            run(link, q.DROP_UNUSED_BLOB, {"hash": hash})

    def remove(self, tombstones: Sequence[Tombstone]) -> list[str]:
        with self._links.changing() as link:
            return [stone.log for stone in tombstones if self._remove(link, stone)]

    def _remove(self, link: Link, stone: Tombstone) -> bool:
        run = self._links.run
        head = run(link, q.LOCK, {"names": Texts([stone.log])}).fetchone()
        if head is None or tuple(head[2:4]) != (stone.seq, stone.digest):
            return False
        if run(link, q.FORKS, {"name": stone.log}).fetchone() is not None:
            return False
        log = {"log": Int8(head[1])}
        run(link, q.INSERT_TOMBSTONE, _stone_row(stone, head[1]))
        run(link, q.LOCK_BLOBS_OF, log)
        unused = [hash for hash, is_used in run(link, q.UNUSED_BLOBS, log).fetchall() if not is_used]
        run(link, q.REMOVE_BLOBS, {"hashes": Bytes(unused)})
        for statement in q.REMOVE:
            run(link, statement, log)
        return True

    def restore_marks(self, tombstones: Sequence[Tombstone], keys: Sequence[UniqueKey]) -> None:
        with self._links.changing() as link:
            for stone in tombstones:
                self._links.run(link, q.INSERT_TOMBSTONE, _stone_row(stone, 0))
            for take in keys:
                row = {"key": take.key, "log": take.log, "step": take.step, "input_hash": take.input_hash}
                self._links.run(link, q.TAKE_IF_FREE, row)

    # Looking after it

    def rows(self, log: str) -> list[Stored]:
        """As `read`: whether an index fits its table is the server's to check."""
        return self.read(log)

    def anchor(self, log: str) -> Head | None:
        return self.head(log)

    def check(self) -> list[str]:
        found = self._links.rows(q.CHECK, {"schema": self._links.address.schema}, prepare=False)
        wrong = self._links.rows(q.MISCOUNTED, prepare=False)
        return [*(row[0] for row in found), *map(miscounted, wrong)]

    def stats(self) -> Stats:
        by_status = self.counts().by_status
        events, blobs, snapshots = self._links.rows(q.COUNTS, prepare=False)[0]
        schema = {"schema": self._links.address.schema}
        sizes: dict[str, int] = dict(self._links.rows(q.BYTES_BY_TABLE, schema, prepare=False))
        return Stats(
            tasks=sum(by_status.values()),
            by_status=by_status,
            events=events,
            blobs=blobs,
            snapshots=snapshots,
            bytes=sum(sizes.values()),
            bytes_by_table=sizes,
        )

    def backup(self, path: str) -> None:
        raise StoreError(
            "a PostgreSQL store is not copied to a file by Holdfast",
            hint=f"use pg_dump --schema={self._links.address.schema}, or app.copy_to('sqlite:///copy.db')",
        )

    def identity(self) -> Identity:
        return Identity(*self._links.row(q.IDENTITY))

    def holder(self) -> str:
        return self._links.presence().name

    def alive(self, holder: str, lease: float | None = None) -> bool:
        return self._liveness.alive(holder, lease)

    def loss(self, holder: str, lease: float | None = None) -> Loss | None:
        return self._liveness.loss(holder, lease)

    def close(self, *, present: bool = False) -> None:
        self._links.close()
        if not present:
            self.depart()

    def depart(self) -> None:
        self._links.depart()


def _bound(value: int | None) -> Int8:
    return Int8(TO_THE_END if value is None else value)


def _between(prefix: str, after: str | None, limit: int) -> dict[str, object]:
    first, end = name_range(prefix, after)
    return {"first": first, "end": end, "limit": Int8(limit)}


def _stone_row(stone: Tombstone, number: int) -> dict[str, object]:
    place = {"name": stone.log, "log": Int8(number), "seq": Int8(stone.seq), "digest": stone.digest}
    return {**place, "at": Int8(stone.at_us), "why": stone.why}

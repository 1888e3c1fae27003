"""Between SQLite's rows and our records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import apsw

from holdfast.core import codec
from holdfast.core.codec import Group, Head, LogCut, Origin, Snapshot, Stored, Summary, UniqueKey, Write
from holdfast.core.errors import LogCorrupt
from holdfast.store.columns import to_row, to_summary
from holdfast.store.protocol import (
    TO_THE_END,
    ActQuery,
    Erasure,
    Opening,
    Placed,
    Query,
    RowChange,
    Since,
    Stats,
    TaskCounts,
    change_place,
    gone_from_list,
    miscounted,
    name_range,
    place,
)
from holdfast.store.sqlite import queries as q
from holdfast.store.sqlite.file import fetch_all, fetch_one


def last(bound: int | None) -> int:
    """An upper bound as SQLite takes it: none is the highest there is."""
    return TO_THE_END if bound is None else bound


def is_plain(group: Group) -> bool:
    """Return whether a group is events of one log after a known head, with nothing beside them."""
    if len(group.writes) != 1 or group.unique_keys or group.freed_keys or group.removes:
        return False
    write = group.writes[0]
    beside = write.summary or write.snapshot or write.origin or write.blobs
    return not beside and write.expect is not None and bool(write.drafts)


class WriterStanding:
    """What the open transaction knows of logs and keys: `decide` asks it."""

    def __init__(self, writer: apsw.Connection, number: Callable[[apsw.Connection, str], int | None]) -> None:
        self._writer = writer
        self._number = number

    def head(self, log: str) -> Head | None:
        number = self._number(self._writer, log)
        row = None if number is None else fetch_one(self._writer, q.HEAD, (number,))
        return None if row is None else Head(*row)

    def base(self, log: str) -> int | None:
        row = fetch_one(self._writer, q.BASE, (self._number(self._writer, log),))
        return None if row is None else row[0]

    def name(self, log: str) -> tuple[bool, Head | None]:
        is_there, left = False, None
        for number, seq, digest in fetch_all(self._writer, q.NAME, (log,)):
            if number is None:
                left = Head(seq, digest)
            else:
                is_there = True
        return is_there, left

    def owner(self, key: str) -> UniqueKey | None:
        row = fetch_one(self._writer, q.TAKEN, (key,))
        return None if row is None else UniqueKey(*row)


class RowBatch:
    """Events of many logs, gathered for one statement."""

    def __init__(self) -> None:
        self._places: list[tuple[int | None, int, str, int, int, int, bool]] = []
        self._hashes: list[bytes] = []
        self._bodies: list[bytes] = []
        self._end = 1

    def add(self, number: int | None, write: Write) -> Placed:
        """The events of a write, and where they will be."""
        assert write.expect is not None
        placed = place(write.expect, write.drafts)
        before, seq = write.expect.digest, placed.first
        for draft, digest in zip(write.drafts, placed.digests, strict=True):
            body = draft.body or b""
            size = len(body)
            follows = seq > placed.first
            self._places.append((number, seq, draft.kind, draft.at_us, self._end, size, follows))
            self._bodies.append(body)
            self._hashes += (draft.body_hash, digest, before)
            self._end += size
            before = digest
            seq += 1
        return placed

    def bindings(self) -> dict[str, Any]:
        """Return the parameters of the statement."""
        places = codec.dump(self._places).decode()
        return {"places": places, "hashes": b"".join(self._hashes), "bodies": b"".join(self._bodies)}


def read_rows(
    reader: apsw.Connection, number: int | None, log: str, bounds: tuple[int, int | None, int | None]
) -> list[Stored]:
    """The events of a log after a seq, up to another, at most so many."""
    after, upto, limit = bounds
    given = {"log": number, "after": after, "upto": last(upto)}
    try:
        found = fetch_all(reader, q.READ, {**given, "limit": -1 if limit is None else limit})
        return [Stored(*row) for row in found]
    except (apsw.CorruptError, UnicodeDecodeError) as error:
        raise LogCorrupt(log, after, f"a row after it cannot be read ({error}); verify names it") from error


def read_last(
    reader: apsw.Connection, number: int | None, log: str, bounds: tuple[int, int | None, int]
) -> list[Stored]:
    """The newest events of a log after a seq, up to another, at most so many, in their order."""
    after, upto, most = bounds
    try:
        found = fetch_all(reader, q.READ_LAST, {"log": number, "after": after, "upto": last(upto), "limit": most})
        return [Stored(*row) for row in reversed(found)]
    except (apsw.CorruptError, UnicodeDecodeError) as error:
        raise LogCorrupt(log, after, f"a row after it cannot be read ({error}); verify names it") from error


def read_since(
    reader: apsw.Connection, number: int | None, names: Sequence[str], bounds: tuple[int, int | None, int | None]
) -> Since:
    """The events of the first of these logs, and how many bodies of all of them were erased: that is counted first."""
    log, *past = names
    erased, base = fetch_one(reader, q.ERASED_AND_BASE, (log,)) or (0, 0)
    erased += sum(fetch_one(reader, q.ERASED, (name,))[0] for name in past)
    return Since(erased, read_rows(reader, number, log, bounds), base)


def read_opening(reader: apsw.Connection, log: str, upto: int | None, version: int) -> Opening | None:
    """Read the start of a log. The erasures are counted before anything else is read."""
    origin = fetch_one(reader, q.ORIGIN, (log,))
    if origin is None:
        return None
    erased = fetch_one(reader, q.ERASED, (log,))[0]
    bounds = {"name": log, "upto": last(upto), "version": version}
    row = fetch_one(reader, q.SNAPSHOT, bounds)
    return Opening(Origin(*origin), erased, Snapshot(*row) if row else None)


def list_tasks(reader: apsw.Connection, query: Query, after: int | None) -> list[Summary]:
    """The tasks that are asked for, by the narrowest index that the filters allow. `after` is the last one's number."""
    first, end = name_range(query.prefix or "", None)
    bounds: dict[str, Any] = {"first": first, "end": end, "limit": query.limit, "changed": TO_THE_END}
    bounds["place"] = (0 if query.order == "oldest" else TO_THE_END) if after is None else after
    if query.order == "changed" and after is not None:
        row = (
            (query.after_changed_us,) if query.after_changed_us is not None else fetch_one(reader, q.CHANGED, (after,))
        )
        if row is None:
            raise gone_from_list(query.after)
        bounds["changed"] = row[0]
    found = fetch_all(reader, q.LISTS[query.lead, query.order], {**query.filters(), **bounds})
    return [to_summary(row) for row in found]


def read_namespaces(reader: apsw.Connection) -> list[str]:
    """The tenants that have tasks."""
    return [name for (name,) in fetch_all(reader, q.NAMESPACES)]


def to_counts(reader: apsw.Connection, namespace: str | None) -> TaskCounts:
    """Return the kept counts of tasks."""
    of = {"namespace": namespace}
    return TaskCounts(dict(fetch_all(reader, q.COUNTED, of)), fetch_one(reader, q.IN_DOUBT, of)[0])


def read_acts(reader: apsw.Connection, query: ActQuery, log: int | None) -> list[tuple[str, Stored]]:
    """Return the events for the audit, newest first. `log` is the number of the one they come before."""
    at, seq = (TO_THE_END, 0) if query.before is None else (query.before.at_us, query.before.seq)
    bounds = {"since": query.since_us, "until": query.until_us, "limit": query.limit}
    found = fetch_all(reader, q.ACTS, {**bounds, "at": at, "log": log or 0, "seq": seq})
    return [(name, Stored(*row)) for name, *row in found]


def read_changes(reader: apsw.Connection, after: str | None, limit: int) -> list[RowChange]:
    """Rows that changed after a place in the feed."""
    change, log = change_place(after)
    found = fetch_all(reader, q.CHANGES, {"change": change, "log": log, "limit": limit})
    return [RowChange(to_summary(tuple(row)), seq, f"{at}.{number}") for *row, seq, at, number in found]


def insert(writer: apsw.Connection, number: int | None, write: Write, placed: Placed, *, snapshots_kept: int) -> None:
    """Write the rows of a log that is there: its events and what belongs to them."""
    seq = placed.first
    for draft, digest in zip(write.drafts, placed.digests, strict=True):
        row = (number, seq, draft.kind, draft.at_us, draft.body, draft.body_hash, digest)
        writer.execute(q.INSERT_EVENT, row)
        seq += 1
    if write.summary is not None:
        writer.execute(q.PUT_TASK, (number, seq - 1, placed.digests[-1], *to_row(write.summary)))
    for blob in write.blobs:
        hashed = bytes.fromhex(blob.hash)
        writer.execute(q.PUT_BLOB, (hashed, blob.data))
        writer.execute(q.USE_BLOB, (hashed, number))
    if write.snapshot is not None:
        one = write.snapshot
        writer.execute(q.PUT_SNAPSHOT, (number, one.seq, one.digest, one.version, one.at_us, one.body))
        writer.execute(q.ROTATE_SNAPSHOTS, {"log": number, "keep": snapshots_kept})


def erase_bodies(writer: apsw.Connection, number: Callable[[str], int | None], erasures: Sequence[Erasure]) -> None:
    """Erase the bodies of some events."""
    for one in erasures:
        erase_body(writer, number(one.log), one)


def erase_body(writer: apsw.Connection, number: int | None, one: Erasure) -> None:
    """Say who erases a body and why, then erase it and what only it referred to."""
    place = {"log": number, "seq": one.seq}
    writer.execute(q.INSERT_ERASURE, {**place, "by": one.by, "why": one.why, "at": one.at_us})
    writer.execute(q.ERASE_BODY, place)
    writer.execute(q.REMOVE_SNAPSHOTS, {"log": number})
    writer.execute(q.REMOVE_CHUNKS, {"log": number})
    _release(writer, number, one.blobs)


def cut_beginning(writer: apsw.Connection, number: int | None, cut: LogCut) -> None:
    """Say how far the beginning of a log goes, then remove it and what only it referred to."""
    stone = cut.stone
    writer.execute(q.INSERT_TOMBSTONE, (stone.log, number, stone.seq, stone.digest, stone.at_us, stone.why))
    for statement in q.CUT:
        writer.execute(statement, {"log": number, "seq": stone.seq})
    _release(writer, number, cut.blobs)


def _release(writer: apsw.Connection, number: int | None, hashes: Sequence[str]) -> None:
    """Drop large values that a log no longer refers to, unless another does."""
    for hash in hashes:
        writer.execute(q.DROP_BLOB_USE, {"log": number, "hash": bytes.fromhex(hash)})
        writer.execute(q.DROP_UNUSED_BLOB, {"hash": bytes.fromhex(hash)})


def remove_parts(writer: apsw.Connection, number: Callable[[str], int | None], group: Group) -> None:
    """Erase and cut what a group says."""
    erase_bodies(writer, number, group.erasures)
    for cut in group.cuts:
        cut_beginning(writer, number(cut.stone.log), cut)


def to_stats(reader: apsw.Connection) -> Stats:
    """Count what is there."""
    by_status = to_counts(reader, None).by_status
    counts = {table: fetch_one(reader, query)[0] for table, query in q.COUNTS.items()}
    sizes: dict[str, int] = dict(fetch_all(reader, q.BYTES_BY_TABLE))
    return Stats(
        tasks=sum(by_status.values()),
        by_status=by_status,
        events=counts["events"],
        blobs=counts["blobs"],
        snapshots=counts["snapshots"],
        bytes=sum(sizes.values()),
        bytes_by_table=sizes,
    )


def rows_themselves(reader: apsw.Connection, number: int | None, log: str) -> list[Stored]:
    """A log's own events as they lie in the table."""
    places = fetch_all(reader, q.ROWIDS, (number,))
    return [row_itself(reader, rowid, log, number, seq) for rowid, seq in places]


def row_itself(reader: apsw.Connection, rowid: int, log: str, number: int | None, seq: int) -> Stored:
    """One event as it lies in the table, so that damage there is not hidden by the index."""
    try:
        row = fetch_one(reader, q.ROW, (rowid,))
    except (apsw.Error, UnicodeDecodeError) as error:
        raise LogCorrupt(log, seq, f"its row cannot be read: {error}") from error
    if row is None or row[:2] != (number, seq):
        raise LogCorrupt(log, seq, "its row is not where the index says")
    _, _, kind, at, body, hashed, digest, kind_is = row
    well_formed = (
        kind_is == "text"
        and isinstance(kind, bytes)
        and isinstance(at, int)
        and isinstance(body, bytes | None)
        and isinstance(hashed, bytes)
        and isinstance(digest, bytes)
    )
    if not well_formed:
        raise LogCorrupt(log, seq, "its row has columns of the wrong type")
    return Stored(seq, kind.decode("utf-8", "replace"), at, body, hashed, digest)


def logs_by_name(reader: apsw.Connection, prefix: str, after: str | None, limit: int) -> list[str]:
    """The names of logs that begin with a prefix, in their order."""
    return [row[0] for row in fetch_all(reader, q.LOGS_BY_NAME, _between(prefix, after, limit))]


def newest_by_name(reader: apsw.Connection, prefix: str, after: str | None, limit: int) -> list[tuple[str, Stored]]:
    """The last event of each of them, with its name."""
    found = fetch_all(reader, q.NEWEST_BY_NAME, _between(prefix, after, limit))
    return [(name, Stored(*row)) for name, *row in found]


def _between(prefix: str, after: str | None, limit: int) -> dict[str, Any]:
    first, end = name_range(prefix, after)
    return {"first": first, "end": end, "limit": limit}


def integrity(rows: Callable[[str], list[Any]]) -> list[str]:
    """Return the findings of SQLite's own check; none if all is well."""
    try:
        found = [row[0] for row in rows(q.INTEGRITY_CHECK)]
    except LogCorrupt as error:
        return [error.message]
    return [*([] if found == ["ok"] else found), *map(miscounted, rows(q.MISCOUNTED))]

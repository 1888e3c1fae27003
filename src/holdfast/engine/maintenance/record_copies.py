"""Bringing a log of records into a store: from an export, or from another store that is copied.

A copy follows its source: what was trimmed or dropped there goes here too. An import takes nothing away.
"""

from __future__ import annotations

from holdfast.core.codec import Draft, Erasure, Group, Head, LogCut, Origin, Stored, Tombstone, Write
from holdfast.core.errors import InvalidValue, TaskExists
from holdfast.core.names import record_key
from holdfast.engine.logs import record_logs
from holdfast.engine.logs.record_logs import RecordLog
from holdfast.store.protocol import Store


def bring(store: Store, one: RecordLog, *, follows: bool) -> int:
    """Append what a store lacks of a log of records; gives how many rows that were. `follows`: as a copy does."""
    head, origin = store.head(one.name), store.origin(one.name)
    if head is None or origin is None:
        return _begin(store, one, follows=follows)
    if head.seq < one.start.seq and follows:  # what lies between is gone at the source: this begins anew
        drop(store, Tombstone(one.name, head.seq, head.digest, one.rows[0].at_us, "trimmed"))
        return _begin(store, one, follows=follows)
    check_history(store, one)
    rows = [row for row in one.rows if row.seq > head.seq]
    cuts = _cuts(store, one, origin) if follows else ()
    erasures = _erasures(store, one, origin)
    if rows or cuts or erasures:
        write = Write(one.name, _drafts(rows), head, blobs=tuple(one.blobs) if rows else (), base=origin.at)
        _append(store, Group((write,), erasures=erasures, cuts=cuts))
    return len(rows)


def check_history(store: Store, one: RecordLog) -> None:
    """Refuse a log of records that went another way than the one that is there."""
    head, origin = store.head(one.name), store.origin(one.name)
    if head is None or origin is None:
        _check_free(store, one)
        return
    last = one.rows[-1]
    known = {one.start.seq: one.start.digest, **{row.seq: row.digest for row in one.rows}}
    if head.seq in known:
        same = known[head.seq] == head.digest
    elif head.seq > last.seq:
        ours = store.read(one.name, after=last.seq - 1, upto=last.seq)
        same = ours[0].digest == last.digest if ours else last.seq <= origin.at  # else it was trimmed here since
    else:
        same = False
    if not same:
        raise TaskExists(one.name, other_history=True)


def drop(store: Store, stone: Tombstone) -> None:
    """Drop the copy of a log of records that was dropped at its source, unless the copy has grown since."""
    head = store.head(stone.log)
    if head is not None and head.seq > stone.seq:
        return
    if head is not None:
        store.remove([Tombstone(stone.log, head.seq, head.digest, stone.at_us, stone.why)])
    store.restore_marks([stone], ())


def _begin(store: Store, one: RecordLog, *, follows: bool) -> int:
    """Begin a log that is not there, where its chain begins."""
    start, rows = one.start, one.rows
    stone = store.tombstone(one.name)
    if stone is not None and stone.seq > start.seq and follows:
        # It was dropped here, and not there: what came after that is what is missing.
        start, rows = Head(stone.seq, stone.digest), [row for row in rows if row.seq > stone.seq]
        if not any((row.seq, row.digest) == (start.seq, start.digest) for row in one.rows):
            raise TaskExists(one.name, other_history=True)
    else:
        _check_free(store, one)
    if not rows:
        return 0
    if start.seq > 0 and (stone is None or stone.seq < start.seq):
        store.restore_marks([Tombstone(one.name, start.seq, start.digest, rows[0].at_us, "trimmed")], ())
    write = Write(one.name, _drafts(rows), start, Origin(None, start.seq), blobs=tuple(one.blobs))
    erasures = tuple(erasure for erasure in one.erasures if erasure.seq >= rows[0].seq)
    _append(store, Group((write,), erasures=erasures))
    return len(rows)


def _check_free(store: Store, one: RecordLog) -> None:
    """Refuse what was dropped here: its seqs are used up."""
    stone = store.tombstone(one.name)
    if stone is None or stone.seq < one.start.seq or (stone.seq, stone.digest) == (one.start.seq, one.start.digest):
        return
    space, key = record_key(one.name)
    raise InvalidValue(
        f"the records {key!r} of {space!r} were dropped here at seq {stone.seq}; nothing was written",
        hint="import them into another store, or append their data again",
    )


def _cuts(store: Store, one: RecordLog, origin: Origin) -> tuple[LogCut, ...]:
    """Return the records that were trimmed at the source and are still here."""
    if origin.at >= one.start.seq:
        return ()
    gone = record_logs.rows_of(store, one.name, upto=one.start.seq)
    hashes = record_logs.unused(one.name, record_logs.hashes_of(one.name, gone), one.rows)
    return (LogCut(Tombstone(one.name, one.start.seq, one.start.digest, one.rows[0].at_us, "trimmed"), hashes),)


def _erasures(store: Store, one: RecordLog, origin: Origin) -> tuple[Erasure, ...]:
    """Return the records that were erased at the source and are still here, with the large values of their own."""
    first = max(origin.at, one.start.seq)
    done = {erasure.seq for erasure in store.erasures(one.name)}
    missing = {erasure.seq: erasure for erasure in one.erasures if erasure.seq > first and erasure.seq not in done}
    found: list[Erasure] = []
    for seq, erasure in missing.items():
        here = store.read(one.name, after=seq - 1, upto=seq)
        hashes = record_logs.unused(one.name, record_logs.hashes_of(one.name, here), one.rows)
        found.append(Erasure(one.name, seq, erasure.by, erasure.why, erasure.at_us, hashes))
    return tuple(found)


def _drafts(rows: list[Stored]) -> tuple[Draft, ...]:
    return tuple(Draft(row.kind, row.at_us, row.body, row.body_hash) for row in rows)


def _append(store: Store, group: Group) -> None:
    outcome = store.append([group])[0]
    if not isinstance(outcome, tuple):
        raise outcome

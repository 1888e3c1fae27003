"""Looking after a store: export and import, retention, copies."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.core import codec, limits
from holdfast.core.errors import InvalidValue, LogCorrupt, TaskExists
from holdfast.core.events import Erased
from holdfast.core.hot import ENDED, Hot
from holdfast.core.records import Blob, Draft, Group, Head, Origin, Stored, Summary, Write
from holdfast.core.state import evolve
from holdfast.engine.log import Logs, decoded
from holdfast.engine.timeline import verify
from holdfast.store.protocol import Erasure, Store, Tombstone

FORMAT = 1

Progress = Callable[[int, int], None]
"""Told how many are done, of how many."""


class Collected(Struct, frozen=True):
    """What gc took away."""

    tasks: int
    snapshots: int
    kept_for_forks: int


class Copied(Struct, frozen=True):
    """What was brought into another store."""

    logs: int
    events: int
    skipped: int


class _Header(Struct, frozen=True, tag="log", tag_field="is"):
    """The first line of an exported log."""

    log: str
    parent: str | None
    base: int
    prev: str
    format: int = FORMAT


class _BlobLine(Struct, frozen=True, tag="blob", tag_field="is"):
    hash: str
    data: str


class _EventLine(Struct, frozen=True, tag="event", tag_field="is", omit_defaults=True):
    seq: int
    kind: str
    at: int
    body_hash: str
    digest: str
    body: Raw | UnsetType = UNSET
    erased_by: str = ""
    erased_why: str = ""
    erased_at: int = 0


class _End(Struct, frozen=True, tag="end", tag_field="is"):
    """The last line, so that a file that was cut off is noticed."""

    events: int


# Export and import


def export(logs: Logs, id: str) -> Iterator[bytes]:
    """A task as JSON Lines: its log, the values beside it and, for a fork, the logs it stands on."""
    chain = [segment.log for segment in logs.segments(id)]
    count = 0
    for name in chain:
        origin = logs.store.origin(name)
        assert origin is not None
        yield _line(_Header(name, origin.parent, origin.at, _start(logs.store, name, origin).digest.hex()))
        for blob in logs.store.blobs_of(name):
            yield _line(_BlobLine(blob.hash, base64.b64encode(blob.data).decode()))
        erased = {one.seq: one for one in logs.store.erasures(name)}
        for row in _own_rows(logs.store, name):
            count += 1
            yield _line(_event_line(row, erased.get(row.seq)))
    yield _line(_End(count))


def import_lines(logs: Logs, lines: Iterable[bytes]) -> Copied:
    """Bring exported tasks in. Every digest is computed anew; a log that is there already must agree."""
    incoming: list[_Incoming] = []
    ended = False
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = codec.load(line, _Header | _BlobLine | _EventLine | _End)
        except ValueError as error:
            raise _unreadable(number, str(error)) from None
        match entry:
            case _Header():
                incoming.append(_Incoming(entry))
            case _BlobLine() if incoming:
                incoming[-1].blobs.append(Blob(entry.hash, base64.b64decode(entry.data)))
            case _EventLine() if incoming:
                incoming[-1].take(entry)
            case _End():
                ended = entry.events == sum(len(one.rows) for one in incoming)
            case _:
                raise _unreadable(number, "an event or value before the log it belongs to")
    if not ended:
        raise _unreadable(0, "the file ends before the export does")
    return _adopt(logs.store, incoming)


class _Incoming:
    """A log being brought in."""

    def __init__(self, header: _Header) -> None:
        self.name = header.log
        self.origin = Origin(header.parent, header.base)
        self.start = Head(header.base, bytes.fromhex(header.prev))
        self.blobs: list[Blob] = []
        self.rows: list[Stored] = []
        self.erasures: list[Erasure] = []

    def take(self, line: _EventLine) -> None:
        body = None if line.body is UNSET else bytes(line.body)
        self.rows.append(
            Stored(line.seq, line.kind, line.at, body, bytes.fromhex(line.body_hash), bytes.fromhex(line.digest))
        )
        if line.erased_at:
            by = (line.erased_by, line.erased_why, line.erased_at)
            self.erasures.append(Erasure(self.name, line.seq, *by))


def _unreadable(number: int, why: str) -> InvalidValue:
    where = f"line {number}" if number else "the end"
    return InvalidValue(f"{where} of the export cannot be read: {why}", hint="nothing was written; export it again")


def _event_line(row: Stored, erasure: Erasure | None) -> _EventLine:
    return _EventLine(
        seq=row.seq,
        kind=row.kind,
        at=row.at_us,
        body_hash=row.body_hash.hex(),
        digest=row.digest.hex(),
        body=UNSET if row.body is None else Raw(row.body),
        erased_by=erasure.by if erasure else "",
        erased_why=erasure.why if erasure else "",
        erased_at=erasure.at_us if erasure else 0,
    )


def _line(entry: Struct) -> bytes:
    return codec.dump(entry) + b"\n"


# Copying logs between stores


def _adopt(store: Store, incoming: list[_Incoming]) -> Copied:
    logs = events = skipped = 0
    for one in incoming:
        written = _adopt_log(store, one)
        logs += written > 0
        skipped += written == 0
        events += written
    return Copied(logs, events, skipped)


def _adopt_log(store: Store, one: _Incoming) -> int:
    """Append a log's rows after what is there of it. The store computes the digests; they must come out the same."""
    _check_rows(one)
    if store.tombstone(one.name) is not None:
        return 0
    head = store.head(one.name)
    if head is not None:
        same = [row for row in one.rows if row.seq == head.seq and row.digest == head.digest]
        if not same:
            ours = store.read(one.name, after=one.rows[-1].seq - 1, upto=one.rows[-1].seq)
            if ours and ours[0].digest == one.rows[-1].digest:
                return 0
            raise TaskExists(one.name)
    rows = [row for row in one.rows if head is None or row.seq > head.seq]
    if not rows:
        return 0
    drafts = tuple(Draft(row.kind, row.at_us, row.body, row.body_hash) for row in rows)
    origin = one.origin if head is None else None
    summary = _summary(store, one)
    write = Write(one.name, drafts, head or one.start, origin, summary, tuple(one.blobs))
    outcome = store.append([Group((write,))])[0]
    if not isinstance(outcome, tuple):
        raise outcome
    assert outcome[0].digests[-1] == one.rows[-1].digest, "digests were checked before"
    if one.erasures:
        store.erase(one.erasures)
    return len(rows)


def _check_rows(one: _Incoming) -> None:
    """Refuse rows whose chain does not hold, before anything is written."""
    if not one.rows:
        raise LogCorrupt(one.name, one.start.seq + 1, "the log has no events")
    if one.origin.parent is None and one.start.digest != codec.genesis(one.name):
        raise LogCorrupt(one.name, 0, "its chain does not begin where a log of this name does")
    blobs = {blob.hash for blob in one.blobs}
    seq, digest = one.start.seq, one.start.digest
    for row in one.rows:
        seq += 1
        body_fits = row.body is None or codec.body_hash(row.body) == row.body_hash
        digest = codec.chain(digest, seq, row.kind, row.at_us, row.body_hash)
        if row.seq != seq or not body_fits or digest != row.digest:
            raise LogCorrupt(one.name, seq, "it is not what was exported")
        missing = [ref.hash for ref in codec.blob_refs(decoded(one.name, row)) if ref.hash not in blobs]
        if missing:
            raise LogCorrupt(one.name, seq, "a value it refers to is not in the file")


def _summary(store: Store, one: _Incoming) -> Summary | None:
    """What a list shows of an incoming log: the fold of all of it."""
    hot: Hot | None = None
    if one.origin.parent is not None:
        hot = Logs(store, _NoClock()).load(one.origin.parent, upto=one.origin.at).state
    for row in one.rows:
        event = decoded(one.name, row)
        if hot is None and isinstance(event, Erased):
            continue
        hot = evolve(hot, one.name, row.seq, row.at_us, event)
    return hot.summary if hot is not None and not one.name.startswith("@") else None


class _NoClock:
    def now_us(self) -> int:
        raise AssertionError("bringing a log in writes no time of its own")


def copy_store(source: Logs, target: Store, progress: Progress | None = None) -> Copied:
    """Copy every log, key and tombstone. Run again after an interruption, it goes on where it was."""
    total = source.store.stats().tasks
    logs = events = skipped = 0
    after: str | None = None
    while names := source.store.logs(after=after, limit=limits.PAGE_SIZE):
        for name in names:
            written = _copy_log(source.store, target, name)
            logs, skipped, events = logs + (written > 0), skipped + (written == 0), events + written
            if progress is not None:
                progress(logs + skipped, total)
        after = names[-1]
    _copy_marks(source.store, target)
    return Copied(logs, events, skipped)


def _copy_log(source: Store, target: Store, name: str) -> int:
    origin, head = source.origin(name), source.head(name)
    assert origin is not None and head is not None
    if target.head(name) == head:
        return 0
    one = _Incoming(_Header(name, origin.parent, origin.at, _start(source, name, origin).digest.hex()))
    one.rows = list(_own_rows(source, name))
    one.blobs = source.blobs_of(name)
    one.erasures = source.erasures(name)
    return _adopt_log(target, one)


def _copy_marks(source: Store, target: Store) -> None:
    name = key = ""
    while stones := source.tombstones(after=name):
        target.restore_marks(stones, ())
        name = stones[-1].log
    while takes := source.takes(after=key):
        target.restore_marks((), takes)
        key = takes[-1].key


def _start(store: Store, name: str, origin: Origin) -> Head:
    """What a log's chain begins with."""
    while origin.parent is not None:
        row = store.read(origin.parent, after=origin.at - 1, upto=origin.at)
        if row:
            return Head(origin.at, row[0].digest)
        above = store.origin(origin.parent)
        assert above is not None
        origin = Origin(above.parent, origin.at)
    return Head(0, codec.genesis(name))


def _own_rows(store: Store, name: str) -> Iterator[Stored]:
    seq = 0
    while chunk := store.read(name, after=seq, limit=limits.READ_CHUNK):
        yield from chunk
        seq = chunk[-1].seq


# Retention


def collect(
    logs: Logs, *, older_than_us: int | None, keep: int | None, snapshots_before_us: int | None, why: str
) -> Collected:
    """Remove ended tasks beyond the newest `keep` and older than a time; parents of living forks stay."""
    removed = spared = 0
    if older_than_us is not None or keep is not None:
        # A fork goes before its parent can: so go round until nothing more goes.
        while True:
            gone, spared = _collect_once(logs, older_than_us, keep or 0, why)
            removed += gone
            if not gone:
                break
    dropped = 0
    if snapshots_before_us is not None:
        dropped = logs.store.drop_snapshots(before_us=snapshots_before_us)
    return Collected(removed, dropped, spared)


def _collect_once(logs: Logs, older_than_us: int | None, keep: int, why: str) -> tuple[int, int]:
    """One round. What moved on, was forked or went away meanwhile is left alone: the store compares the head."""
    store = logs.store
    removed = spared = 0
    for name in store.finished(before_us=older_than_us, skip=keep, limit=limits.MAX_PAGE_SIZE):
        # The head comes first: what is reopened after that no longer has it, what was before is seen to be.
        head, summary = store.head(name), store.summary(name)
        if head is not None and summary is not None and summary.status in ENDED:
            gone = store.remove([Tombstone(name, head.seq, head.digest, logs.clock.now_us(), why)])
            removed += len(gone)
            spared += not gone and bool(store.forks(name))
    return removed, spared


# Whole copies


def backup(logs: Logs, path: str) -> None:
    """A consistent copy of the store in a new file, while others write."""
    logs.store.backup(os.fspath(path))


def write_export(logs: Logs, id: str, file: BinaryIO) -> int:
    """Export a task into a file; gives the number of bytes."""
    return sum(file.write(line) for line in export(logs, id))


def verified_copy(source: Logs, target: Logs, progress: Progress | None = None) -> Copied:
    """Copy a store and walk every chain of the copy."""
    copied = copy_store(source, target.store, progress)
    found = verify(target)
    if not found.ok:
        problem = found.problems[0]
        raise LogCorrupt(problem.task, problem.seq, f"the copy does not verify: {problem.why}")
    return copied

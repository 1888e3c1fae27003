"""Looking after a store: export and import, copies."""

from __future__ import annotations

import os
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from holdfast.core import codec, limits, names
from holdfast.core.codec import Blob, Draft, Group, Head, Origin, Stored, Summary, Write
from holdfast.core.errors import HoldfastError, InvalidValue, LogCorrupt, TaskExists, TaskNotFound, UnknownEvent
from holdfast.core.state.history import History
from holdfast.engine.logs import record_logs
from holdfast.engine.logs.log import decoded
from holdfast.engine.logs.logs import Logs
from holdfast.engine.logs.record_logs import RecordLog
from holdfast.engine.maintenance import record_copies
from holdfast.engine.reading.task_state import STATUSES
from holdfast.engine.reading.verify import Past, check_values, past_of, replayed
from holdfast.store.protocol import Erasure, Store, Tombstone

FORMAT = 1

Progress = Callable[[int, int], None]
"""Called with how many are done, of how many."""


class Copied(codec.JsonStruct, frozen=True):
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
    summary: Summary | UnsetType = UNSET


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
    data: str | UnsetType = UNSET
    """The body of a record in base64: it is not JSON."""


class _End(Struct, frozen=True, tag="end", tag_field="is"):
    """The last line, so that a file that was cut off is noticed."""

    events: int


# Export and import


def export(logs: Logs, id: str) -> Iterator[bytes]:
    """A task as JSON Lines: its log as it is now, the values beside it and, for a fork, the logs it stands on."""
    count = 0
    for name in [segment.log for segment in logs.segments(id)]:
        one = read_all(logs.store, name)
        place = (one.origin.parent, one.origin.at, one.start.digest.hex())
        yield _line(_Header(name, *place, summary=UNSET if one.summary is None else one.summary))
        for blob in one.blobs:
            yield _line(_BlobLine(blob.hash, b2a_base64(blob.data, newline=False).decode()))
        erased = {erasure.seq: erasure for erasure in one.erasures}
        for row in one.rows:
            count += 1
            yield _line(_event_line(row, erased.get(row.seq), opaque=one.is_records))
    yield _line(_End(count))


def read_all(store: Store, name: str, erased: Sequence[Erasure] = ()) -> _Incoming:
    """A log as it was at one moment, if it is whole. Rows first: what is beside them only grows.

    `erased` are erasures that are known of from elsewhere: an import may have died before it wrote them.
    """
    if names.is_record_log(name):
        return record_logs.steadily(store, name, lambda origin: _read_records(store, name, origin))
    origin, anchor = store.origin(name), store.anchor(name)
    rows = list(_own_rows(store, name)) if origin is not None else []
    if origin is None or (not rows and store.origin(name) is None):  # it is removed meanwhile
        raise TaskNotFound(name)
    one = _Incoming(_Header(name, origin.parent, origin.at, _start(store, name, origin).digest.hex()))
    one.rows, one.blobs = rows, list(store.blobs_of(name))
    one.erasures = [one for one in (*store.erasures(name), *erased) if rows and one.seq <= rows[-1].seq]
    one.summary = store.summary(name) if one.erasures else None  # what was erased tells no list any more
    _check_rows(one)
    refuse_cut_off(name, anchor, rows[-1].seq)
    return one


def _read_records(store: Store, name: str, origin: Origin) -> _Incoming:
    """The same for a log of records."""
    start, anchor = record_logs.start_of(store, name, origin), store.anchor(name)
    one = _Incoming(_Header(name, None, origin.at, start.digest.hex()))
    one.rows = list(record_logs.rows_of(store, name))
    one.blobs, one.erasures = list(store.blobs_of(name)), store.erasures(name)
    _check_rows(one)
    refuse_cut_off(name, anchor, one.rows[-1].seq)
    return one


def refuse_cut_off(name: str, anchor: Head | None, seq: int) -> None:
    if anchor is not None and anchor.seq > seq:
        raise LogCorrupt(name, seq + 1, f"the log had reached {anchor.seq}, and now ends at {seq}")


def import_lines(logs: Logs, lines: Iterable[bytes]) -> Copied:
    """Bring exported tasks in. A log that is there already must agree."""
    return adopt(logs.store, read_export(lines))


def read_export(lines: Iterable[bytes]) -> list[_Incoming]:
    """Read an export. Every digest is computed anew."""
    incoming, known = list[_Incoming](), set[str]()
    ended = False
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            if not isinstance(line, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValueError("lines are bytes")
            if len(line) > _LINE_BYTES:
                raise ValueError(f"it is longer than {_LINE_BYTES:,} bytes")
            entry = codec.load(line, _Header | _BlobLine | _EventLine | _End)
        except (ValueError, RecursionError) as error:
            raise _unreadable(number, str(error)) from None
        match entry:
            case _Header() if entry.format == FORMAT:
                if entry.log in known:
                    raise _unreadable(number, f"{entry.log!r} is in it twice")
                known.add(entry.log)
                incoming.append(_Incoming(entry))
            case _BlobLine() if incoming:
                incoming[-1].blobs.append(Blob(entry.hash, _unbase64(entry.data, number)))
            case _EventLine() if incoming:
                incoming[-1].take(entry, number)
            case _End():
                ended = entry.events == sum(len(one.rows) for one in incoming)
            case _:
                raise _unreadable(number, "it stands before the log it belongs to, or is of another version")
    if not ended:
        raise InvalidValue("the export is not complete: its last line is missing, or lines are", hint=EXPORT_AGAIN)
    for one in incoming:
        _check_rows(one)
    return incoming


_LINE_BYTES = limits.MAX_EVENT_BYTES + 64 * 1024
"""The longest line: an event's body with its other fields, or a large value in base64."""


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of an export, none read further than is needed to see that it is too long."""
    while line := file.readline(_LINE_BYTES + 1):
        yield line


def _unbase64(text: str, number: int) -> bytes:
    try:
        return a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise _unreadable(number, str(error)) from None


class _Incoming:
    """A log being brought in."""

    def __init__(self, header: _Header) -> None:
        self.name = header.log
        self.origin = Origin(header.parent, header.base)
        self.start = Head(header.base, _unhex(header.prev))
        self.blobs: list[Blob] = []
        self.rows: list[Stored] = []
        self.erasures: list[Erasure] = []
        self.summary = None if header.summary is UNSET else header.summary
        self.is_records = names.is_record_log(header.log)

    @property
    def records(self) -> RecordLog:
        """The same as a log of records."""
        return RecordLog(self.name, self.start, self.rows, self.blobs, self.erasures)

    def take(self, line: _EventLine, number: int) -> None:
        body = None if line.body is UNSET else bytes(line.body)
        if line.data is not UNSET:
            body = _unbase64(line.data, number)
        self.rows.append(Stored(line.seq, line.kind, line.at, body, _unhex(line.body_hash), _unhex(line.digest)))
        if line.erased_at:
            by = (line.erased_by, line.erased_why, line.erased_at)
            self.erasures.append(Erasure(self.name, line.seq, *by))


def _unhex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""  # which no digest is, so the check of the rows names the place


def _unreadable(number: int, why: str) -> InvalidValue:
    if number == 1:
        return InvalidValue(f"it is not an export: {why}", hint="give a file that `holdfast export` wrote")
    return InvalidValue(f"line {number} is not a line of an export: {why}", hint=EXPORT_AGAIN)


EXPORT_AGAIN = "export the task again, from the store that has it: app.export(id, path)"
"""What to do about a file that can't be imported."""


def _event_line(row: Stored, erasure: Erasure | None, *, opaque: bool) -> _EventLine:
    return _EventLine(
        seq=row.seq,
        kind=row.kind,
        at=row.at_us,
        body_hash=row.body_hash.hex(),
        digest=row.digest.hex(),
        body=UNSET if row.body is None or opaque else Raw(row.body),
        data=b2a_base64(row.body, newline=False).decode() if opaque and row.body is not None else UNSET,
        erased_by=erasure.by if erasure else "",
        erased_why=erasure.why if erasure else "",
        erased_at=erasure.at_us if erasure else 0,
    )


def _line(entry: Struct) -> bytes:
    return codec.dump(entry) + b"\n"


# Copying logs between stores


def adopt(store: Store, incoming: list[_Incoming]) -> Copied:
    """Bring in what an export holds. Everything is checked before anything is written."""
    summaries = _summaries(store, incoming)
    for one in incoming:
        if one.is_records:
            record_copies.check_history(store, one.records)
        elif store.origin(one.name) is not None and store.tombstone(one.name) is None:
            read_all(store, one.name, one.erasures)  # what is damaged here is not there already, nor written over
            _already_there(store, one)
    logs = events = skipped = 0
    for one in incoming:
        written = (
            record_copies.bring(store, one.records, follows=False)
            if one.is_records
            else adopt_log(store, one, summaries[one.name])
        )
        logs, skipped, events = logs + (written > 0), skipped + (written == 0), events + written
    return Copied(logs, events, skipped)


def _summaries(store: Store, incoming: list[_Incoming]) -> dict[str, Summary | None]:
    """Return the row of each log, after checking that it could have been written here; its past comes before it."""
    logs, brought, folded = Logs(store, NoClock()), dict[str, _Incoming](), dict[str, History]()
    bases: dict[str, set[int]] = {}
    for one in incoming:
        bases.setdefault(one.origin.parent or "", set()).add(one.origin.at)
    for one in incoming:
        if one.is_records:
            continue
        _check_past(logs, one, brought)
        past, keep = _past(logs, one, brought, folded), bases.get(one.name, ())
        folded[one.name] = replayed(one.name, one.rows, past, keep)
        brought[one.name] = one
    return {one.name: summary_of(one, folded[one.name]) for one in incoming if one.name in folded}


def _past(logs: Logs, one: _Incoming, brought: dict[str, _Incoming], folded: dict[str, History]) -> Past | None:
    """Return the log that an incoming log was forked from: in the file, or in the store."""
    parent, at = one.origin.parent, one.origin.at
    if parent is None or parent not in brought:
        return past_of(logs, one.origin)

    def rows() -> Iterator[tuple[str, Stored]]:
        before = _past(logs, brought[parent], brought, folded)
        yield from () if before is None else before.rows()
        yield from ((parent, row) for row in brought[parent].rows if row.seq <= at)

    return Past(at, lambda: folded[parent].kept[at], rows)


def _already_there(store: Store, one: _Incoming) -> Head | None:
    """Return how far a log is there already; refuse another history under its name."""
    head = store.head(one.name)
    if head is None:
        return None
    last = one.rows[-1]
    if last.seq <= head.seq:
        ours = store.read(one.name, after=last.seq - 1, upto=last.seq)
        same = bool(ours) and ours[0].digest == last.digest
    else:
        same = any(row.seq == head.seq and row.digest == head.digest for row in one.rows)
    if not same:
        raise TaskExists(one.name, other_history=True)
    return head


def adopt_log(store: Store, one: _Incoming, summary: Summary | None, *, follows: bool = False) -> int:
    """Append a log's rows after what is there of it. The store computes the digests; they come out the same.

    `follows`: as a copy does, what was removed at the source since goes here too.
    """
    if _is_gone(store, one):
        return 0
    if names.begins_again(one.name) and one.start.seq > 0:
        _begin_again(store, one, follows=follows)
    head = _already_there(store, one)
    rows = [row for row in one.rows if head is None or row.seq > head.seq]
    if rows:
        drafts = tuple(Draft(row.kind, row.at_us, row.body, row.body_hash) for row in rows)
        origin = one.origin if head is None else None
        write = Write(one.name, drafts, head or one.start, origin, summary, tuple(one.blobs))
        outcome = store.append([Group((write,))])[0]
        if not isinstance(outcome, tuple):
            raise outcome
        assert outcome[0].digests[-1] == one.rows[-1].digest, "digests were checked before"
    known = {erasure.seq for erasure in store.erasures(one.name)}
    missing = [erasure for erasure in one.erasures if erasure.seq not in known]
    if missing:
        store.erase(missing)
    return len(rows)


def _is_gone(store: Store, one: _Incoming) -> bool:
    """Whether a log was removed here, and what is brought in is of before that."""
    stone = store.tombstone(one.name)
    if stone is None or not names.begins_again(one.name):
        return stone is not None
    return one.start.seq < stone.seq and store.head(one.name) is None


def _begin_again(store: Store, one: _Incoming, *, follows: bool) -> None:
    """Make room for the log of a user or a thread that was removed at its source, and begun again since."""
    head, stone = store.head(one.name), store.tombstone(one.name)
    if head is not None and head.seq <= one.start.seq and follows:
        store.remove([Tombstone(one.name, head.seq, head.digest, one.rows[0].at_us, "removed at the source")])
        head = None
    if head is None and (stone is None or stone.seq < one.start.seq):
        mark = Tombstone(one.name, one.start.seq, one.start.digest, one.rows[0].at_us, "removed at the source")
        store.restore_marks([mark], ())


def _check_past(logs: Logs, one: _Incoming, brought: dict[str, _Incoming]) -> None:
    """A fork must stand on the very event it says, further up in the file or in the store, and not on too many."""
    parent, at = one.origin.parent, one.origin.at
    if parent is None:
        return
    rows = brought[parent].rows if parent in brought else logs.store.read(parent, after=at - 1, upto=at)
    if not any(row.seq == one.origin.at and row.digest == one.start.digest for row in rows):
        raise LogCorrupt(one.name, one.origin.at, f"its past in {parent!r} is not there, or is another one")
    depth = 1
    while parent in brought:
        parent, depth = brought[parent].origin.parent, depth + 1
    if depth + (0 if parent is None else len(logs.segments(parent))) > limits.MAX_FORK_DEPTH:
        raise LogCorrupt(one.name, one.origin.at, f"it stands on more than {limits.MAX_FORK_DEPTH} forks")


def _check_rows(one: _Incoming) -> None:
    """Refuse rows whose chain does not hold, before anything is written or given away."""
    _check_name(one.name)
    if not one.rows:
        raise LogCorrupt(one.name, one.start.seq + 1, "the log has no events")
    genesis = Head(0, codec.genesis(one.name))
    may_be_cut = names.begins_again(one.name) and one.origin.parent is None and one.start.seq > 0
    if one.is_records and one.origin.parent is not None:
        raise LogCorrupt(one.name, one.start.seq, "records are never forked")
    if one.origin.parent is None and one.start != genesis and not may_be_cut:
        raise LogCorrupt(one.name, one.start.seq, "its chain does not begin where a log of this name does")
    blobs = {blob.hash: blob.data for blob in one.blobs}
    wanted: set[str] = set()
    erased = {erasure.seq for erasure in one.erasures}
    for erasure in one.erasures:
        names.text(f"{erasure.by} {erasure.why}", "reason of an erasure")
    seq, digest = one.start.seq, one.start.digest
    for row in one.rows:
        seq += 1
        fits = row.seq == seq and (
            row.seq in erased if row.body is None else codec.body_hash(row.body) == row.body_hash
        )
        if not fits or not codec.MIN_AT_US <= row.at_us <= codec.MAX_AT_US:
            raise LogCorrupt(one.name, seq, "it is not what was written")
        digest = codec.chain(digest, seq, row.kind, row.at_us, row.body_hash)
        if digest != row.digest:
            raise LogCorrupt(one.name, seq, "its digest does not follow from what came before")
        wanted.update(_check_blobs(one.name, row, blobs, wanted))
    one.blobs = [Blob(hash, blobs[hash]) for hash in sorted(wanted)]  # the others belong to no log of this file
    first = "task_created" if one.origin.parent is None else "task_forked"
    if one.rows[0].kind != first and not one.name.startswith("@"):
        raise LogCorrupt(one.name, one.rows[0].seq, f"a task's log begins with {first}")


def _check_name(name: str) -> None:
    """Refuse the name of a log that no log has."""
    kind, slash, id = name.partition("/")
    if kind in ("@user", "@thread") and slash:
        (names.user_log if kind == "@user" else names.thread_log)(id)
    elif name.startswith(names.RECORDS):
        space, key = names.record_key(name)
        if names.record_log(names.record_space(space), key) != name:
            raise InvalidValue(f"{name!r} is not the name of a log of records", hint="export it again")
    else:
        names.task_log(name)


def _check_blobs(name: str, row: Stored, blobs: dict[str, bytes], known: set[str]) -> list[str]:
    """Refuse values that are missing or damaged; gives the hashes of those there are. A large one is opened once."""
    try:
        if names.is_record_log(name):
            return record_logs.check_blobs(name, row, blobs.get, known)
        event = decoded(name, row)
    except UnknownEvent:
        raise LogCorrupt(name, row.seq, f"it is of the kind {row.kind!r}, which this version does not know") from None
    return check_values(name, row.seq, event, blobs.get, known)


def summary_of(one: _Incoming, history: History) -> Summary | None:
    """Return the row of a log: the fold of all of it. Of an erased log, its earlier row."""
    assert history.state is not None
    if one.name.startswith("@"):
        return None
    erased = one.summary is not None and bool(one.erasures)
    found = replace(one.summary, namespace="") if one.summary is not None and erased else history.state.summary
    _check_summary(one.name, found)
    return found


def _check_summary(name: str, summary: Summary) -> None:
    """Refuse a row that no list could show."""
    try:
        if summary.id != name or summary.status not in STATUSES:
            raise InvalidValue(f"it is one of {summary.id!r}, {summary.status!r}")
        for field in summary.__struct_fields__:
            value = getattr(summary, field)
            if isinstance(value, str):
                names.text(value, field)
            elif type(value) is int and not -codec.MAX_AT_US <= value <= codec.MAX_AT_US:
                raise InvalidValue(f"{field} is {value}")
    except HoldfastError as error:
        raise LogCorrupt(name, 0, f"its row in lists is not one that is ever written: {error.message}") from None


class NoClock:
    def now_us(self) -> int:
        raise AssertionError("bringing a log in writes no time of its own")


def _start(store: Store, name: str, origin: Origin) -> Head:
    """Return the start of a log's chain."""
    while origin.parent is not None:
        row = store.read(origin.parent, after=origin.at - 1, upto=origin.at)
        if row:
            return Head(origin.at, row[0].digest)
        above = store.origin(origin.parent)
        assert above is not None
        origin = Origin(above.parent, origin.at)
    return record_logs.start_of(store, name, origin) if names.begins_again(name) else Head(0, codec.genesis(name))


def _own_rows(store: Store, name: str) -> Iterator[Stored]:
    seq = 0
    while chunk := store.read(name, after=seq, limit=limits.READ_CHUNK):
        yield from chunk
        seq = chunk[-1].seq


# Whole copies


def export_to(logs: Logs, id: str, path: str | os.PathLike[str]) -> int:
    """Export a task into a new file that only its owner reads; gives the number of bytes."""
    logs.segments(id)
    names.text(os.fspath(path), "path")
    if os.path.exists(path):
        raise InvalidValue(f"{os.fspath(path)!r} already exists; nothing was written", hint="give a new name")
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        return write_export(logs, id, file)


def write_export(logs: Logs, id: str, file: BinaryIO) -> int:
    """Export a task into a file; gives the number of bytes."""
    return sum(file.write(line) for line in export(logs, id))

"""Walking the chains of digests: whether every log is as it was written, and one that could have been written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from msgspec import Struct

from holdfast.core import codec, limits
from holdfast.core.codec import Head, Origin, Stored
from holdfast.core.errors import LogCorrupt, SeqOutOfRange, TaskCollected, TaskNotFound, ValueDamaged
from holdfast.core.events import Event, RolledBack
from holdfast.core.names import is_record_log
from holdfast.core.state.history import History
from holdfast.core.state.shapes import State
from holdfast.engine.logs import record_logs
from holdfast.engine.logs.log import DAMAGED, decoded
from holdfast.engine.logs.logs import Logs


class Problem(Struct, frozen=True):
    """Something that is not as it was written, and where."""

    task: str
    seq: int
    why: str


class Verification(codec.JsonStruct, frozen=True):
    """What a walk over the chains found."""

    tasks: int
    events: int
    erased: int
    problems: list[Problem]

    @property
    def ok(self) -> bool:
        """Everything is as it was written."""
        return not self.problems


def verify(logs: Logs, id: str | None = None, progress: Callable[[int], object] | None = None) -> Verification:
    """Walk the chain of one task, or of every log there is, and name the first thing wrong with each.

    `progress` is called with the number of logs walked.
    """
    problems: list[Problem] = []
    tasks = events = erased = 0
    # A fork's past is its parents': what is wrong there is wrong with it.
    for name in all_names(logs) if id is None else [segment.log for segment in logs.segments(id)]:
        try:
            seen, gone = _verify_records(logs, name) if is_record_log(name) else _verify(logs, name)
            tasks, events, erased = tasks + 1, events + seen, erased + gone
        except (*DAMAGED, SeqOutOfRange) as error:
            tasks += 1
            problems.append(Problem(name, error.details.get("seq", 0), error.message))
        except (TaskNotFound, TaskCollected):
            if id is not None:
                raise  # else it was removed while we walked
        if progress is not None:
            progress(tasks)
    if id is None:
        problems += [Problem("", 0, found) for found in logs.store.check()]
    return Verification(tasks, events, erased, problems)


def all_names(logs: Logs) -> Iterator[str]:
    """The name of every log there is."""
    after: str | None = None
    while page := logs.store.logs(after=after, limit=limits.READ_CHUNK):
        yield from page
        after = page[-1]


def _verify(logs: Logs, name: str) -> tuple[int, int]:
    """Check one log's own rows; gives how many there are and how many of them are erased."""
    origin = logs.store.origin(name)
    if origin is None:
        raise logs.missing(name)
    head = record_logs.start_of(logs.store, name, origin) if origin.parent is None else Head(0, b"")
    if origin.parent is not None:
        parent = [row for _, row in logs.rows(origin.parent, after=origin.at - 1, upto=origin.at)]
        if not parent:
            raise LogCorrupt(name, origin.at, f"its past in {origin.parent!r} is missing")
        head = Head(origin.at, parent[0].digest)
    try:
        logs.store.summary(name)
    except UnicodeDecodeError as error:
        raise LogCorrupt(name, 0, f"its row in lists cannot be read: {error}") from error
    stored = logs.store.blob
    rows = _verified_rows(logs, name, head, lambda row: check_values(name, row.seq, decoded(name, row), stored))
    replayed(name, rows, past_of(logs, origin))
    return len(rows), sum(row.body is None for row in rows)


def _verify_records(logs: Logs, name: str) -> tuple[int, int]:
    """The same for a log of records."""
    store = logs.store

    def walk(origin: Origin) -> list[Stored]:
        start = record_logs.start_of(store, name, origin)
        return _verified_rows(logs, name, start, lambda row: record_logs.check_blobs(name, row, store.blob))

    rows = record_logs.steadily(store, name, walk)
    return len(rows), sum(row.body is None for row in rows)


def _verified_rows(logs: Logs, name: str, start: Head, check: Callable[[Stored], object]) -> list[Stored]:
    """A log's own rows, if their chain holds from `start` on and reaches as far as it ever did."""
    head, store = start, logs.store
    anchor = store.anchor(name)  # before the rows: what is written meanwhile must not look like a loss
    rows = store.rows(name)
    allowed = {one.seq for one in store.erasures(name)}
    for row in rows:
        head = _follow_row(name, head, row, allowed)
        check(row)
    if anchor is not None and any(row.seq == anchor.seq and row.digest != anchor.digest for row in rows):
        raise LogCorrupt(name, anchor.seq, "the chain is not the one that was there")
    if anchor is not None and anchor.seq > head.seq:
        raise LogCorrupt(name, head.seq + 1, f"the log had reached {anchor.seq}, and now ends at {head.seq}")
    if not rows:
        raise LogCorrupt(name, head.seq + 1, "the log has no events")
    return rows


def _follow_row(name: str, head: Head, row: Stored, erased: set[int]) -> Head:
    seq = head.seq + 1
    if row.seq != seq:
        raise LogCorrupt(name, seq, f"the next event is {row.seq}")
    if row.body is None and seq not in erased:
        raise LogCorrupt(name, seq, "its body is gone, and no erasure is recorded")
    if row.body is not None and codec.body_hash(row.body) != row.body_hash:
        raise LogCorrupt(name, seq, "its body does not have the hash it was written with")
    digest = codec.chain(head.digest, seq, row.kind, row.at_us, row.body_hash)
    if digest != row.digest:
        raise LogCorrupt(name, seq, "its digest does not follow from what came before")
    return Head(seq, digest)


def check_values(
    name: str, seq: int, event: Event, stored: Callable[[str], bytes | None], known: Collection[str] = ()
) -> list[str]:
    """Refuse large values of an event that are missing, damaged or not as described; return their hashes.

    Those that are `known` were looked at before.
    """
    try:
        refs = list(codec.blob_refs(event))
        for ref in refs:
            if ref.hash in known:
                continue
            data = stored(ref.hash)
            if data is None:
                raise LogCorrupt(name, seq, "a value it refers to is missing")
            codec.check_blob(ref, data)
    except ValueDamaged as error:
        raise LogCorrupt(name, seq, error.message) from error
    except ValueError as error:
        raise LogCorrupt(name, seq, f"no such event is ever written: {error}") from error
    return [ref.hash for ref in refs]


class Past(Struct, frozen=True):
    """What a fork stands on: up to where, the state there, and all the events before, with their logs."""

    at: int
    state: Callable[[], State]
    rows: Callable[[], Iterable[tuple[str, Stored]]]


def past_of(logs: Logs, origin: Origin) -> Past | None:
    """Return the log that a fork was made from; None if this log is not a fork."""
    parent, at = origin.parent, origin.at
    if parent is None:
        return None
    return Past(at, lambda: logs.load(parent, upto=at).state, lambda: logs.rows(parent, upto=at))


def replayed(name: str, rows: Sequence[Stored], past: Past | None, keep: Collection[int] = ()) -> History:
    """Fold a log's own events, if each could have been written there; LogCorrupt names the first that could not."""
    returns = (decoded(name, row) for row in rows if row.kind == "rolled_back")
    wanted = {event.to for event in returns if isinstance(event, RolledBack)}
    history = History(keep={*wanted, *keep})
    if past is not None and all(seq >= past.at for seq in wanted):
        history = History(past.state(), keep={*wanted, *keep})
    elif past is not None:  # a rollback goes back to before it was forked
        for log, row in past.rows():
            history.take(log, row, decoded(log, row))
    for row in rows:
        if row.kind == "task_forked" and (past is None or row.seq != past.at + 1):
            raise LogCorrupt(name, row.seq, "no such event can be there: the log was not forked here")
        history.take(name, row, decoded(name, row))
    return history

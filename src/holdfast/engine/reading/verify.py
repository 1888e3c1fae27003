"""Walking the chains of digests: whether every log is as it was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from holdfast.core import codec, limits
from holdfast.core.codec import Head, Stored
from holdfast.core.errors import LogCorrupt, TaskCollected, TaskNotFound, UnknownEvent, ValueDamaged
from holdfast.engine.logs.log import decoded
from holdfast.engine.logs.logs import Logs


class Problem(Struct, frozen=True):
    """Something that is not as it was written, and where."""

    task: str
    seq: int
    why: str


class Verification(Struct, frozen=True):
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

    `progress` is told how many logs were walked.
    """
    problems: list[Problem] = []
    tasks = events = erased = 0
    # A fork's past is its parents': what is wrong there is wrong with it.
    for name in all_names(logs) if id is None else [segment.log for segment in logs.segments(id)]:
        try:
            seen, gone = _verify(logs, name)
            tasks, events, erased = tasks + 1, events + seen, erased + gone
        except (LogCorrupt, UnknownEvent) as error:
            tasks += 1
            problems.append(Problem(name, error.details["seq"], error.message))
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
    head = Head(0, codec.genesis(name))
    if origin.parent is not None:
        parent = [row for _, row in logs.rows(origin.parent, after=origin.at - 1, upto=origin.at)]
        if not parent:
            raise LogCorrupt(name, origin.at, f"its past in {origin.parent!r} is missing")
        head = Head(origin.at, parent[0].digest)
    anchor = logs.store.anchor(name)  # before the rows: what is written meanwhile must not look like a loss
    rows = logs.store.rows(name)
    allowed = {one.seq for one in logs.store.erasures(name)}
    for row in rows:
        head = _verify_row(logs, name, head, row, allowed)
    if anchor is not None and any(row.seq == anchor.seq and row.digest != anchor.digest for row in rows):
        raise LogCorrupt(name, anchor.seq, "the chain is not the one that was there")
    if anchor is not None and anchor.seq > head.seq:
        raise LogCorrupt(name, head.seq + 1, f"the log had reached {anchor.seq}, and now ends at {head.seq}")
    if not rows:
        raise LogCorrupt(name, head.seq + 1, "the log has no events")
    return len(rows), sum(row.body is None for row in rows)


def _verify_row(logs: Logs, name: str, head: Head, row: Stored, erased: set[int]) -> Head:
    seq = head.seq + 1
    if row.seq != seq:
        raise LogCorrupt(name, seq, f"the next event is {row.seq}")
    if row.body is None and seq not in erased:
        raise LogCorrupt(name, seq, "its body is gone, and nobody erased it")
    if row.body is not None and codec.body_hash(row.body) != row.body_hash:
        raise LogCorrupt(name, seq, "its body does not have the hash it was written with")
    digest = codec.chain(head.digest, seq, row.kind, row.at_us, row.body_hash)
    if digest != row.digest:
        raise LogCorrupt(name, seq, "its digest does not follow from what came before")
    for ref in codec.blob_refs(decoded(name, row)):
        stored = logs.store.blob(ref.hash)
        if stored is None:
            raise LogCorrupt(name, seq, "a value it refers to is missing")
        try:
            codec.open_blob(ref.hash, stored, ref.salt)
        except ValueDamaged as error:
            raise LogCorrupt(name, seq, error.message) from error
    return Head(seq, digest)

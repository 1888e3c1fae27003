"""Between PostgreSQL's rows and our records: which groups of a batch may be written, and the one statement that does it.

`Seen` is what is known of the logs a batch writes to: looked up under a lock, or taken on trust from what the groups
expect, in which case the statement itself fails where it is wrong. `plan` decides every group against it, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, LiteralString

from holdfast.core.errors import Conflict, KeyTaken
from holdfast.core.records import Group, Head, Snapshot, Summary, Take, Write
from holdfast.store import postgres_queries as q
from holdfast.store.postgres_arrays import Array, Bools, Bytes, Floats, Ints, Texts
from holdfast.store.protocol import Outcome, Placed, place

Columns = tuple[tuple[str, type[Array]], ...]

_EVENTS: Columns = (
    *(("event_logs", Texts), ("seqs", Ints), ("kinds", Texts), ("ats", Ints), ("bodies", Bytes)),
    *(("body_hashes", Bytes), ("digests", Bytes), ("befores", Bytes)),
)
_TASKS: Columns = (
    *(("id", Texts), ("agent", Texts), ("status", Texts), ("stage", Texts), ("user", Texts), ("thread", Texts)),
    *(("parent", Texts), ("waiting", Texts), ("holder", Texts), ("lease_seconds", Floats), ("queue", Texts)),
    *(("priority", Ints), ("wake", Ints), ("deadline", Ints), ("created", Ints), ("changed", Ints), ("mock", Bools)),
    *(("anchor_seq", Ints), ("anchor_digest", Bytes)),
)
_LOGS: Columns = (("new_logs", Texts), ("parents", Texts), ("bases", Ints))
_SNAPSHOTS: Columns = (
    *(("shot_logs", Texts), ("shot_seqs", Ints), ("shot_digests", Bytes), ("versions", Ints)),
    *(("shot_ats", Ints), ("shots", Bytes)),
)
_BLOBS: Columns = (("hashes", Bytes), ("datas", Bytes))
_USES: Columns = (("use_hashes", Bytes), ("use_logs", Texts))
_TAKES: Columns = (("keys", Texts), ("take_logs", Texts), ("steps", Texts), ("inputs", Texts))

_SUMMARY_FIELDS = (
    *("id", "agent", "status", "stage", "user", "thread", "parent", "waiting", "holder", "lease_seconds"),
    *("queue", "priority", "wake_us", "deadline_us", "created_us", "changed_us", "mock"),
)


class Seen:
    """What is known of the logs and keys that a batch is about."""

    def __init__(self) -> None:
        self.heads: dict[str, Head] = {}
        self.gone: set[str] = set()
        self.parents: set[str] = set()
        self.owners: dict[str, Take] = {}

    @classmethod
    def trusting(cls, groups: Sequence[Group]) -> Seen | None:
        """What would have to be so for the groups to be written; None if that must be looked up."""
        seen, made = cls(), set[str]()
        for write in (write for group in groups for write in group.writes):
            if not write.drafts:
                return None
            if write.origin is not None:
                made.add(write.log)
                seen.parents.update(filter(None, (write.origin.parent,)))
            elif write.log not in seen.heads and write.log not in made:
                if write.expect is None:
                    return None
                seen.heads[write.log] = write.expect
        return seen


class Batch:
    """The rows of groups that may be written, gathered for one statement."""

    def __init__(self) -> None:
        self._events: list[tuple[Any, ...]] = []
        self._logs: dict[str, tuple[Any, ...]] = {}
        self._tasks: dict[str, tuple[Any, ...]] = {}
        self._snapshots: dict[str, tuple[Any, ...]] = {}
        self._blobs: dict[str, bytes] = {}
        self._uses: set[tuple[str, str]] = set()
        self._takes: dict[str, Take] = {}
        self._frees: set[str] = set()
        self._names: dict[str, None] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        beside = self._logs or self._tasks or self._snapshots or self._blobs or self._takes or self._frees
        return not (self._events or beside)

    def add(self, group: Group, places: Sequence[Placed]) -> bool:
        """Gather a group. Says no to what one statement cannot do: free what it takes, or keep two snapshots."""
        if any(key in self._takes for key in group.frees):
            return False
        for write in group.writes:
            if write.snapshot is not None and write.log in self._snapshots:
                return False
        self._frees.update(group.frees)
        self._takes.update((take.key, take) for take in group.takes)
        for write, placed in zip(group.writes, places, strict=True):
            self._add(write, placed)
        return True

    def _add(self, write: Write, placed: Placed) -> None:
        before: bytes | None = None
        if write.origin is not None:
            self._logs[write.log] = (write.log, write.origin.parent, write.origin.at)
        elif write.log not in self._names and write.log not in self._logs:
            before = write.expect.digest if write.expect is not None else None
            self._names[write.log] = None
        seq = placed.first
        for draft, digest in zip(write.drafts, placed.digests, strict=True):
            row = (write.log, seq, draft.kind, draft.at_us, draft.body, draft.body_hash, digest, before)
            self._events.append(row)
            before, seq = None, seq + 1
        if write.summary is not None:
            row = tuple(getattr(write.summary, name) for name in _SUMMARY_FIELDS)
            self._tasks[write.log] = (write.log, *row[1:], seq - 1, placed.digests[-1])
        for blob in write.blobs:
            self._blobs[blob.hash] = blob.data
            self._uses.add((blob.hash, write.log))
        if write.snapshot is not None:
            one: Snapshot = write.snapshot
            self._snapshots[write.log] = (write.log, one.seq, one.digest, one.version, one.at_us, one.body)

    def statement(self, snapshots_kept: int) -> tuple[LiteralString, dict[str, Any]]:
        """The shortest statement that writes all of it, and its parameters."""
        found: dict[str, Any] = {"names": Texts(self._names), **_arrays(_EVENTS, self._events)}
        beside = self._logs or self._snapshots or self._blobs or self._takes or self._frees
        if not beside and not self._tasks:
            return q.APPEND_EVENTS, found
        found |= _arrays(_TASKS, self._tasks.values())
        if not beside:
            return q.APPEND_WITH_TASKS, found
        found |= _arrays(_LOGS, self._logs.values()) | _arrays(_SNAPSHOTS, self._snapshots.values())
        found |= _arrays(_BLOBS, ((bytes.fromhex(hash), self._blobs[hash]) for hash in sorted(self._blobs)))
        found |= _arrays(_USES, ((bytes.fromhex(hash), log) for hash, log in sorted(self._uses)))
        takes = ((take.key, take.log, take.step, take.input_hash) for take in self._takes.values())
        found |= _arrays(_TAKES, takes)
        return q.APPEND, {**found, "frees": Texts(self._frees), "keep": snapshots_kept}


def plan(groups: Sequence[Group], seen: Seen) -> tuple[list[Outcome], Batch] | None:
    """What becomes of each group, and the rows of those that may be written. None if one statement cannot do it."""
    batch, outcomes = Batch(), list[Outcome]()
    for group in groups:
        outcome = decide(group, seen)
        if isinstance(outcome, tuple) and not batch.add(group, outcome):
            return None
        outcomes.append(outcome)
    return outcomes, batch


def decide(group: Group, seen: Seen) -> Outcome:
    """Where a group goes, or why it may not be written; what is known moves on with it."""
    places: list[Placed] = []
    heads: dict[str, Head] = {}
    for write in group.writes:
        head = _expected(write, seen, heads)
        if isinstance(head, Conflict):
            return head
        placed = place(head, write.drafts)
        heads[write.log] = Head(head.seq + len(write.drafts), placed.digests[-1]) if write.drafts else head
        places.append(placed)
    for take in group.takes:
        owner = seen.owners.get(take.key)
        if owner is not None and take.key not in group.frees:
            return KeyTaken(take.key, owner.log, owner.step)
    seen.heads |= heads
    for key in group.frees:
        seen.owners.pop(key, None)
    seen.owners |= {take.key: take for take in group.takes}
    return tuple(places)


def _expected(write: Write, seen: Seen, moved: dict[str, Head]) -> Head | Conflict:
    """The head a write follows, if it is the one it expects."""
    head, wanted = moved.get(write.log) or seen.heads.get(write.log), write.expect
    if write.origin is not None:
        assert wanted is not None, "a new log says what its chain begins with"
        parent = write.origin.parent
        if head is not None or write.log in seen.gone or (parent is not None and parent not in seen.parents):
            return Conflict(write.log, 0, head and head.seq)
        return wanted
    if head is None or (wanted is not None and wanted != head):
        return Conflict(write.log, wanted and wanted.seq, head and head.seq)
    return head


def names_in(groups: Iterable[Group]) -> list[str]:
    """The logs that must stand still while groups are decided: those written to, and the parents of new ones."""
    names: set[str] = set()
    for write in (write for group in groups for write in group.writes):
        names.add(write.log)
        if write.origin is not None and write.origin.parent is not None:
            names.add(write.origin.parent)
    return sorted(names)


def last_places(group: Group, places: Sequence[Placed]) -> dict[tuple[str, int], bytes]:
    """The last event of every log of a group: if its digest is there, all before it is too."""
    found: dict[tuple[str, int], bytes] = {}
    for write, placed in zip(group.writes, places, strict=True):
        if placed.digests:
            found[write.log, placed.first + len(placed.digests) - 1] = placed.digests[-1]
    return found


def to_summary(row: tuple[Any, ...]) -> Summary:
    return Summary(**dict(zip(_SUMMARY_FIELDS, row, strict=True)))


def _arrays(columns: Columns, rows: Iterable[tuple[Any, ...]]) -> dict[str, Array]:
    """Rows turned into one array a column."""
    turned = list(zip(*rows, strict=True)) or [()] * len(columns)
    return {name: kind(values) for (name, kind), values in zip(columns, turned, strict=True)}

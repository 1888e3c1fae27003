"""Between PostgreSQL's rows and our records: which groups of a batch may be written, and the statement that does it.

`Seen` is what is known of the logs a batch writes to: looked up under a lock, or taken on trust from what the groups
expect, in which case the statement itself fails where it is wrong. `plan` decides every group against it, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, LiteralString, get_args, get_type_hints

from psycopg.types.numeric import Int8

from holdfast.core.codec import Erasure, Group, Head, LogCut, Origin, Snapshot, Summary, UniqueKey, Write
from holdfast.store import columns
from holdfast.store.acceptance import decide
from holdfast.store.postgres.server import queries as q
from holdfast.store.postgres.server.connections import Question
from holdfast.store.postgres.server.statements import Array, Bools, Bytes, Floats, Ints, Texts
from holdfast.store.protocol import Outcome, Placed

Columns = tuple[tuple[str, type[Array]], ...]

_EVENTS: Columns = (
    *(("event_logs", Texts), ("seqs", Ints), ("kinds", Texts), ("ats", Ints), ("bodies", Bytes)),
    *(("body_hashes", Bytes), ("digests", Bytes)),
)
_ARRAYS: dict[Any, type[Array]] = {str: Texts, int: Ints, float: Floats, bool: Bools}


def _array_of(field: str) -> type[Array]:
    """Return the array for a field of `Summary`: of text for `str`, `str | None` and `tuple[str, ...]`."""
    hint = _HINTS[field]
    return _ARRAYS[(get_args(hint) or (hint,))[0]]


_HINTS = get_type_hints(Summary)
_TASKS: Columns = (
    ("id", Texts),
    *((column, _array_of(field)) for column, field in zip(columns.COLUMNS, columns.FIELDS, strict=True)),
)
_MOVES: Columns = (
    *(("names", Texts), ("old_seqs", Ints), ("old_digests", Bytes), ("new_seqs", Ints), ("new_digests", Bytes)),
)
_LOGS: Columns = (
    *(("new_logs", Texts), ("parents", Texts), ("bases", Ints), ("made_seqs", Ints), ("made_digests", Bytes)),
)
_SNAPSHOTS: Columns = (
    *(("shot_logs", Texts), ("shot_seqs", Ints), ("shot_digests", Bytes), ("versions", Ints)),
    *(("shot_ats", Ints), ("shots", Bytes)),
)
_BLOBS: Columns = (("hashes", Bytes), ("datas", Bytes))
_USES: Columns = (("use_hashes", Bytes), ("use_logs", Texts))
_TAKES: Columns = (("keys", Texts), ("take_logs", Texts), ("steps", Texts), ("inputs", Texts))


class Seen:
    """What is known of the logs and keys that a batch is about."""

    def __init__(self) -> None:
        self.heads: dict[str, Head] = {}
        self.bases: dict[str, int] = {}
        self.gone: dict[str, Head] = {}
        self.parents: set[str] = set()
        self.owners: dict[str, UniqueKey] = {}

    def head(self, log: str) -> Head | None:
        return self.heads.get(log)

    def base(self, log: str) -> int | None:
        return self.bases.get(log)

    def name(self, log: str) -> tuple[bool, Head | None]:
        return log in self.heads or log in self.parents, self.gone.get(log)

    def owner(self, key: str) -> UniqueKey | None:
        return self.owners.get(key)

    def advance(self, group: Group, places: Sequence[Placed]) -> None:
        """Know what a group will have written, for the groups after it."""
        for write, placed in zip(group.writes, places, strict=True):
            head = placed.head or self.heads.get(write.log) or write.expect
            assert head is not None, "a group that was decided has a head to follow"
            self.heads[write.log] = head
        for key in group.freed_keys:
            self.owners.pop(key, None)
        self.owners |= {take.key: take for take in group.unique_keys}

    @classmethod
    def trusting(cls, groups: Sequence[Group]) -> Seen | None:
        """Return the conditions under which the groups may be written; None if that must be looked up."""
        seen, made = cls(), set[str]()
        if any(group.removes for group in groups):
            return None
        for write in (write for group in groups for write in group.writes):
            if not write.drafts:
                return None
            if write.origin is not None:
                if write.origin.parent is None and write.origin.at > 0:
                    return None  # it continues where another ended, and the statement cannot compare the digest there
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
        self._logs: dict[str, Origin] = {}
        self._tasks: dict[str, tuple[Any, ...]] = {}
        self._snapshots: dict[str, tuple[Any, ...]] = {}
        self._blobs: dict[str, bytes] = {}
        self._uses: set[tuple[str, str]] = set()
        self._takes: dict[str, UniqueKey] = {}
        self._frees: set[str] = set()
        self._erasures: list[Erasure] = []
        self._cuts: list[LogCut] = []
        self._olds: dict[str, Head] = {}
        self._heads: dict[str, Head] = {}

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to write."""
        beside = self._logs or self._tasks or self._snapshots or self._blobs or self._takes or self._frees
        return not (self._events or beside or self._erasures or self._cuts)

    def add(self, group: Group, places: Sequence[Placed], olds: Mapping[str, Head]) -> bool:
        """Gather a group, given the heads before it. Says no to what one statement cannot do.

        That is to free what it takes, to keep two snapshots of one log, or to write to a log after something of it
        was removed: removals come last, and would take large values with them that the write refers to.
        """
        if any(key in self._takes for key in group.freed_keys):
            return False
        shortened = {one.log for one in self._erasures} | {cut.stone.log for cut in self._cuts}
        if shortened and any(write.log in shortened for write in group.writes):
            return False
        for write in group.writes:
            if write.snapshot is not None and write.log in self._snapshots:
                return False
        self._frees.update(group.freed_keys)
        self._takes.update((take.key, take) for take in group.unique_keys)
        self._erasures += group.erasures
        self._cuts += group.cuts
        for write, placed in zip(group.writes, places, strict=True):
            before = write.expect if write.origin is not None else olds.get(write.log) or self._heads.get(write.log)
            assert before is not None, "a group that was decided has a head to follow"
            self._add(write, before, placed)
        return True

    def _add(self, write: Write, before: Head, placed: Placed) -> None:
        if write.origin is not None:
            self._logs[write.log] = write.origin
        elif write.log not in self._logs:
            self._olds.setdefault(write.log, before)
        seq = placed.first
        for draft, digest in zip(write.drafts, placed.digests, strict=True):
            row = (write.log, seq, draft.kind, draft.at_us, draft.body, draft.body_hash, digest)
            self._events.append(row)
            seq += 1
        self._heads[write.log] = placed.head or self._heads.get(write.log, before)
        if write.summary is not None:
            self._tasks[write.log] = (write.log, *columns.to_row(write.summary))
        for blob in write.blobs:
            self._blobs[blob.hash] = blob.data
            self._uses.add((blob.hash, write.log))
        if write.snapshot is not None:
            one: Snapshot = write.snapshot
            self._snapshots[write.log] = (write.log, one.seq, one.digest, one.version, one.at_us, one.body)

    def statements(self, snapshots_kept: int) -> list[Question]:
        """All that is to be done, in order: the statement that writes, if there is anything to write, then removals."""
        writes = self._events or self._logs or self._tasks or self._snapshots or self._blobs
        found: list[Question] = []
        if writes or self._takes or self._frees:
            found.append(self.statement(snapshots_kept))
        for one in self._erasures:
            place: dict[str, Any] = {"name": one.log, "seq": Int8(one.seq)}
            found.append((q.ERASE_WITH, {**place, "by": one.by, "why": one.why, "at": Int8(one.at_us)}))
            found.append((q.ERASE_BODY_WITH, place))
            found += _released(one.log, one.blobs)
        for cut in self._cuts:
            stone = cut.stone
            place = {"name": stone.log, "seq": Int8(stone.seq)}
            found.append((q.CUT_WITH, {**place, "digest": stone.digest, "at": Int8(stone.at_us), "why": stone.why}))
            for text in (q.CUT_EVENTS, q.CUT_ERASURES, q.CUT_BASE):
                found.append((text, place))
            found += _released(stone.log, cut.blobs)
        return found

    def statement(self, snapshots_kept: int) -> tuple[LiteralString, dict[str, Any]]:
        """The shortest statement that writes all of it, and its parameters."""
        found: dict[str, Any] = _arrays(_EVENTS, self._events)
        beside = self._snapshots or self._blobs or self._takes or self._frees
        if self._olds or beside:
            moves = ((log, old, self._heads[log]) for log, old in self._olds.items())
            found |= _arrays(_MOVES, ((log, old.seq, old.digest, new.seq, new.digest) for log, old, new in moves))
        if not (beside or self._logs or self._tasks):
            return q.APPEND_EVENTS, found
        found |= _arrays(_TASKS, self._tasks.values())
        if not (beside or self._logs):
            return q.APPEND_WITH_TASKS, found
        made = ((log, one.parent, one.at, self._heads[log]) for log, one in self._logs.items())
        found |= _arrays(_LOGS, ((log, parent, at, head.seq, head.digest) for log, parent, at, head in made))
        if not (beside or self._olds):
            return q.CREATE, found
        found |= _arrays(_SNAPSHOTS, self._snapshots.values())
        found |= _arrays(_BLOBS, ((bytes.fromhex(hash), self._blobs[hash]) for hash in sorted(self._blobs)))
        found |= _arrays(_USES, ((bytes.fromhex(hash), log) for hash, log in sorted(self._uses)))
        keys = ((take.key, take.log, take.step, take.input_hash) for take in self._takes.values())
        found |= _arrays(_TAKES, keys)
        return q.APPEND, {**found, "frees": Texts(self._frees), "keep": snapshots_kept}


def _released(log: str, hashes: Iterable[str]) -> list[Question]:
    """Build the statements that drop large values which no other log refers to."""
    found: list[Question] = []
    for hash in map(bytes.fromhex, sorted(hashes)):
        found.append((q.RELEASE_BLOB, {"name": log, "hash": hash}))
        found.append((q.LOCK_BLOB, {"hash": hash}))
        found.append((q.DROP_UNUSED_BLOB, {"hash": hash}))
    return found


def plan(groups: Sequence[Group], seen: Seen) -> tuple[list[Outcome], Batch] | None:
    """Decide each group, and build the rows of those that may be written. None if one statement can't do it."""
    batch, outcomes = Batch(), list[Outcome]()
    for group in groups:
        olds = {write.log: seen.heads[write.log] for write in group.writes if write.log in seen.heads}
        outcome = decide(group, seen)
        if isinstance(outcome, tuple):
            seen.advance(group, outcome)
            if not batch.add(group, outcome, olds):
                return None
        outcomes.append(outcome)
    return outcomes, batch


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


def is_cut(group: Group, seen: Seen) -> bool:
    """Return whether all that a group removes from beginnings of logs is gone, up to its very tombstones."""
    stones = [cut.stone for cut in group.cuts]
    return bool(stones) and all(seen.gone.get(one.log) == Head(one.seq, one.digest) for one in stones)


def _arrays(columns: Columns, rows: Iterable[tuple[Any, ...]]) -> dict[str, Array]:
    """Rows turned into one array a column."""
    turned = list(zip(*rows, strict=True)) or [()] * len(columns)
    return {name: kind(values) for (name, kind), values in zip(columns, turned, strict=True)}

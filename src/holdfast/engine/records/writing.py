"""Appending records: compare-and-append to one key or to several, all or nothing.

Without `expect`, records go to the head of their key, wherever that is: first after the head that this process knows,
which is one statement, then, if others wrote meanwhile, after whatever is there. With it they follow that very seq, or
nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from holdfast.core import codec, limits
from holdfast.core.codec import Blob, Draft, Group, Head, Origin, Write
from holdfast.core.errors import Conflict, Diverged
from holdfast.engine.logs.logs import Logs
from holdfast.store.protocol import Placed


class Addition(Struct, frozen=True):
    """Records for one log, ready to be written."""

    log: str
    drafts: tuple[Draft, ...]
    blobs: tuple[Blob, ...] = ()
    expect: int | None = None


class RecordWriter:
    """What appends to logs of records."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self.heads = logs.record_heads

    def append(self, additions: Sequence[Addition]) -> list[int]:
        """Write all of it or nothing; gives the first seq of each. Conflict if an `expect` is not the head."""
        looks = False
        head = self._short(additions)
        if head is not None:
            try:
                return [self._append_one(additions[0], head)]
            except Conflict:
                looks = True
        for tries in range(1, limits.MAX_APPEND_TRIES + 1):
            writes = tuple(self._write(one, looks=looks) for one in additions)
            try:
                placed = self._logs.committer.commit(Group(writes))
            except Conflict:
                if tries == limits.MAX_APPEND_TRIES:
                    raise
                looks = True
                continue
            self.accept(writes, placed)
            return [one.first for one in placed]
        raise AssertionError("the loop ends by itself")

    def _short(self, additions: Sequence[Addition]) -> Head | None:
        """The head that a single record follows, if it brings nothing else along and the head is known."""
        one = additions[0]
        if len(additions) != 1 or len(one.drafts) != 1 or one.blobs:
            return None
        head = self.heads.get(one.log)
        return head if head is not None and one.expect in (None, head.seq) else None

    def _append_one(self, one: Addition, head: Head) -> int:
        digest = self._logs.committer.commit_event(one.log, head, one.drafts[0])
        self.heads.remember(one.log, Head(head.seq + 1, digest))
        return head.seq + 1

    def _write(self, one: Addition, *, looks: bool) -> Write:
        """Build the write: after a known head unless it `looks`, at the head, or as the start of a log."""
        known = self.heads.get(one.log)
        if known is not None and not looks and one.expect in (None, known.seq):
            return Write(one.log, one.drafts, known, blobs=one.blobs)
        head = self.head(one.log)
        if one.expect is not None and one.expect != (0 if head is None else head.seq):
            raise Conflict.of_records(one.log, one.expect, None if head is None else head.seq)
        if head is None:
            start = self._start(one.log)
            return Write(one.log, one.drafts, start, Origin(None, start.seq), blobs=one.blobs)
        anywhere = looks and one.expect is None
        return Write(one.log, one.drafts, None if anywhere else head, blobs=one.blobs)

    def head(self, log: str) -> Head | None:
        """The head of a log as it is now; Diverged, once, if records that were acknowledged here are gone."""
        known, head = self.heads.get(log), self._logs.store.head(log)
        if head is not None and (known is None or head.seq >= known.seq):
            return head
        if known is not None:
            self.heads.forget(log)
            left = self._start(log).seq if head is None else head.seq
            if left < known.seq:
                raise Diverged.of_records(log, known.seq, left)
        return head

    def _start(self, log: str) -> Head:
        """Return the digest before the first record of a new key: from its name, or from the rest of a dropped one."""
        stone = self._logs.store.tombstone(log)
        return Head(0, codec.genesis(log)) if stone is None else Head(stone.seq, stone.digest)

    def accept(self, writes: Sequence[Write], placed: Sequence[Placed]) -> None:
        """Keep in mind how far logs have come."""
        for write, where in zip(writes, placed, strict=True):
            if where.digests:
                self.heads.remember(write.log, Head(where.first + len(where.digests) - 1, where.digests[-1]))

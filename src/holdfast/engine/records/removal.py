"""Taking records away: the newest, some, the oldest, or all of a key. The chain of what stays still verifies.

An erased record leaves its place and its hash, and the log says that it was erased. A trimmed beginning, and a dropped
key, leave a tombstone: how far it is gone, and the digest there. Each is decided on what was read at one head, and
written after that head, so that no large value goes that a newer record refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from msgspec.structs import replace

from holdfast.core import codec, limits
from holdfast.core.codec import Erasure, Group, Head, LogCut, Stored, Tombstone, Write
from holdfast.core.errors import Conflict, StoreBusy
from holdfast.core.names import RECORDS
from holdfast.engine.logs import record_logs
from holdfast.engine.logs.log import DAMAGED
from holdfast.engine.logs.logs import Logs
from holdfast.engine.records.writing import RecordWriter
from holdfast.engine.system.entropy import random_hex

T = TypeVar("T")


def newest_first(logs: Logs, log: str, *, after: int = 0, upto: int | None = None, count: int) -> Iterator[Stored]:
    """Rows of records that can be read, newest first; `count` is about how many will be asked for.

    Rows of erased ones lie between them, perhaps many: so each page is larger than the one before.
    """
    size = max(1, min(count, limits.READ_CHUNK))
    while rows := logs.store.read(log, after=after, upto=upto, last=size):
        yield from (row for row in reversed(rows) if codec.is_live(row))
        if len(rows) < size:
            return
        upto, size = rows[0].seq - 1, min(2 * size, limits.READ_CHUNK)


def oldest_first(logs: Logs, log: str, *, after: int = 0, upto: int | None = None, count: int) -> Iterator[Stored]:
    """The same, oldest first."""
    size = max(1, min(count, limits.READ_CHUNK))
    while rows := logs.store.read(log, after=after, upto=upto, limit=size):
        yield from (row for row in rows if codec.is_live(row))
        if len(rows) < size:
            return
        after, size = rows[-1].seq, min(2 * size, limits.READ_CHUNK)


class RecordRemover:
    """What takes records away."""

    def __init__(self, logs: Logs, writer: RecordWriter) -> None:
        self._logs = logs
        self._writer = writer

    def pop(self, log: str, expect: int | None, read: Callable[[Stored], T]) -> T | None:
        """Erase the newest record and give what `read` made of it before that; None if there is none."""

        def decide(head: Head) -> tuple[list[Stored], T | None]:
            for row in newest_first(self._logs, log, upto=head.seq, count=1):
                return [row], read(row)
            return [], None

        return self._erase(log, decide, expect, by="", why="popped")

    def erase(self, log: str, seqs: Collection[int] | None, *, by: str, why: str, user: str | None = None) -> int:
        """Erase records: those of `seqs`, or all, or all of a user; gives how many. Many go in several groups."""
        wanted = None if seqs is None else frozenset(seqs)
        first, last = (0, None) if wanted is None else (min(wanted) - 1, max(wanted))
        erased = 0
        while True:

            def decide(head: Head, first: int = first) -> tuple[list[Stored], list[Stored]]:
                upto = head.seq if last is None else min(last, head.seq)
                rows = oldest_first(self._logs, log, after=first, upto=upto, count=limits.READ_CHUNK)
                found = (row for row in rows if (wanted is None or row.seq in wanted) and _is_of(row, user))
                page = list(islice(found, limits.PAGE_SIZE))
                return page, page

            gone = self._erase(log, decide, None, by=by, why=why)
            if not gone:
                return erased
            erased, first = erased + len(gone), gone[-1].seq

    def _erase(
        self, log: str, decide: Callable[[Head], tuple[list[Stored], T]], expect: int | None, *, by: str, why: str
    ) -> T | None:
        """Erase what is decided on at the head, and say so in the log; None if the key is not there."""

        def group(head: Head) -> tuple[Group | None, T]:
            rows, answer = decide(head)
            if not rows:
                return None, answer
            at_us, seqs = self._logs.clock.now_us(), {row.seq for row in rows}
            every = record_logs.rows_of(self._logs.store, log, upto=head.seq)
            hashes = record_logs.hashes_of(log, rows)
            unused = record_logs.unused(log, hashes, (row for row in every if row.seq not in seqs))
            *most, last = (Erasure(log, row.seq, by, why, at_us) for row in rows)
            said = codec.draft_erased(sorted(seqs), random_hex(8), at_us)
            erasures = (*most, replace(last, blobs=unused))  # which of them had a value does not matter: all go at once
            return Group((Write(log, (said,), head),), erasures=erasures), answer

        return self._change(log, group, expect)

    def trim(self, log: str, keep: int, expect: int | None) -> int:
        """Remove the oldest records beyond the newest `keep`, which are one or more; gives how many they were."""

        def group(head: Head) -> tuple[Group | None, int]:
            last, count, hashes = self._beginning(log, head, keep)
            if last is None:
                return None, 0
            stone = Tombstone(log, last.seq, last.digest, self._logs.clock.now_us(), "trimmed")
            stays = record_logs.rows_of(self._logs.store, log, after=last.seq, upto=head.seq)
            cut = LogCut(stone, record_logs.unused(log, hashes, stays))
            return Group((Write(log, (), head),), cuts=(cut,)), count

        return self._change(log, group, expect) or 0

    def _beginning(self, log: str, head: Head, keep: int) -> tuple[Stored | None, int, set[str]]:
        """The last row of what goes, how many records it is, and what they refer to. Rows are not kept in memory."""
        oldest = next(islice(newest_first(self._logs, log, upto=head.seq, count=keep), keep - 1, None), None)
        last, count, hashes = None, 0, set[str]()
        for row in record_logs.rows_of(self._logs.store, log, upto=0 if oldest is None else oldest.seq - 1):
            last, count = row, count + codec.is_live(row)
            hashes |= record_logs.hashes_of(log, (row,))
        return last, count, hashes

    def drop(self, log: str, expect: int | None, why: str) -> bool:
        """Remove all of a key; gives whether it was there. Its name is free then."""
        for _ in range(limits.MAX_APPEND_TRIES):
            head = self._expected(log, expect)
            if head is None:
                return False
            if self._logs.store.remove([Tombstone(log, head.seq, head.digest, self._logs.clock.now_us(), why)]):
                self._writer.heads.forget(log)
                self._logs.forget(())
                return True
        raise StoreBusy(f"others kept writing to {log!r} while it was dropped; nothing was removed", hint="try again")

    def _expected(self, log: str, expect: int | None) -> Head | None:
        """The head of a log; Conflict if another one was expected."""
        head = self._writer.head(log)
        if expect is not None and expect != (0 if head is None else head.seq):
            raise Conflict.of_records(log, expect, None if head is None else head.seq)
        return head

    def _change(self, log: str, decide: Callable[[Head], tuple[Group | None, T]], expect: int | None) -> T | None:
        """Write what is decided on at the head. If the log moves at either end meanwhile, decide again.

        If a head was expected, only the one that is there may be that.
        """
        for tries in range(1, limits.MAX_APPEND_TRIES + 1):
            origin = self._logs.store.origin(log)  # before the head: rows that are read lie between the two
            head = self._expected(log, expect)
            if head is None or origin is None:
                return None
            try:
                group, answer = decide(head)
            except DAMAGED:
                if (self._logs.store.origin(log), self._logs.store.head(log)) == (origin, head):
                    raise
                continue  # what it looked at went meanwhile
            if group is None:
                return answer
            writes = tuple(replace(write, base=origin.at) for write in group.writes)
            try:
                placed = self._logs.committer.commit(replace(group, writes=writes))
            except Conflict:
                if tries == limits.MAX_APPEND_TRIES:
                    raise
                continue
            self._writer.accept(group.writes, placed)
            self._logs.forget(())
            return answer
        raise StoreBusy(f"others kept changing {log!r}; nothing was removed", hint="try again")


def _is_of(row: Stored, user: str | None) -> bool:
    return user is None or (row.body is not None and codec.read_record(row.body)[0].user == user)


def erase_of_user(logs: Logs, user: str, *, by: str, why: str) -> int:
    """Erase what was appended for a user, in every space; gives how many records that were."""
    remover = RecordRemover(logs, RecordWriter(logs))
    return sum(remover.erase(log, None, by=by, why=why, user=user) for log in record_log_names(logs))


def record_log_names(logs: Logs) -> Iterable[str]:
    """The logs of all records."""
    after: str | None = None
    while names := logs.store.logs(prefix=RECORDS, after=after, limit=limits.READ_CHUNK):
        yield from names
        after = names[-1]

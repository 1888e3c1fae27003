"""A store in one SQLite file: any number of threads and processes, no server.

One connection writes, under a lock; readers borrow theirs from a small pool and never wait for it. A guard keeps
processes apart, and the files whole: see `file_guard`.
With `durability="full"` an acknowledged event survives power loss; with `"process"` it survives the process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from holdfast.core import codec, limits, names
from holdfast.core.codec import Blob, Draft, Group, Head, Origin, Snapshot, Stored, Summary, UniqueKey, Write
from holdfast.core.errors import Conflict, LogCorrupt, StoreClosed, StoreError, StorePoisoned, TaskNotFound
from holdfast.failpoints import failpoint
from holdfast.store import protocol
from holdfast.store.acceptance import decide
from holdfast.store.columns import to_summary
from holdfast.store.protocol import Erasure, Generation, Outcome, Placed, Query, Stats, Tombstone, Work
from holdfast.store.queues import Loss
from holdfast.store.sqlite import queries as q, rows as shapes
from holdfast.store.sqlite.chunks import SqliteChunks
from holdfast.store.sqlite.file import Durability, connect, copy_to, fetch_all, fetch_one, prepare, translated
from holdfast.store.sqlite.file_guard import FileGuard, GuardedReader, NoGuard, UnguardedReader
from holdfast.store.sqlite.guard import run_guarded
from holdfast.store.sqlite.presence import FilePresence
from holdfast.store.sqlite.queues import SqliteQueues

_IDLE_READERS, _KNOWN_LOGS = 8, 100_000
_ERASE_SECONDS = 2.0

Reader = GuardedReader | UnguardedReader


class SqliteStore:
    """Logs in one file."""

    lease_seconds = limits.LEASE_SECONDS
    _prepare = staticmethod(prepare)

    def __init__(
        self,
        path: str,
        *,
        durability: Durability = "full",
        at_us: int = 0,
        snapshots_kept: int = limits.SNAPSHOTS_KEPT,
        vfs: str | None = None,
        exclusive: bool = False,
    ) -> None:
        """`vfs` and `exclusive` are for tests that put a faulty file system underneath."""
        self.path = os.path.realpath(path)
        self.url = "sqlite:///" + self.path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        self.durability: Durability = durability
        self.always_waits = durability == "full"
        self._snapshots_kept = snapshots_kept
        self._exclusive = exclusive
        self._lock = threading.RLock()
        self._pool = threading.Lock()
        self._inside = False
        self._born = Generation.now
        self._numbers: dict[str, int] = {}
        self._begun: dict[str, int] = {}
        """Numbers of logs that the open transaction has begun: wrong if it fails."""
        self._readers: list[Reader] = []
        self._poison: StorePoisoned | None = None
        self._presence: FilePresence | None = None
        opened = self._prepare(self.path, durability, vfs=vfs, exclusive=exclusive, at_us=at_us)
        self._writer: apsw.Connection | None = opened.writer
        self._guard: FileGuard | NoGuard = opened.guard
        self._cursor = opened.writer.cursor()
        self._standing = shapes.WriterStanding(opened.writer, self._number)
        ways = (self._changing, self._reading, self._append_group)
        self.queues = SqliteQueues(*ways, self.path, self.holder, self.alive)
        self.chunks = SqliteChunks(self._changing, self._reading)

    # Writing

    def append(self, groups: Sequence[Group]) -> list[Outcome]:
        failpoint("append.before")
        with self._turn() as writer:
            try:
                several = len(groups) > 1 and any(map(shapes.is_plain, groups))
                done = self._append_together(writer, groups) if several else self._append_groups(writer, groups)
            except apsw.Error as error:
                raise self._failed(error) from error
        failpoint("append.after")
        return done

    def append_at_once(self, group: Group) -> Outcome | None:
        """Write without a sync: `process` asks for none. Not while others write, nor when a checkpoint is due."""
        self._refuse_after_fork()
        if self.always_waits or not self._lock.acquire(blocking=False):
            return None
        try:
            writer, guard = self._writable(), self._guard
            try:
                if not guard.begin_at_once():
                    return None
                failpoint("append.before")
                done = self._append_one(writer, group)
                guard.check()
            except apsw.Error as error:
                raise self._failed(error) from error
            finally:
                guard.end(writer, can_wait=False)
        finally:
            self._lock.release()
        failpoint("append.after")
        return done

    def _append_one(self, writer: apsw.Connection, group: Group) -> Outcome:
        """A single plain event in one statement, anything else in a transaction."""
        write = group.writes[0]
        if len(write.drafts) != 1 or write.expect is None or not shapes.is_plain(group):
            return self._append_groups(writer, (group,))[0]
        try:
            digest = self._insert_event(writer, write.log, write.expect, write.drafts[0])
        except apsw.ConstraintError as error:
            return self._refused(writer, write.log, write.expect, error)
        return (Placed(write.expect.seq + 1, (digest,)),)

    def append_event(self, log: str, expect: Head, draft: Draft) -> bytes | Conflict:
        """One statement that commits by itself, and writes nothing unless the head is there with its digest."""
        if self._born != Generation.now:
            raise self._closed()
        with self._lock:
            writer, guard = self._writable(), self._guard
            failpoint("append.before")
            try:  # what `_turn` does, without the cost of a context manager
                guard.begin()
                digest = self._insert_event(writer, log, expect, draft)
                guard.check()
            except apsw.ConstraintError as error:
                return self._refused(writer, log, expect, error)
            except apsw.Error as error:
                raise self._failed(error) from error
            finally:
                guard.end(writer)
        failpoint("append.after")
        return digest

    def _insert_event(self, writer: apsw.Connection, log: str, expect: Head, draft: Draft) -> bytes:
        number, seq = self._numbers.get(log), expect.seq + 1
        digest = codec.chain(expect.digest, seq, draft.kind, draft.at_us, draft.body_hash)
        query, place = q.INSERT_EVENT_AFTER, number
        if number is None:  # it is remembered after this, or never: see `_number`
            again = names.begins_again(log)
            query, place = (q.INSERT_EVENT_AFTER_BY_NAME, log) if again else (query, self._number(writer, log))
        row = (place, seq, draft.kind, draft.at_us, draft.body, draft.body_hash, digest, expect.digest)
        failpoint("commit.before")
        self._cursor.execute(query, row)
        failpoint("commit.after")
        return digest

    def _refused(self, writer: apsw.Connection, log: str, expect: Head, error: apsw.Error) -> Conflict:
        head = fetch_one(writer, q.HEAD, (self._number(writer, log),))
        if head == (expect.seq, expect.digest):  # not the head, then, but the file itself
            raise LogCorrupt(log, expect.seq + 1, f"the file refuses it: {error}") from error
        return Conflict(log, expect.seq, head and head[0])

    def transact(self, log: str, expect: Head, work: Work, seconds: float | None = None) -> Outcome:
        """The head is checked under the file's write lock: nothing can move between that and the commit."""
        failpoint("append.before")
        with self._turn() as writer:
            try:
                self._inside = True
                done = self._transact(writer, Group((Write(log, (), expect),)), work, seconds)
            finally:
                self._inside = False
                with self._translated():
                    if writer.in_transaction:
                        writer.execute("rollback")
        failpoint("append.after")
        return done

    def _transact(self, writer: apsw.Connection, after: Group, work: Work, seconds: float | None) -> Outcome:
        """Leave the transaction open unless all is well. Only errors of our own statements are translated."""
        with self._translated():
            self._begun.clear()
            writer.execute("begin immediate")
            held = decide(after, self._standing)
            if not isinstance(held, tuple):
                return held
            highest = fetch_one(writer, q.HIGHEST_NUMBER)
        group = run_guarded(writer, work, seconds)
        with self._translated():
            if fetch_one(writer, q.HIGHEST_NUMBER) != highest:
                raise StoreError("the transaction changed the numbering of logs", hint="leave sqlite_sequence alone")
            done = self._append_group(writer, group)
            if isinstance(done, tuple):
                failpoint("commit.before")
                writer.execute("commit")
                failpoint("commit.after")
                self._remember_begun()
            return done

    def _append_together(self, writer: apsw.Connection, groups: Sequence[Group]) -> list[Outcome]:
        """Plain events of many logs in one statement; if one conflicts, each group is seen to by itself."""
        rows = shapes.RowBatch()
        done: dict[int, Outcome] = {}
        for index, group in enumerate(groups):
            if shapes.is_plain(group):
                write = group.writes[0]
                done[index] = (rows.add(self._number(writer, write.log), write),)
        bindings = rows.bindings()
        try:
            if len(done) == len(groups):
                failpoint("commit.before")
                writer.execute(q.INSERT_EVENTS_AFTER, bindings)
                failpoint("commit.after")
            else:
                with self._transaction(writer):
                    writer.execute(q.INSERT_EVENTS_AFTER, bindings)
                    for index, group in enumerate(groups):
                        if index not in done:
                            done[index] = self._append_group(writer, group)
        except apsw.ConstraintError:
            return self._append_groups(writer, groups)
        return [done[index] for index in range(len(groups))]

    def _append_groups(self, writer: apsw.Connection, groups: Sequence[Group]) -> list[Outcome]:
        with self._transaction(writer):
            return [self._append_group(writer, group) for group in groups]

    def _append_group(self, writer: apsw.Connection, group: Group) -> Outcome:
        """Check everything, then write everything: a group that conflicts leaves no trace in the transaction."""
        places = decide(group, self._standing)
        if not isinstance(places, tuple):
            return places
        for key in group.freed_keys:
            writer.execute(q.FREE, (key,))
        for take in group.unique_keys:
            writer.execute(q.TAKE, (take.key, take.log, take.step, take.input_hash))
        for write, placed in zip(group.writes, places, strict=True):
            self._write(writer, write, placed)
        if group.removes:
            shapes.remove_parts(writer, lambda log: self._number(writer, log), group)
        return places

    def _write(self, writer: apsw.Connection, write: Write, placed: Placed) -> None:
        if write.origin is not None:
            made = {"name": write.log, "parent": write.origin.parent, "base": write.origin.at}
            writer.execute(q.INSERT_LOG, made)
            self._begun[write.log] = writer.last_insert_rowid()
        shapes.insert(writer, self._number(writer, write.log), write, placed, snapshots_kept=self._snapshots_kept)

    def _number(self, connection: apsw.Connection, log: str) -> int | None:
        number = self._numbers.get(log)
        if number is None and connection is self._writer and connection.in_transaction:
            number = self._begun.get(log)
        if number is None:
            row = fetch_one(connection, q.LOG_NUMBER, (log,))
            if row is None:
                return None
            number = row[0]
            self._remember(log, number)
        return number

    def _remember(self, log: str, number: int) -> None:
        """Remember the number of a task, whose id is used once.

        Another process may remove the log of records, of a thread or of a user, and give its name to a log of another
        number. What is written under a number that is gone would be lost.
        """
        if not names.begins_again(log):
            if len(self._numbers) >= _KNOWN_LOGS:
                self._numbers.clear()
            self._numbers[log] = number

    def _remember_begun(self) -> None:
        """After a commit: the numbers of the logs that were begun are settled."""
        for log, number in self._begun.items():
            self._remember(log, number)
        self._begun.clear()

    @contextmanager
    def _transaction(self, writer: apsw.Connection) -> Generator[None, None, None]:
        # A signal may arrive right after a call: begin belongs inside, or a transaction could stay open unnoticed.
        self._begun.clear()
        try:
            writer.execute("begin immediate")
            yield
            failpoint("commit.before")
            writer.execute("commit")
        finally:
            if writer.in_transaction:
                writer.execute("rollback")
        failpoint("commit.after")
        self._remember_begun()

    @contextmanager
    def _changing(self) -> Generator[apsw.Connection, None, None]:
        """A transaction for the rarer writes."""
        with self._turn() as writer, self._translated(), self._transaction(writer):
            yield writer

    @contextmanager
    def _turn(self) -> Generator[apsw.Connection, None, None]:
        """The connection that writes. What was committed inside is acknowledged when this ends."""
        self._refuse_after_fork()
        with self._lock:
            writer, guard = self._writable(), self._guard
            try:
                guard.begin()
                yield writer
                guard.check()
            finally:
                guard.end(writer)

    @contextmanager
    def _translated(self) -> Generator[None, None, None]:
        try:
            yield
        except apsw.Error as error:
            raise self._failed(error) from error

    def _refuse_after_fork(self) -> None:
        """Before any lock is taken: a forked child may have inherited it locked."""
        if self._born != Generation.now:
            raise self._closed()

    def _writable(self) -> apsw.Connection:
        if self._writer is None:
            raise self._closed()
        broken = self._poison or self._guard.broken
        if broken is not None:
            raise broken
        if self._writer.in_transaction:
            if self._inside:
                raise protocol.written_inside()
            self._writer.execute("rollback")  # left by an interrupted call; nothing in it was acknowledged
        return self._writer

    def _closed(self) -> StoreClosed:
        if self._born != Generation.now:
            return StoreClosed(
                f"{self.path!r} was opened before this process was forked", hint="open it after the fork"
            )
        return StoreClosed(f"{self.path!r} was closed", hint="open it again")

    def _failed(self, error: apsw.Error) -> Exception:
        """Translate; after an I/O error nothing more is written, since it is unknown what reached the disk."""
        ours = self._explained(error)
        if isinstance(ours, StorePoisoned):
            self._poison = ours
        return ours

    def _explained(self, error: apsw.Error) -> Exception:
        """SQLite's error as one of ours; if it comes of what was done to the files, that is the error."""
        if isinstance(error, apsw.NotADBError | apsw.CorruptError | apsw.IOError) and self._writer is not None:
            damage = self._guard.damage()
            if damage is not None:
                return damage
        return translated(error, self.path)

    # Reading

    @contextmanager
    def _reading(self) -> Generator[apsw.Connection, None, None]:
        if self._exclusive:
            with self._lock:
                self._refuse_after_fork()
                yield self._writable()
            return
        with self._borrowed() as reader:
            reader.begin()
            try:
                yield reader.connection
            finally:
                reader.end()

    @contextmanager
    def _borrowed(self) -> Generator[Reader, None, None]:
        self._refuse_after_fork()
        with self._pool:
            if self._writer is None:
                raise self._closed()
            reader = self._readers.pop() if self._readers else None
        try:
            reader = reader or self._guard.reader(self._connect_reader)
            yield reader
        except apsw.Error as error:
            raise self._explained(error) from error
        finally:
            with self._pool:
                if reader is not None:
                    self._give_back(reader)

    def _connect_reader(self) -> apsw.Connection:
        return connect(self.path, self.durability, is_guarded=isinstance(self._guard, FileGuard))

    def _give_back(self, reader: Reader) -> None:
        if self._writer is not None and len(self._readers) < _IDLE_READERS:
            self._readers.append(reader)
        else:
            reader.close()

    def _rows(self, query: str, bindings: Any = ()) -> list[Any]:
        with self._reading() as reader:
            return fetch_all(reader, query, bindings)

    def _row(self, query: str, bindings: Any = ()) -> Any:
        with self._reading() as reader:
            return fetch_one(reader, query, bindings)

    def head(self, log: str) -> Head | None:
        row = self._row(q.HEAD_BY_NAME, (log,))
        return Head(*row) if row else None

    def heads(self, logs: Sequence[str]) -> dict[str, int]:
        return dict(self._rows(q.HEADS, (codec.dump(list(logs)).decode(),)))

    def origin(self, log: str) -> Origin | None:
        row = self._row(q.ORIGIN, (log,))
        return Origin(*row) if row else None

    def read(
        self,
        log: str,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        last: int | None = None,
    ) -> list[Stored]:
        with self._reading() as reader:
            number = self._number(reader, log)
            if last is not None:
                return shapes.read_last(reader, number, log, (after, upto, last))
            return shapes.read_rows(reader, number, log, (after, upto, limit))

    def read_kind(
        self, log: str, kind: str, *, after: int = 0, upto: int | None = None, last: int | None = None
    ) -> list[Stored]:
        with self._reading() as reader:
            number = self._number(reader, log)
            bounds = {"log": number, "kind": kind, "after": after, "upto": shapes.last(upto)}
            found = fetch_all(reader, q.READ_KIND, {**bounds, "limit": -1 if last is None else last})
            return [Stored(*row) for row in reversed(found)]

    def opening(self, log: str, *, upto: int | None = None, version: int) -> protocol.Opening | None:
        with self._reading() as reader:
            return shapes.read_opening(reader, log, upto, version)

    def since(
        self, log: str, seq: int, *, past: Sequence[str] = (), upto: int | None = None, limit: int | None = None
    ) -> protocol.Since:
        with self._reading() as reader:
            return shapes.read_since(reader, self._number(reader, log), (log, *past), (seq - 1, upto, limit))

    def blob(self, hash: str, *, within: str = "") -> bytes | None:
        row = self._row(q.BLOB_WITHIN if within else q.BLOB, {"hash": bytes.fromhex(hash), "within": within})
        return row[0] if row else None

    def blobs_of(self, log: str) -> list[Blob]:
        return [Blob(hash.hex(), data) for hash, data in self._rows(q.BLOBS_OF, (log,))]

    def snapshot(self, log: str, *, upto: int | None = None, version: int) -> Snapshot | None:
        row = self._row(q.SNAPSHOT, {"name": log, "upto": shapes.last(upto), "version": version})
        return Snapshot(*row) if row else None

    def drop_snapshots(self, *, log: str | None = None, before_us: int | None = None) -> int:
        with self._changing() as writer:
            writer.execute(q.DROP_SNAPSHOTS, {"name": log, "before": before_us})
            return writer.changes()

    def summary(self, log: str) -> Summary | None:
        row = self._row(q.TASK, (log,))
        return to_summary(row) if row else None

    def list(self, query: Query) -> list[Summary]:
        with self._reading() as reader:
            after = None if query.after is None else self._place(reader, query.after)
            return shapes.list_tasks(reader, query, after)

    def counts(self, namespace: str | None = None) -> protocol.TaskCounts:
        with self._reading() as reader:
            return shapes.to_counts(reader, namespace)

    def namespaces(self) -> list[str]:
        with self._reading() as reader:
            return shapes.read_namespaces(reader)

    def acts(self, query: protocol.ActQuery) -> list[tuple[str, Stored]]:
        with self._reading() as reader:
            log = None if query.before is None else self._place(reader, query.before.log)
            return shapes.read_acts(reader, query, log)

    def changes(self, after: str | None, *, limit: int = 1000) -> list[protocol.RowChange]:
        with self._reading() as reader:
            return shapes.read_changes(reader, after, limit)

    def last_change(self) -> str:
        return f"{self._row(q.LAST_CHANGE)[0]}.{protocol.TO_THE_END}"

    def logs(self, *, prefix: str | None = None, after: str | None = None, limit: int = 1000) -> list[str]:
        with self._reading() as reader:
            if prefix is not None:
                return shapes.logs_by_name(reader, prefix, after, limit)
            begin = 0 if after is None else self._place(reader, after)
            return [row[0] for row in fetch_all(reader, q.LOGS, {"after": begin, "limit": limit})]

    def newest(self, *, prefix: str, after: str | None = None, limit: int = 1000) -> list[tuple[str, Stored]]:
        with self._reading() as reader:
            return shapes.newest_by_name(reader, prefix, after, limit)

    def _place(self, reader: apsw.Connection, name: str) -> int:
        """Return the place of a name in the order of logs, also of one that was removed."""
        found = fetch_one(reader, q.PLACE_OF, {"name": name})
        if found is None:
            raise TaskNotFound(name)
        return found[0]

    def forks(self, log: str) -> list[str]:
        return [row[0] for row in self._rows(q.FORKS, (log,))]

    def finished(self, *, before_us: int | None, skip: int, limit: int) -> list[str]:
        bounds = {"before": shapes.last(before_us), "skip": skip, "limit": limit}
        return [row[0] for row in self._rows(q.FINISHED, bounds)]

    def owner_of_key(self, key: str) -> UniqueKey | None:
        row = self._row(q.TAKEN, (key,))
        return UniqueKey(*row) if row else None

    def unique_keys(self, *, after: str = "", limit: int = 1000) -> list[UniqueKey]:
        return [UniqueKey(*row) for row in self._rows(q.TAKES, {"after": after, "limit": limit})]

    def tombstone(self, log: str) -> Tombstone | None:
        row = self._row(q.TOMBSTONE, (log,))
        return Tombstone(*row) if row else None

    def tombstones(self, *, after: str = "", limit: int = 1000) -> list[Tombstone]:
        return [Tombstone(*row) for row in self._rows(q.TOMBSTONES, {"after": after, "limit": limit})]

    # Erasing and removing

    def erasures(self, log: str) -> list[Erasure]:
        return [Erasure(*row) for row in self._rows(q.ERASURES, (log,))]

    def erase(self, erasures: Sequence[Erasure]) -> None:
        with self._lock:
            with self._changing() as writer:
                shapes.erase_bodies(writer, lambda log: self._number(writer, log), erasures)
            # No old page stays behind in the write-ahead log. If readers take long, the next write sees to it.
            with self._translated():
                self._guard.checkpoint(writer, seconds=_ERASE_SECONDS)

    def remove(self, tombstones: Sequence[Tombstone]) -> list[str]:
        with self._changing() as writer:
            removed = [stone.log for stone in tombstones if self._remove(writer, stone)]
        for name in removed:
            self._numbers.pop(name, None)
        return removed

    def _remove(self, writer: apsw.Connection, stone: Tombstone) -> bool:
        number = self._number(writer, stone.log)
        head = None if number is None else fetch_one(writer, q.HEAD, (number,))
        if head != (stone.seq, stone.digest) or fetch_all(writer, q.FORKS, (stone.log,)):
            return False
        writer.execute(q.INSERT_TOMBSTONE, (stone.log, number, stone.seq, stone.digest, stone.at_us, stone.why))
        for statement in q.REMOVE:
            writer.execute(statement, {"log": number})
        return True

    def restore_marks(self, tombstones: Sequence[Tombstone], keys: Sequence[UniqueKey]) -> None:
        with self._changing() as writer:
            for stone in tombstones:
                writer.execute(q.INSERT_TOMBSTONE, (stone.log, 0, stone.seq, stone.digest, stone.at_us, stone.why))
            for take in keys:
                writer.execute(q.TAKE_IF_FREE, (take.key, take.log, take.step, take.input_hash))

    # Looking after it

    def rows(self, log: str) -> list[Stored]:
        with self._reading() as reader:
            return shapes.rows_themselves(reader, self._number(reader, log), log)

    def anchor(self, log: str) -> Head | None:
        row = self._row(q.ANCHOR, (log,))
        return Head(*row) if row else None

    def check(self) -> list[str]:
        return shapes.integrity(self._rows)

    def stats(self) -> Stats:
        with self._reading() as reader:
            return shapes.to_stats(reader)

    def backup(self, path: str) -> None:
        with self._borrowed() as reader, reader.outside_transactions():
            copy_to(reader.connection, path)

    def identity(self) -> protocol.Identity:
        return protocol.Identity(*self._row(q.IDENTITY))

    def holder(self) -> str:
        return self._own_presence().name

    def alive(self, holder: str, lease: float | None = None) -> bool:
        return self._own_presence().alive(holder)

    def loss(self, holder: str, lease: float | None = None) -> Loss | None:
        return None if self.alive(holder, lease) else "proven"

    def _own_presence(self) -> FilePresence:
        self._refuse_after_fork()
        with self._pool:
            if self._writer is None:
                raise self._closed()
            if self._presence is None:
                self._presence = FilePresence(f"{self.path}-guard")
            return self._presence

    def close(self, *, present: bool = False) -> None:
        if self._born != Generation.now:
            return
        with self._lock, self._pool:
            if self._inside:
                raise protocol.written_inside()
            if self._writer is None:
                return
            for reader in self._readers:
                reader.close()
            self._readers.clear()
            writer, self._writer = self._writer, None
            try:
                self._guard.leave(writer)
            finally:
                writer.close()
                self._guard.close()
        if not present:
            self.depart()

    def depart(self) -> None:
        if self._presence is not None and self._born == Generation.now:
            self._presence.close()

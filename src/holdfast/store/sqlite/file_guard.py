"""Keeps the files of a store whole while any code in the process may open and close them.

SQLite keeps processes apart with POSIX locks, and POSIX drops them when this process closes any descriptor of the
file (see `locks`). So the store is safe without SQLite's locks, by OFD locks of its own:

 1. While a store is open, its process holds SQLite's own "in use" ranges: SHARED of the database, so that no closing
    connection finds itself to be the last one and removes the write-ahead log, and DMS of `-shm`, so that none resets
    the index of that log.
 2. One writes at a time: byte TURN of the file `-guard`, held exclusively for every write transaction, and while the
    first process of all opens the store.
 3. Readers hold byte READING shared. A checkpoint moves what they read, so it needs that byte exclusively.
 4. While a reader opens its snapshot, the process holds RECOVERY of `-shm` shared. Otherwise SQLite could take a writer
    that lost its locks for a dead one, and rebuild the index under its hands. Under TURN no writer is at work, and
    recovery is right.
 5. Nothing but `checkpoint` moves the write-ahead log into the database. Readers that follow each other closely could
    keep it away for ever: so each passes DOOR on its way in, and a checkpoint that has waited long closes it.
 6. Before a write is acknowledged, still under TURN, the files must be the ones that were opened, and no shorter.

Each reader, each store and each sign of life has a descriptor of its own: OFD locks of one descriptor do not exclude
each other, so nothing here is shared between threads but RECOVERY, which is counted.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from fcntl import fcntl
from os import SEEK_END, SEEK_HOLE, fstat, lseek, pread
from typing import Final

import apsw

from holdfast.core import limits
from holdfast.core.errors import StoreBusy, StorePoisoned
from holdfast.failpoints import failpoint
from holdfast.store.sqlite.locks import (
    SET,
    Span,
    close_file,
    is_locked,
    is_locked_elsewhere,
    lock_within,
    open_file,
    unlock,
)

BUSY_SECONDS = 30.0

# Bytes of `-guard`. Signs of life (see `presence`) lie behind FIRST_FREE.
TURN: Final = Span(0)
READING: Final = Span(1)
DOOR: Final = Span(2)
DOOR_AND_READING: Final = Span(1, 2)
MEMBER: Final = Span(3)
PROBE: Final = Span(4)
FIRST_FREE: Final = 1024

_TAKE_TURN, _GIVE_TURN = TURN.exclusive, TURN.free

# Bytes that SQLite itself locks. WITNESS is the one after its range: only a store's guard locks it, so it tells a
# process that keeps these rules from all others.
_IN_USE: Final = Span(0x40000002, 511)
_WITNESS: Final = Span(0x40000002 + 510)
_SQLITES_SHARED: Final = Span(0x40000002, 510)
_DMS: Final = Span(128)
_RECOVERY: Final = Span(122)

# The index of the write-ahead log begins with its header, twice. In it: whether it is set, the page size, the frames.
INDEX_HEADER_BYTES = 48
_HEADER: Final = struct.Struct("=12xBxHI")
_WAL_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_NO_WAL = 1  # as if its first byte were known: the next look begins there

# A directory's time has the kernel's ticks for its unit: a change within the same tick as the last one does not show.
_TICK_NS = 100_000_000
_DOOR_SECONDS = 0.05
_SNAPSHOT = "select 1 from sqlite_schema limit 1"


class FileGuard:
    """What one open store holds to keep its files whole."""

    def __init__(self, path: str) -> None:
        """Open the guard file. The database file must be there."""
        self.broken: StorePoisoned | None = None
        self._path = path
        self._directory = open_file(os.path.dirname(path), os.O_RDONLY)
        self._file, self._is_new = _open_guard(path)
        self._database = open_file(path, os.O_RDWR)
        self._index = self._wal = -1
        self._mutex = threading.Lock()
        self._users = 1
        self._readers_opening = 0
        self._is_writing = False
        self._settled_ns = -1
        self._wal_bytes, self._database_bytes = _NO_WAL, 0
        self._checkpoint_at = limits.WAL_BYTES

    # Coming in and leaving

    @contextmanager
    def entrance(self) -> Generator[bool, None, None]:
        """Open the first connection inside. Gives whether no other process has the store open: then it may be set up.

        While other processes have it open, it waits for none of them, however long they write.
        """
        joined = self._join()
        if joined and self.index_is_whole():
            with self.looking(self._file):
                yield False
            return
        with self.turn():
            if joined or self._join():
                yield False
                return
            yield True
            self._hold()
            strange = self._strange_file()
            if strange is not None:
                raise self._changed(f"{strange} was removed or replaced while it was opened")

    def _join(self) -> bool:
        """Hold what a process with an open store holds, next to one that does. Return False if there is none."""
        if not is_locked(self._database, _WITNESS):
            return False
        if not is_locked(self._file, MEMBER):
            raise self._changed(f"{self._path}-guard was removed or replaced while other processes use the store")
        try:
            self._hold()
        except FileNotFoundError as error:
            raise self._changed(f"{error.filename} was removed while other processes use the store") from None
        if self._strange_file() is None:
            return True
        # The others left, and files were removed before we held them.
        unlock(self._database, _IN_USE)
        unlock(self._file, MEMBER)
        close_file(self._index)
        close_file(self._wal)
        return False

    def _hold(self) -> None:
        """Hold the files that SQLite has made. MEMBER comes first: who sees WITNESS expects it."""
        self._index = open_file(f"{self._path}-shm", os.O_RDWR)
        self._wal = open_file(f"{self._path}-wal", os.O_RDWR)
        self._wait(self._file, MEMBER.shared)
        self._wait(self._index, _DMS.shared)
        self._wait(self._database, _IN_USE.shared)
        self._database_bytes = lseek(self._database, 0, SEEK_END)

    def refuse_older_versions(self) -> None:
        """Refuse to change a file that a process without a guard has open. Asked before anything is held."""
        if is_locked_elsewhere(self._database, _SQLITES_SHARED):
            raise StoreBusy(
                f"{self._path!r} is open in another program, or in an older Holdfast; nothing was changed",
                hint="stop every process that uses the file, then open it again",
            )

    def leave(self, writer: apsw.Connection) -> None:
        """As the last process that has the store open: leave everything in the one file that people copy."""
        if self.broken is None and not is_locked(self._database, _WITNESS) and lseek(self._wal, 0, SEEK_END):
            with contextlib.suppress(StoreBusy, apsw.Error):  # what is not moved stays in the log, as safe as it was
                self.checkpoint(writer, seconds=0.0)

    def close(self) -> None:
        """Drop everything, once the last connection is closed: readers may be at work in other threads."""
        with self._mutex:
            self._users -= 1
            if not self._users:
                for descriptor in (self._database, self._index, self._wal, self._file, self._directory):
                    close_file(descriptor)

    def discard(self) -> None:
        """Close, and leave no guard beside a file that turned out not to be a store."""
        if self._is_new:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self._path}-guard")
        self.close()

    # Writing

    @contextmanager
    def turn(self) -> Generator[None, None, None]:
        """Be the only one that writes, without a look at the files."""
        try:
            self._wait(self._file, TURN.exclusive)
            yield
        finally:
            unlock(self._file, TURN)

    def begin(self) -> None:
        """Before a write transaction: be the only one that writes."""
        try:  # as `lock` does it; every step comes by here
            fcntl(self._file, SET, _TAKE_TURN)
        except OSError:
            self._wait(self._file, _TAKE_TURN)
        self._is_writing = True

    def begin_at_once(self) -> bool:
        """Begin, unless another process writes or a checkpoint is due."""
        if self._wal_bytes >= self._checkpoint_at and self._frames_bytes() >= self._checkpoint_at:
            return False
        try:
            fcntl(self._file, SET, _TAKE_TURN)
        except OSError:
            return False
        self._is_writing = True
        return True

    def check(self) -> None:
        """Before a write is acknowledged: what it was written to is still what others will read.

        A log that was cut short is as long as before once something is written at its end. But then there is a hole
        where it ended before.
        """
        try:
            wal = lseek(self._wal, self._wal_bytes - 1, SEEK_HOLE)
        except OSError:  # it ends before that
            wal = 0
        database = lseek(self._database, 0, SEEK_END)
        if (
            wal < self._wal_bytes
            or database < self._database_bytes
            or fstat(self._directory).st_mtime_ns != self._settled_ns
        ):
            self._look_closely()
        self._wal_bytes, self._database_bytes = wal or _NO_WAL, database

    def _look_closely(self) -> None:
        changed_ns = fstat(self._directory).st_mtime_ns
        damage = self.damage()
        if damage is not None:
            raise damage
        self._settled_ns = changed_ns if time.time_ns() - changed_ns > _TICK_NS else -1

    def damage(self) -> StorePoisoned | None:
        """Return what was done to the files while they were in use, if anything."""
        strange = self._strange_file()
        if strange is not None:
            return self._changed(f"{strange} was removed or replaced while the store was in use")
        if self._whole_wal_bytes() < self._frames_bytes():  # if not, another process emptied it, as it may
            return self._changed(f"{self._path}-wal was cut short")
        if lseek(self._database, 0, SEEK_END) < self._database_bytes:
            return self._changed(f"{self._path} was cut short")
        return None

    def _whole_wal_bytes(self) -> int:
        """Return how long the write-ahead log is up to its first hole."""
        return lseek(self._wal, 0, SEEK_HOLE) if lseek(self._wal, 0, SEEK_END) else 0  # no hole can lie in nothing

    def _frames_bytes(self) -> int:
        """Return how many bytes of the write-ahead log the index knows of."""
        is_set, page, frames = _HEADER.unpack_from(pread(self._index, INDEX_HEADER_BYTES, 0))
        return _WAL_HEADER_BYTES + frames * (page + _FRAME_HEADER_BYTES) if is_set and frames else 0

    def _strange_file(self) -> str | None:
        """Return the first of the store's files that is not the one that was opened."""
        opened = (("", self._database), ("-wal", self._wal), ("-shm", self._index), ("-guard", self._file))
        for suffix, descriptor in opened:
            try:
                found, ours = os.stat(self._path + suffix), fstat(descriptor)
            except FileNotFoundError:
                return self._path + suffix
            if (found.st_dev, found.st_ino) != (ours.st_dev, ours.st_ino):
                return self._path + suffix
        return None

    def end(self, writer: apsw.Connection, *, can_wait: bool = True) -> None:
        """After a write transaction, however it ended: let others write, and if there is time keep the log short.

        The turn is kept while a transaction is open. (An interrupt may have come in the way of its rollback.) To roll
        back after others have written would take their pages out of the index.
        """
        try:
            if writer.in_transaction:
                writer.execute("rollback")
            elif can_wait and self._wal_bytes >= self._checkpoint_at and self._is_writing:
                self._keep_wal_short(writer)
        finally:
            if not writer.in_transaction:
                self._is_writing = False
                fcntl(self._file, SET, _GIVE_TURN)

    # Checkpoints

    def _keep_wal_short(self, writer: apsw.Connection) -> None:
        """Try it gently while few frames wait in the log, and with the door closed once they are many."""
        waiting = self._frames_bytes()
        if waiting < self._checkpoint_at:
            return  # the file stays as long as it was, and is written again from its beginning
        insist = _DOOR_SECONDS if waiting >= limits.WAL_LONG_BYTES else 0.0
        if not self._checkpoint(writer, insist, apsw.SQLITE_CHECKPOINT_RESTART):
            self._checkpoint_at = waiting + limits.WAL_BYTES // 4

    def checkpoint(self, writer: apsw.Connection, *, seconds: float) -> None:
        """Move the write-ahead log into the database and empty it; wait this long for readers.

        If they take longer, the next write tries again.
        """
        with self.turn():
            if self._checkpoint(writer, seconds, apsw.SQLITE_CHECKPOINT_TRUNCATE):
                self._wal_bytes = _NO_WAL
            else:
                self._checkpoint_at = 0

    def _checkpoint(self, writer: apsw.Connection, seconds: float, mode: int) -> bool:
        """Under TURN. Return False if readers were in the way."""
        is_closed = seconds > 0 and lock_within(self._file, DOOR.exclusive, seconds)
        try:
            if not lock_within(self._file, READING.exclusive, seconds):
                return False
            try:
                done = checkpoint(writer, mode)
            finally:
                unlock(self._file, READING)
        finally:
            if is_closed:
                unlock(self._file, DOOR)
        if done:
            self._checkpoint_at = limits.WAL_BYTES
        return done

    # Reading

    def reader(self, connect: Callable[[], apsw.Connection]) -> GuardedReader:
        """Open a connection for reading, with a place of its own in the guard file."""
        descriptor = open_file(f"{self._path}-guard", os.O_RDWR)
        with self._mutex:
            self._users += 1
        try:
            with self.looking(descriptor):
                connection = connect()
        except BaseException:  # Ctrl-C too: nothing else closes the descriptor; it is raised again
            close_file(descriptor)
            self.close()
            raise
        return GuardedReader(self, connection, descriptor)

    @contextmanager
    def looking(self, descriptor: int) -> Generator[None, None, None]:
        """Read inside without a transaction: every statement opens a snapshot of its own."""
        self.enter_reading(descriptor)
        try:
            if self.index_is_whole():
                with self.without_recovery():
                    yield
            else:
                with self.without_writers(descriptor):
                    yield
        finally:
            unlock(descriptor, READING)

    def enter_reading(self, descriptor: int) -> None:
        """Take a place among the readers, through the door, so that no checkpoint is made."""
        self._wait(descriptor, DOOR_AND_READING.shared)
        unlock(descriptor, DOOR)

    def leave_reading(self, descriptor: int) -> None:
        """Give the place up."""
        unlock(descriptor, READING)

    def index_is_whole(self) -> bool:
        """Return whether both copies of the index's header agree. If not, it is being written, or its writer died."""
        header = pread(self._index, 2 * INDEX_HEADER_BYTES, 0)
        return header[:INDEX_HEADER_BYTES] == header[INDEX_HEADER_BYTES:]

    @contextmanager
    def without_recovery(self) -> Generator[None, None, None]:
        """Keep SQLite from rebuilding the index."""
        self.hold_off_recovery()
        try:
            yield
        finally:
            self.allow_recovery()

    def hold_off_recovery(self) -> None:
        """Keep SQLite from rebuilding the index. Counted, for all readers of the store share one descriptor."""
        with self._mutex:
            if not self._readers_opening:
                self._wait(self._index, _RECOVERY.shared)
            self._readers_opening += 1

    def allow_recovery(self) -> None:
        """Undo `hold_off_recovery`."""
        with self._mutex:
            self._readers_opening -= 1
            if not self._readers_opening:
                unlock(self._index, _RECOVERY)

    @contextmanager
    def without_writers(self, descriptor: int) -> Generator[None, None, None]:
        """Keep others from writing. If the index is not whole now, its writer is dead, and SQLite may rebuild it."""
        self._wait(descriptor, TURN.exclusive)
        try:
            yield
        finally:
            unlock(descriptor, TURN)

    def _wait(self, descriptor: int, request: bytes) -> None:
        if not lock_within(descriptor, request, BUSY_SECONDS):
            raise busy(self._path)

    def _changed(self, what: str) -> StorePoisoned:
        self.broken = StorePoisoned(
            f"{what}; nothing more is written here, and the last write was not acknowledged",
            hint="stop every process that uses the store, restore its files from a backup, then: holdfast verify",
        )
        return self.broken


class GuardedReader:
    """A connection that reads, one snapshot at a time."""

    def __init__(self, guard: FileGuard, connection: apsw.Connection, descriptor: int) -> None:
        self.connection = connection
        self._guard = guard
        self._descriptor = descriptor

    def begin(self) -> None:
        """Open a snapshot."""
        guard = self._guard
        guard.enter_reading(self._descriptor)
        try:
            if not (guard.index_is_whole() and self._opened_without_recovery()):
                with guard.without_writers(self._descriptor):
                    self._open()
        except BaseException:  # Ctrl-C too: nothing else releases the file; it is raised again
            self.end()
            raise

    def _opened_without_recovery(self) -> bool:
        self._guard.hold_off_recovery()
        try:
            self._open()
        except apsw.ProtocolError:  # a writer died in the middle of the index, right after we looked at it
            self._roll_back()
            return False
        finally:
            self._guard.allow_recovery()
        return True

    def _open(self) -> None:
        self.connection.execute("begin")
        self.connection.execute(_SNAPSHOT).fetchall()

    def end(self) -> None:
        """Release the snapshot."""
        try:
            self._roll_back()
        finally:
            self._guard.leave_reading(self._descriptor)

    def _roll_back(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("rollback")

    def outside_transactions(self) -> AbstractContextManager[None]:
        """Read inside with statements that refuse to be part of a transaction."""
        return self._guard.looking(self._descriptor)

    def close(self) -> None:
        """Close the connection and give up its place."""
        self.connection.close()
        close_file(self._descriptor)
        self._guard.close()


class NoGuard:
    """In place of a guard where there can be none: SQLite's own locks have to do."""

    broken = None

    @contextmanager
    def entrance(self) -> Generator[bool, None, None]:
        """Open the first connection inside."""
        yield True

    @contextmanager
    def turn(self) -> Generator[None, None, None]:
        """SQLite's own lock keeps other writers away."""
        yield

    def refuse_older_versions(self) -> None:
        """Others are not known here."""

    def leave(self, writer: apsw.Connection) -> None:
        """SQLite cleans up by itself."""

    def close(self) -> None:
        """Hold nothing."""

    discard = close

    def begin(self) -> None:
        """SQLite's own lock keeps other writers away."""

    check = begin

    def begin_at_once(self) -> bool:
        """Return False: SQLite's lock may need a wait."""
        return False

    def damage(self) -> StorePoisoned | None:
        """Nothing is known of the files."""

    def end(self, writer: apsw.Connection, *, can_wait: bool = True) -> None:
        """Leave no transaction open."""
        if writer.in_transaction:
            writer.execute("rollback")

    def checkpoint(self, writer: apsw.Connection, *, seconds: float) -> None:
        """Empty the write-ahead log, unless others read it."""
        checkpoint(writer, apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def reader(self, connect: Callable[[], apsw.Connection]) -> UnguardedReader:
        """Open a connection for reading."""
        return UnguardedReader(connect())


class UnguardedReader:
    """A connection that reads."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection

    def begin(self) -> None:
        """Every statement has a snapshot of its own."""

    end = begin

    def outside_transactions(self) -> AbstractContextManager[None]:
        """There is no transaction."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def checkpoint(writer: apsw.Connection, mode: int) -> bool:
    """Move the write-ahead log into the database. Return False if that has to wait."""
    failpoint("checkpoint.before")
    writer.set_busy_timeout(0)  # only a program that does not know the guard could hold a lock here
    try:
        writer.wal_checkpoint(mode=mode)
    except (apsw.BusyError, apsw.LockedError, apsw.FullError):  # on a full disk, all of it stays in the log
        return False
    finally:
        writer.set_busy_timeout(int(BUSY_SECONDS * 1000))
    failpoint("checkpoint.after")
    return True


def busy(path: str) -> StoreBusy:
    """The error for a store that was locked all the time."""
    return StoreBusy(f"{path!r} was locked by others for {BUSY_SECONDS:.0f} s; nothing was written", hint="try again")


def _open_guard(path: str) -> tuple[int, bool]:
    """Open the guard file, made if it is missing with the rights of the database, and say whether it was made."""
    name = f"{path}-guard"
    try:
        descriptor = open_file(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return open_file(name, os.O_RDWR), False
    database = os.stat(path)
    os.fchmod(descriptor, stat.S_IMODE(database.st_mode))
    if os.geteuid() == 0:
        os.fchown(descriptor, database.st_uid, database.st_gid)
    return descriptor, True

"""A SQLite file that may be read but not written: everything can be looked at, and nothing is made beside it.

A look keeps checkpoints away with a lock in the guard file, which only has to be readable for that. While the
write-ahead log is empty, the database then does not change, and is read as such. Otherwise SQLite reads the log and its
index too, and may not write to the index. Where there is no guard file, each look ends with checking that nothing
changed.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from urllib.parse import quote

import apsw

from holdfast.core.errors import StoreBusy, StoreReadOnly, StoreTooNew
from holdfast.store.migrations import migrations
from holdfast.store.sqlite.file import Durability, Opened, refuse_strangers, translated
from holdfast.store.sqlite.file_guard import BUSY_SECONDS, DOOR, DOOR_AND_READING, NoGuard, busy
from holdfast.store.sqlite.locks import close_file, lock_within, open_file, unlock
from holdfast.store.sqlite.presence import is_alive
from holdfast.store.sqlite.store import SqliteStore


@contextmanager
def looked_at(path: str) -> Generator[apsw.Connection, None, None]:
    """Open a connection for one look, which writes nothing and is closed again."""
    held: list[int] = []
    connection: apsw.Connection | None = None
    try:
        is_still = _keep_still(path, held)
        has_wal = os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal") > 0
        before = None if has_wal or is_still else _shape(path)
        connection = _connected(path, has_wal)
        yield connection
        if before is not None and _shape(path) != before:
            raise StoreBusy(f"another process began to write to {path!r} during the look at it", hint="look again")
    except apsw.CantOpenError as error:
        hint = f"{path}-wal is there without a readable {path}-shm: ask its owner for a backup, and look at that"
        raise StoreReadOnly(f"{path!r} cannot be looked at: {error}", hint=hint) from error
    except apsw.Error as error:
        raise translated(error, path) from error
    finally:
        if connection is not None:
            connection.close()
        for descriptor in held:
            close_file(descriptor)


def _keep_still(path: str, held: list[int]) -> bool:
    """Keep checkpoints away. Return False if that cannot be done from here."""
    try:
        guard = open_file(f"{path}-guard", os.O_RDONLY)
    except OSError:  # it is not there, or may not be read
        return False
    held.append(guard)
    if not lock_within(guard, DOOR_AND_READING.shared, BUSY_SECONDS):
        raise busy(path)
    unlock(guard, DOOR)
    return True


def _connected(path: str, has_wal: bool) -> apsw.Connection:
    how = "readonly_shm=1" if has_wal else "immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"file:{quote(path)}?mode=ro&{how}", flags=flags)
    connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
    connection.pragma("temp_store", "memory")
    return connection


def _shape(path: str) -> tuple[int, ...]:
    found, log = os.stat(path), f"{path}-wal"
    size = os.path.getsize(log) if os.path.exists(log) else 0
    return (found.st_ino, found.st_size, found.st_mtime_ns, size)


def schema_version(path: str) -> int:
    """Return the version of a file's schema, 0 if it has none yet. Nothing is made, nothing is migrated."""
    if not os.path.exists(path) or (os.path.getsize(path) == 0 and not os.path.exists(f"{path}-wal")):
        return 0
    with looked_at(path) as connection:
        refuse_strangers(connection, path)
        return connection.pragma("user_version")


class ReadOnlyStore(SqliteStore):
    """Logs in one file that may only be read."""

    def _prepare(self, path: str, durability: Durability, *, vfs: str | None, exclusive: bool, at_us: int) -> Opened:
        """Make sure that it can be read as it is. The connection that would write is to nothing."""
        if not os.access(path, os.R_OK):
            raise StoreReadOnly(f"{path!r} can neither be read nor written to", hint="ask its owner for a backup")
        with looked_at(path) as connection:
            refuse_strangers(connection, path)
            found, known = connection.pragma("user_version"), len(migrations("sqlite"))
        if found > known:
            raise StoreTooNew(
                f"{path!r} has schema version {found}; this holdfast knows {known}",
                hint="upgrade holdfast; the file was not touched",
                version=found,
            )
        if found < known:
            raise StoreReadOnly(
                f"{path!r} has schema version {found} of {known}, and cannot be written to",
                hint="a user who may write to it has to update it first: holdfast migrate",
            )
        return Opened(apsw.Connection(""), NoGuard())

    def _writable(self) -> apsw.Connection:
        raise StoreReadOnly(
            f"{self.path!r} may only be looked at here; nothing was written",
            hint="check owner, mode and file system of the file and its directory",
        )

    @contextmanager
    def _reading(self) -> Generator[apsw.Connection, None, None]:
        self._refuse_after_fork()
        if self._writer is None:
            raise self._closed()
        with looked_at(self.path) as connection:
            yield connection

    def holder(self) -> str:
        return f"{os.getpid()}-0"

    def alive(self, holder: str, lease: float | None = None) -> bool:
        """Return whether that process still lives; where that cannot be seen, it counts as living."""
        if holder == self.holder():
            return True
        try:
            guard = open_file(f"{self.path}-guard", os.O_RDONLY)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        try:
            return is_alive(guard, holder)
        finally:
            close_file(guard)

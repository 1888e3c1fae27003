"""A SQLite file that may be read but not written: everything can be looked at, and nothing is made beside it.

SQLite's write-ahead log is shared by readers and writers. While somebody writes, its files are there and can be read
too. While nobody does they are not, and whoever may not make them can only read the file as if it never changed: so
each look ends with checking that it did not.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from urllib.parse import quote

import apsw

from holdfast.core.errors import StoreBusy, StoreReadOnly, StoreTooNew
from holdfast.store.migrations import migrations
from holdfast.store.sqlite.file import BUSY_SECONDS, Durability, refuse_strangers, translated
from holdfast.store.sqlite.presence import is_locked
from holdfast.store.sqlite.store import SqliteStore


def _connected(path: str) -> tuple[apsw.Connection, tuple[int, ...] | None]:
    """A connection that writes nothing, and what the file was like if it is read as one that never changes."""
    is_shared = os.path.exists(f"{path}-wal")
    before = None if is_shared else _shape(path)
    address = f"file:{quote(path)}?mode=ro{'' if is_shared else '&immutable=1'}"
    connection = apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
    connection.pragma("temp_store", "memory")
    return connection, before


def _shape(path: str) -> tuple[int, ...]:
    found = os.stat(path)
    return (found.st_ino, found.st_size, found.st_mtime_ns)


@contextmanager
def _looked_at(path: str) -> Generator[apsw.Connection, None, None]:
    """A connection for one look. If others began to write meanwhile, what was seen may be of two moments."""
    connection: apsw.Connection | None = None
    try:
        connection, before = _connected(path)
        yield connection
        if before is not None and (os.path.exists(f"{path}-wal") or _shape(path) != before):
            raise StoreBusy(f"others began to write to {path!r} while it was looked at", hint="look again")
    except apsw.CantOpenError as error:
        hint = f"{path}-wal is there without a readable {path}-shm: ask its owner for a backup, and look at that"
        raise StoreReadOnly(f"{path!r} cannot be looked at: {error}", hint=hint) from error
    except apsw.Error as error:
        raise translated(error, path) from error
    finally:
        if connection is not None:
            connection.close()


class ReadOnlyStore(SqliteStore):
    """Logs in one file that may only be read."""

    def _prepare(
        self, path: str, durability: Durability, *, vfs: str | None, exclusive: bool, at_us: int
    ) -> apsw.Connection:
        """Make sure that it can be read as it is. The connection that would write is to nothing."""
        if not os.access(path, os.R_OK):
            raise StoreReadOnly(f"{path!r} can neither be read nor written to", hint="ask its owner for a backup")
        with _looked_at(path) as connection:
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
                hint="whoever may write to it has to bring it up to date first: holdfast migrate",
            )
        return apsw.Connection("")

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
        with _looked_at(self.path) as connection:
            yield connection

    def holder(self) -> str:
        return f"{os.getpid()}-0"

    def alive(self, holder: str, lease: float | None = None) -> bool:
        """Whether that holder still lives; where that cannot be seen, it is not said to be dead."""
        if holder.startswith(f"{os.getpid()}-"):
            return True  # asking for a lock of this process's own would drop it
        try:
            offset = int(holder.rpartition("-")[2], 16)
            # Never closed: that would drop every lock this process may have on it.
            descriptor = _opened.setdefault(self.path, -1)
            if descriptor < 0:
                descriptor = _opened[self.path] = os.open(f"{self.path}-holders", os.O_RDONLY | os.O_CLOEXEC)
        except (ValueError, FileNotFoundError):
            return False
        except OSError:
            return True
        return is_locked(descriptor, offset, fcntl.LOCK_SH)


_opened: dict[str, int] = {}

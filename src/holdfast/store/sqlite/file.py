"""Opening a SQLite file: that it is ours, that it is the right version, that it is safe to write."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Any, Literal

import apsw
from msgspec import Struct

from holdfast.core.errors import (
    HoldfastError,
    InvalidValue,
    LogCorrupt,
    NotAStore,
    StoreError,
    StoreFull,
    StorePoisoned,
    StoreReadOnly,
    StoreTooNew,
)
from holdfast.failpoints import failpoint
from holdfast.store.migrations import migrations
from holdfast.store.sqlite.file_guard import BUSY_SECONDS, PROBE, FileGuard, NoGuard, busy
from holdfast.store.sqlite.locks import locks_work
from holdfast.store.sqlite.queries import COPY_TO

Durability = Literal["full", "process"]

APPLICATION_ID = 0x486F6C64  # "Hold"
GUARDED_VERSION = 5
"""The first version of the schema whose processes all keep a guard. See `file_guard`."""

TABLE_COUNT = "select count(*) from sqlite_master"
MIGRATION_TABLE = """
create table if not exists migrations (
  version  integer not null primary key,
  name     text    not null,
  checksum text    not null,
  at       integer not null
) strict
"""
APPLIED = "select version, checksum from migrations order by version"
RECORD_MIGRATION = "insert into migrations values (:version, :name, :checksum, :at)"


def connect(
    path: str, durability: Durability, *, vfs: str | None = None, exclusive: bool = False, is_guarded: bool = True
) -> apsw.Connection:
    """Open a connection with the right pragmas. The file must exist or may be made."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    connection = apsw.Connection(path, flags=flags, vfs=vfs, statementcachesize=64)
    if is_guarded:  # only the guard checkpoints, and closing never does: that would also remove the write-ahead log
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.wal_autocheckpoint(0)
    connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
    if exclusive:
        connection.pragma("locking_mode", "exclusive")
    connection.pragma("synchronous", "full" if durability == "full" else "normal")
    connection.pragma("temp_store", "memory")
    connection.pragma("secure_delete", True)
    return connection


def fetch_all(connection: apsw.Connection, query: str, bindings: Any = ()) -> list[Any]:
    """Everything a query gives. Rows leave the typed world here: the schema says what is in them."""
    return connection.execute(query, bindings).fetchall()


def fetch_one(connection: apsw.Connection, query: str, bindings: Any = ()) -> Any:
    """The first row a query gives, or None."""
    found = connection.execute(query, bindings).fetchall()
    return found[0] if found else None


class Opened(Struct, frozen=True):
    """A file that is ready: the connection that writes, and what keeps its files whole."""

    writer: apsw.Connection
    guard: FileGuard | NoGuard


def prepare(path: str, durability: Durability, *, vfs: str | None, exclusive: bool, at_us: int) -> Opened:
    """Open the file, make it if it is missing, and bring its schema up to date."""
    if vfs is None:
        _make_private_file(path)
    guard: FileGuard | NoGuard = NoGuard()
    connection: apsw.Connection | None = None
    try:
        guard = _guard_of(path) if vfs is None else guard
        with guard.entrance() as is_first:
            is_guarded = isinstance(guard, FileGuard)
            connection = connect(path, durability, vfs=vfs, exclusive=exclusive, is_guarded=is_guarded)
            refuse_strangers(connection, path)
            if is_first:
                _set_up(connection, guard, path, at_us)
            version = connection.pragma("user_version")
        _refuse_newer(version, path)
        if version < len(migrations("sqlite")):
            with guard.turn():
                _migrate(connection, path, at_us)
    except BaseException as error:  # also a refusal of ours, or Ctrl-C: nothing will close it later
        if connection is not None:
            connection.close()
        guard.discard()
        if isinstance(error, apsw.Error):
            raise translated(error, path) from error
        raise
    return Opened(connection, guard)


def _guard_of(path: str) -> FileGuard | NoGuard:
    """The guard of a file. Where locks of descriptors do not work, SQLite's own must do, and the log says so."""
    try:
        guard = FileGuard(path)
    except OSError as error:
        why = f"{path}-guard cannot be opened: {error.strerror}"
        raise StoreReadOnly(why, hint=_RIGHTS) from None
    if locks_work(f"{path}-guard", PROBE):
        return guard
    guard.close()
    _warn_unguarded(path)
    return NoGuard()


def _warn_unguarded(path: str) -> None:
    import logging  # takes a tenth of a command's time

    logging.getLogger("holdfast").warning(
        "%s: this system has no open-file-description locks. The store is safe unless code in this process opens and "
        "closes its files, or its files are removed: see docs/durability.md",
        path,
    )


def _set_up(connection: apsw.Connection, guard: FileGuard | NoGuard, path: str, at_us: int) -> None:
    """Bring a file up to date that no process with a guard has open."""
    version = connection.pragma("user_version")
    if 0 < version < GUARDED_VERSION:
        guard.refuse_older_versions()
    if version <= len(migrations("sqlite")):
        _use_wal(connection)
        _migrate(connection, path, at_us)


def _make_private_file(path: str) -> None:
    """Create the file readable by its owner alone; refuse what cannot be a store."""
    place = Path(path)
    if place.is_dir():
        raise NotAStore(f"{path!r} is a directory", hint="give the path of a file in it")
    if not place.parent.is_dir():
        raise NotAStore(f"there is no directory {str(place.parent)!r}", hint="make it first")
    if place.exists():
        if not place.is_file():
            raise NotAStore(f"{path!r} is not a regular file; it was not touched", hint="give the path of a file")
        if not os.access(path, os.W_OK):
            wrong = "cannot be written to" if os.access(path, os.R_OK) else "can neither be read nor written to"
            raise StoreReadOnly(f"{path!r} {wrong}", hint=_RIGHTS)
        return
    try:
        make_private(path)
    except FileExistsError:
        return  # another process was first
    except OSError as error:
        raise StoreReadOnly(f"{path!r} cannot be made: {error.strerror}", hint="use another directory") from None
    directory = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def make_private(path: str) -> None:
    """An empty new file that only its owner may read."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, stat.S_IRUSR | stat.S_IWUSR))


def copy_to(reader: apsw.Connection, path: str) -> None:
    """Write a compact, consistent copy, under its final name only when it is complete and synced."""
    if os.path.exists(path):
        raise InvalidValue(f"{path!r} already exists; nothing was written", hint="give a new name")
    partial = f"{path}.{os.urandom(4).hex()}.partial"
    try:
        make_private(partial)
    except OSError as error:
        why = f"{path!r} cannot be made: {error.strerror}; nothing was written"
        raise InvalidValue(why, hint="name a file in a directory that is there and can be written to") from None
    try:
        reader.execute(COPY_TO, (partial,))
        with open(partial, "rb") as copy:
            os.fsync(copy.fileno())
        os.rename(partial, path)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def library_version() -> str:
    """Which SQLite this is."""
    return apsw.sqlite_lib_version()


def refuse_strangers(connection: apsw.Connection, path: str) -> None:
    """Refuse a database that has tables of another program."""
    tables = connection.execute(TABLE_COUNT).get
    if tables and connection.pragma("application_id") != APPLICATION_ID:
        raise NotAStore(f"{path!r} is the database of another program; it was not touched", hint="choose another file")


def _use_wal(connection: apsw.Connection) -> None:
    """Switch to write-ahead logging. Two first openers may collide here without SQLite waiting for them."""
    patience = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            if time.monotonic() > patience:
                raise
            time.sleep(0.01)


def _refuse_newer(version: int, path: str) -> None:
    known = len(migrations("sqlite"))
    if version > known:
        raise StoreTooNew(
            f"{path!r} has schema version {version}; this holdfast knows {known}",
            hint="upgrade holdfast; the file was not touched",
            version=version,
        )


def _migrate(connection: apsw.Connection, path: str, at_us: int) -> None:
    known = migrations("sqlite")
    if connection.pragma("user_version") >= len(known):
        return
    failpoint("migrate.before")
    connection.execute("begin immediate")
    try:
        connection.execute(MIGRATION_TABLE)
        applied: dict[int, str] = dict(fetch_all(connection, APPLIED))
        for migration in known:
            if migration.version in applied:
                if applied[migration.version] != migration.checksum:
                    raise StoreError(
                        f"migration {migration.version} of {path!r} was another one",
                        hint="see ARCHITECTURE.md",
                    )
                continue
            connection.execute(migration.sql).fetchall()
            row = {
                "version": migration.version,
                "name": migration.name,
                "checksum": migration.checksum,
                "at": at_us,
            }
            connection.execute(RECORD_MIGRATION, row)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", len(known))
        failpoint("migrate.commit")
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")
    failpoint("migrate.after")


def translated(error: apsw.Error, path: str) -> HoldfastError:
    """SQLite's error as one of ours, with what is safe and what to do."""
    match error:
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():
            return busy(path)
        case apsw.FullError():
            return StoreFull(
                f"there is no room for {path!r}; nothing was written and everything before is safe",
                hint="free some space and try again; reading still works",
            )
        case apsw.NotADBError():
            return NotAStore(f"{path!r} is not a database; it was not touched", hint="choose another file")
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.AuthError():
            return StoreReadOnly(f"{path!r} cannot be opened for writing: {error}", hint=_RIGHTS)
        case apsw.CorruptError():
            return LogCorrupt(path, 0, f"SQLite says: {error}", hint=_left_behind(path))
        case apsw.IOError():
            return StorePoisoned(
                f"{path!r} met an I/O error ({error}); whether the last write is there is not known",
                hint="close the store and open it again: it then reads what is there",
            )
        case _:
            return StoreError(f"{path!r}: {type(error).__name__}: {error}", hint="this is a bug: please report it")


_RIGHTS = "check the owner, mode and file system of the file and its directory; commands that only read still work"


def _left_behind(path: str) -> str:
    return (
        f"if a backup was put in place: remove {path}-wal and {path}-shm, which belong to the file before it, and put "
        "the backup there again; else restore a backup"
    )

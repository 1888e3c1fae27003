"""Reaching a PostgreSQL server: what an address says, connecting, the schema, and naming what goes wrong."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from msgspec import Struct
from psycopg import conninfo, errors
from psycopg.rows import tuple_row

from holdfast.core import limits
from holdfast.core.errors import (
    HoldfastError,
    InvalidUrl,
    InvalidValue,
    LogCorrupt,
    NotAStore,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
    StoreUnreachable,
)
from holdfast.core.urls import PLAIN_OPTIONS, SECRET_OPTIONS
from holdfast.failpoints import failpoint
from holdfast.store.migrations import Migration, migrations
from holdfast.store.postgres.server import queries as q
from holdfast.store.postgres.server.statements import PatientConnection, register

Durability = Literal["full", "process"]
Presence = Literal["lock", "lease"]
"""What proves a process alive: a lock on a session of its own, or that it was heard of within its lease."""
Wakeups = Literal["notify", "poll"]
"""How a worker hears of tasks: the server notifies it, or it looks now and then."""
Link = PatientConnection

OLDEST_SERVER = 14
CONNECT_SECONDS = 10
IDLE_SECONDS = 60
MAX_CONNECTIONS = 1_000
ONLY_WHEN_ASKED = 1 << 30  # uses of a statement before psycopg prepares it unasked; None would forbid it altogether

# Options of libpq unless the address sets them: notice a dead peer in half a minute, and find the primary.
_DEFAULTS = {
    "connect_timeout": str(CONNECT_SECONDS),
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "target_session_attrs": "read-write",
    "fallback_application_name": "holdfast",
}


class ServerAddress(Struct, frozen=True, kw_only=True):
    """What an address says: where the server is, and how to use it."""

    conninfo: str
    direct: str
    schema: str = "holdfast"
    pooled: bool = False
    connections: int = 10
    lock_seconds: float = 10.0
    statement_seconds: float = 30.0
    wait_seconds: float = 30.0
    lease_seconds: float = limits.LEASE_SECONDS
    durability: Durability | None = None
    presence: Presence = "lock"
    wakeups: Wakeups = "notify"

    @property
    def by_lease(self) -> bool:
        """True if no lock is asked for: who is silent for longer than its lease is presumed dead."""
        return self.presence == "lease"

    @property
    def by_poll(self) -> bool:
        """True if the server notifies nobody: workers look for tasks."""
        return self.wakeups == "poll"

    @property
    def patience(self) -> float:
        """The seconds to wait for an answer: longer than the server may take for anything."""
        return 1 + 1.25 * max(self.statement_seconds, self.lock_seconds)

    @property
    def shown(self) -> str:
        """The address, without the password."""
        said = conninfo.conninfo_to_dict(self.conninfo)
        place = f"{said.get('host') or said.get('service') or 'localhost'}:{said.get('port') or 5432}"
        portable = ("&presence=lease" if self.by_lease else "") + ("&wakeups=poll" if self.by_poll else "")
        return f"postgresql://{place}/{said.get('dbname') or ''}?schema={self.schema}{portable}"


def parse(url: str) -> ServerAddress:
    """Read `postgresql://user@host/database?schema=…`: our own options, and any of libpq's."""
    bare, _, asked = url.partition("?")
    pairs = dict(parse_qsl(asked, keep_blank_values=True))
    own = {name: pairs.pop(name) for name in (*PLAIN_OPTIONS, *SECRET_OPTIONS) if name in pairs}
    target = _conninfo(bare + ("?" + urlencode(pairs, quote_via=quote) if pairs else ""))
    pooled = own.get("pooled")
    if pooled not in (None, "transaction"):
        raise InvalidUrl(f"pooled={pooled!r} is not known", hint="pooled=transaction, or leave it out")
    if pooled and "direct" not in own:
        raise InvalidUrl(
            "pooled=transaction needs direct=… as well: being alive is proved by a connection of one's own",
            hint="add direct= and the address of the server itself, percent-encoded",
        )
    schema, durability = own.get("schema", "holdfast"), own.get("durability")
    presence, wakeups = own.get("presence", "lock"), own.get("wakeups", "notify")
    if not schema or "\0" in schema or len(schema.encode()) > 63 or schema.startswith("pg_"):
        raise InvalidUrl(f"{schema!r} cannot be the name of a schema", hint="1 to 63 bytes, not beginning with pg_")
    if durability not in (None, "full", "process"):
        raise InvalidUrl(
            f"{durability!r} is not a durability", hint="'full' survives a crash of the server, 'process' your own"
        )
    if presence not in ("lock", "lease"):
        raise InvalidUrl(f"presence={presence!r} is not known", hint="presence=lease, or leave it out")
    if wakeups not in ("notify", "poll"):
        raise InvalidUrl(f"wakeups={wakeups!r} is not known", hint="wakeups=poll, or leave it out")
    return ServerAddress(
        conninfo=target,
        direct=_conninfo(own["direct"]) if pooled else target,
        schema=schema,
        pooled=bool(pooled),
        connections=int(_number(own, "connections", 10, 1, MAX_CONNECTIONS)),
        lock_seconds=_number(own, "lock_seconds", 10, 0.01, 3600),
        statement_seconds=_number(own, "statement_seconds", 30, 0.01, 86_400),
        wait_seconds=_number(own, "wait_seconds", 30, 0.01, 3600),
        lease_seconds=_number(own, "lease_seconds", limits.LEASE_SECONDS, 0.1, 86_400),
        durability=durability,
        presence=presence,
        wakeups=wakeups,
    )


def _conninfo(url: str) -> str:
    try:
        said = conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise InvalidUrl(
            f"the address of the server is not understood: {first_line(error)}",
            hint="postgresql://user:password@host:5432/database?schema=holdfast",
        ) from None
    return conninfo.make_conninfo("", **{**_DEFAULTS, **said})


def _number(own: dict[str, str], name: str, default: float, least: float, most: float) -> float:
    try:
        found = float(own.get(name, default))
    except ValueError:
        found = -1.0
    if not least <= found <= most:
        raise InvalidUrl(f"{name}={own[name]!r} cannot be used", hint=f"a number from {least:g} to {most:g}")
    return found


# Connecting


def connect(address: ServerAddress, *, direct: bool = False) -> Link:
    """A connection of one's own, outside the pool; says what is wrong if there is none."""
    try:
        link = PatientConnection.connect(
            address.direct if direct else address.conninfo,
            autocommit=True,
            prepare_threshold=None,
            row_factory=tuple_row,
        )
    except psycopg.Error as error:
        raise refused(error, address) from error
    register(link)
    return link


def settings(address: ServerAddress, durability: Durability, *, local: bool) -> dict[str, Any]:
    """The parameters of `SET`."""
    return {
        "lock": f"{address.lock_seconds * 1000:.0f}ms",
        "statement": f"{address.statement_seconds * 1000:.0f}ms",
        "idle": f"{IDLE_SECONDS}s",
        "durability": durability,
        "wakeups": address.wakeups,
        "local": local,
    }


def configured(link: Link, address: ServerAddress, durability: Durability) -> Link:
    """Prepare a connection of the pool. Behind a pooler nothing stays on it: settings go with each transaction."""
    register(link)
    link.patience = address.patience
    link.prepare_threshold = None if address.pooled else ONLY_WHEN_ASKED
    if not address.pooled:
        try:
            keep_alive(link)
            link.execute(q.SET, settings(address, durability, local=False))
        except psycopg.Error:
            link.close()
            raise
    return link


def keep_alive(link: Link) -> None:
    """Have the server notice in good time that we are gone, and end what it does for us."""
    link.execute(q.SET_KEEPALIVES)
    with contextlib.suppress(psycopg.DataError):
        link.execute(q.SET_CLIENT_CHECK)


def keep_idle(link: Link) -> None:
    """Have the server keep a session that says nothing for long, and notice when its process is gone."""
    keep_alive(link)
    with contextlib.suppress(errors.UndefinedObject):  # an imitation that knows no such limit has none
        link.execute(q.SET_IDLE)


def false_locks(link: Link) -> str:
    """Return what is wrong with the server's advisory locks; nothing if one that is taken can be seen by others.

    Imitations of PostgreSQL grant such locks and hold nothing, or hold them and don't show them. Every worker would
    look dead to every other one.
    """
    key = {"key": int.from_bytes(os.urandom(8)) >> 1}
    try:
        granted = link.execute(q.HOLD, key).fetchone()
        seen = link.execute(q.IS_HELD, key).fetchone()
        link.execute(q.LET_GO, key)
    except (psycopg.ProgrammingError, psycopg.NotSupportedError) as error:  # no such function, or not for this role
        return first_line(error)
    if not (granted and granted[0]):
        return "a free lock was not granted"
    return "" if seen and seen[0] else "a lock that was granted is not held"


LEASE_REMEDY = "use PostgreSQL itself; or add presence=lease to the address, and see docs/how-to/postgres.md"


def refuse_false_locks(link: Link, address: ServerAddress) -> None:
    """Refuse a server that can't tell living workers from dead ones."""
    wrong = "" if address.by_lease else false_locks(link)
    if wrong:
        raise NotAStore(
            f"the advisory locks of {address.shown} can't tell who is alive: {wrong}; nothing was written",
            hint=LEASE_REMEDY,
        )


# The schema


_MIGRATION_TRIES = 5
_MADE_BY_ANOTHER = (
    *(errors.UniqueViolation, errors.DuplicateSchema, errors.DuplicateTable, errors.DuplicateColumn),
    *(errors.DuplicateObject, errors.DuplicateFunction, errors.UndefinedObject, errors.DeadlockDetected),
)


def prepare(address: ServerAddress, texts: q.QueryTexts, at_us: int) -> None:
    """Bring the schema up to date, one process at a time; others may be writing meanwhile."""
    with connect(address, direct=True) as link:
        if link.info.server_version < OLDEST_SERVER * 10_000:
            raise NotAStore(
                f"{address.shown} is PostgreSQL {link.info.server_version // 10_000}",
                hint=f"use PostgreSQL {OLDEST_SERVER} or later",
            )
        refuse_false_locks(link, address)
        try:
            tries = 0
            while _missing(link, texts, address):
                tries += 1
                try:
                    _migrate_in_one(link, texts, address, at_us)
                except _MADE_BY_ANOTHER:
                    if not address.by_lease or tries == _MIGRATION_TRIES:
                        raise
        except errors.InsufficientPrivilege as error:
            raise StoreReadOnly(
                f"{address.shown}: {first_line(error)}; nothing was changed",
                hint=_owners_remedy(link, texts, address),
            ) from error
        except psycopg.Error as error:
            raise translated(error, address) from error


def _owners_remedy(link: Link, texts: q.QueryTexts, address: ServerAddress) -> str:
    """Return what to do where this role may not migrate: an owner makes the schema, or brings it up to date."""
    try:
        applied = link.execute(texts[q.APPLIED]).fetchall()
    except psycopg.Error:
        applied = []
    if applied:
        return "as its owner: holdfast migrate; processes of the older version keep running meanwhile"
    return f"as an owner: create schema {address.schema} authorization {link.info.user}"


def pending(url: str) -> tuple[Migration, ...]:
    """The migrations that a store lacks. Looks only."""
    address = parse(url)
    with connect(address, direct=True) as link:
        try:
            return _missing(link, q.QueryTexts(address.schema), address)
        except psycopg.Error as error:
            raise translated(error, address) from error


def _missing(link: Link, texts: q.QueryTexts, address: ServerAddress) -> tuple[Migration, ...]:
    """The migrations that the schema lacks; refuses one that is too new or not ours."""
    known = migrations("postgres")
    row = link.execute(q.STANDING, {"schema": address.schema}).fetchone()
    assert row is not None
    if not row[0]:
        if row[1]:
            raise NotAStore(
                f"the schema {address.schema!r} of {address.shown} has tables of another program; nothing was touched",
                hint="name another one: ?schema=…",
            )
        return known
    applied: dict[int, str] = dict(link.execute(texts[q.APPLIED]).fetchall())
    newest = max(applied, default=0)
    if newest > len(known):
        raise StoreTooNew(
            f"{address.shown} has schema version {newest}; this holdfast knows {len(known)}",
            hint="upgrade holdfast; nothing was touched",
            version=newest,
        )
    for migration in known:
        if applied.get(migration.version, migration.checksum) != migration.checksum:
            raise StoreError(
                f"migration {migration.version} of {address.shown} was another one", hint="see ARCHITECTURE.md"
            )
    return tuple(one for one in known if one.version not in applied)


def _migrate_in_one(link: Link, texts: q.QueryTexts, address: ServerAddress, at_us: int) -> None:
    """Migrate in one transaction. Where locks are not to be trusted, of two processes that do so the second fails."""
    with link.transaction():
        link.execute(q.SET, settings(address, "full", local=True))
        if not address.by_lease:
            link.execute(q.LOCK_SCHEMA, {"schema": address.schema})
        failpoint("migrate.before")
        _migrate(link, texts, address, at_us)
        failpoint("migrate.commit")
    failpoint("migrate.after")


def _migrate(link: Link, texts: q.QueryTexts, address: ServerAddress, at_us: int) -> None:
    """Apply what is still missing, now that no other process does."""
    row = link.execute(q.STANDING, {"schema": address.schema}).fetchone()
    if row is None or not row[2]:  # "if not exists" would ask for the right to make one even if it is there
        link.execute(texts[q.CREATE_SCHEMA])
    link.execute(texts[q.MIGRATION_TABLE])
    link.execute(q.USE_SCHEMA, {"schema": address.schema})
    for one in _missing(link, texts, address):
        link.execute(one.sql.encode())
        row = {"version": one.version, "name": one.name, "checksum": one.checksum, "at": at_us}
        link.execute(texts[q.RECORD_MIGRATION], row)


# What goes wrong

_LASTING = (
    ("password", "check the user and the password, or ~/.pgpass"),
    ("authentication", "check the user and how pg_hba.conf lets it in"),
    ("pg_hba.conf", "let this user and host in, in pg_hba.conf"),
    ('role "', "check the user's name, or make it: createuser"),
    ('database "', "check its name, or make it: createdb"),
    ("does not support", "check sslmode"),
)
_PASSING = (
    ("too many", "raise max_connections, use fewer connections (?connections=), or put pgbouncer before it"),
    ("starting up", "wait a moment and try again"),
    ("shutting down", "wait a moment and try again"),
)
_NO_ANSWER = "check host and port, and that the server runs and can be reached from here"


def refused(error: psycopg.Error, address: ServerAddress) -> HoldfastError:
    """Why there is no connection."""
    said = first_line(error)
    if "read-only" in str(error) or "hot standby" in str(error):
        several = "," in address.conninfo  # one of them will be the primary, when it has taken over
        return StoreReadOnly(
            f"{address.shown} is a standby: {said}", hint="give the primary, or list all hosts", passing=several
        )
    lasting = next((hint for part, hint in _LASTING if part in str(error)), None)
    passing = next((hint for part, hint in _PASSING if part in str(error)), _NO_ANSWER)
    return StoreUnreachable(
        f"there is no connection to {address.shown}: {said}",
        hint=lasting or passing,
        passing=lasting is None,
        answered=lasting is not None or "too many" in str(error),
    )


def is_refusal(error: psycopg.Error) -> bool:
    """Return whether other writers caused the failure: another look under a lock will tell."""
    others = (errors.DeadlockDetected, errors.SerializationFailure)
    return isinstance(error, (errors.UniqueViolation, errors.NotNullViolation, errors.ForeignKeyViolation, *others))


def is_lost(error: psycopg.Error, link: Link) -> bool:
    """Return whether the connection is gone, so that the outcome of the last statement is unknown."""
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (link.closed or link.broken)


def translated(error: psycopg.Error, address: ServerAddress) -> HoldfastError:
    """PostgreSQL's error as one of ours, with what is safe and what to do."""
    said, where = first_line(error), address.shown
    match error:
        case errors.LockNotAvailable() | errors.QueryCanceled() | errors.DeadlockDetected():
            return StoreBusy(f"{where}: {said}; nothing was written", hint="try again; see lock_seconds")
        case errors.DiskFull() | errors.OutOfMemory():
            return StoreFull(f"{where}: {said}; nothing was written", hint="free space on the server and try again")
        case errors.ReadOnlySqlTransaction():
            return StoreReadOnly(f"{where}: {said}; nothing was written", hint="it has become a standby: try again")
        case errors.InsufficientPrivilege():
            return StoreReadOnly(f"{where}: {said}; nothing was written", hint="grant this role what it needs")
        case errors.UndefinedTable() | errors.UndefinedColumn() | errors.InvalidSchemaName():
            return NotAStore(f"{where}: {said}", hint="the schema was changed or dropped: open the store again")
        case errors.DataCorrupted() | errors.IndexCorrupted() | errors.RaiseException() | psycopg.IntegrityError():
            return LogCorrupt(where, 0, f"PostgreSQL says: {said}")
        case psycopg.DataError():
            return InvalidValue(f"PostgreSQL cannot keep this: {said}", hint="names may not hold the character 0")
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return StoreUnreachable(f"the connection to {where} was lost: {said}", hint="try again")
        case _:
            return StoreError(f"{where}: {type(error).__name__}: {said}", hint="this is a bug: please report it")


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__

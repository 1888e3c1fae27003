"""The tables of a store as the auditor reads them, on SQLite and on PostgreSQL. Imports nothing of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol
from urllib.parse import parse_qsl, quote, urlencode

import apsw

SQLITE = {
    # Every table is read as it lies there: an index could tell another story.
    "logs": "select log, name, parent, base from logs not indexed",
    "events": "select log, seq, cast(kind as blob), at, body, body_hash, digest from events not indexed order by 1, 2",
    "tasks": "select log, status, anchor_seq, anchor_digest from tasks not indexed",
    "heads": "select 0, 0, x'' where 0",
    "snapshots": "select log, seq, digest from snapshots not indexed",
    "blobs": "select hash from blobs not indexed",
    "blob_uses": "select hash, log from blob_uses",
    "erasures": "select log, seq from erasures not indexed",
    "tombstones": "select name, seq, digest from tombstones",
    "integrity": "select * from pragma_integrity_check",
}
POSTGRES = {
    **{name: text.replace(" not indexed", "") for name, text in SQLITE.items()},
    "events": "select log, seq, convert_to(kind, 'utf8'), at, body, body_hash, digest from events order by log, seq",
    "tasks": "select log, status, logs.seq, logs.digest from tasks join logs using (log)",
    "heads": "select log, seq, digest from logs",
    "integrity": "select 'ok'",
}
OPTIONS = (
    *("schema", "pooled", "direct", "connections", "lock_seconds", "statement_seconds", "wait_seconds", "durability"),
    *("lease_seconds", "presence", "wakeups"),
)
"""What an address may say that is meant for Holdfast and not for libpq. A test compares it with core/urls.py."""


class Tables(Protocol):
    """A store's tables at one moment."""

    def rows(self, name: str) -> Iterator[Any]:
        """The rows of a table, as the query of that name gives them."""
        ...

    def close(self) -> None: ...


def is_server(place: str) -> bool:
    """Return whether a store lies on a server, and not in a file."""
    return place.startswith(("postgres://", "postgresql://"))


def tables_at(place: str) -> Tables:
    """The tables of the store at a path or an address. Both errors of reading them are ValueErrors."""
    return PostgresTables(place) if is_server(place) else SqliteTables(place)


class SqliteTables:
    """A file, in one transaction."""

    def __init__(self, path: str) -> None:
        self._connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        self._connection.execute("begin")

    def rows(self, name: str) -> Iterator[Any]:
        try:
            yield from self._connection.execute(SQLITE[name])
        except apsw.Error as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._connection.close()


class PostgresTables:
    """A schema on a server, in one transaction that sees all of it at the same moment."""

    def __init__(self, url: str) -> None:
        import psycopg  # only stores on a server need it

        bare, _, asked = url.partition("?")
        pairs = dict(parse_qsl(asked, keep_blank_values=True))
        schema = pairs.get("schema", "holdfast")
        libpq = urlencode({name: value for name, value in pairs.items() if name not in OPTIONS}, quote_via=quote)
        self._error = psycopg.Error
        self._connection = psycopg.connect(bare + ("?" + libpq if libpq else ""))
        self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        self._connection.execute("select set_config('search_path', %s, true)", (schema,))

    def rows(self, name: str) -> Iterator[Any]:
        query: Any = POSTGRES[name]
        try:
            yield from self._connection.execute(query, binary=True)
        except self._error as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._connection.close()

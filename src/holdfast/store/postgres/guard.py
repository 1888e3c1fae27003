"""What user code may do inside a store's transaction, and for how long.

It may read everything and write to tables of its own. It may not end the transaction, which would part its writes from
their record: each call is one statement, and those that begin or end transactions or set something beyond this one are
refused by their first word. Nor may it change Holdfast's tables: the server says which tables a transaction has locked
for more than reading, and if one is ours all of it is rolled back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any, LiteralString

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from holdfast.core.codec import Group
from holdfast.core.errors import StoreError, TimeLimit
from holdfast.store.bounds import Bounds
from holdfast.store.postgres.server import queries as q
from holdfast.store.postgres.server.connecting import Link
from holdfast.store.protocol import Bindings, Rows, Work

# What stands before the first word of a statement: spaces, and comments of both kinds (these may be nested).
_SPACE = re.compile(r"(?:\s+|--[^\n]*|\()+")
_WORDS = re.compile(r"([a-z]+)(?:\s+([a-z]+))?", re.IGNORECASE)

_TRANSACTION = "begin or end a transaction: it is committed together with the record of the call"
_LASTING = "change what outlives the transaction"
_REFUSALS = {
    **dict.fromkeys(("begin", "start", "commit", "end", "abort", "prepare"), _TRANSACTION),
    **dict.fromkeys(("set", "reset", "discard", "listen", "unlisten", "load", "deallocate", "declare"), _LASTING),
}
_SET_LOCALLY = ("local", "constraints")


def run_guarded(link: Link, schema: str, work: Work, seconds: float | None) -> Group:
    """Call `work` with a connection into the transaction that is open."""
    guard = _Guard(link, seconds)
    ours = {"schema": schema}
    before = _row(link, q.TRANSACTION, ours)
    try:
        guard.set_limits()
        group = work(_Connection(link, guard))
    except Exception as error:
        if guard.is_late and not isinstance(error, TimeLimit):
            raise guard.too_late() from error
        raise
    finally:
        guard.ended = True
    guard.refuse_if_lost()
    after = _row(link, q.TRANSACTION, ours)
    if after[0] != before[0]:
        raise StoreError(
            "a statement has ended the transaction, so its writes stand without their record",
            hint="do not end transactions inside a transaction tool",
        )
    touched = _row(link, q.TOUCHED, ours)
    if touched or after != before:
        what = touched[0] if touched else schema
        raise StoreError(
            f"a transaction tool may not change {what!r}: it is Holdfast's own; nothing was written",
            hint="write to tables of your own",
        )
    return group


def _row(link: Link, query: LiteralString, bindings: dict[str, Any]) -> tuple[Any, ...]:
    return link.execute(query, bindings).fetchone() or ()


class _Guard(Bounds):
    """What keeps user code inside its bounds."""

    def __init__(self, link: Link, seconds: float | None) -> None:
        super().__init__(seconds)
        self._link = link
        self._allowed = 0.0

    def set_limits(self) -> None:
        """Have the server end what takes too long. As time passes the limit shrinks: looked at again at every half."""
        if self._until is None:
            if not self._allowed:
                self._allowed = 1.0
                self._link.execute(q.SET_FOR_USERS, {"idle": "0"})
                self._link.execute(q.SET_STATEMENT_LIMIT, {"limit": "0"})
            return
        left = self._until - time.monotonic()
        if not self._allowed:
            self._link.execute(q.SET_FOR_USERS, {"idle": f"{(left + 60) * 1000:.0f}ms"})
        if not self._allowed or left < self._allowed / 2:
            self._allowed = max(left, 0.001)
            self._link.execute(q.SET_STATEMENT_LIMIT, {"limit": f"{max(1, round(self._allowed * 1000))}ms"})

    def refuse_if_over(self) -> None:
        """Refuse a statement outside of the transaction: after it, beside it, or when it can no longer be committed."""
        self.refuse_outside()
        if self.is_late:
            raise self.too_late()

    def refuse_if_lost(self) -> None:
        """Refuse a transaction that cannot be committed as a whole."""
        if self.is_late:
            raise self.too_late()
        if self._link.info.transaction_status != TransactionStatus.INTRANS:
            raise StoreError(
                "a statement's error has spoiled the transaction; nothing was written",
                hint="let that error leave the tool, or put a savepoint before what may fail",
            )


class _Connection:
    """What user code gets."""

    def __init__(self, link: Link, guard: _Guard) -> None:
        self._link = link
        self._guard = guard

    @property
    def dialect(self) -> str:
        return "postgres"

    def execute(self, sql: str, bindings: Bindings = ()) -> Rows:
        self._ready(sql)
        with self._link.cursor() as cursor:
            # The extended protocol takes one statement at a time; `binary` asks for it where there are no values.
            self._run(lambda: cursor.execute(sql.encode(), bindings or None, binary=not bindings))
            return _kept(cursor)

    def executemany(self, sql: str, rows: Iterable[Bindings]) -> Rows:
        self._ready(sql)
        with self._link.cursor() as cursor:
            self._run(lambda: cursor.executemany(sql.encode(), rows))
            return Rows((), max(0, cursor.rowcount))

    def _ready(self, sql: str) -> None:
        self._guard.refuse_if_over()
        refusal = _refusal(sql)
        if refusal:
            raise StoreError(f"a transaction tool may not {refusal}", hint="leave that to Holdfast, or use set local")
        if self._link.info.transaction_status == TransactionStatus.INTRANS:
            self._guard.set_limits()

    def _run(self, start: Any) -> None:
        try:
            start()
        except errors.QueryCanceled as error:
            if self._guard.is_late:
                raise self._guard.too_late() from error
            raise


def _kept(cursor: psycopg.Cursor[tuple[Any, ...]]) -> Rows:
    """Every row, and how many were changed: reading changes none."""
    rows = cursor.fetchall() if cursor.description else ()
    changed = 0 if (cursor.statusmessage or "").startswith(("SELECT", "SHOW", "VALUES")) else max(0, cursor.rowcount)
    return Rows(rows, changed)


def _refusal(sql: str) -> str:
    """Return the reason why user code may not do this; nothing if it may."""
    words = _WORDS.match(_begin(sql))
    first, second = (words[1].lower(), (words[2] or "").lower()) if words else ("", "")
    if first == "rollback":
        back = re.match(r"rollback\s+(?:work\s+|transaction\s+)?to\b", _begin(sql), re.IGNORECASE)
        return "" if back else _TRANSACTION
    if first == "set" and second in _SET_LOCALLY:
        return ""
    return _REFUSALS.get(first, "")


def _begin(sql: str) -> str:
    """A statement without what stands before its first word."""
    at = 0
    while True:
        space = _SPACE.match(sql, at)
        at = space.end() if space else at
        if not sql.startswith("/*", at):
            return sql[at:]
        depth, at = 1, at + 2
        while depth and at < len(sql):
            mark = sql[at : at + 2]
            depth += (mark == "/*") - (mark == "*/")
            at += 2 if mark in ("/*", "*/") else 1

"""What user code may do inside a store's transaction, and for how long.

It may read everything and write to tables of its own. It may not end the transaction, which would part its writes from
their record; nor touch Holdfast's tables; nor leave anything behind on the connection that outlives the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

import apsw

from holdfast.core.codec import Group
from holdfast.core.errors import StoreError, TimeLimit
from holdfast.store.bounds import Bounds
from holdfast.store.migrations import migrations
from holdfast.store.protocol import Bindings, Rows, Work
from holdfast.store.sqlite.file import MIGRATION_TABLE, fetch_all
from holdfast.store.sqlite.queries import TABLES

# How many of SQLite's instructions pass between two looks at the time: some tenth of a millisecond.
_STEPS_BETWEEN_LOOKS = 5_000

# A savepoint lies inside the transaction, so releasing it commits nothing; making an index asks for a reindex too.
_HARMLESS = frozenset(
    (
        *(apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE),
        *(apsw.SQLITE_SAVEPOINT, apsw.SQLITE_REINDEX),
    )
)

# What changes a table, and which of the authorizer's two names is the table's.
_CHANGES = {
    **dict.fromkeys((apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE), 0),
    **dict.fromkeys((apsw.SQLITE_DROP_TABLE, apsw.SQLITE_DROP_VTABLE, apsw.SQLITE_DROP_VIEW), 0),
    **dict.fromkeys((apsw.SQLITE_DROP_INDEX, apsw.SQLITE_DROP_TRIGGER, apsw.SQLITE_ALTER_TABLE), 1),
}

# The same for what makes something. SQLite has codes of their own for most, but not all, temporary things.
_MAKES = {
    **dict.fromkeys((apsw.SQLITE_CREATE_TABLE, apsw.SQLITE_CREATE_VTABLE, apsw.SQLITE_CREATE_VIEW), 0),
    **dict.fromkeys((apsw.SQLITE_CREATE_INDEX, apsw.SQLITE_CREATE_TRIGGER), 1),
}

_PRAGMAS_THAT_LOOK = frozenset(
    (
        *("foreign_key_list", "index_info", "index_list", "index_xinfo", "table_info", "table_list", "table_xinfo"),
        *("collation_list", "compile_options", "foreign_key_check", "function_list", "module_list", "pragma_list"),
    )
)

# These set something if they get a value. Full-text tables ask for the first two.
_PRAGMAS_WITHOUT_VALUE = frozenset(("data_version", "page_size", "foreign_keys", "user_version", "application_id"))

_TEMPORARY = "make anything temporary: it would outlive the transaction"

_REFUSALS = {
    apsw.SQLITE_TRANSACTION: "begin or end a transaction: it is committed together with the record of the call",
    apsw.SQLITE_ATTACH: "attach a database",
    apsw.SQLITE_DETACH: "detach a database",
    apsw.SQLITE_ANALYZE: "analyze: it is for the whole file",
    apsw.SQLITE_CREATE_TEMP_TABLE: _TEMPORARY,
    apsw.SQLITE_CREATE_TEMP_INDEX: _TEMPORARY,
    apsw.SQLITE_CREATE_TEMP_TRIGGER: _TEMPORARY,
    apsw.SQLITE_CREATE_TEMP_VIEW: _TEMPORARY,
}


def run_guarded(database: apsw.Connection, work: Work, seconds: float | None) -> Group:
    """Call `work` with a connection into the transaction that is open; nothing of the guard stays when it is over."""
    guard = _Guard(database, seconds)
    try:
        guard.begin()
        group = work(_Connection(database, guard))
    except Exception as error:
        if guard.is_late and not isinstance(error, TimeLimit):
            raise guard.too_late() from error
        raise
    finally:
        guard.ended = True  # at once: from here on the hooks let everything pass, even if a signal keeps them in place
        guard.end()
    guard.refuse_if_lost()
    return group


class _Guard(Bounds):
    """What keeps user code inside its bounds."""

    def __init__(self, database: apsw.Connection, seconds: float | None) -> None:
        super().__init__(seconds)
        self.refusal = ""
        self._undone = False
        self._database = database

    def begin(self) -> None:
        """Set the bounds. A new authorizer makes SQLite prepare every cached statement again, under its eyes."""
        _own_tables()  # known before SQLite asks
        self._database.set_rollback_hook(self._note_rollback, id=_Guard)
        self._database.set_commit_hook(self._refuse_commit, id=_Guard)
        self._database.set_authorizer(self._authorize)
        if self._until is not None:
            self._database.set_progress_handler(self._look_at_time, _STEPS_BETWEEN_LOOKS, id=_Guard)

    def end(self) -> None:
        """Take the bounds away again."""
        self._database.set_authorizer(None)
        self._database.set_progress_handler(None, id=_Guard)
        self._database.set_commit_hook(None, id=_Guard)
        self._database.set_rollback_hook(None, id=_Guard)

    def refuse_if_over(self) -> None:
        """Refuse a statement outside of the transaction: after it, beside it, or when it can no longer be committed."""
        self.refuse_outside()
        self.refuse_if_lost()

    def refuse_if_lost(self) -> None:
        """Refuse a transaction that cannot be committed as a whole."""
        if self.is_late:
            raise self.too_late()
        if self._undone or not self._database.in_transaction:
            raise StoreError(
                "a statement's error has rolled the transaction back; nothing was written",
                hint="let that error leave the tool, and do without 'or rollback'",
            )

    def _note_rollback(self) -> None:
        """Some errors take the whole transaction with them; what came after would stand alone."""
        self._undone = self._undone or not self.ended

    def _refuse_commit(self) -> bool:
        return not self.ended

    def _look_at_time(self) -> bool:
        return self.is_late and not self.ended

    def _authorize(
        self, action: int, one: str | None, other: str | None, database: str | None, trigger: str | None
    ) -> int:
        refusal = "" if self.ended else _refusal(action, (one, other), database)
        if not refusal:
            return apsw.SQLITE_OK
        self.refusal = refusal
        return apsw.SQLITE_DENY


class _Connection:
    """What user code gets."""

    def __init__(self, database: apsw.Connection, guard: _Guard) -> None:
        self._database = database
        self._guard = guard

    @property
    def dialect(self) -> str:
        return "sqlite"

    def execute(self, sql: str, bindings: Bindings = ()) -> Rows:
        return self._run(lambda cursor: cursor.execute(sql, bindings))

    def executemany(self, sql: str, rows: Iterable[Bindings]) -> Rows:
        return self._run(lambda cursor: cursor.executemany(sql, rows))

    def _run(self, start: Callable[[apsw.Cursor], object]) -> Rows:
        """Run to the end and keep the rows: an insert that is only half read would make the commit fail."""
        guard, database = self._guard, self._database
        guard.refuse_if_over()
        guard.refusal = ""
        cursor, before = database.cursor(), database.total_changes()
        try:
            start(cursor)
            rows = cursor.fetchall()
        except apsw.AuthError as error:
            if guard.refusal:
                error.args = (f"a transaction tool may not {guard.refusal}",)
            raise
        except apsw.InterruptError as error:
            if guard.is_late:
                raise guard.too_late() from error
            raise
        finally:
            cursor.close(True)
        return Rows(rows, database.changes() if database.total_changes() != before else 0)


def _refusal(action: int, names: tuple[str | None, str | None], database: str | None) -> str:
    """Return the reason why user code may not do this; nothing if it may."""
    if action in _HARMLESS:
        return ""
    if action in _MAKES and database == "temp":
        return _TEMPORARY
    if action in _CHANGES or action in _MAKES:
        table = names[_CHANGES[action] if action in _CHANGES else _MAKES[action]] or ""
        return f"change {table!r}: it is Holdfast's own" if table.lower() in _own_tables() else ""
    if action == apsw.SQLITE_PRAGMA:
        pragma = (names[0] or "").lower()
        looks = pragma in _PRAGMAS_THAT_LOOK or (names[1] is None and pragma in _PRAGMAS_WITHOUT_VALUE)
        return "" if looks else f"use the pragma {pragma!r}"
    return _REFUSALS.get(action, f"do this (SQLite's action {action})")


@cache
def _own_tables() -> frozenset[str]:
    """The tables the schema makes. (A file's own list would not do: the user's tables lie in it too.)"""
    scratch = apsw.Connection(":memory:")
    for statements in (MIGRATION_TABLE, *(migration.sql for migration in migrations("sqlite"))):
        scratch.execute(statements).fetchall()
    names = [row[0] for row in fetch_all(scratch, TABLES)]
    scratch.close()
    return frozenset((*names, "sqlite_dbpage"))

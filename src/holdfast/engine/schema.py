"""How far the schema of a store is, and what bringing it up to date would run. Looks only."""

from __future__ import annotations

from msgspec import Struct

from holdfast.core.errors import MissingExtra, StoreTooNew
from holdfast.store.migrations import Migration, migrations


class Schema(Struct, frozen=True):
    """The version a store has, the one this Holdfast knows, and the steps between them."""

    dialect: str
    found: int
    known: int
    pending: list[Migration]


def schema_of(path: str | None) -> Schema:
    """The schema of a SQLite file; of a file that is not there, everything is pending."""
    if path is None:
        raise MissingExtra("only the schema of a file can be looked at", hint="give the path of a SQLite store")
    from holdfast.store.sqlite_file import schema_version

    every, found = migrations("sqlite"), schema_version(path)
    if found > len(every):
        raise StoreTooNew(
            f"{path!r} has schema version {found}; this holdfast knows {len(every)}",
            hint="upgrade holdfast; the file was not touched",
            version=found,
        )
    return Schema("sqlite", found, len(every), list(every[found:]))

"""How far the schema of a store is, and what bringing it up to date would run. Looks only."""

from __future__ import annotations

from msgspec import Struct

from holdfast.core.errors import InvalidUrl, MissingExtra, StoreTooNew
from holdfast.store.migrations import Migration, migrations


class Schema(Struct, frozen=True):
    """The version a store has, the one this Holdfast knows, and the steps between them."""

    dialect: str
    found: int
    known: int
    pending: list[Migration]


def schema_of(path: str | None, url: str = "") -> Schema:
    """The schema of a SQLite file, or of a database at an address; of what is not there, everything is pending."""
    if path is None:
        return _of_database(url)
    from holdfast.store.sqlite_file import schema_version

    every, found = migrations("sqlite"), schema_version(path)
    if found > len(every):
        raise StoreTooNew(
            f"{path!r} has schema version {found}; this holdfast knows {len(every)}",
            hint="upgrade holdfast; the file was not touched",
            version=found,
        )
    return Schema("sqlite", found, len(every), list(every[found:]))


def _of_database(url: str) -> Schema:
    if not url.startswith(("postgres:", "postgresql:")):
        raise InvalidUrl(f"{url!r} has no schema", hint="give the path of a SQLite store, or postgresql://…")
    try:
        from holdfast.store.postgres_checks import pending
    except ImportError as error:
        raise MissingExtra(
            f"PostgreSQL needs {error.name}, which is not installed", hint="pip install 'holdfast[postgres]'"
        ) from error
    every, lacking = migrations("postgres"), pending(url)
    return Schema("postgres", len(every) - len(lacking), len(every), list(lacking))

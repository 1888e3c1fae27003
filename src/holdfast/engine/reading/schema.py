"""How far the schema of a store is, and what bringing it up to date would run. Looks only."""

from __future__ import annotations

from msgspec import Struct

from holdfast.core import urls
from holdfast.core.errors import InvalidUrl, StoreTooNew
from holdfast.engine.logs.addresses import place_of, without_postgres
from holdfast.store.migrations import Migration, migrations


class Schema(Struct, frozen=True):
    """The version a store has, the one this Holdfast knows, and the steps between them."""

    dialect: str
    found: int
    known: int
    pending: list[Migration]


def schema_of(url: str, path: str | None) -> Schema:
    """The schema of a store: of the file `path`, else of a server. Where there is none yet, everything is pending."""
    if path is not None:
        return _of_file(path)
    if place_of(url).url is None:
        raise InvalidUrl(f"{urls.shown(url)!r} has no schema to look at", hint="give a file or postgresql://…")
    try:
        from holdfast.store.postgres.server.connecting import pending
    except ImportError as error:
        raise without_postgres(error) from error
    every, missing = migrations("postgres"), pending(url)
    return Schema("postgres", len(every) - len(missing), len(every), list(missing))


def _of_file(path: str) -> Schema:
    from holdfast.store.sqlite.read_only import schema_version

    every, found = migrations("sqlite"), schema_version(path)
    if found > len(every):
        raise StoreTooNew(
            f"{path!r} has schema version {found}; this holdfast knows {len(every)}",
            hint="upgrade holdfast; the file was not touched",
            version=found,
        )
    return Schema("sqlite", found, len(every), list(every[found:]))

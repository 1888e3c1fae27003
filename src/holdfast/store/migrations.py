"""The numbered `.sql` files of a dialect. A store applies those it lacks, in order, in one transaction."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from msgspec import Struct


class Migration(Struct, frozen=True):
    """One step of the schema, known by its number and the hash of its text."""

    version: int
    name: str
    sql: str
    checksum: str


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """Every migration of a dialect, in order, numbered without a gap."""
    folder = Path(__file__).parent / "sql" / dialect  # importlib.resources would take a tenth of a command's time
    found = sorted((one for one in folder.iterdir() if one.name.endswith(".sql")), key=lambda one: one.name)
    made: list[Migration] = []
    for number, file in enumerate(found, start=1):
        version, _, name = file.name.removesuffix(".sql").partition("_")
        assert int(version) == number, f"{file.name} should be number {number}"
        sql = file.read_text("utf-8")
        made.append(Migration(number, name, sql, hashlib.sha256(sql.encode()).hexdigest()))
    return tuple(made)

"""Looking at a PostgreSQL server: how far its schema is, how safe its settings are, how much of it is left."""

from __future__ import annotations

import time

import psycopg
from msgspec import Struct

from holdfast.store.postgres.server.connecting import connect, false_locks, parse, translated

SETTINGS = """
select name, setting from pg_settings where name in ('server_version', 'fsync', 'full_page_writes',
  'synchronous_commit', 'synchronous_standby_names', 'max_connections', 'superuser_reserved_connections')
"""
CONNECTIONS = "select coalesce(sum(numbackends), 0)::bigint from pg_stat_database"
CLOCK = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint"
INVALID = """
select pg_class.relname from pg_index join pg_class on pg_class.oid = indexrelid
join pg_namespace on pg_namespace.oid = relnamespace
where nspname = %(schema)s and not (indisvalid and indisready) order by 1
"""


class Server(Struct, frozen=True):
    """What was found: settings by name, connections in use, indexes that cannot be used, how far its clock is ahead.

    `false_locks` says what is wrong with its advisory locks; `by_lease`, that the address asks for none.
    """

    settings: dict[str, str]
    connections: int
    invalid: list[str]
    ahead_us: int
    where: str
    false_locks: str
    by_lease: bool


def look(url: str) -> Server:
    """Ask the server."""
    address = parse(url)
    with connect(address, direct=True) as link:
        try:
            settings: dict[str, str] = dict(link.execute(SETTINGS).fetchall())
            invalid = [row[0] for row in link.execute(INVALID, {"schema": address.schema})]
            used = link.execute(CONNECTIONS).fetchone()
            before_us = time.time_ns() // 1000
            there = link.execute(CLOCK).fetchone()
            after_us = time.time_ns() // 1000
            wrong = false_locks(link)
        except psycopg.Error as error:
            raise translated(error, address) from error
    assert used is not None and there is not None
    ahead_us = there[0] - (before_us + after_us) // 2
    return Server(settings, used[0], invalid, ahead_us, address.shown, wrong, address.by_lease)

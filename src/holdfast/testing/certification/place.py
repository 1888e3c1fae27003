"""Schemas of its own on a server, for what is tried there. Nothing else is touched."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg import sql

from holdfast.core.errors import HoldfastError, InvalidUrl
from holdfast.store.postgres.server.connecting import ServerAddress, connect, parse

PREFIX = "holdfast_certify_"
LOCK_SECONDS = 30


class NoRight(HoldfastError):
    """The role of the address may not create schemas, which says nothing about its server."""


class TrialServer:
    """A server, and a name for everything that is made on it."""

    def __init__(self, url: str) -> None:
        """Refuse an address that names a schema: it may hold a store that is in use."""
        self._bare, _, asked = url.partition("?")
        self._options = dict(parse_qsl(asked, keep_blank_values=True))
        if "schema" in self._options:
            raise InvalidUrl(
                f"the address names the schema {self._options['schema']!r}, which may hold a store in use",
                hint="leave schema= out: schemas are made for this, and dropped",
            )
        self.address: ServerAddress = parse(url)
        self._name = f"{PREFIX}{os.urandom(4).hex()}"
        self._made = 0

    def _url(self, schema: str) -> str:
        """Return the address of a store in a schema. What user code makes there lies in another one."""
        options = {**self._options, "schema": schema}
        if not self.address.pooled:  # a pooler may refuse what it does not know
            options["options"] = f"-c search_path={schema}_user"
        return f"{self._bare}?{urlencode(options, quote_via=quote)}"

    @contextmanager
    def store(self) -> Generator[str, None, None]:
        """Return the address of a store that is not there yet; it is dropped with the context."""
        self._made += 1
        schema = f"{self._name}_{self._made}"
        try:
            self._create(f"{schema}_user")
            yield self._url(schema)
        finally:
            self._drop(schema, f"{schema}_user")

    def _create(self, schema: str) -> None:
        try:
            self._execute(f"create schema {schema}")
        except psycopg.errors.InsufficientPrivilege as error:
            raise NoRight(
                f"the role of the address may not create schemas: {error.diag.message_primary}",
                hint="grant create on database … to it, or give the address of another role",
            ) from error

    def left(self) -> list[str]:
        """Return the schemas that were made and are still there."""
        with connect(self.address, direct=True) as link:
            rows = link.execute("select nspname from pg_namespace order by 1").fetchall()
        return [name for (name,) in rows if name.startswith(self._name)]

    def drop_left(self) -> None:
        """Drop what is left, if an interrupt came while a schema was dropped."""
        self._drop(*self.left())

    def version(self) -> str:
        """Return what the server says it is."""
        with connect(self.address, direct=True) as link:
            row = link.execute("select version()").fetchone()
        return str(row[0]) if row else ""

    def _drop(self, *schemas: str) -> None:
        drops = [f"drop schema if exists {schema} cascade" for schema in schemas]
        self._execute(f"set lock_timeout = '{LOCK_SECONDS}s'", *drops)

    def _execute(self, *statements: str) -> None:
        with connect(self.address, direct=True) as link:
            for statement in statements:
                link.execute(sql.SQL(statement))  # pyright: ignore[reportArgumentType] — names that are made here


Unreachable = (psycopg.Error,)
"""What a server's refusals are raised as, where the store has not translated them."""

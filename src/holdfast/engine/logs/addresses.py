"""Addresses of stores."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.core.errors import InvalidUrl, InvalidValue, MissingExtra
from holdfast.engine.logs.cache import Cache
from holdfast.store.protocol import Store

if TYPE_CHECKING:
    from holdfast.engine.logs.redis import RedisAddress
    from holdfast.store.sqlite.file import Durability

DEFAULT_URL = "holdfast.db"
_HELP = "use a path, sqlite:///path, postgresql://… or memory:"


def open_store(
    url: str | os.PathLike[str] | None,
    *,
    durability: str | None,
    snapshots_kept: int,
    at_us: int,
    read_only: bool = False,
) -> Store:
    """Open the store at an address; without one, at $HOLDFAST_URL or holdfast.db."""
    address = os.fspath(url) if url is not None else os.environ.get("HOLDFAST_URL") or DEFAULT_URL
    if not address or "\0" in address:
        raise InvalidUrl(f"{address!r} is not the address of a store", hint=_HELP)
    if snapshots_kept < 1:
        raise InvalidUrl(f"snapshots_kept={snapshots_kept} keeps none", hint="keep at least 1")
    level = _durability(durability)
    scheme, colon, rest = address.partition(":")
    if address in ("memory:", "memory://"):
        from holdfast.store.memory.store import MemoryStore

        return MemoryStore()
    if read_only and scheme in ("postgres", "postgresql"):
        raise InvalidUrl("only files can be opened read-only", hint="connect as a role that may only read")
    if scheme in ("postgres", "postgresql") and colon:
        return _open_postgres(address, level, snapshots_kept, at_us)
    if scheme == "sqlite" and colon:
        if not rest.startswith("///"):
            raise InvalidUrl(f"{address!r} has no path", hint="sqlite:///relative.db or sqlite:////absolute.db")
        from urllib.parse import parse_qs, unquote

        quoted, _, asked = rest.removeprefix("///").partition("?")
        options = parse_qs(asked, keep_blank_values=True)
        level = level or _durability(options.pop("durability", [None])[0])
        if options or "#" in quoted:
            odd = sorted(options)[0] if options else "#"
            raise InvalidUrl(f"{address!r} has the unknown part {odd!r}", hint="?durability=process; write # as %23")
        path = unquote(quoted)
    elif colon and "://" in address:
        raise InvalidUrl(f"{address!r} has the unknown scheme {scheme!r}", hint=_HELP)
    else:
        path = address
    if read_only:
        from holdfast.store.sqlite.read_only import ReadOnlyStore

        return ReadOnlyStore(path)
    return _open_sqlite(path, level or "full", snapshots_kept, at_us)


def is_server(url: str) -> bool:
    """Whether an address names a PostgreSQL server."""
    return url.startswith(("postgres:", "postgresql:"))


def path_of(url: str) -> str | None:
    """Return the file of a store that is one; None for a server or memory."""
    if url.startswith("sqlite:///"):
        from urllib.parse import unquote

        return unquote(url.removeprefix("sqlite:///").partition("?")[0])
    return None if "://" in url or url.startswith("memory:") or "host=" in url else url


def cache_address(url: str | None, cache_bytes: int) -> RedisAddress | None:
    """Where servers share states, if they do: what was given, else $HOLDFAST_CACHE. It is checked, but not called."""
    if type(cache_bytes) is not int or cache_bytes < 0:
        raise InvalidValue(f"cache_bytes={cache_bytes!r} is not a number of bytes", hint="give 0 or more")
    given = url if url is not None else os.environ.get("HOLDFAST_CACHE")
    if not given:
        return None
    from holdfast.engine.logs import redis

    where = redis.address(given)
    redis.require()
    return where


def open_cache(store: Store, where: RedisAddress | None, cache_bytes: int) -> Cache:
    """What an app remembers, by itself and with other servers."""
    if where is None:
        return Cache(cache_bytes)
    from holdfast.engine.logs.shared_cache import SharedCache

    return Cache(cache_bytes, SharedCache(where, store))


def _open_sqlite(path: str, durability: Durability, snapshots_kept: int, at_us: int) -> Store:
    if not path or path.endswith(":memory:"):
        raise InvalidUrl(f"{path!r} is not a file", hint="memory: gives a store in memory")
    from holdfast.store.sqlite.store import SqliteStore

    return SqliteStore(path, durability=durability, at_us=at_us, snapshots_kept=snapshots_kept)


def _open_postgres(url: str, durability: Durability | None, snapshots_kept: int, at_us: int) -> Store:
    try:
        from holdfast.store.postgres.store import PostgresStore
    except ImportError as error:
        raise without_postgres(error) from error
    return PostgresStore(url, durability=durability, at_us=at_us, snapshots_kept=snapshots_kept)


def without_postgres(error: ImportError) -> MissingExtra:
    """What keeps a server from being used: the extra is not installed."""
    return MissingExtra(
        f"PostgreSQL needs {(error.name or 'psycopg').partition('.')[0]}, which is not installed",
        hint="from a checkout: pip install 'path/to/holdfast[postgres]'",
    )


def _durability(asked: str | None) -> Durability | None:
    if asked is None or asked == "full" or asked == "process":
        return asked
    raise InvalidUrl(f"{asked!r} is not a durability", hint="'full' survives power loss, 'process' the process")

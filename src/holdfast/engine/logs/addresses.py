"""Addresses of stores."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.core import urls
from holdfast.core.errors import InvalidUrl, InvalidValue, MissingExtra
from holdfast.engine.logs.cache import Cache
from holdfast.store.protocol import Store

if TYPE_CHECKING:
    from holdfast.engine.logs.redis import RedisAddress
    from holdfast.store.sqlite.file import Durability

DEFAULT_URL = "holdfast.db"
_HELP = "use a path, sqlite:///path, postgresql://… or memory:"


class Place(Struct, frozen=True):
    """What an address names: a file at `path`, the server at `url`, or memory."""

    path: str | None = None
    url: str | None = None
    durability: Durability | None = None


def open_store(
    url: str | os.PathLike[str] | None,
    *,
    durability: str | None,
    snapshots_kept: int,
    at_us: int,
    read_only: bool = False,
) -> Store:
    """Open the store at an address; without one, at $HOLDFAST_URL or holdfast.db."""
    place = place_of(given(url))
    if snapshots_kept < 1:
        raise InvalidUrl(f"snapshots_kept={snapshots_kept} keeps none", hint="keep at least 1")
    level = _durability(durability) or place.durability
    if place.url is not None:
        if read_only:
            raise InvalidUrl("only files can be opened read-only", hint="connect as a role that may only read")
        return _open_postgres(place.url, level, snapshots_kept, at_us)
    if place.path is None:
        from holdfast.store.memory.store import MemoryStore

        return MemoryStore()
    if read_only:
        from holdfast.store.sqlite.read_only import ReadOnlyStore

        return ReadOnlyStore(place.path)
    return _open_sqlite(place.path, level or "full", snapshots_kept, at_us)


def given(url: str | os.PathLike[str] | None) -> str:
    """The address that was given; without one, $HOLDFAST_URL or holdfast.db."""
    if url is not None and not isinstance(url, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidUrl(f"{url!r} is not an address", hint="give a path, sqlite:///…, postgresql://… or memory:")
    return os.fspath(url) if url is not None else os.environ.get("HOLDFAST_URL") or DEFAULT_URL


def place_of(address: str) -> Place:
    """Read an address, or say what is wrong with it. Whether anything is there is not asked.

    The message shows no password: an address that is not understood may have one anywhere.
    """
    shown = urls.shown(address)
    if not address or "\0" in address or not _is_text(address):
        raise InvalidUrl(f"{shown!r} is not the address of a store", hint=_HELP)
    if address in ("memory:", "memory://"):
        return Place()
    scheme, colon, rest = address.partition(":")
    if scheme in ("postgres", "postgresql") and colon:
        from urllib.parse import parse_qs  # which few programs need

        _check_server(rest, shown)
        for direct in parse_qs(rest.partition("?")[2]).get("direct", ()):
            _check_server(direct.partition(":")[2], urls.shown(direct))
        return Place(url=address)
    if scheme == "sqlite" and colon:
        return _file_of(rest, shown)
    if colon and "://" in address:
        raise InvalidUrl(f"{shown!r} has the unknown scheme {scheme!r}", hint=_HELP)
    if _LIKE_A_SERVER.search(address):
        raise InvalidUrl(
            f"{shown!r} looks like the address of a server, without postgresql://",
            hint="write postgresql://user:password@host/database; a file of such a name is sqlite:///name",
        )
    return Place(path=address)


def _is_text(address: str) -> bool:
    """Return whether UTF-8 can hold it. A file's name may hold other bytes, which neither SQLite nor a log can name."""
    try:
        return bool(address.encode())
    except UnicodeEncodeError:
        return False


_LIKE_A_SERVER = re.compile(r"^[^/\\]*(?::|//.*:).*@|(?:^|\s)(?:host|hostaddr|dbname|password|service)\s*=", re.S)
_HOST = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::\d*)?")
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


def _check_server(rest: str, shown: str) -> None:
    """Refuse what libpq would not understand, or take for a host or a port: what it says then has the password."""
    place, _, options = rest.removeprefix("//").partition("?")
    authority, _, database = place.partition("/")
    user, _, hosts = authority.rpartition("@")
    stray = "@" in user or "@" in database or "@" in options.partition("=")[0]
    known = rest.startswith("//") and not stray and all(_HOST.fullmatch(one) for one in hosts.split(","))
    if not known or _BAD_PERCENT.search(rest):
        raise InvalidUrl(
            f"{shown!r} is not the address of a server",
            hint="write postgresql://user:password@host:5432/database; in a password, @ is %40, / is %2F, % is %25",
        )


def _file_of(rest: str, shown: str) -> Place:
    if not rest.startswith("///"):
        raise InvalidUrl(f"{shown!r} has no path", hint="sqlite:///relative.db or sqlite:////absolute.db")
    from urllib.parse import parse_qs, unquote

    quoted, _, asked = rest.removeprefix("///").partition("?")
    options = parse_qs(asked, keep_blank_values=True)
    level = _durability(options.pop("durability", [None])[0])
    if options or "#" in quoted:
        odd = sorted(options)[0] if options else "#"
        raise InvalidUrl(f"{shown!r} has the unknown part {odd!r}", hint="?durability=process; write # as %23")
    return Place(path=unquote(quoted), durability=level)


def is_server(url: str) -> bool:
    """Return whether an address names a PostgreSQL server."""
    return url.startswith(("postgres:", "postgresql:"))


def path_of(url: str) -> str | None:
    """Return the file of a store that is one; None for a server or memory."""
    if url.startswith("sqlite:///"):
        from urllib.parse import unquote

        return unquote(url.removeprefix("sqlite:///").partition("?")[0])
    return None if "://" in url or url.startswith("memory:") or "host=" in url else url


def cache_address(url: str | None, cache_bytes: int) -> RedisAddress | None:
    """Return the address of the shared cache: as given, else $HOLDFAST_CACHE. It is checked, but not called."""
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
    """Open the caches of an app, its own and the shared one."""
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
    """Return the error for a missing extra."""
    return MissingExtra(
        f"PostgreSQL needs {(error.name or 'psycopg').partition('.')[0]}, which is not installed",
        hint="from a checkout: pip install 'path/to/holdfast[postgres]'",
    )


def _durability(asked: str | None) -> Durability | None:
    if asked is None or asked == "full" or asked == "process":
        return asked
    raise InvalidUrl(f"{asked!r} is not a durability", hint="'full' survives power loss, 'process' the process")

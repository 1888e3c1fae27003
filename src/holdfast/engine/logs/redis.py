"""A Redis server that may be away: short time-outs, a pause after every failure, one warning for each of them.

Whatever happens to it, nothing is raised: the caller gets no answer, and does without.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct

from holdfast.core import limits, urls
from holdfast.core.durations import seconds
from holdfast.core.errors import HoldfastError, InvalidUrl, MissingExtra
from holdfast.engine.logs.cache import CacheCounts

Answer = TypeVar("Answer")
Client = Any
"""Of `redis`, which is imported late, and whose types are not all known."""

_HELP = "write redis://host:6379/0, rediss://… or unix:///path; ?expire=1h says how long states stay"


class RedisAddress(Struct, frozen=True):
    """Where a Redis server is, how it is shown to people, and how long it keeps what we put there."""

    url: str
    shown: str
    expire: float


def address(url: str) -> RedisAddress:
    """Read an address, or say what is wrong with it. Whether anybody is there is not asked."""
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidUrl(f"cache={url!r} is not an address", hint=_HELP)
    shown = urls.shown(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its text has what stands where the port should be: a password, perhaps
        raise InvalidUrl(f"the cache's address {shown!r} cannot be read", hint=_HELP) from None
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise InvalidUrl(f"the cache {shown!r} has the unknown scheme {parts.scheme!r}", hint=_HELP)
    number = parts.path.removeprefix("/")
    wrong = not parts.path if parts.scheme == "unix" else not parts.hostname or (number and not number.isdecimal())
    if wrong or parts.fragment:
        raise InvalidUrl(f"the cache {shown!r} has no host and number of a database", hint=_HELP)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    odd = sorted(name for name in options if name not in ("expire", "db") and not name.startswith("ssl_"))
    if odd or not options.get("db", "0").isdecimal():
        raise InvalidUrl(f"the cache {shown!r} has the unknown option {(odd or ['db'])[0]!r}", hint=_HELP)
    shown = f"{parts.scheme}://{parts.hostname or ''}{f':{port}' if port else ''}{parts.path}"
    given = urlencode({name: value for name, value in options.items() if name != "expire"})
    return RedisAddress(parts._replace(query=given).geturl(), shown, _expire(options.get("expire"), shown))


def _expire(given: str | None, shown: str) -> float:
    if given is None:
        return limits.CACHE_EXPIRE_SECONDS
    try:
        length = float(given) if given.isdecimal() else seconds(given, "expire")
    except HoldfastError:
        length = 0.0
    if not 1 <= length <= limits.CACHE_MAX_EXPIRE_SECONDS:
        raise InvalidUrl(f"the cache {shown!r} has expire={given!r}", hint="give a length of time, such as 1h or 900")
    return length


class RedisConnection:
    """The way to one server. Safe from several threads."""

    def __init__(self, where: RedisAddress, counts: CacheCounts) -> None:
        self.shown = where.shown
        self.counts = counts
        self._lock = threading.Lock()
        self._quiet_until = 0.0
        self._away = False
        self._refused = False
        self._errors, self._client = _client(where)

    def ask(self, question: Callable[[Client], Answer], otherwise: Answer) -> Answer:
        """Ask the server; `otherwise` is returned if it is away, refuses, or was away a moment ago."""
        if not self._may_ask():
            return otherwise
        try:
            answer = question(self._client)
        except self._errors as error:
            self.failed(error)
            return otherwise
        if self._away:
            self._away = False
            _log("the cache %s answers again", self.shown)
        return answer

    def said(self) -> None:
        """A write was taken: the next refusal is worth a word again."""
        self._refused = False

    def listen(self) -> Client:
        """A connection of its own for wake-ups."""
        return self._client.pubsub(ignore_subscribe_messages=True)

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The errors of a lost connection."""
        return self._errors

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def _may_ask(self) -> bool:
        """While it is away, one asks after every pause, and everybody else does without."""
        if not self._away:
            return True
        with self._lock:
            now = time.monotonic()
            if now < self._quiet_until:
                return False
            self._quiet_until = now + limits.CACHE_PAUSE_SECONDS
            return True

    def failed(self, error: Exception) -> None:
        """Take note that it is away, or refuses."""
        from redis.exceptions import ConnectionError, ResponseError

        self.counts.errors += 1
        if isinstance(error, ResponseError) and not isinstance(error, ConnectionError):
            if not self._refused:
                self._refused = True
                _warn("the cache %s refuses: %s; work continues without it", self.shown, error)
            return
        with self._lock:
            first, self._away = not self._away, True
            self._quiet_until = time.monotonic() + limits.CACHE_PAUSE_SECONDS
        if first:
            _warn("the cache %s is away: %s; work continues without it", self.shown, error or type(error).__name__)


def _client(where: RedisAddress) -> tuple[tuple[type[Exception], ...], Client]:
    require()
    from redis import Redis, RedisError
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    limit = limits.CACHE_TIMEOUT_SECONDS
    options: dict[str, Any] = {"socket_timeout": limit, "socket_connect_timeout": limit, "retry": Retry(NoBackoff(), 0)}
    return (RedisError, OSError), cast("Client", Redis).from_url(where.url, protocol=2, **options)


def require() -> None:
    """Say what to install if Redis' client is not there."""
    try:
        import redis  # noqa: F401 # pyright: ignore[reportUnusedImport] — 200 ms, and few programs need it
    except ImportError as error:
        raise MissingExtra(
            f"a cache in Redis needs {error.name}, which is not installed",
            hint="from a checkout: pip install 'path/to/holdfast[redis]'",
        ) from error


def _warn(text: str, *values: object) -> None:
    import logging

    logging.getLogger("holdfast").warning(text, *values)


def _log(text: str, *values: object) -> None:
    import logging

    logging.getLogger("holdfast").info(text, *values)

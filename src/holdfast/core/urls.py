"""Addresses of servers as they may be shown: without what is a password, or may have been meant as one."""

from __future__ import annotations

import re

HIDDEN = "***"

PLAIN_OPTIONS = (
    *("schema", "durability", "connections", "pooled", "lock_seconds", "statement_seconds", "wait_seconds"),
    *("lease_seconds", "presence", "wakeups"),
)
"""Options of a PostgreSQL server's address that Holdfast reads itself, whose values may be shown."""

SECRET_OPTIONS = ("direct",)
"""Options that it reads itself, whose values may hold a password."""

_HARMLESS = {
    *PLAIN_OPTIONS,
    *("sslmode", "connect_timeout", "application_name", "expire", "db", "host", "port", "dbname"),
}
"""Options whose values are shown: our own, libpq's and those of a cache."""

_SECRET = re.compile(
    r"(?P<name>\b[\w.-]*(?:pass|pwd|secret|token|key)[\w.-]*\s*=\s*)(?:'(?:[^'\\]|\\.)*'?|[^\s&;]+)", re.I
)
_START = re.compile(r"(?:[A-Za-z][\w+.-]*)?:?/{0,3}")
_USER = re.compile(r"[\w.+-]+(?=:)")
_BAD_PORT = re.compile(r"^(?P<host>[^/?#\[\]:]*(?:\[[^\]/]*\])?):(?!\d*(?:[/?#,]|$))[^/?#,]*")


def shown(url: str) -> str:
    """An address without its password, however malformed it is. A path stays as it is.

    >>> shown("postgresql://app:geheim@db:5432/agents"), shown("postgres:app:ge/heim@db"), shown("a@b.db")
    ('postgresql://app:***@db:5432/agents', 'postgres:app:***@db', 'a@b.db')
    >>> shown("redis://h/0?password=geheim&db=1"), shown("host=db password='ge heim'")
    ('redis://h/0?password=***&db=1', 'host=db password=***')
    """
    before, at, after = url.rpartition("@")
    if at and (":" in before or "//" in before):
        url = f"{_without_password(before)}@{after}"
    elif "://" in url:
        scheme, _, rest = url.partition("://")
        url = f"{scheme}://" + _BAD_PORT.sub(rf"\g<host>:{HIDDEN}", rest)
    place, asked, options = url.partition("?")
    if "://" in place:
        options = "&".join(_option(one) for one in options.split("&"))
    return _SECRET.sub(rf"\g<name>{HIDDEN}", f"{place}{asked}{options}")


def _without_password(before: str) -> str:
    """Return the part before the last @ without the password, which may hold any character."""
    start = _START.match(before)
    end = 0 if start is None else start.end()
    user = _USER.match(before, end)
    return f"{before[:end]}{HIDDEN}" if user is None else f"{before[: user.end()]}:{HIDDEN}"


def _option(one: str) -> str:
    name, equals, _ = one.partition("=")
    return one if name in _HARMLESS or not one else f"{name}={HIDDEN}" if equals else HIDDEN

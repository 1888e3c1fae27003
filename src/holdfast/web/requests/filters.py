"""The filter bar: `status:failed agent:recap agent!=heartbeat id:order-* changed<3h` as filters of a list."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import islice
from typing import Any

from msgspec import Struct

from holdfast import App
from holdfast.core.errors import InvalidValue
from holdfast.engine.reading.values import Summary

WORDS = ("status", "agent", "stage", "user", "thread", "queue", "parent", "waiting", "id")
WITHOUT = ("status", "agent", "stage", "user", "thread", "queue")
"""What tasks can be left out by. No index serves that, so only so many tasks are looked at: see `page_of`."""

FIELDS = "status: agent: stage: user: thread: queue: parent: waiting: id:prefix* changed<3h agent!=name"
"""What can be filtered by, as it is typed."""

MOST_PASSED = 5_000
"""How many tasks one answer looks at, if some of them are left out."""

_ASKED = {"question": "person", "approval": "person"}
"""What people call a wait, and what its row says."""

_NOT = re.compile(r"(\w+)(?:!=|≠)(.+)", re.DOTALL)


class Filter(Struct, frozen=True):
    """What a filter asks for: filters of `app.list`, and what is left out of what they find."""

    asked: dict[str, Any]
    without: tuple[tuple[str, str], ...] = ()

    def takes(self, row: Summary) -> bool:
        """Return whether a row is not left out."""
        return all(getattr(row, name) != value for name, value in self.without)

    def rows(self, app: App) -> Iterator[Summary]:
        """Every task that fits, newest first, read as you go through them."""
        return filter(self.takes, app.list(**self.asked, limit=None))


class ListPage(Struct, frozen=True):
    """A page of a list: tasks, the cursor of the next page if there is one, and how many tasks were looked at."""

    rows: list[Summary]
    next: str | None
    looked_at: int


def page_of(app: App, asked: Filter, after: str | None, limit: int) -> ListPage:
    """Find a page of tasks. If some are left out, it looks at 5,000 tasks at the most, and says how far it came."""
    if not asked.without:
        rows = app.list(**asked.asked, after=after, limit=limit)
        return ListPage(rows, rows[-1].id if len(rows) == limit else None, len(rows))
    rows = list[Summary]()
    passed, last = 0, after
    for row in islice(app.list(**asked.asked, after=after, limit=None), MOST_PASSED):
        passed, last = passed + 1, row.id
        if asked.takes(row):
            rows.append(row)
        if len(rows) == limit:
            break
    return ListPage(rows, last if len(rows) == limit or passed == MOST_PASSED else None, passed)


def filters_of(text: str) -> Filter:
    """Read a filter. One that no index serves is refused, with one that would do: a slow scan is never made silently.

    >>> filters_of("status:failed agent:'my agent' changed<3h").asked
    {'status': 'failed', 'agent': 'my agent', 'changed_since': '3h'}
    >>> filters_of("agent!=heartbeat").without
    (('agent', 'heartbeat'),)
    """
    try:
        words = shlex.split(text)
    except ValueError:
        raise InvalidValue(f"the filter {text!r} has a quote without an end", hint=f"use {FIELDS}") from None
    asked: dict[str, Any] = {}
    without: list[tuple[str, str]] = []
    for word in words:
        negated = _NOT.fullmatch(word)
        if negated is None:
            asked |= _one(word)
        elif negated[1] in WITHOUT and (negated[1] != "status" or negated[2] in _STATUSES):
            without.append((negated[1], negated[2]))
        else:
            told = f"tasks can't be left out by {word!r}"
            raise InvalidValue(told, hint=f"leave out by {', '.join(WITHOUT)}: agent!=heartbeat")
    return Filter(asked, tuple(without))


_STATUSES = ("pending", "running", "waiting", "completed", "failed", "cancelled")


def _one(word: str) -> dict[str, Any]:
    if word.startswith("changed<"):
        return {"changed_since": word.removeprefix("changed<")}
    name, colon, value = word.partition(":")
    if not colon and not any(sign in word for sign in "<>=!"):
        return {"prefix": word.removesuffix("*")}
    if name not in WORDS or not colon or not value:
        raise InvalidValue(f"tasks can't be filtered by {word!r}: no index serves it", hint=f"use {FIELDS}")
    if name == "id":
        return {"prefix": value.removesuffix("*")}
    if name == "status" and value == "interrupted":
        return {"interrupted": True}
    if name == "status" and value in ("doubt", "in-doubt"):
        return {"in_doubt": True}
    return {name: _ASKED.get(value, value) if name == "waiting" else value}

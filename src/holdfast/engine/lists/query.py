"""Lists of tasks: which filters there are, lists of any length, and rows with what their logs hold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator
from datetime import date, datetime
from typing import Any, get_args

from msgspec.structs import replace

from holdfast.core import limits, names
from holdfast.core.codec import Summary
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import InvalidValue, TaskCollected, TaskNotFound
from holdfast.core.events import Failure, WaitKind
from holdfast.engine.logs.listing import list_tasks
from holdfast.engine.logs.log import DAMAGED
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading.steps import iso
from holdfast.engine.reading.task_state import STATUSES, TaskState
from holdfast.store.protocol import Order, Query

INCLUDED = ("input", "result", "failure")
"""What a row can carry beside what its table has."""

_WAITS = tuple(kind for kind in get_args(WaitKind) if kind != "no_worker")
"""Kinds of waits that a row has. That no worker takes a task is found out when one looks."""

_TEXTS = ("agent", "stage", "user", "thread", "queue", "parent", "version", "prefix", "after")


class ListedTask(Summary, frozen=True, kw_only=True):
    """A row of a list that carries what was asked for with `include=`."""

    input: dict[str, Any] | None = None
    result: Any = None
    failure: Failure | None = None
    damaged: str = ""
    """Why its log can't be read, if so."""


class TaskQuery:
    """A list that was asked for: checked, and read page by page."""

    def __init__(
        self,
        logs: Logs,
        query: Query,
        *,
        interrupted: bool | None = None,
        include: Collection[str] = (),
        state_version_below: int | None = None,
    ) -> None:
        self._logs = logs
        self._query = query
        self._interrupted = interrupted
        self._below = state_version_below
        self._include = frozenset(include)
        self._alive: dict[str, bool] = {}

    def page(self, limit: int) -> list[Summary]:
        """The first so many."""
        names.whole(limit, "limit", least=1)
        if limit > limits.MAX_PAGE_SIZE:
            raise InvalidValue(f"limit={limit} is out of range", hint=f"use 1 to {limits.MAX_PAGE_SIZE}")
        if self._interrupted is None and self._below is None:
            return [self._carrying(row) for row in list_tasks(self._logs.store, replace(self._query, limit=limit))]
        return [row for _, row in zip(range(limit), self.rows(), strict=False)]

    def rows(self) -> Iterator[Summary]:
        """All of them, a page at a time: never more than one is in memory."""
        query = replace(self._query, limit=limits.LIST_CHUNK)
        while page := list_tasks(self._logs.store, query):
            for row in page:
                if self._is_asked_for(row):
                    yield self._carrying(row)
            query = replace(query, after=page[-1].id, after_changed_us=page[-1].changed_us)

    def _is_asked_for(self, row: Summary) -> bool:
        """Tell whether a row passes the filters that no table can answer."""
        if self._interrupted is not None and self._interrupted != self._is_interrupted(row):
            return False
        return self._below is None or self._has_older_state(row.id, self._below)

    def _has_older_state(self, id: str, version: int) -> bool:
        """Tell whether a task has a state of an earlier version. One that can't be read may have."""
        try:
            state = self._logs.load(id).state
        except (TaskNotFound, TaskCollected):
            return False  # it went away meanwhile
        except DAMAGED:
            return True
        return bool(state.bag) and state.state_version < version

    def _is_interrupted(self, row: Summary) -> bool:
        """Return whether the worker of a running task is dead. Each worker is asked about once."""
        if row.status != "running" or row.holder is None:
            return False
        if row.holder not in self._alive:
            self._alive[row.holder] = self._logs.store.alive(row.holder, row.lease_seconds)
        return not self._alive[row.holder]

    def _carrying(self, row: Summary) -> Summary:
        if not self._include:
            return row
        same = {name: getattr(row, name) for name in row.__struct_fields__}
        try:
            found = TaskState(self._logs.load(row.id), self._logs)
            carried: dict[str, Any] = {name: getattr(found, name) for name in self._include}
            if "input" in carried:
                carried["input"] = dict(carried["input"])
        except (TaskNotFound, TaskCollected):
            carried = {}  # it went away meanwhile
        except DAMAGED as error:
            carried = {"damaged": error.message}
        return ListedTask(**same, **carried)


class TaskRows:
    """Every task that a list asks for, read as you go: `for row in app.list(limit=None)`. Also `async for`."""

    def __init__(self, asked: TaskQuery) -> None:
        self._asked = asked

    def __iter__(self) -> Iterator[Summary]:
        return self._asked.rows()

    async def __aiter__(self) -> AsyncIterator[Summary]:
        import asyncio

        rows = self._asked.rows()
        while batch := await asyncio.to_thread(_some, rows):
            for row in batch:
                yield row


def _some(rows: Iterator[Summary]) -> list[Summary]:
    return [row for _, row in zip(range(limits.PAGE_SIZE), rows, strict=False)]


def task_query(
    logs: Logs,
    *,
    interrupted: bool | None,
    include: Collection[str],
    changed_since: datetime | Duration | None,
    state_version_below: int | None = None,
    **asked: Any,
) -> TaskQuery:
    """Check what is asked for, and make it a query. Odd values are refused, each with what would do."""
    refuse_odd(asked)
    refuse_odd_flag("interrupted", interrupted)
    below = state_version_below
    if below is not None and (type(below) is not int or below < 1):
        raise InvalidValue(f"state_version_below={below!r} is not a version", hint="versions are counted from 1")
    if interrupted and asked["status"] is None:
        asked["status"] = "running"
    if isinstance(include, str) or not isinstance(include, Collection) or not set(include) <= {*INCLUDED}:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"include={include!r} names what no row can carry", hint=f"use some of {INCLUDED}")
    since_us = since(changed_since, logs.clock.now_us, "changed_since")
    query = Query(**asked, changed_since_us=since_us)
    return TaskQuery(logs, query, interrupted=interrupted, include=include, state_version_below=below)


def refuse_odd(asked: dict[str, Any]) -> None:
    """Refuse values of filters that no task can have, each with what would do."""
    one_of = {"status": STATUSES, "order": get_args(Order), "waiting": _WAITS}
    for name, allowed in one_of.items():
        if name in asked and (asked[name] is not None or name == "order") and asked[name] not in allowed:
            said = f"{asked[name]!r} is not a status" if name == "status" else f"{name}={asked[name]!r} is unknown"
            raise InvalidValue(said, hint=f"use one of {', '.join(allowed)}")
    for name in _TEXTS:
        if asked.get(name) is not None:
            names.text(asked[name], f"{name}=")
    refuse_odd_flag("in_doubt", asked["in_doubt"])
    asked["prefix"] = asked["prefix"] or None


def refuse_odd_flag(name: str, value: object) -> None:
    """Refuse a filter that is neither True, False nor None."""
    if value not in (None, True, False):
        raise InvalidValue(f"{name}={value!r} is neither True nor False", hint="leave it out for both")


def since(when: datetime | date | Duration | None, now_us: Callable[[], int], name: str) -> int | None:
    """A time in microseconds: that of a datetime, or so long ago.

    >>> since("1m", lambda: 60_000_001, "changed_since")
    1
    """
    if when is None:
        return None
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise InvalidValue(
                f"{name}={when!r} has no time zone", hint="use datetime.now(UTC), or an age such as '2h'"
            )
        return int(when.timestamp() * 1_000_000)
    if isinstance(when, date):
        raise InvalidValue(f"{name}={when!r} has no time", hint="give a datetime, or an age such as '2h'")
    return now_us() - int(seconds(when, name) * 1_000_000)


_SAME = (
    *("id", "agent", "status", "stage", "user", "thread", "parent", "waiting", "holder", "queue", "priority", "mock"),
)


def row_json(row: Summary, *, interrupted: bool) -> dict[str, Any]:
    """A row of a list for programs: the same on the command line and on the page."""
    return {
        **{name: getattr(row, name) for name in _SAME},
        "interrupted": interrupted,
        "doubts": list(row.doubts),
        "wake_at": None if row.wake_us is None else iso(row.wake_us),
        "deadline": None if row.deadline_us is None else iso(row.deadline_us),
        **({} if row.expires_at is None else {"expires_at": iso(row.changed_us + (row.expire_us or 0))}),
        "created_at": iso(row.created_us),
        "changed_at": iso(row.changed_us),
    }

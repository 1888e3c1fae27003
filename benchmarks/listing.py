"""The first page of a list among a million tasks, beside the same among a thousand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw

import holdfast
from benchmarks.bench import Bench
from benchmarks.table import Row, at_most
from benchmarks.workload import bare, best, say, timed
from holdfast.engine.app import App

FEW, MANY = 1_000, 1_000_000
PAGE = 100
CALLS = 5
ROUNDS = 20

_LOGS = """
with recursive numbers (n) as (select 0 union all select n + 1 from numbers where n + 1 < :count)
insert into logs (log, name) select n + 1, printf('task-%08d', n) from numbers
"""

# Each agent, user, stage, thread, queue and parent has a quarter of the tasks, half of them waiting, and of those half
# in doubt and half for a person; the oldest PAGE tasks of one agent have failed.
_TASKS = """
with recursive numbers (n) as (select 0 union all select n + 1 from numbers where n + 1 < :count)
insert into tasks (log, agent, status, stage, user, thread, queue, parent, waiting, doubts, created, changed, change,
                   anchor_seq, anchor_digest)
select n + 1, 'agent-' || (n % 4),
       iif(n % 4 = 0 and n < 4 * :page, 'failed', iif(n / 4 % 2 = 0, 'waiting', 'completed')),
       'stage-' || (n % 4), 'user-' || (n % 4), 'thread-' || (n % 4), 'queue-' || (n % 4), 'task-0000000' || (n % 4),
       iif(n / 4 % 2 = 0, iif(n / 8 % 2 = 0, 'doubt', 'person'), null), iif(n / 4 % 4 = 0, '["pay#1"]', null),
       n, n, n + 1, 1, zeroblob(32)
from numbers
"""

MOMENT = datetime(1970, 1, 1, tzinfo=UTC)

FILTERS: dict[str, dict[str, Any]] = {
    "status": {"status": "waiting"},
    "agent": {"agent": "agent-0"},
    "agent and status": {"agent": "agent-1", "status": "waiting"},
    "user": {"user": "user-0"},
    "user and status": {"user": "user-1", "status": "waiting"},
    "stage": {"stage": "stage-0"},
    "thread": {"thread": "thread-0"},
    "queue": {"queue": "queue-0"},
    "parent": {"parent": "task-00000000"},
    "kind of wait": {"waiting": "person"},
    "calls in doubt": {"in_doubt": True},
    "prefix": {"prefix": "task-00000"},
    "a time of the last change": {"changed_since": MOMENT},
    "nothing": {},
    "nothing, by change": {"order": "changed"},
    "user and a rare, old status": {"user": "user-0", "status": "failed"},
    "stage and a rare, old status": {"stage": "stage-0", "status": "failed"},
}


def rows(bench: Bench) -> list[Row]:
    """The least time of one page, by each filter."""
    say("listing")
    for count in (FEW, MANY):
        fill(bench.place / f"{count}.db", count)
    with holdfast.open(bench.place / f"{FEW}.db") as few, holdfast.open(bench.place / f"{MANY}.db") as many:
        return [_row(name, filters, few, many) for name, filters in FILTERS.items()]


def _row(name: str, filters: dict[str, Any], few: App, many: App) -> Row:
    found = best(ROUNDS, few=_page(few, filters), many=_page(many, filters))
    return Row(
        name=f"list {PAGE} of {MANY:,} tasks by {name}",
        measured=found["many"] * 1e3,
        unit="ms",
        compare=found["few"] * 1e3,
        beside=f"of {FEW:,}",
        goal=at_most(5),
    )


def _page(app: App, filters: dict[str, Any]) -> Callable[[], float]:
    def page() -> None:
        assert len(app.list(**filters, limit=PAGE)) == PAGE

    return lambda: min(timed(page) for _ in range(CALLS))


def fill(path: Path, count: int) -> None:
    """Make a file of so many tasks. Rows straight into the tables: a million tasks in seconds."""
    connection: apsw.Connection = bare(path, "process")
    with connection:
        connection.execute(_LOGS, {"count": count})
        connection.execute(_TASKS, {"count": count, "page": PAGE})
    connection.close()

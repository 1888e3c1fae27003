"""The first page of a list among a million tasks, beside the same among a thousand."""

from __future__ import annotations

from collections.abc import Callable
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

# Each agent, user and stage has a quarter of the tasks, half of them waiting; the oldest PAGE tasks of one have failed.
_TASKS = """
with recursive numbers (n) as (select 0 union all select n + 1 from numbers where n + 1 < :count)
insert into tasks (log, agent, status, stage, user, created, changed, anchor_seq, anchor_digest)
select n + 1, 'agent-' || (n % 4),
       iif(n % 4 = 0 and n < 4 * :page, 'failed', iif(n / 4 % 2 = 0, 'waiting', 'completed')),
       'stage-' || (n % 4), 'user-' || (n % 4), n, n, 1, zeroblob(32)
from numbers
"""

FILTERS: dict[str, dict[str, Any]] = {
    "status": {"status": "waiting"},
    "agent": {"agent": "agent-0"},
    "agent and status": {"agent": "agent-1", "status": "waiting"},
    "user": {"user": "user-0"},
    "user and status": {"user": "user-1", "status": "waiting"},
    "stage": {"stage": "stage-0"},
    "nothing": {},
    "user and a rare, old status": {"user": "user-0", "status": "failed"},
    "stage and a rare, old status": {"stage": "stage-0", "status": "failed"},
}


def rows(bench: Bench) -> list[Row]:
    """The least time of one page, by each filter."""
    say("listing")
    for count in (FEW, MANY):
        _fill(bench.place / f"{count}.db", count)
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


def _fill(path: Path, count: int) -> None:
    """Rows straight into the tables: a million tasks in seconds."""
    connection: apsw.Connection = bare(path, "process")
    with connection:
        connection.execute(_LOGS, {"count": count})
        connection.execute(_TASKS, {"count": count, "page": PAGE})
    connection.close()

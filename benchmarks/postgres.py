"""Events and steps on PostgreSQL, fsync on: one after the other, and many at once; beside bare psycopg and peers."""

from __future__ import annotations

import asyncio

import holdfast
from benchmarks import contest
from benchmarks.append import append_seconds
from benchmarks.bench import Bench
from benchmarks.concurrent import APPENDERS, EACH, loop_seconds, thread_seconds, work_of
from benchmarks.steps import lone_rows
from benchmarks.table import Row, at_least, at_most
from benchmarks.workload import Inserts, bare_appends_at, best, new_task, say
from holdfast import App

BLOCK = 25
ROUNDS = 40
CONCURRENT_ROUNDS = 6


def rows(bench: Bench) -> list[Row]:
    """Over TCP on this machine."""
    say("postgres")
    url = bench.database("ours")
    with bench.peers("langgraph", "dbos", "absurd", at=bench.database) as peers, holdfast.open(url) as app:
        raw = bare_appends_at(url)
        found = [
            *_appends(app, raw),
            *lone_rows(app, raw, "postgres", at_most(1.3)),
            *contest.sequential(app, raw, peers, {"absurd": at_least(1.75), "dbos": at_least(6)}),
            *contest.concurrent(app, peers, {"absurd": at_least(8)}),
        ]
        raw.close()
    return found


def _appends(app: App, raw: Inserts) -> list[Row]:
    log = new_task(app, "lone")
    lone = best(ROUNDS, ours=lambda: append_seconds(log, BLOCK), raw=lambda: raw.seconds(BLOCK))
    logs = [new_task(app, f"task-of-{number}") for number in range(APPENDERS)]
    many = best(
        CONCURRENT_ROUNDS,
        loop=lambda: asyncio.run(loop_seconds(app, work_of(logs))),
        threads=lambda: thread_seconds(logs),
    )
    per, written, bare = 1e6 / BLOCK, APPENDERS * EACH, BLOCK / lone["raw"]
    ours = lone["ours"] * per
    return [
        Row(name="append, postgres", measured=ours, unit="µs", compare=lone["raw"] * per, goal=at_most(1.5)),
        _many("under asyncio", written / many["loop"], bare),
        _many("in threads", written / many["threads"], bare),
    ]


def _many(how: str, measured: float, bare: float) -> Row:
    name = f"{APPENDERS} appenders {how}, postgres"
    return Row(name=name, measured=measured, unit="events/s", compare=bare, goal=at_least(3))

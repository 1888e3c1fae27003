"""Whether a full table slows steps down: steps a second beside millions of events of other tasks, and beside none.

Two databases of one server take turns: one stays empty, the other is filled further and further, by the server itself
and with rows shaped like real ones (each log a task with fifty events of 200 bytes). fsync is off only while it is
filled; what was written is vacuumed and on disk before anything is measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import holdfast
from benchmarks.bench import Bench
from benchmarks.contest import sequence
from benchmarks.table import Row, at_least, skipped
from benchmarks.workload import EACH, TASKS, gathered, in_turns, say, timed
from holdfast import App

SIZES = (100_000, 1_000_000, 3_000_000, 10_000_000)
SECONDS = float(os.environ.get("HOLDFAST_BENCH_FILL", "45"))
LOG_EVENTS = 50
STEPS = 200
ROUNDS = 8
GATHERINGS = 3

_ids = count()

_BODY = '\'{"key":"work#\' || n || \'","name":"work","result":"\' || repeat(md5(n::text), 5) || \'"}\''

_LOGS = """
insert into holdfast.logs (name, seq, digest)
select 'filled-' || n, %(events)s, sha256('filled') from generate_series(%(first)s::bigint, %(last)s::bigint) as n
returning log
"""
_TASKS = """
insert into holdfast.tasks (log, agent, status, created, changed)
select log, 'filled', 'completed', log, log from holdfast.logs where name like 'filled-%%' and log > %(after)s
"""
_EVENTS = f"""
insert into holdfast.events (log, seq, kind, at, body, body_hash, digest)
select log, n, 'step_completed', n, convert_to({_BODY}, 'utf8'), hash, hash
from generate_series(1, %(events)s) as n, sha256('filled') as hash, holdfast.logs
where name like 'filled-%%' and log > %(after)s
"""  # noqa: S608 — made of constants


def rows(bench: Bench) -> list[Row]:
    """The curve, as far as the time allows to fill."""
    say("growth")
    empty, full = bench.database("empty"), bench.database("full")
    with holdfast.open(empty) as control, holdfast.open(full) as grown, _filling(full) as fill:
        return list(_curve(control, grown, fill))


def _curve(control: App, grown: App, fill: Filling) -> Iterator[Row]:
    _measured(control, grown)  # warms up both
    yield from _rows(0, *_measured(control, grown))
    for size in SIZES:
        if fill.seconds_for(size) > SECONDS - fill.spent:
            why = f"filling would take {fill.seconds_for(size):.0f} s more; HOLDFAST_BENCH_FILL={SECONDS:.0f} seconds"
            yield skipped(f"steps beside {size:,} events", why)
            return
        fill.up_to(size)
        yield from _rows(size, *_measured(control, grown))


class Filling:
    """Rows of other tasks, millions of them in minutes."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._logs = 0
        self.spent = 0.0

    def seconds_for(self, size: int) -> float:
        """How long it will take, from what it took so far."""
        done = self._logs * LOG_EVENTS
        return self.spent / done * (size - done) if done else 0

    def up_to(self, size: int) -> None:
        """Add what is missing to so many events."""
        say(f"{size:,}")
        given = {"events": LOG_EVENTS, "first": self._logs + 1, "last": size // LOG_EVENTS}
        with self._without_fsync():
            began = time.perf_counter()
            after = self._connection.execute(_LOGS, given).fetchone()[0] - 1
            self._connection.execute(_TASKS, {"after": after})
            self._connection.execute(_EVENTS, {**given, "after": after})
            self.spent += time.perf_counter() - began
        self._connection.execute("vacuum analyze")
        self._connection.execute("checkpoint")
        self._logs = given["last"]

    @contextmanager
    def _without_fsync(self) -> Iterator[None]:
        self._set("off")
        try:
            yield
        finally:
            self._set("on")
            os.sync()  # what was written meanwhile

    def _set(self, fsync: str) -> None:
        self._connection.execute(f"alter system set fsync = {fsync}")
        self._connection.execute("select pg_reload_conf()")


@contextmanager
def _filling(url: str) -> Iterator[Filling]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        yield Filling(connection)


def _measured(control: App, grown: App) -> tuple[dict[str, float], dict[str, float]]:
    """The least seconds of one task of steps, and of many at once, in either database."""
    lone = in_turns(ROUNDS, control=lambda: _lone(control), grown=lambda: _lone(grown))
    many = in_turns(GATHERINGS, 0, control=lambda: gathered(control), grown=lambda: gathered(grown))
    return {who: min(found) for who, found in lone.items()}, {who: min(found) for who, found in many.items()}


def _lone(app: App) -> float:
    return timed(lambda: app.run(sequence, {"steps": STEPS}, id=f"lone-{next(_ids)}"))


def _rows(size: int, lone: dict[str, float], many: dict[str, float]) -> Iterator[Row]:
    for name, curve, steps, found in (
        ("one task", "growth-one", STEPS, lone),
        (f"{TASKS} tasks of {EACH} steps at once", "growth-many", TASKS * EACH, many),
    ):
        yield Row(
            name=f"{name}, beside {size:,} events",
            measured=steps / found["grown"],
            unit="steps/s",
            compare=steps / found["control"],
            beside="empty table",
            goal=at_least(0.8) if size else None,
            curve=curve,
            at=size,
        )

"""What workers on PostgreSQL cost: as counts for 64 of them, and as CPU time for one.

Nothing here goes by the clock. Tasks come one by one, so that each is news for all workers that have nothing to do.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

import holdfast
from benchmarks.bench import Bench
from benchmarks.table import Row, at_least, at_most
from benchmarks.workload import MOST_ROUNDS, at_once, say

PROCESSES = 2
WORKERS_EACH = 32
CONCURRENCY = 4
STARTED = 400
PACE_SECONDS = 0.01
STEPS = 3

FILLED = 600
EACH = 20
ROUNDS = 3
PATIENCE_SECONDS = 120

_LEFT = "select count(*) from holdfast.tasks where status in ('pending', 'running')"
_LINKS = """
select count(*) from pg_stat_activity
where datname = current_database() and application_name = 'holdfast' and backend_type = 'client backend'
"""
_ROLLED_BACK = "select xact_rollback from pg_stat_database where datname = current_database()"
_UPDATES = "select n_tup_hot_upd, n_tup_upd from pg_stat_user_tables where relname = 'tasks'"
_BACKENDS = "select pid from pg_stat_activity where pid <> pg_backend_pid() and (datname is null or datname = %s)"
_ids = count()


def rows(bench: Bench) -> list[Row]:
    """Counts of a fleet, then the CPU time of one worker."""
    return [*_fleet(bench), *_processor(bench)]


@contextmanager
def _workers(url: str, workers: int, concurrency: int) -> Generator[subprocess.Popen[str]]:
    """A process with so many workers, until the end of the block."""
    command = [sys.executable, "-m", "benchmarks.fleet_process", url, str(workers), str(concurrency)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.stdin.close()
        process.wait(PATIENCE_SECONDS)
        process.stdout.close()


def _counts(processes: list[subprocess.Popen[str]]) -> dict[str, int]:
    """What all of them have counted so far."""
    found = {"asked": 0, "rows": 0}
    for process in processes:
        assert process.stdin is not None and process.stdout is not None
        print("counts", file=process.stdin, flush=True)
        for name, number in json.loads(process.stdout.readline()).items():
            found[name] += number
    return found


# Counts of a fleet


def _fleet(bench: Bench) -> Iterator[Row]:
    """Claim queries, connections, rolled back transactions and updates, for tasks that come one by one."""
    number = PROCESSES * WORKERS_EACH
    say(f"{number} workers")
    url = bench.database("fleet")
    holdfast.open(url).close()
    with (
        _workers(url, WORKERS_EACH, CONCURRENCY) as one,
        _workers(url, WORKERS_EACH, CONCURRENCY) as two,
        holdfast.open(url) as app,
        psycopg.connect(url, autocommit=True) as watch,
    ):
        _until_done(watch, [app.start(at_once, {"steps": 1}).id for _ in range(number)])
        time.sleep(7)  # until each has heard how many there are
        before, rolled_back, links = _counts([one, two]), _row(watch, _ROLLED_BACK)[0], list[int]()
        for _ in range(STARTED):
            app.start(at_once, {"steps": STEPS})
            links.append(_row(watch, _LINKS)[0])
            time.sleep(PACE_SECONDS)
        _until_done(watch)
        after = _counts([one, two])
        time.sleep(2)  # the server counts up to a second late
        rolled_back, (hot, updates) = _row(watch, _ROLLED_BACK)[0] - rolled_back, _row(watch, _UPDATES)
    taken = after["rows"] - before["rows"]
    assert taken >= STARTED, f"{taken} rows were found for {STARTED} tasks"
    what = f"{number} workers of {CONCURRENCY}"
    asked = (after["asked"] - before["asked"]) / taken
    own = 3  # connections of the app that starts the tasks
    yield Row(name=f"claim queries a claimed row, {what}", measured=asked, unit="queries", goal=at_most(2, "queries"))
    each = (max(links) - own) / number
    yield Row(name=f"connections a worker, {what}", measured=each, unit="links", goal=at_most(2, "links"))
    rolled = rolled_back / taken
    yield Row(
        name=f"rollbacks a claimed row, {what}", measured=rolled, unit="rollbacks", goal=at_most(0.05, "rollbacks")
    )
    share = 100 * hot / updates
    yield Row(name="updates of tasks that touch no index (HOT)", measured=share, unit="%", goal=at_least(80, "%"))


def _row(watch: psycopg.Connection[Any], text: Any) -> Any:
    found = watch.execute(text).fetchone()
    assert found is not None
    return found


def _until_done(watch: psycopg.Connection[Any], ids: object = None) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while _row(watch, _LEFT) != (0,):
        assert time.monotonic() < until, "the workers did not finish"
        time.sleep(0.02)


# CPU time of one worker


def _processor(bench: Bench) -> Iterator[Row]:
    """CPU time of a worker and of the server for an event; of an empty task beside a step."""
    say("CPU of one worker")
    url = bench.database("processor")
    holdfast.open(url).close()
    found: dict[int, list[Cost]] = {0: [], EACH: []}
    for _ in range(min(ROUNDS, MOST_ROUNDS)):
        for steps, costs in found.items():
            costs.append(_worked(url, steps))
        say(".")
    worker, server, begin = ({n: min(one[i] for one in costs) for n, costs in found.items()} for i in range(3))
    events = EACH + 2
    each, theirs = worker[EACH] / events, server[EACH] / events
    name = "CPU an event in a worker"
    yield Row(name=name, measured=each, unit="µs", compare=theirs, beside="in the server", goal=at_most(2.2))
    step, begun = (worker[EACH] - worker[0]) / EACH, min(begin.values())
    whole = begun + worker[0]
    name = "begin, claim and end of an empty task, CPU"
    yield Row(name=name, measured=whole, unit="µs", compare=step, beside="a step", goal=at_most(4))
    yield Row(name="begin of a task, CPU", measured=begun, unit="µs", compare=step, beside="a step")
    yield Row(name="claim and end of an empty task, CPU of the server", measured=server[0], unit="µs")


Cost = tuple[float, float, float]
"""Microseconds of CPU for a task: of the worker, of the server, and of the process that began it."""


def _worked(url: str, steps: int) -> Cost:
    """Work on many tasks, of which the first ones warm the worker up."""
    with holdfast.open(url) as app:
        takes = list[float]()
        for _ in range(FILLED):
            began = time.thread_time()
            app.start(at_once, {"steps": steps}, id=f"filled-{next(_ids)}")
            takes.append(time.thread_time() - began)
    with psycopg.connect(url, autocommit=True) as watch:
        watch.execute("checkpoint")
        with _workers(url, 1, 100) as process:
            while (left := _row(watch, _LEFT)[0]) > FILLED * 2 // 3:
                time.sleep(0.005)
            mine, theirs = _burnt(process.pid), _server_burnt(watch)
            _until_done(watch)
            mine, theirs = _burnt(process.pid) - mine, _server_burnt(watch) - theirs
    return mine / left * 1e6, theirs / left * 1e6, statistics.median(takes) * 1e6


def _burnt(pid: int) -> float:
    """Seconds of CPU that the threads of a process have had, those that have ended left out."""
    return sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _server_burnt(watch: psycopg.Connection[Any]) -> float:
    """Seconds of CPU of the server's processes, but for the one that answers us."""
    return sum(_burnt(pid) for (pid,) in watch.execute(_BACKENDS, (watch.info.dbname,)).fetchall())

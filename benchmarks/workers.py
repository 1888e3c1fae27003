"""Worker processes on PostgreSQL: many tasks by one and by two, how soon a task begins, how soon one is taken over.

A started task is counted from the call of `app.start`, in another process than the one that works on it. Peers do the
same with the settings they come with: Absurd polls every 0.25 s, DBOS every second.
"""

from __future__ import annotations

import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import holdfast
from benchmarks.bench import PEERS, Bench, Measure
from benchmarks.table import Goal, Row, at_least, at_most, skipped
from benchmarks.worker_process import asleep, long, short
from benchmarks.workload import EACH, TASKS, at_once, in_turns, say
from holdfast import App

CONCURRENCY = 100
ROUNDS = 3
SAMPLES = 200
PEER_SAMPLES = {"absurd": 40, "dbos": 12}
ABSURD_PROCESSES = 4
ABSURD_LEASE_SECONDS = 5
TAKE_OVERS = 5
SLEEPING = 10_000
STARTERS = 8
IDLE_SECONDS = 5.0
PATIENCE_SECONDS = 120

_LEFT = "select count(*) from holdfast.tasks where status in ('pending', 'running')"
_ids = count()


def rows(bench: Bench) -> list[Row]:
    """All of it needs `app.worker`."""
    if not hasattr(App, "worker"):
        return [skipped(name, "no worker") for name in ("throughput", "start latency", "take-over", "sleeping tasks")]
    say("workers")
    with bench.peers("absurd", "dbos", at=bench.database) as peers:
        return [
            *_throughput(bench, peers),
            *_latency(bench, peers),
            *_take_over(bench, peers),
            *_sleeping(bench),
        ]


@contextmanager
def workers(url: str, number: int = 1, concurrency: int = CONCURRENCY) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many worker processes, ready to work."""
    command = [sys.executable, "-m", "benchmarks.worker_process", url, str(concurrency)]
    found = [subprocess.Popen(command, stdin=subprocess.DEVNULL) for _ in range(number)]
    try:
        with holdfast.open(url) as app:
            for _ in range(20):
                _begun(app)
        time.sleep(1)
        yield found
    finally:
        for one in found:
            one.kill()
            one.wait()


def _throughput(bench: Bench, peers: dict[str, Measure]) -> Iterator[Row]:
    """Steps a second, from the start of the first task to the end of the last."""
    urls = {number: bench.database(f"by_{number}") for number in (1, 2)}
    with workers(urls[1]), workers(urls[2], 2):
        found = in_turns(ROUNDS, one=lambda: _worked(urls[1]), two=lambda: _worked(urls[2]))
    one, two = (TASKS * EACH / min(found[name]) for name in ("one", "two"))
    name = f"{TASKS} tasks of {EACH} steps"
    if "absurd" in peers:
        wanted = {"what": "concurrent", "tasks": TASKS, "steps": EACH, "processes": ABSURD_PROCESSES}
        theirs = TASKS * EACH / min(peers["absurd"](**wanted) for _ in range(2))
        beside = f"Absurd, {ABSURD_PROCESSES} processes"
        yield _rate(f"{name}, one worker process", one, theirs, beside, at_least(8))
    else:
        yield _rate(f"{name}, one worker process", one)
    yield _rate(f"{name}, two worker processes", two, one, "one process", at_least(1))


def _rate(name: str, measured: float, compare: float | None = None, beside: str = "", goal: Goal | None = None) -> Row:
    return Row(name=name, measured=measured, unit="steps/s", compare=compare, beside=beside, goal=goal)


def _worked(url: str) -> float:
    import psycopg

    with holdfast.open(url) as app, psycopg.connect(url, autocommit=True) as connection:
        began = time.perf_counter()
        for _ in range(TASKS):
            app.start(at_once, {"steps": EACH}, id=f"worked-{next(_ids)}")
        while connection.execute(_LEFT).fetchone() != (0,):
            time.sleep(0.005)
        return time.perf_counter() - began


def _latency(bench: Bench, peers: dict[str, Measure]) -> Iterator[Row]:
    """Milliseconds from `app.start` to the first step."""
    url = bench.database("latency")
    say("latency")
    with workers(url), holdfast.open(url) as app:
        ours = sorted(_begun(app) * 1e3 for _ in range(SAMPLES))
    theirs = {name: [1e3 * one for one in peers[name](what="latency", samples=PEER_SAMPLES[name])] for name in peers}
    p50, p99 = statistics.median(ours), ours[math.ceil(len(ours) * 0.99) - 1]
    yield Row(name="start to first step on an idle worker, p50", measured=p50, unit="ms", goal=at_most(5, "ms"))
    yield Row(name="start to first step on an idle worker, p99", measured=p99, unit="ms", goal=at_most(30, "ms"))
    for name, found in theirs.items():
        compare = statistics.median(found)
        what = "start to first step on an idle worker, p50"
        yield Row(name=what, measured=p50, unit="ms", compare=compare, beside=PEERS[name])


def _begun(app: App) -> float:
    """Start a task for the workers; seconds until its step was entered."""
    id = f"begun-{next(_ids)}-{time.monotonic_ns()}"
    began = time.monotonic()
    app.start(short, id=id)
    until = began + PATIENCE_SECONDS
    while (seen := app.get(id)).status != "completed":
        assert time.monotonic() < until, f"no worker took {id!r}: it is {seen.status}"
        time.sleep(0.02)
    return seen.result - began


def _take_over(bench: Bench, peers: dict[str, Measure]) -> Iterator[Row]:
    """Seconds from the kill of a worker to the moment another enters the step it was in."""
    say("take-over")
    url = bench.database("taken")
    found = [_taken(url, bench.place / f"told-{number}") * 1e3 for number in range(TAKE_OVERS)]
    name = "kill of a worker to its step at another"
    yield Row(name=name, measured=statistics.median(found), unit="ms", goal=at_most(2_000, "ms"))
    if "absurd" in peers:
        theirs = peers["absurd"](what="takeover", lease_seconds=ABSURD_LEASE_SECONDS) * 1e3
        beside = f"Absurd, lease of {ABSURD_LEASE_SECONDS} s"
        yield Row(name=name, measured=statistics.median(found), unit="ms", compare=theirs, beside=beside)
    if "dbos" in peers:
        yield Row(name=f"{name}: DBOS", note="not measured: it needs a coordinator (Conductor)")


def _taken(url: str, told: Path) -> float:
    with workers(url, 2), holdfast.open(url) as app:
        id = f"taken-{next(_ids)}"
        app.start(long, {"told": str(told)}, id=id)
        pid = int(_line(told, 0).split()[0])
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        entered = float(_line(told, 1).split()[1])
        app.cancel(id)
    return entered - killed


def _line(path: Path, number: int) -> str:
    """A line of a file, when it is there."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        found = path.read_text().splitlines() if path.exists() else []
        if len(found) > number:
            return found[number]
        time.sleep(0.002)
    raise TimeoutError("no worker took the task")


def _sleeping(bench: Bench) -> Iterator[Row]:
    """What tasks that sleep cost a worker that was started after they fell asleep, beside one without any."""
    say(f"{SLEEPING:,} asleep")
    empty, full = bench.database("awake"), bench.database("asleep")
    _put_to_sleep(full)
    with workers(empty) as (bare,), workers(full) as (loaded,):
        (memory, busy), (more, busier) = _cost(bare.pid), _cost(loaded.pid)
    name = f"of a worker with {SLEEPING:,} sleeping tasks"
    yield Row(name=f"memory {name}, added", measured=more - memory, unit="KB", goal=at_most(1_024, "KB"))
    yield Row(
        name=f"processor {name}",
        measured=busier,
        unit="ms/s",
        compare=busy,
        beside="with none",
        goal=at_most(5, "ms/s"),
    )


def _put_to_sleep(url: str) -> None:
    import psycopg

    with workers(url), holdfast.open(url) as app, psycopg.connect(url, autocommit=True) as connection:
        with ThreadPoolExecutor(STARTERS) as pool:
            list(pool.map(lambda number: app.start(asleep, id=f"asleep-{number}"), range(SLEEPING)))
        while connection.execute(_LEFT).fetchone() != (0,):
            time.sleep(0.05)


def _cost(pid: int) -> tuple[float, float]:
    """Kilobytes that a process has in memory, and milliseconds of the processor it takes a second, doing nothing."""
    page, tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")

    def burnt() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / tick

    before = burnt()
    time.sleep(IDLE_SECONDS)
    used = (burnt() - before) / IDLE_SECONDS
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page / 1024, used * 1e3

"""How many workers, primaries and connections does a load need? A model of a day, fed with measured costs.

python -m benchmarks.scale_model                                # for 1, 10, 100 and 1,000 million tasks a day
python -m benchmarks.scale_model --tasks-a-day 5e6 --steps 40   # a load of your own
python -m benchmarks.scale_model --measure                      # measure costs here, and the model's error

Costs are CPU seconds and bytes of a process, a task, a step and a commit, of workers and of the server. They follow
from five runs of one process, and are checked against three others that took no part in it. What is written while a
commit is on its way shares the next one: busy processes commit for many tasks at a time, those whose tasks wait do not.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

DAY = 86_400
TICK_SECONDS = 10
RUSH_SECONDS = 3_600
"""How wide the busiest hour is: load is a curve round noon above an even rest."""


EVENTS_BESIDE_STEPS = 2
"""Events that a worker writes for a task beside its steps: one when it takes it, and one when it ends."""


class Costs(Struct, frozen=True, kw_only=True):
    """One resource: what a worker process takes to come and go, a task beside its steps, a step, and a commit."""

    process: float
    task: float
    step: float
    commit: float

    def of(self, processes: float, tasks: float, steps: float, commits: float) -> float:
        """Return what so much work takes; `steps` are those of all tasks."""
        return processes * self.process + tasks * self.task + steps * self.step + commits * self.commit


class Measured(Struct, frozen=True, kw_only=True):
    """What was measured: CPU seconds of workers and server, bytes of WAL, and counts."""

    worker: Costs
    server: Costs
    wal: Costs
    connections: float
    """The most that one worker process held."""
    indexed_updates: float
    """Updates of a task's row that write every index, for one task."""
    shared: float
    """How many of the tasks that a busy process has share a commit: their part of all of them."""
    commit_seconds: float
    """How long a commit takes."""

    def events_a_commit(self, tasks: float, rate: float) -> float:
        """Return how many events of one process share a commit: `tasks` at a time write so many events a second."""
        return max(1.0, min(rate * self.commit_seconds, self.shared * tasks))


HERE = Measured(
    worker=Costs(process=0.408, task=0.000260, step=0.0000583, commit=0.000412),
    server=Costs(process=0.054, task=0.000153, step=0.0000194, commit=0.000354),
    wal=Costs(process=460, task=3_500, step=730, commit=40),
    connections=4,
    indexed_updates=2,
    shared=0.4,
    commit_seconds=0.00026,
)
"""Measured with --measure, but for the length of a commit, which is that of a quiet machine: see docs/scale.md."""


class Load(Struct, frozen=True, kw_only=True):
    """Tasks a day, and what they are like."""

    tasks_a_day: float
    steps: float = 20
    wait_seconds: float = 2.0
    """How long a step waits for a model or a server."""
    peak: float = 10.0
    """The busiest moment, over the mean of the day. Above 13 the curve would have to go below zero."""

    def rate(self, second: float) -> float:
        """Return how many tasks a second begin at a second of the day."""
        mean, share = self.tasks_a_day / DAY, RUSH_SECONDS * math.sqrt(math.pi) / DAY
        rest = max(0.0, (1 - self.peak * share) / (1 - share))
        bell = math.exp(-(((second - DAY / 2) / RUSH_SECONDS) ** 2))
        return mean * (rest + (self.peak - rest) * bell)


class Machines(Struct, frozen=True, kw_only=True):
    """What a worker process and a primary hold. Those of a primary are assumed, and not measured here."""

    busy: float = 0.7
    """How much of a processor is planned for."""
    concurrency: int = 100
    cores: int = 16
    connections: int = 400
    wal_bytes: float = 100e6
    """Bytes of WAL a second that disk and standby take."""


class Day(Struct, frozen=True):
    """What came of a day: the longest that a task waited for a worker, what was in the way, and how busy each was."""

    wait_seconds: float
    bottleneck: str
    busiest: dict[str, float]


def day(load: Load, costs: Measured, machines: Machines, workers: int, primaries: int) -> Day:
    """Simulate a day in steps of ten seconds: what comes in, what each resource lets through, and what stays."""
    events = load.steps + EVENTS_BESIDE_STEPS
    together = costs.events_a_commit(machines.concurrency, load.rate(DAY / 2) * events / workers)
    task = 0, 1, load.steps, events / together
    most = {
        "worker CPU": workers * machines.busy / costs.worker.of(*task),
        "places of workers": workers * machines.concurrency / (load.steps * load.wait_seconds + 1e-9),
        "server CPU": primaries * machines.cores * machines.busy / costs.server.of(*task),
        "WAL": primaries * machines.wal_bytes / costs.wal.of(*task),
    }
    bottleneck = min(most, key=lambda name: most[name])
    through = most[bottleneck]
    left = longest = peak = 0.0
    for tick in range(DAY // TICK_SECONDS):
        came = load.rate(tick * TICK_SECONDS) * TICK_SECONDS
        done = min(left + came, through * TICK_SECONDS)
        left += came - done
        longest, peak = max(longest, left / through), max(peak, done / TICK_SECONDS)
    return Day(longest, bottleneck, {name: peak / one for name, one in most.items()})


class Plan(Struct, frozen=True):
    """What a load needs, and what fills first."""

    workers: int
    primaries: int
    connections: int
    first: str
    day: Day


def plan(load: Load, costs: Measured, machines: Machines, wait_seconds: float = 5.0) -> Plan:
    """Find the fewest workers, then the fewest primaries, with which no task waits longer than that."""
    plenty = 1 << 30
    workers = _fewest(lambda number: day(load, costs, machines, number, plenty).wait_seconds <= wait_seconds)
    by_links = math.ceil(workers * costs.connections / machines.connections)
    enough = _fewest(lambda number: day(load, costs, machines, workers, number).wait_seconds <= wait_seconds)
    primaries = max(by_links, enough)
    found = day(load, costs, machines, workers, primaries)
    busiest = found.busiest | {"connections": workers * costs.connections / (primaries * machines.connections)}
    of_primaries = {name: busiest[name] for name in ("server CPU", "WAL", "connections")}
    first = max(of_primaries, key=lambda name: of_primaries[name])
    links = math.ceil(workers * costs.connections)
    return Plan(workers, primaries, links, first, Day(found.wait_seconds, found.bottleneck, busiest))


def _fewest(is_enough: Callable[[int], bool]) -> int:
    """Return the smallest number that is enough; if one is, so are all above it."""
    high = 1
    while not is_enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


# Measuring


class Run(Struct, frozen=True, kw_only=True):
    """Work that is done by real workers on a real server. Steps wait for about so many seconds each."""

    processes: int
    tasks: int
    steps: int
    wait: float = 0.0

    @property
    def events(self) -> int:
        """How many events the workers write."""
        return self.tasks * (self.steps + EVENTS_BESIDE_STEPS)

    @property
    def at_a_time(self) -> float:
        """How many tasks a process has at a time."""
        return min(CONCURRENCY, self.tasks / self.processes)


class Found(Struct, frozen=True, kw_only=True):
    """What a run took."""

    worker: float
    server: float
    wal: float
    commits: int
    seconds: float
    connections: int
    indexed_updates: int


CONCURRENCY = 100
"""How many tasks a worker process takes at a time."""

LEARNT = (
    Run(processes=1, tasks=1, steps=1),
    Run(processes=1, tasks=2_000, steps=1),
    Run(processes=1, tasks=1_000, steps=20),
    Run(processes=1, tasks=300, steps=60),
    Run(processes=1, tasks=1, steps=2_000),
)
"""From nothing to do to many tasks, to steps in company, and steps each of which is a commit of its own."""

CHECKED = (
    Run(processes=2, tasks=1_000, steps=20),
    Run(processes=4, tasks=1_500, steps=10),
    Run(processes=2, tasks=400, steps=20, wait=0.2),
)
ROUNDS = 3

AGENTS = """
import asyncio, random
from holdfast import AsyncTask, agent

async def look(wait: float) -> str:
    if wait:
        await asyncio.sleep(wait * random.uniform(0.5, 1.5))
    return "x" * 200

@agent
async def work(task: AsyncTask, steps: int, wait: float) -> int:
    for number in range(steps):
        await task.step(look, wait)
    return steps
"""


def solved(runs: Sequence[Run], took: Sequence[float], commits: Sequence[float]) -> Costs:
    """Return what a process, a task, a step and a commit take, so that the relative errors of these runs are least."""
    works = [
        [float(cell) for cell in (one.processes, one.tasks, one.tasks * one.steps, written)]
        for one, written in zip(runs, commits, strict=True)
    ]
    rows = [[cell / value for cell in work] for work, value in zip(works, took, strict=True)]
    table = [[sum(row[a] * row[b] for row in rows) for b in range(4)] + [sum(row[a] for row in rows)] for a in range(4)]
    for column in range(4):
        pivot = max(range(column, 4), key=lambda row: abs(table[row][column]))
        table[column], table[pivot] = table[pivot], table[column]
        table[column] = [cell / table[column][column] for cell in table[column]]
        for row in range(4):
            if row != column:
                factor = table[row][column]
                table[row] = [a - factor * b for a, b in zip(table[row], table[column], strict=True)]
    process, task, step, commit = (row[4] for row in table)
    return Costs(process=max(0.0, process), task=task, step=step, commit=commit)


def measured(runs: Sequence[Run], found: Sequence[Found]) -> Measured:
    """Make costs of runs and of what they took."""
    by_tasks = max(range(len(runs)), key=lambda number: runs[number].tasks)
    by_events = max(range(len(runs)), key=lambda number: runs[number].events)
    fewest = min(range(len(runs)), key=lambda number: runs[number].events)
    lone = max(range(len(runs)), key=lambda number: runs[number].steps)
    commits = [one.commits for one in found]
    return Measured(
        worker=solved(runs, [one.worker for one in found], commits),
        server=solved(runs, [one.server for one in found], commits),
        wal=solved(runs, [one.wal for one in found], commits),
        connections=max(one.connections for one in found),
        indexed_updates=found[by_tasks].indexed_updates / runs[by_tasks].tasks,
        shared=runs[by_events].events / found[by_events].commits / runs[by_events].at_a_time,
        commit_seconds=(found[lone].seconds - found[fewest].seconds) / runs[lone].steps,
    )


def commits_of(costs: Measured, run: Run) -> float:
    """Return how many commits the model expects of a run."""
    rate = run.at_a_time / run.wait if run.wait else math.inf
    return run.events / costs.events_a_commit(run.at_a_time, rate)


def errors(costs: Measured, run: Run, found: Found) -> dict[str, tuple[float, float]]:
    """Return what the model says of a run, and what the run took."""
    commits = commits_of(costs, run)
    work = run.processes, run.tasks, run.tasks * run.steps, commits
    return {
        "commits": (commits, found.commits),
        "worker CPU, s": (costs.worker.of(*work), found.worker),
        "server CPU, s": (costs.server.of(*work), found.server),
        "WAL, MB": (costs.wal.of(*work) / 1e6, found.wal / 1e6),
        "connections": (costs.connections * run.processes, found.connections),
    }


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process, of its children that live and of those that have ended."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile, and is counted with its parent
        is_root = int(path.parent.name) == pid
        if is_root or int(fields[1]) == pid:
            total += sum(map(int, fields[11:15] if is_root else fields[11:13])) / ticks
    return total


def carried_out(server: Any, run: Run, place: Path, number: int) -> Found:
    """Start tasks, have real workers do them, and see what that took."""
    import psycopg
    from psycopg import sql

    import holdfast

    database = f"scale_{number}"
    with psycopg.connect(server.url(), autocommit=True) as root:
        root.execute(sql.SQL("create database {}").format(sql.Identifier(database)))
    url = server.url(database)
    with holdfast.open(url) as app:
        for one in range(run.tasks):
            app.start("work", {"steps": run.steps, "wait": run.wait}, id=f"w-{one}")
    with psycopg.connect(url, autocommit=True) as watching:
        before, wal, commits, began = cpu_of(server._process.pid), _wal(watching), _commits(watching), time.monotonic()
        with _counted(watching) as most:
            workers = _worked(url, run, place)
        seconds = time.monotonic() - began
        server_took, wal_took = cpu_of(server._process.pid) - before, _wal(watching) - wal
        commits = _commits(watching) - commits - len(most)  # the questions how many connections there are
        [left] = watching.execute("select count(*) from holdfast.tasks where status <> 'completed'").fetchone() or (1,)
        assert left == 0, f"{left} tasks are left"
        watching.execute("select pg_stat_force_next_flush()")
        [cold] = watching.execute(
            "select coalesce(sum(n_tup_upd - n_tup_hot_upd), 0) from pg_stat_user_tables where relname = 'tasks'"
        ).fetchone() or (0,)
    with psycopg.connect(server.url(), autocommit=True) as root:
        root.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(database)))
    return Found(
        worker=workers,
        server=server_took,
        wal=wal_took,
        commits=commits,
        seconds=seconds,
        connections=max(most),
        indexed_updates=int(cold),
    )


def _worked(url: str, run: Run, place: Path) -> float:
    """CPU seconds of worker processes until nothing is left to do."""
    command = [sys.executable, "-m", "holdfast", "worker", "agents.py", "--store", url, "--drain", "--quiet"]
    begun = [
        subprocess.Popen(command, cwd=place, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(run.processes)
    ]
    took = 0.0
    for one in begun:
        _, status, used = os.wait4(one.pid, 0)
        one.returncode = os.waitstatus_to_exitcode(status)
        assert one.returncode == 0, f"a worker ended with {one.returncode}"
        took += used.ru_utime + used.ru_stime
    return took


def _wal(connection: Any) -> float:
    [found] = connection.execute("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')").fetchone()
    return float(found)


def _commits(connection: Any) -> int:
    """Return how many transactions the database has seen. Those of processes that have ended are all counted."""
    connection.execute("select pg_stat_force_next_flush()")
    [found] = connection.execute(
        "select xact_commit from pg_stat_database where datname = current_database()"
    ).fetchone()
    return int(found)


@contextmanager
def _counted(connection: Any) -> Generator[list[int]]:
    """Count the connections of others, ten times a second, until the block ends."""
    seen, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            [found] = connection.execute(
                "select count(*) from pg_stat_activity "
                "where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()"
            ).fetchone()
            seen.append(int(found))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def measure(rounds: int = ROUNDS, say: Callable[[str], object] = print) -> tuple[Measured, list[dict[str, Any]]]:
    """Measure costs by three runs, and compare what they say of two others with what those took.

    Runs take turns, and of each the one that took the least counts: a busy machine only adds.
    """
    from tests.postgres_server import Server, binaries

    server = Server(binaries(), fsync="on")
    runs = [*LEARNT, *CHECKED]
    found: list[list[Found]] = [[] for _ in runs]
    try:
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "agents.py").write_text(AGENTS)
            for turn in range(rounds):
                for number, run in enumerate(runs):
                    began = time.monotonic()
                    found[number].append(carried_out(server, run, Path(name), turn * len(runs) + number))
                    say(f"{run}: {found[number][-1]} in {time.monotonic() - began:.1f} s")
    finally:
        server.stop()
    least = [_least(ones) for ones in found]
    costs = measured(LEARNT, least[: len(LEARNT)])
    checks = zip(CHECKED, least[len(LEARNT) :], strict=True)
    return costs, [{"run": run, "said": errors(costs, run, took)} for run, took in checks]


def _least(found: Sequence[Found]) -> Found:
    return Found(
        worker=min(one.worker for one in found),
        server=min(one.server for one in found),
        wal=min(one.wal for one in found),
        commits=min(one.commits for one in found),
        seconds=min(one.seconds for one in found),
        connections=max(one.connections for one in found),
        indexed_updates=min(one.indexed_updates for one in found),
    )


# The command line


def table(loads: Sequence[tuple[str, Load]], costs: Measured, machines: Machines) -> list[str]:
    """Return what each load needs, as lines of a table."""
    lines = [
        "| tasks a day | events a second at the peak | worker processes | primaries | connections | fills first |",
        "|---|---|---|---|---|---|",
    ]
    for name, load in loads:
        found = plan(load, costs, machines)
        events = load.rate(DAY / 2) * (load.steps + 4)
        full = f"{found.first} {found.day.busiest[found.first]:.0%}"
        cells = (events, found.workers, found.primaries, found.connections)
        lines.append(f"| {name} | {' | '.join(f'{one:,.0f}' for one in cells)} | {full} |")
    return lines


def main() -> None:
    """Read the command line, measure if that is asked for, and print tables."""
    asked = argparse.ArgumentParser(prog="python -m benchmarks.scale_model", description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]
    asked.add_argument("--measure", action="store_true", help="measure costs on this machine, and the model's error")
    asked.add_argument("--rounds", type=int, default=ROUNDS)
    asked.add_argument("--concurrency", type=int, default=Machines().concurrency, help="tasks at a time in a process")
    for name, kind in (("tasks-a-day", float), ("steps", float), ("wait-seconds", float), ("peak", float)):
        asked.add_argument(f"--{name}", type=kind)
    given = vars(asked.parse_args())
    costs = HERE
    if given.pop("measure"):
        costs, checks = measure(given["rounds"])
        print(costs)
        for check in checks:
            for name, (said, took) in check["said"].items():
                print(f"{check['run']}: {name}: model {said:.2f}, run {took:.2f}, error {said / took - 1:+.0%}")
    del given["rounds"]
    machines = Machines(concurrency=given.pop("concurrency"))
    told = {name: value for name, value in given.items() if value is not None}
    if "tasks_a_day" in told:
        loads = [(f"{told['tasks_a_day']:,.0f}", Load(**told))]
    else:
        loads = [
            (f"{millions:,} million", Load(**told, tasks_a_day=millions * 1e6)) for millions in (1, 10, 100, 1_000)
        ]
    print("\n".join(table(loads, costs, machines)))


if __name__ == "__main__":
    main()

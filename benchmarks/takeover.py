"""How soon a killed worker's tasks resume elsewhere: from SIGKILL to the first new event of each of them.

    python -m benchmarks.takeover [postgresql://…] [--kills 50]

Two processes of one worker each share a store. Every time, one is killed in the middle of its tasks' steps, and the
time is read off the logs: both clocks are this machine's. Without an address it is measured on SQLite, in a new file.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import holdfast
from benchmarks.table import Row, as_text, at_most
from holdfast import Task, agent
from holdfast.core.events import TaskClaimed

TASKS = 6
"""How many tasks are under way when a worker is killed."""

STEP_SECONDS = 0.02
GOAL_MS = 1_000
WAIT_SECONDS = 30.0


@agent(loop=True)
def ticking(task: Task) -> None:
    """Turns without end: a task that is under way whenever somebody looks."""
    task.step(time.sleep, STEP_SECONDS, name="tick")


def rows(url: str, kills: int = 50) -> list[Row]:
    """Half of the tasks, ninety-nine of a hundred, and the slowest went on within so long."""
    waits = sorted(measured(url, kills))
    where = "PostgreSQL" if url.startswith("postgres") else "SQLite"
    name = f"take-over after SIGKILL of a worker, {where}, {kills} kills, {len(waits)} tasks"
    return [
        Row(name=f"{name}: p50", measured=statistics.median(waits), unit="ms"),
        Row(name=f"{name}: p99", measured=waits[int(len(waits) * 0.99)], unit="ms", goal=at_most(GOAL_MS, "ms")),
        Row(name=f"{name}: max", measured=waits[-1], unit="ms"),
    ]


def measured(url: str, kills: int) -> Iterator[float]:
    """For each task of each worker that was killed: milliseconds until it went on."""
    with holdfast.open(url) as app, contextlib.ExitStack() as stack:
        for number in range(TASKS):
            app.start(ticking, id=f"tick-{number}")
        crew = {one.pid: one for one in (_worker(stack, url), _worker(stack, url))}
        for _ in range(kills):
            victim, theirs = _busiest(app, crew)
            killed_us = time.time_ns() // 1000
            crew.pop(victim).kill()
            for name, seq in theirs.items():
                yield (_taken_us(app, name, seq, killed_us) - killed_us) / 1000
            fresh = _worker(stack, url)
            crew[fresh.pid] = fresh


def _worker(stack: contextlib.ExitStack, url: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.takeover", url, "--work"])
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def _busiest(app: holdfast.App, crew: dict[int, subprocess.Popen[bytes]]) -> tuple[int, dict[str, int]]:
    """The worker with the most tasks, and how far each of them has come; waits until both workers are there."""
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        pids = {known.holder: known.serving.pid for known in app.workers()}
        held = [(pids.get(row.holder or ""), row.id) for row in app.list(status="running")]
        if crew.keys() <= set(pids.values()) and len(held) == TASKS and all(pid in crew for pid, _ in held):
            victim = max(crew, key=lambda pid: sum(one == pid for one, _ in held))
            return victim, {name: app.get(name).seq for pid, name in held if pid == victim}
        time.sleep(0.05)
    raise TimeoutError("the workers do not come to work")


def _taken_us(app: holdfast.App, name: str, seq: int, killed_us: int) -> int:
    """When somebody else took a task, by the claim in its log."""
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        for record in app.events(name, after=seq):
            if isinstance(record.event, TaskClaimed) and record.at_us >= killed_us:
                return record.at_us
        time.sleep(0.02)
    raise TimeoutError(f"nobody took {name!r}")


def main() -> None:
    """Measure, or be one of the workers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.takeover", description=__doc__)
    parser.add_argument("url", nargs="?", default="")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        holdfast.open(asked.url).worker([ticking], concurrency=TASKS).run()
        return
    with tempfile.TemporaryDirectory() as place:
        print(as_text(rows(asked.url or f"{place}/takeover.db", asked.kills)))


if __name__ == "__main__":
    main()

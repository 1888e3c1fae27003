"""What the guard of a SQLite file costs a step: the same steps with it, and with SQLite's own locks alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import holdfast
from benchmarks.bench import Bench
from benchmarks.table import Row, at_most
from benchmarks.workload import best, say
from holdfast import App, Task, agent
from holdfast.store.sqlite import file
from holdfast.store.sqlite.file import Durability
from holdfast.store.sqlite.file_guard import FileGuard, NoGuard

STEPS = {"full": 200, "process": 1_000}
ROUNDS = 30
MOST = {"full": 1.03, "process": 1.20}
SETTLED_SECONDS = 0.3  # until a look at the directory is enough


@agent
def walker(task: Task, steps: int) -> None:
    """Make so many steps that do nothing."""
    for number in range(steps):
        task.step(int, number, name="step")


def rows(bench: Bench) -> list[Row]:
    """A step by the clock where it waits for the disk, by its CPU time where it does not."""
    return [_step(bench.place, "full"), _step(bench.place, "process")]


def _step(place: Path, durability: Durability) -> Row:
    say(f"guard {durability}")
    steps, ids = STEPS[durability], count()
    clock = time.perf_counter if durability == "full" else time.process_time
    with (
        holdfast.open(place / f"guarded-{durability}.db", durability=durability) as ours,
        _without_guard(),
        holdfast.open(place / f"bare-{durability}.db", durability=durability) as bare,
    ):
        time.sleep(SETTLED_SECONDS)
        found = best(
            ROUNDS,
            ours=lambda: _seconds(ours, steps, next(ids), clock),
            bare=lambda: _seconds(bare, steps, next(ids), clock),
        )
    name = f"step in a def agent with the guard of its file, {durability}"
    per, goal = 1e6 / steps, at_most(MOST[durability])
    return Row(name=name, measured=found["ours"] * per, unit="µs", compare=found["bare"] * per, goal=goal)


def _seconds(app: App, steps: int, number: int, clock: Callable[[], float]) -> float:
    began = clock()
    app.run(walker, {"steps": steps}, id=f"t{number}")
    return clock() - began


@contextmanager
def _without_guard() -> Iterator[None]:
    right = file._guard_of

    def none(path: str) -> FileGuard | NoGuard:
        return NoGuard()

    file._guard_of = none
    try:
        yield
    finally:
        file._guard_of = right

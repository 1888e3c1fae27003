"""What things cost when there are twice as many: the processor's time at n, 2n, 4n and 8n, and the ratio per doubling.

A cost that is linear has the ratio 2. More than 2.2 is a bug: something looks at all that is there for each new thing.

Python's garbage collector is set as `holdfast worker` sets it. With Python's own settings it goes through all live
objects again and again, once there are more of them than modules and classes are.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import holdfast
from benchmarks.bench import Bench
from benchmarks.listing import FILTERS, fill
from benchmarks.table import Row, at_most
from benchmarks.workload import gathered, say, text
from holdfast import AsyncTask, Task, agent
from holdfast.cli.work.worker import look_for_garbage_less_often
from holdfast.engine.app import App

PER_DOUBLING = 2.2
FLAT = 1.3
"""How many times the memory, file descriptors and threads after some tasks a process may have after all of them."""

ROUNDS = 3
BRANCHES = 2_000
TOGETHER = 250
"""How many of the tasks that are started and ended are live at once."""

_ids = count(1)
_TEXT = text(200, 1)

Sizes = tuple[int, ...]


class Subject(NamedTuple):
    """What grows: its name, how many there are, what that costs, and what is measured beside."""

    name: str
    sizes: Sizes
    cost: Callable[[Path, Sizes], list[float]]


def doubled(least: int) -> Sizes:
    """n, 2n, 4n, 8n."""
    return tuple(least * 2**power for power in range(4))


def rows(bench: Bench) -> list[Row]:
    """Each subject's cost, beside half as many; and what 100,000 tasks leave behind in their process."""
    say("scaling")
    found = list[Row]()
    with _garbage_as_in_a_worker():
        for number, subject in enumerate(SUBJECTS):
            found += _rows(subject.name, subject.sizes, subject.cost(bench.folder(str(number)), subject.sizes))
            say(subject.name)
        found += _tasks(bench.folder("tasks"), doubled(12_500))
    return [*found, *_beside_each_other(found), _memory(bench.folder("memory"))]


@contextmanager
def _garbage_as_in_a_worker() -> Generator[None, None, None]:
    before = gc.get_threshold()
    look_for_garbage_less_often()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _rows(name: str, sizes: Sizes, costs: Sequence[float]) -> Iterator[Row]:
    found = [(size, cost * 1e3) for size, cost in zip(sizes, costs, strict=True)]
    size, least = found[0]
    yield Row(name=f"{name}, {size:,}", measured=least, unit="ms", curve="scaling", at=size, line=name)
    for (before, less), (size, more) in pairwise(found):
        yield Row(
            name=f"{name}, {size:,}",
            measured=more,
            unit="ms",
            compare=less,
            beside=f"{before:,}",
            goal=at_most(PER_DOUBLING),
            curve="scaling",
            at=size,
            line=name,
        )


def _beside_each_other(rows: Sequence[Row]) -> Iterator[Row]:
    """Two goals that compare one cost with another of the same run."""
    each = {(row.line, row.at): row.measured / row.at * 1e3 for row in rows if row.curve and row.measured is not None}
    few, many, children = 1_000, 8_000, 2_000
    yield Row(
        name=f"a live async task, one of {many:,}",
        measured=each["live async tasks", many],
        unit="µs",
        compare=each["live async tasks", few],
        beside=f"one of {few:,}",
        goal=at_most(FLAT),
    )
    yield Row(
        name=f"an async child, one of {children:,}",
        measured=each["async children", children],
        unit="µs",
        compare=each["def children", children],
        beside="a def child",
        goal=at_most(1.5),
    )


def _memory(place: Path) -> Row:
    """The memory that branches which read between their steps add to a process, at its most."""
    command = (sys.executable, "-m", "benchmarks.scaling", str(place / "memory.db"), str(BRANCHES))
    added = int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    name = f"memory of {BRANCHES:,} branches that read between steps"
    return Row(name=name, measured=added / 2**20, unit="MB", goal=at_most(100, "MB"))


def _added_by_branches(path: str, branches: int) -> int:
    """Bytes by which the most memory that this process had grows."""
    with holdfast.open(path, durability="process") as app:
        _completed(app, reading_branches, 1)
        before = _status("VmHWM")
        _completed(app, reading_branches, branches)
        return _status("VmHWM") - before


def _status(field: str) -> int:
    """Bytes of memory of this process, as the kernel counts them: VmRSS is now, VmHWM the most there was."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


# What grows


@agent
def stepping(task: Task, sizes: list[int]) -> list[float]:
    """Many steps, and the processor's time when there were so many."""
    marks, began = dict.fromkeys(sizes, 0.0), time.process_time()
    for number in range(1, max(sizes) + 1):
        task.step(_told, number, name="work")
        if number in marks:
            marks[number] = time.process_time() - began
    return list(marks.values())


@agent
def mapping(task: Task, size: int) -> int:
    """One `map` over many."""
    return len(task.map(_told, range(size)))


@agent
def large(task: Task, size: int) -> int:
    """One value of so many bytes, handed to a step and back."""
    return len(task.step(str.upper, "x" * size, name="work"))


@agent
async def reading_branches(task: AsyncTask, size: int) -> None:
    """Branches that read the state between their steps."""

    async def branch(number: int) -> None:
        for part in range(2):
            await task.step(_atold, number, name=f"work-{number}-{part}")
            assert task.state.get("nothing") is None

    await asyncio.gather(*map(branch, range(size)))


@agent
async def reading_in_reverse(task: AsyncTask, size: int) -> None:
    """The same, but the branch whose step is last in the log reads first."""
    turns = [asyncio.Event() for _ in range(size + 1)]
    turns[size].set()

    async def branch(number: int) -> None:
        await task.step(_atold, number, name=f"work-{number}-0")
        await turns[number + 1].wait()
        assert task.state.get("nothing") is None
        turns[number].set()
        await task.step(_atold, number, name=f"work-{number}-1")
        assert task.state.get("nothing") is None

    await asyncio.gather(*map(branch, range(size)))


@agent
def child(task: Task, number: int) -> int:
    """A child that does nothing."""
    return number


@agent
async def async_child(task: AsyncTask, number: int) -> int:
    """The same, async."""
    return number


@agent
def parent(task: Task, size: int) -> None:
    """One that waits for each of its children."""
    for number in range(size):
        task.spawn(child, {"number": number}, name=f"child-{number}")


@agent
async def async_parent(task: AsyncTask, size: int) -> None:
    """One that waits for all of its children together."""
    await asyncio.gather(
        *(task.spawn(async_child, {"number": number}, name=f"child-{number}") for number in range(size))
    )


def _told(number: int) -> str:
    return _TEXT


async def _atold(number: int) -> str:
    return _TEXT


def _steps(place: Path, sizes: Sizes) -> list[float]:
    with _app(place) as app:
        done = app.run(stepping, {"sizes": list(sizes)}, id="steps")
        assert done.status == "completed", done.failure
        return done.result


def _got(place: Path, sizes: Sizes) -> list[float]:
    """Twenty readings of a task of so many steps."""
    found: list[float] = []
    with _app(place) as app:
        for size in sizes:
            app.run(stepping, {"sizes": [size]}, id=f"read-{size}")
            reads = [functools.partial(app.get, f"read-{size}")] * 20
            found.append(min(_spent(lambda: [read() for read in reads]) for _ in range(5)))  # noqa: B023
    return found


def _run(tested: Any) -> Callable[[Path, Sizes], list[float]]:
    """One run of an agent for each size, in one file."""

    def cost(place: Path, sizes: Sizes) -> list[float]:
        with _app(place) as app:
            _spent(lambda: _completed(app, tested, sizes[0]))  # warms up
            rounds = [
                [_spent(lambda size=size: _completed(app, tested, size)) for size in sizes] for _ in range(ROUNDS)
            ]
            return [min(costs) for costs in zip(*rounds, strict=True)]

    return cost


def _live(place: Path, sizes: Sizes) -> list[float]:
    with _app(place) as app:
        gathered(app, sizes[0], 2)  # warms up
        return [_spent(lambda size=size: gathered(app, size, 2)) for size in sizes]


def _listed(place: Path, sizes: Sizes) -> list[float]:
    """A page by each filter, all together, among so many tasks."""
    found: list[float] = []
    for size in sizes:
        fill(place / f"{size}.db", size)
        with holdfast.open(place / f"{size}.db") as app:
            pages = [lambda given=given: app.list(**given, limit=100) for given in FILTERS.values()]
            found.append(min(_spent(lambda: [page() for page in pages]) for _ in range(5)))  # noqa: B023
    return found


SUBJECTS = [
    Subject("steps of a def task", doubled(12_500), _steps),
    Subject("get() of a task of so many steps", doubled(5_000), _got),
    Subject("items of one map", doubled(1_250), _run(mapping)),
    Subject("bytes of a value", doubled(6_250_000), _run(large)),
    Subject("branches that read between steps", doubled(1_250), _run(reading_branches)),
    Subject("branches that read in reverse order", doubled(1_250), _run(reading_in_reverse)),
    Subject("live async tasks", doubled(1_000), _live),
    Subject("def children", doubled(250), _run(parent)),
    Subject("async children", doubled(250), _run(async_parent)),
    Subject("tasks in lists, a page by every filter", doubled(125_000), _listed),
]


def _app(place: Path) -> App:
    return holdfast.open(place / "scaling.db", durability="process")


def _completed(app: App, tested: Any, size: int) -> None:
    done = app.run(tested, {"size": size}, id=f"scaling-{next(_ids)}")
    assert done.status == "completed", done.failure


def _spent(action: Callable[[], object]) -> float:
    """The processor's time, of all threads."""
    gc.collect()
    began = time.process_time()
    action()
    return time.process_time() - began


# What is left behind


class Process(NamedTuple):
    """The processor's time so far, and what the process holds."""

    seconds: float
    bytes: int
    descriptors: int
    threads: int


def _ended(app: App, sizes: Sizes) -> Iterator[Process]:
    """Start and end so many tasks; tell how it is when there have been n, 2n, 4n and 8n."""
    began, done = time.process_time(), 0
    for size in sizes:
        for _ in range((size - done) // TOGETHER):
            gathered(app, TOGETHER, 1)
        done = size
        seconds = time.process_time() - began
        gc.collect()
        yield Process(seconds, _status("VmRSS"), len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")))


def _tasks(place: Path, sizes: Sizes) -> Iterator[Row]:
    """Tasks of one step in one process: what they cost, and what it holds after all of them and after some."""
    with _app(place) as app:
        states = list(_ended(app, sizes))
    name = "tasks, started and ended"
    yield from _rows(name, sizes, [one.seconds for one in states])
    first, last = states[0], states[-1]
    for held, unit, before, after in (
        ("memory", "MB", first.bytes / 2**20, last.bytes / 2**20),
        ("file descriptors", "", first.descriptors, last.descriptors),
        ("threads", "", first.threads, last.threads),
    ):
        yield Row(
            name=f"{held} of a process after {sizes[-1]:,} tasks",
            measured=after,
            unit=unit,
            compare=before,
            beside=f"{sizes[0]:,}",
            goal=at_most(FLAT),
        )


if __name__ == "__main__":
    print(_added_by_branches(sys.argv[1], int(sys.argv[2])))

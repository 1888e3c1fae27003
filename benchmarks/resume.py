"""How soon a long task goes on: from opening its file to the moment the function of its first new step is entered.

What loading alone takes is measured beside it and subtracted: the rest is claiming it, and replaying what it did.
"""

from __future__ import annotations

import shutil
import time
from itertools import count
from pathlib import Path

import holdfast
from benchmarks.bench import Bench
from benchmarks.table import Row, at_most
from benchmarks.workload import in_turns, say, work
from holdfast import AsyncTask, Task, agent
from holdfast.engine.definitions.agent import Agent

LENGTH = 10_000
ROUNDS = 5
ID = "resumed"


class Killed(BaseException):
    """Stands for the crash: it is raised in the first step that was not done yet, and carries the time of that."""


def new_step() -> None:
    """The first new step, of whoever goes on."""
    raise Killed(time.perf_counter())


async def new_step_async() -> None:
    """The same, to be awaited."""
    new_step()


async def _work_async(number: int) -> str:
    return work(number)


@agent
def one_turn(task: Task) -> None:
    """Many steps and no turns: all of it is replayed."""
    for number in range(LENGTH):
        task.step(work, number)
    task.step(new_step)


@agent
async def one_turn_async(task: AsyncTask) -> None:
    """The same on an event loop."""
    for number in range(LENGTH):
        await task.step(_work_async, number)
    await task.step(new_step_async)


@agent(loop=True, max_turns=LENGTH)
def many_turns(task: Task) -> None:
    """Many turns of a step: only the present one is replayed."""
    task.step(work, task.turn)
    if task.turn == LENGTH:
        task.step(new_step)


def rows(bench: Bench) -> list[Row]:
    """The least time in a warm process, of a file the system has in its cache."""
    say("resume")
    steps = f"{LENGTH:,} steps of one turn"
    return [
        *_measured(bench.place, one_turn, f"{steps}, def", 250),
        *_measured(bench.place, one_turn_async, f"{steps}, async def", 250),
        *_measured(bench.place, many_turns, f"a loop at turn {LENGTH:,}", 20),
    ]


def _measured(place: Path, one: Agent, name: str, most_ms: float) -> list[Row]:
    say(one.name)
    path = place / f"{one.name}.db"
    _until_killed(path, one)
    copies = count()

    def fresh() -> Path:
        copy = place / f"{one.name}-{next(copies)}.db"
        shutil.copy(path, copy)
        return copy

    found = in_turns(ROUNDS, load=lambda: _loaded(fresh()), whole=lambda: _until_killed(fresh(), one))
    load, whole = min(found["load"]) * 1e3, min(found["whole"]) * 1e3
    after = whole - load
    return [
        Row(name=f"resume {name}: open and load", measured=load, unit="ms"),
        Row(
            name=f"resume {name}: then, to its first new step",
            measured=after,
            unit="ms",
            compare=load,
            beside="load",
            goal=at_most(most_ms, "ms"),
        ),
    ]


def _loaded(path: Path) -> float:
    began = time.perf_counter()
    app = holdfast.open(path, durability="process")
    app.logs.load(ID)
    seconds = time.perf_counter() - began
    app.close()
    return seconds


def _until_killed(path: Path, one: Agent) -> float:
    """Open a file and run its task; how long until a step was entered that was not done before."""
    began = time.perf_counter()
    with holdfast.open(path, durability="process") as app:
        try:
            app.run(one, id=ID)
        except Killed as killed:
            return killed.args[0] - began
    raise AssertionError(f"{one.name!r} ended")

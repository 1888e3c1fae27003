"""What a step costs: on SQLite beside one bare commit, two hundred tasks at once, and without any disk at all.

The agents time themselves and return the seconds, so neither their start nor their end is counted.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import holdfast
from benchmarks.table import Goal, Row, at_least, at_most
from benchmarks.workload import BareAppends, say, text
from holdfast import App, AsyncTask, Task, agent
from holdfast.engine.agent import Agent

RESULT_BYTES = 200
BLOCK = 25
BEHIND = 400
ROUNDS = 60
TASKS = 200
EACH = 20
GATHERINGS = 5
MEMORY_BLOCKS = 15
MEMORY_BLOCK = 200
IDLE = 200_000

_RESULTS = [text(RESULT_BYTES - 2, seed) for seed in range(100)]
_ids = count(1)


def work(number: int) -> str:
    """What every step does: next to nothing. The quotes make the result RESULT_BYTES of JSON."""
    return _RESULTS[number % 100]


async def awork(number: int) -> str:
    """The same, to be awaited."""
    return _RESULTS[number % 100]


@agent
def every_step(task: Task, steps: int) -> float:
    """Each result is durable before its step returns."""
    began = time.perf_counter()
    for number in range(steps):
        task.step(work, number)
    return time.perf_counter() - began


@agent(checkpoint="before_effects")
def before_effects(task: Task, steps: int) -> float:
    """Results become durable in the background; all of them are when the time is taken."""
    began = time.perf_counter()
    for number in range(steps):
        task.step(work, number)
    task.checkpoint("all durable")
    return time.perf_counter() - began


@agent
async def every_step_async(task: AsyncTask, steps: int) -> float:
    """Each result is durable before its step returns, on an event loop."""
    began = time.perf_counter()
    for number in range(steps):
        await task.step(awork, number)
    return time.perf_counter() - began


@agent
def blocks(task: Task, steps: int) -> list[tuple[float, float]]:
    """Seconds by the clock, and of the processor, for each of several blocks of steps."""
    found: list[tuple[float, float]] = []
    for _ in range(MEMORY_BLOCKS):
        began, burnt = time.perf_counter(), time.process_time()
        for number in range(steps):
            task.step(work, number)
        found.append((time.perf_counter() - began, time.process_time() - burnt))
    return found


@agent
async def blocks_async(task: AsyncTask, steps: int) -> list[tuple[float, float]]:
    """The same on an event loop."""
    found: list[tuple[float, float]] = []
    for _ in range(MEMORY_BLOCKS):
        began, burnt = time.perf_counter(), time.process_time()
        for number in range(steps):
            await task.step(awork, number)
        found.append((time.perf_counter() - began, time.process_time() - burnt))
    return found


def rows(place: Path) -> list[Row]:
    """Steps on SQLite, durability full: one after the other, and two hundred tasks at once."""
    say("steps")
    with holdfast.open(place / "ours.db", durability="full") as app:
        raw = BareAppends(place / "raw.db", "full")
        found = in_turns(
            ROUNDS,
            raw=lambda: raw.seconds(BLOCK) / BLOCK,
            lone=lambda: seconds_of(app, every_step, BLOCK),
            behind=lambda: seconds_of(app, before_effects, BEHIND),
            loop=lambda: seconds_of(app, every_step_async, BLOCK),
        )
        many = in_turns(
            GATHERINGS,
            raw=lambda: min(raw.seconds(BLOCK) / BLOCK for _ in range(12)),
            ours=lambda: gathered(app) / (TASKS * EACH),
        )
        raw.close()
    return [
        *_pair("step in a def agent, full", found["lone"], found["raw"], at_most(1.5)),
        *_pair("step in an async agent, full", found["loop"], found["raw"]),
        *_rates("steps before_effects, full", found["behind"], found["raw"], at_least(3)),
        *_rates(f"{TASKS} async tasks of {EACH} steps at once, full", many["ours"], many["raw"]),
    ]


def overhead(place: Path) -> list[Row]:
    """The engine alone, on the store in memory; and an empty loop, which tells how fast Python is here and now."""
    say("overhead")
    idle: list[float] = []
    found: dict[str, list[tuple[float, float]]] = {"def": [], "async def": []}
    with holdfast.open("memory:") as app:
        for _ in range(6):
            for kind, one in (("def", blocks), ("async def", blocks_async)):
                idle.append(_idle_loop())
                gc.collect()
                found[kind] += app.run(one, {"steps": MEMORY_BLOCK}, id=f"task-{next(_ids)}").result
    return [
        _overhead("def", found["def"], 40),
        _overhead("async def", found["async def"], 80),
        Row(
            name="one pass of an empty loop, best and median: how fast Python is now",
            measured=min(idle) * 1e9,
            unit="ns",
            compare=statistics.median(idle) * 1e9,
            beside="median",
        ),
    ]


def in_turns(rounds: int, **subjects: Callable[[], float]) -> dict[str, list[float]]:
    """All that each subject gave, the first round left out. They take turns, so a busy moment meets all of them."""
    found: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds + 1):
        for name, measure in subjects.items():
            gc.collect()
            found[name].append(measure())
    say(".")
    return {name: values[1:] for name, values in found.items()}


def seconds_of(app: App, one: Agent, steps: int) -> float:
    """What a step of an agent takes, as the agent itself saw it."""
    done = app.run(one, {"steps": steps}, id=f"task-{next(_ids)}")
    assert done.status == "completed", done.failure
    return done.result / steps


def gathered(app: App, tasks: int = TASKS, each: int = EACH) -> float:
    """How long so many tasks take, all at once on one event loop, from their start to their end."""

    async def together() -> float:
        began = time.perf_counter()
        runs = (app.arun(every_step_async, {"steps": each}, id=f"task-{next(_ids)}") for _ in range(tasks))
        done = await asyncio.gather(*runs)
        seconds = time.perf_counter() - began
        assert all(one.status == "completed" for one in done)
        return seconds

    return asyncio.run(together())


def _pair(name: str, ours: list[float], raw: list[float], goal: Goal | None = None) -> Iterator[Row]:
    """The least and the median; the goal is for the least, as a busy machine has no say in that."""
    for which, chosen in (("best", min), ("median", statistics.median)):
        measured, compare = chosen(ours) * 1e6, chosen(raw) * 1e6
        aim = goal if which == "best" else None
        yield Row(name=f"{name}, {which}", measured=measured, unit="µs", compare=compare, goal=aim)


def _rates(name: str, ours: list[float], raw: list[float], goal: Goal | None = None) -> Iterator[Row]:
    """The same as steps a second, beside commits a second."""
    for row in _pair(name, ours, raw, goal):
        assert row.compare is not None
        rate, commits = 1e6 / row.measured, 1e6 / row.compare
        yield Row(name=row.name, measured=rate, unit="steps/s", compare=commits, goal=row.goal)


def _overhead(kind: str, found: list[tuple[float, float]], most: float) -> Row:
    wall, cpu = (min(times) * 1e6 / MEMORY_BLOCK for times in zip(*found, strict=True))
    return Row(
        name=f"{kind} step on the store in memory, of the processor",
        measured=cpu,
        unit="µs",
        compare=wall,
        beside="by the clock",
        goal=at_most(most, "µs"),
    )


def _idle_loop() -> float:
    began = time.perf_counter()
    for _ in range(IDLE):
        pass
    return (time.perf_counter() - began) / IDLE

"""What a step costs: on SQLite beside one bare commit, two hundred tasks at once, and without any disk at all.

The agents of lone steps take the time themselves, so neither their start nor their end is counted.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import count

import holdfast
from benchmarks import contest
from benchmarks.bench import Bench
from benchmarks.table import Goal, Row, at_least, at_most
from benchmarks.workload import EACH, MOST_ROUNDS, TASKS, Inserts, awork, bare_appends, gathered, in_turns, say, work
from holdfast import App, AsyncTask, Task, agent
from holdfast.engine.definitions.agent import Agent

BLOCK = 10
BEHIND = 400
ROUNDS = min(300, 10 * MOST_ROUNDS)
GATHERINGS = 5
MEMORY_BLOCKS = 75
MEMORY_BLOCK = 40
IDLE = 20_000

_ids = count(1)

Pairs = list[tuple[float, float]]
"""Seconds of a step and of what it is compared with, time after time."""


@agent
def blocks(task: Task, steps: int) -> Pairs:
    """Seconds by the clock, and of the processor, for each of several blocks of steps."""
    found: Pairs = []
    for _ in range(MEMORY_BLOCKS):
        began, burnt = time.perf_counter(), time.process_time()
        for number in range(steps):
            task.step(work, number)
        found.append((time.perf_counter() - began, time.process_time() - burnt))
    return found


@agent
async def blocks_async(task: AsyncTask, steps: int) -> Pairs:
    """The same on an event loop."""
    found: Pairs = []
    for _ in range(MEMORY_BLOCKS):
        began, burnt = time.perf_counter(), time.process_time()
        for number in range(steps):
            await task.step(awork, number)
        found.append((time.perf_counter() - began, time.process_time() - burnt))
    return found


def rows(bench: Bench) -> list[Row]:
    """Steps on SQLite, durability full: one after the other, and two hundred tasks at once; then beside peers."""
    say("steps")
    with (
        bench.peers("langgraph", "dbos", "dbos_wal", at=bench.folder) as peers,
        holdfast.open(bench.place / "ours.db", durability="full") as app,
    ):
        raw = bare_appends(bench.place / "raw.db", "full")
        found = [
            *lone_rows(app, raw, "full", at_most(1.5), at_least(3)),
            *contest.sequential(app, raw, peers, {"langgraph": at_least(3), "dbos": at_least(8)}),
            *contest.concurrent(app, peers, {"langgraph": at_least(20)}),
        ]
        raw.close()
    return found


def lone_rows(app: App, raw: Inserts, where: str, lone: Goal, behind: Goal | None = None) -> Iterator[Row]:
    """Ours beside what nothing durable can beat: one bare commit a step."""
    steps, looped, behinds = (_alternating(app, one) for one in alternating(raw))
    many = in_turns(
        GATHERINGS,
        raw=lambda: min(raw.seconds(BLOCK) / BLOCK for _ in range(20)),
        ours=lambda: gathered(app) / (TASKS * EACH),
    )
    yield from _pair(f"step in a def agent, {where}", *steps, lone)
    yield from _pair(f"step in an async agent, {where}", *looped)
    yield from _rates(f"steps before_effects, {where}", *behinds, behind)
    yield from _rates(f"{TASKS} async tasks of {EACH} steps at once, {where}", many["ours"], many["raw"])


def alternating(raw: Inserts) -> Iterator[Agent]:
    """Agents that take turns with bare inserts, a few steps at a time, and give the seconds of each."""

    def bare() -> float:
        return raw.seconds(BLOCK) / BLOCK

    @agent
    def lone(task: Task) -> Pairs:
        return [(_timed(lambda: _steps(task, BLOCK), BLOCK), bare()) for _ in range(ROUNDS)]

    @agent
    async def on_a_loop(task: AsyncTask) -> Pairs:
        found: Pairs = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            for number in range(BLOCK):
                await task.step(awork, number)
            found.append(((time.perf_counter() - began) / BLOCK, bare()))
        return found

    @agent(checkpoint="before_effects")
    def behind(task: Task) -> Pairs:
        def until_durable() -> None:
            _steps(task, BEHIND)
            task.checkpoint("all durable")

        return [(_timed(until_durable, BEHIND), bare()) for _ in range(ROUNDS // 5)]

    yield from (lone, on_a_loop, behind)


def overhead(bench: Bench) -> list[Row]:
    """The engine alone, on the store in memory; and an empty loop, which tells how fast Python is here and now."""
    say("overhead")
    idle: list[float] = []
    found: dict[str, Pairs] = {"def": [], "async def": []}
    with holdfast.open("memory:") as app:
        for _ in range(6):
            for kind, one in (("def", blocks), ("async def", blocks_async)):
                idle += [_idle_loop() for _ in range(20)]
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


def _steps(task: Task, number: int) -> None:
    for one in range(number):
        task.step(work, one)


def _timed(action: Callable[[], object], times: int) -> float:
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) / times


def _alternating(app: App, one: Agent) -> tuple[list[float], list[float]]:
    """What an agent measured: its own steps and the bare inserts between them, without the first of each."""
    done = app.run(one, id=f"task-{next(_ids)}")
    assert done.status == "completed", done.failure
    say(".")
    ours, raw = zip(*done.result[1:], strict=True)
    return list(ours), list(raw)


def _pair(name: str, ours: list[float], raw: list[float], goal: Goal | None = None) -> Iterator[Row]:
    """The least of each, and the median of each."""
    for which, chosen in (("best", min), ("median", statistics.median)):
        measured, compare = chosen(ours) * 1e6, chosen(raw) * 1e6
        yield Row(name=f"{name}, {which}", measured=measured, unit="µs", compare=compare, goal=goal)


def _rates(name: str, ours: list[float], raw: list[float], goal: Goal | None = None) -> Iterator[Row]:
    """The same as steps a second, beside commits a second."""
    for row in _pair(name, ours, raw, goal):
        assert row.compare is not None
        rate, commits = 1e6 / row.measured, 1e6 / row.compare
        yield Row(name=row.name, measured=rate, unit="steps/s", compare=commits, goal=row.goal)


def _overhead(kind: str, found: Pairs, most: float) -> Row:
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

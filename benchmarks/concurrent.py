"""Two hundred appenders at once, each with its own task, beside bare inserts that commit one by one.

And the processor time of one event of theirs, and of one step of two hundred async tasks.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import holdfast
from benchmarks.bench import Bench
from benchmarks.table import Row, at_least, at_most
from benchmarks.workload import bare, bare_appends, best, new_task, say, step
from holdfast import AsyncTask, Task, agent
from holdfast.core import codec
from holdfast.core.codec import Group
from holdfast.core.events import Event
from holdfast.engine.app import App
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.loop_commits import LoopCommits
from holdfast.store.sqlite.queries import INSERT_EVENT

APPENDERS = 200
EACH = 20
ROUNDS = 12
RAW = 100

Work = list[tuple[Log, list[Event]]]


def rows(bench: Bench) -> list[Row]:
    """Events a second, in full mode."""
    say("concurrent")
    with holdfast.open(bench.place / "ours.db", durability="full") as app:
        logs = [new_task(app, f"task-{number}") for number in range(APPENDERS)]
        raw = bare_appends(bench.place / "raw.db", "full")
        found = best(
            ROUNDS,
            raw=lambda: min(raw.seconds(RAW) for _ in range(3)),
            loop=lambda: asyncio.run(loop_seconds(app, work_of(logs))),
            threads=lambda: thread_seconds(logs),
        )
        raw.close()
    written, bare = APPENDERS * EACH, RAW / found["raw"]
    return [
        *_times(bench),
        Row(
            name=f"{APPENDERS} appenders under asyncio, full",
            measured=written / found["loop"],
            unit="events/s",
            compare=bare,
            goal=at_least(10),
        ),
        Row(
            name=f"{APPENDERS} appenders in threads, full",
            measured=written / found["threads"],
            unit="events/s",
            compare=bare,
            goal=at_least(3),
        ),
    ]


def _times(bench: Bench) -> list[Row]:
    """The processor time of an event and of a step, in microseconds."""
    say("processor time")
    with (
        holdfast.open(bench.place / "times.db", durability="process") as app,
        holdfast.open("memory:") as memory,
    ):
        logs = [new_task(app, f"task-{number}") for number in range(APPENDERS)]
        events = [step(seq) for seq in range(1, EACH + 1)]
        runs = iter(range(1_000))
        found = best(
            ROUNDS,
            loop=lambda: _appending(app, work_of(logs)),
            bare=lambda: _bare(bench.place / f"bare-{next(runs)}.db", events),
            many=lambda: _used(lambda: asyncio.run(_many(app, next(runs)))),
            plain=lambda: _used(lambda: _plain(memory, next(runs))),
            lone=lambda: _used(lambda: asyncio.run(app.arun(_lone, id=f"lone-{next(runs)}"))),
            alone=lambda: _used(lambda: _plain(app, next(runs))),
        )
    per = {name: seconds * 1e6 / (APPENDERS * EACH) for name, seconds in found.items()}
    return [
        Row(
            name=f"an event of {APPENDERS} appenders under asyncio, processor time",
            measured=per["loop"],
            unit="µs",
            compare=per["bare"],
            beside="encoded, hashed twice and bound",
            goal=at_most(3),
        ),
        Row(
            name=f"a step of {APPENDERS} async tasks of {EACH}, processor time",
            measured=per["many"],
            unit="µs",
            compare=per["plain"],
            beside="a def step in memory",
            goal=at_most(2),
        ),
        Row(
            name="a lone async step, process, processor time",
            measured=per["lone"],
            unit="µs",
            compare=per["alone"],
            beside="a def step",
            goal=at_most(2),
        ),
    ]


def _used(work: Callable[[], object]) -> float:
    """The processor time of all threads."""
    began = time.process_time()
    work()
    return time.process_time() - began


def _appending(app: App, work: Work) -> float:
    """The processor time of all appenders on one event loop."""
    return _used(lambda: asyncio.run(loop_seconds(app, work)))


def _bare(path: Path, events: list[Event]) -> float:
    """The processor time of as many events, encoded and hashed, in one transaction."""
    connection = bare(path, "process")

    def write() -> None:
        at_us = time.time_ns() // 1000
        connection.execute("begin")
        for log in range(1, APPENDERS + 1):
            digest = bytes(32)
            for seq, event in enumerate(events, start=1):
                draft, _ = codec.draft(event, at_us)
                digest = codec.chain(digest, seq, draft.kind, at_us, draft.body_hash)
                row = (log, seq, draft.kind, at_us, draft.body, draft.body_hash, digest)
                connection.execute(INSERT_EVENT, row)
        connection.execute("commit")

    seconds = _used(write)
    connection.close()
    path.unlink()
    return seconds


@agent(name="many")
async def _steps(task: AsyncTask) -> int:
    return sum([await task.step(_answer) for _ in range(EACH)])


@agent(name="lone")
async def _lone(task: AsyncTask) -> int:
    return sum([await task.step(_answer) for _ in range(APPENDERS * EACH)])


@agent(name="plain")
def _plain_steps(task: Task) -> int:
    return sum(task.step(_plain_answer) for _ in range(APPENDERS * EACH))


async def _answer() -> int:
    return 42


def _plain_answer() -> int:
    return 42


async def _many(app: App, run: int) -> None:
    await asyncio.gather(*(app.arun(_steps, id=f"many-{run}-{number}") for number in range(APPENDERS)))


def _plain(app: App, run: int) -> None:
    app.run(_plain_steps, id=f"plain-{run}")


def work_of(logs: list[Log]) -> Work:
    return [(log, [step(log.head.seq + number) for number in range(1, EACH + 1)]) for log in logs]


async def loop_seconds(app: App, work: Work) -> float:
    """How long all appenders take on one event loop."""
    commits = LoopCommits(app.logs.committer)

    async def appender(log: Log, events: list[Event]) -> None:
        for event in events:
            write = log.draft((event,))
            placed = await commits.commit(Group((write,)))
            log.accept(write, placed[0])

    began = time.perf_counter()
    await asyncio.gather(*(appender(log, events) for log, events in work))
    return time.perf_counter() - began


def thread_seconds(logs: list[Log]) -> float:
    """How long all appenders take, each in a thread."""
    work = work_of(logs)
    ready = threading.Barrier(APPENDERS + 1)

    def appender(log: Log, events: list[Event]) -> None:
        ready.wait()
        for event in events:
            log.append((event,))

    threads = [threading.Thread(target=appender, args=one) for one in work]
    for thread in threads:
        thread.start()
    began = time.perf_counter()
    ready.wait()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began

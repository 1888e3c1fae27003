"""Two hundred appenders at once, each with its own task, beside bare inserts that commit one by one."""

from __future__ import annotations

import asyncio
import threading
import time

import holdfast
from benchmarks.bench import Bench
from benchmarks.table import Row, at_least
from benchmarks.workload import bare_appends, best, new_task, say, step
from holdfast.core.codec import Group
from holdfast.core.events import Event
from holdfast.engine.app import App
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.loop_commits import LoopCommits

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
            loop=lambda: asyncio.run(loop_seconds(app, logs)),
            threads=lambda: thread_seconds(logs),
        )
        raw.close()
    written, bare = APPENDERS * EACH, RAW / found["raw"]
    return [
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


def _work(logs: list[Log]) -> Work:
    return [(log, [step(log.head.seq + number) for number in range(1, EACH + 1)]) for log in logs]


async def loop_seconds(app: App, logs: list[Log]) -> float:
    """How long all appenders take on one event loop."""
    commits = LoopCommits(app.logs.committer)
    work = _work(logs)

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
    work = _work(logs)
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

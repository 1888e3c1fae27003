"""Loading a task from memory, from Redis, from a snapshot, from its events; a signal; a new task in a thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import holdfast
from benchmarks.bench import Bench
from benchmarks.table import Row, at_most
from benchmarks.workload import best, new_task, say, step
from holdfast import agent
from holdfast.core import codec, events as ev, limits
from holdfast.engine.app import App

ROUNDS = 15
TASKS = {"short": "a task of 10 events", "long": "one turn of 10,000 events", "large": "1 MB of state"}
MESSAGES = 1_000


def rows(bench: Bench) -> list[Row]:
    """On SQLite, and on PostgreSQL over TCP on this machine; Redis too if it can be had."""
    with _redis() as redis:
        found = _measured("sqlite", str(bench.place / "tiers.db"), redis)
        return found + _measured("postgres", bench.database("tiers"), redis)


def _measured(store: str, url: str, redis: str | None) -> list[Row]:
    say(f"tiers on {store}")
    with ExitStack() as stack:
        plain = stack.enter_context(holdfast.open(url, cache_bytes=0))
        warm = stack.enter_context(holdfast.open(url))
        shared = stack.enter_context(holdfast.open(url, cache=redis, cache_bytes=0)) if redis else None
        _make(plain)
        found = [row for id in TASKS for row in _loads(store, id, plain, warm, shared)]
        found.append(_signal(store, plain, warm))
        return [*found, _thread(store, plain, warm)]


def _loads(store: str, id: str, plain: App, warm: App, shared: App | None) -> list[Row]:
    """Each beside what the same load costs without a tier: the newest snapshot, if the log has one, and the tail."""
    subjects: dict[str, Callable[[], float]] = {
        "snapshot": lambda: _seconds(lambda: plain.logs.load(id)),
        "memory": lambda: _seconds(lambda: warm.logs.load(id)),
    }
    if shared is not None:
        shared.logs.load(id)
        time.sleep(0.5)  # the state is on its way
        subjects["Redis"] = lambda: _seconds(lambda: shared.logs.load(id))
    took = best(ROUNDS, **subjects)
    plain.store.drop_snapshots(log=id)
    took |= best(3, events=lambda: _seconds(lambda: plain.logs.load(id)))
    goal = {"memory": at_most(1.0)}
    return [
        Row(
            name=f"{store}: load {TASKS[id]}, from {tier}",
            measured=took[tier] * 1e3,
            unit="ms",
            compare=took["snapshot"] * 1e3,
            beside="without",
            goal=goal.get(tier),
        )
        for tier in ("memory", "Redis", "events")
        if tier in took
    ]


def _signal(store: str, plain: App, warm: App) -> Row:
    took = best(
        ROUNDS,
        plain=lambda: _seconds(lambda: plain.signal("waits", "more")),
        warm=lambda: _seconds(lambda: warm.signal("waits", "more")),
    )
    return Row(
        name=f"{store}: signal a task of 10,000 events that waits, from memory",
        measured=took["warm"] * 1e3,
        unit="ms",
        compare=took["plain"] * 1e3,
        beside="without",
        goal=at_most(1.0),
    )


@agent
def answers(task: Any) -> int:
    """Look at a window of the thread, and say something."""
    fits = task.messages.window(max_tokens=4_000)
    task.message({"role": "assistant", "content": "yes"})
    return len(fits)


def _thread(store: str, plain: App, warm: App) -> Row:
    for number in range(MESSAGES):
        role = "user" if number % 2 == 0 else "assistant"
        plain.thread("talk").message({"role": role, "content": f"message {number}: " + "some words " * 20})
    took = best(
        5,
        plain=lambda: _seconds(lambda: plain.run(answers, thread="talk")),
        warm=lambda: _seconds(lambda: warm.run(answers, thread="talk")),
    )
    return Row(
        name=f"{store}: a new task in a thread of {MESSAGES:,} messages, from memory",
        measured=took["warm"] * 1e3,
        unit="ms",
        compare=took["plain"] * 1e3,
        beside="without",
        goal=at_most(1.0),
    )


def _make(app: App) -> None:
    app.start("agent", id="short")
    app.append("short", *(ev.StateSet(name=f"k{number}", value=codec.pack(number)) for number in range(9)))
    for id, wait in (("long", False), ("waits", True)):
        log = new_task(app, id)
        for first in range(2, 10_000, 100):
            log.append([step(number) for number in range(first, first + 100)])
        if wait:
            asked = ev.WaitStarted(key="go#1", wait="signal", name="go", prompt=codec.JSON_NULL)
            log.append([asked, ev.TaskSuspended(why="signal")])
    app.start("agent", id="large")
    for first in range(0, 1_000, 50):
        events = [ev.StateSet(name=f"k{first + n}", value=codec.pack(os.urandom(512).hex())) for n in range(50)]
        app.append("large", *events)
    app.append("large", *(ev.LogWritten(text="so that it is worth sharing") for _ in range(limits.CACHE_SHARE_EVENTS)))


def _seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


@contextmanager
def _redis() -> Iterator[str | None]:
    try:
        import redis  # noqa: F401
        from tests.redis_server import RedisServer, binary
    except ImportError:
        yield None
        return
    server = RedisServer() if binary() else None
    try:
        yield server.url() if server else None
    finally:
        if server:
            server.stop()

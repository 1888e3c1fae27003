"""What the subjects share: a place for files, events to write, a bare connection, and fair timing."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import string
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import apsw

import holdfast
from holdfast import AsyncTask, agent
from holdfast.core import codec
from holdfast.core.events import StepCompleted
from holdfast.engine.app import App
from holdfast.engine.logs.log import Log
from holdfast.store.sqlite import file, queries as q
from holdfast.store.sqlite.file import Durability
from holdfast.store.sqlite.store import SqliteStore

ALL_ROUNDS = 1_000  # more than anything takes
MOST_ROUNDS = int(os.environ.get("HOLDFAST_BENCH_ROUNDS", ALL_ROUNDS))  # few, to see whether all of it works
EVENT_BYTES = 200
RESULT_BYTES = 200
TASKS = 200
EACH = 20
_LETTERS = string.ascii_letters + string.digits + "  "


@contextmanager
def workplace() -> Iterator[Path]:
    """A directory for one subject, under $TMPDIR or here, gone afterwards."""
    parent = os.environ.get("TMPDIR") or Path.cwd()
    with tempfile.TemporaryDirectory(prefix=".benchmarks-", dir=parent) as place:
        yield Path(place)


def say(text: str) -> None:
    """Tell whoever waits how far it is."""
    print(text, end=" ", file=sys.stderr, flush=True)


def best(rounds: int, /, **subjects: Callable[[], float]) -> dict[str, float]:
    """The least that each subject gave. They take turns, so that a busy moment of the machine meets all of them.

    The first round warms up and does not count.
    """
    return {name: min(values) for name, values in in_turns(rounds, **subjects).items()}


def in_turns(rounds: int, warm: int = 1, /, **subjects: Callable[[], float]) -> dict[str, list[float]]:
    """All that each subject gave, without the rounds that warm up. They take turns: a busy moment meets all of them."""
    found: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(warm + min(rounds, MOST_ROUNDS)):
        for name, measure in subjects.items():
            gc.collect()
            found[name].append(measure())
    say(".")
    return {name: values[warm:] for name, values in found.items()}


def timed(action: Callable[[], object]) -> float:
    """How many seconds it takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def text(length: int, seed: int) -> str:
    """Letters that hardly compress, the same ones for the same seed."""
    return "".join(random.Random(seed).choices(_LETTERS, k=length))


_RESULTS = [text(RESULT_BYTES - 2, seed) for seed in range(100)]
_ids = count(1)


def step(number: int) -> StepCompleted:
    """A completed step whose body has about EVENT_BYTES."""
    empty = StepCompleted(key=f"work#{number}", name="work", result=codec.pack(""))
    room = EVENT_BYTES - len(codec.draft(empty, 0)[0].body or b"")
    return StepCompleted(key=empty.key, name=empty.name, result=codec.pack(text(room, number)))


def work(number: int) -> str:
    """What every step does: next to nothing. The quotes make the result RESULT_BYTES of JSON."""
    return _RESULTS[number % 100]


async def awork(number: int) -> str:
    """The same, to be awaited."""
    return _RESULTS[number % 100]


@agent
async def at_once(task: AsyncTask, steps: int) -> None:
    """One of many."""
    for number in range(steps):
        await task.step(awork, number)


def gathered(app: App, tasks: int = TASKS, each: int = EACH) -> float:
    """How long so many tasks take, all at once on one event loop, from their start to their end."""

    async def together() -> float:
        began = time.perf_counter()
        runs = (app.arun(at_once, {"steps": each}, id=f"one-of-many-{next(_ids)}") for _ in range(tasks))
        done = await asyncio.gather(*runs)
        seconds = time.perf_counter() - began
        assert all(one.status == "completed" for one in done)
        return seconds

    return asyncio.run(together())


def new_task(app: App, id: str) -> Log:
    """A task that was just started, ready to be appended to."""
    app.start("benchmark", id=id)
    return app.logs.load(id)


def bare(path: Path, durability: Durability) -> apsw.Connection:
    """A bare connection to a new file with our schema and our pragmas."""
    holdfast.open(path, durability=durability).close()
    return reopened(path, durability)


def reopened(path: Path, durability: Durability) -> apsw.Connection:
    """A bare connection to a file that is there, with our pragmas."""
    return file.connect(str(path), durability, vfs=None, exclusive=False)


class Inserts:
    """One autocommit insert an event, with nothing around it: nothing that is durable by the event can be faster."""

    def __init__(self, execute: Callable[[tuple[object, ...]], object], close: Callable[[], None], log: int) -> None:
        self.close = close
        self._log = log
        self._execute = execute
        self._seq = 0

    def seconds(self, count: int) -> float:
        """How long so many inserts take; what they insert is ready beforehand."""
        log, at = self._log, time.time_ns() // 1000
        drafts = [codec.draft(step(self._seq + number), 0)[0] for number in range(1, count + 1)]
        rows = [
            (log, self._seq + number, draft.kind, at, draft.body, draft.body_hash, draft.body_hash)
            for number, draft in enumerate(drafts, start=1)
        ]
        self._seq += count
        execute = self._execute
        began = time.perf_counter()
        for row in rows:
            execute(row)
        return time.perf_counter() - began


def bare_appends(path: Path, durability: Durability) -> Inserts:
    """Inserts into a file with our schema and our pragmas."""
    connection = bare(path, durability)
    return Inserts(partial(connection.execute, _SQLITE), connection.close, log=1)


def guarded_appends(app: App, log: Log) -> Callable[[int], float]:
    """Inserts of rows that are ready, under the guard of the file and by the statement that asks for the head.

    Gives how long so many take. Nothing that keeps what a store promises can be faster.
    """
    store = app.logs.store
    assert isinstance(store, SqliteStore)
    writer, guard = store._writer, store._guard
    assert writer is not None
    (number,) = next(writer.execute(q.LOG_NUMBER, (log.name,)))
    execute, head = writer.cursor().execute, log.head

    def seconds(count: int) -> float:
        nonlocal head
        rows, at_us = list[tuple[object, ...]](), time.time_ns() // 1000
        for event in [step(head.seq + number) for number in range(1, count + 1)]:
            draft, seq, before = codec.draft(event, at_us)[0], head.seq + 1, head.digest
            digest = codec.chain(before, seq, draft.kind, at_us, draft.body_hash)
            rows.append((number, seq, draft.kind, at_us, draft.body, draft.body_hash, digest, before))
            head = codec.Head(seq, digest)
        began = time.perf_counter()
        for row in rows:
            guard.begin()
            execute(q.INSERT_EVENT_AFTER, row)
            guard.check()
            guard.end(writer)
        return time.perf_counter() - began

    return seconds


def bare_appends_at(url: str) -> Inserts:
    """Prepared inserts by psycopg into a database that has our schema, for a log that no task has."""
    import psycopg

    connection = psycopg.connect(url, autocommit=True)
    return Inserts(partial(connection.execute, _POSTGRES, prepare=True), connection.close, log=0)


_SQLITE = "insert into events (log, seq, kind, at, body, body_hash, digest) values (?, ?, ?, ?, ?, ?, ?)"
_POSTGRES = """
insert into holdfast.events (log, seq, kind, at, body, body_hash, digest)
values (%s, %s, %s, %s, %b, %b, %b)
"""

"""What the subjects share: a place for files, events to write, a bare connection, and fair timing."""

from __future__ import annotations

import gc
import os
import random
import string
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

import holdfast
from holdfast.core import codec
from holdfast.core.events import StepCompleted
from holdfast.engine.app import App
from holdfast.engine.log import Log
from holdfast.store import sqlite_file
from holdfast.store.sqlite_file import Durability

EVENT_BYTES = 200
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


def best(rounds: int, **subjects: Callable[[], float]) -> dict[str, float]:
    """The least that each subject gave. They take turns, so that a busy moment of the machine meets all of them.

    The first round warms up and does not count.
    """
    found: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds + 1):
        for name, measure in subjects.items():
            gc.collect()
            found[name].append(measure())
    say(".")
    return {name: min(values[1:]) for name, values in found.items()}


def timed(action: Callable[[], object]) -> float:
    """How many seconds it takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def text(length: int, seed: int) -> str:
    """Letters that hardly compress, the same ones for the same seed."""
    return "".join(random.Random(seed).choices(_LETTERS, k=length))


def step(number: int) -> StepCompleted:
    """A completed step whose body has about EVENT_BYTES."""
    empty = StepCompleted(key=f"work#{number}", name="work", result=codec.pack(""))
    room = EVENT_BYTES - len(codec.draft(empty, 0)[0].body or b"")
    return StepCompleted(key=empty.key, name=empty.name, result=codec.pack(text(room, number)))


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
    return sqlite_file.connect(str(path), durability, vfs=None, exclusive=False)


class BareAppends:
    """One autocommit insert an event, with nothing around it."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self._connection = bare(path, durability)
        self._seq = 0

    def seconds(self, count: int) -> float:
        """How long so many inserts take; what they insert is ready beforehand."""
        drafts = [codec.draft(step(self._seq + number), 0)[0] for number in range(1, count + 1)]
        rows = [
            (1, self._seq + number, draft.kind, time.time_ns() // 1000, draft.body, draft.body_hash, draft.body_hash)
            for number, draft in enumerate(drafts, start=1)
        ]
        self._seq += count
        execute = self._connection.execute
        began = time.perf_counter()
        for row in rows:
            execute(_INSERT, row)
        return time.perf_counter() - began

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


_INSERT = "insert into events (log, seq, kind, at, body, body_hash, digest) values (?, ?, ?, ?, ?, ?, ?)"

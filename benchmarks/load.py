"""Open a store, load a task and fold it, beside reading the same rows with a bare connection."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import holdfast
from benchmarks.bench import Bench
from benchmarks.table import Goal, Row, at_most
from benchmarks.workload import best, new_task, reopened, say, step, timed
from holdfast.core.events import Event, MessageAdded, TurnStarted
from holdfast.engine.logs.log import Log

FLAT = 10_000
TAIL = 100
STEPS_A_TURN = 3
ROUNDS = 15
ID = "loaded"

_LOG = "select log from logs where name = ?"
_SNAPSHOT = "select seq, digest, version, at, body from snapshots where log = ? order by seq desc limit 1"
_EVENTS = "select seq, kind, at, body, body_hash, digest from events where log = ? and seq > ? order by seq"


def rows(bench: Bench) -> list[Row]:
    """The least time of a warm process, with holdfast.open in it."""
    plain, ruled, near = (bench.place / f"flat-{name}.db" for name in ("plain", "ruled", "near"))
    say("load: one turn")
    _make_flat(plain, ruled, near)
    found = [
        _measured(f"load {FLAT:,} events of one turn, no snapshot", plain, at_most(60, "ms")),
        _measured(f"load {FLAT:,} of one turn, snapshot {TAIL} before the head", near, at_most(40, "ms")),
        _measured(f"load {FLAT:,} of one turn, snapshot where the weight rule put it", ruled, None),
    ]
    for events in (1_000, 100_000):
        say(f"loop of {events:,}")
        path = bench.place / f"loop-{events}.db"
        _make_loop(path, events)
        found.append(_measured(f"load a loop of {events:,} events, snapshot", path, at_most(10, "ms")))
    return found


def _measured(name: str, path: Path, goal: Goal | None) -> Row:
    found = best(ROUNDS, ours=lambda: _ours(path), raw=lambda: timed(lambda: _raw(path)))
    return Row(name=name, measured=found["ours"] * 1e3, unit="ms", compare=found["raw"] * 1e3, goal=goal)


def _ours(path: Path) -> float:
    began = time.perf_counter()
    app = holdfast.open(path)
    log = app.logs.load(ID)
    seconds = time.perf_counter() - began
    assert log.state.seq == log.head.seq > 0
    app.close()
    return seconds


def _raw(path: Path) -> list[tuple[object, ...]]:
    """What a load must read: the newest snapshot, if there is one, and the events after it."""
    connection = reopened(path, "full")
    number = connection.execute(_LOG, (ID,)).get
    snapshot = connection.execute(_SNAPSHOT, (number,)).fetchone()
    return connection.execute(_EVENTS, (number, snapshot[0] if snapshot else 0)).fetchall()


def _make_flat(plain: Path, ruled: Path, near: Path) -> None:
    """The same long turn three times: without a snapshot, with one by the rule, and with one near the head."""
    with holdfast.open(ruled, durability="process") as app:
        log = new_task(app, ID)
        _append(log, [step(number) for number in range(2, FLAT - TAIL)])
    shutil.copy(ruled, near)
    with holdfast.open(near, durability="process") as app:
        # A log without a snapshot, and as heavy as this one, takes one with its next event.
        app.store.drop_snapshots()
        log = app.logs.load(ID)
        log.append((step(log.head.seq + 1),))
        assert app.stats().snapshots == 1
    for path in (ruled, near):
        with holdfast.open(path, durability="process") as app:
            log = app.logs.load(ID)
            _append(log, [step(number) for number in range(log.head.seq + 1, FLAT + 1)])
            assert log.head.seq == FLAT
    shutil.copy(ruled, plain)
    with holdfast.open(plain) as app:
        app.store.drop_snapshots()


def _make_loop(path: Path, events: int) -> None:
    """Turns of a few steps and a message; snapshots come by the weight rule."""
    with holdfast.open(path, durability="process") as app:
        log = new_task(app, ID)
        for turn in range(1, events // (STEPS_A_TURN + 2) + 1):
            steps = [step(number) for number in range(1, STEPS_A_TURN + 1)]
            log.append((TurnStarted(turn=turn), *steps, MessageAdded(step=steps[-1].key)))
        assert app.stats().snapshots > 0


def _append(log: Log, events: Sequence[Event]) -> None:
    for event in events:
        log.append((event,))

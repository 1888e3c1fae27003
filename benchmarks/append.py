"""One event by a lone caller, beside one bare autocommit insert into the same table."""

from __future__ import annotations

import time
from pathlib import Path

import holdfast
from benchmarks.bench import Bench
from benchmarks.table import Row, at_most
from benchmarks.workload import bare_appends, best, new_task, say, step
from holdfast.engine.logs.log import Log
from holdfast.store.sqlite.file import Durability

BLOCK = {"full": 25, "process": 100}
ROUNDS = {"full": 100, "process": 80}
LONG = 10_000


def rows(bench: Bench) -> list[Row]:
    """The least mean time of a block of appends, and the mean over a long turn with its snapshots."""
    return [_block(bench.place, "full"), _block(bench.place, "process"), _long_turn(bench.place)]


def _block(place: Path, durability: Durability) -> Row:
    say(f"append {durability}")
    count = BLOCK[durability]
    with holdfast.open(place / f"ours-{durability}.db", durability=durability) as app:
        log = new_task(app, "lone")
        raw = bare_appends(place / f"raw-{durability}.db", durability)
        found = best(
            ROUNDS[durability],
            ours=lambda: append_seconds(log, count),
            raw=lambda: raw.seconds(count),
        )
        raw.close()
    per = 1e6 / count
    name = f"append 200 bytes, {durability}"
    ours, bare = found["ours"] * per, found["raw"] * per
    return Row(name=name, measured=ours, unit="µs", compare=bare, goal=at_most(1.3))


def _long_turn(place: Path) -> Row:
    """All the appends of one long turn, so that the snapshots among them are paid for."""
    say("long turn")
    again = iter(range(100))

    def ours() -> float:
        number = next(again)
        with holdfast.open(place / f"long-{number}.db", durability="process") as app:
            return append_seconds(new_task(app, "long"), LONG)

    def raw() -> float:
        inserts = bare_appends(place / f"long-raw-{next(again)}.db", "process")
        seconds = inserts.seconds(LONG)
        inserts.close()
        return seconds

    found = best(4, ours=ours, raw=raw)
    per = 1e6 / LONG
    name = f"append, mean of {LONG:,} in one turn, process"
    return Row(name=name, measured=found["ours"] * per, unit="µs", compare=found["raw"] * per)


def append_seconds(log: Log, count: int) -> float:
    """How long so many appends take; the events are ready beforehand."""
    events = [step(log.head.seq + number) for number in range(1, count + 1)]
    began = time.perf_counter()
    for event in events:
        log.append((event,))
    return time.perf_counter() - began

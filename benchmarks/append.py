"""One event by a lone caller, beside one insert into the same table that commits by itself.

With `full` that insert is bare. With `process` it is written under the same guard of the file, and after the same look
at the head, as Holdfast writes it: a bare one does not keep what the store promises.
"""

from __future__ import annotations

import time
from pathlib import Path

import holdfast
from benchmarks.bench import Bench
from benchmarks.table import Row, at_most
from benchmarks.workload import bare_appends, best, guarded_appends, new_task, say, step
from holdfast.engine.logs.log import Log

BLOCK = {"full": 25, "process": 100}
ROUNDS = {"full": 100, "process": 80}
LONG = 10_000
SETTLED_SECONDS = 0.3  # until the guard of a file need not look closely


def rows(bench: Bench) -> list[Row]:
    """The least mean time of a block of appends, and the mean over a long turn with its snapshots."""
    return [_full(bench.place), _process(bench.place), _long_turn(bench.place)]


def _full(place: Path) -> Row:
    say("append full")
    with holdfast.open(place / "ours-full.db", durability="full") as app:
        log = new_task(app, "lone")
        raw = bare_appends(place / "raw-full.db", "full")
        found = best(
            ROUNDS["full"],
            ours=lambda: append_seconds(log, BLOCK["full"]),
            raw=lambda: raw.seconds(BLOCK["full"]),
        )
        raw.close()
    per = 1e6 / BLOCK["full"]
    ours, bare = found["ours"] * per, found["raw"] * per
    return Row(name="append 200 bytes, full", measured=ours, unit="µs", compare=bare, goal=at_most(1.3))


def _process(place: Path) -> Row:
    say("append process")
    with (
        holdfast.open(place / "ours-process.db", durability="process") as ours,
        holdfast.open(place / "raw-process.db", durability="process") as other,
    ):
        log, guarded = new_task(ours, "lone"), guarded_appends(other, new_task(other, "lone"))
        time.sleep(SETTLED_SECONDS)
        found = best(
            ROUNDS["process"],
            ours=lambda: append_seconds(log, BLOCK["process"]),
            raw=lambda: guarded(BLOCK["process"]),
        )
    per = 1e6 / BLOCK["process"]
    return Row(
        name="append 200 bytes, process",
        measured=found["ours"] * per,
        unit="µs",
        compare=found["raw"] * per,
        beside="a ready row under the same guard",
        goal=at_most(1.25),
    )


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

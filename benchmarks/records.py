"""Records beside a bare connection: appending one and many, reading the newest and all, listing keys."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import apsw

import holdfast
from benchmarks.bench import Bench
from benchmarks.table import Row
from benchmarks.workload import EVENT_BYTES, bare_appends, best, reopened, say, text, timed
from holdfast import Records
from holdfast.store.sqlite.file import Durability

BLOCK = {"full": 25, "process": 100}
ROUNDS = {"full": 60, "process": 60}
TOGETHER = 100
KEPT = 1_000
FEW_KEYS, MANY_KEYS = 1_000, 100_000
PAGE = 100
READ_ROUNDS = 40

READ = "select seq, at, body from events where log = (select log from logs where name = ?) order by seq"
NEWEST = READ + " desc limit ?"


def rows(bench: Bench) -> list[Row]:
    """Figures to look at: no goal is set for them."""
    data = text(EVENT_BYTES, 7).encode()
    appends = [_append(bench.place, "full", data), _append(bench.place, "process", data)]
    return [*appends, _append_many(bench.place, data), *_reads(bench.place, data), *_keys(bench.place)]


def _append(place: Path, durability: Durability, data: bytes) -> Row:
    say(f"records {durability}")
    count = BLOCK[durability]
    with holdfast.open(place / f"ours-{durability}.db", durability=durability) as app:
        records = app.records("bench")
        raw = bare_appends(place / f"raw-{durability}.db", durability)
        found = best(
            ROUNDS[durability],
            ours=lambda: _append_seconds(records, data, count),
            raw=lambda: raw.seconds(count),
        )
        raw.close()
    per = 1e6 / count
    name = f"append a record of 200 bytes, {durability}"
    return Row(name=name, measured=found["ours"] * per, unit="µs", compare=found["raw"] * per)


def _append_seconds(records: Records, data: bytes, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        records.append("key", data)
    return time.perf_counter() - began


def _append_many(place: Path, data: bytes) -> Row:
    """A list of records, all or nothing, beside as many bare inserts that commit one by one."""
    say("together")
    many = [data] * TOGETHER
    with holdfast.open(place / "together.db") as app:
        records = app.records("bench")
        raw = bare_appends(place / "together-raw.db", "full")
        found = best(20, ours=lambda: timed(lambda: records.append("key", many)), raw=lambda: raw.seconds(TOGETHER))
        raw.close()
    name = f"append {TOGETHER} records at once, full, each"
    per = 1e6 / TOGETHER
    return Row(name=name, measured=found["ours"] * per, unit="µs", compare=found["raw"] * per)


def _reads(place: Path, data: bytes) -> list[Row]:
    say("read")
    path = place / "read.db"
    with holdfast.open(path, durability="process") as app:
        records = app.records("bench")
        records.append("key", [data] * KEPT)
        cursor = records.changes("key").cursor
        bare = reopened(path, "process")
        newest = best(
            READ_ROUNDS,
            ours=lambda: _per(200, lambda: records.read("key", last=1)),
            raw=lambda: _per(200, lambda: _fetched(bare, NEWEST, ("@records/bench/key", 1))),
        )
        everything = best(
            READ_ROUNDS,
            ours=lambda: timed(lambda: records.read("key")),
            raw=lambda: timed(lambda: _fetched(bare, READ, ("@records/bench/key",))),
        )
        changes = best(READ_ROUNDS, ours=lambda: _per(200, lambda: records.changes("key", cursor)))
        bare.close()
    nothing_new = "ask what changed since a cursor, nothing did"
    return [
        Row(name="read the newest record", measured=newest["ours"] * 1e6, unit="µs", compare=newest["raw"] * 1e6),
        Row(
            name=f"read {KEPT:,} records of 200 bytes",
            measured=everything["ours"] * 1e3,
            unit="ms",
            compare=everything["raw"] * 1e3,
        ),
        Row(name=nothing_new, measured=changes["ours"] * 1e6, unit="µs", compare=newest["raw"] * 1e6),
    ]


def _keys(place: Path) -> list[Row]:
    """A page in the middle of many keys, beside one in the middle of few."""
    say("keys")
    found: dict[int, float] = {}
    latest: dict[int, float] = {}
    for count in (FEW_KEYS, MANY_KEYS):
        with holdfast.open(place / f"keys-{count}.db", durability="process") as app:
            records = app.records("bench")
            for first in range(0, count, 1_000):
                keys = (f"thread/{number:06}" for number in range(first, first + 1_000))
                records.write([holdfast.RecordWrite(key=key, data=b"x") for key in keys])
            page: dict[str, Any] = {"after": f"thread/{count // 2:06}", "limit": PAGE}
            found[count] = _best_page(partial(records.keys, "thread/", **page))
            latest[count] = _best_page(partial(records.latest, "thread/", **page))
    return [
        Row(
            name=f"{what} of {MANY_KEYS:,}, beside {FEW_KEYS:,}",
            measured=one[MANY_KEYS],
            unit="µs",
            compare=one[FEW_KEYS],
        )
        for what, one in ((f"a page of {PAGE} keys", found), (f"the newest records of {PAGE} keys", latest))
    ]


def _best_page(page: Callable[[], object]) -> float:
    return best(READ_ROUNDS, ours=lambda: _per(20, page))["ours"] * 1e6


def _per(count: int, action: Callable[[], object]) -> float:
    """How many seconds it takes, of so many times in a row."""
    began = time.perf_counter()
    for _ in range(count):
        action()
    return (time.perf_counter() - began) / count


def _fetched(connection: apsw.Connection, query: str, bindings: tuple[object, ...]) -> int:
    return len(connection.execute(query, bindings).fetchall())

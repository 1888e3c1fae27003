"""What a long past costs: how soon a conversation goes on after a kill, and how many bytes it takes, by its length.

A turn is two messages of a kilobyte. Every contender is killed where it enters the next turn; then another process
opens a copy of the file and goes on, and what counts is the time until it is there again. Nobody's imports are counted.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.bench import Bench, Measure, contender
from benchmarks.table import Row, at_most
from benchmarks.workload import in_turns, say

LENGTHS = (10, 30, 100, 300, 1_000)
WHOLE_STATES = 300  # a store that keeps the whole conversation with every turn has hundreds of megabytes by then
ROUNDS = 4

Talk = Callable[..., float]


def rows(bench: Bench) -> list[Row]:
    """By length: milliseconds and bytes a turn, ours beside each peer's."""
    say("history")
    with (
        contender(sys.executable, "holdfast", bench.place) as ours,
        bench.peers("langgraph", "dbos", at=lambda name: bench.place) as peers,
    ):
        talks = {"Holdfast": _talk(ours), **_peers(peers)}
        found = {length: _measured(bench.place, length, _able(talks, length)) for length in LENGTHS}
    return [*_resumes(found), *_sizes(found)]


def _talk(measure: Measure, **options: object) -> Talk:
    return partial(measure, what="talk", **options)


def _peers(peers: dict[str, Measure]) -> dict[str, Talk]:
    found: dict[str, Talk] = {}
    if "langgraph" in peers:
        found["LangGraph"] = _talk(peers["langgraph"])
        found["LangGraph, deltas (beta)"] = _talk(peers["langgraph"], deltas=True)
    if "dbos" in peers:
        found["DBOS"] = _talk(peers["dbos"])
    return found


def _able(talks: dict[str, Talk], length: int) -> dict[str, Talk]:
    return {who: talk for who, talk in talks.items() if length <= WHOLE_STATES or who != "LangGraph"}


Measured = dict[str, tuple[float, float]]
"""Seconds until it goes on, and bytes of the file, by contender."""


def _measured(place: Path, length: int, talks: dict[str, Talk]) -> Measured:
    """Let each of the conversations grow to that length; measure copies of them."""
    say(f"{length:,} turns")
    sizes: dict[str, int] = {}
    for who, talk in talks.items():
        talk(path=str(_file(place, who)), turns=length)
        sizes[who] = _bytes(_file(place, who))
    found = in_turns(ROUNDS, **{who: partial(_resumed, place, who, talk, length) for who, talk in talks.items()})
    return {who: (min(found[who]), sizes[who]) for who in talks}


def _resumed(place: Path, who: str, talk: Talk, length: int) -> float:
    copy = place / "copy.db"
    for old in place.glob("copy.db*"):
        old.unlink()
    shutil.copy(_file(place, who), copy)
    return talk(path=str(copy), turns=length)


def _file(place: Path, who: str) -> Path:
    return place / f"{who.partition(' ')[0].strip(',')}{len(who)}.db"


def _bytes(path: Path) -> int:
    """The size of a file when all of its write-ahead log is in it."""
    connection = sqlite3.connect(path)
    connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    return path.stat().st_size


def _resumes(found: dict[int, Measured]) -> Iterator[Row]:
    for length, measured in found.items():
        for who, (seconds, _) in _others(measured):
            ours = measured["Holdfast"][0] * 1e3
            yield Row(
                name=f"resume a conversation at turn {length:,}",
                measured=ours,
                unit="ms",
                compare=None if who == "Holdfast" else seconds * 1e3,
                beside=who,
                goal=at_most(20, "ms") if length == LENGTHS[-1] else None,
                curve="resume",
                at=length,
            )


def _sizes(found: dict[int, Measured]) -> Iterator[Row]:
    for length, measured in found.items():
        for who, (_, size) in _others(measured):
            yield Row(
                name=f"bytes a turn of 2 KB, at turn {length:,}",
                measured=measured["Holdfast"][1] / length,
                unit="bytes",
                compare=None if who == "Holdfast" else size / length,
                beside=who,
                curve="storage",
                at=length,
            )


def _others(measured: Measured) -> list[tuple[str, tuple[float, float]]]:
    """Whom ours stands beside; itself alone, if there is nobody."""
    return [one for one in measured.items() if one[0] != "Holdfast"] or list(measured.items())

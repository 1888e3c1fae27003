"""SIGKILL at every durable system call of an agent that does three things: what is silently done twice, what never?

Each contender is killed at the kernel's own stops (peers/killing.py), before and after every write, sync, truncation
and removal it makes; its schema was there before. Another process goes on, until all is done. A sample says so.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.bench import PEERS, Bench, Measure, contender
from benchmarks.table import Row, at_most, skipped
from benchmarks.workload import say

SIDES = ("before", "after")
SECONDS = {"holdfast": 20, "langgraph": 15, "dbos": 30}
THOROUGH = bool(os.environ.get("HOLDFAST_TEST_ALL"))


class Tally:
    """What came of the points at which somebody was killed."""

    def __init__(self, who: str) -> None:
        self.who = who
        self.points = self.all_points = self.silent = self.flagged = self.lost = 0

    @property
    def where(self) -> str:
        """How many points, and of how many."""
        return f"{self.points}" if self.points == self.all_points else f"{self.points} of {self.all_points}"

    def add(self, came: dict[str, list[str]]) -> None:
        """One point more, if it was one: a process with threads may have ended a call earlier."""
        if came["killed"]:
            self.points += 1
            self.silent += bool(came["repeated"])
            self.flagged += bool(came["flagged"])
            self.lost += bool(came["lost"])
        else:
            self.all_points -= 1


def rows(bench: Bench) -> list[Row]:
    """Points with a silent duplicate, points after which something was never done."""
    say("crashes")
    with ExitStack() as stack:
        ours = stack.enter_context(contender(sys.executable, "holdfast", bench.place / "holdfast"))
        peers = stack.enter_context(bench.peers("langgraph", "dbos", at=lambda name: bench.place / name))
        try:
            mine = _tally(ours, "holdfast", "Holdfast", "full")
        except RuntimeError as error:
            return [skipped("kill at every durable call", f"this system does not let a process be traced ({error})")]
        theirs = [_tally(measure, name, who, mode) for name, measure, who, mode in _modes(peers)]
    return [*_rows(mine, theirs)]


def _modes(peers: dict[str, Measure]) -> Iterator[tuple[str, Measure, str, str]]:
    for name, measure in peers.items():
        if name == "langgraph":
            yield name, measure, "LangGraph, sync", "sync"
            yield name, measure, "LangGraph, async (its default)", "async"
        else:
            yield name, measure, PEERS[name], "default"


def _tally(measure: Measure, name: str, who: str, mode: str) -> Tally:
    """All points, or as many as fit the time, spread evenly over all of them."""
    say(who)
    measure(what="prepare", mode=mode)
    every = list(itertools.product(range(1, measure(what="calls") + 1), SIDES))
    tally = Tally(who)
    tally.all_points = len(every)
    until = time.monotonic() + SECONDS[name]
    for index in _spread(len(every)):
        kill_at, side = every[index]
        tally.add(measure(what="trial", kill_at=kill_at, side=side))
        if time.monotonic() > until and not THOROUGH:
            break
    return tally


def _spread(count: int) -> list[int]:
    """All numbers below a count, in an order whose every beginning is spread over all of them."""
    return sorted(range(count), key=lambda number: int(f"{number:024b}"[::-1], 2))


def _rows(ours: Tally, theirs: list[Tally]) -> Iterator[Row]:
    for what, unit in (("silent", "silently repeated"), ("lost", "lost")):
        yield _row(ours, what, unit, None)
        yield from (_row(ours, what, unit, one) for one in theirs)
    yield Row(name=f"killed at {ours.where} points: in doubt, and flagged", measured=ours.flagged, unit="points")


def _row(ours: Tally, what: str, unit: str, other: Tally | None) -> Row:
    return Row(
        name=f"killed at {ours.where} points: {unit}",
        measured=getattr(ours, what),
        unit="points",
        compare=None if other is None else getattr(other, what),
        beside="" if other is None else f"(of {other.where}) {other.who}",
        goal=at_most(0, "points") if other is None else None,
    )

"""What looking costs among many tasks: the inbox, counts, the newest acts, and the state of a long task in parts.

As time of the processor, beside the same among a thousand tasks: none of it may grow with how many tasks there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

import holdfast
from benchmarks.bench import Bench
from benchmarks.table import Row, at_most
from benchmarks.workload import say
from holdfast import events as ev
from holdfast.core import codec
from holdfast.core.codec import Group, Head, Origin, Summary, Write
from holdfast.core.events import Event
from holdfast.core.state.summary import summarise
from holdfast.engine.app import App

SIZES = (1_000, 10_000, 100_000)
ASKED = 50
PAGE = 100
ROUNDS = 5
EVENTS = 8_000
AT = 1_700_000_000_000_000


def rows(bench: Bench) -> list[Row]:
    """A row for each way of looking at each size, and for the parts of one long task."""
    say("reading")
    found = {size: _among(bench.place / f"{size}.db", size) for size in SIZES}
    made: list[Row] = []
    for name in found[SIZES[0]]:
        few = found[SIZES[0]][name]
        for size in SIZES:
            goal = at_most(5) if size > SIZES[0] and "sizes" not in name else None  # sizes are found page by page
            told = f"{name}, among {size:,} tasks"
            beside = f"of {SIZES[0]:,}"
            made.append(
                Row(name=told, measured=found[size][name] * 1e3, unit="ms", compare=few * 1e3, beside=beside, goal=goal)
            )
    return [*made, *_long(bench.place / "long.db")]


def cpu(action: Callable[[], object]) -> float:
    """The least time of the processor that something took."""
    least = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        action()
        least = min(least, time.process_time() - began)
    return least


def _among(path: Path, size: int) -> dict[str, float]:
    with holdfast.open(path, durability="process") as app:
        fill(app, size)
        assert len(list(app.inbox())) == ASKED and app.counts().tasks == size
        assert len(list(islice(app.audit(), PAGE))) == PAGE
        return {
            f"the inbox, {ASKED} entries": cpu(lambda: list(app.inbox())),
            "counts by status": cpu(app.counts),
            "stats, with sizes of tables": cpu(app.stats),
            f"audit, the newest {PAGE} acts": cpu(lambda: list(islice(app.audit(limit=PAGE), PAGE))),
            f"list {PAGE} by thread": cpu(lambda: app.list(thread="talk")),
            f"list {PAGE} by last change": cpu(lambda: app.list(order="changed")),
        }


def fill(app: App, size: int) -> None:
    """So many tasks: some ask a person, a tenth are completed, others sleep. A person had to do with one in five."""
    groups: list[Group] = []
    for number in range(size):
        events: list[Event] = [ev.TaskCreated(agent="a", thread="talk" if number % 10 == 0 else None)]
        events.append(ev.TaskClaimed(holder="h"))
        if number % 5 == 0:
            events.append(ev.SignalReceived(name="go", value=codec.pack(1), by="ana"))
        if number < ASKED:
            events.append(ev.WaitStarted(key="ask#1", wait="person", name="ask", prompt=codec.pack("who?")))
            events.append(ev.TaskSuspended(why="person"))
        elif number % 10 == 1:
            events.append(ev.TaskCompleted(result=codec.pack(number)))
        else:
            events.append(ev.TaskSuspended(why="timer", wake_us=1 << 60))
        groups.append(Group((_first(f"task-{number:06d}", events, AT + 1000 * number),)))
        if len(groups) == 1000:
            app.store.append(groups)
            groups = []
    app.store.append(groups)


def _first(name: str, events: Iterable[Event], at_us: int) -> Write:
    row: Summary | None = None
    drafts: list[codec.Draft] = []
    for event in events:
        drafts.append(codec.draft(event, at_us)[0])
        row = summarise(row, name, event, at_us)
    return Write(name, tuple(drafts), Head(0, codec.genesis(name)), Origin(), row)


def _long(path: Path) -> list[Row]:
    """The parts of a task with thousands of steps, beside its whole document."""
    with holdfast.open(path, durability="process") as app:
        app.start("a", id="t")
        app.append("t", ev.TaskClaimed(holder="h"))
        for number in range(EVENTS):
            step = ev.StepCompleted(key=f"s#{number}", name="s", result=codec.pack("x" * 300), input={})
            app.append("t", step if number % 10 else ev.StateSet(name="n", value=codec.pack(number)))
        middle = EVENTS * 5 // 8
        whole = cpu(lambda: app.at("t", middle).to_dict()) * 1e3
        parts = cpu(lambda: app.at("t", middle).to_dict(sections=("state", "facts", "plan"))) * 1e3
        diff = cpu(lambda: app.diff("t", middle, middle + 1)) * 1e3
        thousand = cpu(lambda: list(app.deltas("t", after=middle, upto=middle + 1_000)))
        beside = f"whole document at {middle:,}"
        return [
            Row(name=f"whole document at seq {middle:,}", measured=whole, unit="ms"),
            Row(name="state, facts and plan there", measured=parts, unit="ms", compare=whole, beside=beside),
            Row(name="difference of neighbours there", measured=diff, unit="ms", compare=whole, beside=beside),
            Row(name="a delta, of 1,000", measured=thousand * 1e3, unit="µs"),
        ]

"""Steps a second of ours and of each peer, in one go, on the same disk or server, at the same durability.

Start and end of a task are included, for all. A LangGraph step is a node of a graph with `durability="sync"`; its
functional tasks return before they are durable, so they stand beside our `before_effects`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from benchmarks.bench import PEERS, Measure
from benchmarks.peers.serving import RESULT
from benchmarks.table import Goal, Row
from benchmarks.workload import EACH, TASKS, Inserts, gathered, in_turns, say, timed
from holdfast import App, Task, agent

STEPS = 100
ROUNDS = 4
ABSURD_PROCESSES = 4

_ids = count()

Goals = dict[str, Goal]


def work(number: int) -> str:
    """The step all of them take."""
    return RESULT


@agent
def sequence(task: Task, steps: int) -> None:
    """Each result is durable before its step returns."""
    for number in range(steps):
        task.step(work, number)


@agent(checkpoint="before_effects")
def sequence_behind(task: Task, steps: int) -> None:
    """Results become durable while the next step runs."""
    for number in range(steps):
        task.step(work, number)


def sequential(app: App, raw: Inserts, peers: dict[str, Measure], goals: Goals) -> Iterator[Row]:
    """One task, one step after the other."""
    if not peers:
        return
    say("beside peers")
    others: dict[str, Callable[[], float]] = {
        name: partial(measure, what="sequential", steps=STEPS) for name, measure in peers.items()
    }
    if "langgraph" in peers:
        others["functional"] = partial(peers["langgraph"], what="functional", steps=STEPS)
    found = in_turns(
        ROUNDS,
        raw=lambda: raw.seconds(STEPS),
        ours=lambda: timed(lambda: app.run(sequence, {"steps": STEPS}, id=f"lone-{next(_ids)}")),
        behind=lambda: timed(lambda: app.run(sequence_behind, {"steps": STEPS}, id=f"behind-{next(_ids)}")),
        **others,
    )
    rate = {name: STEPS / min(seconds) for name, seconds in found.items()}
    name = f"one task of {STEPS} steps, start and end included"
    yield _row(name, rate["ours"], rate["raw"], "raw")
    for one in peers:
        yield _row(name, rate["ours"], rate[one], PEERS[one], goals.get(one))
    if "functional" in rate:
        yield _row(f"{name}, durable in the background", rate["behind"], rate["functional"], "LangGraph's tasks")


def concurrent(app: App, peers: dict[str, Measure], goals: Goals) -> Iterator[Row]:
    """Many tasks at once, from the start of the first to the end of the last.

    A peer's turn is long enough to be taken once. Ours come before and after each, and count by their median.
    """
    if not peers:
        return
    say("at once")
    gathered(app, 10, 2)
    ours, theirs = [gathered(app)], dict[str, float]()
    for name, measure in peers.items():
        options = {"processes": ABSURD_PROCESSES} if name == "absurd" else {}
        theirs[name] = measure(what="concurrent", tasks=TASKS, steps=EACH, **options)
        ours += [gathered(app), gathered(app)]
        say(".")
    for name, seconds in theirs.items():
        yield _row(
            f"{TASKS} tasks of {EACH} steps at once, one process",
            TASKS * EACH / statistics.median(ours),
            TASKS * EACH / seconds,
            PEERS[name] + (f", {ABSURD_PROCESSES} processes" if name == "absurd" else ""),
            goals.get(name),
        )


def _row(name: str, ours: float, theirs: float, beside: str, goal: Goal | None = None) -> Row:
    return Row(name=name, measured=ours, unit="steps/s", compare=theirs, beside=beside, goal=goal)

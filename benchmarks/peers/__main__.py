"""Measure Holdfast and its peers in one go, taking turns, and print one table.

python -m benchmarks.peers .venv-peers/bin/python
python -m benchmarks.peers .venv-peers/bin/python --json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import holdfast
from benchmarks.peers.serving import RESULT
from benchmarks.steps import gathered, in_turns
from benchmarks.table import Goal, Row, as_json, as_text, at_least
from benchmarks.workload import BareAppends, say, timed, workplace
from holdfast import Task, agent

HERE = Path(__file__).parent
STEPS = 100
ROUNDS = 12
TASKS, EACH = 200, 20
GATHERINGS = 2

Measure = Callable[..., float]


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


def main() -> None:
    """Measure with the peers' own interpreter, which the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="Prints one table of ratios.")
    parser.add_argument("python", help="of the environment that has the peers")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    given = parser.parse_args()
    with (
        workplace() as place,
        _peer(given.python, "langgraph", place) as langgraph,
        _peer(given.python, "dbos", place) as dbos,
        holdfast.open(place / "ours.db", durability="full") as app,
    ):
        found = [*_sequential(app, place, langgraph, dbos), *_concurrent(app, langgraph, dbos)]
    print(f"load average {', '.join(f'{one:.1f}' for one in os.getloadavg())}", file=sys.stderr, flush=True)
    print(as_json(found) if given.json else as_text(found))


def _sequential(app: holdfast.App, place: Path, langgraph: Measure, dbos: Measure) -> list[Row]:
    """Steps a second of one task, each step durable before the next; start and end of the task included."""
    say("peers: sequential")
    raw = BareAppends(place / "raw.db", "full")
    ids = iter(range(10**6))
    found = in_turns(
        ROUNDS,
        raw=lambda: raw.seconds(STEPS),
        ours=lambda: timed(lambda: app.run(sequence, {"steps": STEPS}, id=f"lone-{next(ids)}")),
        behind=lambda: timed(lambda: app.run(sequence_behind, {"steps": STEPS}, id=f"behind-{next(ids)}")),
        langgraph=lambda: langgraph(what="sequential", steps=STEPS),
        tasks=lambda: langgraph(what="functional", steps=STEPS),
        dbos=lambda: dbos(what="sequential", steps=STEPS),
    )
    raw.close()
    name = "one task, each step durable"
    return [
        *_rows(name, STEPS, found["ours"], found["langgraph"], "LangGraph", at_least(3)),
        *_rows(name, STEPS, found["ours"], found["dbos"], "DBOS", at_least(8)),
        *_rows(name, STEPS, found["ours"], found["raw"], "bare commits"),
        *_rows("one task, durable in the background", STEPS, found["behind"], found["tasks"], "LangGraph's tasks"),
    ]


def _concurrent(app: holdfast.App, langgraph: Measure, dbos: Measure) -> list[Row]:
    """Steps a second of many tasks at once, from the start of the first to the end of the last."""
    say("concurrent")
    many = {"what": "concurrent", "tasks": TASKS, "steps": EACH}
    gathered(app, 10, 2)
    found = in_turns(GATHERINGS, 0, ours=lambda: gathered(app, TASKS, EACH), langgraph=lambda: langgraph(**many))
    found["dbos"] = [dbos(**many)]
    name = f"{TASKS} tasks of {EACH} steps at once"
    return [
        *_rows(name, TASKS * EACH, found["ours"], found["langgraph"], "LangGraph", at_least(20)),
        *_rows(name, TASKS * EACH, found["ours"], found["dbos"], "DBOS"),
    ]


def _rows(
    name: str, steps: int, ours: list[float], theirs: list[float], beside: str, goal: Goal | None = None
) -> Iterator[Row]:
    for which, chosen in (("best", min), ("median", statistics.median)):
        yield Row(
            name=f"{name}, {which}",
            measured=steps / chosen(ours),
            unit="steps/s",
            compare=steps / chosen(theirs),
            beside=beside,
            goal=goal,
        )


@contextmanager
def _peer(python: str, name: str, place: Path) -> Iterator[Measure]:
    """A peer in a process of its own, which answers what it is asked with seconds."""
    command = (python, str(HERE / f"with_{name}.py"), str(place))
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    asked, answers = process.stdin, process.stdout

    def measure(**wanted: object) -> float:
        print(json.dumps(wanted), file=asked, flush=True)
        line = answers.readline()
        if not line:
            raise RuntimeError(f"{name} gave up; what it said is above")
        return json.loads(line)

    try:
        yield measure
    finally:
        asked.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        answers.close()


if __name__ == "__main__":
    main()

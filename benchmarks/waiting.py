"""What ten thousand waiting tasks cost a process that does not run them: it should be nothing."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

import holdfast
from benchmarks.bench import Bench
from benchmarks.table import Row, at_most
from benchmarks.workload import say
from holdfast import Task, agent

MANY = 10_000
ROUNDS = 3

# Opens the file, does a little work, and says what that added: Python's own objects, and the whole process.
_PROGRAM = """
import gc, json, os, sys, tracemalloc
import holdfast
from holdfast import Task, agent

@agent
def little(task: Task) -> int:
    return sum(task.step(lambda: 1, name="one") for _ in range(20))

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def work(path, id):
    app = holdfast.open(path, durability="process")
    app.run(little, id=id)
    app.list(limit=20)
    return app

work("memory:", "warm").close()  # imports, caches: what has nothing to do with the file
gc.collect()
if sys.argv[2] == "objects":
    tracemalloc.start()
    app = work(sys.argv[1], "little-" + sys.argv[3])
    gc.collect()
    print(json.dumps(tracemalloc.get_traced_memory()[0]))
else:
    before = resident()
    app = work(sys.argv[1], "little-" + sys.argv[3])
    gc.collect()
    print(json.dumps(resident() - before))
"""


@agent
def patient(task: Task) -> str:
    """Asks a person, and waits."""
    return task.ask("yes or no?")


def rows(bench: Bench) -> list[Row]:
    """Medians of whole processes, beside a file with one such task."""
    say("waiting")
    paths = {1: bench.place / "one.db", MANY: bench.place / "many.db"}
    for number, path in paths.items():
        _fill(path, number)
    found: dict[tuple[str, int], list[int]] = {}
    for again in range(ROUNDS):
        for what in ("objects", "resident"):
            for number, path in paths.items():
                found.setdefault((what, number), []).append(_added(path, what, f"{what}-{again}"))
    say(".")
    return [
        _row("Python objects", found["objects", 1], found["objects", MANY], 4),
        _row("resident memory", found["resident", 1], found["resident", MANY], 256),
    ]


def _row(what: str, one: list[int], many: list[int], most: float) -> Row:
    few, all_ = statistics.median(one) / 1024, statistics.median(many) / 1024
    name = f"{what} that {MANY:,} waiting tasks add to a process that opens the file"
    return Row(name=name, measured=max(0.0, all_ - few), unit="KB", goal=at_most(most, "KB"))


def _added(path: Path, what: str, again: str) -> int:
    command = (sys.executable, "-c", _PROGRAM, str(path), what, again)
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def _fill(path: Path, number: int) -> None:
    with holdfast.open(path, durability="process") as app:
        for one in range(number):
            assert app.run(patient, id=f"waiting-{one}").status == "waiting"

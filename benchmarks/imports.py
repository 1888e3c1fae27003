"""What `import holdfast` costs above a bare interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.table import Row, at_most
from benchmarks.workload import best, say, timed

ROUNDS = 20

# Nothing that most programs do not need: a face is loaded when it is used.
UNWANTED = ("asyncio", "click", "psycopg")

_COUNT = f"""
import sys
before = set(sys.modules)
import holdfast
new = set(sys.modules) - before
print(len(new), len([name for name in new if name.startswith("holdfast")]), len(new & {set(UNWANTED)!r}))
"""


def rows(place: Path) -> list[Row]:
    """The least wall time of whole processes, and how many modules are loaded."""
    say("imports")
    found = best(ROUNDS, ours=lambda: _seconds("import holdfast"), bare=lambda: _seconds("pass"))
    above = (found["ours"] - found["bare"]) * 1e3
    modules, own, unwanted = map(int, _output(_COUNT).split())
    return [
        Row(
            name="import holdfast, above a bare interpreter",
            measured=above,
            unit="ms",
            compare=found["bare"] * 1e3,
            beside="bare",
            goal=at_most(60, "ms"),
        ),
        Row(name="modules it loads", measured=modules, unit="modules", compare=own, beside="its own"),
        Row(
            name=f"of {', '.join(UNWANTED)}",
            measured=unwanted,
            unit="modules",
            goal=at_most(0, "modules"),
        ),
    ]


def _seconds(code: str) -> float:
    return timed(lambda: _output(code))


def _output(code: str) -> str:
    run = subprocess.run((sys.executable, "-c", code), check=True, capture_output=True, text=True)
    return run.stdout

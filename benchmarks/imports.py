"""What `import holdfast` costs above a bare interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.bench import Bench
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


def rows(bench: Bench) -> list[Row]:
    """The least wall time of whole processes, and how many modules are loaded."""
    say("imports")
    found = best(
        ROUNDS,
        ours=lambda: timed(lambda: _output("import holdfast", bench.place)),
        bare=lambda: timed(lambda: _output("pass", bench.place)),
    )
    above = (found["ours"] - found["bare"]) * 1e3
    modules, own, unwanted = map(int, _output(_COUNT, bench.place).split())
    return [
        Row(
            name="import holdfast, above a bare interpreter",
            measured=above,
            unit="ms",
            compare=found["bare"] * 1e3,
            beside="bare",
            goal=at_most(60, "ms"),
        ),
        Row(name=f"modules it loads, {own} of them its own", measured=modules, unit="modules"),
        Row(
            name=f"modules among {', '.join(UNWANTED)}",
            measured=unwanted,
            unit="modules",
            goal=at_most(0, "modules"),
        ),
    ]


def _output(code: str, place: Path) -> str:
    """Run a program with bytecode kept in `place`, as an installed package has it, whatever the environment says."""
    cached = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(place)}
    command = (sys.executable, "-c", code)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=cached).stdout

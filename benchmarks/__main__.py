"""Run all subjects, or those named, and print one table.

python -m benchmarks
python -m benchmarks append load
python -m benchmarks steps postgres --peers .venv-peers/bin/python
python -m benchmarks imports --json
python -m benchmarks guard --docs docs     # measures one subject anew, and keeps what the page has of the others
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    append,
    concurrent,
    conversation,
    crashes,
    fleet,
    growth,
    growth_turns,
    guard,
    history,
    imports,
    langgraph,
    listing,
    load,
    page,
    postgres,
    reading,
    records,
    resume,
    scaling,
    screens,
    steps,
    telemetry,
    tiers,
    turns,
    waiting,
    window,
    workers,
)
from benchmarks.bench import Absent, Bench, Postgres
from benchmarks.table import Row, Sections, as_json, as_text, skipped
from benchmarks.workload import workplace

SUBJECTS: dict[str, Callable[[Bench], list[Row]]] = {
    "steps": steps.rows,
    "postgres": postgres.rows,
    "growth": growth.rows,
    "workers": workers.rows,
    "fleet": fleet.rows,
    "history": history.rows,
    "resume": resume.rows,
    "crashes": crashes.rows,
    "append": append.rows,
    "concurrent": concurrent.rows,
    "guard": guard.rows,
    "records": records.rows,
    "load": load.rows,
    "conversation": conversation.rows,
    "window": window.rows,
    "turns": turns.rows,
    "growth_turns": growth_turns.rows,
    "scaling": scaling.rows,
    "listing": listing.rows,
    "reading": reading.rows,
    "langgraph": langgraph.rows,
    "imports": imports.rows,
    "overhead": steps.overhead,
    "telemetry": telemetry.rows,
    "waiting": waiting.rows,
    "tiers": tiers.rows,
    "page": screens.rows,
}


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Prints one table of ratios.")
    parser.add_argument("subjects", nargs="*", metavar="subject", help=f"of {', '.join(SUBJECTS)}; or all")
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter whose environment has the peers")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--docs", type=Path, metavar="FOLDER", help="write the page, its figures and its plots there")
    given = parser.parse_args()
    unknown = [name for name in given.subjects if name not in SUBJECTS]
    if unknown:
        parser.error(f"there is no subject {unknown[0]!r}; use {', '.join(SUBJECTS)}")
    found: Sections = {}
    server = Postgres()
    try:
        for name in given.subjects or SUBJECTS:
            found[name] = _measured(name, server, given.peers)
    finally:
        # What was measured before one broke, or somebody lost patience, is still worth reading.
        server.close()
        print(f"load average {', '.join(f'{one:.1f}' for one in os.getloadavg())}", file=sys.stderr, flush=True)
        print(as_json(found) if given.json else as_text(found))
    if given.docs:
        page.write(given.docs, found, SUBJECTS)


def _measured(name: str, server: Postgres, python: str | None) -> list[Row]:
    began = time.perf_counter()
    with workplace() as place:
        bench = Bench(place, server, python)
        try:
            rows = SUBJECTS[name](bench)
        except Absent as absent:
            rows = [skipped(name, str(absent))]
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return [*rows, *bench.absent]


if __name__ == "__main__":
    main()

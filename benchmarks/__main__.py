"""Run all subjects, or those named, and print one table.

python -m benchmarks
python -m benchmarks append load
python -m benchmarks imports --json
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    append,
    concurrent,
    conversation,
    imports,
    listing,
    load,
    postgres,
    resume,
    steps,
    tiers,
    turns,
    waiting,
    window,
)
from benchmarks.table import Row, as_json, as_text
from benchmarks.workload import workplace

SUBJECTS: dict[str, Callable[[Path], list[Row]]] = {
    "append": append.rows,
    "concurrent": concurrent.rows,
    "postgres": postgres.rows,
    "load": load.rows,
    "conversation": conversation.rows,
    "window": window.rows,
    "turns": turns.rows,
    "listing": listing.rows,
    "imports": imports.rows,
    "steps": steps.rows,
    "overhead": steps.overhead,
    "resume": resume.rows,
    "waiting": waiting.rows,
    "tiers": tiers.rows,
}


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Prints one table of ratios.")
    parser.add_argument("subjects", nargs="*", metavar="subject", help=f"of {', '.join(SUBJECTS)}; or all")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    given = parser.parse_args()
    unknown = [name for name in given.subjects if name not in SUBJECTS]
    if unknown:
        parser.error(f"there is no subject {unknown[0]!r}; use {', '.join(SUBJECTS)}")
    found: list[Row] = []
    try:
        for name in given.subjects or SUBJECTS:
            found += _measured(name)
    finally:
        # What was measured before one broke, or somebody lost patience, is still worth reading.
        print(as_json(found) if given.json else as_text(found))


def _measured(name: str) -> list[Row]:
    began = time.perf_counter()
    with workplace() as place:
        rows = SUBJECTS[name](place)
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    main()

"""The page of the docs: the table of one run, with its date and its machine, and plots of its curves."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import apsw

from benchmarks.plot import Series, line_plot
from benchmarks.table import TIMES, Row, Sections, as_json, as_markdown, from_json
from benchmarks.workload import ALL_ROUNDS, MOST_ROUNDS

HERE = Path(__file__).parent

# Curve: title, across, up, whether up goes by powers of ten.
PLOTS = {
    "resume": ("From a kill back to the next turn", "turns of two messages of 1 KB", "milliseconds", True),
    "storage": ("Bytes on disk for a turn of 2 KB", "turns so far", "bytes a turn", True),
    "growth-one": ("One task beside a full table, PostgreSQL", "events in the table", "steps a second", False),
    "turns": ("A turn that hands its whole history on", "turns of two messages", "microseconds of CPU", True),
    "scaling": ("What each costs when there are more", "times as many", "times the CPU of each", False),
    "growth-many": ("200 tasks at once beside a full table", "events in the table", "steps a second", False),
}


def write(folder: Path, measured: Sections, order: Iterable[str] = ()) -> None:
    """Write figures and plots into benchmarks/ of a folder, and the table into its benchmarks.md.

    If `order` has subjects that were not measured now, what is known of them stays, with the day it was measured on.
    """
    place, page = folder / "benchmarks", folder / "benchmarks.md"
    place.mkdir(parents=True, exist_ok=True)
    text, today = page.read_text("utf-8"), time.strftime("%Y-%m-%d", time.gmtime())
    kept = _kept(place / "figures.json", set(order) - measured.keys())
    sections = {name: measured.get(name) or kept[name] for name in order or measured if name in {*measured, *kept}}
    (place / "figures.json").write_text(as_json(sections) + "\n", "utf-8")
    for curve, (title, across, up, log_y) in PLOTS.items():
        rows = [row for found in sections.values() for row in found if row.curve == curve]
        series = relative(rows) if curve == "scaling" else lines(rows)
        if series:
            (place / f"{curve}.svg").write_text(line_plot(title, across, up, series, log_y=log_y), "utf-8")
    if not kept:
        text = _between(text, "machine", f"Measured on {today}. " + machine())
    dates = {name: day for name, day in _DATED.findall(text) if name in kept} | dict.fromkeys(measured, today)
    if "scaling" in sections:
        text = _between(text, "growth", growth_table(sections["scaling"]))
    page.write_text(_between(text, "table", as_markdown(sections, dates if kept else {})), "utf-8")


_DATED = re.compile(r"^\*\*(\w+)\*\*, measured on (\S+)$", re.M)


def _kept(figures: Path, wanted: set[str]) -> Sections:
    known = from_json(figures.read_text("utf-8")) if wanted and figures.exists() else {}
    return {name: rows for name, rows in known.items() if name in wanted}


def lines(rows: list[Row]) -> list[Series]:
    """Ours and everybody's beside it, where there are two points to draw a line between."""
    found: dict[str, dict[float, float]] = {}
    for row in rows:
        if row.measured is not None:
            found.setdefault(row.line, {})[row.at] = row.measured
            if row.compare is not None:
                found.setdefault(row.beside, {})[row.at] = row.compare
    return [Series(name, sorted(points.items())) for name, points in found.items() if len(points) > 1]


def relative(rows: list[Row]) -> list[Series]:
    """Each line's cost of one thing, beside that of one where there are fewest: 1 everywhere if the cost is linear."""
    return [
        Series(name, [(size / points[0][0], cost / size / (points[0][1] / points[0][0])) for size, cost in points])
        for name, points in _curves(rows).items()
    ]


def growth_table(rows: list[Row]) -> str:
    """What n, 2n, 4n and 8n cost, a row for each line, and the greatest ratio of a doubling."""
    lines = ["| what | n | n | 2n | 4n | 8n | most per doubling |", "|---|--:|--:|--:|--:|--:|--:|"]
    for name, points in _curves(rows).items():
        costs = [cost for _, cost in points]
        ratio = max(more / less for less, more in pairwise(costs))
        cells = [
            name,
            f"{points[0][0]:,.0f}",
            *(f"{cost:,.3g} ms" if cost < 100 else f"{cost:,.0f} ms" for cost in costs),
        ]
        lines.append(f"| {' | '.join((*cells, f'{ratio:.2f}{TIMES}'))} |")
    return "\n".join(lines)


def _curves(rows: list[Row]) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.curve and row.measured is not None:
            found.setdefault(row.line, []).append((row.at, row.measured))
    return found


def machine() -> str:
    """What it was measured on, and with which versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [
        f"{os.cpu_count()} cores ({_processor()}), {memory:.0f} GB",
        f"Linux {platform.release().partition('-')[0]}",
        f"Python {platform.python_version()}",
        f"SQLite {apsw.sqlite_lib_version()}",
        f"load average at the end {os.getloadavg()[1]:.1f} (five minutes)",
    ]
    if MOST_ROUNDS < ALL_ROUNDS:
        parts.append(f"no more than {MOST_ROUNDS} rounds of anything")
    busy = os.getloadavg()[1] > (os.cpu_count() or 1)
    warning = " **The machine was busy with other things: no figure of this run can be relied on.**" if busy else ""
    return f"{', '.join(parts)}. Peers: {', '.join(_peers())}.{warning}"


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.machine()


def _peers() -> Iterator[str]:
    for line in (HERE / "peers" / "requirements.txt").read_text().splitlines():
        name, _, version = line.partition("==")
        if name in ("absurd-sdk", "dbos", "langgraph"):
            yield f"{name} {version}"


def _between(text: str, mark: str, new: str) -> str:
    """The text with something new between two comments."""
    begin, end = f"<!-- {mark} -->\n", f"\n<!-- end of {mark} -->"
    before, _, rest = text.partition(begin)
    assert end in rest, f"the page has no place for its {mark}: {begin!r} … {end!r}"
    return f"{before}{begin}{new}{end}{rest.partition(end)[2]}"

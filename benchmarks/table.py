"""Rows of measurements, as a table for people and as JSON for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

TIMES = "×"  # noqa: RUF001 — the sign of a ratio, not a letter

_DIGITS = {"µs": 1, "ms": 2, "queries": 2, "links": 2, "rollbacks": 2}
_HEAD = ("name", "measured", "raw/compare", "ratio", "goal", "ok?")


class Goal(Struct, frozen=True):
    """What a row should reach: a bound on its ratio if the unit is TIMES, else on what was measured."""

    bound: float
    unit: str
    least: bool = False

    def __str__(self) -> str:
        gap = "" if self.unit == TIMES else " "
        return f"{'≥' if self.least else '≤'} {self.bound:g}{gap}{self.unit}"


def at_most(bound: float, unit: str = TIMES) -> Goal:
    """No more than this."""
    return Goal(bound, unit)


def at_least(bound: float, unit: str = TIMES) -> Goal:
    """No less than this."""
    return Goal(bound, unit, least=True)


class Row(Struct, frozen=True, kw_only=True):
    """One number, what it is compared with (in the same unit), and what it should be; or why there is none.

    A row of a curve says where on it it lies (`at`), and on which line; what is beside it lies on another's.
    """

    name: str
    measured: float | None = None
    unit: str = ""
    compare: float | None = None
    beside: str = "raw"
    goal: Goal | None = None
    note: str = ""
    curve: str = ""
    at: float = 0
    line: str = "Holdfast"

    @property
    def ratio(self) -> float | None:
        """How many times the measured number is the one beside it."""
        return self.measured / self.compare if self.compare and self.measured is not None else None

    @property
    def ok(self) -> bool | None:
        """Whether the goal is reached; None if there is none, or nothing was measured."""
        if self.goal is None or self.measured is None:
            return None
        value = self.ratio if self.goal.unit == TIMES else self.measured
        assert value is not None, f"{self.name} has a goal for a ratio and nothing to compare with"
        return value >= self.goal.bound if self.goal.least else value <= self.goal.bound


Sections = dict[str, list[Row]]
"""Rows by subject."""


def skipped(name: str, why: str) -> Row:
    """A row that says why there is no number."""
    return Row(name=name, note=f"skipped: {why}")


def as_text(sections: Sections) -> str:
    """The table, and in one line how much of it holds."""
    found = {subject: [_cells(row) for row in rows] for subject, rows in sections.items()}
    numbers = [_HEAD, *(cells for lines in found.values() for cells in lines if len(cells) == len(_HEAD))]
    widths = [max(len(line[column]) for line in numbers) for column in range(len(_HEAD))]
    lines = [_line(_HEAD, widths)]
    for subject, rows in found.items():
        lines += [f"--- {subject} ".ljust(len(lines[0]), "-"), *(_line(cells, widths) for cells in rows)]
    return "\n".join([*lines, "", *_verdict(sections)])


def as_markdown(sections: Sections, dates: Mapping[str, str]) -> str:
    """The same table for a page. A subject that was measured on another day than most says when."""
    lines: list[str] = []
    for subject, rows in sections.items():
        when = f", measured on {dates[subject]}" if subject in dates else ""
        lines += ["", f"**{subject}**{when}", "", f"| {' | '.join(_HEAD)} |", "|---|--:|--:|--:|---|---|"]
        for row in rows:
            cells = _cells(row)
            lines.append(f"| {' | '.join((*cells, *[''] * (len(_HEAD) - len(cells))))} |")
    verdict, *missed = _verdict(sections)
    return "\n".join([*lines[1:], "", verdict, "", *missed]).rstrip()


def as_json(sections: Sections) -> str:
    """The same facts for programs."""
    found = {subject: [_facts(row) for row in rows] for subject, rows in sections.items()}
    return json.dumps(found, indent=2, ensure_ascii=False)


def from_json(text: str) -> Sections:
    """What `as_json` wrote."""
    return {subject: [_row(facts) for facts in rows] for subject, rows in json.loads(text).items()}


def _row(facts: dict[str, Any]) -> Row:
    goal = None
    if facts["goal"] is not None:
        sign, bound, unit = re.fullmatch(r"([≤≥]) ([\d.e+-]+) ?(.*)", facts["goal"]).groups()
        goal = Goal(float(bound), unit, least=sign == "≥")
    return Row(**{name: value for name, value in facts.items() if name not in ("ratio", "ok", "goal")}, goal=goal)


def _facts(row: Row) -> dict[str, Any]:
    names = ("name", "measured", "unit", "compare", "beside", "ratio", "ok", "note", "curve", "at", "line")
    plain = {name: getattr(row, name) for name in names}
    return {**plain, "goal": None if row.goal is None else str(row.goal)}


def _cells(row: Row) -> tuple[str, ...]:
    if row.measured is None:
        return row.name, row.note
    beside = "" if row.compare is None else f"{_number(row.compare, row.unit)} {row.beside}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}{TIMES}"
    goal = "" if row.goal is None else str(row.goal)
    verdict = {True: "ok", False: "MISS", None: ""}[row.ok]
    return row.name, _number(row.measured, row.unit), beside, ratio, goal, verdict + row.note


def _verdict(sections: Sections) -> list[str]:
    """How many goals are reached, and which are not."""
    rows = [row for found in sections.values() for row in found]
    missed = [f"- missed: {row.name}, {_missed(row)}" for row in rows if row.ok is False]
    reached = sum(row.ok is True for row in rows)
    without = sum(row.measured is None for row in rows)
    return [f"{reached} goals reached, {len(missed)} missed, {without} rows without a number", *missed]


def _missed(row: Row) -> str:
    """By how much."""
    assert row.measured is not None
    if row.ratio is None or (row.goal and row.goal.unit != TIMES):
        return f"{_number(row.measured, row.unit)}, {row.goal}"
    return f"{row.ratio:.2f}{TIMES} {row.beside}, {row.goal}"


def _number(value: float, unit: str) -> str:
    digits = _DIGITS.get(unit, 0)
    return f"{value:,.{digits}f} {unit}" if abs(value) >= 10**-digits or not value else f"{value:.1g} {unit}"


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    """Names and words to the left, numbers to the right; a row without numbers says why."""
    if len(cells) < len(widths):
        return f"{cells[0].ljust(widths[0])} | {cells[1]}"
    return " | ".join(_aligned(cells, widths)).rstrip()


def _aligned(cells: tuple[str, ...], widths: list[int]) -> Iterator[str]:
    for column, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        yield cell.rjust(width) if column in (1, 3) else cell.ljust(width)

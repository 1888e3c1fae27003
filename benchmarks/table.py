"""Rows of measurements, as a table for people and as JSON for programs."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

TIMES = "×"  # noqa: RUF001 — the sign of a ratio, not a letter

_DIGITS = {"µs": 1, "ms": 2}


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
    """One number, what it is compared with (in the same unit), and what it should be."""

    name: str
    measured: float
    unit: str
    compare: float | None = None
    beside: str = "raw"
    goal: Goal | None = None

    @property
    def ratio(self) -> float | None:
        """How many times the measured number is the one beside it."""
        return self.measured / self.compare if self.compare else None

    @property
    def ok(self) -> bool | None:
        """Whether the goal is reached; None if there is none."""
        if self.goal is None:
            return None
        value = self.ratio if self.goal.unit == TIMES else self.measured
        assert value is not None, f"{self.name} has a goal for a ratio and nothing to compare with"
        return value >= self.goal.bound if self.goal.least else value <= self.goal.bound


def as_text(rows: list[Row]) -> str:
    """The table."""
    lines = [("name", "measured", "raw/compare", "ratio", "goal", "ok?"), *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(6)]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(" | ".join(_aligned(line, widths)).rstrip() for line in lines)


def as_json(rows: list[Row]) -> str:
    """The same facts for programs."""
    return json.dumps([_facts(row) for row in rows], indent=2, ensure_ascii=False)


def _facts(row: Row) -> dict[str, Any]:
    plain = {name: getattr(row, name) for name in ("name", "measured", "unit", "compare", "beside", "ratio", "ok")}
    return {**plain, "goal": None if row.goal is None else str(row.goal)}


def _cells(row: Row) -> tuple[str, ...]:
    beside = "" if row.compare is None else f"{_number(row.compare, row.unit)} {row.beside}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}{TIMES}"
    goal = "" if row.goal is None else str(row.goal)
    verdict = {True: "ok", False: "MISS", None: ""}[row.ok]
    return row.name, _number(row.measured, row.unit), beside, ratio, goal, verdict


def _number(value: float, unit: str) -> str:
    return f"{value:,.{_DIGITS.get(unit, 0)}f} {unit}"


def _aligned(line: tuple[str, ...], widths: list[int]) -> list[str]:
    """Names and words to the left, numbers to the right."""
    return [
        cell.rjust(width) if column in (1, 3) else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]

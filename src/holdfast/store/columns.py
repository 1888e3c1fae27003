"""The columns of a task's row, derived from the fields of `Summary`, so that they are named once.

A column has the name of its field, without `_us`. The id is the name of the task's log, which is a column of `logs`.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, LiteralString, cast

from holdfast.core import codec
from holdfast.core.codec import Summary

FIELDS = tuple(name for name in Summary.__struct_fields__ if name != "id")
COLUMNS = cast("tuple[LiteralString, ...]", tuple(name.removesuffix("_us") for name in FIELDS))
"""The columns of table `tasks` that a summary fills, in the order of its fields."""

_QUOTED: tuple[LiteralString, ...] = tuple('"user"' if name == "user" else name for name in COLUMNS)

NAMES: LiteralString = ", ".join(_QUOTED)
SELECTED: LiteralString = "logs.name, " + NAMES.replace("parent", "tasks.parent")
"""What is read of a task that is joined with its log."""

RENEWED: LiteralString = ", ".join(name + " = excluded." + name for name in _QUOTED)
"""What a row takes from the one that is put in its place."""

_values = attrgetter(*FIELDS)
_DOUBTS = FIELDS.index("doubts")


def to_row(summary: Summary) -> tuple[Any, ...]:
    """Return the values of the columns."""
    values: tuple[Any, ...] = _values(summary)
    doubts = codec.dump(summary.doubts).decode() if summary.doubts else None
    return (*values[:_DOUBTS], doubts, *values[_DOUBTS + 1 :])


def to_summary(row: tuple[Any, ...]) -> Summary:
    """Return the summary of what was read."""
    known: dict[str, Any] = dict(zip(Summary.__struct_fields__, row, strict=True))
    known["mock"] = bool(known["mock"])  # SQLite keeps a number
    known["doubts"] = _doubts(known["doubts"])
    return Summary(**known)


def _doubts(column: str | None) -> tuple[str, ...]:
    """Return the calls in doubt that a row names. What is not a list of them is shown as it is."""
    if column is None:
        return ()
    try:
        return codec.load(column.encode(), tuple[str, ...])
    except codec.MALFORMED:
        return (column,)

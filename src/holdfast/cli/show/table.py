"""Rows as a table: cut to the terminal's width there, whole and plain everywhere else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.cli.show.style import Style, clean, cut

GAP = 2
_LEAST = 8
"""No column is cut below this."""


class Cell(NamedTuple):
    """A text and its tone."""

    text: str
    tone: str = "plain"


Row = Sequence[Cell | str]


def table(head: Sequence[str], rows: Sequence[Row], style: Style, *, right: Sequence[int] = ()) -> Iterator[str]:
    """The lines of a table. Columns in `right` are numbers. Where room is scarce, columns without a value are left out.

    >>> list(table(["ID", "STATUS"], [["a", "done"]], Style()))
    ['ID  STATUS', 'a   done']
    """
    cells = [[_cell(one) for one in row] for row in rows]
    widths = _widths(head, cells)
    if style.width and sum(widths) + GAP * (len(widths) - 1) > style.width:
        kept = [i for i in range(len(head)) if not cells or any(row[i].text for row in cells)]
        head, cells = [head[i] for i in kept], [[row[i] for i in kept] for row in cells]
        right = [environment for environment, i in enumerate(kept) if i in right]
        widths = _fitted(_widths(head, cells), style.width)
    yield _line(_heads(head), widths, style, right)
    if style.terminal:
        yield style.paint((" " * GAP).join("─" * width for width in widths), "dim")
    for row in cells:
        yield _line(row, widths, style, right)


def _widths(head: Sequence[str], cells: Sequence[Sequence[Cell]]) -> list[int]:
    return [max(len(row[i].text) for row in (*cells, _heads(head))) for i in range(len(head))]


def _heads(head: Sequence[str]) -> list[Cell]:
    return [Cell(one, "bold") for one in head]


def _cell(given: Cell | str) -> Cell:
    cell = Cell(given) if isinstance(given, str) else given
    return Cell(clean(cell.text), cell.tone)


def _fitted(widths: list[int], most: int) -> list[int]:
    """Widths that fit: the widest columns give first, and none below what can still be read."""
    over = sum(widths) + GAP * (len(widths) - 1) - most
    while most and over > 0:
        widest = max(range(len(widths)), key=lambda i: widths[i])
        if widths[widest] <= _LEAST:
            break
        second = max((width for i, width in enumerate(widths) if i != widest), default=0)
        less = max(1, min(over, widths[widest] - max(second, _LEAST)))
        widths[widest] -= less
        over -= less
    return widths


def _line(row: Sequence[Cell], widths: Sequence[int], style: Style, right: Sequence[int]) -> str:
    made: list[str] = []
    for environment, (cell, width) in enumerate(zip(row, widths, strict=True)):
        text = cut(cell.text, width)
        padding = " " * (width - len(text))
        painted = style.paint(text, cell.tone)
        last = environment == len(widths) - 1
        made.append(padding + painted if environment in right else painted + ("" if last else padding))
    return (" " * GAP).join(made).rstrip()


def fields(pairs: Sequence[tuple[str, Cell | str]], style: Style) -> Iterator[str]:
    """Names and values, one under the other; what is empty is left out.

    >>> list(fields([("id", "a"), ("status", "done"), ("stage", "")], Style()))
    ['id      a', 'status  done']
    """
    known = [(name, _cell(value)) for name, value in pairs if _cell(value).text]
    wide = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        room = max(_LEAST, style.width - wide - GAP) if style.width else 0
        yield style.paint(f"{name:<{wide}}", "dim") + " " * GAP + style.paint(cut(value.text, room), value.tone)

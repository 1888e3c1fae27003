"""Rows as a table: cut to the terminal's width there, whole and plain everywhere else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.cli.show.style import Style, clean, cut, fold, held

GAP = 2
_LEAST_TEXT = 12
"""No column of texts is cut below this."""

_LEAST_NAME = 8
"""Below this the first column is not narrowed: a longer name in it gets a line of its own, and is never cut."""

_TEXT_LINES = 3
"""Number of lines that a row may take below its name where columns have no room."""


class Cell(NamedTuple):
    """A text and its tone."""

    text: str
    tone: str = "plain"


Row = Sequence[Cell | str]


def table(
    head: Sequence[str], rows: Sequence[Row], style: Style, *, right: Sequence[int] = (), text: Sequence[int] = ()
) -> Iterator[str]:
    """Return the lines of a table. Columns in `right` are numbers, those in `text` may be cut, between words.

    Where room is scarce, columns without a value are left out, and a long name in the first column gets its own line.
    Where that is not enough, each row is a few lines, without columns.

    >>> list(table(["ID", "STATUS"], [["a", "done"]], Style()))
    ['ID  STATUS', 'a   done']
    >>> list(table(["ID", "STATUS", "TRIES"], [["trip-to-oslo", "waiting", "2"]], Style(width=20), right=(2,)))
    ['trip-to-oslo', '  waiting · tries 2']
    """
    cells = [[_cell(one) for one in row] for row in rows]
    widths = _widths(head, cells)
    if style.width and _total(widths) > style.width:
        kept = [i for i in range(len(head)) if not cells or any(row[i].text for row in cells)]
        head, cells = [head[i] for i in kept], [[row[i] for i in kept] for row in cells]
        right, text = ([n for n, i in enumerate(kept) if i in chosen] for chosen in (right, text))
        fitted = _fitted(_widths(head, cells), style.width, text)
        if fitted is None:
            yield from _stacked(head, cells, style, right)
            return
        widths = fitted
    yield from _line(_heads(head), widths, style, right)
    if style.terminal:
        yield style.paint((" " * GAP).join("─" * width for width in widths), "dim")
    for row in cells:
        yield from _line(row, widths, style, right)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _widths(head: Sequence[str], cells: Sequence[Sequence[Cell]]) -> list[int]:
    return [max(len(row[i].text) for row in (*cells, _heads(head))) for i in range(len(head))]


def _heads(head: Sequence[str]) -> list[Cell]:
    return [Cell(one, "bold") for one in head]


def _cell(given: Cell | str) -> Cell:
    cell = Cell(given) if isinstance(given, str) else given
    return Cell(clean(cell.text), cell.tone)


def _fitted(widths: list[int], most: int, text: Sequence[int]) -> list[int] | None:
    """Widths that fit: texts give first, the widest of them before the others, then the first column; or none do."""
    while (over := _total(widths) - most) > 0:
        wide = [i for i in text if widths[i] > _LEAST_TEXT]
        if not wide:
            break
        widest = max(wide, key=lambda i: widths[i])
        second = max((widths[i] for i in wide if i != widest), default=0)
        widths[widest] -= max(1, min(over, widths[widest] - max(second, _LEAST_TEXT)))
    widths[0] -= min(max(0, over), max(0, widths[0] - _LEAST_NAME))
    return widths if _total(widths) <= most else None


def _line(row: Sequence[Cell], widths: Sequence[int], style: Style, right: Sequence[int]) -> Iterator[str]:
    """Return a row as a line; its first cell on a line of its own if it is wider than its column."""
    if len(row[0].text) > widths[0]:
        yield style.paint(row[0].text, row[0].tone)
        row = [Cell(""), *row[1:]]
    made: list[str] = []
    for n, (cell, width) in enumerate(zip(row, widths, strict=True)):
        text = cut(cell.text, width)
        padding = " " * (width - len(text))
        painted = style.paint(text, cell.tone)
        last = n == len(widths) - 1
        made.append(padding + painted if n in right else painted + ("" if last else padding))
    yield (" " * GAP).join(made).rstrip()


def _stacked(head: Sequence[str], cells: Sequence[Sequence[Cell]], style: Style, right: Sequence[int]) -> Iterator[str]:
    """Rows without columns: the first cell, and below it the others; numbers with their names."""
    for row in cells:
        yield style.paint(row[0].text, row[0].tone)
        told = [
            f"{head[n].lower()} {cell.text}" if n in right else cell.text
            for n, cell in enumerate(row)
            if n and cell.text
        ]
        together = [held(one) if len(one) < style.width // 2 else one for one in told]
        yield from fold(f"  {cut(' · '.join(together), _TEXT_LINES * (style.width - 4))}", style.width)


def fields(pairs: Sequence[tuple[str, Cell | str]], style: Style) -> Iterator[str]:
    """Names and values, one under the other; what is empty is left out.

    >>> list(fields([("id", "a"), ("status", "done"), ("stage", "")], Style()))
    ['id      a', 'status  done']
    """
    known = [(name, _cell(value)) for name, value in pairs if _cell(value).text]
    wide = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        room = max(_LEAST_NAME, style.width - wide - GAP) if style.width else 0
        yield style.paint(f"{name:<{wide}}", "dim") + " " * GAP + style.paint(cut(value.text, room), value.tone)

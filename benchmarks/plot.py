"""Lines over a history, as SVG: axes with their units, a mark at every measured point, values where lines end.

Nothing is smoothed and nothing is drawn beyond what was measured. It reads on light and on dark pages alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from msgspec import Struct

WIDTH, HEIGHT = 820, 400
LEFT, RIGHT, TOP, BOTTOM = 78, 270, 44, 52
LINE_HEIGHT = 15
COLOURS = (
    *("#2f81f7", "#db6d28", "#a371f7", "#3fa45b", "#d4508a"),
    *("#8a7f2f", "#1b9e9e", "#b35c5c", "#6b7fd7", "#7a7a7a", "#c38f10"),
)

# Greys between black and white: a page may be dark while the system is not, so no picture can ask which it is.
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #768390 }
.title { font-size: 15px; font-weight: 600 }
.grid { stroke: #8c959f; stroke-opacity: .25 }
.axis { stroke: #8c959f }
"""


class Series(Struct, frozen=True):
    """A line: who, and what was measured where."""

    name: str
    points: list[tuple[float, float]]


class Axis(Struct, frozen=True):
    """A scale, from the least to the greatest; by powers of ten, or from nought on."""

    label: str
    low: float
    high: float
    log: bool

    def at(self, value: float) -> float:
        """Where a value lies, between 0 and 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round values within it."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1, 3) if len(powers) <= 5 else (1,)
            found = [step * 10.0**power for power in powers for step in steps]
        else:
            unit = 10 ** math.floor(math.log10(self.high))
            found = [unit * number / 2 for number in range(21)]
        return [one for one in found if self.low <= one * (1 + 1e-9) and one <= self.high * (1 + 1e-9)]


def line_plot(title: str, x_label: str, y_label: str, series: list[Series], *, log_y: bool) -> str:
    """A picture of all of them. Lengths are on a logarithmic scale, unless there is a nought among them."""
    xs, ys = ([point[index] for one in series for point in one.points] for index in (0, 1))
    across = Axis(x_label, min(xs), max(xs), log=min(xs) > 0)
    low = 10 ** math.floor(math.log10(min(ys))) if log_y else 0
    up = Axis(y_label, low, max(ys) * 1.15, log=log_y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="22">{escape(title)}</text>',
        *_axes(across, up),
        *_lines(series, across, up),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def number(value: float) -> str:
    """A value as people write it, three digits of it."""
    if value == 0:
        return "0"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _x(axis: Axis, value: float) -> float:
    return round(LEFT + axis.at(value) * (WIDTH - LEFT - RIGHT), 1)


def _y(axis: Axis, value: float) -> float:
    return round(HEIGHT - BOTTOM - axis.at(value) * (HEIGHT - TOP - BOTTOM), 1)


def _axes(across: Axis, up: Axis) -> Iterator[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for tick in up.ticks():
        y = _y(up, tick)
        yield f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y}" y2="{y}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{number(tick)}</text>'
    for tick in across.ticks():
        x = _x(across, tick)
        yield f'<line class="axis" x1="{x}" x2="{x}" y1="{bottom}" y2="{bottom + 5}"/>'
        yield f'<text x="{x}" y="{bottom + 19}" text-anchor="middle">{number(tick)}</text>'
    yield f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>'
    middle = (LEFT + right) / 2
    yield f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{_named(across)}</text>'
    place = f"translate(16 {(TOP + bottom) / 2}) rotate(-90)"
    yield f'<text transform="{place}" text-anchor="middle">{_named(up)}</text>'


def _named(axis: Axis) -> str:
    return escape(f"{axis.label} (log scale)" if axis.log else axis.label)


def _lines(series: list[Series], across: Axis, up: Axis) -> Iterator[str]:
    assert len(series) <= len(COLOURS), "a line without a colour would be left out"
    heights = _apart([_y(up, one.points[-1][1]) for one in series])
    for one, colour, height in zip(series, COLOURS, heights, strict=False):
        places = [(_x(across, x), _y(up, y)) for x, y in one.points]
        drawn = " ".join(f"{x},{y}" for x, y in places)
        yield f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{drawn}"/>'
        for (x, y), (_, value) in zip(places, one.points, strict=True):
            yield f'<circle cx="{x}" cy="{y}" r="3.2" fill="{colour}"><title>{number(value)}</title></circle>'
        x, value = one.points[-1]
        label = f"{one.name}: {number(value)}" + (f" (at {number(x)})" if x < across.high else "")
        yield f'<text x="{WIDTH - RIGHT + 10}" y="{height + 4}" style="fill:{colour}">{escape(label)}</text>'


def _apart(heights: list[float]) -> list[float]:
    """The same heights, moved down where two labels would lie on each other."""
    found = dict[int, float]()
    last = -math.inf
    for index, height in sorted(enumerate(heights), key=lambda pair: pair[1]):
        last = found[index] = max(height, last + LINE_HEIGHT)
    return [found[index] for index in range(len(heights))]

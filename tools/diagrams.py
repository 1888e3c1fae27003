"""The diagrams of the docs: `python -m tools.diagrams docs/pictures` draws them anew, in light and dark colours.

Each is plain SVG with two sets of colours; the reader's system chooses. A background of its own keeps it legible on
a page of the other set.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from html import escape
from pathlib import Path

_STYLE = """
  svg { font: 14px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif }
  .ground { fill: #ffffff; stroke: #d9dee5 }
  .box { fill: #f3f6fa; stroke: #8a97a8 } .log { fill: #e6f0ff; stroke: #2f6fd0 }
  .good { fill: #e3f5e8; stroke: #2c8a4b } .warn { fill: #fff3d6; stroke: #b07a10 }
  .bad { fill: #fde7e7; stroke: #c23b3b } .cross { stroke: #c23b3b; stroke-width: 3 }
  text { fill: #1d2530 } .small { font-size: 12px; fill: #566274 } .head { font-weight: 600 }
  .line { fill: none; stroke: #66758a; stroke-width: 1.6 } .tip { fill: #66758a } .dash { stroke-dasharray: 5 4 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #161b22; stroke: #333c48 }
    .box { fill: #222a35; stroke: #77859a } .log { fill: #16294a; stroke: #6aa2f5 }
    .good { fill: #16331f; stroke: #57b878 } .warn { fill: #3a2d0d; stroke: #d9a53a }
    .bad { fill: #3f1d1d; stroke: #e57373 } .cross { stroke: #e57373 }
    text { fill: #e6ebf2 } .small { fill: #a3b0c2 } .line { stroke: #93a1b5 } .tip { fill: #93a1b5 }
  }
"""


class Drawing:
    """Shapes on a ground, written as SVG."""

    def __init__(self, width: int, height: int, title: str, description: str) -> None:
        self._width, self._height = width, height
        self._parts = [
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(description)}</desc>",
            f'<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>',
        ]

    def box(self, x: int, y: int, width: int, lines: list[str], kind: str = "box") -> None:
        """A box with centred lines; the first one is the heading."""
        height = 20 + 18 * len(lines)
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="7"/>')
        for number, line in enumerate(lines):
            self.text(x + width // 2, y + 23 + 18 * number, line, "small" if number else "head")

    def text(self, x: int, y: int, line: str, kind: str = "", anchor: str = "middle") -> None:
        """One line of text."""
        self._parts.append(f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(line)}</text>')

    def arrow(self, *points: tuple[int, int], dashed: bool = False) -> None:
        """A line through points, with a tip at its end. Lines are level or upright."""
        path = " ".join(f"{'L' if number else 'M'}{x} {y}" for number, (x, y) in enumerate(points))
        self._parts.append(f'<path class="line{" dash" if dashed else ""}" d="{path}"/>')
        (before_x, before_y), (x, y) = points[-2], points[-1]
        along, across = (x > before_x) - (x < before_x), (y > before_y) - (y < before_y)
        back = [(x - 9 * along - 5 * across, y - 9 * across - 5 * along)]
        back.append((x - 9 * along + 5 * across, y - 9 * across + 5 * along))
        corners = " ".join(f"{one},{other}" for one, other in [(x, y), *back])
        self._parts.append(f'<polygon class="tip" points="{corners}"/>')

    def line(self, *points: tuple[int, int], dashed: bool = False) -> None:
        """A line through points."""
        path = " ".join(f"{'L' if number else 'M'}{x} {y}" for number, (x, y) in enumerate(points))
        self._parts.append(f'<path class="line{" dash" if dashed else ""}" d="{path}"/>')

    def event(self, x: int, y: int, name: str, kind: str = "log") -> None:
        """An event of a log: a circle with its seq in it."""
        self._parts.append(f'<circle class="{kind}" cx="{x}" cy="{y}" r="15"/>')
        self.text(x, y + 5, name)

    def cross(self, x: int, y: int) -> None:
        """The place where a process dies."""
        self._parts.append(
            f'<path class="cross" d="M{x - 8} {y - 8} L{x + 8} {y + 8} M{x - 8} {y + 8} L{x + 8} {y - 8}"/>'
        )

    def svg(self) -> str:
        """The drawing as a file."""
        body = "\n  ".join(self._parts)
        size = f'viewBox="0 0 {self._width} {self._height}" width="{self._width}" height="{self._height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        return f"{head}\n  <style>{_STYLE}  </style>\n  {body}\n</svg>\n"


def step_life() -> Drawing:
    """A step: replayed from the log, or run and recorded."""
    about = (
        "A call of a step returns the recorded result if the log has one. Otherwise the function runs, with retries."
    )
    one = Drawing(760, 300, "The life of a step", about)
    one.box(24, 112, 140, ["Your code", "calls a step"])
    one.arrow((164, 140), (216, 140))
    one.box(216, 112, 130, ["In the log?", "key and input"], "log")
    one.arrow((346, 140), (406, 140))
    one.text(375, 132, "no", "small")
    one.box(406, 112, 136, ["Run", "your function"])
    one.arrow((542, 140), (600, 140))
    one.text(570, 132, "returns", "small")
    one.box(600, 112, 136, ["Record", "the result"], "log")
    one.arrow((281, 112), (281, 50), (600, 50))
    one.text(440, 42, "yes: replay, nothing runs", "small")
    one.box(600, 22, 136, ["Return", "the result"], "good")
    one.arrow((668, 112), (668, 78))
    one.arrow((440, 168), (440, 226))
    one.text(432, 200, "raises", "small", "end")
    one.box(380, 226, 120, ["Pause"], "warn")
    one.arrow((500, 245), (520, 245), (520, 168))
    one.text(528, 200, "retries left", "small", "start")
    one.arrow((380, 245), (250, 245))
    one.text(316, 237, "none left", "small")
    one.box(72, 226, 178, ["Record the failure", "raises StepFailed"], "bad")
    return one


def call_in_doubt() -> Drawing:
    """A call that must not happen twice: announced, lost, found out."""
    about = "A once call is announced, made and recorded. If its answer is lost, it is in doubt and is looked up."
    one = Drawing(760, 350, "A call in doubt", about)
    one.box(24, 24, 170, ["1  Announce", "durable in the log"], "log")
    one.arrow((194, 52), (264, 52))
    one.box(264, 24, 170, ["2  Make the call", "the world changes"])
    one.arrow((434, 52), (536, 52))
    one.cross(485, 52)
    one.text(485, 38, "answer lost", "small")
    one.box(536, 24, 200, ["3  Record the outcome", "durable in the log"], "log")
    one.arrow((349, 80), (349, 128))
    one.text(359, 112, "killed, timed out or raised: no recorded outcome", "small", "start")
    one.box(264, 128, 170, ["In doubt", "it may have happened"], "warn")
    one.arrow((349, 184), (349, 222))
    one.box(242, 222, 214, ["Ask the destination", "your reconcile function"])
    one.arrow((242, 250), (124, 250), (124, 286))
    one.text(184, 242, "Happened", "small")
    one.box(24, 286, 200, ["Record the result"], "good")
    one.arrow((349, 278), (349, 300))
    one.text(357, 294, "Unknown", "small", "start")
    one.box(264, 300, 170, ["Ask a person"], "warn")
    one.arrow((456, 250), (636, 250), (636, 286))
    one.text(546, 242, "DidNotHappen", "small")
    one.box(536, 286, 200, ["Make the call"], "good")
    return one


def take_over() -> Drawing:
    """Another worker resumes a task whose process was killed."""
    about = "Process A is killed during a call. Process B claims the task, replays its steps and resumes."
    one = Drawing(760, 270, "A take-over", about)
    one.text(24, 52, "process A", "head", "start")
    one.text(24, 142, "the log", "head", "start")
    one.text(24, 232, "process B", "head", "start")
    one.line((110, 137), (736, 137))
    names = ["claim", "step 1", "step 2", "announce", "claim", "settled", "step 3", "done"]
    for number, what in enumerate(names):
        x = 140 + 80 * number
        one.event(x, 137, str(number + 1), "warn" if what == "announce" else "log")
        one.text(x, 170, what, "small")
    one.line((110, 47), (420, 47))
    one.cross(420, 47)
    one.text(436, 52, "SIGKILL in the middle of the call", "small", "start")
    for number in range(4):
        one.arrow((140 + 80 * number, 47), (140 + 80 * number, 120))
    one.line((436, 227), (736, 227))
    for number in range(4, 8):
        one.arrow((140 + 80 * number, 227), (140 + 80 * number, 178))
    one.arrow((300, 178), (300, 227), (436, 227), dashed=True)
    one.text(368, 248, "replays steps 1 and 2: nothing runs again", "small")
    return one


def fork() -> Drawing:
    """A fork: another task with the same past."""
    about = "A fork shares the events of its parent up to a seq, and has events of its own after it."
    one = Drawing(760, 230, "A fork", about)
    one.text(24, 62, "recap-42", "head", "start")
    one.line((130, 57), (660, 57))
    for number in range(7):
        one.event(150 + 80 * number, 57, str(number + 1))
    one.text(680, 62, "completed", "small", "start")
    one.text(270, 24, "the shared past: nothing is copied", "small")
    one.line((135, 86), (135, 96), (405, 96), (405, 86))
    one.arrow((390, 96), (390, 157), (455, 157))
    one.text(380, 140, "fork at=4", "small", "end")
    one.text(24, 162, "recap-42-bold", "head", "start")
    one.line((470, 157), (570, 157))
    for number, x in enumerate((470, 550)):
        one.event(x, 157, str(number + 5), "good")
    one.arrow((570, 157), (610, 157), dashed=True)
    one.text(616, 162, "waits for approval", "small", "start")
    one.text(510, 200, "your patch, then its own events: a once call asks first", "small")
    return one


DIAGRAMS: dict[str, Callable[[], Drawing]] = {
    "step-life.svg": step_life,
    "call-in-doubt.svg": call_in_doubt,
    "take-over.svg": take_over,
    "fork.svg": fork,
}


def write(folder: Path) -> None:
    """Draw all diagrams anew."""
    for name, draw in DIAGRAMS.items():
        (folder / name).write_text(draw().svg(), "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))

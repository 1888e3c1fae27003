"""The pages of --help: options beside their text where there is room, above it on a narrow terminal.

No word is broken, and an example stays on one line, so that it can be copied.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

import click

NARROW = 60
"""Below so many columns, an option and its text do not fit beside each other."""

EXAMPLE = "Example: "


class HelpPage(click.HelpFormatter):
    """Writes paragraphs, and lists of options and commands."""

    def write_text(self, text: str) -> None:
        for number, paragraph in enumerate(text.split("\n\n")):
            whole = " ".join(paragraph.split())
            lines = [whole] if whole.startswith(EXAMPLE) else _wrapped(whole, self.width - self.current_indent)
            self.write("\n" if number else "")
            self.write("".join(f"{'':>{self.current_indent}}{line}\n" for line in lines))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        every = list(rows)
        beside = min(max((len(name) for name, _ in every), default=0), col_max) + col_spacing
        for name, text in every:
            wide = self.width >= NARROW
            margin = self.current_indent + (beside if wide else 2)
            lines = _wrapped(text, self.width - margin)
            head = f"{'':>{self.current_indent}}{name}"
            if wide and lines and len(name) <= beside - col_spacing:
                head = f"{head:<{margin}}{lines.pop(0)}"
            self.write("".join(f"{line}\n" for line in (head, *(f"{'':>{margin}}{line}" for line in lines))))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 10), break_long_words=False, break_on_hyphens=False)


class HelpContext(click.Context):
    """A context whose help is such a page, as wide as the terminal."""

    formatter_class = HelpPage

    def make_formatter(self) -> click.HelpFormatter:
        return HelpPage(width=self.terminal_width or max(min(_columns(), self.max_content_width or 80) - 2, 30))


def _columns() -> int:
    import shutil  # only help needs it

    return shutil.get_terminal_size((80, 24)).columns

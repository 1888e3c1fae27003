"""How things may look: colour, boxes and a width on a terminal; plain lines everywhere else."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, NamedTuple

from holdfast.cli.show.catalog import COMMANDS

_TONES = {"good": "32", "bad": "31", "warn": "33", "dim": "2", "bold": "1", "head": "1;36", "plain": ""}
STATUS_TONES = {"completed": "good", "failed": "bad", "cancelled": "bad", "waiting": "warn", "interrupted": "bad"}
"""The tones of what lists call a task; others have none."""

_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_CONTROLS = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)
"""What steers a terminal, turns the direction of text, or hides in it. Joiners stay: scripts and emoji need them."""


class Style(NamedTuple):
    """What a stream can show. A width of 0 has no end: nothing is cut."""

    terminal: bool = False
    colour: bool = False
    width: int = 0

    def paint(self, text: str, tone: str) -> str:
        """Text in a tone, if colours are wanted.

        >>> Style().paint("done", "good"), Style(colour=True).paint("done", "good")
        ('done', '\\x1b[32mdone\\x1b[0m')
        """
        code = _TONES.get(tone, "")
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code and text else text


def look_of(stream: Any) -> Style:
    """Detect what this stream can show, from the terminal and the environment."""
    forced = bool(os.environ.get("FORCE_COLOR"))
    terminal = forced or is_terminal(stream)
    dumb = os.environ.get("TERM") == "dumb"
    colour = terminal and not os.environ.get("NO_COLOR") and (forced or not dumb)
    width = _width(stream) if terminal else 0
    return Style(terminal and not (dumb and not forced), colour, width)


def _width(stream: Any) -> int:
    """Return the width of the terminal: COLUMNS, or its own answer. `shutil` knows too, but is slow to import."""
    try:
        return max(0, int(os.environ.get("COLUMNS", "0"))) or os.get_terminal_size(stream.fileno()).columns or 80
    except (AttributeError, ValueError, OSError):  # no number, or no terminal
        return 80


def out_look() -> Style:
    """Detect what stdout can show."""
    return look_of(sys.stdout)


def err_look() -> Style:
    """Detect what stderr can show."""
    return look_of(sys.stderr)


def is_terminal(stream: Any) -> bool:
    """Return whether a person reads the stream."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # closed, or not a stream
        return False


def bare(text: str) -> str:
    """Text without colours."""
    return _ESCAPES.sub("", text)


def clean(text: str) -> str:
    """Text on one line that cannot steer a terminal, whatever a task contains.

    >>> clean("a\\nb\\x1b[31mc")
    'a b?[31mc'
    """
    return _CONTROLS.sub(lambda found: " " if found[0] in "\t\r\n" else "?", text)


def tame(text: str) -> str:
    """Text that was put together, with nothing that steers a terminal but line ends and the colours of `paint`.

    >>> tame(Style(colour=True).paint("a", "good") + "\\x1b[2J")
    '\\x1b[32ma\\x1b[0m?[2J'
    """
    return "".join(part if _OWN.fullmatch(part) else clean(part) for part in _OWN.split(text))


_OWN = re.compile(rf"(\n|\x1b\[(?:{'|'.join(code for code in _TONES.values() if code)}|0)m)")


def escaped(json: str) -> str:
    """JSON for a terminal: the same document, with what would steer it written as escapes.

    >>> escaped('{"a":"\\x9b31m"}')
    '{"a":"\\\\u009b31m"}'
    """
    return _CONTROLS.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", json)


def cut(text: str, width: int) -> str:
    """Plain text that fits, cut between words; a width of 0 has no end. Only a word that is too wide itself is broken.

    >>> cut("draft the letter", 12), cut("draft", 8), cut("unbreakable", 8)
    ('draft the…', 'draft', 'unbreak…')
    """
    if not width or len(text) <= width:
        return text
    if width < 0:
        return ""
    kept = text[: max(0, width - 1)]
    whole = kept if text[len(kept) : len(kept) + 1] == " " else kept.rpartition(" ")[0]
    return (whole.rstrip() or kept) + "…"


def fold(line: str, width: int) -> list[str]:
    """Return a line as several that fit, folded between words. A width of 0 has no end.

    What comes below stands in the last column. A command stays whole, so that it can be copied: the terminal
    wraps it, and no line end gets into it.

    >>> fold("  first look, then type: holdfast show trip-oslo --at 7", 30)
    ['  first look, then type:', '    holdfast show trip-oslo --at 7']
    """
    return [part.replace(_HELD, " ") for part in _folded(line, width)]


def held(text: str) -> str:
    """Return text that is not folded: its spaces become ones that `fold` leaves alone, and turns back."""
    return text.replace(" ", _HELD)


_HELD = "\u00a0"


def _folded(line: str, width: int) -> list[str]:
    if not width or len(bare(line)) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip(" "))]
    columns = [gap.end() for gap in _GAPS.finditer(bare(line)) if len(indent) < gap.start() and gap.end() <= width // 2]
    below = " " * (columns[-1] if columns else len(indent) + 2)
    made, now = list[str](), ""
    for gap, word in _WORDS.findall(line[len(indent) :]):
        if now and len(bare(f"{now}{gap}{word}")) > width:
            made.append(now)
            now = f"{below}{word}"
        else:
            now = f"{now}{gap}{word}" if now else f"{indent}{word}"
    return [*made, now] if now.strip() else made


_GAPS = re.compile(" {2,}")
_WORDS = re.compile(rf"( *)((?:\x1b\[[0-9;]*m)?holdfast (?:{'|'.join(COMMANDS)})\b(?!-).*?(?=   |$)|[^ ]+)")

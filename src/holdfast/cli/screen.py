"""Lines that stay and one line below them that is rewritten, on stderr; and what agents print, in between."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Generator
from typing import Any

from holdfast.cli.look import Look, bare, cut, look_of


class Screen:
    """Where progress is shown. Safe from several threads; off a terminal there is no rewritten line."""

    def __init__(self, stream: Any = None, look: Look | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self.look = look_of(self._stream) if look is None else look
        self._lock = threading.RLock()
        self._status = self._begun = ""

    def line(self, text: str) -> None:
        """Print a line that stays."""
        with self._lock:
            if self._begun and not text.startswith(self._begun):  # somebody else's: what was begun stays below it
                self._write(f"\n{text}\n{self._begun}")
                return
            more, self._begun = text[len(self._begun) :], ""
            self._write(f"{self._cleared()}{more}\n{self._status}")

    def beginning(self, text: str) -> None:
        """Print the beginning of a line, or more of it: somebody is asked. No other is shown until it ends."""
        with self._lock:
            goes_on = text.startswith(self._begun)
            self._write(f"{self._cleared()}{text[len(self._begun) :]}" if goes_on else f"\r\x1b[K{text}")
            self._status, self._begun = "", text

    def status(self, text: str) -> None:
        """Rewrite the last line. Nothing happens off a terminal."""
        if not self.look.terminal:
            return
        with self._lock:
            if self._begun:
                return
            width = self._width()
            wide = cut(bare(text), width - 1) if len(bare(text)) >= width else text
            self._write(f"{self._cleared()}{wide}")
            self._status = wide

    def close(self) -> None:
        """Take the last line away."""
        with self._lock:
            self._write(self._cleared())
            self._status = ""

    def _width(self) -> int:
        """How wide the terminal is now: somebody may have made it smaller."""
        return look_of(self._stream).width or self.look.width

    def _cleared(self) -> str:
        return "\r\x1b[K" if self._status else ""

    def _write(self, text: str) -> None:
        """Write it, if anybody reads: the work that is shown goes on without."""
        if text:
            with contextlib.suppress(OSError, ValueError):  # a pipe that is closed, a disk that is full
                self._stream.write(text)
                self._stream.flush()

    def fileno(self) -> int:
        """The descriptor of the stream behind it."""
        return self._stream.fileno()

    @contextlib.contextmanager
    def prints(self) -> Generator[None, None, None]:
        """Let agents print here: their lines appear above the last one."""
        with contextlib.closing(_Prints(self)) as prints, contextlib.redirect_stdout(prints):
            yield


class _Prints(io.TextIOBase):
    """What agents print, line by line."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._rest: list[str] = []

    encoding = "utf-8"
    errors = "replace"

    def reconfigure(self, **given: object) -> None:
        """Programs set their encoding; here it is UTF-8 whatever they say."""

    @property
    def buffer(self) -> io.RawIOBase:
        """For bytes."""
        return _Bytes(self)

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        first, *more = text.split("\n")
        self._rest.append(first)
        for next_line in more:
            self._screen.line(self._begun())
            self._rest = [next_line]
        return len(text)

    def _begun(self) -> str:
        """What was printed of a line that has no end yet; what it was rewritten with is all that counts."""
        whole = "".join(self._rest)
        shown = whole.rstrip("\r").rpartition("\r")[2]
        self._rest = [f"{shown}\r" if whole.endswith("\r") else shown]
        return shown

    def flush(self) -> None:
        if self._begun():
            self._screen.beginning(self._begun())

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        """For programs that an agent starts: what they print goes where progress does."""
        return self._screen.fileno()

    def close(self) -> None:
        if self._begun():
            self._screen.line(self._begun())
            self._rest = []
        super().close()


class _Bytes(io.RawIOBase):
    """Bytes that an agent writes to stdout, as text."""

    def __init__(self, prints: _Prints) -> None:
        self._prints = prints

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._prints.write(bytes(data).decode("utf-8", "replace"))
        return len(data)

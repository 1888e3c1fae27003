"""Lines that stay and one line below them that is rewritten, on stderr; and what agents print, in between."""

from __future__ import annotations

import codecs
import contextlib
import io
import sys
import threading
import time
from collections.abc import Generator
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from holdfast.cli.show.formatting import length, times
from holdfast.cli.show.style import Style, bare, cut, look_of


class Screen:
    """Where progress is shown. Safe from several threads; off a terminal there is no rewritten line."""

    def __init__(self, stream: Any = None, style: Style | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self.style = look_of(self._stream) if style is None else style
        self.lock = threading.RLock()
        self._status = ""
        self._open = False  # whether the beginning of a line was printed

    def line(self, text: str) -> None:
        """Print a line that stays."""
        with self.lock:
            before = "\n" if self._open else self._cleared()
            self._open = False
            self._write(f"{before}{text}\n{self._status}")

    def clock(self, at: datetime | None = None) -> str:
        """Return what a line begins with off a terminal: a moment, or now. On one, people see lines come."""
        return "" if self.style.terminal else f"{datetime.now(UTC) if at is None else at:%H:%M:%S}  "

    def part(self, text: str, *, ends: bool) -> None:
        """Print more of a line that was begun; no other is rewritten below it until it ends."""
        with self.lock:
            if ends and not text and not self._open:
                return  # another line has ended it
            before = "" if self._open else self._cleared()
            self._status = self._status if ends and not self._open else ""
            self._open = not ends
            self._write(f"{before}{text}" + (f"\n{self._status}" if ends else ""))

    def status(self, text: str) -> None:
        """Rewrite the last line. Nothing happens off a terminal."""
        if not self.style.terminal:
            return
        with self.lock:
            if self._open:
                return
            width = self._width()
            wide = cut(bare(text), width - 1) if len(bare(text)) >= width else text
            self._write(f"{self._cleared()}{wide}")
            self._status = wide

    def close(self) -> None:
        """Take the last line away."""
        with self.lock:
            self._write(self._cleared())
            self._status = ""

    def _width(self) -> int:
        """Return the width of the terminal now: it may have been made smaller."""
        return look_of(self._stream).width or self.style.width

    def _cleared(self) -> str:
        return "\r\x1b[K" if self._status else ""

    def _write(self, text: str) -> None:
        """Write it if that is possible: the work that is shown continues without."""
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
    """What agents print, line by line; of one that is flushed the beginning, if there is a terminal to show it on."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._rest: list[str] = []
        self._shown = ""
        self.buffer = _Bytes(self)

    def reconfigure(self, **given: object) -> None:
        """Programs set their encoding; here it is UTF-8 whatever they say."""

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        first, *more = text.split("\n")
        with self._screen.lock:
            self._rest.append(first)
            for next_line in more:
                self._end()
                self._rest = [next_line]
        return len(text)

    def flush(self) -> None:
        with self._screen.lock:
            text = self._begun()
            if self._screen.style.terminal and text != self._shown:
                self._screen.part(self._unseen(text), ends=False)
                self._shown = text

    def _end(self) -> None:
        """Print a line; only what is new of it, if its beginning was shown."""
        text = self._begun()
        if self._shown:
            self._screen.part(self._unseen(text), ends=True)
        else:
            self._screen.line(text)
        self._shown = ""

    def _unseen(self, text: str) -> str:
        return text[len(self._shown) :] if text.startswith(self._shown) else f"\r\x1b[K{text}"

    def _begun(self) -> str:
        """Return the printed part of a line that has not ended. Only its last rewriting counts."""
        whole = "".join(self._rest)
        text = whole.rstrip("\r").rpartition("\r")[2]
        self._rest = [f"{text}\r" if whole.endswith("\r") else text]
        return text

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        """For programs that an agent starts: what they print goes where progress does."""
        return self._screen.fileno()

    def close(self) -> None:
        with self._screen.lock:
            if self._begun():
                self._end()
                self._rest = []
        super().close()


class _Bytes(io.RawIOBase):
    """Bytes that an agent writes to stdout, as text."""

    def __init__(self, prints: _Prints) -> None:
        self._prints = prints
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._prints.write(self._decoder.decode(bytes(data)))
        return len(data)


PATIENCE_SECONDS = 2.0
"""What is done sooner is not shown."""


_TERMINAL_SECONDS, _LINE_SECONDS = 0.1, 5.0


class Progress:
    """Takes how many are done, of how many (0: unknown); shows it once that has taken a while."""

    def __init__(
        self, verb: str, what: str, *, quiet: bool = False, screen: Screen | None = None, patience: float | None = None
    ) -> None:
        self._verb, self._what, self._quiet = verb, what, quiet
        self._screen = screen or Screen()
        self._done = 0
        self._began = time.monotonic()
        self._next = self._began + (PATIENCE_SECONDS if patience is None else patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._screen.close()
        if kind is KeyboardInterrupt and not self._quiet:
            self._screen.line(f"stopped: {self._verb} {times(self._done, self._what)}; the command can be given again")

    def __call__(self, done: int, total: int = 0) -> None:
        self._done = done
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        terminal = self._screen.style.terminal
        self._next = now + (_TERMINAL_SECONDS if terminal else _LINE_SECONDS)
        text = progress_line(self._verb, self._what, done, total, now - self._began)
        if terminal:
            self._screen.status(text)
        else:
            self._screen.line(text)


def progress_line(verb: str, what: str, done: int, total: int, seconds: float) -> str:
    """Draw the progress.

    >>> progress_line("verified", "log", 500, 2000, 2.0)
    'verified 500 of 2,000 logs · 250/s · 6.00 s left'
    """
    rate = done / seconds if seconds > 0 else 0.0
    of = f" of {total:,}" if total >= done else ""
    left = f" · {length(int((total - done) / rate * 1_000_000))} left" if rate and total > done else ""
    return f"{verb} {done:,}{of} {what}s · {rate:,.0f}/s{left}"

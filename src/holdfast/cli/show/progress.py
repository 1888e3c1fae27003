"""Long work shows how far it is: count, rate, estimate. Short work shows nothing."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from holdfast.cli.show.formatting import length, times
from holdfast.cli.show.screen import Screen

PATIENCE_SECONDS = 2.0
"""What is done sooner is not shown."""

_TERMINAL_SECONDS, _LINE_SECONDS = 0.1, 5.0


class Progress:
    """Told how many are done, of how many (0: nobody knows); shows it once that has taken a while."""

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
        terminal = self._screen.look.terminal
        self._next = now + (_TERMINAL_SECONDS if terminal else _LINE_SECONDS)
        text = progress_line(self._verb, self._what, done, total, now - self._began)
        if terminal:
            self._screen.status(text)
        else:
            self._screen.line(text)


def progress_line(verb: str, what: str, done: int, total: int, seconds: float) -> str:
    """How far it is.

    >>> progress_line("verified", "log", 500, 2000, 2.0)
    'verified 500 of 2,000 logs · 250/s · 6.00 s left'
    """
    rate = done / seconds if seconds > 0 else 0.0
    of = f" of {total:,}" if total >= done else ""
    left = f" · {length(int((total - done) / rate * 1_000_000))} left" if rate and total > done else ""
    return f"{verb} {done:,}{of} {what}s · {rate:,.0f}/s{left}"

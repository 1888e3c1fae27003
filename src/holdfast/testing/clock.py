"""A clock that stands still until a test moves it."""

from __future__ import annotations


class FakeClock:
    """Time as a test wants it; every look at it moves it by one tick.

    >>> clock = FakeClock(start_us=1_000_000, tick_us=0)
    >>> clock.advance(seconds=2)
    >>> clock.now_us()
    3000000
    """

    def __init__(self, start_us: int = 1_700_000_000_000_000, tick_us: int = 1) -> None:
        self._now_us = start_us
        self._tick_us = tick_us

    def now_us(self) -> int:
        self._now_us += self._tick_us
        return self._now_us

    def advance(self, seconds: float) -> None:
        """Let time pass, or go back."""
        self._now_us += int(seconds * 1_000_000)

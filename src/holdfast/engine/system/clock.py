"""Time comes from one place, so that tests can set it."""

from __future__ import annotations

import time
from typing import Any, Protocol


class Clock(Protocol):
    """Tells the time. Order and ownership never depend on it."""

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def steady_us(self) -> int:
        """Microseconds since some moment, by a clock that is never set."""
        return time.monotonic_ns() // 1000


_AFTERWARDS_US = 1_000_000
"""For how long after a sleep the time is at least that of its end: its flow looks, and writes that down."""


class HeldSleeps:
    """The short sleeps that a process blocks for, of one task.

    When one ends is a time of the day, for other processes too. Here it is measured by the steady clock: a person who
    sets the machine's clock meanwhile, back or forth, neither prolongs it nor cuts it off.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steady: Any = getattr(clock, "steady_us", None)
        self._ends: dict[int, int] = {}
        self._over = (0, 0)

    def now_us(self) -> int:
        """The time, as it is for those sleeps: after one that is over, and before the end of any that is not."""
        now_us = self._clock.now_us()
        if not self._ends and not self._over[0]:
            return now_us
        steady_us = self._steady()
        self._drop(steady_us)
        until_us, held_us = self._over
        if steady_us < held_us:
            now_us = max(now_us, until_us)
        return min(now_us, min(self._ends, default=now_us + 1) - 1)

    def begin(self, until_us: int, most_us: float) -> None:
        """Measure a sleep from now. It may begin a while later: its record is written first."""
        self.left_us(until_us, most_us)

    def left_us(self, until_us: int, most_us: float) -> int:
        """Return the time left until then. A sleep longer than `hold` is only a time of the day."""
        if self._steady is None:
            return until_us - self._clock.now_us()
        steady_us = self._steady()
        if until_us in self._ends:
            left_us = self._ends[until_us] - steady_us
            self._drop(steady_us)
            return left_us
        left_us = until_us - self.now_us()
        if 0 < left_us <= most_us:
            self._ends[until_us] = steady_us + left_us
        return left_us

    def _drop(self, steady_us: int) -> None:
        for until_us, end_us in self._ends.copy().items():
            if end_us <= steady_us:
                self._ends.pop(until_us, None)
                self._over = (max(until_us, self._over[0]), steady_us + _AFTERWARDS_US)

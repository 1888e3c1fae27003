"""Rules as data: when to try again, how long things may take, which phase may follow which."""

from __future__ import annotations

import re
from datetime import timedelta

from msgspec import Struct

from holdfast.core.errors import InvalidValue

PHASES: dict[str, tuple[str, ...]] = {
    "idle": ("planning", "error"),
    "planning": ("executing", "error"),
    "executing": ("reflecting", "waiting_feedback", "error"),
    "waiting_feedback": ("executing", "error"),
    "reflecting": ("planning", "executing", "done", "error"),
    "done": ("error",),
    "error": (),
}
"""The phases of an agent and where each may go."""

Duration = float | int | str | timedelta
"""A length of time: seconds, a timedelta, or text such as "90s", "10m", "2h", "1h30m", "7d"."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def seconds(value: Duration, what: str = "duration") -> float:
    """A length of time in seconds.

    >>> seconds("1h30m"), seconds(2.5), seconds(timedelta(minutes=1))
    (5400.0, 2.5, 60.0)
    """
    if isinstance(value, timedelta):
        length = value.total_seconds()
    elif isinstance(value, str):
        parts = _PART.findall(value)
        if not parts or "".join(number + unit for number, unit in parts) != value:
            raise InvalidValue(f"{value!r} is not {_a(what)}", hint='write seconds, a timedelta, or text like "1h30m"')
        length = sum(float(number) * _UNITS[unit] for number, unit in parts)
    elif isinstance(value, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        length = float(value)
    else:
        raise InvalidValue(f"{value!r} is not {_a(what)}", hint='write seconds, a timedelta, or text like "1h30m"')
    if not 0 <= length < 1e10:
        raise InvalidValue(f"{value!r} is not {_a(what)}", hint="give a length of time that is not negative")
    return length


def _a(what: str) -> str:
    return f"an {what}" if what[:1] in "aeiou" else f"a {what}"


class Retry(Struct, frozen=True, omit_defaults=True, gc=False):
    """How often to try, and how long to wait in between: 1 s, 2 s, 4 s …, never after the last attempt.

    >>> [Retry(5, most=5).delay(attempt) for attempt in (1, 2, 3, 4)]
    [1.0, 2.0, 4.0, 5]
    """

    attempts: int = 3
    first: float = 1.0
    factor: float = 2.0
    most: float = 60.0
    jitter: float = 0.0

    def delay(self, attempt: int, chance: float = 0.5) -> float:
        """Seconds to wait after this attempt. With jitter, a part of it is left to chance (0 to 1)."""
        whole = min(self.most, self.first * self.factor ** min(attempt - 1, 63))
        return whole * (1 - self.jitter + self.jitter * chance) if self.jitter else whole

    def __post_init__(self) -> None:
        fits = self.attempts >= 1 and self.first >= 0 and self.factor >= 1 and self.most >= 0 and 0 <= self.jitter <= 1
        if not fits:
            raise InvalidValue(
                f"{self!r} cannot be followed", hint="1 attempt or more, factor 1 or more, jitter 0 to 1"
            )


ONCE_ONLY = Retry(attempts=1)
"""No second try."""

"""Retry policies: how often to try, and how long to wait in between."""

from __future__ import annotations

from msgspec import Struct

from holdfast.core.errors import InvalidValue


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

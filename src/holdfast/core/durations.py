"""Lengths of time, as people write them."""

from __future__ import annotations

import re
from datetime import date, timedelta

from holdfast.core.errors import InvalidValue

Duration = float | int | str | timedelta
"""A length of time: seconds, a timedelta, or text such as "90s", "10m", "2h", "1h30m", "7d"."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
MOST = 1e10
"""Seconds that no length of time reaches: some 300 years."""

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def seconds(value: Duration, what: str = "", *, above_zero: bool = False) -> float:
    """A length of time in seconds. `what` is the parameter it was given for.

    >>> seconds("1h30m"), seconds(2.5), seconds(timedelta(minutes=1))
    (5400.0, 2.5, 60.0)
    """
    named = f"{what}={value!r}" if what else repr(value)
    length = _length(value)
    if isinstance(value, date):
        raise InvalidValue(
            f"{what or 'it'}= is a length of time from the start, not a moment ({value})",
            hint='give for example "10m", or subtract now from the moment',
        )
    if length is None or length < 0 or length != length:
        hint = (
            "give one that is not negative"
            if length is not None
            else 'write seconds, a timedelta, or text like "1h30m"'
        )
        raise InvalidValue(f"{named} is not a length of time", hint=hint)
    if length >= MOST:
        raise InvalidValue(f"{named} is too long", hint="give less than 1e10 seconds")
    if above_zero and length == 0:
        raise InvalidValue(f"{named} lets nothing happen", hint='give for example "5m"')
    return length


def shown(length: float) -> str:
    """A length of time in seconds, with as many digits as tell it from others like it.

    >>> shown(0.5), shown(0.0004), shown(12.34), shown(86_400)
    ('0.5 s', '0.0004 s', '12.3 s', '86,400 s')
    """
    return f"{length:,.0f} s" if length >= 100 else f"{float(f'{length:.3g}'):g} s"


def _length(value: object) -> float | None:
    """Return a duration in seconds; None if it isn't one."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        parts = _PART.findall(value)
        whole = bool(parts) and "".join(number + unit for number, unit in parts) == value
        return sum(float(number) * _UNITS[unit] for number, unit in parts) if whole else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(min(value, MOST))  # an int may be too large for a float

"""Lengths of time, as people write them."""

from __future__ import annotations

import re
from datetime import timedelta

from holdfast.core.errors import InvalidValue

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

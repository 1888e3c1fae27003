"""When a schedule comes round: times in the manner of cron, or every so often.

A time of day is a time of a place. Where the clocks are put forward, some times of that day do not exist: they come as
soon as the clocks have passed them, all of them at once. Where the clocks are put back, some exist twice: they come
the first time. Both follow from one rule: a time comes at the first moment at which the clocks of the place show it or
a later one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo

from msgspec import Struct

from holdfast.core.durations import seconds
from holdfast.core.errors import InvalidValue

MAX_LENGTH = 500
"""The longest text that is read."""

LEAST_SECONDS = 1.0
"""How soon a schedule may come round again."""

_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = {"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6} | {
    "jul": 7,
    "aug": 8,
    "sep": 9,
    "oct": 10,
    "nov": 11,
    "dec": 12,
}
_WEEKDAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FORM = "five fields: minute hour day month weekday, such as '0 8 * * 1-5'; or @hourly, @daily, @weekly …"
_PART = re.compile(r"(\*|\w+)(?:-(\w+))?(?:/([0-9]{1,4}))?", re.ASCII)
_EPOCH = datetime(1970, 1, 1)
_MINUTE, _MICROSECOND = timedelta(minutes=1), timedelta(microseconds=1)
_EARLIEST_US, _LATEST_US = -2_208_988_800_000_000, 221_845_392_000_000_000  # the years 1900 to 8999


class Cron(Struct, frozen=True):
    """Times in the manner of cron: every minute of these hours, on these days.

    >>> Cron.parse("30 8 * * mon-fri").next(0, UTC) // 60_000_000  # 1 January 1970 was a Thursday
    510

    As with every cron, if both the day and the weekday are limited, one of the two is enough; a field that begins with
    `*` does not count as limited.
    """

    text: str
    clock: tuple[int, ...]
    days: frozenset[int]
    months: tuple[int, ...]
    weekdays: frozenset[int]
    one_is_enough: bool

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Read five fields, or a macro."""
        if not isinstance(text, str) or len(text) > MAX_LENGTH:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{text!r:.80} is not a time of a schedule", hint=f"write {_FORM}")
        fields = _MACROS.get(text.strip().lower(), text).split()
        if len(fields) != 5:
            said = f"{len(fields)} fields" if fields and not text.strip().startswith("@") else "not one"
            raise InvalidValue(f"{text!r} is not a time of a schedule: it has {said}", hint=f"write {_FORM}")
        minutes, hours, days, months, weekdays = map(_field, _FIELDS, fields)
        found = cls(
            text=" ".join(text.split()),
            clock=tuple(sorted(60 * hour + minute for hour in hours for minute in minutes)),
            days=frozenset(days),
            months=tuple(sorted(months)),
            weekdays=frozenset(weekday % 7 for weekday in weekdays),
            one_is_enough=not (fields[2].startswith("*") or fields[4].startswith("*")),
        )
        if not found.one_is_enough and not any(day <= _DAYS[month - 1] for month in months for day in days):
            raise InvalidValue(f"{text!r} never comes: no such month has such a day", hint="check day and month")
        return found

    def next(self, after_us: int, zone: tzinfo) -> int:
        """The first moment after another, in microseconds since 1970."""
        wall = _wall(after_us, zone)
        while True:
            wall = self._next_wall(wall)
            found = _moment(wall, zone)
            if found > after_us:  # the clocks may have shown it before, if they were put back
                return found

    def last(self, at_us: int, zone: tzinfo) -> int:
        """The last moment that is not after another, in microseconds since 1970."""
        wall = _wall(at_us, zone)
        first, second = (_offset(wall.replace(fold=fold), zone) for fold in (0, 1))
        if wall.fold and first > second:
            wall += first - second  # before they were put back, the clocks had shown at most this
        while True:
            wall = self._last_wall(wall)
            found = _moment(wall, zone)
            if found <= at_us:
                return found
            wall -= _MINUTE

    def _next_wall(self, wall: datetime) -> datetime:
        """The first of our times that is after what the clocks show."""
        day, minute = wall.date(), 60 * wall.hour + wall.minute
        place = bisect_right(self.clock, minute)
        if place < len(self.clock) and self._falls_on(day):
            return _at(day, self.clock[place])
        return _at(next(self._days_after(day)), self.clock[0])

    def _last_wall(self, wall: datetime) -> datetime:
        """The last of our times that is not after what the clocks show."""
        day, minute = wall.date(), 60 * wall.hour + wall.minute
        place = bisect_right(self.clock, minute)
        if place and self._falls_on(day):
            return _at(day, self.clock[place - 1])
        return _at(next(self._days_before(day)), self.clock[-1])

    def _falls_on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        fits, is_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return fits or is_weekday if self.one_is_enough else fits and is_weekday

    def _days_after(self, day: date) -> Iterator[date]:
        for year in range(day.year, date.max.year):
            for month in self.months:
                if (year, month) >= (day.year, day.month):
                    yield from (one for one in _month(year, month) if one > day and self._falls_on(one))

    def _days_before(self, day: date) -> Iterator[date]:
        for year in range(day.year, date.min.year, -1):
            for month in reversed(self.months):
                if (year, month) <= (day.year, day.month):
                    yield from (one for one in reversed(_month(year, month)) if one < day and self._falls_on(one))


class Every(Struct, frozen=True):
    """Every so many seconds, counted from 1970, whatever the clocks of a place show.

    >>> Every(900).next(1, UTC)
    900000000
    """

    seconds: float

    def __post_init__(self) -> None:
        if not LEAST_SECONDS <= self.seconds < 1e10:
            raise InvalidValue(f"{self.seconds!r} s is not a time of a schedule", hint="one second or longer")

    def next(self, after_us: int, zone: tzinfo | None = None) -> int:
        """The first moment after another, in microseconds since 1970."""
        length = round(self.seconds * 1_000_000)
        return (after_us // length + 1) * length

    def last(self, at_us: int, zone: tzinfo | None = None) -> int:
        """The last moment that is not after another, in microseconds since 1970."""
        length = round(self.seconds * 1_000_000)
        return at_us // length * length


def times(text: str, zone: str = "UTC") -> Cron | Every:
    """Read "every 15m", "every 2h", or a time in the manner of cron; the time zone must be known.

    >>> times("every 1h30m").next(0)
    5400000000
    """
    zone_of(zone)
    word, _, length = text.strip().partition(" ") if isinstance(text, str) else ("", "", "")  # pyright: ignore[reportUnnecessaryIsInstance]
    if word.lower() != "every":
        return Cron.parse(text)
    try:
        return Every(seconds("".join(length.split()).lower()))
    except InvalidValue as error:
        hint = 'write "every 15m", "every 2h", "every 1h30m"; one second or longer'
        raise InvalidValue(f"{text!r} is not a time of a schedule", hint=hint) from error


def zone_of(name: str) -> tzinfo:
    """The time zone of that name."""
    if name == "UTC":
        return UTC
    import zoneinfo  # it reads files, and most programs never ask

    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError, AttributeError):
        hint = "write a name such as 'Europe/Berlin' or 'UTC'; if it is right, this machine lacks it: install tzdata"
        raise InvalidValue(f"there is no time zone {name!r}", hint=hint) from None


# What a place's clocks show


def _wall(at_us: int, zone: tzinfo) -> datetime:
    """Return local time at a moment. `fold` is 1 when clocks show it for the second time."""
    if not _EARLIEST_US <= at_us < _LATEST_US:
        raise InvalidValue(f"{at_us} is out of reach", hint="give microseconds since 1970, of the years 1900 to 8999")
    return (_EPOCH + timedelta(microseconds=at_us)).replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)


def _moment(wall: datetime, zone: tzinfo) -> int:
    """The first moment at which the clocks show a time or a later one."""
    before, after = (_offset(wall.replace(fold=fold), zone) for fold in (0, 1))
    shown = wall.replace(fold=0) - _EPOCH
    if after <= before:
        return (shown - before) // _MICROSECOND
    early, late = (shown - after) // _MICROSECOND, (shown - before) // _MICROSECOND
    while late - early > 1:  # the clocks leap over it somewhere in between
        middle = (early + late) // 2
        early, late = (early, middle) if _wall(middle, zone) >= wall else (middle, late)
    return late


def _offset(wall: datetime, zone: tzinfo) -> timedelta:
    found = wall.replace(tzinfo=zone).utcoffset()
    return timedelta() if found is None else found


def _at(day: date, minute: int) -> datetime:
    return datetime(day.year, day.month, day.day, minute // 60, minute % 60)


def _month(year: int, month: int) -> list[date]:
    """Every day of a month."""
    leaps = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    length = 28 if month == 2 and not leaps else _DAYS[month - 1]
    return [date(year, month, day) for day in range(1, length + 1)]


# Reading


class _Field(Struct, frozen=True):
    name: str
    least: int
    most: int
    names: dict[str, int] = {}

    @property
    def form(self) -> str:
        """The schedule as it is written."""
        named = f", or {next(iter(self.names))} to {list(self.names)[-1]}" if self.names else ""
        return f"a {self.name} is {self.least} to {self.most}{named}; or *, lists (1,2), ranges (1-3), steps (*/2)"


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("weekday", 0, 7, _WEEKDAYS),
)


def _field(field: _Field, text: str) -> set[int]:
    """The numbers that a field names."""
    found: set[int] = set()
    for part in text.split(","):
        read = _PART.fullmatch(part)
        if read is None:
            raise InvalidValue(f"{part!r} is not a {field.name}", hint=field.form)
        found.update(_numbers(field, part, *read.groups()))
    return found


def _numbers(field: _Field, part: str, first: str, last: str | None, step: str | None) -> range:
    is_any = first == "*"
    if (is_any and last is not None) or (step is not None and not is_any and last is None):
        raise InvalidValue(f"{part!r} is not a {field.name}", hint=f"write a range before a step: 5-{field.most}/10")
    least, most = (field.least, field.most) if is_any else (_number(field, first), _number(field, last or first))
    if field.name == "weekday":
        most = 6 if is_any else 7 if most == 0 < least else most
    if most < least:
        hint = f"write two: {least}-{field.most},{field.least}-{most}"
        raise InvalidValue(f"{part!r} is not a range of {field.name}s: it goes backwards", hint=hint)
    by = 1 if step is None else int(step)
    if not 1 <= by <= field.most:
        hint = f'a step is 1 to {field.most}; for other intervals write "every 90m", "every 36h"'
        raise InvalidValue(f"{part!r} steps too far for a {field.name}, or not at all", hint=hint)
    return range(least, most + 1, by)


def _number(field: _Field, text: str) -> int:
    number = field.names.get(text.lower(), -1)
    if text.isdigit() and len(text) <= 4:
        number = int(text)
    if not field.least <= number <= field.most:
        raise InvalidValue(f"{text!r} is not a {field.name}", hint=field.form)
    return number

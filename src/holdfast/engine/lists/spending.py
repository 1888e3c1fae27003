"""What was spent, by day: of the usage that events record."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.codec import LoggedEvent, moment
from holdfast.core.events import Usage


def spent_by_day(records: Iterable[LoggedEvent]) -> dict[str, float]:
    """Return the money that events record, by the day (UTC) it was spent on: `{"2026-11-18": 0.31}`.

    What a fork inherited was spent by the task it came from: give the events of its own log only.
    """
    found: dict[str, float] = {}
    for record in records:
        usage = getattr(record.event, "usage", None)
        if isinstance(usage, Usage) and usage.cost:
            day = moment(record.at_us).date().isoformat()
            found[day] = found.get(day, 0.0) + usage.cost
    return found

"""Instruments: counters, gauges and histograms, named by the conventions of OpenTelemetry."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from msgspec import Struct

from holdfast.core.traces.span import Span

Labels = tuple[tuple[str, str], ...]

SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
"""Bounds of buckets for steps, which take a millisecond or half an hour."""

SHORT_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
"""Bounds of buckets for commits."""

MAX_SERIES = 2_000
"""How many combinations of labels one instrument has; what comes beyond is put together under `other`."""


class Exemplar(Struct, frozen=True):
    """One value that was measured, and the span it is of."""

    value: float
    at_us: int
    trace_id: bytes
    span_id: bytes


class HistogramPoint(Struct):
    """What was measured under one combination of labels."""

    buckets: list[int]
    exemplars: list[Exemplar | None]
    count: int = 0
    sum: float = 0.0


def labels_of(given: Mapping[str, str]) -> Labels:
    """Labels in an order of their own, so that the same ones are one series."""
    return tuple(sorted(given.items()))


class Instrument:
    """What all instruments have. Written by one thread, read by any."""

    def __init__(self, name: str, unit: str, about: str) -> None:
        self.name, self.unit, self.about = name, unit, about


class Counter(Instrument):
    """A number that only grows."""

    def __init__(self, name: str, unit: str, about: str) -> None:
        super().__init__(name, unit, about)
        self.points: dict[Labels, float] = {}

    def add(self, amount: float = 1, **labels: str) -> None:
        """Count under some labels."""
        place = _placed(self.points, labels)
        self.points[place] = self.points.get(place, 0) + amount


class Gauge(Instrument):
    """Numbers as they are now."""

    def __init__(self, name: str, unit: str, about: str) -> None:
        super().__init__(name, unit, about)
        self.points: dict[Labels, float] = {}

    def set(self, value: float, **labels: str) -> None:
        """Take the number under some labels."""
        self.points[_placed(self.points, labels)] = value


class Histogram(Instrument):
    """How often values of about a size were measured, and for each size a span that it was last measured of."""

    def __init__(self, name: str, unit: str, about: str, bounds: tuple[float, ...] = SECONDS) -> None:
        super().__init__(name, unit, about)
        self.bounds = bounds
        self.points: dict[Labels, HistogramPoint] = {}

    def point(self, **labels: str) -> HistogramPoint:
        """Return what was measured under some labels; it stays the same one."""
        place = _placed(self.points, labels)
        found = self.points.get(place)
        if found is None:
            size = len(self.bounds) + 1
            found = self.points[place] = HistogramPoint([0] * size, [None] * size)
        return found

    def take(self, point: HistogramPoint, value: float, span: Span) -> None:
        """Take a value and the span that it is of. An exemplar stays for a second, however many come meanwhile."""
        bucket = bisect_left(self.bounds, value)
        point.buckets[bucket] += 1
        point.count += 1
        point.sum += value
        seen = point.exemplars[bucket]
        if seen is None or span.end_us - seen.at_us >= 1_000_000:
            point.exemplars[bucket] = Exemplar(value, span.end_us, span.trace_id, span.span_id)

    def record_all(self, values: Sequence[float]) -> None:
        """Take values that have no labels."""
        bounds, point = self.bounds, self.point()
        buckets = point.buckets
        for value in values:
            buckets[bisect_left(bounds, value)] += 1
        point.count += len(values)
        point.sum += sum(values)


Metric = Counter | Gauge | Histogram


def _placed(known: Mapping[Labels, object], labels: dict[str, str]) -> Labels:
    place = labels_of(labels)
    if place in known or len(known) < MAX_SERIES:
        return place
    return labels_of(dict.fromkeys(labels, "other"))

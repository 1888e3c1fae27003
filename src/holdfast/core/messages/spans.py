"""Ranges of positions, and sorted lists of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def below(values: Sequence[int], limit: int) -> int:
    """Count the values below the limit; they are sorted."""
    least, most = 0, len(values)
    while least < most:
        middle = (least + most) // 2
        if values[middle] < limit:
            least = middle + 1
        else:
            most = middle
    return least


def coalesced(spans: Iterable[range]) -> tuple[range, ...]:
    """Ranges in order, those that touch made one."""
    found: list[range] = []
    for span in sorted((span for span in spans if span), key=lambda span: span.start):
        if found and span.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, span.stop))
        else:
            found.append(span)
    return tuple(found)


def gaps(spans: Sequence[range], stop: int) -> tuple[range, ...]:
    """Return the gaps between ranges that are in order, up to the stop."""
    edges = zip([0, *(span.stop for span in spans)], [*(span.start for span in spans), stop], strict=True)
    return tuple(range(start, end) for start, end in edges if start < end)


def without(span: range, others: Sequence[range]) -> list[range]:
    """A range without others, which are in order."""
    found: list[range] = []
    start = span.start
    for other in others:
        found.append(range(start, min(other.start, span.stop)))
        start = max(start, other.stop)
    return [one for one in [*found, range(start, span.stop)] if one]

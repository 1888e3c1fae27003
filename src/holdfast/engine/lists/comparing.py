"""Two tasks side by side: how much of their past is the same, where they part, and their later events by pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from holdfast.core.codec import LoggedEvent

Pair = tuple[LoggedEvent | None, LoggedEvent | None]


def common_past(one: Sequence[LoggedEvent], two: Sequence[LoggedEvent]) -> int:
    """How many events two logs begin with that are the same ones: the past that a fork shares."""
    count = 0
    for first, second in zip(one, two, strict=False):
        if first.digest != second.digest:
            break
        count += 1
    return count


def paired(one: Sequence[LoggedEvent], two: Sequence[LoggedEvent]) -> Iterator[Pair]:
    """Events of two logs in pairs: those about the same step, or of the same kind, stand beside each other."""
    left, right = [_what(event) for event in one], [_what(event) for event in two]
    for tag, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from zip(one[a:b], two[c:d], strict=True)
        else:
            yield from ((event, None) for event in one[a:b])
            yield from ((None, event) for event in two[c:d])


def _what(record: LoggedEvent) -> tuple[str, str]:
    """What makes two events of different logs the same in kind: the kind, and the step or name they are about."""
    event = record.event
    about = getattr(event, "key", "") or getattr(event, "name", "") or getattr(event, "question", "")
    return record.kind, str(about)

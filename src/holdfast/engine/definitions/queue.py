"""Queues as they are declared: what their names are, and what they limit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from holdfast.core import names
from holdfast.core.errors import InvalidValue, QueueFull
from holdfast.store.protocol import Store
from holdfast.store.queues import Rate

_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(s|m|h|d)\s*")
MAX_RATE = 10**9
"""The highest number that a rate may name."""

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class Queue(Struct, frozen=True):
    """A queue and its limits, which hold across all workers that declare it so.

    `concurrency` is how many of its tasks are worked on at a time, `per_key` how many of one `key=`. `rate` is how many
    tasks begin in a while: "100/m". `max_ready` is how many may wait to be taken before `start` refuses more; those who
    start at the same moment do not see each other's, so there may be as many more as there are callers.
    """

    name: str
    concurrency: int | None = None
    per_key: int | None = None
    rate: str | None = None
    max_ready: int | None = None

    def __post_init__(self) -> None:
        if names.column_name(self.name, "queue's name").startswith("@"):
            raise InvalidValue(f"the queue {self.name!r} is not for workers", hint="let its name begin otherwise")
        for what in ("concurrency", "per_key", "max_ready"):
            limit = getattr(self, what)
            if limit is not None and (not isinstance(limit, int) or limit < 1):
                raise InvalidValue(
                    f"{what}={limit!r} of queue {self.name!r} lets nothing happen", hint="give 1 or more"
                )
        self.as_rate()

    def as_rate(self) -> Rate | None:
        """The rate in numbers."""
        return None if self.rate is None else as_rate(self.rate, f"queue {self.name!r}")


def as_rate(text: str, whose: str = "", *, whole: bool = False) -> Rate:
    """A rate as it is declared, in numbers. `whole`: whether it must be a whole number.

    >>> as_rate("100/m")
    Rate(starts=100.0, seconds=60.0)
    """
    found = _RATE.fullmatch(text) if isinstance(text, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if found is None:
        raise InvalidValue(f"rate={text!r} of {whose} is not understood", hint='write "100/m": s, m, h or d')
    starts = float(found[1])
    if starts >= MAX_RATE:
        raise InvalidValue(f"rate={text!r} of {whose} is too large", hint=f"give less than {MAX_RATE:,}, or no rate")
    if starts == 0:
        raise InvalidValue(f"rate={text!r} of {whose} must be above 0", hint='write "100/m": s, m, h or d')
    if starts < 1 or (whole and starts != int(starts)):
        raise InvalidValue(f"rate={text!r} of {whose} is not a whole number", hint=_in_whole(starts, found[2]))
    return Rate(starts, _SECONDS[found[2]])


def _in_whole(starts: float, unit: str) -> str:
    """Write a rate with a fraction in a longer unit, if there is one in which it is whole."""
    each = starts / _SECONDS[unit]
    longer = [(one, round(each * length, 6)) for one, length in _SECONDS.items() if length > _SECONDS[unit]]
    whole = next((f'write "{many:.0f}/{one}"' for one, many in longer if many >= 1 and many == int(many)), None)
    return whole or 'write "100/m": s, m, h or d'


class DeclaredQueues:
    """The queues an app was given. If it was given none, any name will do."""

    def __init__(self, declared: Iterable[Queue]) -> None:
        self._known: dict[str, Queue] = {}
        for one in declared:
            if not isinstance(one, Queue):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidValue(f"{one!r} is not a queue", hint='write Queue("emails", concurrency=4)')
            if one.name in self._known:
                raise InvalidValue(f"queue {one.name!r} is declared twice", hint="declare it once")
            self._known[one.name] = one

    def __getitem__(self, name: str) -> Queue:
        """A queue by its name; refuses one that is not declared, if any are."""
        names.column_name(name, "queue's name")
        known: Mapping[str, Queue] = self._known
        if name in known or not known or name == "default":
            return known.get(name) or Queue(name)
        import difflib

        close = difflib.get_close_matches(name, known, n=1)
        raise InvalidValue(
            f"there is no queue {name!r}; this app was opened with {', '.join(map(repr, sorted(known)))}",
            hint=f"did you mean {close[0]!r}?" if close else "declare it: open(…, queues=[Queue(…)])",
        )

    def admit(self, store: Store, namespace: str, name: str, *, one_at_a_time: bool = False) -> None:
        """Refuse a task for a queue that has as many as it may; or that works on several of a thread at a time."""
        if one_at_a_time and self[name].per_key != 1:
            raise InvalidValue(
                f'when_busy="queue" needs a queue that works on one task of a thread at a time; {name!r} does not',
                hint=f"declare it where the app is opened: open(…, queues=[Queue({name!r}, per_key=1)])",
            )
        most = self[name].max_ready
        if most is not None and store.queues.ready(namespace, name, most) >= most:
            raise QueueFull(name, most)

    def named(self, wanted: Sequence[str | Queue] | None) -> list[Queue]:
        """Queues to serve: those named, or all that were declared and the default one, where tasks go unasked."""
        if isinstance(wanted, str):
            raise InvalidValue(f"queues={wanted!r} is text", hint=f"give a list: queues=[{wanted!r}]")
        if wanted is None:
            default = () if "default" in self._known else (Queue("default"),)
            return [*self._known.values(), *default]
        if not wanted:
            raise InvalidValue("a worker without queues has nothing to do", hint='give queues=["default"]')
        return [one if isinstance(one, Queue) else self[one] for one in wanted]

"""Queues of a store in memory. All workers are threads of this process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from holdfast.core.codec import Group, Summary
from holdfast.store import queues
from holdfast.store.protocol import Outcome
from holdfast.store.queues import (
    EVER_US,
    Claim,
    ClaimRequest,
    Due,
    Loss,
    QueueDepth,
    Rate,
    ServedRow,
    Slot,
    Taken,
    WaitDepth,
)


class MemoryWakeListener(queues.LoneWakeListener):
    """Woken by the write of a ready task."""

    def __init__(self, forget: Callable[[MemoryWakeListener], None]) -> None:
        self._event = threading.Event()
        self._forget = forget

    def wait(self, seconds: float) -> bool:
        heard = self._event.wait(seconds)
        if heard:  # if not, it may be set by now, for the next time
            self._event.clear()
        return heard

    def wake(self) -> None:
        self._event.set()

    def close(self) -> None:
        self._forget(self)


class MemoryQueues:
    """Looks through every task there is, under the store's lock."""

    def __init__(
        self,
        lock: threading.RLock,
        due: Callable[[], Iterable[Due]],
        append: Callable[[Sequence[Group]], list[Outcome]],
        holder: Callable[[], str],
    ) -> None:
        self._lock = lock
        self._due = due
        self._append = append
        self._holder = holder
        self._rates: dict[tuple[str, str], tuple[float, int]] = {}
        self._places: dict[str, list[int]] = {}
        self._serves: dict[str, str] = {}
        self._ears: list[MemoryWakeListener] = []

    def tell(self) -> None:
        """A task became ready."""
        for ears in list(self._ears):
            ears.wake()

    def claim(self, wanted: ClaimRequest, claim: Claim) -> Taken:
        with self._lock:
            here = [one for one in self._due() if _is_of(one.summary, wanted)]
            rows = (one.summary for one in here)
            running = Counter(row.key for row in rows if row.status == "running" and not is_due(row, wanted))
            tokens, at_us = self._tokens(wanted)
            most = queues.allowed(wanted, running)
            due = sorted((one for one in here if is_due(one.summary, wanted)), key=_order)
            taken = queues.groups(queues.chosen(due, wanted, most, running, tokens), claim)
            if not taken:
                return {}
            done = self._append([group for _, group in taken])
            won = [one for (one, _), outcome in zip(taken, done, strict=True) if isinstance(outcome, tuple)]
            if wanted.rate is not None:
                self._rates[wanted.namespace, wanted.queue] = (tokens - queues.spent(won), max(at_us, wanted.now_us))
            return {one.summary.id: [] for one in won}

    def _tokens(self, wanted: ClaimRequest) -> tuple[float, int]:
        if wanted.rate is None:
            return 0.0, 0
        tokens, at_us = self._rates.get((wanted.namespace, wanted.queue), (None, 0))
        return queues.refilled(wanted.rate, tokens, at_us, wanted.now_us), at_us

    def lost(self) -> dict[str, Loss]:
        """Return every process but this one: what others left here can only be a copy."""
        with self._lock:
            held = {one.summary.holder for one in self._due() if one.summary.status == "running"}
            return {name: "proven" for name in held if name is not None and name != self._holder()}

    def next_wake(self, namespace: str | None, queues: Sequence[str], after_us: int = EVER_US) -> int | None:
        with self._lock:
            rows = (one.summary for one in self._due() if one.summary.status in ("pending", "waiting"))
            here = (row.wake_us for row in rows if namespace in (None, row.namespace) and row.queue in queues)
            return min((wake for wake in here if wake is not None and wake > after_us), default=None)

    def tenants(self, queues: Sequence[str], now_us: int, lost: Sequence[str] = ()) -> list[str]:
        with self._lock:
            here = (one.summary for one in self._due() if one.summary.queue in queues)
            return sorted({row.namespace for row in here if _can_go_on(row, now_us, lost)})

    def depths(self, namespace: str | None = None) -> list[QueueDepth]:
        with self._lock:
            counts: Counter[tuple[str, str, int]] = Counter()
            for row in (one.summary for one in self._due()):
                is_timed = row.status != "waiting" or row.wake_us is not None
                if is_timed and namespace in (None, row.namespace):
                    counts[row.namespace, row.queue, _column(row)] += 1
        places = sorted({place[:2] for place in counts})
        return [QueueDepth(*place, *(counts[*place, column] for column in range(3))) for place in places]

    def waits(self, namespace: str | None = None) -> list[WaitDepth]:
        found: dict[tuple[str, str, str], list[int]] = {}
        with self._lock:
            for row in (one.summary for one in self._due() if namespace in (None, one.summary.namespace)):
                if row.status == "waiting" or (row.status == "pending" and row.wake_us is None):
                    kind = "ready" if row.status == "pending" else row.waiting or ""
                    found.setdefault((row.namespace, row.queue, kind), []).append(row.changed_us)
        return [WaitDepth(*place, len(ages), min(ages)) for place, ages in sorted(found.items())]

    def ready(self, namespace: str, queue: str, most: int) -> int:
        depths = [one for one in self.depths(namespace) if one.queue == queue]
        return min(most, depths[0].ready) if depths else 0

    def reserve(self, tool: str, rate: Rate, now_us: int) -> Slot:
        wanted = queues.places(tool, rate)
        with self._lock:
            used = self._places.setdefault(wanted.owner, [])
            used += [queues.EVER_US] * (wanted.count - len(used))
            oldest = min(range(wanted.count), key=used.__getitem__)
            at_us = max(now_us, used[oldest] + wanted.window_us)
            if at_us > now_us + wanted.ahead_us:
                return wanted.slot(None)
            used[oldest] = at_us
            return wanted.slot(at_us - now_us)

    def announce(self, serves: str) -> None:
        self._serves[self._holder()] = serves

    def announced(self) -> list[ServedRow]:
        return [ServedRow(holder, serves, 0) for holder, serves in self._serves.items() if serves]

    def listen(self, kind: str = "") -> MemoryWakeListener:
        ears = MemoryWakeListener(self._forget)
        self._ears.append(ears)
        return ears

    def _forget(self, ears: MemoryWakeListener) -> None:
        self._ears = [one for one in self._ears if one is not ears]


def is_due(row: Summary, wanted: ClaimRequest) -> bool:
    """Return whether a task may be taken now."""
    return (row.agent, row.version) in wanted.served and _can_go_on(row, wanted.now_us, wanted.lost)


def _can_go_on(row: Summary, now_us: int, lost: Sequence[str]) -> bool:
    if row.status == "running":
        return row.holder in lost
    if row.wake_us is None:
        return row.status == "pending"
    return row.status in ("pending", "waiting") and row.wake_us <= now_us


def _is_of(row: Summary, wanted: ClaimRequest) -> bool:
    return row.namespace == wanted.namespace and row.queue == wanted.queue


def _order(one: Due) -> tuple[int, int]:
    """Tasks that were lost first, then by priority; the oldest first, which is the order they come in."""
    return (0 if one.summary.status == "running" else 1, -one.summary.priority)


def _column(row: Summary) -> int:
    if row.status == "running":
        return 1
    return 0 if row.wake_us is None and row.status == "pending" else 2

"""What a store does for workers: finding tasks that are due, taking them, hearing of new ones, knowing who serves what.

A worker asks for so many tasks of one queue at a time. Who takes a task writes that to its log, after the head it saw,
in the same transaction in which it was found: so no task is found twice, and the log stays the lock. Limits of a queue
are counted in that transaction too, with no other transaction counting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import gcd
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import codec, limits
from holdfast.core.codec import Group, Head, Stored, Summary, Write

Loss = Literal["proven", "presumed"]
"""How it is known that a worker is lost. `proven`: its process is dead, or it signed off. `presumed`: it gave
no sign of life, but it may be alive and in the middle of a call."""


class Rate(Struct, frozen=True, gc=False):
    """So many first starts in so many seconds; as many may begin at once after a quiet while."""

    starts: float
    seconds: float


class Slot(Struct, frozen=True, gc=False):
    """When a call may begin that its tool's rate counts: after so long, or a little later (`grace_us`), but not more.

    If nothing was reserved, ask again then.
    """

    wait_us: int
    grace_us: int
    is_reserved: bool = True


class ClaimRequest(Struct, frozen=True, kw_only=True):
    """What a worker looks for in one queue: tasks of these agents, each with the versions it can resume.

    `lost` are workers whose tasks may be taken from them. What is None is not limited.
    """

    queue: str
    served: tuple[tuple[str, str], ...]
    limit: int
    now_us: int
    namespace: str = ""
    lost: tuple[str, ...] = ()
    concurrency: int | None = None
    per_key: int | None = None
    rate: Rate | None = None

    @property
    def is_limited(self) -> bool:
        """True if claims must be counted."""
        return not (self.concurrency is None and self.per_key is None and self.rate is None)


class Due(Struct, frozen=True, gc=False):
    """A task that can be taken, and the head of its log."""

    summary: Summary
    head: Head


Claim = Callable[[Due], Write | None]
"""What to write in order to take a task; None leaves it alone. It may read the store, and writes nothing itself."""


Taken = dict[str, list[Stored]]
"""Tasks that were taken, by name, with the events of their logs. None are there where they have to be read."""

SHORT = 16
"""Up to how many events a log may have that comes along with the claim of its task."""


class QueueDepth(Struct, frozen=True, gc=False):
    """How many tasks of a queue are ready, being worked on, or waiting for a time."""

    namespace: str
    queue: str
    ready: int
    running: int
    timed: int

    def to_json(self) -> str:
        """Return it as a line of JSON."""
        return codec.dump(self).decode()


class WaitDepth(Struct, frozen=True, gc=False):
    """How many tasks of a queue wait for one kind of thing, and since when the oldest of them does.

    `kind` is `ready` for those that wait for a worker, else what TaskState says: `person`, `signal`, `doubt` …
    """

    namespace: str
    queue: str
    kind: str
    tasks: int
    oldest_us: int


class ServedRow(Struct, frozen=True, gc=False):
    """What a worker serves, and when it was last heard of."""

    holder: str
    serves: str
    beat_us: int


EVER_US = -(1 << 63)
"""A time before all others."""


class WakeListener(Protocol):
    """Hears when a task may have become ready."""

    def wait(self, seconds: float) -> bool:
        """Return whether there was something, within that time; at once if there was since the last time."""
        ...

    def wake(self) -> None:
        """End a wait that is under way in another thread, or the next one."""
        ...

    def hear(self) -> None:
        """Note that a task may have become ready: as `wake`, but workers may take turns."""
        ...

    def nothing_left(self, seconds: float) -> None:
        """Tell workers that serve the same that there is nothing to take now, nor within so many seconds."""
        ...

    def quiet_seconds(self) -> float:
        """How long there is nothing to take, as another worker that serves the same has found; 0 if unknown."""
        ...

    def close(self) -> None: ...


class LoneWakeListener:
    """What a listener does in a store whose workers tell each other nothing."""

    def wake(self) -> None:
        """End a wait."""
        raise NotImplementedError

    def hear(self) -> None:
        """Ask at once."""
        self.wake()

    def nothing_left(self, seconds: float) -> None:
        """Keep it for itself."""

    def quiet_seconds(self) -> float:
        """Nothing is known of others."""
        return 0.0


class Queues(Protocol):
    """The verbs of workers."""

    def claim(self, wanted: ClaimRequest, claim: Claim) -> Taken:
        """Take tasks that are due, highest priority first, then oldest; gives those that were taken."""
        ...

    def lost(self) -> dict[str, Loss]:
        """Return workers whose running tasks may be taken, each with how that is known."""
        ...

    def next_wake(self, namespace: str | None, queues: Sequence[str], after_us: int = EVER_US) -> int | None:
        """When the next task that waits for a time is due; with `after_us`, the next one later than that.

        None is every tenant.
        """
        ...

    def tenants(self, queues: Sequence[str], now_us: int, lost: Sequence[str] = ()) -> list[str]:
        """Tenants that have something to take in these queues, in order; costs nothing for each task they have."""
        ...

    def depths(self, namespace: str | None = None) -> list[QueueDepth]:
        """Return the depth of each queue that has tasks."""
        ...

    def waits(self, namespace: str | None = None) -> list[WaitDepth]:
        """Return how many tasks of each queue wait for what, and how long; those that wait for a worker too."""
        ...

    def ready(self, namespace: str, queue: str, most: int) -> int:
        """Count the tasks in a queue that are ready, up to `most`."""
        ...

    def reserve(self, tool: str, rate: Rate, now_us: int) -> Slot:
        """Reserve the next moment at which a tool may be called, for all processes and tenants of the store.

        In no stretch of the rate's time do more calls begin than it says. A store whose workers are on several machines
        goes by a clock of its own.
        """
        ...

    def announce(self, serves: str) -> None:
        """Say what this process serves, for others to see; nothing takes it back."""
        ...

    def announced(self) -> list[ServedRow]:
        """Return the queues that living workers serve."""
        ...

    def listen(self, kind: str = "") -> WakeListener:
        """Begin to hear of tasks that become ready.

        `kind` is the same for workers that can take the same tasks, of which one may look for all.
        """
        ...


# What all stores do alike


def allowed(wanted: ClaimRequest, running: dict[str | None, int]) -> int:
    """Return how many more tasks may be claimed from a queue now."""
    most = wanted.limit
    if wanted.concurrency is not None:
        most = min(most, wanted.concurrency - sum(running.values()))
    return max(0, most)


def in_rounds(wanted: ClaimRequest, once: Callable[[ClaimRequest], tuple[Taken, bool]]) -> Taken:
    """Take tasks, and again while some were passed over for a limit that those behind them may not share."""
    taken: Taken = {}
    while True:
        found, is_all = once(replace(wanted, limit=wanted.limit - len(taken)))
        taken |= found
        if is_all or not found or len(taken) >= wanted.limit:
            return taken


def chosen(
    due: Iterable[Due], wanted: ClaimRequest, most: int, running: dict[str | None, int], tokens: float
) -> list[Due]:
    """Those that may be taken: no more than a queue allows, nor of one key, nor first starts beyond its rate."""
    counts, left, found = dict(running), tokens, list[Due]()
    for one in due:
        key, starts = one.summary.key, one.summary.claims == 0
        if len(found) >= most:
            break
        if wanted.per_key is not None and key is not None and counts.get(key, 0) >= wanted.per_key:
            continue
        if wanted.rate is not None and starts:
            if left < 1:
                continue
            left -= 1
        counts[key] = counts.get(key, 0) + 1
        found.append(one)
    return found


def refilled(rate: Rate, tokens: float | None, at_us: int, now_us: int) -> float:
    """Return the starts that a rate has left by now. A part of one is saved up until it is one."""
    most = max(1.0, rate.starts)
    if tokens is None:
        return most
    return min(most, tokens + max(0, now_us - at_us) / 1_000_000 * rate.starts / rate.seconds)


def may_start(wanted: ClaimRequest, tokens: float) -> bool:
    """Return whether tasks may be taken for the first time."""
    return wanted.rate is None or tokens >= 1


def spent(taken: Iterable[Due]) -> int:
    """Count the first starts among those claimed."""
    return sum(one.summary.claims == 0 for one in taken)


def groups(taken: Iterable[Due], claim: Claim) -> list[tuple[Due, Group]]:
    """Return the groups to write in order to claim them."""
    found: list[tuple[Due, Group]] = []
    for one in taken:
        write = claim(one)
        if write is not None:
            found.append((one, Group((write,))))
    return found


def full_keys(wanted: ClaimRequest, running: dict[str | None, int]) -> list[str]:
    """Keys of which no more may be taken."""
    if wanted.per_key is None:
        return []
    return [key for key, count in running.items() if key is not None and count >= wanted.per_key]


class Places(Struct, frozen=True, gc=False):
    """The rate of a tool as stores keep it: so many places, each of which is free again after a time.

    Every call takes the place that was used longest ago. So between a call and the one that is `count` later there is
    at least that time, in all processes. Places are rows of the table of rates, under a name that no tenant has.
    """

    owner: str
    count: int
    window_us: int
    grace_us: int

    @property
    def last(self) -> str:
        """The name of the last place."""
        return self.name(self.count - 1)

    @staticmethod
    def name(number: int) -> str:
        """The name of a place."""
        return f"{number:04d}"

    @property
    def names(self) -> list[str]:
        """The names of all places."""
        return [self.name(number) for number in range(self.count)]

    @property
    def ahead_us(self) -> int:
        """How long before its time a place may be reserved. A reservation is lost if the task is cancelled."""
        return max(int(limits.RATE_AHEAD_SECONDS * 1_000_000), limits.RATE_AHEAD_WINDOWS * self.window_us)

    def slot(self, wait_us: int | None) -> Slot:
        """Return the wait for a place, or that none is near."""
        if wait_us is None:
            return Slot(self.ahead_us, self.grace_us, is_reserved=False)
        return Slot(max(0, wait_us), self.grace_us)


def places(tool: str, rate: Rate) -> Places:
    """The places of a tool. A rate with too many of them is divided: 5,000 a day are 1,000 in a fifth of a day."""
    calls, seconds = round(rate.starts * 100), rate.seconds * 100
    whole = gcd(calls, 100)
    calls, seconds = calls // whole, seconds / whole
    parts = -(-calls // limits.MAX_RATE_PLACES)
    calls, seconds = calls // parts, seconds / parts
    margin = min(limits.RATE_MARGIN_SECONDS, limits.RATE_MARGIN_SHARE * seconds)
    return Places(f"@tool {tool}", calls, int((seconds + margin) * 1_000_000), int(margin * 1_000_000))


SPARE = 4
"""How many times as many tasks are looked at as may be taken, where some may have to be left."""

REACH = 256
"""How many tasks more than that are put in order, or passed over because others are at them."""

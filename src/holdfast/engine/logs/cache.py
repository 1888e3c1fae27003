"""What a process caches of logs: folded states, threads, messages that were read and counted.

Nothing here is the truth, and nothing is used unasked: a reader of a state from here asks the log whether it still
holds (`loading.py`). Everything is bounded, and may be dropped at any time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Raw, Struct

from holdfast.core import codec, limits
from holdfast.core.codec import Head
from holdfast.core.state.shapes import State

if TYPE_CHECKING:
    from holdfast.core.messages import Message
    from holdfast.core.messages.tokens import Count
    from holdfast.engine.logs.log import Log
    from holdfast.engine.logs.shared_cache import SharedCache

Value = TypeVar("Value")


class Ground(Struct, frozen=True, gc=False):
    """What a fold stands on besides its own log: the logs of its past, and how many bodies of all had been erased."""

    erased: int = 0
    past: tuple[str, ...] = ()


class Sizes(Struct, frozen=True, gc=False):
    """How large a state was when its log had grown by so much; how much that is now, and when a snapshot is due."""

    size: int
    sized_at: int
    since: int
    due: int


class Kept(Struct, frozen=True):
    """A state at a head. It never changes: it is copied on its way in and on its way out."""

    head: Head
    state: State
    sizes: Sizes
    ground: Ground

    @property
    def weight(self) -> int:
        """The bytes in memory, about."""
        encoded = self.sizes.size + self.sizes.since - self.sizes.sized_at
        return limits.CACHE_STATE_BYTES + encoded + limits.CACHE_ENTRY_BYTES * self.state.entries


Removal = tuple[int, tuple[int, ...], int]
"""Messages that were taken out of a thread: the seq of that event, the seqs it names, and up to which all go."""


class Spoken(Struct, frozen=True):
    """The messages of a thread up to a seq, as `thread_view` reads them. Its lists are never changed."""

    head: Head
    seqs: list[int]
    raws: list[Raw]
    digests: list[str]
    owners: list[tuple[str, int]]
    removals: list[Removal]
    erased: int
    weight: int


class Heard(Struct):
    """A message that was read, how many tokens its provider reported, and how many the usual counter found."""

    message: Message
    reported: Count | None
    count: Count | None = None

    @property
    def weight(self) -> int:
        """The bytes in memory, about."""
        return limits.CACHE_MESSAGE_BYTES + len(codec.dump(self.message))


class CacheCounts(Struct):
    """What came of asking for states: in memory, in the tier that servers share, or neither."""

    hits: int = 0
    misses: int = 0
    dropped: int = 0
    shared_hits: int = 0
    shared_misses: int = 0
    shared_dropped: int = 0
    shared: int = 0
    unshared: int = 0
    errors: int = 0


class Bounded(Generic[Value]):
    """The newest of what was put here, up to so many entries and bytes. Safe from several threads.

    What would take half of the room for itself is not one of them. With `large`, the newest of those is kept, too, up
    to so many bytes: whoever reads the same large thing again and again finds it, and the others keep their room.
    """

    def __init__(self, bytes: int, entries: int, large: int = 0) -> None:
        self.max_bytes = bytes
        self.max_entries = entries
        self.max_large = large
        self._large: tuple[str | bytes, Value] | None = None
        self.bytes = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[str | bytes, tuple[Value, int]] = OrderedDict()

    def get(self, key: str | bytes) -> Value | None:
        """Return the value of a key; it is the newest from now on."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return self._large[1] if self._large is not None and self._large[0] == key else None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: str | bytes, value: Value, weight: int) -> None:
        """Keep something, if there is room for it."""
        with self._lock:
            self._drop(key)
            if weight * 2 > self.max_bytes:
                self._large = (key, value) if weight <= self.max_large else self._large
                return
            self._kept[key] = (value, weight)
            self.bytes += weight
            while self.bytes > self.max_bytes or len(self._kept) > self.max_entries:
                self._drop(next(iter(self._kept)))

    def drop(self, key: str | bytes) -> None:
        """Forget it."""
        with self._lock:
            self._drop(key)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
            self._large = None
            self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept) + (self._large is not None)

    def _drop(self, key: str | bytes) -> None:
        gone = self._kept.pop(key, None)
        if gone is not None:
            self.bytes -= gone[1]
        if self._large is not None and self._large[0] == key:
            self._large = None


class Cache:
    """All that one app remembers; `tier` is what it shares with other servers, if anything."""

    def __init__(self, bytes: int = limits.CACHE_BYTES, tier: SharedCache | None = None) -> None:
        entries = limits.CACHE_ENTRIES
        self.states: Bounded[Kept] = Bounded(bytes // 2, entries, bytes * limits.CACHE_LARGE_FACTOR)
        self.talks: Bounded[Spoken] = Bounded(bytes // 4, entries)
        self.messages: Bounded[Heard] = Bounded(bytes // 4, entries)
        self.tier = tier
        self.counts = CacheCounts() if tier is None else tier.counts

    def remember(self, log: Log) -> None:
        """Keep a log's state as it is now, and share it with other servers if the log has grown by enough."""
        kept = log.kept()
        if kept is not None:
            self.states.put(log.name, kept, kept.weight)
            if self.tier is not None:
                self.tier.share(log.name, kept)

    def drop(self, name: str) -> None:
        """Forget a state that the log does not confirm."""
        self.states.drop(name)
        self.counts.dropped += 1

    def forget(self, names: Iterable[str]) -> None:
        """Forget what was erased or removed, here and in the tier that servers share."""
        gone = list(names)
        for name in gone:
            self.states.drop(name)
            self.talks.drop(name)
        self.messages.clear()
        if self.tier is not None and gone:
            self.tier.forget(gone)

    def close(self) -> None:
        """Close the connection to other servers."""
        if self.tier is not None:
            self.tier.close()

"""Watching the inbox: what comes into it is found, whichever process wrote it.

One look reads the rows of waiting tasks. Only the log of a task whose row has changed is loaded. Looks rest in between
for many times as long as they took, so however many tasks wait, watching costs a small part of a processor.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

from msgspec import Struct, field

from holdfast.core import limits
from holdfast.core.codec import Summary
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading import inbox
from holdfast.engine.reading.inbox import InboxItem, Kind

FOR_PEOPLE: tuple[Kind, ...] = (
    *("question", "approval", "doubt", "budget", "blocked", "quarantined", "diverged", "damaged"),
)
"""What a person decides. That no worker takes a task is a matter of the people who run them."""

Identity = tuple[object, ...]
"""What makes an entry the same as one that was reported before, however often the task was resumed in between."""

Version = tuple[int, int]
"""When the row of a task last changed, and how often it was claimed until then."""


class Notice(Struct, frozen=True):
    """An entry of the inbox that is new. Its id is the same for all who find it."""

    id: str
    item: InboxItem


class _Seen(Struct):
    """What is known of a task that waits, or did: its row as it was, and the entries that were reported.

    What is not newer than `before_us` was there before. `gone_at` is when it was seen not to wait any more.
    """

    told: set[Identity] = field(default_factory=set[Identity])
    version: Version = (-1, -1)
    before_us: int = -1
    gone_at: float = 0.0


class InboxWatch:
    """Gives each entry of the inbox once. Not for several threads at a time."""

    def __init__(
        self,
        logs: Logs,
        *,
        kinds: Iterable[str] | None = None,
        unserved: bool = False,
        is_left_alone: Callable[[str], bool] = lambda id: False,
    ) -> None:
        """With `unserved`, tasks that no worker takes are found too, once they wait long enough.

        Tasks that are left alone are not looked at: another thread is about to `skip` what they wait for.
        """
        self._logs = logs
        self._is_left_alone = is_left_alone
        self._kinds = None if kinds is None else frozenset(kinds)
        self._unserved = unserved
        self._seen: dict[str, _Seen] = {}
        self._rest_seconds = 0.0

    def skip_present(self) -> None:
        """Take what is in the inbox now as known. No log is loaded for that."""
        for row in inbox.waiting_rows(self._logs):
            self._seen[row.id] = _Seen(version=_version(row), before_us=row.changed_us)

    def skip(self, row: Summary, items: Iterable[InboxItem]) -> list[Notice]:
        """Take these entries of a task as known; gives those that were not."""
        return self._new(self._seen.setdefault(row.id, _Seen()), row, items)

    def look(self) -> list[Notice]:
        """Return what is new since the last look, in the order in which it came."""
        began = time.monotonic()
        found = [*self._changed(inbox.waiting_rows(self._logs))]
        if self._unserved:
            now_us = self._logs.clock.now_us() - int(limits.UNSERVED_SECONDS * 1_000_000)
            found += self._changed(row for row in inbox.unserved_rows(self._logs) if row.changed_us <= now_us)
        self._forget(found)
        took = time.monotonic() - began
        self._rest_seconds = max(limits.NOTICE_SECONDS, limits.NOTICE_SHARE * took)
        return sorted((notice for _, notices in found for notice in notices), key=lambda notice: notice.item.since_us)

    @property
    def rest_seconds(self) -> float:
        """The time to rest after the last look."""
        return self._rest_seconds

    def _changed(self, rows: Iterable[Summary]) -> Iterator[tuple[str, list[Notice]]]:
        for row in rows:
            known = self._seen.get(row.id)
            if known is None:
                known = self._seen[row.id] = _Seen()
            known.gone_at = 0.0
            if known.version == _version(row) or self._is_left_alone(row.id):
                yield row.id, []
                continue
            known.version = _version(row)
            yield row.id, self._new(known, row, inbox.items_of_row(self._logs, row))

    def _new(self, known: _Seen, row: Summary, items: Iterable[InboxItem]) -> list[Notice]:
        """Which of a task's entries are new. All of them are known from now on."""
        wanted = [one for one in items if self._kinds is None or one.kind in self._kinds]
        names = [_identity(row, one) for one in wanted]
        given = zip(names, wanted, strict=True)
        new = [pair for pair in given if pair[0] not in known.told and pair[1].since_us > known.before_us]
        known.told = {*names}
        return [Notice(_id(self._logs, row, name), item) for name, item in new]

    def _forget(self, found: list[tuple[str, list[Notice]]]) -> None:
        """Forget tasks that stopped waiting long ago: one that waits again for the same thing is not reported again."""
        now = time.monotonic()
        for id in self._seen.keys() - {id for id, _ in found}:
            known = self._seen[id]
            known.gone_at = known.gone_at or now
            if now - known.gone_at > limits.NOTICE_KEPT_SECONDS:
                del self._seen[id]


class InboxFollow:
    """The entries of the inbox: those that are there, then each new one as it comes. Also `async for`."""

    def __init__(self, logs: Logs, seconds: float | None) -> None:
        self._watch = InboxWatch(logs, unserved=True)
        self._until = None if seconds is None else time.monotonic() + seconds

    def __iter__(self) -> Iterator[InboxItem]:
        while True:
            yield from (notice.item for notice in self._watch.look())
            left = self._left()
            if left <= 0:
                return
            time.sleep(min(left, self._watch.rest_seconds))

    async def __aiter__(self) -> AsyncIterator[InboxItem]:
        import asyncio

        while True:
            for notice in await asyncio.to_thread(self._watch.look):
                yield notice.item
            left = self._left()
            if left <= 0:
                return
            await asyncio.sleep(min(left, self._watch.rest_seconds))

    def _left(self) -> float:
        return float("inf") if self._until is None else self._until - time.monotonic()


def _version(row: Summary) -> Version:
    return row.changed_us, row.claims


def _identity(row: Summary, item: InboxItem) -> Identity:
    """A question is the same while it is open, a budget while its numbers are; a task is quarantined once a claim."""
    match item.kind:
        case "question" | "approval" | "doubt":
            more: Identity = (item.since_us, item.bound)
        case "budget":
            more = (item.owner, item.used, item.of, item.ahead)
        case "blocked":
            more = (item.owner,)
        case _:
            more = (row.claims,)
    return item.kind, item.key, *more


def _id(logs: Logs, row: Summary, name: Identity) -> str:
    """An entry's id, the same in all processes, so that a receiver can drop a second copy."""
    parts = (logs.identity.id, row.namespace, row.id, *map(repr, name))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

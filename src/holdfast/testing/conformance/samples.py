"""Small records for the tests of a store."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from holdfast.core import codec, events as ev
from holdfast.core.codec import Group, Head, Origin, Summary, UniqueKey, Write
from holdfast.core.events import Event
from holdfast.core.state.summary import summarise
from holdfast.store.protocol import Placed, Store
from holdfast.store.queues import Claim, ClaimRequest, Due

Opener = Callable[[], Store]
AT = 1_700_000_000_000_000


class SampleCrash(BaseException):
    """The process dies here."""


def crash_at(point: str) -> Callable[[str], None]:
    """Die at a failpoint."""

    def crash(name: str) -> None:
        if name == point:
            raise SampleCrash

    return crash


def draft(*events: Event, at_us: int = AT) -> tuple[Any, ...]:
    """Events ready to be written."""
    return tuple(codec.draft(event, at_us)[0] for event in events)


def created(
    log: str, *, at_us: int = AT, origin: Origin | None = None, start: Head | None = None, **fields: Any
) -> Write:
    """The first write of a task."""
    event = ev.TaskCreated(agent=fields.pop("agent", "tester"), **fields)
    summary = summarise(None, log, event, at_us)
    return Write(log, draft(event, at_us=at_us), start or Head(0, codec.genesis(log)), origin or Origin(), summary)


def group(*writes: Write, unique_keys: tuple[UniqueKey, ...] = (), freed_keys: tuple[str, ...] = ()) -> Group:
    """Writes that belong together."""
    return Group(writes, unique_keys, freed_keys)


def note(text: str) -> Event:
    """Any small event."""
    return ev.LogWritten(text=text)


def ok(outcome: object) -> tuple[Placed, ...]:
    """The places of a group that was written."""
    assert isinstance(outcome, tuple), outcome
    return outcome  # pyright: ignore[reportUnknownVariableType]


def summary_of(store: Store, log: str) -> Summary:
    """A task's row, which must be there."""
    found = store.summary(log)
    assert found is not None
    return found


def head_of(store: Store, log: str) -> Head:
    """A log's head, which must be there."""
    found = store.head(log)
    assert found is not None
    return found


def check_chain(store: Store, log: str) -> list[str]:
    """The kinds of a log, if every digest follows from the one before."""
    before = codec.genesis(log)
    rows = store.read(log)
    for seq, row in enumerate(rows, start=1):
        before = codec.chain(before, seq, row.kind, row.at_us, row.body_hash)
        assert (row.seq, row.digest) == (seq, before)
    assert head_of(store, log).digest == before
    return [row.kind for row in rows]


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    """Return whether something comes to hold within a time."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def add(store: Store, log: str, namespace: str = "", **fields: Any) -> None:
    """A new task; `start_us` is when it may begin."""
    write = created(log, **fields)
    assert write.summary is not None
    ok(store.append([group(replace(write, summary=replace(write.summary, namespace=namespace)))])[0])


def then(store: Store, log: str, *events: Event) -> None:
    """Write the next event of a task, with its row."""
    row = summary_of(store, log)
    for event in events:
        row = summarise(row, log, event, AT)
    ok(store.append([group(Write(log, draft(*events), summary=row))])[0])


def take(store: Store) -> Claim:
    """Take whatever is offered, in the name of a store."""
    holder = store.holder()

    def claim(due: Due) -> Write:
        event = ev.TaskClaimed(holder=holder, lease_seconds=store.lease_seconds)
        row = summarise(due.summary, due.summary.id, event, AT)
        return Write(due.summary.id, draft(event), due.head, summary=row)

    return claim


def leave(due: Due) -> None:
    """Take nothing."""


def wanted(**fields: Any) -> ClaimRequest:
    """Return the query of most tests."""
    usual: dict[str, Any] = {"queue": "default", "served": (("tester", ""),), "limit": 100, "now_us": AT}
    return ClaimRequest(**usual | fields)


def claim(store: Store, **fields: Any) -> list[str]:
    """Take what there is."""
    return list(store.queues.claim(wanted(**fields), take(store)))

"""What the conformance suite and other tests put into queues, and how they take it out."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.core import events as ev
from holdfast.core.codec import Write
from holdfast.core.events import Event
from holdfast.core.state.summary import summarise
from holdfast.store.protocol import Store
from holdfast.store.queues import Claim, Due, Wanted
from holdfast.testing.conformance.samples import AT, created, draft, group, ok, summary_of


def add(store: Store, log: str, namespace: str = "", **fields: Any) -> None:
    """A new task; `start_us` is when it may begin."""
    write = created(log, **fields)
    assert write.summary is not None
    ok(store.append([group(replace(write, summary=replace(write.summary, namespace=namespace)))])[0])


def then(store: Store, log: str, *events: Event) -> None:
    """What happens to a task next, with its row."""
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


def wanted(**fields: Any) -> Wanted:
    """What most tests look for."""
    usual: dict[str, Any] = {"queue": "default", "served": (("tester", ""),), "limit": 100, "now_us": AT}
    return Wanted(**usual | fields)


def claim(store: Store, **fields: Any) -> list[str]:
    """Take what there is."""
    return list(store.queues.claim(wanted(**fields), take(store)))

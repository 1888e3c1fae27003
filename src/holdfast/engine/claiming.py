"""Taking tasks: what a worker asks its store for, queue by queue and tenant by tenant.

Tenants share a worker's free places evenly, in an order that moves on with every round, so that one with a thousand
tasks does not keep another's waiting. What one does not use, others get.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from msgspec.structs import replace

from holdfast.core import codec, names
from holdfast.core.errors import StoreError
from holdfast.core.events import Pins, TaskClaimed
from holdfast.core.records import Summary, Write
from holdfast.core.summary import summarise
from holdfast.engine.chance import chance
from holdfast.engine.log import Logs
from holdfast.engine.queue import Queue
from holdfast.engine.workshop import Workshop
from holdfast.failpoints import failpoint
from holdfast.store.queues import Due, Wanted

Taken = Literal["", "dead", "lease"]
Lost = dict[str, Literal["dead", "lease"]]
Shops = Callable[[str], Workshop]
Place = tuple[str, str]
"""A tenant and one of its tasks."""

LOST_SECONDS = 0.3
"""How often a worker looks whether somebody's tasks are orphaned."""

SWEEP_SECONDS = 5.0
"""How often it looks for tasks that it holds and does not work on: the answer to a claim may have been lost."""

TENANTS_SECONDS = 1.0
"""How often it looks which tenants there are, if it works for all of them."""


class Claiming:
    """Asks for tasks."""

    def __init__(
        self,
        shops: Shops,
        queues: Sequence[Queue],
        served: tuple[tuple[str, str], ...],
        namespaces: Sequence[str] | None,
        ours: set[Place],
    ) -> None:
        """`namespaces` are the tenants worked for, None all; `ours` is what workers of this store are at, in here."""
        self._shops = shops
        self._ours = ours
        self._queues = queues
        self._served = served
        self._namespaces = None if namespaces is None else list(namespaces)
        self._tenants: list[str] = []
        self._tenants_at = self._lost_at = self._sweep_at = 0.0
        self._turn = 0

    def round(self, free: int) -> Iterator[tuple[str, str, Taken]]:
        """Take up to so many tasks: of which tenant, which one, and how it was taken from another, if it was."""
        tenants = self._tenants_now()
        self._turn += 1
        shift = self._turn % len(tenants) if tenants else 0
        order = [(tenant, queue) for tenant in tenants[shift:] + tenants[:shift] for queue in self._queues]
        lost = self._lost_now()
        for share in (max(1, free // max(1, len(order))), free):
            for tenant, queue in order:
                if free <= 0:
                    return
                for name, taken in self._claim(tenant, queue, min(share, free), lost):
                    free -= 1
                    yield tenant, name, taken
            if len(order) < 2:
                return

    @property
    def rest_seconds(self) -> float:
        """How long until somebody has to be looked after, if nothing is heard."""
        return max(0.0, min(self._lost_at, self._sweep_at) - time.monotonic())

    def wake_us(self) -> int | None:
        """When the next task that waits for a time is due."""
        found = [
            self._shops(tenant).logs.store.queues.next_wake(tenant, [queue.name for queue in self._queues])
            for tenant in self._tenants
        ]
        return min((wake for wake in found if wake is not None), default=None)

    def _tenants_now(self) -> list[str]:
        if self._namespaces is not None:
            self._tenants = self._namespaces
        elif time.monotonic() >= self._tenants_at:
            self._tenants_at = time.monotonic() + TENANTS_SECONDS
            self._tenants = sorted({one.namespace for one in self._shops("").logs.store.queues.depths()})
        return self._tenants

    def _lost_now(self) -> Lost:
        """Holders whose tasks may be taken; now and then our own among them, for what we do not work on."""
        now, lost = time.monotonic(), Lost()
        store = self._shops("" if self._namespaces is None else self._namespaces[0]).logs.store
        if now >= self._lost_at:
            self._lost_at = now + LOST_SECONDS
            lost = store.queues.lost()
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_SECONDS
            lost[store.holder()] = "dead"
        return lost

    def _claim(self, tenant: str, queue: Queue, limit: int, lost: Lost) -> list[tuple[str, Taken]]:
        logs = self._shops(tenant).logs
        taken: dict[str, Taken] = {}
        lonely: list[Summary] = []

        def claim(due: Due) -> Write | None:
            summary = due.summary
            if self._is_ours(tenant, summary.id):
                return None  # also if another took it meanwhile: who is at it here has yet to notice
            pins = _pins(logs, summary) if summary.claims == 0 else NOTHING
            if pins is None:
                lonely.append(summary)
                return None
            taken[summary.id] = lost.get(summary.holder or "", "") if summary.status == "running" else ""
            self._ours.add((tenant, summary.id))
            return _write(logs, due, taken[summary.id], pins)

        wanted = Wanted(
            queue=queue.name,
            namespace=tenant,
            served=self._served,
            limit=limit,
            now_us=logs.clock.now_us(),
            lost=tuple(lost),
            concurrency=queue.concurrency,
            per_key=queue.per_key,
            rate=queue.as_rate(),
        )
        claimed: list[str] = []
        failpoint("claim.before")
        try:
            claimed = logs.store.queues.claim(wanted, claim)
        finally:
            self._ours.difference_update((tenant, name) for name in taken.keys() - set(claimed))
        failpoint("claim.after")
        with contextlib.suppress(StoreError):  # what was taken must be known; the next round tries again
            for summary in lonely:
                logs.pins(summary.user, summary.thread)  # begins what they look at; the next round takes them
        return [(name, taken[name]) for name in claimed]

    def _is_ours(self, tenant: str, name: str) -> bool:
        return (tenant, name) in self._ours or self._shops(tenant).busy.has(name)


NOTHING = Pins()


def _write(logs: Logs, due: Due, taken: Taken, pins: Pins) -> Write:
    """The claim of a task that is due."""
    summary, store = due.summary, logs.store
    event = TaskClaimed(
        holder=store.holder(),
        lease_seconds=store.lease_seconds,
        pins=None if pins is NOTHING else pins,
        taken=taken,
    )
    at_us = logs.clock.now_us()
    draft, _ = codec.draft(replace(event, nonce=chance(8)) if summary.user is not None else event, at_us, "")
    return Write(summary.id, (draft,), due.head, summary=summarise(summary, summary.id, event, at_us))


def _pins(logs: Logs, summary: Summary) -> Pins | None:
    """How far its user's and its thread's logs have come; None if they have to be begun first."""
    if summary.user is None and summary.thread is None:
        return NOTHING
    user = None if summary.user is None else logs.store.head(names.user_log(summary.user))
    thread = None if summary.thread is None else logs.store.head(names.thread_log(summary.thread))
    if (summary.user is not None and user is None) or (summary.thread is not None and thread is None):
        return None
    return Pins(0 if user is None else user.seq, 0 if thread is None else thread.seq)

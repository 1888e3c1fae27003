"""From the committing thread into an event loop, once for a whole batch."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from typing import Protocol, cast

from holdfast.core.codec import Group
from holdfast.engine.logs.committer import Committer, Ticket, placed_of
from holdfast.store.protocol import Placed


class CommitWaiter(Protocol):
    """Who waits for a ticket on an event loop."""

    def batch_committed(self, ticket: Ticket) -> None: ...


class LoopDelivery:
    """Brings settled tickets into an event loop, each to its CommitWaiter.

    It does not keep the loop: it is kept itself for as long as the loop lives.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)

    def __call__(self, tickets: Sequence[Ticket]) -> None:
        loop = self._loop()
        try:
            if loop is not None:
                loop.call_soon_threadsafe(_deliver_all, tickets)
        except RuntimeError:
            return  # the loop is closed; what was written is in the log


def _deliver_all(tickets: Sequence[Ticket]) -> None:
    for ticket in tickets:
        cast("CommitWaiter", ticket.waiter).batch_committed(ticket)


_hops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopDelivery] = weakref.WeakKeyDictionary()


def delivery_to(loop: asyncio.AbstractEventLoop) -> LoopDelivery:
    """The way into this loop."""
    hop = _hops.get(loop)
    if hop is None:
        hop = _hops[loop] = LoopDelivery(loop)
    return hop


class LoopCommits:
    """Commits from one event loop, without ever blocking it."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._loop = asyncio.get_running_loop()
        self._hop = delivery_to(self._loop)

    async def commit(self, group: Group) -> tuple[Placed, ...]:
        """Write a group: here if no wait is needed, else with whatever else is queued by then."""
        outcome = self._committer.commit_at_once(group)
        if outcome is not None:
            return placed_of(outcome)
        settled: asyncio.Future[tuple[Placed, ...]] = self._loop.create_future()
        self._committer.submit(group, self._hop, _Settling(settled))
        return await settled


class _Settling:
    def __init__(self, future: asyncio.Future[tuple[Placed, ...]]) -> None:
        self._future = future

    def batch_committed(self, ticket: Ticket) -> None:
        if self._future.done():
            return
        try:
            self._future.set_result(ticket.result())
        except Exception as error:  # noqa: BLE001 — whatever it is belongs to the one who waits
            self._future.set_exception(error)

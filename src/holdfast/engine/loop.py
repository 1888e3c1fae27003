"""Commits from an event loop: the only place that awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from holdfast.core.records import Group
from holdfast.engine.commit import Committer, Ticket
from holdfast.store.protocol import Placed


class LoopCommits:
    """Commits from one event loop, without ever blocking it."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._loop = asyncio.get_running_loop()

    async def commit(self, group: Group) -> tuple[Placed, ...]:
        """Write a group together with whatever else is queued by then."""
        settled: asyncio.Future[tuple[Placed, ...]] = self._loop.create_future()
        self._committer.submit(group, self._resolve, settled)
        return await settled

    def _resolve(self, tickets: Sequence[Ticket]) -> None:
        """One hop into the loop for a whole batch."""
        self._loop.call_soon_threadsafe(_settle, tickets)


def _settle(tickets: Sequence[Ticket]) -> None:
    for ticket in tickets:
        future = cast("asyncio.Future[tuple[Placed, ...]]", ticket.waiter)
        if future.done():
            continue
        try:
            future.set_result(ticket.result())
        except Exception as error:  # noqa: BLE001 — whatever it is belongs to the one who waits
            future.set_exception(error)

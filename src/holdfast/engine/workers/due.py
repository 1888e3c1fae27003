"""Tasks that are due and that no process works on: what a dispatcher of others is to be told of.

The store is asked as a worker asks it, so queues, priorities, times and lost workers count the same; nothing is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.core.errors import InvalidValue
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.definitions.queue import Queue
from holdfast.engine.dispatch.dispatcher import Dispatcher
from holdfast.store.queues import ClaimRequest, Due


def due(
    dispatcher: Dispatcher,
    agents: Sequence[Agent] | None,
    queues: Sequence[Queue],
    tenants: Sequence[str] | None,
    most: int,
) -> dict[str, int]:
    """Return up to `most` tasks that could be taken now, each with the seq of its last event.

    `agents` None are those the dispatcher knows, `tenants` None are all there are. Each tenant and queue gets its share
    of `most`; what one does not use, others get.
    """
    at_least_one(most, "limit")
    known = dispatcher.agents.values() if agents is None else dispatcher.register_all(agents)
    served = tuple((agent.name, version) for agent in known for version in agent.accepts)
    if not served:
        raise InvalidValue("no agents are given, so no task is due", hint="give agents=, or open(…, agents=[…])")
    ours, now_us = dispatcher.logs.store.queues, dispatcher.logs.clock.now_us()
    lost, names = tuple(ours.lost()), [queue.name for queue in queues]
    whose = ours.tenants(names, now_us, lost) if tenants is None else tenants
    order = [(tenant, queue) for tenant in whose for queue in queues]
    found: dict[str, int] = {}
    counts = dict.fromkeys(order, 0)
    for share in (max(1, most // max(1, len(order))), most):
        for tenant, queue in order:
            before = len(found)
            if before >= most:
                return found
            limit = min(share, counts[tenant, queue] + most - before)  # what was found before is found again
            ours.claim(
                ClaimRequest(
                    queue=queue.name,
                    namespace=tenant,
                    served=served,
                    limit=limit,
                    now_us=now_us,
                    lost=lost,
                    concurrency=queue.concurrency,
                    per_key=queue.per_key,
                    rate=queue.as_rate(),
                ),
                _into(found),
            )
            counts[tenant, queue] += len(found) - before
        if len(order) < 2:
            break
    return found


def _into(found: dict[str, int]) -> Callable[[Due], None]:
    """Note what is due, and take none of it."""

    def note(due: Due) -> None:
        found[due.summary.id] = due.head.seq

    return note


def at_least_one(value: int, what: str) -> int:
    """Return a number that must be 1 or more, or refuse it."""
    if not isinstance(value, int) or value < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"{what}={value!r} lets nothing happen", hint="give 1 or more")
    return value

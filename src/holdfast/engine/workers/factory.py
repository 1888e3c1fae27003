"""From an app to its worker: which tenants it works for, and how its schedules start tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from holdfast.core.errors import InvalidValue, TaskCollected, TaskExists
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.definitions.queue import Queue
from holdfast.engine.dispatch import begin
from holdfast.engine.dispatch.dispatcher import Workshop
from holdfast.engine.logs.log import Logs
from holdfast.engine.workers.schedule import Schedule
from holdfast.engine.workers.worker import Plan, Worker
from holdfast.store.tenants import Tenant

if TYPE_CHECKING:
    from holdfast.engine.app import App


def worker(
    app: App,
    shop: Workshop,
    agents: Sequence[Agent] | None,
    queues: Sequence[Queue],
    namespaces: Sequence[str] | Literal["*"] | None,
    given: dict[str, Any],
) -> Worker:
    """A worker of an app."""
    if isinstance(agents, Agent):
        raise InvalidValue(f"agents={agents!r} is one agent", hint="give a list: app.worker([agent])")
    known = tuple(shop.agents.values()) if agents is None else tuple(shop.know(agent) for agent in agents)
    tenants = _tenants(app.namespace, namespaces)
    plan = Plan(agents=known, queues=tuple(queues), namespaces=tenants, **given)
    for schedule in plan.schedules:
        if schedule.agent.name not in {agent.name for agent in known}:
            raise InvalidValue(
                f"{schedule!r} starts tasks of agent {schedule.agent.name!r}, which this worker does not know",
                hint="give it to the worker too",
            )
        _ = app.queues[schedule.given.get("queue", "default")]
        begin.first(shop, schedule.name, schedule.agent, schedule.input, dict(schedule.given))  # now, not at eight

    def shops(namespace: str) -> Workshop:
        if namespace == app.namespace:
            return shop
        found = shop.tenants.get(namespace)
        made = found or Workshop(Logs(Tenant(app.store, namespace), app.clock), None, shop.prices)
        return shop.tenants.setdefault(namespace, made)

    def start(schedule: Schedule, id: str) -> bool:
        try:
            app.start(schedule.agent, schedule.input, id=id, **schedule.given)
        except (TaskExists, TaskCollected):
            return False
        return True

    return Worker(shops, start, plan)


def _tenants(own: str, wanted: Sequence[str] | Literal["*"] | None) -> tuple[str, ...] | None:
    if wanted is None:
        return (own,)
    if own:
        raise InvalidValue(
            f"a worker of namespace {own!r} works for that one alone", hint="open the store without a namespace"
        )
    if wanted == "*":
        return None
    if isinstance(wanted, str) or not wanted:
        raise InvalidValue(f"namespaces={wanted!r} is not a list of names", hint='give ["a", "b"], or "*" for all')
    return tuple(wanted)

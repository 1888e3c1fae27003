"""From an app to its worker: which tenants it works for, and how its schedules start tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from holdfast.core import names
from holdfast.core.errors import InvalidValue, TaskCollected, TaskExists
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.definitions.queue import DeclaredQueues, Queue
from holdfast.engine.dispatch.dispatcher import Dispatcher
from holdfast.engine.logs.logs import Logs
from holdfast.engine.workers.schedule import Schedule
from holdfast.engine.workers.upkeep import Retention
from holdfast.engine.workers.worker import Plan, Worker
from holdfast.store.tenants import Tenant


def worker(
    dispatcher: Dispatcher,
    known_queues: DeclaredQueues,
    namespace: str,
    agents: Sequence[Agent] | None,
    *,
    queues: Sequence[str | Queue] | None,
    namespaces: Sequence[str] | Literal["*"] | None,
    concurrency: int,
    schedules: Sequence[Schedule],
    max_deaths: int,
    gc: Retention | None,
    name: str,
) -> Worker:
    """A worker over the store of `dispatcher`, whose own tenant is `namespace`."""
    known = tuple(dispatcher.agents.values()) if agents is None else tuple(dispatcher.register_all(agents))
    plan = Plan(
        agents=known,
        queues=tuple(known_queues.named(queues)),
        namespaces=tenants(namespace, namespaces),
        concurrency=concurrency,
        schedules=tuple(schedules),
        max_deaths=max_deaths,
        gc=gc,
        name=names.text(name, "name"),
    )
    for schedule in plan.schedules:
        _check(schedule, dispatcher, known, known_queues)

    def dispatchers(tenant: str) -> Dispatcher:
        return dispatcher_of(dispatcher, namespace, tenant)

    def start(schedule: Schedule, id: str) -> bool:
        log = names.task_log(id)
        known_queues.admit(dispatcher.logs.store, namespace, schedule.options.queue)
        try:
            dispatcher.begin(log, *dispatcher.first_events(log, schedule.agent, schedule.input, schedule.options))
        except (TaskExists, TaskCollected):
            return False
        return True

    return Worker(dispatchers, start, plan, dispatcher.logs)


def _check(schedule: Schedule, dispatcher: Dispatcher, known: Sequence[Agent], queues: DeclaredQueues) -> None:
    """Refuse now, and not when its time comes, a schedule that could start nothing."""
    if schedule.agent.name not in {agent.name for agent in known}:
        raise InvalidValue(
            f"{schedule!r} starts tasks of agent {schedule.agent.name!r}, which this worker does not know",
            hint="give it to the worker too",
        )
    _ = queues[schedule.options.queue]
    dispatcher.first_events(schedule.name, schedule.agent, schedule.input, schedule.options)


def dispatcher_of(own: Dispatcher, namespace: str, tenant: str) -> Dispatcher:
    """Return the dispatcher of a tenant; `own` is that of `namespace`."""
    if tenant == namespace:
        return own
    return own.tenants.get(tenant) or own.tenants.setdefault(tenant, _of_tenant(own, tenant))


def _of_tenant(dispatcher: Dispatcher, namespace: str) -> Dispatcher:
    logs = dispatcher.logs
    own = Logs(Tenant(logs.store, namespace), logs.clock, on_lost=logs.on_lost)
    own.committer.observers, own.committer.tenant = logs.committer.observers, namespace
    if logs.committer.record is not None:
        own.committer.time_commits(logs.committer.record)
    return Dispatcher(own, dispatcher.prices)


def tenants(own: str, wanted: Sequence[str] | Literal["*"] | None) -> tuple[str, ...] | None:
    """Return the tenants to work for: its own, those named, or all (None)."""
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

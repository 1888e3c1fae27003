"""Whether anything is left for a worker to do."""

from __future__ import annotations

from holdfast.engine.workers.worker import Worker
from holdfast.store.protocol import Store
from holdfast.store.queues import Due, Wanted


def is_idle(store: Store, worker: Worker, now_us: int) -> bool:
    """Whether no task that it could take is ready, and none of its queues is being worked on.

    What only others could take is none of its business: tasks of agents, versions and tenants it does not serve.
    """
    return not worker.busy and not _is_due(store, worker, now_us) and not _is_running(store, worker)


def _is_due(store: Store, worker: Worker, now_us: int) -> bool:
    """Whether a task could be taken, if it were not for the limits of queues. Nothing is."""
    plan, found = worker.plan, list[Due]()
    names = [queue.name for queue in plan.queues]
    served = tuple((agent.name, version) for agent in plan.agents for version in agent.accepts)
    for tenant in store.queues.tenants(names, now_us) if plan.namespaces is None else plan.namespaces:
        for name in names:
            wanted = Wanted(queue=name, namespace=tenant, served=served, limit=1, now_us=now_us)
            store.queues.claim(wanted, found.append)
            if found:
                return True
    return False


def _is_running(store: Store, worker: Worker) -> bool:
    plan = worker.plan
    tenants, names = plan.namespaces, {queue.name for queue in plan.queues}
    depths = store.queues.depths(tenants[0] if tenants is not None and len(tenants) == 1 else None)
    mine = (one for one in depths if one.queue in names and (tenants is None or one.namespace in tenants))
    return any(one.running for one in mine)

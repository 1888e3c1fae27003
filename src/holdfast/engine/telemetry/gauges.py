"""Numbers of the store as they are now: tasks by status, queues, waits and their ages, calls in doubt."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from holdfast.core import limits
from holdfast.engine.logs.logs import Logs
from holdfast.engine.telemetry.instruments import Gauge, Metric
from holdfast.store.queues import QueueDepth


class StoreGauges:
    """Asks the store, at most so often. From any thread.

    `tenants` are those that are asked for; None: every one, or that of the app.
    """

    def __init__(self, logs: Logs, tenants: Collection[str] | None = None) -> None:
        self._logs, self._tenants = logs, tenants
        self._lock = threading.Lock()
        self._fresh_until = 0.0
        self._known: tuple[list[QueueDepth], list[Metric]] = ([], [])

    def read(self) -> list[Metric]:
        """Return the gauges; raises StoreError if the store can't be reached."""
        return self._seen()[1]

    def depths(self) -> list[QueueDepth]:
        """Return the depth of the queues, as old as the gauges are."""
        return self._seen()[0]

    def _seen(self) -> tuple[list[QueueDepth], list[Metric]]:
        with self._lock:
            began = time.monotonic()
            if began >= self._fresh_until:
                self._known = self._asked()
                took = time.monotonic() - began
                self._fresh_until = time.monotonic() + max(limits.GAUGES_SECONDS, limits.GAUGES_SHARE * took)
            return self._known

    def _asked(self) -> tuple[list[QueueDepth], list[Metric]]:
        store, now_us = self._logs.store, self._logs.clock.now_us()
        only = next(iter(self._tenants)) if self._tenants is not None and len(self._tenants) == 1 else None
        statuses = Gauge("holdfast.tasks", "{task}", "tasks by status")
        doubts = Gauge("holdfast.calls.in_doubt", "{task}", "tasks with a call in doubt")
        depth = Gauge("holdfast.queue.depth", "{task}", "tasks of a queue: ready, running, or waiting for a time")
        waits = Gauge("holdfast.waits", "{task}", "tasks that wait, by what for; person: approvals and questions")
        ages = Gauge("holdfast.waits.age", "s", "how long the oldest of them has waited; ready: for a worker")
        counts = store.counts(only)
        for status in _STATUSES:
            statuses.set(counts.by_status.get(status, 0), status=status)
        doubts.set(counts.in_doubt)
        depths = [one for one in store.queues.depths(only) if self._is_asked_for(one.namespace)]
        for one in depths:
            for state in ("ready", "running", "timed"):
                depth.set(getattr(one, state), namespace=one.namespace, queue=one.queue, state=state)
        for one in store.queues.waits(only):
            if self._is_asked_for(one.namespace):
                place = {"namespace": one.namespace, "queue": one.queue, "kind": one.kind}
                waits.set(one.tasks, **place)
                ages.set(max(0, now_us - one.oldest_us) / 1_000_000, **place)
        return depths, [statuses, doubts, depth, waits, ages]

    def _is_asked_for(self, namespace: str) -> bool:
        return self._tenants is None or namespace in self._tenants


_STATUSES = ("pending", "running", "waiting", "completed", "failed", "cancelled")

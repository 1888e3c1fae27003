"""The announcements of workers, and the reason why no worker takes a task."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import codec, cron, limits
from holdfast.core.codec import Summary
from holdfast.core.errors import InvalidValue, StoreError
from holdfast.core.names import NAMESPACE_END
from holdfast.engine.definitions.queue import Queue
from holdfast.store.protocol import Query, Store

NO_WORKER = "no worker is running"


class Scheduled(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule that a worker serves: when tasks of an agent begin."""

    name: str
    agent: str
    when: str
    zone: str = "UTC"
    queue: str = "default"
    namespace: str = ""

    def next_us(self, now_us: int) -> int | None:
        """When the next task begins; None if this process does not know the time zone."""
        try:
            return cron.times(self.when, self.zone).next(now_us, cron.zone_of(self.zone))
        except InvalidValue:
            return None


class Serving(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker says of itself."""

    name: str
    host: str = ""
    pid: int = 0
    agents: dict[str, tuple[str, ...]] = {}
    queues: tuple[str, ...] = ()
    namespaces: tuple[str, ...] | None = ("",)
    concurrency: int = 0
    started_us: int = 0
    abandoned: tuple[str, ...] = ()
    """Abandoned threads of its process that still run: the task of each, and the step if there is one."""
    clogged: bool = False
    """Whether it takes no more tasks until some of them end."""
    limits: tuple[Queue, ...] = ()
    """The queues that it limits."""
    schedules: tuple[Scheduled, ...] = ()

    def serves(self, namespace: str) -> bool:
        """Return whether it works for that tenant."""
        return self.namespaces is None or namespace in self.namespaces


class LiveWorker(Struct, frozen=True):
    """A living worker, as it is known to others."""

    holder: str
    serving: Serving
    busy: int = 0
    """How many tasks its process holds now."""


_here: dict[str, list[Serving]] = {}
_lock = threading.Lock()


class Announcement:
    """Lets others know of a worker, for as long as it lasts.

    Workers of one store object share one name and one row.
    """

    def __init__(self, store: Store, serving: Serving) -> None:
        self._store, self._serving = store, serving

    def __enter__(self) -> Self:
        with _lock:
            _say(self._store, [*self._others(), self._serving])
        return self

    def __exit__(self, *raised: object) -> None:
        with _lock, contextlib.suppress(StoreError):  # a dead worker's lock is gone with it
            _say(self._store, self._others())

    def tell_abandoned(self, threads: tuple[str, ...], *, clogged: bool) -> None:
        """Let others know which abandoned threads still run, if that has changed, and whether they are too many."""
        if (threads, clogged) != (self._serving.abandoned, self._serving.clogged):
            with _lock:
                others = self._others()
                self._serving = replace(self._serving, abandoned=threads, clogged=clogged)
                _say(self._store, [*others, self._serving])

    def _others(self) -> list[Serving]:
        return [one for one in _here.get(self._store.holder(), []) if one is not self._serving]


def _say(store: Store, servings: list[Serving]) -> None:
    _here[store.holder()] = servings
    store.queues.announce(codec.dump(servings).decode() if servings else "")


def live_workers(store: Store) -> list[LiveWorker]:
    """Every living worker. What a later version says of itself in another way is passed over."""
    found: list[LiveWorker] = []
    for one in store.queues.announced():
        with contextlib.suppress(ValueError):
            found += [LiveWorker(one.holder, serving) for serving in codec.load(one.serves.encode(), list[Serving])]
    return found


def workers_of(store: Store, namespace: str) -> list[LiveWorker]:
    """Workers that work for a tenant. Whom else they work for is nothing to it; to the store's owner it is."""
    found = [one for one in live_workers(store) if one.serving.serves(namespace)]
    busy = _busy(store, namespace) if found else {}
    found = [replace(one, busy=busy.get(one.holder, 0)) for one in found]
    return [replace(one, serving=_shown(one.serving, namespace)) for one in found] if namespace else found


def _shown(serving: Serving, namespace: str) -> Serving:
    """Return a worker as its tenant sees it."""
    own = namespace + NAMESPACE_END
    abandoned = tuple(one.removeprefix(own) for one in serving.abandoned if one.startswith(own))
    schedules = tuple(one for one in serving.schedules if one.namespace == namespace)
    return replace(serving, namespaces=(namespace,), abandoned=abandoned, schedules=schedules)


def _busy(store: Store, namespace: str) -> dict[str, int]:
    """Count the tasks of each worker: of all tenants, if the store was opened for none."""
    counts: dict[str, int] = {}
    for tenant in {one.namespace for one in store.queues.depths(namespace or None) if one.running}:
        after: str | None = None
        while page := store.list(Query(status="running", namespace=tenant, after=after, limit=limits.MAX_PAGE_SIZE)):
            for row in page:
                counts[row.holder or ""] = counts.get(row.holder or "", 0) + 1
            after = page[-1].id
    return counts


def why_unserved(summary: Summary, store: Store) -> str | None:
    """Why no living worker will take a task; None if one will."""
    return why_none_of(live_workers(store), summary)


def why_none_of(workers: Iterable[LiveWorker], summary: Summary) -> str | None:
    """Why none of these workers will take a task; None if one will."""
    here = [one.serving for one in workers if one.serving.serves(summary.namespace)]
    if not here:
        return NO_WORKER + "; start one: holdfast worker FILE, or app.worker([…]).run()"
    of_queue = [one for one in here if summary.queue in one.queues]
    if not of_queue:
        served = ", ".join(sorted({repr(queue) for one in here for queue in one.queues}))
        return f"no worker serves queue {summary.queue!r}; workers serve {served}"
    of_agent = [one for one in of_queue if summary.agent in one.agents]
    if not of_agent:
        served = ", ".join(sorted({repr(agent) for one in of_queue for agent in one.agents}))
        return f"no worker of queue {summary.queue!r} knows agent {summary.agent!r}; they know {served}"
    of_version = [one for one in of_agent if summary.version in one.agents[summary.agent]]
    if not of_version:
        served = ", ".join(sorted({repr(v) for one in of_agent for v in one.agents[summary.agent] if v}))
        return (
            f"it was begun by version {summary.version!r} of agent {summary.agent!r}; workers have {served or 'none'}. "
            "Start one of that version, or declare: @agent(accepts=[…])"
        )
    if all(one.clogged for one in of_version):
        named = ", ".join(sorted(one.name for one in of_version))
        return (
            f"too many abandoned threads still run in {named}, which takes no more tasks until some of them end. "
            "Start another worker, or restart it. The tasks are named by: holdfast doctor"
        )
    return None

"""Taking tasks: what a worker asks its store for, queue by queue and tenant by tenant.

Tenants share a worker's free places evenly, in an order that moves on with every round, so that one with a thousand
tasks does not keep another's waiting. What one does not use, others get.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import codec, names
from holdfast.core.codec import Stored, Summary, Write
from holdfast.core.events import Pins, TaskClaimed
from holdfast.core.state.summary import summarise
from holdfast.engine.definitions.queue import Queue
from holdfast.engine.dispatch.dispatcher import Dispatcher
from holdfast.engine.logs.logs import Logs
from holdfast.engine.system.entropy import random_hex
from holdfast.failpoints import failpoint
from holdfast.store.protocol import Placed
from holdfast.store.queues import ClaimRequest, Due, Loss

TakenFrom = Literal["", "proven", "presumed"]
Lost = dict[str, Loss]
Dispatchers = Callable[[str], Dispatcher]

IDLE_SECONDS = 1.0
"""How long a worker waits before it looks for tasks although it heard of none."""

LOST_SECONDS = 0.3
"""How often a worker looks for orphaned tasks."""

SWEEP_SECONDS = 5.0
"""How often it looks for tasks that it holds and does not work on: the answer to a claim may have been lost."""

TENANTS_SHARE = 20
"""A worker for all tenants looks which of them have something to do, then not for so many times as long as it took."""


class Claimed(Struct, frozen=True):
    """A task that was taken: of which tenant, how it was taken from another if it was, its log if that came along."""

    namespace: str
    name: str
    taken: TakenFrom
    rows: list[Stored]


class Claiming:
    """Asks for tasks."""

    def __init__(
        self,
        dispatchers: Dispatchers,
        queues: Sequence[Queue],
        served: tuple[tuple[str, str], ...],
        namespaces: Sequence[str] | None,
        is_ours: Callable[[str, str], bool],
    ) -> None:
        """`namespaces` are the tenants worked for, None all; `is_ours` knows which tasks are being worked on here."""
        self._dispatchers = dispatchers
        self._is_ours = is_ours
        self._queues = queues
        self._served = served
        self._namespaces = None if namespaces is None else list(namespaces)
        self._tenants: list[str] = []
        self._is_stale = False
        self._tenants_at = self._lost_at = self._sweep_at = 0.0
        self._lost: Lost = {}
        self._next_us = 0
        self._turn = 0
        self.left_ours = False
        """True if the last round found a task that can be resumed, but this process is not yet done with it."""

    @property
    def kind(self) -> str:
        """The same for all workers that can take the same tasks."""
        said = repr((sorted(queue.name for queue in self._queues), sorted(self._served), self._namespaces))
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    def look(self, now_us: int, quiet_seconds: float, others_us: list[int]) -> bool:
        """Return whether to look for tasks although nothing was heard: a worker is lost, or a time has come.

        A look is put off if another worker has just looked, and found that nothing is due for a while.
        """
        self._look_for_lost()
        if self._lost:
            return True
        if now_us >= self._next_us and quiet_seconds and not self.left_ours:
            self._next_us = min((now_us + int(quiet_seconds * 1_000_000), *others_us))
        return now_us >= self._next_us

    def plan_next(self, now_us: int, others_us: list[int]) -> None:
        """Decide when to ask again at the latest: when the next task is due, or something else, or after a while."""
        names = [queue.name for queue in self._queues]
        whose: Sequence[str | None] = [None] if self._namespaces is None else self._namespaces
        found = [self._dispatchers(tenant or "").logs.store.queues.next_wake(tenant, names, now_us) for tenant in whose]
        if self._is_stale:
            found.append(now_us + int((self._tenants_at - time.monotonic()) * 1_000_000))
        if self.left_ours:
            found.append(now_us + 20_000)  # it will be done with in a moment
        idle_us = now_us + int(IDLE_SECONDS * 1_000_000)
        self._next_us = min((idle_us, *others_us, *(wake for wake in found if wake is not None)))

    def round(self, free: int, now_us: int) -> Iterator[list[Claimed]]:
        """Take up to so many tasks, some at a time."""
        self._look_for_lost()
        self.left_ours = False
        tenants = self._tenants_now(now_us)
        self._turn += 1
        shift = self._turn % len(tenants) if tenants else 0
        order = [(tenant, queue) for tenant in tenants[shift:] + tenants[:shift] for queue in self._queues]
        lost, self._lost = self._lost, {}
        for share in (max(1, free // max(1, len(order))), free):
            for tenant, queue in order:
                if free <= 0:
                    return
                claimed = self._claim(tenant, queue, min(share, free), lost, now_us)
                free -= len(claimed)
                yield claimed
            if len(order) < 2:
                return

    @property
    def saw_all(self) -> bool:
        """True if the last round looked at every tenant there is."""
        return not self._is_stale

    def idle_seconds(self, now_us: int) -> float:
        """Return how long until it looks again by itself."""
        return (self._next_us - now_us) / 1_000_000

    def rest_seconds(self, now_us: int) -> float:
        """Return the longest wait until something is due, if nothing is heard."""
        looks = min(self._lost_at, self._sweep_at) - time.monotonic()
        return max(0.0, min(looks, (self._next_us - now_us) / 1_000_000))

    def nothing_left(self, now_us: int) -> bool:
        """Return whether no task that this worker could take is ready, and none of its queues is being worked on.

        Tasks of agents, versions and tenants that it does not serve do not count.
        """
        return not self._is_due(now_us) and not self._is_running()

    def _is_due(self, now_us: int) -> bool:
        """Return whether a task could be taken, if it were not for the limits of queues. None is taken."""
        names, found = [queue.name for queue in self._queues], list[Due]()
        tenants = self._namespaces
        if tenants is None:
            tenants = self._dispatchers("").logs.store.queues.tenants(names, now_us)
        for tenant in tenants:
            for name in names:
                wanted = ClaimRequest(queue=name, namespace=tenant, served=self._served, limit=1, now_us=now_us)
                self._dispatchers(tenant).logs.store.queues.claim(wanted, found.append)
                if found:
                    return True
        return False

    def _is_running(self) -> bool:
        names = {queue.name for queue in self._queues}
        whose: Sequence[str | None] = [None] if self._namespaces is None else self._namespaces
        depths = [one for tenant in whose for one in self._dispatchers(tenant or "").logs.store.queues.depths(tenant)]
        return any(one.running for one in depths if one.queue in names)

    def _tenants_now(self, now_us: int) -> list[str]:
        """Tenants to ask for tasks: those named, or all that have any, as far as is known."""
        if self._namespaces is not None:
            return self._namespaces
        began = time.monotonic()
        self._is_stale = began < self._tenants_at and not self._lost
        if not self._is_stale:
            names = [queue.name for queue in self._queues]
            self._tenants = self._dispatchers("").logs.store.queues.tenants(names, now_us, tuple(self._lost))
            ended = time.monotonic()
            self._tenants_at = ended + TENANTS_SHARE * (ended - began)
        return self._tenants

    def _look_for_lost(self) -> None:
        """Find workers whose tasks may be taken; now and then our own among them, for what we do not work on."""
        now = time.monotonic()
        store = self._dispatchers("" if self._namespaces is None else self._namespaces[0]).logs.store
        if now >= self._lost_at:
            self._lost_at = now + LOST_SECONDS
            self._lost |= store.queues.lost()
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_SECONDS
            self._lost[store.holder()] = "presumed"  # what we no longer work on may have left a call under way

    def _claim(self, tenant: str, queue: Queue, limit: int, lost: Lost, now_us: int) -> list[Claimed]:
        dispatcher = self._dispatchers(tenant)
        logs, held = dispatcher.logs, dispatcher.held
        sweeps = logs.store.holder() in lost
        taken: dict[str, TakenFrom] = {}
        written: dict[str, Write] = {}
        without_linked_logs: list[Summary] = []

        def claim(due: Due) -> Write | None:
            summary = due.summary
            if self._is_ours(tenant, summary.id):
                self.left_ours = self.left_ours or summary.status != "running"
                return None
            if len(taken) >= limit:
                return None
            pins = _pins(logs, summary) if summary.claims == 0 else NO_PINS
            if pins is None:
                without_linked_logs.append(summary)
                return None
            taken[summary.id] = lost.get(summary.holder or "", "") if summary.status == "running" else ""
            held.add(summary.id)
            written[summary.id] = _write(logs, due, taken[summary.id], pins)
            return written[summary.id]

        wanted = ClaimRequest(
            queue=queue.name,
            namespace=tenant,
            served=self._served,
            limit=limit + (len(held) + len(dispatcher.busy) if sweeps else 0),  # what we work on is found too, and left
            now_us=now_us,
            lost=tuple(lost),
            concurrency=queue.concurrency,
            per_key=queue.per_key,
            rate=queue.as_rate(),
        )
        failpoint("claim.before")
        claimed: dict[str, list[Stored]] = {}
        try:
            claimed = logs.store.queues.claim(wanted, claim)
        finally:
            held.difference_update(taken.keys() - claimed)
        failpoint("claim.after")
        if logs.committer.observers:
            made = [written[name] for name in claimed]
            logs.committer.observe(made, [Placed(0 if one.expect is None else one.expect.seq + 1, ()) for one in made])
        for summary in without_linked_logs:
            logs.pins(summary.user, summary.thread)  # begins what they look at; the next round takes them
        return [Claimed(tenant, name, taken[name], rows) for name, rows in claimed.items()]


NO_PINS = Pins()


def _write(logs: Logs, due: Due, taken: TakenFrom, pins: Pins) -> Write:
    """The claim of a task that is due."""
    summary, store = due.summary, logs.store
    event = TaskClaimed(
        holder=store.holder(),
        lease_seconds=store.lease_seconds,
        pins=None if pins is NO_PINS else pins,
        taken=taken,
    )
    at_us = logs.clock.now_us()
    draft, _ = codec.draft(replace(event, nonce=random_hex(8)) if summary.user is not None else event, at_us, "")
    return Write(summary.id, (draft,), due.head, summary=summarise(summary, summary.id, event, at_us))


def _pins(logs: Logs, summary: Summary) -> Pins | None:
    """Return how far the user's and the thread's logs have come; None if they must be begun first."""
    if summary.user is None and summary.thread is None:
        return NO_PINS
    user = None if summary.user is None else logs.store.head(names.user_log(summary.user))
    thread = None if summary.thread is None else logs.store.head(names.thread_log(summary.thread))
    if (summary.user is not None and user is None) or (summary.thread is not None and thread is None):
        return None
    return Pins(0 if user is None else user.seq, 0 if thread is None else thread.seq)

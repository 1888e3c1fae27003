"""open() and App: the one object a program holds."""

from __future__ import annotations

import builtins
import contextlib
import inspect
import math
import os
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from msgspec.structs import replace

from holdfast.core import (
    durations,
    limits,
    names,
)
from holdfast.core.codec import LoggedEvent, Summary
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import InvalidValue, TaskFinished, TaskNotFound
from holdfast.core.events import Event
from holdfast.core.phases import Machine
from holdfast.core.state.budget import Budget, limits_of
from holdfast.core.state.patch import Patch, changes_of
from holdfast.engine.control import answers, append as appending, divergence, lifecycle, migration, patches
from holdfast.engine.control.change import Decide, Keys, change
from holdfast.engine.control.migration import MigratedStates
from holdfast.engine.control.rollback import rollback
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.definitions.call import acting, in_hook, refuse_own
from holdfast.engine.definitions.prices import Price, Prices
from holdfast.engine.definitions.queue import DeclaredQueues, Queue
from holdfast.engine.definitions.tool import Tool
from holdfast.engine.definitions.types import R
from holdfast.engine.dispatch import begin, block, fork as forks
from holdfast.engine.dispatch.begin import TaskOptions, WhenBusy, deadline_us
from holdfast.engine.dispatch.calls import DurableCall
from holdfast.engine.dispatch.dispatcher import Assignment, Dispatcher
from holdfast.engine.dispatch.reconcile import ask_again
from holdfast.engine.execution.watch import WatchedStep
from holdfast.engine.lists.feed import Feed
from holdfast.engine.lists.query import TaskRows, since as us_since, task_query
from holdfast.engine.logs import addresses
from holdfast.engine.logs.cache import Cache
from holdfast.engine.logs.committer import Observer, PlacedEvent
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.logs import Logs
from holdfast.engine.maintenance import copy, export as upkeep, retention
from holdfast.engine.maintenance.export import Copied, Progress
from holdfast.engine.maintenance.retention import Collected
from holdfast.engine.reading import audit, contracts, inbox, serving, timeline, verify
from holdfast.engine.reading.audit import AuditRow
from holdfast.engine.reading.describe import EventLine, describe
from holdfast.engine.reading.inbox import InboxItem
from holdfast.engine.reading.serving import LiveWorker
from holdfast.engine.reading.steps import StepState, step_by_key, steps as steps_of
from holdfast.engine.reading.task_state import ArtifactState, TaskState, one_artifact
from holdfast.engine.reading.timeline import Follow
from holdfast.engine.reading.values import Expired
from holdfast.engine.reading.verify import Verification
from holdfast.engine.streams.watching import ChunkFollow
from holdfast.engine.system.clock import Clock, SystemClock
from holdfast.engine.system.entropy import random_hex
from holdfast.engine.verbs.block import Block
from holdfast.store.protocol import Order, Stats, Store, TaskCounts
from holdfast.store.queues import QueueDepth
from holdfast.store.tenants import Tenant

if TYPE_CHECKING:
    from holdfast.engine.aio import AsyncApp
    from holdfast.engine.lists.deltas import Delta
    from holdfast.engine.lists.watch import TaskWatch
    from holdfast.engine.maintenance.doctor import Finding
    from holdfast.engine.notices.failures import OnFailure
    from holdfast.engine.notices.notices import OnWait
    from holdfast.engine.notices.watch import InboxFollow
    from holdfast.engine.notices.webhook import Webhook
    from holdfast.engine.people.thread import Thread
    from holdfast.engine.people.user import User
    from holdfast.engine.people.user_model import UserModel
    from holdfast.engine.records.records import Records
    from holdfast.engine.telemetry.collector import Otlp
    from holdfast.engine.telemetry.telemetry import Telemetry
    from holdfast.engine.workers.delivered import Delivery
    from holdfast.engine.workers.schedule import Schedule
    from holdfast.engine.workers.upkeep import Retention
    from holdfast.engine.workers.worker import Worker


def open(
    url: str | os.PathLike[str] | None = None,
    *,
    durability: Literal["full", "process"] | None = None,
    snapshots_kept: int = limits.SNAPSHOTS_KEPT,
    clock: Clock | None = None,
    agents: Sequence[Agent] = (),
    on_wait: OnWait | None = None,
    on_failure: OnFailure | None = None,
    webhook: Webhook | None = None,
    prices: Mapping[str, Price] | None = None,
    queues: Sequence[Queue] = (),
    namespace: str = "",
    cache: str | None = None,
    cache_bytes: int = limits.CACHE_BYTES,
    read_only: bool = False,
    key_space: str | None = None,
    users: type | UserModel | None = None,
    traces: bool | Otlp = False,
    metrics: bool | Otlp = False,
    logs: bool = False,
) -> App:
    """Open a store: a path or sqlite:///…, postgresql://… or memory:. Without a url, $HOLDFAST_URL, else holdfast.db.

    `durability="full"` (the default): what was acknowledged survives power loss. `"process"`: it survives the process.
    `agents` are those the app may resume by id alone. `on_wait` is called with each task that begins to wait for a
    person, `on_failure` with each that fails, whichever process works on it; `webhook` sends waits to another server.
    `prices` says what models cost. `queues` are those there are, with their limits; if none are given, any name will
    do. `namespace` keeps tenants apart: what belongs to another cannot be reached from here. `cache` is a Redis server
    (redis://…, or $HOLDFAST_CACHE) through which servers share states and wake-ups, `cache_bytes` memory for cached
    states; both are optional and never authoritative. `read_only` opens a SQLite file only to look. `key_space` is what
    idempotency keys of new tasks cover. Default: a random id. `users`: the model of users' state.
    `traces=True` sends spans of what this process does to an OTLP collector, `metrics=True` measures it for
    `app.metrics()`, `logs=True` logs a line for each event to `holdfast.events`. `holdfast.tracing.Otlp` has options.
    """
    declared = _checked(on_wait, on_failure, webhook, users)
    telemetry = _telemetry(traces, metrics, logs)
    costs, where, ticking = Prices(prices), addresses.cache_address(cache, cache_bytes), clock or SystemClock()
    given: dict[str, Any] = {"durability": durability, "snapshots_kept": snapshots_kept, "read_only": read_only}
    store = _tenant(addresses.open_store(url, at_us=ticking.now_us(), **given), namespace)
    app = App(
        store,
        ticking,
        agents=agents,
        on_wait=on_wait,
        on_failure=on_failure,
        webhook=webhook,
        prices=costs,
        queues=queues,
        namespace=namespace,
        cache=addresses.open_cache(store, where, cache_bytes),
        key_space=key_space,
        address=addresses.given(url),
        users=declared,
    )
    app.telemetry = None if telemetry is None else telemetry(app.logs)
    if not read_only:
        _ = app.logs.identity  # read here, where waiting for the store is allowed; an event loop may need it later
    return app


def _tenant(store: Store, namespace: str) -> Store:
    return Tenant(store, namespace) if namespace else store


def _telemetry(traces: bool | Otlp, metrics: bool | Otlp, logs: bool) -> Callable[[Logs], Telemetry] | None:
    """Read what is to be exported of the work. Without any, nothing of it is imported."""
    if traces is False and metrics is False and logs is False:
        return None
    from holdfast.engine.telemetry.telemetry import planned

    return planned(traces, metrics, logs)


def _checked(on_wait: object, on_failure: object, webhook: object, users: Any) -> UserModel | None:
    """Refuse odd hooks before anything is opened; return the model of users, if there is one."""
    for name, given in (("on_wait", on_wait), ("on_failure", on_failure)):
        if given is not None and not callable(given):
            raise InvalidValue(f"{name}={given!r} cannot be called", hint="give a function of a task")
        if any(inspect.iscoroutinefunction(one) for one in (given, getattr(given, "__call__", None))):  # noqa: B004
            raise InvalidValue(f"{name}={given!r} is async, and nothing would await it", hint="give a `def` function")
    if webhook is not None:
        from holdfast.engine.notices.webhook import Webhook

        if not isinstance(webhook, Webhook):
            raise InvalidValue(f"webhook={webhook!r} is not a webhook", hint="give Webhook(url, secret)")
    if users is None:
        return None
    from holdfast.engine.people.user_model import user_model

    return user_model(users)


def doctor(url: str, *, opened: Callable[[], App] | None = None) -> list[Finding]:
    """Look at a store and the place it is in, also at a file that can't be opened: that is a finding.

    `opened` opens it; the default is `open(url)`. A server that does not answer raises.
    """
    from holdfast.engine.maintenance.doctor import examine

    if opened is not None:
        return examine(url, lambda: opened().logs)
    with contextlib.ExitStack() as stack:
        return examine(url, lambda: stack.enter_context(open(url)).logs)


def _typed_result(agent: object) -> Callable[[Any], Any] | None:
    return agent.typed_result if isinstance(agent, Agent) else None


def _patience(wait: Duration, when_busy: WhenBusy) -> float:
    """How long to wait for a task, or a thread, that others have."""
    given = seconds(wait, "wait")
    return math.inf if when_busy == "queue" and not given else given


class App:
    """A store of tasks and everything that can be done with them. Safe from several threads."""

    def __init__(
        self,
        store: Store,
        clock: Clock | None = None,
        *,
        agents: Sequence[Agent] = (),
        on_wait: OnWait | None = None,
        on_failure: OnFailure | None = None,
        webhook: Webhook | None = None,
        prices: Prices | None = None,
        queues: Sequence[Queue] = (),
        namespace: str = "",
        cache: Cache | None = None,
        key_space: str | None = None,
        address: str = "",
        users: UserModel | None = None,
    ) -> None:
        self.namespace = namespace
        self._address = address or store.url
        self.queues = DeclaredQueues(queues)
        self.store = store
        self.clock = clock or SystemClock()
        self.logs = Logs(store, self.clock, cache, on_lost=divergence, key_space=key_space)
        self.logs.users = users
        self._dispatcher = Dispatcher(self.logs, prices)
        self.feed = Feed(self.store)
        self.telemetry: Telemetry | None = None
        if on_wait is not None or webhook is not None:
            from holdfast.engine.notices.notices import Notices

            self._dispatcher.notices = Notices(self.logs, on_wait, webhook, self._dispatcher.is_at_work)
        if on_failure is not None:
            from holdfast.engine.notices.failures import FailureNotices

            ours = self._dispatcher.is_at_work
            self._dispatcher.failures = FailureNotices(self.logs, self.feed, on_failure, ours)
        self._dispatcher.register_all(agents)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def aio(self) -> AsyncApp:
        """Every verb of the app, to be awaited: `await app.aio.get(id)`."""
        from holdfast.engine.aio import AsyncApp

        return AsyncApp(self)

    def __repr__(self) -> str:
        return f"<app on {self.store.url}>"

    # Working

    def start(
        self,
        agent: Agent[..., R] | str,
        input: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        user: str | None = None,
        thread: str | None = None,
        goal: str = "",
        stages: Sequence[str] = (),
        queue: str = "default",
        priority: int = 0,
        key: str | None = None,
        after: Duration | None = None,
        deadline: Duration | None = None,
        contract: contracts.Given | None = None,
        phases: Machine | None = None,
        mock: bool | Mapping[Any, Any] = False,
        budget: Budget | None = None,
        by: str = "",
        when_busy: WhenBusy = "allow",
        expire: Duration | None = None,
    ) -> TaskState[R]:
        """Record a new task; it is pending until a worker takes it, and none does before `after`.

        A task of that `id` with the same input is found; with other input it is InputConflict. A queue may limit how
        many tasks of one `key` are worked on at a time, and how many wait: QueueFull. While another task of its thread
        has not ended, `when_busy` lets it begin, refuses or queues it. `gc` cancels one that waits for `expire`.
        """
        options = TaskOptions(
            user=user,
            thread=thread,
            goal=goal,
            stages=stages,
            queue=queue,
            priority=priority,
            key=key,
            after=after,
            deadline=deadline,
            contract=contract,
            phases=phases,
            mock=mock,
            budget=budget,
            by=by,
            when_busy=when_busy,
            expire=expire,
        )
        self.queues.admit(self.store, self.namespace, queue, one_at_a_time=when_busy == "queue")
        first = self._dispatcher.first_events(name := self._name(id), agent, input, options)
        return TaskState(self._dispatcher.begin_or_find(name, *first), self.logs, _typed_result(agent))

    def run(
        self,
        agent: Agent[..., R],
        input: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        hold: Duration = limits.HOLD_SECONDS,
        wait: Duration = 0,
        user: str | None = None,
        thread: str | None = None,
        goal: str = "",
        stages: Sequence[str] = (),
        queue: str = "default",
        priority: int = 0,
        key: str | None = None,
        after: Duration | None = None,
        deadline: Duration | None = None,
        contract: contracts.Given | None = None,
        phases: Machine | None = None,
        mock: bool | Mapping[Any, Any] = False,
        budget: Budget | None = None,
        by: str = "",
        when_busy: WhenBusy = "allow",
        expire: Duration | None = None,
    ) -> TaskState[R]:
        """Start a task, or resume it, here and now, until it ends or waits. Running it twice is safe.

        A failed task is given back as it is, with its `failure`; nothing is raised. `hold`: how long to block while the
        task sleeps (for timers only: a wait for a person or a signal ends the run at once). `wait`: how long to wait
        while another process has the task, or another task its thread. The other parameters are as for `start`.
        """
        options = TaskOptions(
            user=user,
            thread=thread,
            goal=goal,
            stages=stages,
            queue=queue,
            priority=priority,
            key=key,
            after=after,
            deadline=deadline,
            contract=contract,
            phases=phases,
            mock=mock,
            budget=budget,
            by=by,
            when_busy="refuse" if when_busy == "queue" else when_busy,
            expire=expire,
        )
        work, patience = self._assignment(id, agent, input, options, hold), _patience(wait, when_busy)
        return TaskState(self._dispatcher.work_when_free(work, patience), self.logs, agent.typed_result)

    def _assignment(
        self, id: str | None, agent: Agent, input: Mapping[str, Any] | None, options: TaskOptions, hold: Duration
    ) -> Assignment:
        if id is not None:
            refuse_own(self.logs, id, "run")
        return self._dispatcher.assignment(self._name(id), agent, input, options, seconds(hold, "hold"))

    async def arun(
        self,
        agent: Agent[..., R],
        input: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        hold: Duration = limits.HOLD_SECONDS,
        wait: Duration = 0,
        user: str | None = None,
        thread: str | None = None,
        goal: str = "",
        stages: Sequence[str] = (),
        queue: str = "default",
        priority: int = 0,
        key: str | None = None,
        after: Duration | None = None,
        deadline: Duration | None = None,
        contract: contracts.Given | None = None,
        phases: Machine | None = None,
        mock: bool | Mapping[Any, Any] = False,
        budget: Budget | None = None,
        by: str = "",
        when_busy: WhenBusy = "allow",
        expire: Duration | None = None,
    ) -> TaskState[R]:
        """`run`, to be awaited; the event loop keeps running meanwhile."""
        options = TaskOptions(
            user=user,
            thread=thread,
            goal=goal,
            stages=stages,
            queue=queue,
            priority=priority,
            key=key,
            after=after,
            deadline=deadline,
            contract=contract,
            phases=phases,
            mock=mock,
            budget=budget,
            by=by,
            when_busy="refuse" if when_busy == "queue" else when_busy,
            expire=expire,
        )
        assignment = self._assignment(id, agent, input, options, hold)
        done = await self._dispatcher.work_async_when_free(assignment, _patience(wait, when_busy))
        return TaskState(done, self.logs, agent.typed_result)

    def resume(
        self,
        id: str,
        agent: Agent[..., R] | None = None,
        *,
        by: str = "",
        why: str = "",
        anyway: bool = False,
        deadline: Duration | None = None,
        hold: Duration = limits.HOLD_SECONDS,
        wait: Duration = 0,
    ) -> TaskState[R]:
        """Resume a task that was interrupted, waits or is quarantined. A failed one is reopened, with a `deadline`.

        A completed one is given back as it is. `anyway` resumes one that its agent finds too old, or that has lost
        events of its log. `wait`: how long to wait while another process has the task, before TaskBusy is raised; if
        that process dies, this one takes over. The default is 0.
        """
        patience = seconds(wait, "wait")
        assignment = self._resumption(id, agent, by=by, why=why, anyway=anyway, deadline=deadline, hold=hold)
        return TaskState(self._dispatcher.work_when_free(assignment, patience), self.logs, _typed_result(agent))

    async def aresume(
        self,
        id: str,
        agent: Agent[..., R] | None = None,
        *,
        by: str = "",
        why: str = "",
        anyway: bool = False,
        deadline: Duration | None = None,
        hold: Duration = limits.HOLD_SECONDS,
        wait: Duration = 0,
    ) -> TaskState[R]:
        """`resume`, awaited: an `async` agent works on the running event loop."""
        import asyncio

        given: dict[str, Any] = {"by": by, "why": why, "anyway": anyway, "deadline": deadline, "hold": hold}
        patience = seconds(wait, "wait")
        assignment = await asyncio.to_thread(self._resumption, id, agent, **given)
        done = await self._dispatcher.work_async_when_free(assignment, patience)
        return TaskState(done, self.logs, _typed_result(agent))

    def _resumption(
        self,
        id: str,
        agent: Agent | None,
        *,
        by: str,
        why: str,
        anyway: bool,
        deadline: Duration | None,
        hold: Duration,
    ) -> Assignment:
        refuse_own(self.logs, id, "resume")
        limit = deadline_us(
            self.clock.now_us(), None if deadline is None else seconds(deadline, "deadline", above_zero=True)
        )
        return self._dispatcher.resumption(
            self._load(id), agent, anyway=anyway, by=acting(by), why=why, deadline_us=limit, hold=seconds(hold, "hold")
        )

    def reopen(
        self, id: str, *, by: str = "", why: str = "", anyway: bool = False, deadline: Duration | None = None
    ) -> TaskState:
        """Make a failed or quarantined task pending for workers. Nothing is run here.

        `deadline` is a new one, from now. `anyway` accepts that a task's log has lost events: it continues from what
        is left.
        """
        by = self._decided_by(id, "reopen", by)
        length = None if deadline is None else seconds(deadline, "deadline", above_zero=True)
        limit = deadline_us(self.clock.now_us(), length)
        return self._change(id, lifecycle.reopen(by, why, limit, anyway=anyway))

    @overload
    def call(
        self,
        tool: Tool[..., Coroutine[Any, Any, R]],
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        key: str,
        by: str = "",
        **named: Any,
    ) -> R: ...
    @overload
    def call(
        self, tool: Tool[..., R], arguments: Mapping[str, Any] | None = None, /, *, key: str, by: str = "", **named: Any
    ) -> R: ...
    def call(
        self, tool: Tool, arguments: Mapping[str, Any] | None = None, /, *, key: str, by: str = "", **named: Any
    ) -> Any:
        """Make a durable call of a tool outside of any task, once for each `key`; gives its result.

        The call is a small task of its own, `call.<tool>.<key>`: made again with the same key, it gives the recorded
        result; with other arguments it raises StepChanged. A call in doubt raises Suspended, and is in the inbox.
        """
        return DurableCall(self._dispatcher, tool, arguments, named, key=key, by=by).make()

    async def acall(
        self, tool: Tool, arguments: Mapping[str, Any] | None = None, /, *, key: str, by: str = "", **named: Any
    ) -> Any:
        """`call`, to be awaited: an async tool runs on this event loop, a def tool in a thread of its own."""
        import asyncio

        call = await asyncio.to_thread(DurableCall, self._dispatcher, tool, arguments, named, key=key, by=by)
        return await call.make_async()

    def task(
        self,
        name: str,
        input: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        user: str | None = None,
        thread: str | None = None,
        goal: str = "",
        stages: Sequence[str] = (),
        priority: int = 0,
        key: str | None = None,
        after: Duration | None = None,
        deadline: Duration | None = None,
        contract: contracts.Given | None = None,
        phases: Machine | None = None,
        mock: bool | Mapping[Any, Any] = False,
        budget: Budget | None = None,
        by: str = "",
        when_busy: WhenBusy = "allow",
        expire: Duration | None = None,
    ) -> AbstractContextManager[Block]:
        """Use the Task API in a `with` block, without an agent.

        A normal end of the block completes the task, an exception fails it, a wait raises Suspended out of it.
        Entering it again replays what was done.
        """
        options = TaskOptions(
            user=user,
            thread=thread,
            goal=goal,
            stages=stages,
            priority=priority,
            key=key,
            after=after,
            deadline=deadline,
            contract=contract,
            phases=phases,
            mock=mock,
            budget=budget,
            by=by,
            when_busy=when_busy,
            expire=expire,
            block=True,
        )
        log = self._name(id)
        return block.block(self._dispatcher, log, *self._dispatcher.first_events(log, name, input, options))

    def worker(
        self,
        agents: Sequence[Agent] | None = None,
        *,
        queues: Sequence[str | Queue] | None = None,
        concurrency: int = limits.WORKER_CONCURRENCY,
        namespaces: Sequence[str] | Literal["*"] | None = None,
        schedules: Sequence[Schedule] = (),
        max_deaths: int = limits.MAX_DEATHS,
        gc: Retention | None = None,
        name: str = "",
    ) -> Worker:
        """Something that takes tasks of these agents from queues and works on many at a time: `app.worker([…]).run()`.

        Without `agents`, those the app was opened with; without `queues`, those it was opened with and the default one.
        `namespaces` are the tenants it works for: its own, or, of an app without one, those named, or "*". A task that
        cost `max_deaths` workers in a row without a step being done is quarantined. `gc`: when old tasks are removed,
        `Retention(every="1h", older_than="30d")`; of several workers one does it each time. Default: never.
        """
        from holdfast.engine.workers import factory

        return factory.worker(
            self._dispatcher,
            self.queues,
            self.namespace,
            agents,
            queues=queues,
            namespaces=namespaces,
            concurrency=concurrency,
            schedules=schedules,
            max_deaths=max_deaths,
            gc=gc,
            name=name,
        )

    def due(
        self,
        agents: Sequence[Agent] | None = None,
        *,
        queues: Sequence[str | Queue] | None = None,
        namespaces: Sequence[str] | Literal["*"] | None = None,
        limit: int = limits.DUE_TASKS,
    ) -> dict[str, int]:
        """Return the tasks that a worker could take now, by id, each with the seq of its last event. None is taken.

        They are new, woken or lost tasks of these agents, queues and namespaces, which are given as for `worker`; first
        those of high priority. The id of another namespace has that before it: `tenant!id`. `limit`: how many at most.
        """
        from holdfast.engine.workers import due, factory

        tenants = factory.tenants(self.namespace, namespaces)
        return due.due(self._dispatcher, agents, self.queues.named(queues), tenants, limit)

    def work(
        self, id: str, *, hold: Duration = limits.WORKER_HOLD_SECONDS, max_deaths: int = limits.MAX_DEATHS
    ) -> TaskState:
        """Work on a task if it is due and no other process has it: what a dispatcher calls with an id of `due`.

        Otherwise the task is given back as it is. Unlike `resume`, it reopens nothing: a message that comes late or
        twice does no harm. Its agent is one the app was opened with. While the store cannot be reached, it keeps
        trying. `hold` and `max_deaths` are as for `worker`. `tenant!id` names a task of another namespace.
        """
        delivery = self._delivery(id, hold, max_deaths)
        return TaskState(delivery.work(), delivery.logs, delivery.typed_result)

    async def awork(
        self, id: str, *, hold: Duration = limits.WORKER_HOLD_SECONDS, max_deaths: int = limits.MAX_DEATHS
    ) -> TaskState:
        """`work`, awaited: an `async` agent works on the running event loop, a `def` agent in a thread.

        If this is cancelled, the task is released after its step, and due again.
        """
        delivery = self._delivery(id, hold, max_deaths)
        return TaskState(await delivery.work_async(), delivery.logs, delivery.typed_result)

    def _delivery(self, id: str, hold: Duration, max_deaths: int) -> Delivery:
        from holdfast.engine.workers import delivered

        return delivered.delivery(
            self._dispatcher, self.namespace, id, hold=seconds(hold, "hold"), max_deaths=max_deaths
        )

    def workers(self) -> builtins.list[LiveWorker]:
        """Workers that are alive, what they serve, and how many tasks their process holds."""
        return serving.workers_of(self.store, self.namespace)

    def new_id(self) -> str:
        """Return an id for a new task. Ids sort by the time they were made."""
        return begin.new_id(self.clock.now_us())

    def _name(self, id: str | None) -> str:
        return names.task_log(id if id is not None else self.new_id())

    # From outside

    def signal(self, id: str, name: str, value: Any = None, *, by: str = "") -> TaskState:
        """Tell a task that something happened."""
        return self._change(id, answers.signal(name, value, acting(by)))

    def answer(self, id: str, question: str, value: Any, *, by: str = "", why: str = "") -> TaskState:
        """Answer what a task asked, by the question's key or name. A value that its question can't take is refused."""
        return self._change(id, answers.answer(question, value, acting(by), why, self.logs.blob))

    def settle(
        self, id: str, call: str, *, happened: bool, result: Any = None, by: str = "", why: str = ""
    ) -> TaskState:
        """Say whether a call in doubt happened, and its result. You can correct it until the task is resumed.

        The result must fit the tool's return type, where this process knows the tool.
        """
        by = self._decided_by(id, "settle", by)
        tools = self._dispatcher.services.tools
        decide = answers.settle(call, happened, result, by, why, tools)
        return self._change(id, decide, answers.keys_of_settling(call, happened))

    def reconcile(self, id: str, call: str, tool: Tool | None = None, *, by: str = "") -> TaskState:
        """Ask the destination of a call in doubt once more, and settle the call if the destination knows.

        Runs the tool's `reconcile` here, and nothing else. If the destination can't tell, the call stays in doubt.
        `tool`: the tool of the call. Default: the one that an agent of this app declares with `tools=`.
        """
        by = self._decided_by(id, "reconcile", by)
        known = self._dispatcher.services.tools if tool is None else {tool.name: tool}
        asked = ask_again(self.logs, names.task_log(id), call, known, by)
        return self.get(id) if asked is None else self._change(id, asked.decide, asked.keys)

    def approve(
        self,
        id: str,
        call: str,
        *,
        bound: str | None = None,
        by: str = "",
        why: str = "",
        expires: Duration | None = None,
    ) -> TaskState:
        """Approve a pending call, once, for exactly these arguments; not longer than `expires`.

        `bound` is the digest that was shown with the request (`app.inbox()`): if the arguments have changed since,
        nothing is approved. Without it, an approval is refused once the arguments have changed.
        """
        by = self._decided_by(id, "approve", by)
        length = None if expires is None else seconds(expires, "expires")
        if length == 0:
            raise InvalidValue("an approval that expires at once is none", hint='give it some time: expires="1h"')
        until_us = deadline_us(self.clock.now_us(), length)
        return self._change(id, answers.approval(call, True, by, why, until_us, bound))

    def reject(self, id: str, call: str, *, bound: str | None = None, by: str = "", why: str = "") -> TaskState:
        """Refuse a call that waits for approval. The first answer counts, and a refused call stays refused.

        `bound` is the digest that was shown with the request, as for `approve`.
        """
        by = self._decided_by(id, "reject", by)
        return self._change(id, answers.approval(call, False, by, why, shown=bound))

    def _decided_by(self, id: str, verb: str, by: str) -> str:
        """Return who decides; refuse the agent itself."""
        by = acting(by)
        answers.refuse_self(self.logs, names.task_log(id), verb, by)
        return by

    def patch(self, id: str, patch: Patch, *, expect: int | None = None, by: str = "", why: str = "") -> TaskState:
        """Change what an agent knows, all or nothing; a running one sees it after its next waiting verb.

        `patch`: a StatePatch, or the same as a dict or JSON text.
        `expect` is the seq of the state you looked at: PatchConflict, with both sides, if another writer has changed
        the same fields since, whatever the value. Changes that commute, `increment` and `append`, go together.
        """
        name = names.task_log(id)
        changes, agents = changes_of(patch), self._dispatcher.agents
        return self._change(id, patches.patch(self.logs, name, changes, expect, acting(by), why, agents))

    def migrate_states(self, agent: Agent) -> MigratedStates:
        """Write the typed state of this agent's open tasks under its present version, as its upcasters make it.

        Without it, a task is migrated when its state is next written. Tasks that have ended stay as they are, and are
        read through the upcasters. A task that a worker has now is left to that worker: call it again.
        """
        return migration.migrate_states(self.logs, self._dispatcher.register(agent))

    def raise_budget(self, id: str, budget: Budget, *, by: str = "", why: str = "") -> TaskState:
        """Raise a task's budget. A task that waited for it continues; one that failed for it can be resumed."""
        by = self._decided_by(id, "raise_budget", by)
        return TaskState(lifecycle.raise_budget(self.logs, names.task_log(id), limits_of(budget), by, why), self.logs)

    def cancel(self, id: str, *, why: str = "", by: str = "") -> TaskState:
        """Cancel a task, and its children. What it did is undone, as its tools declare.

        A step under way ends at once: an `async def` function is cancelled, the thread of a `def` function is abandoned
        and can't write any more. A `once` call under way is in doubt, and is settled before the task ends.
        """
        state, alone, by = self._load(id).state, True, acting(by)
        children = [wait.name for wait in state.waits.values() if wait.kind == "child"]
        is_held = bool(children) and state.summary.status == "running"
        if is_held:  # else it could fail of its child's end before it knows that it is cancelled itself
            self._change(id, lifecycle.cancel(by, why, alone=False))
        for child in children:
            if self.store.origin(child) is not None:
                with contextlib.suppress(TaskFinished):
                    alone &= self.cancel(child, why=why, by=by).status == "cancelled"
        cancelled = (
            TaskState(self._load(id), self.logs)
            if is_held
            else self._change(id, lifecycle.cancel(by, why, alone=alone))
        )
        self._dispatcher.look_for_cancels()
        return cancelled

    def _change(self, id: str, decide: Decide, keys: Keys | None = None) -> TaskState:
        return TaskState(change(self.logs, names.task_log(id), decide, keys), self.logs)

    # Writing

    def append(self, id: str, *events: Event, expect: int | None = None) -> list[LoggedEvent]:
        """Write events to a task's log, all or none. `expect` is the seq they must follow; without it, the head.

        This is the ground floor: every event is checked against what is in the log, and refused with its reason.
        """
        return appending.append(self.logs, names.task_log(id), events, expect)

    def fork(
        self,
        task: str,
        /,
        *,
        at: int | None = None,
        id: str | None = None,
        patch: Patch | None = None,
        effects: Literal["ask", "live", "recorded"] = "ask",
        by: str = "",
    ) -> TaskState:
        """A new task whose past is this one's, up to `at`. Copies nothing; this one stays as it was.

        The same fork asked for again, by the same `id`, is found as it is now.
        """
        name = names.task_log(id if id is not None else f"{task}~{random_hex(4)}")
        wanted = forks.ForkRequest(name, at, patch, effects, acting(by), random_hex(8))
        return TaskState(forks.fork(self.logs, self._load(task, at), wanted, self._dispatcher.agents), self.logs)

    def forks(self, id: str) -> builtins.list[str]:
        """Return the ids of the forks of a task, oldest first. Forks of its forks are theirs."""
        return self.store.forks(names.task_log(id))

    def rollback(
        self,
        id: str,
        steps: int = 1,
        *,
        versions: int | None = None,
        to: int | str | None = None,
        by: str = "",
        why: str = "",
    ) -> TaskState:
        """Go back by so many steps, or to a seq, or to a checkpoint's label. The history is kept.

        `versions`: by so many changes of `state` instead, such as patches. Asked for more than there are, it goes back
        to before the first.
        """
        log = rollback(self.logs, names.task_log(id), steps, versions, to, by=acting(by), why=why)
        return TaskState(log, self.logs)

    # Reading

    def get(self, id: str) -> TaskState:
        """A task as it is now."""
        refuse_own(self.logs, id, "get")
        return TaskState(self._load(id), self.logs)

    def find(self, id: str) -> TaskState | None:
        """Return a task as it is now, or None if there is no task of that id."""
        refuse_own(self.logs, id, "find")
        with contextlib.suppress(TaskNotFound):
            return self.get(id)
        return None

    def wait(self, id: str, *, timeout: Duration | None = None) -> TaskState:
        """Wait until a task has ended, in whichever process it is worked on, and return it.

        `timeout`: how long to wait. Default: for ever. A task that has not ended by then raises TimeLimit.
        """
        from holdfast.engine.lists.end import TaskEnd

        return TaskEnd(self.logs, self.feed, id, timeout).wait()

    def at(self, id: str, seq: int) -> TaskState:
        """A task as it was just after an event."""
        refuse_own(self.logs, id, "at")
        return timeline.state_at(self.logs, names.task_log(id), seq)

    @overload
    def list(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        stage: str | None = None,
        user: str | None = None,
        thread: str | None = None,
        queue: str | None = None,
        parent: str | None = None,
        waiting: str | None = None,
        version: str | None = None,
        interrupted: bool | None = None,
        in_doubt: bool | None = None,
        prefix: str | None = None,
        changed_since: datetime | Duration | None = None,
        state_version_below: int | None = None,
        order: Order = "newest",
        include: Collection[str] = (),
        limit: int = limits.PAGE_SIZE,
        after: str | None = None,
    ) -> list[Summary]: ...

    @overload
    def list(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        stage: str | None = None,
        user: str | None = None,
        thread: str | None = None,
        queue: str | None = None,
        parent: str | None = None,
        waiting: str | None = None,
        version: str | None = None,
        interrupted: bool | None = None,
        in_doubt: bool | None = None,
        prefix: str | None = None,
        changed_since: datetime | Duration | None = None,
        state_version_below: int | None = None,
        order: Order = "newest",
        include: Collection[str] = (),
        limit: None,
        after: str | None = None,
    ) -> TaskRows: ...

    def list(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        stage: str | None = None,
        user: str | None = None,
        thread: str | None = None,
        queue: str | None = None,
        parent: str | None = None,
        waiting: str | None = None,
        version: str | None = None,
        interrupted: bool | None = None,
        in_doubt: bool | None = None,
        prefix: str | None = None,
        changed_since: datetime | Duration | None = None,
        state_version_below: int | None = None,
        order: Order = "newest",
        include: Collection[str] = (),
        limit: int | None = limits.PAGE_SIZE,
        after: str | None = None,
    ) -> builtins.list[Summary] | TaskRows:
        """Return tasks, newest first, found by index. `after` is the id of the last one seen.

        `waiting`: the kind of wait, such as "person" or "doubt". `version`: tasks begun by this version of their agent.
        `interrupted`: running tasks whose worker is dead. `in_doubt`: tasks with a call in doubt. `prefix`: how ids
        begin. `changed_since`: a datetime, or how long ago. `order`: "newest", "oldest", or "changed" (last change
        first; a task that changes meanwhile moves to the front). `state_version_below`: tasks whose typed state was
        last written under an earlier version: `migrate_states` migrates them. `include`: what each row carries too, of
        "input", "result" and "failure". Both read logs.
        `limit`: how many. None: all of them, read as you go through them.
        """
        asked = task_query(
            self.logs,
            interrupted=interrupted,
            include=include,
            changed_since=changed_since,
            state_version_below=state_version_below,
            status=status,
            agent=agent,
            stage=stage,
            user=user,
            thread=thread,
            queue=queue,
            parent=parent,
            waiting=waiting,
            version=version,
            in_doubt=in_doubt,
            prefix=prefix,
            order=order,
            after=after,
        )
        return TaskRows(asked) if limit is None else asked.page(limit)

    def watch(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        stage: str | None = None,
        user: str | None = None,
        thread: str | None = None,
        queue: str | None = None,
        parent: str | None = None,
        waiting: str | None = None,
        version: str | None = None,
        in_doubt: bool | None = None,
        prefix: str | None = None,
        after: str | None = None,
        seconds: Duration | None = None,
    ) -> TaskWatch:
        """Return the changes of tasks as they are committed, by any process: id, seq, status and row. Also `async for`.

        The filters are those of `list`: a change is given if the task then matches. One thread reads the store, however
        many watch. `after`: the cursor of the last change seen. Default: from when you begin, or read `.cursor`. A task
        that changed several times meanwhile may be given once, as it is. `seconds`: how long. Default: until you stop.
        """
        from holdfast.engine.lists.watch import watch_tasks

        return watch_tasks(
            self.logs,
            self.feed,
            after=after,
            seconds=seconds,
            status=status,
            agent=agent,
            stage=stage,
            user=user,
            thread=thread,
            queue=queue,
            parent=parent,
            waiting=waiting,
            version=version,
            in_doubt=in_doubt,
            prefix=prefix,
        )

    def counts(self) -> TaskCounts:
        """Count tasks by status, and those with a call in doubt. The numbers are kept, so any number of tasks is cheap.

        Counts what `list` lists: the tasks of this namespace. `stats` is of the whole store, with sizes.
        """
        return self.store.counts(self.namespace)

    def namespaces(self) -> builtins.list[str]:
        """Return the namespaces that have tasks, by name. An app with a namespace knows of its own only.

        Tasks that were started without a namespace are in the one with the empty name.
        """
        return self.store.namespaces()

    def row(self, id: str) -> Summary | None:
        """Return one task's row as a list shows it; None if there is no such task."""
        return self.store.summary(names.task_log(id))

    def head(self, id: str) -> int:
        """The seq of a task's last event; 0 if there is no such task."""
        found = self.store.head(names.task_log(id))
        return 0 if found is None else found.seq

    def heads(self, ids: Iterable[str], *, of: Literal["tasks", "threads"] = "tasks") -> dict[str, int]:
        """Return the seq of the last event of many tasks, or of many threads, by id; 0 for one that is not there.

        One question to the store, however many: cheap enough to ask again and again which of them have changed.
        """
        from holdfast.engine.lists.heads import heads_of

        return heads_of(self.store, ids, of)

    def inbox(self, id: str | None = None, *, order: Literal["newest", "oldest"] = "newest") -> Iterator[InboxItem]:
        """Return the entries that wait for a person, of all tasks or of one. `order`: newest or oldest tasks first."""
        if id is not None:
            return iter(inbox.items_of(self.logs, names.task_log(id)))
        return inbox.inbox_items(self.logs, order)

    def follow_inbox(self, *, seconds: Duration | None = None) -> InboxFollow:
        """The inbox as it fills: the entries there are, then each new one, whichever process it comes from.

        At most for so long; without `seconds`, until you stop. Also `async for`.
        """
        from holdfast.engine.notices.watch import InboxFollow

        return InboxFollow(self.logs, None if seconds is None else durations.seconds(seconds, "seconds"))

    def audit(
        self,
        *,
        task: str | None = None,
        tool: str = "",
        by: str = "",
        decision: str | None = None,
        since: datetime | Duration | None = None,
        until: datetime | Duration | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        after: str | None = None,
        limit: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[AuditRow]:
        """Return who did what, newest first: tool calls, what people did, decisions. Found by index.

        `decision` is part of a decision's question or choice. `since`, `until`: a time, or how long ago. `after`: the
        cursor of the last row seen. `limit`: how many. Default: all, read as you go through them. `progress` is called
        with the number of events read.
        """
        query = audit.AuditQuery(
            task=None if task is None else names.task_log(task),
            tool=tool,
            by=by,
            decision=decision,
            since_us=since_us if since is None else us_since(since, self.clock.now_us, "since"),
            until_us=until_us if until is None else us_since(until, self.clock.now_us, "until"),
            after=after,
            limit=limit,
        )
        return audit.audit_rows(self.logs, query, progress)

    def describe(self, id: str, *, after: int = 0, limit: int | None = None) -> Iterator[EventLine]:
        """A task's events as people read them: what happened, how long it took, what it cost."""
        refuse_own(self.logs, id, "describe")
        return (describe(record, self.fetch) for record in self.events(id, after=after, limit=limit))

    def artifact(self, id: str, artifact: str) -> ArtifactState:
        """Return something that a task made, by its id: `app.artifact("report-7", "text-1f2e…").data`."""
        return one_artifact(self.get(id), artifact)

    def fetch(self, hash: str) -> bytes:
        """Read the stored bytes of a large value, by the hash that stands for it in an event."""
        return self.logs.blob(hash)

    def is_interrupted(self, row: Summary) -> bool:
        """Return whether the worker of a running task is dead, or silent for longer than its lease."""
        held = row.status == "running" and row.holder is not None
        return held and not self.store.alive(row.holder or "", row.lease_seconds)

    def on_events(self, observer: Observer) -> None:
        """Call `observer(log, events)` after this process has appended events to a log, in the thread that wrote them.

        It must be quick: others wait for it. What it raises is logged, and fails nothing. A worker for several tenants
        names a log `tenant!id`.
        """
        if not callable(observer):
            raise InvalidValue(f"{observer!r} can't be called", hint="give a function: def observer(log, events)")

        def observe(log: str, events: Sequence[PlacedEvent]) -> None:
            with in_hook("an observer of events"):
                observer(log, events)

        self.logs.committer.observers.append(observe)

    def events(self, id: str, *, after: int = 0, limit: int | None = None) -> Iterator[LoggedEvent]:
        """A task's events in order, read as they are asked for."""
        refuse_own(self.logs, id, "events")
        name = names.task_log(id)
        self.logs.segments(name)
        return timeline.records(self.logs, name, after=after, limit=limit)

    @overload
    def follow(
        self, id: str, *, after: int = 0, seconds: Duration | None = None, chunks: Literal[False] = False
    ) -> Follow: ...
    @overload
    def follow(
        self, id: str, *, after: int = 0, seconds: Duration | None = None, chunks: Literal[True]
    ) -> ChunkFollow: ...
    def follow(
        self, id: str, *, after: int = 0, seconds: Duration | None = None, chunks: bool = False
    ) -> Follow | ChunkFollow:
        """A task's events as they come, until it ends; at most for so long. Also `async for`.

        `chunks`: also what its steps stream, between the events, from any process: Chunk, and ChunksDropped when the
        attempt they came from is void. Default: events only.
        """
        if not isinstance(chunks, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"chunks={chunks!r} is neither True nor False", hint="give chunks=True to get chunks")
        limit = None if seconds is None else durations.seconds(seconds)
        return (ChunkFollow if chunks else Follow)(self.logs, names.task_log(id), after, limit)

    def steps(self, id: str, *, turn: int | None = None) -> list[StepState]:
        """The steps of one turn, or of all; each knows the seq before and after it."""
        return steps_of(self.logs, names.task_log(id), turn)

    def under_way(self, id: str) -> builtins.list[WatchedStep]:
        """The steps of a task under way in this process that have not announced themselves in the log yet."""
        return self._dispatcher.services.watch.under_way(id)

    def step(self, id: str, key: str) -> StepState:
        """One step by its key; in a loop `3/draft#1` is that of turn 3."""
        return step_by_key(self.logs, names.task_log(id), key)

    def diff(self, id: str, a: int, b: int) -> list[dict[str, Any]]:
        """Return what changed between two seqs, as a JSON Patch that turns the first state into the second."""
        from holdfast.engine.lists import deltas

        return deltas.diff(self.logs, names.task_log(id), a, b)

    def deltas(
        self,
        id: str,
        *,
        after: int = 0,
        upto: int | None = None,
        sections: Collection[str] | None = None,
        limit: int | None = None,
    ) -> Iterator[Delta]:
        """Return what each event after a seq changed in the task's document, `app.at(id, seq).to_dict()`.

        `sections` are those of `to_dict` that matter. Default: all. Apply the patches in order to the document at
        `after` (`{}` for 0) and you have the document at any later seq, without folding or fetching it again.
        """
        from holdfast.engine.lists import deltas

        return deltas.deltas(self.logs, names.task_log(id), after=after, upto=upto, sections=sections, limit=limit)

    def user(self, id: str) -> User:
        """A person: state that outlives tasks, their tasks, and how to forget them."""
        from holdfast.engine.people.user import User  # few programs need it

        return User(self.logs, id)

    def thread(self, id: str | None = None) -> Thread:
        """A conversation that spans tasks; without an id, a new one, which `create` or its first message begins."""
        from holdfast.engine.people.thread import Thread

        return Thread(self.logs, self.new_id() if id is None else id)

    def users(self, *, after: str | None = None, limit: int = limits.PAGE_SIZE) -> builtins.list[User]:
        """Return the users there are, in the order of their ids. `after` is the id of the last one seen."""
        from holdfast.engine.people.user import users

        return users(self.logs, after=after, limit=limit)

    def threads(self, *, after: str | None = None, limit: int = limits.PAGE_SIZE) -> builtins.list[Thread]:
        """Return the threads there are, in the order of their ids. `after` is the id of the last one seen."""
        from holdfast.engine.people.thread import threads

        return threads(self.logs, after=after, limit=limit)

    def records(self, space: str) -> Records:
        """Opaque bytes in ordered, named logs: data that is not a task, such as checkpoints and sessions of others.

        `space` keeps what belongs to one use apart from others': "langgraph", "sessions".
        """
        from holdfast.engine.records.records import Records

        return Records(self.logs, space)

    # Looking after the store

    def verify(self, id: str | None = None, *, progress: Callable[[int], None] | None = None) -> Verification:
        """Walk the chain of one task, or all, and name the first bad seq of each that is damaged.

        `progress` is called with the number of logs walked.
        """
        return verify.verify(self.logs, None if id is None else names.task_log(id), progress)

    def doctor(self) -> builtins.list[Finding]:
        """Look at the store and the place it is in: what is well, what is not, and what to do about it."""
        from holdfast.engine.maintenance.doctor import examine

        return examine(self._address, lambda: self.logs)

    def export(self, id: str, path: str | os.PathLike[str]) -> int:
        """Write a task to a new file as JSON Lines, lossless; gives the number of bytes."""
        return upkeep.export_to(self.logs, names.task_log(id), path)

    def export_lines(self, id: str) -> Iterator[bytes]:
        """Return the lines that `export` writes."""
        return upkeep.export(self.logs, names.task_log(id))

    def import_(self, source: str | os.PathLike[str] | Iterable[bytes]) -> Copied:
        """Bring in what `export` wrote. Nothing is written unless every digest holds."""
        if isinstance(source, str | os.PathLike):
            with builtins.open(source, "rb") as file:
                return upkeep.import_lines(self.logs, upkeep.lines_of(file))
        return upkeep.import_lines(self.logs, source)

    def stats(self) -> Stats:
        """Count tasks, events and bytes."""
        return self.store.stats()

    def depths(self, namespace: str | None = None) -> builtins.list[QueueDepth]:
        """Count the tasks of each queue that are ready, running or waiting for a time: of one tenant, or of all."""
        return self.store.queues.depths(namespace or self.namespace or None)

    def metrics(self, *, openmetrics: bool = False) -> str:
        """Metrics as Prometheus reads them: what the store counts, and what was measured if `open` got `metrics=True`.

        `openmetrics`: whether the text is OpenMetrics, whose exemplars lead to traces. Default False.
        """
        from holdfast.engine.telemetry.telemetry import metrics_text

        return metrics_text(self.logs, self.telemetry, openmetrics=openmetrics)

    def gc(
        self,
        *,
        older_than: Duration | None = None,
        keep: int | None = None,
        snapshots_older_than: Duration | None = None,
        why: str = "retention",
        progress: Progress | None = None,
    ) -> Collected:
        """Remove ended tasks beyond the newest `keep` that ended longer ago than `older_than`, such as "7d".

        What has expired (`expire=`) is ended or removed, too: `expired` says beforehand what that is.

        Unique keys stay, so does the id (as TaskCollected), and so do the parents of living forks. `collectable` says
        beforehand which tasks would go.
        """
        retention.refuse_keep(keep)
        names.text(why, "why=")
        from holdfast.engine.people import expiry

        gone = expiry.expire(self.logs)
        collected = retention.collect(
            self.logs,
            older_than_us=self._before(older_than),
            keep=keep,
            snapshots_before_us=self._before(snapshots_older_than),
            why=why,
            progress=progress,
        )
        return replace(
            collected,
            expired_tasks=len(gone.tasks),
            expired_threads=len(gone.threads),
            expired_users=len(gone.users),
            expired_records=len(gone.records),
        )

    def expired(self) -> Expired:
        """Return what has expired: tasks that `gc` would cancel now, and threads, users and records it would remove."""
        from holdfast.engine.people import expiry

        return expiry.expired(self.logs)

    def collectable(self, *, older_than: Duration | None = None, keep: int | None = None) -> builtins.list[str]:
        """Return the ids of the tasks that `gc` would remove now. Nothing is written."""
        return retention.collectable(self.logs, older_than_us=self._before(older_than), keep=keep)

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Write a consistent copy of the store to a new file while other processes keep working."""
        self.store.backup(names.text(os.fspath(path), "path"))

    def copy_to(self, url: str | os.PathLike[str], progress: Progress | None = None) -> Copied:
        """Copy everything into another store and verify it there. Run it again to continue or to catch up."""
        with open(url, clock=self.clock) as target:
            return copy.verified_copy(self.logs, target.logs, progress)

    def close(self, *, grace: Duration = limits.CLOSE_GRACE_SECONDS) -> None:
        """Close the store. Tasks under way in other threads stop after their step; closing twice is fine.

        `grace`: how long to wait for their calls. One that takes longer is left in doubt, and this process counts as
        alive until its thread ends: no other process makes that call again meanwhile. Default 10 s.
        """
        if self._dispatcher.notices is not None:
            self._dispatcher.notices.close()
        if self._dispatcher.failures is not None:
            self._dispatcher.failures.close()
        is_idle = self._dispatcher.stop(seconds(grace, "grace"), self.store.depart)
        self._dispatcher.services.watch.close()
        self._dispatcher.stop_publishing()
        if self.telemetry is not None:
            self.telemetry.close()
        self.feed.close()
        self.logs.committer.close()
        self.logs.cache.close()
        self.store.close(present=not is_idle)

    def _before(self, age: Duration | None) -> int | None:
        return None if age is None else self.clock.now_us() - int(seconds(age, "age") * 1_000_000)

    def _load(self, id: str, seq: int | None = None) -> Log:
        if seq is not None:
            names.seq(seq)
        return self.logs.load(names.task_log(id), upto=seq)

"""Where tasks are worked on in this process: who works on what, children too, and who is told of waits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core import events as ev, limits, names
from holdfast.core.errors import Conflict, Diverged, InvalidValue, TaskBusy, TaskExists
from holdfast.core.events import Event, Fields
from holdfast.core.flows.requests import Child
from holdfast.engine.control import answers
from holdfast.engine.definitions.agent import Agent, nobody
from holdfast.engine.definitions.prices import Prices
from holdfast.engine.dispatch import claim
from holdfast.engine.execution import mocks
from holdfast.engine.execution.execution import Run
from holdfast.engine.execution.pending import Stop
from holdfast.engine.logs.log import Log, Logs
from holdfast.engine.reading import contracts
from holdfast.engine.reading.task_state import TaskState
from holdfast.engine.system.entropy import chance
from holdfast.failpoints import failpoint

OnWait = Callable[[TaskState], None]
_FOR_PEOPLE = ("person", "doubt", "budget", "diverged")


class Job:
    """A task to be worked on: by whom, how it is found or begun, how long it is held, and what may stop it.

    `held` is its log, if it was claimed already.
    """

    def __init__(
        self,
        id: str,
        agent: Agent,
        prepare: Callable[[], tuple[Log, bool]],
        hold: float = limits.HOLD_SECONDS,
        stop: Stop | None = None,
        first: contracts.First | None = None,
        held: Log | None = None,
    ) -> None:
        self.id = id
        self.held = held
        self.agent = agent
        self.prepare = prepare
        self.first = first
        self.hold = hold
        self.stop = stop or Stop()


class Workshop:
    """The work of one app."""

    def __init__(self, logs: Logs, on_wait: OnWait | None = None, prices: Prices | None = None) -> None:
        self.logs = logs
        self.prices = prices or Prices()
        self.agents: dict[str, Agent] = {}
        self.busy = claim.Busy(logs.store.holder)
        self.held: set[str] = set()
        """Tasks that workers of this process have taken, or are about to; kept before that is written."""
        self.tenants: dict[str, Workshop] = {}
        """Where tasks of tenants are worked on: one place for all workers, who are one holder."""
        self.mocks: dict[str, Mapping[str, Any]] = {}
        self._on_wait = on_wait

    def know(self, agent: Agent) -> Agent:
        """Remember an agent by its name, for those who resume by id."""
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{agent!r} is not an agent", hint="declare it with @agent")
        self.agents[agent.name] = agent
        return agent

    def agent_of(self, log: Log, given: Agent | None) -> Agent:
        """The agent a task belongs to: the one given, or one this app was told of. Never one found by name in code."""
        if given is not None:
            return self.know(given)
        name = log.state.summary.agent
        if name not in self.agents and not log.state.block:
            raise InvalidValue(
                f"this app does not know the agent {name!r} of task {log.name!r}",
                hint="give it: app.resume(id, agent), or open(…, agents=[…])",
                id=log.name,
            )
        return self.agents.get(name) or nobody(name)

    def work(self, job: Job) -> Log:
        """Work on a task here and now until it ends or waits."""
        with claim.stopped_by_interrupt(job.stop, job.id):
            if job.agent.is_async:
                return self._in_a_loop(job)
            with self.busy.with_(job.id):
                log, go_on = self._take(job)
                if go_on:
                    run = Run(self.logs, log, job.agent, hold=job.hold, stop=job.stop)
                    run.children, run.priced, run.mocks = self.child, self.prices.priced, self.mocks.get(job.id, {})
                    claim.work(run)
                    self.logs.cache.remember(log)
            self._tell(log)
            return log

    def work_when_free(self, job: Job, wait: float) -> Log:
        """Work on a task as soon as nobody else does; give up after so many seconds."""
        until = time.monotonic() + wait
        while True:
            try:
                return self.work(job)
            except TaskBusy:
                if time.monotonic() >= until:
                    raise
            time.sleep(limits.FOLLOW_SECONDS)

    async def work_async_when_free(self, job: Job, wait: float) -> Log:
        """The same on the running event loop."""
        import asyncio

        until = time.monotonic() + wait
        while True:
            try:
                return await self.work_async(job)
            except TaskBusy:
                if time.monotonic() >= until:
                    raise
            await asyncio.sleep(limits.FOLLOW_SECONDS)

    async def work_async(self, job: Job) -> Log:
        """The same on the running event loop; a `def` agent gets a thread."""
        import asyncio

        from holdfast.engine.dispatch.claim_async import begin_async, work_async
        from holdfast.engine.execution.loop_execution import LoopRun

        if not job.agent.is_async:
            return await asyncio.to_thread(self.work, job)
        with self.busy.with_(job.id):
            alone = job.first is not None and job.first[0].user is None and job.first[0].thread is None
            alone = alone and job.id not in self.logs.heads
            begun = await begin_async(self.logs, job.id, self._first(*job.first)) if job.first and alone else job.held
            log, go_on = await asyncio.to_thread(self._take, job) if begun is None else (begun, True)
            if go_on:
                run = LoopRun(self.logs, log, job.agent, hold=job.hold, stop=job.stop)
                run.children_async, run.priced = self._child_async, self.prices.priced
                run.mocks = self.mocks.get(job.id, {})
                await work_async(run)
                self.logs.cache.remember(log)
        if self._on_wait is not None:
            await asyncio.to_thread(self._tell, log)
        return log

    def _take(self, job: Job) -> tuple[Log, bool]:
        """Claim a task if there is anything to do for it; a new one is created and claimed in one write."""
        log, claimed = job.prepare()
        if not claimed and claim.can_go_on(self.logs, log, job.hold):
            claim.claim(log)
            claimed = True
        return log, claimed

    def _in_a_loop(self, job: Job) -> Log:
        """An async agent, asked for by a program that is not: it gets an event loop of its own."""
        import asyncio

        if _loop_is_running():
            raise InvalidValue(
                f"{job.agent.name!r} is async and an event loop is running here", hint="write: await app.arun(…)"
            )
        return asyncio.run(self.work_async(job))

    # Children

    def child(self, wish: Child, run: Run) -> None:
        """Let a child begin or go on, here, and read what came of it."""
        with contextlib.suppress(TaskBusy, Diverged):  # somebody else works on it, or must: its end will wake us
            self.work(self._child_job(wish, run))
        run.refresh()

    async def _child_async(self, wish: Child, run: Any) -> None:
        with contextlib.suppress(TaskBusy, Diverged):
            await self.work_async(self._child_job(wish, run))
        await run.refresh_async()

    def _child_job(self, wish: Child, run: Run) -> Job:
        """Starting a child, or finding it: its id is its place, so starting it twice is starting it once."""
        if wish.id.count("#") > limits.MAX_CHILD_DEPTH:
            raise InvalidValue(
                f"{wish.id!r} is the child of too many children", hint="let fewer tasks start each other"
            )
        self.know(wish.agent)
        parent = run.hot.summary
        limit = deadline_us(self.logs.clock.now_us(), wish.agent.deadline, parent.deadline_us)
        given: dict[str, Any] = {"user": parent.user, "thread": parent.thread, "queue": parent.queue}
        given |= {"parent": parent.id, "parent_step": wish.step, "priority": parent.priority, "mock": parent.mock}
        given |= contracts.inherited(run.hot, self.logs)
        if run.mocks:
            self.mocks[wish.id] = run.mocks
        payers = (*run.hot.payers, *((parent.id,) if run.hot.budget is not None else ()))
        first = created(wish.agent, wish.input, deadline_us=limit, payers=payers, **given), ()
        prepare = lambda: self.enter(wish.id, wish.agent, *first)  # noqa: E731 — made for one job
        return Job(wish.id, wish.agent, prepare, run.hold, run.stop, first)

    # Beginnings

    def enter(self, name: str, agent: Agent, first: ev.TaskCreated, then: tuple[Event, ...] = ()) -> tuple[Log, bool]:
        """The task of that id, begun and claimed if it is not there; and whether it was."""
        if self.logs.store.origin(name) is None:
            with contextlib.suppress(TaskExists):  # another process was first, and its task is the same
                failpoint("claim.before")
                log = begin(self.logs, name, self._first(first, then), None)
                failpoint("claim.after")
                return log, True
        log = self.logs.load(name)
        claim.check_agent(log, agent)
        claim.same_owner(log, first)
        claim.same_input(self.logs, log, first.input)
        contracts.same_contract(self.logs, log, first, then)
        mocks.refuse_real(log, first.mock)
        if log.state.ended and first.parent is not None:
            answers.child_again(self.logs, first.parent, name)
            log.refresh()
        if not log.state.ended:
            claim.check_resumable(self.logs, log, agent)
        return log, False

    def _first(self, first: ev.TaskCreated, then: tuple[Event, ...]) -> list[Event]:
        """The first write of a task that is worked on at once: it is created and claimed in one."""
        pins = self.logs.pins(first.user, first.thread)
        store = self.logs.store
        return [first, *then, ev.TaskClaimed(holder=store.holder(), lease_seconds=store.lease_seconds, pins=pins)]

    def begin(self, name: str, first: Event, then: tuple[Event, ...] = ()) -> Log:
        """Write the first event of a task, and what follows it at once."""
        return begin(self.logs, name, [first, *then], None)

    def _tell(self, log: Log) -> None:
        """Tell the program that a task now waits for a person."""
        if self._on_wait is not None and log.state.summary.waiting in _FOR_PEOPLE:
            self._on_wait(TaskState(log, self.logs))


def _loop_is_running() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def begin(logs: Logs, name: str, events: list[Event], parent: Log | None) -> Log:
    """Write the first events of a task, or of a fork of another."""
    if name in logs.heads:
        from holdfast.engine.control import divergence  # hardly ever needed

        divergence.refuse_lost(logs, name, events[0])
    log = Log(logs, name)
    if parent is not None:
        log.hot, log.head = parent.hot, parent.head
    log.check(events)
    try:
        return logs.create(name, events) if parent is None else logs.fork(parent, name, events)
    except Conflict:
        if parent is not None and logs.store.origin(parent.name) is None:
            raise logs.missing(parent.name) from None
        if logs.store.tombstone(name) is not None:
            raise logs.missing(name) from None
        raise TaskExists(name) from None


def created(agent: Agent | str, input: Fields, **given: Any) -> ev.TaskCreated:
    """The first event of a task."""
    user, thread = given.pop("user", None), given.pop("thread", None)
    declared: dict[str, Any] = {}
    if isinstance(agent, Agent):
        declared = {"stages": agent.stages, "version": agent.version, "state_version": agent.state_version}
        declared |= {"phases": agent.phases, "budget": agent.budget}
    return ev.TaskCreated(
        agent=names.short_name(agent if isinstance(agent, str) else agent.name, "agent's name"),
        input=input,
        seed=chance(8),
        user=None if user is None else names.user_log(user).removeprefix("@user/"),
        thread=None if thread is None else names.thread_log(thread).removeprefix("@thread/"),
        salt=chance(8) if user is not None else "",
        **{**declared, **given},
    )


def deadline_us(now_us: int, seconds: float | None, moment_us: int | None = None) -> int | None:
    """When a task must be done: the first of a length of time from now and a moment somebody else set."""
    mine = None if seconds is None else now_us + int(seconds * 1_000_000)
    return min((one for one in (mine, moment_us) if one is not None), default=None)

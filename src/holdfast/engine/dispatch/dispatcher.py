"""Where tasks are worked on in this process: who works on what, children too, and who is notified of waits."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core import events as ev, limits
from holdfast.core.errors import (
    Diverged,
    InvalidValue,
    Stopped,
    StoreClosed,
    TaskBusy,
    TaskCollected,
    TaskExists,
    TaskFinished,
    TaskNotFound,
    ThreadBusy,
)
from holdfast.core.events import Event
from holdfast.core.flows.requests import RunChild
from holdfast.core.flows.stops import earliest
from holdfast.core.state.budget import wall_end_us
from holdfast.core.state.shapes import State
from holdfast.engine.control.change import change
from holdfast.engine.control.lifecycle import child_again, reopen
from holdfast.engine.definitions.agent import Agent, block_agent
from holdfast.engine.definitions.prices import Prices
from holdfast.engine.definitions.tool import is_tool
from holdfast.engine.dispatch import begin, checks, claim
from holdfast.engine.dispatch.begin import TaskOptions, created, deadline_us
from holdfast.engine.dispatch.closed_loops import ClosedLoops, LoopWork
from holdfast.engine.dispatch.runner import Runner, finished
from holdfast.engine.drivers.abandonable import ThreadCall
from holdfast.engine.drivers.driver import THREADS
from holdfast.engine.execution import mocks
from holdfast.engine.execution.execution import Execution, Services
from holdfast.engine.execution.pending import Stop
from holdfast.engine.execution.watch import Watch
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading import contracts
from holdfast.engine.streams.publisher import Publisher
from holdfast.failpoints import failpoint

if TYPE_CHECKING:
    from holdfast.engine.notices.failures import FailureNotices
    from holdfast.engine.notices.notices import Notices

E = TypeVar("E", bound=Execution)


class Assignment:
    """A task to be worked on: by which agent, how it is found or begun, how long it is held, and what may stop it.

    `first_events` are written if it is new. `held` is its log, if it was claimed already.
    """

    def __init__(
        self,
        id: str,
        agent: Agent,
        prepare: Callable[[], tuple[Log, bool]],
        hold: float = limits.HOLD_SECONDS,
        stop: Stop | None = None,
        first_events: contracts.First | None = None,
        held: Log | None = None,
    ) -> None:
        self.id = id
        self.held = held
        self.agent = agent
        self.prepare = prepare
        self.first_events = first_events
        self.hold = hold
        self.stop = stop or Stop()


class Dispatcher:
    """Decides who works on which task in this process, and lets them."""

    def __init__(self, logs: Logs, prices: Prices | None = None) -> None:
        self.logs = logs
        self.prices = prices or Prices()
        self.agents: dict[str, Agent] = {}
        self.busy = claim.Busy(logs.store.holder)
        self.held: set[str] = set()
        """Tasks that workers of this process have taken, or are about to; kept before that is written."""
        self.tenants: dict[str, Dispatcher] = {}
        """The dispatchers of tenants: one for all workers of the process, which share its claims."""
        self.mocks: dict[str, Mapping[str, Any]] = {}
        self.services = Services(self.child, self._child_async, self.prices.priced, Watch(logs), Publisher(logs), {})
        self.notices: Notices | None = None
        """Called when a task waits for a person."""
        self.failures: FailureNotices | None = None
        """Called when a task fails, besides the log of the program."""
        self._loops = ClosedLoops()

    def is_at_work(self, id: str) -> bool:
        """Return whether a task is being worked on here, or was taken to be."""
        return self.busy.has(id) or id in self.held

    def register(self, agent: Agent) -> Agent:
        """Remember an agent by its name, so that its tasks can be resumed by id."""
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{agent!r} is not an agent", hint="declare it with @agent")
        self.agents[agent.name] = agent
        self.services.tools.update({one.name: one for one in agent.tools if is_tool(one)})
        return agent

    def register_all(self, agents: Sequence[Agent]) -> list[Agent]:
        """Remember agents; refuse what is not a list of them."""
        if isinstance(agents, Agent) or not isinstance(agents, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"agents={agents!r} is not a list of agents", hint="give a list: [agent]")
        return [self.register(one) for one in agents]

    def agent_of(self, log: Log, given: Agent | None) -> Agent:
        """The agent a task belongs to: the one given, or one this app knows. Never one found by name in code."""
        if given is not None:
            return self.register(given)
        name = log.state.summary.agent
        if name not in self.agents and not log.state.block:
            raise InvalidValue(
                f"the agent {name!r} of task {log.name!r} is not known here",
                hint="give it: app.resume(id, agent), or open(…, agents=[…])",
                id=log.name,
            )
        return self.agents.get(name) or block_agent(name)

    def work(self, assignment: Assignment, *, apart: bool = False) -> Log:
        """Work on a task here and now until it ends or waits.

        `apart`: a `def` agent gets a thread of its own, which can be abandoned; default False.
        """
        with self._closing(assignment.id), claim.stopped_by_interrupt(assignment.stop, assignment.id):
            if assignment.agent.is_async:
                return self._in_a_loop(assignment)
            with self.busy.with_(assignment.id, assignment.stop):
                log, go_on = self._take(assignment)
                worked = go_on
                while go_on:
                    log = Runner(self.execution(Execution, assignment, log)).run(apart=apart)
                    self.logs.cache.remember(log)
                    go_on = assignment.held is None and self._taken_again(log)
                self._expect(log, worked)
            self._tell(log, worked)
            return log

    def _taken_again(self, log: Log) -> bool:
        """Claim a task again that suspended although its answer had come, so that it is due at once.

        A thread of a `def` agent that waits ends there, and comes back with the next replay. If it was abandoned, its
        answer may have come long ago. A worker would take the task again by itself.
        """
        summary = log.state.summary
        is_free = summary.status == "pending" and summary.wake_us is None
        is_due = summary.wake_us is not None and summary.wake_us <= self.logs.clock.now_us()
        if not is_free and not (summary.status == "waiting" and is_due):
            return False
        with contextlib.suppress(TaskBusy):  # another process was quicker
            claim.claim(log)
            return True
        return False

    async def work_held(self, assignment: Assignment) -> Log:
        """Work on a claimed task of a `def` agent in a thread, while the event loop keeps running."""
        import asyncio

        assert assignment.held is not None
        with self._closing(assignment.id), self.busy.with_(assignment.id, assignment.stop):
            log = await Runner(self.execution(Execution, assignment, assignment.held)).run_async()
            self.logs.cache.remember(log)
            if self._is_news(log):
                await asyncio.to_thread(self._expect, log)
        if self._is_news(log):
            await asyncio.to_thread(self._tell, log)
        return log

    @contextlib.contextmanager
    def _closing(self, id: str) -> Generator[None, None, None]:
        """Tell a thread whose task was stopped because the app was closed."""
        try:
            yield
        except Stopped:
            if not self.busy.is_closing:
                raise
            told = f"the app was closed while task {id!r} was under way; the task was released"
            raise StoreClosed(told, hint="open the store again and resume the task") from None

    def stop(self, seconds: float, when_idle: Callable[[], None]) -> bool:
        """Stop what is under way in this process, of tenants too; whether everything has ended in time."""
        until = time.monotonic() + seconds
        dispatchers = [self, *self.tenants.values()]
        left = [one for one in dispatchers if not one.busy.stop(max(until - time.monotonic(), 0), when_idle)]
        return not left

    def stop_publishing(self) -> None:
        """Write the last chunks of steps that streamed, of tenants too."""
        for one in (self, *self.tenants.values()):
            one.services.publisher.close()

    def look_for_cancels(self) -> None:
        """Notice at once, where this process works on it, that a task was cancelled."""
        for one in (self, *self.tenants.values()):
            one.services.watch.look()

    def work_when_free(self, assignment: Assignment, wait: float) -> Log:
        """Work on a task as soon as no other worker does; give up after so many seconds."""
        until = time.monotonic() + wait
        while True:
            try:
                return self.work(assignment)
            except (TaskBusy, ThreadBusy) as busy:
                if _waited_enough(busy, until):
                    raise self._busy(busy) from None
            time.sleep(limits.FOLLOW_SECONDS)

    def _busy(self, busy: TaskBusy | ThreadBusy) -> TaskBusy | ThreadBusy:
        """The same, if the task was cancelled: then cancelling it doesn't help."""
        if isinstance(busy, ThreadBusy):
            return busy
        id, holder = str(busy.details["id"]), str(busy.details["holder"])
        with contextlib.suppress(TaskNotFound, TaskCollected):  # it is just being created, or removed
            return TaskBusy(id, holder, is_cancelled=self.logs.load(id).state.cancel is not None)
        return busy

    async def work_async_when_free(self, assignment: Assignment, wait: float) -> Log:
        """`work_when_free` on the running event loop."""
        import asyncio

        until = time.monotonic() + wait
        while True:
            try:
                return await self.work_async(assignment)
            except (TaskBusy, ThreadBusy) as busy:
                if _waited_enough(busy, until):
                    raise await asyncio.to_thread(self._busy, busy) from None
            await asyncio.sleep(limits.FOLLOW_SECONDS)

    async def work_async(self, assignment: Assignment) -> Log:
        """`work` on the running event loop; a `def` agent gets a thread, which a cancel does not wait for."""
        import asyncio

        from holdfast.engine.dispatch.loop_claim import begin_async, work_async
        from holdfast.engine.execution.loop_execution import LoopExecution

        if not assignment.agent.is_async:
            call = THREADS.start(ThreadCall(lambda: self.work(assignment, apart=True)))
            await finished(call)
            return call.value()
        with self._closing(assignment.id), self._on_loop(assignment):
            begun = assignment.held
            if assignment.first_events is not None and self._is_alone(assignment.id, assignment.first_events[0]):
                begun = await begin_async(self.logs, assignment.id, self._first_write(*assignment.first_events))
            log, go_on = await asyncio.to_thread(self._take, assignment) if begun is None else (begun, True)
            if go_on:
                await work_async(self.execution(LoopExecution, assignment, log))
                self.logs.cache.remember(log)
            if self._is_news(log):
                await asyncio.to_thread(self._expect, log, go_on)
        if self._is_news(log):
            await asyncio.to_thread(self._tell, log, go_on)
        return log

    @contextlib.contextmanager
    def _on_loop(self, assignment: Assignment) -> Generator[None, None, None]:
        """Work on a task on the running event loop; should that be closed meanwhile, the task is released."""
        import asyncio

        id = assignment.id
        self.busy.begin(id, assignment.stop)
        work = LoopWork(asyncio.get_running_loop(), lambda: self._let_go(id))
        self._loops.begin(work)
        try:
            yield
        finally:
            if self._loops.end(work):
                self.busy.end(id)

    def _let_go(self, id: str) -> None:
        """Release a task whose event loop was closed. Until that is done, this process does not take it again."""
        own = self.logs.store.holder()

        def decide(state: State) -> Sequence[Event]:
            if state.summary.status != "running" or state.summary.holder != own:
                raise TaskFinished(id, state.summary.status, "its release")
            return (ev.TaskReleased(why="its event loop was closed"),)

        try:
            with contextlib.suppress(TaskFinished):
                change(self.logs, id, decide)
        finally:
            self.services.watch.forget(id)
            self.held.discard(id)
            self.busy.end(id)

    def execution(self, kind: type[E], assignment: Assignment, log: Log) -> E:
        """The work on a claimed task."""
        return kind(
            self.logs,
            log,
            assignment.agent,
            self.services,
            mocks=self.mocks.get(assignment.id, {}),
            hold=assignment.hold,
            stop=assignment.stop,
        )

    def _take(self, assignment: Assignment) -> tuple[Log, bool]:
        """Claim a task if there is anything to do for it; a new one is created and claimed in one write."""
        log, claimed = assignment.prepare()
        if not claimed and checks.can_go_on(self.logs, log, assignment.hold):
            claim.claim(log)
            claimed = True
        return log, claimed

    def _is_alone(self, id: str, first: ev.TaskCreated) -> bool:
        """Return whether a new task may be written without a look: it begins no user or thread, and is unknown here."""
        return first.user is None and first.thread is None and id not in self.logs.heads

    def _in_a_loop(self, assignment: Assignment) -> Log:
        """An async agent, asked for by a program that is not: it gets an event loop of its own."""
        import asyncio

        if _loop_is_running():
            raise InvalidValue(
                f"{assignment.agent.name!r} is async and an event loop is running here", hint="write: await app.arun(…)"
            )
        return asyncio.run(self.work_async(assignment))

    # Children

    def child(self, asked: RunChild, execution: Execution) -> None:
        """Start or resume a child, here, and read what came of it."""
        with _child_is_left(execution):
            self.work(self._child_assignment(asked, execution))
        execution.refresh()

    async def _child_async(self, asked: RunChild, execution: Any) -> None:
        with _child_is_left(execution):
            await self.work_async(self._child_assignment(asked, execution))
        if asked.step in execution.state.waits:  # else it was read together with the end of another child
            await execution.refresh_together()

    def _child_assignment(self, asked: RunChild, execution: Execution) -> Assignment:
        """Starting a child, or finding it: its id is its place, so starting it twice is starting it once."""
        if asked.id.count("#") > limits.MAX_CHILD_DEPTH:
            raise InvalidValue(
                f"{asked.id!r} is the child of too many children", hint="let fewer tasks start each other"
            )
        self.register(asked.agent)
        parent = execution.state.summary
        limit = deadline_us(self.logs.clock.now_us(), asked.agent.deadline, parent.deadline_us)
        if execution.mocks:
            self.mocks[asked.id] = execution.mocks
        first = created(
            asked.agent,
            asked.input,
            user=parent.user,
            thread=parent.thread,
            queue=parent.queue,
            priority=parent.priority,
            parent=parent.id,
            parent_step=asked.step,
            mock=parent.mock,
            key_space=execution.state.key_space or self.logs.key_space,
            deadline_us=limit,
            payers=(*execution.state.payers, *((parent.id,) if execution.state.budget is not None else ())),
            risks=tuple(sorted({*execution.state.risks, *execution.agent.risks})),
            **contracts.inherited(execution.state, self.logs),
        )
        prepare = lambda: self.enter(asked.id, asked.agent, first)  # noqa: E731 — made for one assignment
        until_us = earliest(wall_end_us(execution.state), execution.stop.until_us)  # a deadline is the child's own, too
        stop = Stop(execution.stop, until_us)
        return Assignment(asked.id, asked.agent, prepare, execution.hold, stop, (first, ()))

    # Beginning and resuming

    def first_events(
        self, name: str, agent: Agent | str, input: Mapping[str, Any] | None, options: TaskOptions
    ) -> contracts.First:
        """Return the first event of a task and what follows it in the same write, if what it is given fits."""
        if isinstance(agent, Agent):
            self.register(agent)
        mock = mocks.register_mocks(self.mocks, name, options.mock)
        now_us, key_space = self.logs.clock.now_us(), self.logs.key_space
        return begin.first_events(agent, input, options, now_us, mock=mock, key_space=key_space)

    def assignment(
        self, name: str, agent: Agent, input: Mapping[str, Any] | None, options: TaskOptions, hold: float
    ) -> Assignment:
        """Starting or resuming a task, here and now."""
        first = self.first_events(name, self.register(agent), input, options)
        return Assignment(name, agent, lambda: self.enter(name, agent, *first), hold, first_events=first)

    def resumption(
        self, log: Log, agent: Agent | None, *, anyway: bool, by: str, why: str, deadline_us: int | None, hold: float
    ) -> Assignment:
        """The work that is left on a task. A quarantined one is claimed, a failed one is reopened."""
        known = self.agent_of(log, agent)
        if log.state.summary.status == "completed":
            checks.check_agent(log, known)
            return Assignment(log.name, known, lambda: (log, False), hold)
        checks.check_resumable(self.logs, log, known, anyway=anyway)
        if deadline_us is not None and not log.state.ended:
            raise InvalidValue(
                f"deadline= is for a task that has failed; task {log.name!r} is {log.state.summary.status}",
                hint="leave it out; if the task fails because its deadline has passed, resume it with a new one",
            )
        if log.state.summary.waiting == "diverged":
            log = change(self.logs, log.name, lambda state: (ev.DivergenceAccepted(by=by, why=why),))
        summary = log.state.summary
        if summary.status == "cancelled":
            raise TaskFinished(log.name, summary.status, "app.resume")
        if log.state.ended:
            log = change(self.logs, log.name, reopen(by, why, deadline_us))

        tries = itertools.count()

        def prepare() -> tuple[Log, bool]:
            if next(tries):  # another process had the task, and may have ended it meanwhile
                log.refresh()
            if summary.waiting == "quarantined" and log.state.summary.waiting == "quarantined":
                claim.claim(log)
                return log, True
            return log, False

        return Assignment(log.name, known, prepare, hold)

    def enter(self, name: str, agent: Agent, first: ev.TaskCreated, then: tuple[Event, ...] = ()) -> tuple[Log, bool]:
        """The task of that id, begun and claimed if it is not there; and whether it was."""
        if self.logs.store.origin(name) is None:
            with contextlib.suppress(TaskExists):  # another process was first, and its task is the same
                failpoint("claim.before")
                log = begin.begin(self.logs, name, self._first_write(first, then))
                failpoint("claim.after")
                return log, True
        log = self._same_task(name, agent.name, first, then)
        if log.state.ended and first.parent is not None:
            child_again(self.logs, first.parent, name, first.deadline_us)
            log.refresh()
        if not log.state.ended:
            checks.check_resumable(self.logs, log, agent)
        return log, False

    def _same_task(self, name: str, agent: str, first: ev.TaskCreated, then: tuple[Event, ...]) -> Log:
        """The task of that id, if it is the work that is asked for."""
        log = self.logs.load(name)
        checks.check_agent(log, agent)
        checks.same_owner(log, first)
        checks.same_input(self.logs, log, first.input)
        contracts.same_contract(self.logs, log, first, then)
        mocks.refuse_real(log, first.mock)
        return log

    def _first_write(self, first: ev.TaskCreated, then: tuple[Event, ...]) -> list[Event]:
        """The first write of a task that is worked on at once: it is created and claimed in one."""
        pins = self.logs.pins(first.user, first.thread)
        store = self.logs.store
        return [first, *then, ev.TaskClaimed(holder=store.holder(), lease_seconds=store.lease_seconds, pins=pins)]

    def begin(self, name: str, first: Event, then: tuple[Event, ...] = ()) -> Log:
        """Write the first event of a task, and what follows it at once."""
        return begin.begin(self.logs, name, [first, *then])

    def begin_or_find(self, name: str, first: ev.TaskCreated, then: tuple[Event, ...] = ()) -> Log:
        """The task of that id: begun, or found as it is if it was begun with the same input."""
        try:
            return self.begin(name, first, then)
        except TaskExists:
            return self._same_task(name, first.agent, first, then)

    # Notices

    def _is_news(self, log: Log) -> bool:
        """Whether anybody may want to know what became of a task."""
        return self.notices is not None or log.state.summary.status == "failed"

    def _expect(self, log: Log, worked: bool = True) -> None:
        """Let those who watch know that this process tells of the task itself."""
        if self.notices is not None:
            self.notices.skip(log)
        if worked and log.state.summary.status == "failed":
            self.expect_failure(log)

    def _tell(self, log: Log, worked: bool = True) -> None:
        """Tell the program that a task now waits for a person, or that it failed while it was worked on here."""
        if self.notices is not None:
            self.notices.tell(log)
        if worked and log.state.summary.status == "failed":
            self.tell_failure(log)

    def expect_failure(self, log: Log) -> None:
        """Mark a failure as reported here, so that the watcher of failures does not report it again."""
        if self.failures is not None:
            self.failures.expect(log)

    def tell_failure(self, log: Log) -> None:
        """Tell the log of the program, and the program, that a task failed."""
        from holdfast.engine.notices.failures import log_failure

        log_failure(self.logs, log)
        if self.failures is not None:
            self.failures.tell(log)


def _waited_enough(busy: TaskBusy | ThreadBusy, until: float) -> bool:
    """Return whether the time is over. Without a limit, there is no wait for a task that needs a person first."""
    needs_person = isinstance(busy, ThreadBusy) and bool(busy.details["waits_for"])
    return time.monotonic() >= until or (until == math.inf and needs_person)


@contextlib.contextmanager
def _child_is_left(execution: Execution) -> Generator[None, None, None]:
    """Leave a child that another process works on, or must, or that was stopped with the time of its parent."""
    try:
        yield
    except (TaskBusy, Diverged):
        return  # its end will wake us
    except Stopped:
        if execution.stop.asked:
            raise


def _loop_is_running() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

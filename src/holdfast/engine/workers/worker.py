"""A worker: takes tasks from queues, works on many at a time, and takes over what others let fall.

One thread asks the store for tasks, as many as there are free places, whenever it hears that there may be some. Async
agents share one event loop; each `def` agent has a thread. Nothing here decides what a task does: that is the same
its caller. A worker is one caller among many.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import events as ev, limits
from holdfast.core.codec import Stored
from holdfast.core.errors import Conflict, HoldfastError, InvalidValue, LeaseLost, Stopped, StoreError, TaskBusy
from holdfast.core.state.shapes import State
from holdfast.engine.control import lifecycle
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.definitions.queue import Queue
from holdfast.engine.dispatch import checks, claim
from holdfast.engine.dispatch.dispatcher import Assignment, Dispatcher
from holdfast.engine.dispatch.runner import in_thread
from holdfast.engine.drivers import abandonable
from holdfast.engine.execution.pending import Stop
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.logs import Logs
from holdfast.engine.maintenance.retention import Collected
from holdfast.engine.reading import serving
from holdfast.engine.system import ending, exits
from holdfast.engine.workers.claiming import IDLE_SECONDS, Claimed, Claiming, Dispatchers
from holdfast.engine.workers.counts import WorkerCounts
from holdfast.engine.workers.schedule import Schedule, Starter
from holdfast.engine.workers.upkeep import Retention, Upkeep
from holdfast.store.queues import WakeListener

ALONE_SECONDS = 5.0
"""How long a task that may kill waits for the others to be done or released."""

HANDFUL_SECONDS = 0.001
"""How long after it has asked for tasks a worker asks for more, for each task that it has."""

MAX_HANDFUL_SECONDS = 0.02
"""How long that is at the most."""

PAUSE_SECONDS = 5.0
"""How long it waits at the most before it tries a store again that could not be reached."""

Place = tuple[str, str]
"""A tenant and one of its tasks."""


_AT_WORK: set[Worker] = set()
"""Workers of this process. What kills one kills all."""

_LOCK = threading.Lock()


class Worked(Struct, frozen=True):
    """What came of working on a task: one of the names that are counted, and why."""

    namespace: str
    id: str
    agent: str
    outcome: str
    why: str = ""
    seconds: float = 0.0


class Plan(Struct, frozen=True, kw_only=True):
    """What a worker is to do."""

    agents: tuple[Agent, ...]
    queues: tuple[Queue, ...]
    namespaces: tuple[str, ...] | None = ("",)
    concurrency: int = limits.WORKER_CONCURRENCY
    hold: float = limits.WORKER_HOLD_SECONDS
    max_deaths: int = limits.MAX_DEATHS
    schedules: tuple[Schedule, ...] = ()
    gc: Retention | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if self.gc is not None and not isinstance(self.gc, Retention):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(
                f"gc={self.gc!r} is not a retention", hint='give Retention(every="1h", older_than="30d")'
            )
        if not self.agents:
            raise InvalidValue("a worker without agents has nothing to do", hint="app.worker([my_agent])")
        for what in ("concurrency", "max_deaths"):
            if not isinstance(getattr(self, what), int) or getattr(self, what) < 1:
                raise InvalidValue(f"{what}={getattr(self, what)!r} lets nothing happen", hint="give 1 or more")


class Worker:
    """Works until it is stopped. Made by `app.worker(…)`."""

    def __init__(self, dispatchers: Dispatchers, start: Starter, plan: Plan, logs: Logs) -> None:
        """`logs` are those of the app that made it, of which old tasks are removed if the plan says so."""
        self.plan = plan
        self._logs = logs
        self.counts = WorkerCounts()
        self.name = plan.name or f"{socket.gethostname()}-{os.getpid()}"
        self._start = start
        self._mine: dict[Place, Stop] = {}
        self._dispatchers = dispatchers
        self._home = dispatchers("" if plan.namespaces is None else plan.namespaces[0])
        served = tuple((agent.name, version) for agent in plan.agents for version in agent.accepts)
        self._claiming = Claiming(self._dispatcher, plan.queues, served, plan.namespaces, self._is_ours)
        self._known: dict[str, Dispatcher] = {}
        self._limited = any(one.concurrency is not None or one.per_key is not None for one in plan.queues)
        """Whether the end of a task may let another one begin."""
        self._has_woken = False
        """Whether tasks were looked for that an older version had suspended too soon."""
        self._more = False
        """Whether there may be more tasks to take than there was room for."""
        self._hindered: dict[str, str] = {}
        """Schedules whose task cannot be started, and why."""
        self._suspect: Place | None = None
        self.is_claiming = False
        """Whether it is about to take tasks, which `busy` does not count yet."""
        self._stopping = False
        self._ears: WakeListener | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done: asyncio.Event | None = None
        self._works: set[asyncio.Task[None]] = set()
        self._failed: BaseException | None = None
        self._announcement: serving.Announcement | None = None
        self._signals_seen = 0
        self._outlives_exits = False
        """Whether Ctrl-C is not meant for the event loop: then only a task can have raised KeyboardInterrupt there."""
        self.trouble = ""
        """Why the store cannot be reached, while that is so."""
        self.clogged = ""
        """Why no more tasks are claimed, while too many abandoned threads run."""
        self.tell: Callable[[Worked], None] | None = None
        """Called with what came of each task, and when one is taken over. From several threads."""
        self.tell_collected: Callable[[Collected], None] | None = None
        """Called with what was removed, when it was this worker's turn to remove old tasks."""
        self.at_once: Callable[[int], None] = exits.die_of
        """Called with the second signal, which is to end the process there and then."""

    def __repr__(self) -> str:
        return f"<worker {self.name} of {', '.join(agent.name for agent in self.plan.agents)}>"

    @property
    def busy(self) -> int:
        """The number of tasks it works on now."""
        return len(self._mine)

    @property
    def is_idle(self) -> bool:
        """True if it works on nothing, and nothing that it could take is ready or being worked on elsewhere."""
        return not self.busy and self._claiming.nothing_left(self._home.logs.clock.now_us())

    @property
    def suspects(self) -> bool:
        """True if it works on a task that may kill the process."""
        return self._suspect is not None

    @property
    def stopping(self) -> bool:
        """True if it was asked to stop."""
        return self._stopping

    @property
    def is_ready(self) -> bool:
        """True while it takes tasks: it has asked its store once, and nothing keeps it from asking again."""
        return self._has_woken and not (self._stopping or self.trouble or self.clogged)

    def run(self) -> None:
        """Work until `stop`, SIGTERM or Ctrl-C; every task then stops after its step, and is released.

        A second signal ends the process at once: other workers take over its tasks. Outside of the main thread, signals
        are left to the program.
        """
        signals = threading.current_thread() is threading.main_thread()
        exits.run(self.arun(signals=signals), lambda: self._outlives_exits)

    async def arun(self, *, signals: bool = False) -> None:
        """Work on the running event loop until `stop`, or until this is cancelled; tasks then stop after their step.

        `signals`: whether SIGTERM and Ctrl-C stop the worker, as in `run`. Default False: the signal handlers of the
        program stay as they are. True is for the main thread only.
        """
        self._refuse_signals(signals)
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        self._ears = self._home.logs.store.queues.listen(self._claiming.kind)
        with (
            _among_others(self),
            self._signals() if signals else contextlib.nullcontext(),
            self._woken_by_others(),
            self._upkeep(),
            serving.Announcement(self._home.logs.store, self._serving()) as self._announcement,
        ):
            asker = threading.Thread(target=self._ask_on, name="holdfast-claims", daemon=True)
            asker.start()
            try:
                await self._done.wait()
            finally:
                self.stop()
                await in_thread(asker.join)
                self._ears.close()
        if self._failed is not None:
            raise self._failed

    def stop(self) -> None:
        """Take no more tasks; those under way stop after their step. May be called from any thread, and twice."""
        self._stopping = True
        for stop in list(self._mine.values()):
            stop.ask()
        if self._ears is not None:
            self._ears.wake()

    def _refuse_signals(self, signals: bool) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if type(signals) is not bool:
            raise InvalidValue(
                f"signals={signals!r} is neither True nor False", hint="give signals=True, or leave it out"
            )
        if signals and not is_main:
            raise InvalidValue(
                "signals=True in a thread: Python sets signal handlers in the main thread only",
                hint="leave it out, and call worker.stop() from your own handler",
            )
        self._outlives_exits = signals or not is_main

    @contextlib.contextmanager
    def _signals(self) -> Generator[None, None, None]:
        """Stop when the process is asked to."""
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        for number in before:
            signal.signal(number, self._signalled)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def _woken_by_others(self) -> Generator[None, None, None]:
        """Hear what other servers tell through the tier they share, if there is one."""
        tier, ears = self._home.logs.cache.tier, self._ears
        stop = None if tier is None or ears is None else tier.on_wake(lambda queue: ears.hear())
        try:
            yield
        finally:
            if stop is not None:
                stop()

    def _upkeep(self) -> contextlib.AbstractContextManager[object]:
        """Remove old tasks meanwhile, when it is time and no other worker does."""
        wanted = self.plan.gc
        return contextlib.nullcontext() if wanted is None else Upkeep(self._logs, wanted, self.name, self._collected)

    def _collected(self, found: Collected) -> None:
        self.counts.add("collected", found.tasks)
        if self.tell_collected is not None:
            self.tell_collected(found)

    def _signalled(self, number: int, frame: object) -> None:
        self._signals_seen += 1
        self.stop()
        if self._signals_seen > 1:
            self.at_once(number)

    def _serving(self) -> serving.Serving:
        return serving.Serving(
            name=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            agents={agent.name: agent.accepts for agent in self.plan.agents},
            queues=tuple(queue.name for queue in self.plan.queues),
            namespaces=self.plan.namespaces,
            concurrency=self.plan.concurrency,
            started_us=self._home.logs.clock.now_us(),
            limits=tuple(one for one in self.plan.queues if one != Queue(one.name)),
            schedules=tuple(self._scheduled(one) for one in self.plan.schedules),
        )

    def _scheduled(self, one: Schedule) -> serving.Scheduled:
        place = {"queue": one.options.queue, "namespace": self._logs.namespace}
        return serving.Scheduled(name=one.name, agent=one.agent.name, when=one.when, zone=one.zone, **place)

    def _dispatcher(self, namespace: str) -> Dispatcher:
        """Return the dispatcher of a tenant."""
        found = self._known.get(namespace)
        if found is None:
            found = self._known[namespace] = self._dispatchers(namespace)
            for agent in self.plan.agents:
                found.register(agent)
        return found

    def _is_ours(self, namespace: str, name: str) -> bool:
        dispatcher = self._dispatcher(namespace)
        return name in dispatcher.held or dispatcher.busy.has(name)

    # The thread that asks for tasks

    def _ask_on(self) -> None:
        """Ask for tasks until there is nothing more to do."""
        assert self._ears is not None and self._loop is not None and self._done is not None
        pause, heard, asked = 0.0, True, 0.0
        try:
            while not self._stopping or self._mine:
                # While it is at work, what comes one by one is taken by the handful.
                rest = min(MAX_HANDFUL_SECONDS, HANDFUL_SECONDS * len(self._mine))
                time.sleep(max(0.0, asked + rest - time.monotonic()))
                try:
                    asked = time.monotonic()
                    wait, pause = self._ask(heard), 0.0
                    if not self._has_woken:
                        self._has_woken = True
                        wait = 0.0 if lifecycle.wake_answered(self._home.logs) else wait
                except StoreError as error:
                    self._ill(error)
                    pause = min(PAUSE_SECONDS, max(0.1, pause * 2))
                    wait = pause * (0.5 + random.random())
                heard = self._ears.wait(wait)
        except BaseException as error:  # noqa: BLE001 — it is raised where the worker was started
            self._failed = error
        finally:
            self._loop.call_soon_threadsafe(self._done.set)

    def _ill(self, error: StoreError) -> None:
        """The store cannot be reached: say so once."""
        self.counts.add("store_errors")
        if not self.trouble:
            claim.warn("worker %s: %s; it keeps trying", self.name, error.message)
        self.trouble = error.message

    def _well(self) -> None:
        if self.trouble:
            self.trouble = ""
            claim.warn("worker %s: the store is back", self.name)

    def _ask(self, heard: bool) -> float:
        """Start what a schedule says, take what there is room for; gives how long one may rest if nothing is heard."""
        assert self._loop is not None and self._ears is not None
        now_us = self._home.logs.clock.now_us()
        if not self._stopping:
            self._begin_scheduled(now_us)
        free = self.plan.concurrency - len(self._mine)
        if self._look_at_abandoned() or self._stopping or free <= 0 or _has_suspect():
            self._more = True
            return IDLE_SECONDS
        schedules_us = [one.next_us(now_us) for one in self.plan.schedules]
        if not (heard or self.trouble) and not self._claiming.look(now_us, self._ears.quiet_seconds(), schedules_us):
            return self._claiming.rest_seconds(now_us)
        with self._to_claim() as may_claim:
            for some in self._claiming.round(free, now_us) if may_claim else ():
                free -= len(some)
                self._take_up(some)
                if _has_suspect():
                    break
        self._more = free <= 0 or not may_claim or self._claiming.left_ours
        self._well()
        self._claiming.plan_next(now_us, schedules_us)
        if not self._more and self._claiming.saw_all:
            self._ears.nothing_left(self._claiming.idle_seconds(now_us))
        return self._claiming.rest_seconds(now_us)

    @contextlib.contextmanager
    def _to_claim(self) -> Generator[bool, None, None]:
        """Return whether to take tasks now; until they are counted as its own, a task that may kill is not begun."""
        with _LOCK:
            self.is_claiming = not any(one.suspects for one in _AT_WORK)
        try:
            yield self.is_claiming
        finally:
            self.is_claiming = False

    def _look_at_abandoned(self) -> bool:
        """Return whether too many abandoned threads run to claim more tasks; warn when that changes."""
        assert self._announcement is not None
        owners = abandonable.ABANDONED.owners(self._home.logs.store.holder())
        names = [f"{one.task} {one.step}".strip() for one in owners][: limits.MAX_ABANDONED_THREADS]
        count, is_clogged = len(abandonable.ABANDONED), bool(self.clogged)
        self._announcement.tell_abandoned(tuple(names), clogged=count >= limits.MAX_ABANDONED_THREADS)
        if count < limits.MAX_ABANDONED_THREADS and is_clogged:
            self.clogged = ""
            claim.warn("worker %s: abandoned threads have ended; it claims tasks again", self.name)
        elif count >= limits.MAX_ABANDONED_THREADS and not is_clogged:
            self.clogged = f"{count} abandoned threads still run; no more tasks are claimed until some of them end"
            claim.warn("worker %s: %s. They are named by: holdfast doctor", self.name, self.clogged)
        return bool(self.clogged)

    def _take_up(self, claimed: list[Claimed]) -> None:
        """Begin tasks, when all of them are known to be under way: one that may kill looks who is beside it."""
        assert self._loop is not None
        stops = {(one.namespace, one.name): Stop() for one in claimed}
        self._mine |= stops
        for one, stop in zip(claimed, stops.values(), strict=True):
            stop.asked = self._stopping
            self.counts.add("claimed")
            if one.taken:
                self._note(Worked(one.namespace, one.name, "", "taken_over", TAKEN[one.taken]))
            self._loop.call_soon_threadsafe(self._begin, one, stop)

    def _begin_scheduled(self, now_us: int) -> None:
        """Start what a schedule says, also while there is no room here. One that cannot be is tried again a while."""
        for schedule in self.plan.schedules:
            try:
                if schedule.begin_due(now_us, self._start):
                    self.counts.add("scheduled")
                self._hindered.pop(schedule.name, None)
            except StoreError:
                raise
            except HoldfastError as error:
                if self._hindered.get(schedule.name) != error.message:
                    self._hindered[schedule.name] = error.message
                    self.counts.add("errors")
                    claim.warn("worker %s: schedule %s: %s; it keeps trying", self.name, schedule.name, error.message)

    # On the event loop

    def _begin(self, claimed: Claimed, stop: Stop) -> None:
        """Work on a task that was taken."""
        assert self._loop is not None
        work = self._loop.create_task(self._work(claimed, stop))
        self._works.add(work)
        work.add_done_callback(self._works.discard)

    async def _work(self, claimed: Claimed, stop: Stop) -> None:
        place, began = (claimed.namespace, claimed.name), time.monotonic()
        try:
            done = await self._outcome(place, stop, claimed.rows)
        except BaseException as error:  # noqa: BLE001 — a worker outlives whatever one task does
            done = Worked(*place, "", "errors", f"{type(error).__name__}: {error}")
            claim.warn("worker %s: task %s: %s", self.name, place[1], done.why)
        asks = self._more or self._stopping or self._suspect == place or self._limited
        self._suspect = None if self._suspect == place else self._suspect
        if self._mine.get(place) is stop:  # else it could be taken again, and was, before we came to this
            del self._mine[place]
            self._dispatcher(place[0]).held.discard(place[1])
        self._note(replace(done, seconds=time.monotonic() - began))
        if asks and self._ears is not None:
            self._ears.wake()

    def _note(self, done: Worked) -> None:
        """Count the outcome of a task, and report it to the observer."""
        self.counts.add(done.outcome)
        if self.tell is not None:
            self.tell(done)

    async def _outcome(self, place: Place, stop: Stop, rows: list[Stored]) -> Worked:
        """Work on a task, and say what came of that."""
        dispatcher, name = self._dispatcher(place[0]), ""
        try:
            log = (
                dispatcher.logs.begun(place[1], rows)
                if rows
                else await in_thread(lambda: dispatcher.logs.load(place[1]))
            )
            name = log.state.summary.agent
            if log.state.summary.holder != dispatcher.logs.store.holder():
                return Worked(*place, name, "lease_lost")  # another process took it, or ended it, before we began
            agent = dispatcher.agents[name]
            unfit = self._unfit(dispatcher.logs, log, agent)
            if unfit is not None:
                await in_thread(lambda: set_aside(log, unfit))
                return Worked(*place, name, "quarantined", unfit)
            if not await self._may_try(place, log):
                why = "it is tried again with nothing else beside it"
                await in_thread(lambda: let_go(log, why))
                return Worked(*place, name, "released", why)
            assignment = Assignment(place[1], agent, lambda: (log, True), self.plan.hold, stop, held=log)
            work = dispatcher.work_async if agent.is_async else dispatcher.work_held
            done = await work(assignment)
            return Worked(*place, name, *_became(done.state))
        except Stopped:
            return Worked(*place, name, "released")
        except ending.Ending as end:
            return self._end_with(end, place, name)
        except (LeaseLost, TaskBusy):
            return Worked(*place, name, "lease_lost")
        except StoreError as error:
            claim.warn("worker %s: task %s: %s", self.name, place[1], error.message)
            return Worked(*place, name, "store_errors", error.message)
        except BaseException as error:  # nothing that a task's own flow expects, whatever it is
            if _is_being_cancelled():
                raise
            if (end := ending.of(error, place[1])) is not None:
                return self._end_with(end, place, name)
            why = f"working on it raised {type(error).__name__}: {error}"
            await in_thread(lambda: set_aside(dispatcher.logs.load(place[1]), why))
            return Worked(*place, name, "quarantined", why)

    def _end_with(self, end: ending.Ending, place: Place, name: str) -> Worked:
        """Take no more tasks: in this process, those that need a thread can't continue."""
        if not self._stopping:
            claim.warn("worker %s: %s", self.name, end)
        self.stop()
        return Worked(*place, name, "lease_lost")

    async def _may_try(self, place: Place, log: Log) -> bool:
        """Return whether to work on a task now. Before the death that quarantines it, it is tried alone, or released.

        A task beside one that kills its process dies with it, and would be blamed for that as well.
        """
        if log.state.deaths < max(1, self.plan.max_deaths - 1):
            return True
        with _LOCK:
            if any(one.suspects for one in _AT_WORK):
                return False
            self._suspect = place
        until = time.monotonic() + ALONE_SECONDS
        while _others_may_work() and time.monotonic() < until:
            await asyncio.sleep(0.01)
        return True

    def _unfit(self, logs: Logs, log: Log, agent: Agent) -> str | None:
        """Why a task is not worked on although it could be taken."""
        if log.state.deaths >= self.plan.max_deaths:
            return f"{log.state.deaths} workers in a row died while they worked on it, without a step being done"
        try:
            checks.check_resumable(logs, log, agent)
        except HoldfastError as error:
            return str(error)
        return None


@contextlib.contextmanager
def _among_others(worker: Worker) -> Generator[None, None, None]:
    with _LOCK:
        _AT_WORK.add(worker)
    try:
        yield
    finally:
        with _LOCK:
            _AT_WORK.discard(worker)


def _has_suspect() -> bool:
    """Return whether a task is worked on, in this process, that may kill it."""
    with _LOCK:
        return any(one.suspects for one in _AT_WORK)


def _others_may_work() -> bool:
    """Return whether a second task is worked on in this process, or may be about to."""
    with _LOCK:
        return any(one.is_claiming for one in _AT_WORK) or sum(one.busy for one in _AT_WORK) > 1


TAKEN = {
    "proven": "its worker is dead, or signed off",
    "presumed": "its worker gave no sign of life, but may be alive",
}


def _became(state: State) -> tuple[str, str]:
    """Return the task's status after the work, and the reason."""
    status, failure = state.summary.status, state.failure
    if status in ("pending", "running"):
        return "released", ""
    if status == "waiting":
        return status, state.summary.waiting or ""
    return status, f"{failure.type}: {failure.message}" if failure is not None and status == "failed" else ""


def let_go(log: Log, why: str) -> None:
    """Let other workers take a task, unless one did."""
    with contextlib.suppress(Conflict):
        log.append([ev.TaskReleased(why=why)])


def set_aside(log: Log, why: str) -> None:
    """Quarantine a task until a person has looked at it."""
    for _ in range(limits.MAX_APPEND_TRIES):
        try:
            if log.state.ended or log.state.summary.waiting == "quarantined":
                return
            if log.state.summary.holder is None:
                log.claim()
            log.append([ev.TaskSuspended(why="quarantined", note=why[: limits.MAX_NOTE_LENGTH])])
            return
        except Conflict:
            log.refresh()


def _is_being_cancelled() -> bool:
    """Return whether the process is being ended; an agent may raise the same for reasons of its own."""
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0

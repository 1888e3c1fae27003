"""Working on a task from claim to end, or to its next wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from holdfast.core import codec, events as ev, limits
from holdfast.core.errors import Conflict, InputConflict, InvalidInput, InvalidValue, ResumeExpired, Stopped, TaskBusy
from holdfast.core.events import Fields
from holdfast.core.flows import lifecycle
from holdfast.core.state import rules
from holdfast.core.state.shapes import Hot
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.drivers.driver import drive
from holdfast.engine.execution.execution import Run
from holdfast.engine.execution.pending import Stop
from holdfast.engine.logs.log import Log, Logs
from holdfast.engine.verbs.task import Task


def same_input(logs: Logs, log: Log, given: Fields) -> None:
    """The same id with other input is other work."""
    recorded = {name: codec.resolve(raw, logs.blob) for name, raw in log.state.input.items()}
    now = {name: codec.resolve(raw, logs.blob) for name, raw in given.items()}
    if recorded != now:
        shown = [{name: codec.unpack(raw, logs.blob) for name, raw in one.items()} for one in (log.state.input, given)]
        raise InputConflict(log.name, *shown)


def same_owner(log: Log, given: ev.TaskCreated) -> None:
    """The same id for another user, or in another thread, is other work. Going on needs neither."""
    known = log.state.summary
    for what, there, wanted in (("user", known.user, given.user), ("thread", known.thread, given.thread)):
        if wanted is not None and wanted != there:
            belongs = f"belongs to {what} {there!r}" if there is not None else f"has no {what}"
            raise InvalidValue(
                f"task {log.name!r} {belongs}, and {what}={wanted!r} is given", hint="give its own, or another id"
            )


def check_agent(log: Log, agent: Agent) -> None:
    """Refuse a task that belongs to somebody else."""
    summary = log.state.summary
    if log.state.block:
        raise InvalidValue(
            f"task {log.name!r} lives in a block of code",
            hint=f"enter it again: with app.task({summary.agent!r}, …, id={log.name!r})",
        )
    if summary.agent != agent.name:
        raise InvalidValue(
            f"task {log.name!r} belongs to the agent {summary.agent!r}, and not to {agent.name!r}",
            hint="give the agent it belongs to, or start other work under another id",
        )


def check_resumable(logs: Logs, log: Log, agent: Agent, *, anyway: bool = False) -> None:
    """Refuse, before anything is written, a task that this agent cannot go on with."""
    check_agent(log, agent)
    if not anyway:
        rules.refuse_diverged(log.state)
    try:
        agent.parameters.check(_input(logs, log.state))
    except InvalidInput as error:
        raise InvalidInput(
            f"agent {agent.name!r} no longer takes what task {log.name!r} was started with: {error.message}",
            hint="give the new parameter a default, or start anew under another id",
        ) from None
    age = (logs.clock.now_us() - log.state.updated_us) / 1_000_000
    limit = None if anyway else agent.resume_within
    if log.state.steps_done and limit is not None and age > limit:
        raise ResumeExpired(
            f"nobody touched task {log.name!r} for {age:,.0f} s; {agent.name!r} resumes within {limit:,.0f} s",
            hint="start it anew, or resume it anyway: app.resume(id, agent, anyway=True)",
        )


def can_go_on(logs: Logs, log: Log, hold: float) -> bool:
    """Whether there is anything to do now: not ended, and not waiting for something that has not come."""
    summary = log.state.summary
    if log.state.ended:
        return False
    if summary.status != "waiting":
        return True
    if summary.waiting == "child":
        children = [wait.name for wait in log.state.waits.values() if wait.kind == "child"]
        if any(logs.store.origin(id) is None or can_go_on(logs, logs.load(id), hold) for id in children):
            return True
    if summary.wake_us is None:
        return False
    sat_out = hold if summary.waiting == "timer" else 0.0
    return summary.wake_us - logs.clock.now_us() <= sat_out * 1_000_000


def claim(log: Log) -> None:
    """Take the task. Others may append meanwhile; what they wrote is read first."""
    for _ in range(limits.MAX_APPEND_TRIES):
        try:
            return log.claim()
        except Conflict:
            log.refresh()
    raise Conflict(log.name, log.head.seq, None)


def work(run: Run) -> None:
    """Let a `def` agent work on a task it holds."""
    task = Task(run)
    run.body = lambda: run.agent.fn(task, **arguments(run))
    try:
        drive(lifecycle.whole(run, run.agent), run)
    finally:
        run.log.remember()


def arguments(run: Run) -> dict[str, Any]:
    """What the agent's function is called with."""
    return run.agent.parameters.check(_input(run.logs, run.hot))


def _input(logs: Logs, hot: Hot) -> dict[str, Any]:
    return {name: codec.unpack(raw, logs.blob) for name, raw in hot.input.items()}


@contextmanager
def stopped_by_interrupt(stop: Stop, id: str) -> Generator[None, None, None]:
    """Ctrl-C once lets the step under way finish; twice stops at once. Both can be resumed."""
    import signal  # few agents are stopped by hand

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def ask(number: int, frame: Any) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True
        warn("task %s stops after this step; Ctrl-C again stops it at once", id)

    signal.signal(signal.SIGINT, ask)
    try:
        yield
    except Stopped:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def warn(text: str, *values: object) -> None:
    """Tell whoever reads the log of the program."""
    import logging

    logging.getLogger("holdfast").warning(text, *values)


class Busy:
    """Which tasks this process works on: a holder is a process, and would let another of its threads in."""

    def __init__(self, holder: Callable[[], str]) -> None:
        self._holder = holder
        self._guard = threading.Lock()
        self._ids: set[str] = set()

    def __len__(self) -> int:
        return len(self._ids)

    def has(self, id: str) -> bool:
        """Whether this process works on it."""
        return id in self._ids

    @contextmanager
    def with_(self, id: str) -> Generator[None, None, None]:
        """Work on a task, unless another thread does."""
        with self._guard:
            if id in self._ids:
                raise TaskBusy(id, self._holder())
            self._ids.add(id)
        try:
            yield
        finally:
            self._ids.discard(id)

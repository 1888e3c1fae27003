"""Working on a task from claim to end, or to its next wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from holdfast.core import limits
from holdfast.core.errors import Conflict, Stopped, TaskBusy
from holdfast.core.flows import lifecycle
from holdfast.engine.definitions.call import in_body
from holdfast.engine.dispatch.checks import input_of
from holdfast.engine.drivers.driver import drive
from holdfast.engine.execution.execution import Execution
from holdfast.engine.execution.pending import Stop
from holdfast.engine.logs.log import Log
from holdfast.engine.system.warning import warn as warn
from holdfast.engine.verbs.task import Task


def claim(log: Log) -> None:
    """Take the task. Others may append meanwhile; what they wrote is read first."""
    for _ in range(limits.MAX_APPEND_TRIES):
        try:
            return log.claim()
        except Conflict:
            log.refresh()
    raise Conflict(log.name, log.head.seq, None)


def work(execution: Execution, before: Callable[[], None] | None = None) -> None:
    """Let a `def` agent work on a task it holds, in this thread. `before` comes before its function, or stops it."""
    task = execution.task = Task(execution)
    execution.thread = threading.get_ident()

    def body() -> Any:
        if before is not None:
            before()
        execution.in_body = True
        try:
            with in_body(task), task.refusals.ended():
                return execution.agent.fn(task, **arguments(execution))
        finally:
            execution.end_body()

    execution.body = body
    try:
        drive(lifecycle.task_flow(execution, execution.agent), execution)
    finally:
        execution.log.remember()


def arguments(execution: Execution) -> dict[str, Any]:
    """Return the arguments of the agent's function."""
    return execution.agent.parameters.check(input_of(execution.logs, execution.state))


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
        stop.ask()
        warn("task %s stops after this step; Ctrl-C again stops it at once", id)

    signal.signal(signal.SIGINT, ask)
    try:
        yield
    except Stopped:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Busy:
    """Which tasks this process works on: a claim belongs to a process, and would let another of its threads in."""

    def __init__(self, holder: Callable[[], str]) -> None:
        self._holder = holder
        self._changed = threading.Condition()
        self._ids: dict[str, tuple[int, Stop]] = {}
        self._when_idle: Callable[[], None] | None = None
        self.is_closing = False

    def __len__(self) -> int:
        return len(self._ids)

    def has(self, id: str) -> bool:
        """Return whether this process works on it."""
        return id in self._ids

    @contextmanager
    def with_(self, id: str, stop: Stop) -> Generator[None, None, None]:
        """Work on a task, unless another thread does."""
        self.begin(id, stop)
        try:
            yield
        finally:
            self.end(id)

    def begin(self, id: str, stop: Stop) -> None:
        """Begin to work on a task, unless another thread does."""
        with self._changed:
            if id in self._ids:
                raise TaskBusy(id, self._holder())
            self._ids[id] = threading.get_ident(), stop

    def end(self, id: str) -> None:
        """Work on it no more."""
        with self._changed:
            del self._ids[id]
            told = None if self._ids else self._when_idle
            self._changed.notify_all()
        if told is not None:
            told()

    def stop(self, seconds: float, when_idle: Callable[[], None]) -> bool:
        """Stop the tasks under way before their next step, and wait for those of other threads; whether all ended.

        If not, `when_idle` is called when the last of them has.
        """
        here = threading.get_ident()
        with self._changed:
            self.is_closing = True
            for _, stop in self._ids.values():
                stop.ask()
            self._changed.wait_for(lambda: all(thread == here for thread, _ in self._ids.values()), timeout=seconds)
            if self._ids:
                self._when_idle = when_idle
            return not self._ids

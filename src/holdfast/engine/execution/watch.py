"""One thread that looks after what runs in this process: steps that take long, tasks that are out of time or cancelled.

A step that runs for more than a second announces itself, so that others can see where the task is. A task whose time is
over, or that was cancelled from outside, is cut: what is under way ends, and so does the task.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Protocol

from holdfast.core import limits
from holdfast.core.errors import HoldfastError
from holdfast.core.events import StepStarted
from holdfast.core.flows.stops import ends_us
from holdfast.core.state.shapes import State
from holdfast.engine.execution.pending import Stop
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.logs import Logs

_LOOKS = 4
"""How often one looks while a step becomes a long one. What ends before the first look is never looked at."""

_SHARE = 20
"""One looks for cancels, then not for so many times as long as it took."""


class WatchedStep(Protocol):
    """A step under way."""

    key: str
    started_us: int

    @property
    def task(self) -> str: ...

    @property
    def attempt(self) -> int: ...

    def announce(self) -> None:
        """Tell others."""
        ...


class Announced(Protocol):
    """A step that can be announced."""

    def announcement(self) -> StepStarted:
        """Return the announcement for other processes."""
        ...


class TimedExecution(Protocol):
    """The execution of a task, as far as its time matters."""

    @property
    def log(self) -> Log: ...
    @property
    def state(self) -> State: ...
    @property
    def replaying(self) -> bool: ...
    @property
    def stop(self) -> Stop: ...


class WatchedTask(Protocol):
    """A task under way."""

    @property
    def execution(self) -> TimedExecution: ...

    def cut(self) -> None:
        """End what is under way, and the task: soon, and in another thread. May be called again."""
        ...


class _Looks:
    """What the thread knows of a task."""

    def __init__(self) -> None:
        self.seen_at = 0.0
        self.cut_at = 0.0
        self.seq = 0
        self.was_late = False
        self.is_cancelled = False

    def seconds_left(self, execution: TimedExecution, now_us: int, now: float) -> float | None:
        """Return how long the task may still run; None if for ever.

        A replay does nothing new. It has a while to find out, by coming back to where it was, how things are undone.
        """
        state = execution.state
        if state.undoing:
            return None
        end_us = ends_us(state, execution.stop.until_us)
        left = None if end_us is None else (end_us - now_us) / 1_000_000
        if self.is_cancelled or state.cancel is not None:
            left = 0.0
        if not self.seen_at:
            self.seen_at = now
            self.was_late = left is not None and left <= 0 and state.attempts > 1
        if left is not None and (execution.replaying or self.was_late):
            left = max(left, self.seen_at + limits.REPLAY_GRACE_SECONDS - now)
        return left


class Watch:
    """The thread. It sleeps while nothing runs; what begins is only put down."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._steps: set[WatchedStep] = set()
        self._tasks: dict[WatchedTask, _Looks] = {}
        self._since: dict[WatchedStep, float] = {}
        self._look_at = 0.0
        self._awake = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._guard = threading.Lock()
        self._closed = False

    def under_way(self, task: str) -> list[WatchedStep]:
        """The steps of a task that are under way in this process and have not announced themselves yet."""
        return [one for one in self._steps.copy() if one.task == task]

    def begin(self, step: WatchedStep) -> None:
        """A step begins; it must announce itself if it takes long."""
        self._steps.add(step)
        if not self._awake:
            self._rouse()

    def end(self, step: WatchedStep) -> None:
        """The step has ended."""
        self._steps.discard(step)

    def begin_task(self, task: WatchedTask, *, is_limited: bool) -> None:
        """A task begins; it is cut when its time is over, or when it is cancelled."""
        self._tasks[task] = _Looks()
        if is_limited or not self._awake:
            self._rouse()

    def end_task(self, task: WatchedTask) -> None:
        """The task has ended, or waits."""
        self._tasks.pop(task, None)

    def forget(self, task: str) -> None:
        """Look after a task no more whose event loop is gone: nothing of it will say that it has ended."""
        for one in [one for one in list(self._tasks) if one.execution.log.name == task]:
            del self._tasks[one]
        self._steps.difference_update(self.under_way(task))

    def look(self) -> None:
        """Look at once for tasks that were cancelled: this process has cancelled one."""
        self._look_at = 0.0
        if self._tasks:
            for looks in list(self._tasks.values()):
                looks.seen_at = looks.seen_at or time.monotonic() - _tick()
            self._rouse()

    def close(self) -> None:
        """Look no more."""
        self._closed = True
        self._wake.set()

    def _rouse(self) -> None:
        with self._guard:
            self._awake = True
            self._wake.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="holdfast-watch", daemon=True)
                self._thread.start()

    def _serve(self) -> None:
        pause: float | None = None
        while not self._closed:
            self._wake.wait(pause)
            self._wake.clear()
            now = time.monotonic()
            self._announce_long(now)
            if self._tasks:
                with contextlib.suppress(HoldfastError):  # a store that is away: the next write reports it
                    self._look_for_cancels(now)
            pause = min(_tick(), self._cut_ended(now))
            if not (self._steps or self._tasks):
                pause = self._rest()

    def _rest(self) -> float | None:
        """Sleep until something begins, unless it did just before the flag went down."""
        self._awake = False
        if not (self._steps or self._tasks):
            return None
        self._awake = True
        return _tick()

    def _announce_long(self, now: float) -> None:
        self._since = {step: self._since.get(step, now) for step in self._steps.copy()}
        for step, since in self._since.items():
            if now - since >= limits.ANNOUNCE_SECONDS and step in self._steps:
                self._steps.discard(step)
                step.announce()

    def _cut_ended(self, now: float) -> float:
        """Cut tasks whose time is over; gives how long it is until the next one's is."""
        least = _tick()
        # A list of items could meet a new task: it allocates while it reads, and the collector may run other threads.
        for task, looks in self._tasks.copy().items():
            execution = task.execution
            timed = ends_us(execution.state, execution.stop.until_us) is not None
            left = looks.seconds_left(execution, self._logs.clock.now_us() if timed else 0, now)
            if left is not None and left > 0:
                least = min(least, max(left, 0.001))
            elif left is not None and now >= looks.cut_at:
                looks.cut_at = now + limits.ANNOUNCE_SECONDS
                task.cut()
        return least

    def _look_for_cancels(self, now: float) -> None:
        """Find out, in one question, whose logs others have written to, and read why."""
        if now < self._look_at:
            return
        asked = {
            task.execution.log.name: (task, looks)
            for task, looks in self._tasks.copy().items()
            if looks.seen_at and now - looks.seen_at >= _tick() and not looks.is_cancelled
        }
        if not asked:
            return
        store = self._logs.store
        for name, seq in store.heads(list(asked)).items():
            task, looks = asked[name]
            known = max(task.execution.log.head.seq, looks.seq)
            if seq > known:
                looks.seq = seq
                looks.is_cancelled = any(row.kind == "cancel_requested" for row in store.read(name, after=known))
        self._look_at = now + max(_tick(), _SHARE * (time.monotonic() - now))


def _tick() -> float:
    """Return how many seconds pass between two looks."""
    return limits.ANNOUNCE_SECONDS / _LOOKS

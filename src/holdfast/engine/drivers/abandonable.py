"""Threads that can be abandoned: a function that does not end in time keeps its thread; its caller continues."""

from __future__ import annotations

import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

_IDLE = 16


class Owner(NamedTuple):
    """Whose function a thread runs: in which store, of which task, and its step if that is all it runs."""

    holder: str
    task: str
    step: str = ""


class AbandonedThread:
    """An abandoned thread, and whether its function has ended."""

    def __init__(self, owner: Owner | None) -> None:
        self.owner = owner
        self.finished = False


class ThreadCall:
    """A function under way in a thread. `wait` for it, or be called back; what comes after `abandon` goes to `late`.

    With `take_over` another function runs in its place, in the thread that calls `run` next. Those who wait for the
    call then wait for that one.
    """

    def __init__(
        self,
        work: Callable[[], Any],
        late: Callable[[Any], None] | None = None,
        owner: Callable[[], Owner] | None = None,
    ) -> None:
        """`owner` is asked for when the thread is abandoned."""
        self._context = contextvars.copy_context()
        self._work = work
        self._late = late
        self._owner = owner
        self._guard = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._told: Callable[[], None] | None = None
        self._left: dict[Callable[[], Any], AbandonedThread] = {}
        self.interrupted = False
        self.finished = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self, *, here: bool = False) -> None:
        """Call the function, in its thread; `here` if that is the thread of the caller, whose context it then has."""
        work, result, error = self._work, None, None
        try:
            result = work() if here else self._context.copy().run(work)
        except BaseException as raised:  # noqa: BLE001 — it belongs to the thread that waits
            error = raised
        with self._guard:
            left = self._left.pop(work, None)
            told = None
            if self._work is work:
                self.result, self.error, self.finished = result, error, True
                told = self._told
                if not self.interrupted:
                    self._done.release()
        if told is not None:
            told()
        if left is not None:
            ABANDONED.end(left)
            if self._late is not None:
                self._late(result)

    def wait(self, seconds: float | None = None) -> bool:
        """Return whether it has finished, now or within that time, or before it was interrupted."""
        if self._done.acquire(timeout=-1 if seconds is None else max(0.0, seconds)):
            self._done.release()  # for the next one that asks
        return self.finished

    def interrupt(self) -> None:
        """End the wait for it, though it has not finished."""
        with self._guard:
            if not self.finished and not self.interrupted:
                self.interrupted = True
                self._done.release()

    def tell(self, told: Callable[[], None]) -> None:
        """Have this called from the thread when it has finished; at once if it has."""
        with self._guard:
            if not self.finished:
                self._told = told
                return
        told()

    def abandon(self) -> AbandonedThread | None:
        """Wait no longer; None if it has finished by now."""
        with self._guard:
            return None if self.finished else self._abandon()

    def take_over(self, work: Callable[[], Any]) -> AbandonedThread:
        """Abandon the thread of a call that has not finished, and let this be the call."""
        with self._guard:
            assert not self.finished, "what has ended is not taken over"
            left, self._work = self._abandon(), work
            return left

    def _abandon(self) -> AbandonedThread:
        if self._work not in self._left:
            self._left[self._work] = ABANDONED.begin(None if self._owner is None else self._owner())
        return self._left[self._work]

    def value(self) -> Any:
        """Return the function's result, or raise its exception."""
        if self.error is not None:
            raise self.error
        return self.result


class AbandonedThreads:
    """The abandoned threads of this process that still run."""

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """A forked child has none of its parent's threads."""
        self._guard = threading.Lock()
        self._running: list[AbandonedThread] = []

    def __len__(self) -> int:
        return len(self._running)

    def owners(self, holder: str) -> tuple[Owner, ...]:
        """Return whose functions they run for one store, oldest first."""
        with self._guard:
            return tuple(one.owner for one in self._running if one.owner is not None and one.owner.holder == holder)

    def begin(self, owner: Owner | None) -> AbandonedThread:
        """Count a thread."""
        left = AbandonedThread(owner)
        with self._guard:
            self._running.append(left)
        return left

    def end(self, left: AbandonedThread) -> None:
        """Note that the function has ended."""
        left.finished = True
        with self._guard:
            self._running.remove(left)


ABANDONED = AbandonedThreads()
"""All of them, whatever store they belong to: what a process can bear does not depend on that."""


class BodyThreads:
    """Daemon threads that wait a while for the next function."""

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """A forked child has none of its parent's threads."""
        self._guard = threading.Lock()
        self._idle: deque[tuple[threading.Lock, list[ThreadCall]]] = deque()

    def start(self, call: ThreadCall) -> ThreadCall:
        """Begin a call, in a thread that has nothing to do or in a new one."""
        with self._guard:
            waiting = self._idle.pop() if self._idle else None
        if waiting is None:
            threading.Thread(target=self._serve, args=([call],), name="holdfast-step", daemon=True).start()
        else:
            wake, box = waiting
            box.append(call)
            wake.release()
        return call

    def _serve(self, box: list[ThreadCall]) -> None:
        """Run what is put into the box. A thread that waits for the next keeps nothing of the last one alive."""
        wake = threading.Lock()
        wake.acquire()
        while True:
            box.pop().run()
            with self._guard:
                if len(self._idle) >= _IDLE:
                    return
                self._idle.append((wake, box))
            wake.acquire()

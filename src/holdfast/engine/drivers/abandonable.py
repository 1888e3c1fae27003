"""Threads that can be left behind: a function that does not answer in time keeps its thread, and nobody waits."""

from __future__ import annotations

import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

_IDLE = 16


class ThreadCall:
    """A function under way in a thread. `wait` for it, or be told; what comes after `abandon` goes to `late`."""

    def __init__(self, work: Callable[[], Any], late: Callable[[Any], None] | None = None) -> None:
        self._work = contextvars.copy_context().run
        self._args = work
        self._late = late
        self._guard = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._told: Callable[[], None] | None = None
        self.abandoned = False
        self.finished = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Called in the thread."""
        try:
            self.result = self._work(self._args)
        except BaseException as error:  # noqa: BLE001 — it belongs to whoever waits
            self.error = error
        with self._guard:
            self.finished = True
            told, late = self._told, self._late if self.abandoned else None
        self._done.release()
        if told is not None:
            told()
        if late is not None:
            late(self.result)

    def wait(self, seconds: float | None) -> bool:
        """Whether it has finished, now or within that time."""
        return self._done.acquire(timeout=-1 if seconds is None else seconds)

    def tell(self, told: Callable[[], None]) -> None:
        """Have this called from the thread when it has finished; at once if it has."""
        with self._guard:
            if not self.finished:
                self._told = told
                return
        told()

    def abandon(self) -> bool:
        """Wait no longer. False if it has finished by now."""
        with self._guard:
            self.abandoned = not self.finished
            return self.abandoned

    def value(self) -> Any:
        """What the function gave; raises what it raised."""
        if self.error is not None:
            raise self.error
        return self.result


class Threads:
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
            threading.Thread(target=self._serve, args=(call,), name="holdfast-step", daemon=True).start()
        else:
            wake, box = waiting
            box.append(call)
            wake.release()
        return call

    def _serve(self, call: ThreadCall) -> None:
        wake = threading.Lock()
        wake.acquire()
        while True:
            call.run()
            box: list[ThreadCall] = []
            with self._guard:
                if len(self._idle) >= _IDLE:
                    return
                self._idle.append((wake, box))
            wake.acquire()
            call = box.pop()
            del box

"""A step that runs for more than a second announces itself, so that others can see where the task is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Protocol

from holdfast.core import limits

LOOKS = 4
"""How often a step is seen running before it has taken long."""


class Watched(Protocol):
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


class Loop(Protocol):
    """A task on an event loop, which looks after its steps itself."""

    @property
    def invocations(self) -> Iterable[Watched]: ...


class LongSteps:
    """One thread that looks after all running steps of a process, and sleeps while there are none.

    A step that begins is only put down: the thread tells by how often it has seen it how long it takes.
    """

    def __init__(self) -> None:
        self._running: set[Watched] = set()
        self._awake = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._guard = threading.Lock()
        self._closed = False
        self.loops: dict[str, Loop] = {}

    def under_way(self, task: str) -> list[Watched]:
        """The steps of a task that are under way in this process and have not announced themselves yet."""
        loop = self.loops.get(task)
        return [
            *(one for one in self._running.copy() if one.task == task),
            *(() if loop is None else list(loop.invocations)),
        ]

    def begin(self, step: Watched) -> None:
        """A step begins; it is told to announce itself if it takes long."""
        self._running.add(step)
        if not self._awake:
            self._rouse()

    def end(self, step: Watched) -> None:
        """The step has ended."""
        self._running.discard(step)

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
        seen: dict[Watched, int] = {}
        while not self._closed:
            self._wake.wait()
            time.sleep(limits.ANNOUNCE_SECONDS / LOOKS)
            seen = {step: seen.get(step, 0) + 1 for step in self._running.copy()}
            for step in [step for step, times in seen.items() if times > LOOKS]:
                if step in self._running:
                    self._running.discard(step)
                    step.announce()
            if not self._running:
                seen.clear()  # it must not keep alive what has ended
                self._rest()

    def _rest(self) -> None:
        self._wake.clear()
        self._awake = False
        if self._running:  # one began just before the flag went down
            self._awake = True
            self._wake.set()

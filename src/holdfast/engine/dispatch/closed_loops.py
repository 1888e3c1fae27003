"""Tasks on event loops that were closed under them: nothing runs there any more, not even what would release them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.core import limits
from holdfast.core.errors import HoldfastError
from holdfast.engine.system.warning import warn

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class LoopWork:
    """A task that is worked on, on which loop, and what releases it if that is closed."""

    def __init__(self, loop: AbstractEventLoop, let_go: Callable[[], None]) -> None:
        self.loop = loop
        self.let_go = let_go


class ClosedLoops:
    """One thread that looks after the loops of a process's tasks, for as long as there are any.

    Python gives no notice of a closed loop: `loop.is_closed()` is asked now and then.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._works: set[LoopWork] = set()
        self._thread: threading.Thread | None = None

    def begin(self, work: LoopWork) -> None:
        """Look after a task's loop from now on."""
        with self._guard:
            self._works.add(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="holdfast-loops", daemon=True)
                self._thread.start()

    def end(self, work: LoopWork) -> bool:
        """Look after it no more. False if its loop is closed: this is what is left of it, and it is released here."""
        if work.loop.is_closed():
            return False
        with self._guard:
            self._works.discard(work)
        return True

    def _serve(self) -> None:
        while True:
            time.sleep(limits.LOOP_SECONDS)
            with self._guard:
                if not self._works:
                    self._thread = None
                    return
                closed = {work for work in self._works if work.loop.is_closed()}
                self._works -= closed
            for work in closed:
                try:
                    work.let_go()
                except HoldfastError as error:  # it is closed by now, or away: the task is taken over once we are gone
                    warn("a task whose event loop was closed could not be released: %s", error)

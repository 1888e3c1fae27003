"""Getting a program out of a loop that swallows every exception: `while True: try: task.step(…) except: pass`.

Once a task is stopped, each of its verbs raises. An agent that catches all of that would never end.
After so many refused verbs an exception is raised where the agent's loop begins anew: there no `except` inside of it
can see it. Python lets one raise there from the function that debuggers use, and forgets that function each time. So
it is set again when the exception is dropped, which is when an outer loop has swallowed it too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from opcode import opmap
from types import FrameType, TracebackType
from typing import Any

from holdfast.core import limits
from holdfast.core.errors import (
    BudgetExceeded,
    Cancelled,
    LeaseLost,
    Stopped,
    StoreError,
    Suspended,
    TaskFinished,
    TimeLimit,
)

STOPPED = (Cancelled, LeaseLost, Stopped, Suspended, BudgetExceeded, TimeLimit, StoreError, TaskFinished)
"""What every verb of a stopped task raises."""

_HANDLER = opmap["PUSH_EXC_INFO"]
"""Where a handler begins. What is raised there, or inside of it, may have Python lose track of what it handles."""

_FOREIGN = ("holdfast", "asyncio", "threading", "concurrent")
"""Whose code is left alone, and ends the way up from an agent's."""


class Unwinding(BaseException):
    """Raised in code that has swallowed everything else."""

    def __init__(self, refusals: Refusals) -> None:
        super().__init__("the task was stopped, but its agent kept running")
        self._refusals: Refusals | None = refusals

    def __del__(self) -> None:
        refusals, self._refusals = self._refusals, None
        if refusals is not None:
            refusals.swallowed()


class Refusals:
    """How often the verbs of a task refused in a row, and what comes of it."""

    def __init__(self) -> None:
        self.last: BaseException | None = None
        self._count = 0
        self._since = 0.0
        self._frames: list[FrameType] = []
        self._before: tuple[Any, Any] | None = None
        self._handled: BaseException | None = None

    def __enter__(self) -> None:
        """A verb begins that waits for its result; the next refusal is the first again once it has one."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._count = 0
        elif isinstance(error, STOPPED):
            self.refused(error)

    def refused(self, error: BaseException) -> None:
        """A verb raised because the task is stopped."""
        self.last = error
        self._count += 1
        if self._count == 1:
            self._since = time.monotonic()
        slowly = self._count > limits.FEW_REFUSED_VERBS and time.monotonic() - self._since > limits.STOP_SECONDS
        if self._count <= limits.MAX_REFUSED_VERBS and not slowly:
            return
        self._before = self._before or (sys.gettrace(), sys.getprofile())
        self._frames = list(_frames_of_agent())
        self._raise_soon()
        if self._count > 2 * limits.MAX_REFUSED_VERBS:
            sys.setprofile(self._called)

    @contextmanager
    def ended(self) -> Generator[None, None, None]:
        """Around an agent's function: what stopped the task is raised out of it, however that was swallowed."""
        self._handled = sys.exc_info()[1]
        try:
            yield
        except Unwinding:
            assert self.last is not None
            raise self.last from None
        finally:
            self._frames.clear()
            self.restore()

    def swallowed(self) -> None:
        """The exception is gone. If the agent's code still runs here, an outer loop has caught it."""
        if self._is_running():
            self._raise_soon()

    def restore(self) -> None:
        """Set what debuggers and coverage tools had set before."""
        if self._before is not None:
            sys.settrace(self._before[0])
            sys.setprofile(self._before[1])

    def _is_running(self) -> bool:
        frame: FrameType | None = sys._getframe()  # pyright: ignore[reportPrivateUsage]
        while frame is not None and frame not in self._frames:
            frame = frame.f_back
        return frame is not None

    def _raise_soon(self) -> None:
        """Raise at the next line of the agent's that is executed, and is inside of no handler."""
        sys.settrace(_call)
        for frame in self._frames:
            frame.f_trace = self._line

    def _line(self, frame: FrameType, event: str, given: Any) -> Any:
        handles = sys.exc_info()[1] not in (None, self._handled)
        if event == "line" and self._frames and not handles and frame.f_code.co_code[frame.f_lasti] != _HANDLER:
            raise Unwinding(self)
        return self._line

    def _called(self, frame: FrameType, event: str, given: Any) -> None:
        """Some keep the exceptions they swallow. What they keep them with is a call, after which it is raised again."""
        if not self._is_running():
            sys.setprofile(None)
        elif sys.gettrace() is None:
            self._raise_soon()


def _frames_of_agent() -> Iterator[FrameType]:
    """The calls of an agent's own code that are under way here, up to the agent's caller."""
    frame: FrameType | None = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame is not None and _is_foreign(frame):
        frame = frame.f_back
    while frame is not None and not _is_foreign(frame):
        yield frame
        frame = frame.f_back


def _call(frame: FrameType, event: str, given: Any) -> None:
    """Trace no new call: only frames that run already."""


def _is_foreign(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in _FOREIGN

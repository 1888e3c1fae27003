"""Which branch of a task an asyncio task is, and the order in which branches are given their results.

A branch is numbered when its asyncio task is started, by a task factory around the loop's own.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
import sys
import weakref
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core import limits
from holdfast.core.flows.requests import Branch
from holdfast.engine.definitions.call import CALLER

if TYPE_CHECKING:
    from holdfast.engine.execution.loop_execution import LoopExecution


class BranchPlace(NamedTuple):
    """Where an asyncio task is, or was when it started another: its branch, how far it saw, what it had recorded."""

    execution: LoopExecution
    branch: Branch
    seen: int
    own: Any


current_place: ContextVar[BranchPlace | None] = ContextVar("holdfast_here", default=None)


def outside_context() -> Context:
    """Return a context for what the engine itself starts: no branch of any task."""
    context = copy_context()
    context.run(current_place.set, None)
    return context


class BranchNumbers:
    """Numbers asyncio tasks as agents start them, by a task factory around whatever factory a loop has.

    The order in which one branch starts others is the order of its code, the same on every replay. The order in which
    they come to their first verb need not be.
    """

    def __init__(self) -> None:
        self._watched: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Number what agents start on this loop."""
        if loop not in self._watched:
            self._watched.add(loop)
            loop.set_task_factory(_factory(loop.get_task_factory()))


branch_numbers = BranchNumbers()


def _factory(inner: Any) -> Any:
    def make(loop: asyncio.AbstractEventLoop, coro: Any, **given: Any) -> Any:
        context: Context | None = given.get("context")
        here = current_place.get() if context is None else context.get(current_place)
        stands_in = here is not None and _is_waited_for()
        if here is not None and not stands_in and CALLER.get() is None:
            context = copy_context() if context is None else context.copy()
            context.run(current_place.set, here.execution.born(here))
            given["context"] = context
        made = asyncio.Task(coro, loop=loop, **given) if inner is None else inner(loop, coro, **given)
        if stands_in:
            _stand_ins[made] = stands_for(asyncio.current_task())
        elif here is not None:
            here.execution.begin_task(made)
        return made

    return make


_WAIT_FOR: object = asyncio.wait_for.__code__ if sys.version_info < (3, 12) else None


_FRAMES = 7  # from here up to it, at the most


_stand_ins: weakref.WeakKeyDictionary[asyncio.Task[Any], asyncio.Task[Any] | None] = weakref.WeakKeyDictionary()


def _is_waited_for() -> bool:
    """Return whether it is `wait_for` that starts an asyncio task, here and now, in order to wait for it."""
    frame = None if _WAIT_FOR is None else inspect.currentframe()
    for _ in range(_FRAMES):
        if frame is None:
            return False
        if frame.f_code is _WAIT_FOR:
            timeout: float | None = frame.f_locals["timeout"]
            return timeout is not None and timeout > 0
        frame = frame.f_back
    return False


def stands_for(task: asyncio.Task[Any] | None) -> asyncio.Task[Any] | None:
    """Whom an asyncio task stands in for, or itself."""
    return task if task is None else _stand_ins.get(task, task)


class Deliveries:
    """Gives the branches of one task their results one at a time, in the order of the log.

    The event loop runs until nothing more happens before the next one, on the first run and on every replay alike. So
    of two steps that race, the same one wins each time, and what the winner's branch does comes before the loser's.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._rounds = 0
        self._ticking = False
        self._idle: list[asyncio.Future[None]] = []

    @property
    def next_seq(self) -> int | None:
        """The seq of the next result, if there is one."""
        return self._waiting[0][0] if self._waiting else None

    def now(self) -> bool:
        """Return whether a new result can be given at once: none was since the loop last had nothing to do."""
        if self._ticking:
            return False
        self._tick_soon()
        return True

    def in_turn(self, seq: int) -> asyncio.Future[None]:
        """Return a future that is resolved when it is time for the result at that seq."""
        future: asyncio.Future[None] = self._loop.create_future()
        heapq.heappush(self._waiting, (seq, next(self._numbers), future))
        self._tick_soon()
        return future

    def idle(self) -> asyncio.Future[None]:
        """Return a future that is resolved when every result is delivered and the loop has nothing more to do."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._idle.append(future)
        self._tick_soon()
        return future

    def _tick_soon(self) -> None:
        self._rounds = 0
        if not self._ticking:
            self._ticking = True
            self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        """Wait for a round in which nothing else happens; on a loop that others keep busy, for some rounds."""
        ready: Any = getattr(self._loop, "_ready", None)  # asyncio's own loops have it; others wait for the rounds
        if self._rounds < limits.DELIVERY_ROUNDS and (ready is None or ready):
            self._rounds += 1
            self._loop.call_soon(self._tick)
            return
        self._rounds = 0
        if self._waiting:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
        else:
            for one in self._idle:
                if not one.done():
                    one.set_result(None)
            self._idle.clear()
        self._ticking = bool(self._waiting or self._idle)
        if self._ticking:
            self._loop.call_soon(self._tick)

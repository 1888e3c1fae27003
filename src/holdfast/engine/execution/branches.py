"""Which branch of a task an asyncio task is: numbered when it is started, by a task factory around the loop's own."""

from __future__ import annotations

import asyncio
import inspect
import sys
import weakref
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.flows.requests import Branch
from holdfast.engine.execution.call import CALLER

if TYPE_CHECKING:
    from holdfast.engine.execution.loop_execution import LoopExecution


class BranchPlace(NamedTuple):
    """Where an asyncio task is, or was when it started another: its branch, how far it saw, what it had said."""

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
        return made

    return make


_WAIT_FOR: object = asyncio.wait_for.__code__ if sys.version_info < (3, 12) else None


_FRAMES = 7  # from here up to it, at the most


_stand_ins: weakref.WeakKeyDictionary[asyncio.Task[Any], asyncio.Task[Any] | None] = weakref.WeakKeyDictionary()


def _is_waited_for() -> bool:
    """Whether it is `wait_for` that starts an asyncio task, here and now, in order to wait for it."""
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

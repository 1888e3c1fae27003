"""Running the body of a `def` agent: in a thread that is abandoned when the task's time is over, or it is cancelled."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError, LeaseLost
from holdfast.core.flows.step import cut_off
from holdfast.core.flows.stops import may_begin
from holdfast.engine.definitions.call import abandon_body
from holdfast.engine.dispatch import claim
from holdfast.engine.drivers.abandonable import Owner, ThreadCall
from holdfast.engine.drivers.driver import THREADS, drive
from holdfast.engine.execution.execution import Execution
from holdfast.engine.logs.log import Log

T = TypeVar("T")


class Runner:
    """The work on one task by a `def` agent, until the task ends or waits.

    When it is cut, another execution takes over: it settles open calls, undoes what was done, and ends the task. What
    the abandoned thread still does is not written.
    """

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self._call = ThreadCall(lambda: claim.work(execution), owner=self._owner)

    def _owner(self) -> Owner:
        logs = self.execution.logs
        return Owner(logs.store.holder(), logs.full_name(self.execution.log.name))

    def run(self, *, apart: bool = False) -> Log:
        """Work here; or, if the task's time is limited or the caller wants that, in a thread of its own."""
        execution, watch = self.execution, self.execution.services.watch
        watch.begin_task(self, is_limited=execution.careful)
        try:
            if (execution.careful or apart) and execution.agent.own_thread:
                self._wait()
            else:
                self._call.run(here=True)
                self._call.wait()
        finally:
            watch.end_task(self)
        self._call.value()
        if execution.abandoned:  # others may have continued the task since, while this thread waited for its step
            return execution.logs.load(execution.log.name)
        return self.execution.log

    async def run_async(self) -> Log:
        """Work in a thread, and wait for that on the event loop."""
        execution, watch = self.execution, self.execution.services.watch
        watch.begin_task(self, is_limited=execution.careful)
        try:
            await finished(THREADS.start(self._call))
        finally:
            watch.end_task(self)
        self._call.value()
        return self.execution.log

    def _wait(self) -> None:
        THREADS.start(self._call)
        try:
            self._call.wait()
        except BaseException as error:  # Ctrl-C, or what else a signal raises in the thread that waits
            self._take_over(error)
            self._call.wait()
            raise

    def cut(self) -> None:
        """Abandon the body, in another thread: what it is about to write may keep this one waiting."""
        if not self.execution.agent.own_thread:
            cut_steps(self.execution)
        elif self.execution.in_body:
            THREADS.start(ThreadCall(self._take_over))

    def _take_over(self, error: BaseException | None = None) -> None:
        """Abandon the body, if it still runs, and end the task; or release it, for what was raised here."""
        left = self.execution

        def begin() -> None:
            left.calls.abandon(self._call.take_over(lambda: self._go_on(left, error)))
            abandon_body(left.task)

        if left.abandon_body(begin):
            self._call.run()

    def _go_on(self, left: Execution, error: BaseException | None) -> None:
        log = left.logs.load(left.log.name)
        if log.state.claimed_seq != left.state.claimed_seq:
            raise LeaseLost(f"task {log.name!r} was taken over")
        kept: dict[str, Any] = {"mocks": left.mocks, "hold": left.hold, "stop": left.stop}
        self.execution = execution = Execution(left.logs, log, left.agent, left.services, **kept)
        execution.inherit(left)

        def before() -> None:
            if error is not None:
                raise error
            execution.stop.ask_at(execution.sleeps.now_us())
            for key, request in execution.calls.cut.items():
                drive(cut_off(execution, key, request), execution)
            drive(may_begin(execution, None, "its body"), execution)

        claim.work(execution, before)


class SharedThread:
    """A task whose code runs in a thread that is not ours to abandon: only its steps with a time limit are cut."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution

    def __enter__(self) -> None:
        self.execution.services.watch.begin_task(self, is_limited=self.execution.careful)

    def __exit__(self, *raised: object) -> None:
        self.execution.services.watch.end_task(self)

    def cut(self) -> None:
        """Cut the steps with a time limit that are under way."""
        cut_steps(self.execution)


def cut_steps(execution: Execution) -> None:
    """Cut steps that run in a thread of their own, when it is known here why."""

    def cut() -> None:
        with contextlib.suppress(HoldfastError, LeaseLost):  # the next write meets the same, and acts on it
            execution.refresh()
        execution.stop.ask_at(execution.sleeps.now_us())
        for interrupt in list(execution.interrupts):
            interrupt()

    if execution.interrupts:
        THREADS.start(ThreadCall(cut))


async def finished(call: ThreadCall) -> None:
    """Wait on the event loop until a call has finished."""
    import asyncio  # what a program of `def` agents hardly ever needs

    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not done.done():
            done.set_result(None)

    def tell() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
            loop.call_soon_threadsafe(settle)

    call.tell(tell)
    await done


async def in_thread(work: Callable[[], T]) -> T:
    """Something that may take a while, in a thread that the end of the process does not wait for."""
    call = THREADS.start(ThreadCall(work))
    await finished(call)
    return call.value()

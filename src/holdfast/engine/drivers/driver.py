"""The driver of `def` agents: it answers what flows ask for. The only place that waits; `drive_async` is its twin."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from holdfast.core import events as ev, limits
from holdfast.core.errors import Suspended, TimeLimit
from holdfast.core.flows.requests import (
    Act,
    Ask,
    Body,
    Child,
    Idle,
    Now,
    Outcome,
    Owner,
    Park,
    Part,
    Payers,
    Pin,
    Recall,
    Record,
    Sleep,
    Transact,
    Unknown,
)
from holdfast.core.flows.step import earliest
from holdfast.core.flows.waits import foremost
from holdfast.engine.drivers import invocation
from holdfast.engine.drivers.abandonable import ThreadCall, Threads
from holdfast.engine.drivers.invocation import Acting
from holdfast.engine.execution.call import CALLER
from holdfast.engine.execution.execution import Execution

THREADS = Threads()
"""Where functions run that may have to be left behind."""


def drive(flow: Part, run: Execution) -> Any:
    """Carry out a flow for a `def` agent."""
    try:
        wish = flow.send(None)
        while True:
            try:
                answer = ANSWERS[type(wish)](wish, run)
            except BaseException as error:  # noqa: BLE001 — the flow decides what it means
                wish = flow.throw(error)
            else:
                wish = flow.send(answer)
    except StopIteration as done:
        return done.value


# What a `def` agent is answered


def _act(wish: Act, run: Execution) -> Outcome:
    acting, want, watch = Acting(wish, run), wish.want, run.services.long_steps
    if want.effect != "once" and want.estimate is None:  # those are announced before they begin
        watch.begin(acting)
    try:
        if want.timeout is not None:
            return _within(acting, want.timeout)
        outcome = acting.outcome(acting.make)
        return outcome if isinstance(outcome, Outcome) else _awaited(acting, outcome)
    finally:
        watch.end(acting)


def _within(acting: Acting, seconds: float) -> Outcome:
    """Wait for a function no longer than that. Its thread is left behind, and its late answer is not used."""

    def work() -> Outcome:
        outcome = acting.outcome(acting.make)
        return outcome if isinstance(outcome, Outcome) else _awaited(acting, outcome)

    job = THREADS.start(ThreadCall(work, acting.late))
    if job.wait(seconds) or not job.abandon():
        return job.value()
    return acting.in_doubt()


def _awaited(acting: Acting, value: Any) -> Outcome:
    """A function that gives something to await, in an agent that cannot: it gets an event loop of its own."""

    caller = CALLER.set(acting)
    try:
        job = _in_own_loop(value)
    finally:
        CALLER.reset(caller)
    return acting.outcome(job.value)


def _in_own_loop(value: Any) -> ThreadCall:
    """Await something in a thread that has an event loop for it."""
    import asyncio  # what a program of `def` agents hardly ever needs

    async def wait() -> Any:
        return await value

    job = THREADS.start(ThreadCall(lambda: asyncio.run(wait())))
    job.wait(None)
    return job


def _transact(wish: Transact, run: Execution) -> Outcome | None:
    transacting = invocation.Transacting(wish, run)
    try:
        return transacting.outcome(run.transact(transacting.work, transacting.seconds))
    except (invocation.NothingToCommit, TimeLimit) as error:
        return transacting.outcome(error=error)


def _ask(wish: Ask, run: Execution) -> Any:
    """Ask the destination. If it cannot be asked, nobody knows yet."""
    assert wish.want.reconcile is not None
    try:
        given = wish.want.reconcile(invocation.question(wish, run))
        return invocation.answer(_in_own_loop(given).value() if invocation.is_awaitable(given) else given, wish.want)
    except Exception:  # noqa: BLE001 — whatever kept it from being asked
        return Unknown()


def _sleep(wish: Sleep, run: Execution) -> None:
    """Sit out a short wait, or until the log moves; suspend for a long one."""
    now_us = run.logs.clock.now_us()
    if wish.until_us - now_us > run.hold * 1_000_000:
        _park(Park("timer", wish.until_us), run)
        return
    while (left := (wish.until_us - run.logs.clock.now_us()) / 1_000_000) > 0 and not run.stop.asked:
        time.sleep(min(left, limits.POLL_SECONDS))
        if left > limits.POLL_SECONDS and run.refresh():
            return


def _park(wish: Park, run: Execution) -> None:
    """Suspend the task, unless what it waits for has come meanwhile."""
    if threading.get_ident() != run.thread:
        raise Parked(wish)
    run.idle()  # a step of another thread is not cut off
    if run.record(Record((ev.TaskSuspended(why=wish.why, wake_us=wish.wake_us),), decided=True)):
        run.suspended = True
        raise Suspended(f"task {run.log.name!r} waits for {wish.why}; app.get(…).waiting.on says on what")


class Parked(BaseException):
    """A thread of a task has to wait; the task suspends when all its threads have come to an end or a wait."""

    def __init__(self, wish: Park) -> None:
        self.wish = wish


def drive_in_thread(flow: Part, run: Execution) -> Any:
    """Carry out a verb in a thread of the agent's own. If it has to wait, the whole task does, at its next verb."""
    try:
        with run.in_thread():
            return drive(flow, run)
    except Parked as parked:
        run.thread_waits.append(parked.wish)
        raise Suspended from None


def suspend_for_threads(run: Execution) -> None:
    """Suspend the task if one of its threads had to wait: it is gone, and comes back with the next replay."""
    if not run.thread_waits:
        return
    run.idle()  # others may come to a wait meanwhile
    why = foremost([one.why for one in run.thread_waits])
    _park(Park(why, earliest(*(one.wake_us for one in run.thread_waits))), run)
    while True:  # what one of them waits for may have come: look soon
        _park(Park(why, run.logs.clock.now_us()), run)


def _body(wish: Body, run: Execution) -> Any:
    try:
        result = run.body()
    except Exception:  # whatever the agent raises: first comes what stopped it, if it swallowed that
        _raise_if_over(run)
        raise
    if not run.suspended:
        run.idle()
        suspend_for_threads(run)
    _raise_if_over(run)
    return result


def _raise_if_over(run: Execution) -> None:
    """An agent that swallowed what stopped it: nothing it did after that counts."""
    if run.suspended:
        raise Suspended from None
    if run.over is not None:
        raise run.over from None


ANSWERS: dict[type, Callable[[Any, Any], Any]] = {
    Record: lambda wish, run: run.record(wish),
    Act: _act,
    Now: lambda wish, run: run.logs.clock.now_us(),
    Transact: _transact,
    Ask: _ask,
    Recall: lambda wish, run: invocation.recalled(wish.key, run),
    Owner: lambda wish, run: invocation.owner(wish.unique, run),
    Sleep: _sleep,
    Park: _park,
    Child: lambda wish, run: run.services.run_child(wish, run),
    Body: _body,
    Idle: lambda wish, run: run.idle(),
    Payers: lambda wish, run: invocation.payers(wish.ids, run),
    Pin: lambda wish, run: run.beside.pin(),
}

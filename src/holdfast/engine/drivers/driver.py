"""The driver of `def` agents: it answers what flows ask for. The only place that waits; `drive_async` is its twin."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from holdfast.core import limits
from holdfast.core.errors import Suspended, TimeLimit
from holdfast.core.events import ANNOUNCED, Event
from holdfast.core.flows.requests import (
    Advise,
    Append,
    AwaitCall,
    AwaitIdle,
    AwaitReplay,
    CheckResult,
    FindOwner,
    Invoke,
    Now,
    Outcome,
    Park,
    PinLinked,
    ReadLinked,
    ReadPayers,
    Recall,
    Reconcile,
    Reserve,
    Revise,
    RunBody,
    RunChild,
    Sleep,
    Subflow,
    Timer,
    Transact,
    Unknown,
)
from holdfast.core.flows.stops import earliest
from holdfast.core.flows.waits import suspended, together
from holdfast.engine.definitions.call import CALLER, Asking, Call
from holdfast.engine.drivers import invocation
from holdfast.engine.drivers.abandonable import BodyThreads, ThreadCall
from holdfast.engine.drivers.invocation import Invocation
from holdfast.engine.execution.execution import Execution
from holdfast.engine.system import ending

THREADS = BodyThreads()
"""Where functions run that may have to be left behind."""


def drive(flow: Subflow, execution: Execution) -> Any:
    """Carry out a flow for a `def` agent."""
    try:
        asked = flow.send(None)
        while True:
            try:
                answer = ANSWERS[type(asked)](asked, execution)
            except BaseException as error:  # noqa: BLE001 — the flow decides what it means
                asked = flow.throw(error)
            else:
                asked = flow.send(answer)
    except StopIteration as done:
        return done.value


# What a `def` agent is answered


def _act(asked: Invoke, execution: Execution) -> Outcome:
    invocation, request, watch = Invocation(asked, execution), asked.request, execution.services.watch
    if execution.careful and invocation.begins_too_late():
        return invocation.not_called()
    if request.effect not in ANNOUNCED and request.estimate is None:  # the others have been announced already
        watch.begin(invocation)
    try:
        if request.timeout is not None:
            return _within(invocation, execution)
        outcome = invocation.outcome(invocation.make)
        return outcome if isinstance(outcome, Outcome) else _awaited(invocation, outcome)
    finally:
        watch.end(invocation)
        if invocation.stream is not None:
            invocation.stream.end()
            invocation.stream.flush()


def _within(invocation: Invocation, execution: Execution) -> Outcome:
    """Wait for a function no longer than its time limit, or the task's. Its thread is abandoned then."""

    def work() -> Outcome:
        outcome = invocation.outcome(invocation.make)
        return outcome if isinstance(outcome, Outcome) else _awaited(invocation, outcome)

    call = THREADS.start(ThreadCall(work, invocation.late, invocation.owner))
    left = execution.seconds_left()
    own = invocation.request.timeout
    assert own is not None
    execution.interrupts.add(call.interrupt)
    try:
        is_done = call.wait(own if left is None else min(own, left))
    finally:
        execution.interrupts.discard(call.interrupt)
    cut = call.interrupted or (left is not None and left < own)
    return (None if is_done else invocation.left_behind(call, cut=cut)) or call.value()


def _awaited(invocation: Invocation, value: Any) -> Outcome:
    """A function that gives something to await, in an agent that cannot: it gets an event loop of its own."""

    caller = CALLER.set(invocation)
    try:
        call = _in_own_loop(value)
    finally:
        CALLER.reset(caller)
    return invocation.outcome(call.value)


def _in_own_loop(value: Any) -> ThreadCall:
    """Await something in a thread that has an event loop for it."""
    import asyncio  # what a program of `def` agents hardly ever needs

    async def wait() -> Any:
        return await value

    call = THREADS.start(ThreadCall(lambda: asyncio.run(wait())))
    call.wait(None)
    return call


def _transact(asked: Transact, execution: Execution) -> Outcome | None:
    transacting = invocation.TransactionInvocation(asked, execution)
    try:
        return transacting.outcome(execution.transact(transacting.work, transacting.seconds))
    except (invocation.NothingToCommit, TimeLimit) as error:
        return transacting.outcome(error=error)


def _ask(asked: Reconcile, execution: Execution) -> Any:
    """Ask the destination. If it can't be asked, the outcome is unknown for now."""
    assert asked.request.reconcile is not None
    call = invocation.question(asked, execution)
    caller = CALLER.set(Asking(call))
    try:
        given = asked.request.reconcile(call)
        return invocation.answer(
            _in_own_loop(given).value() if invocation.is_awaitable(given) else given, asked.request
        )
    except Exception as error:  # noqa: BLE001 — whatever kept it from being asked
        ending.refuse(error, execution.log.name)
        return Unknown()
    finally:
        CALLER.reset(caller)


def _revise(asked: Revise, execution: Execution) -> Event:
    """Let a user's function make a new value, as a step's function is called: no verb is used in it."""
    caller = CALLER.set(Asking(Call(execution.log.name, asked.key, 1)))
    try:
        return asked.make(asked.state)
    finally:
        CALLER.reset(caller)


def _sleep(asked: Sleep, execution: Execution) -> None:
    """Block for a short wait, or until the log moves; suspend for a long one."""
    most_us = execution.hold * 1_000_000
    if execution.sleeps.left_us(asked.until_us, most_us) > most_us:
        _park(Park(asked.why, execution.state.seq, asked.until_us, asked.note, asked.blockers), execution)
        return
    until_us = earliest(asked.until_us, asked.ends_us) or asked.until_us
    while (left := execution.sleeps.left_us(until_us, most_us) / 1_000_000) > 0 and not execution.stop.asked:
        time.sleep(min(left, limits.POLL_SECONDS))
        if left > limits.POLL_SECONDS and execution.refresh():
            return


def _park(asked: Park, execution: Execution) -> None:
    """Suspend the task, unless the log has moved since the flow looked: what it waits for may have come."""
    if threading.get_ident() != execution.thread:
        raise Parked(asked)
    execution.idle()  # a step of another thread is not cut off
    if execution.state.seq != asked.looked:
        return
    if execution.record(Append((suspended(asked),), decided=True)):
        execution.suspended = True
        raise Suspended(f"task {execution.log.name!r} waits for {asked.why}; app.get(…).waiting.on says on what")


class Parked(BaseException):
    """A thread of a task has to wait; the task suspends when all its threads have come to an end or a wait."""

    def __init__(self, asked: Park) -> None:
        self.asked = asked


def drive_in_thread(flow: Subflow, execution: Execution) -> Any:
    """Carry out a verb in a thread of the agent's own. If it has to wait, the whole task does, at its next verb."""
    try:
        with execution.in_thread():
            return drive(flow, execution)
    except Parked as parked:
        execution.thread_waits.append(parked.asked)
        raise Suspended from None


def suspend_for_threads(execution: Execution) -> None:
    """Suspend the task if one of its threads had to wait: it is gone, and comes back with the next replay.

    If the log has moved since that thread looked, the task comes back at once: its answer may be there.
    """
    if not execution.thread_waits:
        return
    while True:
        execution.idle()  # others may come to a wait meanwhile
        looked = execution.state.seq
        wait = together(execution.thread_waits, looked)
        if any(one.looked != looked for one in execution.thread_waits):
            wait = replace(wait, wake_us=execution.logs.clock.now_us())
        _park(wait, execution)


def _body(asked: RunBody, execution: Execution) -> Any:
    try:
        result = execution.body()
    except Exception as error:  # whatever the agent raises: first comes what stopped it, if it swallowed that
        _raise_if_over(execution)
        ending.refuse(error, execution.log.name)
        raise
    if not execution.suspended:
        execution.idle()
        suspend_for_threads(execution)
    _raise_if_over(execution)
    if execution.lent is not None:
        execution.lent.check()
    return result


def _raise_if_over(execution: Execution) -> None:
    """An agent that swallowed what stopped it: nothing it did after that counts."""
    if execution.suspended:
        raise Suspended from None
    if execution.over is not None:
        raise execution.over from None


_advised: set[str] = set()


def _advise(asked: Advise, execution: Execution) -> None:
    if asked.tool not in _advised:
        _advised.add(asked.tool)
        import logging  # few programs need it

        logging.getLogger("holdfast").warning("%s", asked.text)


ANSWERS: dict[type, Callable[[Any, Any], Any]] = {
    Append: lambda asked, execution: execution.record(asked),
    Invoke: _act,
    Advise: _advise,
    AwaitCall: lambda asked, execution: execution.await_call(asked.key),
    AwaitReplay: lambda asked, execution: execution.await_replay(asked.name),
    CheckResult: lambda asked, execution: invocation.unfit(asked, execution),
    Now: lambda asked, execution: execution.sleeps.now_us(),
    Transact: _transact,
    Reconcile: _ask,
    Recall: lambda asked, execution: invocation.recalled(asked.key, execution),
    FindOwner: lambda asked, execution: invocation.owner(asked.unique, execution),
    Reserve: lambda asked, execution: invocation.reserved(asked, execution),
    Timer: lambda asked, execution: execution.sleeps.begin(asked.until_us, execution.hold * 1_000_000),
    Sleep: _sleep,
    Park: _park,
    RunChild: lambda asked, execution: execution.services.run_child(asked, execution),
    RunBody: _body,
    AwaitIdle: lambda asked, execution: execution.idle(),
    ReadPayers: lambda asked, execution: invocation.payers(asked.ids, execution),
    PinLinked: lambda asked, execution: execution.linked_logs.pin(),
    ReadLinked: lambda asked, execution: execution.linked_logs.now(asked.of, asked.after),
    Revise: _revise,
}

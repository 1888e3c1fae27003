"""The driver of `async def` agents: the same flows, answered without ever blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core import limits
from holdfast.core.errors import BudgetExceeded, Cancelled, LeaseLost, Stopped, TimeLimit
from holdfast.core.events import ANNOUNCED
from holdfast.core.flows.requests import (
    Append,
    AwaitCall,
    AwaitIdle,
    AwaitReplay,
    CheckResult,
    FindOwner,
    Invoke,
    Outcome,
    Park,
    PinLinked,
    ReadLinked,
    ReadPayers,
    Recall,
    Reconcile,
    Reserve,
    RunBody,
    RunChild,
    Sleep,
    Subflow,
    Transact,
    Unknown,
)
from holdfast.engine.definitions.call import CALLER, Asking
from holdfast.engine.drivers import invocation
from holdfast.engine.drivers.abandonable import ThreadCall
from holdfast.engine.drivers.driver import ANSWERS, THREADS
from holdfast.engine.drivers.invocation import Invocation
from holdfast.engine.drivers.parallel import Piece
from holdfast.engine.execution.branches import outside_context
from holdfast.engine.execution.loop_execution import LoopExecution
from holdfast.engine.system import ending


async def drive_async(flow: Subflow, execution: LoopExecution) -> Any:
    """Carry out a verb of an `async def` agent. What ends the whole task is not raised in the branch that met it."""
    try:
        return await carry_out(flow, execution)
    except (BudgetExceeded, Cancelled, LeaseLost, Stopped, TimeLimit) as error:
        if isinstance(error, Exception) and not execution.is_over:
            raise  # it begins too late, and its branch gets the error; nothing was cut
        execution.active += 1
        try:
            await execution.give_up(error)
        finally:
            execution.leave()
        raise


async def carry_out(flow: Subflow, execution: LoopExecution) -> Any:
    """Carry out a flow on an event loop."""
    if not execution.enter():
        await execution.enter_later()
    try:
        asked = flow.send(None)
        while True:
            try:
                found = _ANSWERS.get(type(asked))
                answer = ANSWERS[type(asked)](asked, execution) if found is None else await found(asked, execution)
            except BaseException as error:  # noqa: BLE001 — the flow decides what it means
                asked = flow.throw(error)
            else:
                asked = flow.send(answer)
    except StopIteration as done:
        return done.value
    finally:
        execution.leave()


async def drive_all(execution: LoopExecution, pieces: Sequence[Piece], limit: int) -> list[Any]:
    """Drive several flows at once, some at a time; gives a value or an exception for each."""
    places = asyncio.Semaphore(limit)

    async def one(piece: Piece) -> Any:
        async with places:
            try:
                return await drive_async(piece.flow, execution)
            except Exception as error:  # noqa: BLE001 — raised in the agent when all have come to an end
                return error

    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(one(piece), context=outside_context()) for piece in pieces]
    return list(await asyncio.gather(*tasks))


async def _act_async(asked: Invoke, execution: LoopExecution) -> Outcome:
    invocation, request, watch = Invocation(asked, execution), asked.request, execution.services.watch
    if execution.careful and (execution.is_cut or invocation.begins_too_late()):
        await asyncio.sleep(0)  # if it may continue after all, that is noticed meanwhile
        return invocation.not_called()
    if request.effect not in ANNOUNCED and request.estimate is None:  # the others have been announced already
        watch.begin(invocation)
    execution.acting[invocation] = asyncio.current_task()
    try:
        if not request.is_async:
            outcome = await _in_thread(invocation, execution)
        else:
            outcome = await _on_loop(invocation, request.timeout)
    except asyncio.CancelledError:
        if not _was_cut(invocation, execution):
            raise
        outcome = invocation.in_doubt(cut=True)
    finally:
        del execution.acting[invocation]
        watch.end(invocation)
        if invocation.stream is not None:
            invocation.stream.end()
    if invocation.stream is not None:
        await asyncio.to_thread(invocation.stream.flush)
    return outcome


def _was_cut(invocation: Invocation, execution: LoopExecution) -> bool:
    """Return whether a cancellation that has come back to its verb was to cut the step off: then the verb continues.

    Should the agent have cancelled it at the same time, that is forgotten: its whole task is being stopped.
    """
    task = execution.acting[invocation]
    if task is None or invocation not in execution.cut_off:
        return False
    execution.cut_off.discard(invocation)
    task.uncancel()
    return True


async def _in_thread(invocation: Invocation, execution: LoopExecution) -> Outcome:
    """A plain function runs in a thread of its own, so that the event loop keeps running."""
    call = ThreadCall(lambda: invocation.outcome(invocation.make), invocation.late, invocation.owner)
    answered = execution.future()
    call.tell(lambda: execution.tell(answered))
    THREADS.start(call)
    left: Outcome | None = None
    try:
        async with asyncio.timeout(invocation.request.timeout):
            await answered
    except TimeoutError:
        left = invocation.left_behind(call)
    except asyncio.CancelledError:
        left = invocation.left_behind(call, cut=True)
        if not _was_cut(invocation, execution):
            raise
    outcome = left or call.value()
    return outcome if isinstance(outcome, Outcome) else await _kept(invocation, outcome)


async def _on_loop(invocation: Invocation, seconds: float | None) -> Outcome:
    value = invocation.outcome(invocation.make)
    if isinstance(value, Outcome) or seconds is None:
        return value if isinstance(value, Outcome) else await _kept(invocation, value)
    try:
        async with asyncio.timeout(seconds):
            return await _kept(invocation, value)
    except TimeoutError:
        return invocation.in_doubt()


async def _kept(invocation: Invocation, value: Any) -> Outcome:
    """Await what a function gave, and keep what comes of it."""
    caller = CALLER.set(invocation)
    try:
        try:
            result = await value
        finally:
            CALLER.reset(caller)
        return invocation.kept(result)
    except Exception as error:  # noqa: BLE001 — a failure of the user's function is data, whatever it is
        return invocation.failed(error)
    except SystemExit as stop:
        return invocation.failed(invocation.exited(stop))
    except asyncio.CancelledError as error:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        inside = RuntimeError(f"it was cancelled from inside: {error!r}")
        return Outcome(error=inside, started_us=invocation.started_us)


async def _transact_async(asked: Transact, execution: LoopExecution) -> Outcome | None:
    transacting = invocation.TransactionInvocation(asked, execution)
    try:
        return transacting.outcome(await execution.transact_async(transacting.work, transacting.seconds))
    except (invocation.NothingToCommit, TimeLimit) as error:
        return transacting.outcome(error=error)


async def _ask_async(asked: Reconcile, execution: LoopExecution) -> Any:
    assert asked.request.reconcile is not None
    reconcile, call = asked.request.reconcile, invocation.question(asked, execution)
    caller = CALLER.set(Asking(call))
    try:
        given = await asyncio.to_thread(reconcile, call)
        return invocation.answer(await given if asyncio.iscoroutine(given) else given, asked.request)
    except Exception as error:  # noqa: BLE001 — whatever kept it from being asked
        ending.refuse(error, execution.log.name)
        return Unknown()
    finally:
        CALLER.reset(caller)


async def _sleep_async(asked: Sleep, execution: LoopExecution) -> None:
    left = execution.sleeps.left_us(asked.until_us, execution.hold * 1_000_000) / 1_000_000
    if left > execution.hold:
        await execution.park(Park(asked.why, execution.state.seq, asked.until_us, asked.note, asked.blockers))
    elif left > 0:
        await asyncio.sleep(min(left, limits.POLL_SECONDS))
        await execution.refresh_async()


async def _child_async(asked: RunChild, execution: LoopExecution) -> None:
    await execution.services.run_child_async(asked, execution)


_ANSWERS: dict[type, Callable[[Any, LoopExecution], Any]] = {
    Append: lambda asked, execution: execution.write(asked),
    AwaitCall: lambda asked, execution: execution.await_call_async(asked.key),
    AwaitReplay: lambda asked, execution: execution.await_replay_async(asked.name),
    CheckResult: lambda asked, execution: asyncio.to_thread(invocation.unfit, asked, execution),
    Invoke: _act_async,
    Transact: _transact_async,
    Reconcile: _ask_async,
    Recall: lambda asked, execution: asyncio.to_thread(invocation.recalled, asked.key, execution),
    FindOwner: lambda asked, execution: asyncio.to_thread(invocation.owner, asked.unique, execution),
    Reserve: lambda asked, execution: asyncio.to_thread(invocation.reserved, asked, execution),
    Sleep: _sleep_async,
    Park: lambda asked, execution: execution.park(asked),
    RunChild: _child_async,
    RunBody: lambda asked, execution: execution.body_async(),
    AwaitIdle: lambda asked, execution: execution.idle_async(),
    ReadPayers: lambda asked, execution: asyncio.to_thread(invocation.payers, asked.ids, execution),
    PinLinked: lambda asked, execution: asyncio.to_thread(execution.linked_logs.pin),
    ReadLinked: lambda asked, execution: asyncio.to_thread(execution.linked_logs.now, asked.of, asked.after),
}

"""The driver of `async def` agents: the same flows, answered without ever blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core import limits
from holdfast.core.errors import Cancelled, LeaseLost, Stopped, TimeLimit
from holdfast.core.flows.requests import (
    Act,
    Ask,
    Body,
    Child,
    Idle,
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
from holdfast.engine.drivers import invocation
from holdfast.engine.drivers.abandonable import ThreadCall
from holdfast.engine.drivers.driver import ANSWERS, THREADS
from holdfast.engine.drivers.invocation import Acting
from holdfast.engine.drivers.parallel import Piece
from holdfast.engine.execution.branches import outside_context
from holdfast.engine.execution.call import CALLER
from holdfast.engine.execution.loop_execution import LoopExecution


async def drive_async(flow: Part, run: LoopExecution) -> Any:
    """Carry out a verb of an `async def` agent. What ends the whole task is not raised in the branch that met it."""
    try:
        return await carry_out(flow, run)
    except (Cancelled, LeaseLost, Stopped) as error:
        run.active += 1
        try:
            await run.give_up(error)
        finally:
            run.leave()
        raise


async def carry_out(flow: Part, run: LoopExecution) -> Any:
    """Carry out a flow on an event loop."""
    if not run.enter():
        await run.enter_later()
    try:
        wish = flow.send(None)
        while True:
            try:
                found = _ANSWERS.get(type(wish))
                answer = ANSWERS[type(wish)](wish, run) if found is None else await found(wish, run)
            except BaseException as error:  # noqa: BLE001 — the flow decides what it means
                wish = flow.throw(error)
            else:
                wish = flow.send(answer)
    except StopIteration as done:
        return done.value
    finally:
        run.leave()


async def drive_all(run: LoopExecution, pieces: Sequence[Piece], limit: int) -> list[Any]:
    """Drive several flows at once, some at a time; gives a value or an exception for each."""
    places = asyncio.Semaphore(limit)

    async def one(piece: Piece) -> Any:
        async with places:
            try:
                return await drive_async(piece.flow, run)
            except Exception as error:  # noqa: BLE001 — told to the agent when all have come to an end
                return error

    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(one(piece), context=outside_context()) for piece in pieces]
    return list(await asyncio.gather(*tasks))


async def _act_async(wish: Act, run: LoopExecution) -> Outcome:
    acting = Acting(wish, run)
    if wish.want.effect != "once" and wish.want.estimate is None:  # those are announced before they begin
        run.acting[acting] = run.time()
        run.look_later()
    try:
        if not wish.want.is_async:
            return await _in_thread(acting, run)
        return await _on_loop(acting, wish.want.timeout)
    finally:
        run.acting.pop(acting, None)


async def _in_thread(acting: Acting, run: LoopExecution) -> Outcome:
    """A plain function runs in a thread of its own, so that the event loop goes on."""
    job = ThreadCall(lambda: acting.outcome(acting.make), acting.late)
    landed = run.future()
    job.tell(lambda: run.tell(landed))
    THREADS.start(job)
    try:
        async with asyncio.timeout(acting.want.timeout):
            await landed
    except TimeoutError:
        if job.abandon():
            return acting.in_doubt()
    except asyncio.CancelledError:
        job.abandon()
        raise
    outcome = job.value()
    return outcome if isinstance(outcome, Outcome) else await _kept(acting, outcome)


async def _on_loop(acting: Acting, seconds: float | None) -> Outcome:
    value = acting.outcome(acting.make)
    if isinstance(value, Outcome) or seconds is None:
        return value if isinstance(value, Outcome) else await _kept(acting, value)
    try:
        async with asyncio.timeout(seconds):
            return await _kept(acting, value)
    except TimeoutError:
        return acting.in_doubt()


async def _kept(acting: Acting, value: Any) -> Outcome:
    """Await what a function gave, and keep what comes of it."""
    caller = CALLER.set(acting)
    try:
        try:
            result = await value
        finally:
            CALLER.reset(caller)
        return acting.kept(result)
    except Exception as error:  # noqa: BLE001 — a failure of the user's function is data, whatever it is
        return acting.failed(error)
    except SystemExit as stop:
        return acting.failed(acting.exited(stop))
    except asyncio.CancelledError as error:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        inside = RuntimeError(f"it was cancelled from inside: {error!r}")
        return Outcome(error=inside, started_us=acting.started_us)


async def _transact_async(wish: Transact, run: LoopExecution) -> Outcome | None:
    transacting = invocation.Transacting(wish, run)
    try:
        return transacting.outcome(await run.transact_async(transacting.work, transacting.seconds))
    except (invocation.NothingToCommit, TimeLimit) as error:
        return transacting.outcome(error=error)


async def _ask_async(wish: Ask, run: LoopExecution) -> Any:
    assert wish.want.reconcile is not None
    reconcile, call = wish.want.reconcile, invocation.question(wish, run)
    try:
        given = await asyncio.to_thread(reconcile, call)
        return invocation.answer(await given if asyncio.iscoroutine(given) else given, wish.want)
    except Exception:  # noqa: BLE001 — whatever kept it from being asked
        return Unknown()


async def _sleep_async(wish: Sleep, run: LoopExecution) -> None:
    left = (wish.until_us - run.logs.clock.now_us()) / 1_000_000
    if left > run.hold:
        await run.park("timer", wish.until_us)
    elif left > 0:
        await asyncio.sleep(min(left, limits.POLL_SECONDS))
        await run.refresh_async()


async def _child_async(wish: Child, run: LoopExecution) -> None:
    await run.services.run_child_async(wish, run)


_ANSWERS: dict[type, Callable[[Any, LoopExecution], Any]] = {
    Record: lambda wish, run: run.write(wish),
    Act: _act_async,
    Transact: _transact_async,
    Ask: _ask_async,
    Recall: lambda wish, run: asyncio.to_thread(invocation.recalled, wish.key, run),
    Owner: lambda wish, run: asyncio.to_thread(invocation.owner, wish.unique, run),
    Sleep: _sleep_async,
    Park: lambda wish, run: run.park(wish.why, wish.wake_us),
    Child: _child_async,
    Body: lambda wish, run: run.body_async(),
    Idle: lambda wish, run: run.idle_async(),
    Payers: lambda wish, run: asyncio.to_thread(invocation.payers, wish.ids, run),
    Pin: lambda wish, run: asyncio.to_thread(run.beside.pin),
}

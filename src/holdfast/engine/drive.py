"""The drivers: they answer what flows ask for. The only place that waits, and the only one that awaits."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from typing import Any, TypeVar

from holdfast.core import codec
from holdfast.core import events as ev
from holdfast.core.errors import Suspended, TimeLimit
from holdfast.core.flows import Act, Ask, DidNotHappen, Happened, Now, Outcome, Park, Record, Sleep, Unknown, Wish
from holdfast.engine.run import Call, Run, calling

T = TypeVar("T")

HOLD_SECONDS = 60.0
"""How long a wait is sat out before the task suspends."""


def drive(flow: Generator[Wish, Any, T], run: Run) -> T:
    """Carry out a flow for a `def` agent."""
    answer: Any = None
    try:
        while True:
            answer = _answer(flow.send(answer), run)
    except StopIteration as done:
        return done.value


def _answer(wish: Wish, run: Run) -> Any:
    match wish:
        case Record():
            return run.record(wish.events, wish.decided)
        case Act():
            return _act(wish, run)
        case Now():
            return run.logs.clock.now_us()
        case Ask():
            return _ask(wish, run)
        case Sleep():
            return _sleep(wish.until_us, "timer", run)
        case Park():
            return _sleep(wish.wake_us, wish.why, run)


def _act(wish: Act, run: Run) -> Outcome:
    """Call the function. Whatever it raises is an outcome, except what is not an Exception."""
    want = wish.want
    call = _call_of(wish, run)
    given: dict[str, Any] = dict(want.arguments) if want.tool else {}
    if "idempotency_key" in want.given:
        given["idempotency_key"] = call.idempotency_key

    def work() -> Outcome:
        try:
            with calling(call):
                value = want.fn(**given)
        except Exception as error:  # noqa: BLE001 — a failure of the user's function is data, whatever it is
            return Outcome(error=error)
        try:
            return Outcome(value=codec.pack(value, f"the result of step {wish.key!r}"))
        except Exception as error:  # noqa: BLE001 — the step did run: what it gave cannot be kept, and that is its outcome
            return Outcome(error=error)

    return work() if want.timeout is None else _within(want.timeout, work)


def _within(seconds: float, work: Any) -> Outcome:
    """Wait for a function no longer than that. Its thread is left behind, and its late answer is not used."""
    box: list[Outcome] = []
    worker = threading.Thread(target=lambda: box.append(work()), name="holdfast-step", daemon=True)
    worker.start()
    worker.join(seconds)
    if box:
        return box[0]
    return Outcome(error=TimeLimit(f"no answer within {seconds:g} s", hint="raise its timeout"), timed_out=True)


def _ask(wish: Ask, run: Run) -> Any:
    """Ask the destination. An answer that is none, or an error, is Unknown."""
    assert wish.want.reconcile is not None
    step = wish.step
    known = {"tool": step.tool, "arguments": wish.want.arguments, "idempotency_key": step.idempotency_key}
    try:
        answer = wish.want.reconcile(Call(run.log.name, step, step.key, step.attempts, **known))
    except Exception:  # noqa: BLE001 — the destination could not be asked, so nobody knows yet
        return Unknown()
    return answer if isinstance(answer, Happened | DidNotHappen | Unknown) else Unknown()


def _sleep(until_us: int | None, why: ev.WaitKind, run: Run) -> None:
    """Sit out a short wait; suspend for a long one, or for one that only others can end."""
    now_us = run.logs.clock.now_us()
    if until_us is not None and until_us <= now_us:
        return
    if why != "timer" or until_us is None or until_us - now_us > HOLD_SECONDS * 1_000_000:
        run.record((ev.TaskSuspended(why=why, wake_us=until_us),))
        run.suspended = True
        raise Suspended
    time.sleep((until_us - now_us) / 1_000_000)


def _call_of(wish: Act, run: Run) -> Call:
    want = wish.want
    known = {"tool": want.tool, "arguments": want.arguments, "time_left": want.timeout}
    return Call(run.log.name, None, wish.key, wish.attempt, idempotency_key=wish.idempotency_key, **known)

"""When an attempt of a call may begin: after its back-off, and at the rate of its tool.

A call waits for its moment before it is announced; no thread waits with it for long.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import events as ev, limits, retries
from holdfast.core.flows.requests import Now, Reserve, Sleep, StepRequest, Subflow, Surroundings, Timer
from holdfast.core.state.shapes import State


def next_attempt(request: StepRequest, attempt: int, error: BaseException | None = None) -> Subflow:
    """Return when the next attempt is due. Its back-off begins now."""
    now_us: int = yield Now()
    due_us = retries.due_us(request.retry, attempt, now_us, error)
    yield Timer(due_us)
    return due_us


class Turn(Struct, frozen=True, gc=False):
    """The moment that is reserved for an attempt, and until when the attempt may begin.

    One that begins later would come too close to the next: it needs another moment. `missed` are those it had before.
    """

    attempt: int
    at_us: int
    late_us: int
    missed: int = 0
    has_come: bool = False


def at_its_rate(surroundings: Surroundings, key: str, attempt: int, request: StepRequest, turn: Turn | None) -> Subflow:
    """Wait for the moment at which the tool's rate lets an attempt begin; gives that moment, which may have come.

    If it had to wait, everything is decided again: the task may have been cancelled, or its deadline be over. A moment
    that the task's timer waits for is kept with its suspension.
    """
    state, now_us = surroundings.state, (yield Now())
    if state.mock:
        return Turn(attempt, 0, 0, has_come=True)
    if turn is None or turn.attempt != attempt:
        turn = _kept(state, key, attempt)
    if turn is None or now_us > turn.late_us:
        wait_us, grace_us, is_reserved = yield Reserve(request.tool, request.rate)
        # The store counted from some time between two looks at the clock. So the place is used from the later one,
        # and is late by the earlier one.
        asked_us, now_us = now_us, (yield Now())
        missed = 0 if turn is None else turn.missed + 1
        late_us = asked_us + wait_us + (grace_us << min(missed, limits.RATE_MISSED))
        turn = Turn(attempt, now_us + wait_us, late_us, missed)
        if not is_reserved:
            yield _wait(state, request, turn.at_us)
            return Turn(attempt, 0, 0, -1)
    if now_us < turn.at_us:
        kept = ev.Blocker("timer", state.summary.id, key, attempt=attempt, until_us=turn.at_us, late_us=turn.late_us)
        # A worker takes the task up a little earlier, so that it is not late.
        is_far = turn.at_us - now_us > limits.RATE_LEAD_US
        yield _wait(state, request, turn.at_us - limits.RATE_LEAD_US if is_far else turn.at_us, kept)
        return turn
    return replace(turn, has_come=now_us <= turn.late_us)


def _kept(state: State, key: str, attempt: int) -> Turn | None:
    """The moment that was reserved before the task was suspended."""
    found = (one for one in state.blockers if (one.why, one.key, one.attempt) == ("timer", key, attempt))
    kept = next(found, None)
    return None if kept is None else Turn(attempt, kept.until_us, kept.late_us)


def _wait(state: State, request: StepRequest, until_us: int, *kept: ev.Blocker) -> Sleep:
    deadline_us = state.summary.deadline_us
    until_us = until_us if deadline_us is None else min(until_us, deadline_us)
    return Sleep(until_us, note=f"the rate of tool {request.tool!r} is {request.rate}", blockers=kept)

"""Calls in doubt: how their outcome is found out, and what is done if it can't be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core import codec, events as ev
from holdfast.core.events import ANNOUNCED
from holdfast.core.flows.pacing import next_attempt
from holdfast.core.flows.requests import (
    Advise,
    Append,
    DidNotHappen,
    Happened,
    Invoke,
    Now,
    Park,
    Recall,
    Reconcile,
    Sleep,
    StepRequest,
    Subflow,
    Surroundings,
    Unfit,
)
from holdfast.core.state.fold import POLICY
from holdfast.core.state.shapes import Step


def settle_all(surroundings: Surroundings, requests: Mapping[str, StepRequest]) -> Subflow:
    """Settle calls that the code did not reach again: no task ends while one of them is open."""
    while True:
        looked = surroundings.state.seq
        known = next((step for step in surroundings.state.steps.values() if step.unsettled), None)
        if known is None:
            return
        request = requests.get(known.key)
        if request is not None:
            yield from settle(surroundings, known, request)
        elif known.status == "running" and surroundings.state.mock:
            yield not_happened(known, "mock")
        elif known.status == "running":
            yield from _doubted(surroundings, known, "announced, and not come back to", None)
        else:
            yield Park("doubt", looked)


def settle(surroundings: Surroundings, known: Step, request: StepRequest) -> Subflow:
    """A call that was announced and has no outcome: ask the destination, else follow the policy, else ask a person."""
    looked = surroundings.state.seq
    if surroundings.state.steps.get(known.key) is not known:
        return  # another branch folded in what became of it: look again
    if known.first_seq <= surroundings.state.forked_at and (yield from _settled_by_parent(known)):
        return
    if known.status == "running" and surroundings.state.mock:
        yield not_happened(known, "mock")  # a mock was cut off, and the world saw nothing of it
        return
    if known.status == "running":
        yield from _doubted(surroundings, known, "announced, without an outcome", request)
        return
    if request.reconcile is not None and surroundings.state.effects != "recorded" and not surroundings.state.mock:
        yield from until((known.announced_us or known.started_us) + int(request.reconcile_after * 1_000_000))
        answer = yield Reconcile(known, request)
        if isinstance(answer, Happened):
            result = codec.pack(answer.result, f"the reconciled result of {known.key!r}", restore=request.result)
            yield Append((ev.StepSettled(key=known.key, happened=True, result=result, by="reconcile"),), decided=True)
            return
        if isinstance(answer, DidNotHappen):
            if not (yield from _may_still_be_sent(known)):
                yield not_happened(known, "reconcile")
            return
        if isinstance(answer, Unfit):  # it did happen, so it is not repeated, whatever the policy: a person must look
            if (yield Append((ev.StepDoubted(key=known.key, why=answer.why),), decided=True)):
                yield Park("doubt", surroundings.state.seq)
            return
    policy = request.on_doubt if known.raised is None else request.on_raise
    if policy == "retry" and (known.raised is None or known.attempts < max(request.retry.attempts, 2)):
        if not (yield from _may_still_be_sent(known)):
            yield from _again(known, request)
    elif policy in ("fail", "retry"):
        yield from _give_up(known, request)
    else:
        yield Park("doubt", looked)


def _doubted(surroundings: Surroundings, known: Step, why: str, request: StepRequest | None) -> Subflow:
    """Record that a call's outcome is unknown, and until when it may still be under way."""
    sending_us = 0 if request is None else _sending_until(surroundings, known, request)
    elsewhere_us = yield from _elsewhere_until(surroundings, known, request)
    doubted = ev.StepDoubted(key=known.key, why=why, until_us=max(sending_us, elsewhere_us))
    yield Append((doubted,), decided=True)


def _elsewhere_until(surroundings: Surroundings, known: Step, request: StepRequest | None) -> Subflow:
    """Return until when a worker that was only presumed dead may be in the middle of a call; 0 if there is none.

    Its time limit is over then, or the lease if it has none. That is counted from now, by one clock: the take-over came
    after the announcement. It is recorded with the doubt, so that a later worker obeys it too.
    """
    state = surroundings.state
    if known.last_seq >= state.silent_seq:
        return 0
    now_us: int = yield Now()
    timeout = None if request is None else request.timeout
    return now_us + int((timeout or state.summary.lease_seconds) * 1_000_000)


def _sending_until(surroundings: Surroundings, known: Step, request: StepRequest) -> int:
    """Return until when the thread of an abandoned attempt may be at it; 0 if there is none."""
    if not surroundings.calls.is_sending(known.key):
        return 0
    return (known.announced_us or known.started_us) + int(request.abandoned_after * 1_000_000)


def _may_still_be_sent(known: Step) -> Subflow:
    """Wait, if the thread of the attempt, or a worker presumed dead, may still be sending; whether there was need to.

    Until it has ended, or its time is up, the call is neither believed undone nor made again.
    """
    now_us: int = yield Now()
    if now_us >= known.until_us:
        return False
    yield Sleep(known.until_us, "doubt", "an abandoned attempt may still be sending")
    return True


def _again(known: Step, request: StepRequest) -> Subflow:
    """Make a call again although it may have happened, as its tool declares."""
    if known.raised is None:
        yield not_happened(known, POLICY)
        return
    retry_us: int = yield from next_attempt(request, known.attempts)
    same: dict[str, Any] = {"key": known.key, "name": known.name, "input": known.input, "tool": known.tool}
    same |= {"effect": known.effect, "idempotency_key": known.idempotency_key, "failure": known.raised}
    failed = ev.AttemptFailed(**same, attempt=known.attempts, retry_us=retry_us, maybe_done=True)
    yield Append((failed,), decided=True)


def _give_up(known: Step, request: StepRequest) -> Subflow:
    """Fail although the call may have happened. The task does not make it again before it is settled."""
    unknown = ev.Failure("InDoubt", f"it is not known whether {known.key!r} happened", code="in-doubt")
    failure = known.raised or unknown
    failed = ev.StepFailed(
        key=known.key, name=known.name, failure=failure, attempts=known.attempts, maybe_done=True, undo=request.undo
    )
    if (yield Append((failed,), decided=True)) and not request.declared:
        yield Advise(request.tool, how_to_declare(request.tool))


def how_to_declare(tool: str) -> str:
    """One line on what to declare of a tool that raised, or lost its answer."""
    return (
        f"tool {tool!r} raised, and may have had its effect: declare what it does. effect='read' or 'idempotent' if it "
        "can be repeated, effect='once' with reconcile= if not, definite=[…] for errors that mean it did nothing"
    )


def not_happened(known: Step, by: str) -> Append:
    """That a call did not happen, and will not; its unique key is free again."""
    freed_keys = (known.unique,) if known.unique else ()
    return Append((ev.StepSettled(key=known.key, happened=False, by=by),), decided=True, freed_keys=freed_keys)


def missed(surroundings: Surroundings, act: Invoke) -> Subflow:
    """Record of a call that missed the moment of its rate only that it was not made, if it was announced.

    It gets another moment, as the same attempt.
    """
    if act.request.effect in ANNOUNCED:
        yield not_happened(surroundings.state.steps[act.key], "the rate of its tool, whose moment it had missed")


def _settled_by_parent(known: Step) -> Subflow:
    """An open call that was inherited: the log it comes from may know by now."""
    theirs: Step | None = yield Recall(known.key)
    if theirs is None or not theirs.done:
        return False
    if theirs.status == "failed" and theirs.failure is not None:
        failed = ev.StepFailed(key=known.key, name=known.name, failure=theirs.failure, attempts=theirs.attempts)
        yield Append((failed,), decided=True)
    else:
        settled = ev.StepSettled(key=known.key, happened=True, result=theirs.result, by="the parent's log")
        yield Append((settled,), decided=True)
    return True


def until(time_us: int) -> Subflow:
    """Wait for the whole time, whatever interrupts it."""
    while (yield Now()) < time_us:
        yield Sleep(time_us)

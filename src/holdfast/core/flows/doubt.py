"""Calls whose outcome is not known: who is asked, and what is done if nobody knows."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core import codec, events as ev
from holdfast.core.flows.requests import (
    Ask,
    Desk,
    DidNotHappen,
    Happened,
    Now,
    Park,
    Part,
    Recall,
    Record,
    Sleep,
    Unfit,
    Want,
)
from holdfast.core.state.shapes import Step


def settle_all(desk: Desk, wants: Mapping[str, Want]) -> Part:
    """See to calls that nobody came back to: no task ends while one of them is open."""
    while True:
        known = next((step for step in desk.hot.steps.values() if step.unsettled), None)
        if known is None:
            return
        want = wants.get(known.key)
        if want is not None:
            yield from settle(desk, known, want)
        elif known.status == "running" and desk.hot.mock:
            yield not_happened(known, "mock")
        elif known.status == "running":
            yield Record((ev.StepDoubted(key=known.key, why="announced, and not come back to"),), decided=True)
        else:
            yield Park("doubt")


def settle(desk: Desk, known: Step, want: Want) -> Part:
    """A call that was announced and has no outcome: ask the destination, else follow the policy, else ask a person."""
    if known.first_seq <= desk.hot.forked_at and (yield from _settled_by_parent(known)):
        return
    if known.status == "running" and desk.hot.mock:
        yield not_happened(known, "mock")  # a mock was cut off, and the world saw nothing of it
        return
    if known.status == "running":
        yield Record((ev.StepDoubted(key=known.key, why="announced, without an outcome"),), decided=True)
        return
    if want.reconcile is not None and desk.hot.effects != "recorded" and not desk.hot.mock:
        patience_us = int(_reconcile_after(desk, known, want) * 1_000_000)
        yield from until((known.announced_us or known.started_us) + patience_us)
        answer = yield Ask(known, want)
        if isinstance(answer, Happened):
            result = codec.pack(answer.result, f"the reconciled result of {known.key!r}")
            yield Record((ev.StepSettled(key=known.key, happened=True, result=result, by="reconcile"),), decided=True)
            return
        if isinstance(answer, DidNotHappen):
            yield not_happened(known, "reconcile")
            return
        if isinstance(answer, Unfit):  # it did happen, so it is not repeated, whatever the policy: a person must look
            if (yield Record((ev.StepDoubted(key=known.key, why=answer.why),), decided=True)):
                yield Park("doubt")
            return
    if want.on_doubt == "retry":
        yield not_happened(known, "policy")
    elif want.on_doubt == "fail":
        failure = ev.Failure("InDoubt", f"nobody knows whether {known.key!r} happened", code="in-doubt")
        failed = ev.StepFailed(key=known.key, name=known.name, failure=failure, attempts=known.attempts)
        yield Record((failed,), decided=True)
    else:
        yield Park("doubt")


def _reconcile_after(desk: Desk, known: Step, want: Want) -> float:
    """How long after its announcement a call may still be on its way. A holder that fell silent may be at it yet."""
    if known.last_seq >= desk.hot.silent_seq:
        return want.reconcile_after
    return max(want.reconcile_after, want.timeout or desk.hot.summary.lease_seconds)


def not_happened(known: Step, by: str) -> Record:
    """That a call did not happen, and will not; its unique key is free again."""
    frees = (known.unique,) if known.unique else ()
    return Record((ev.StepSettled(key=known.key, happened=False, by=by),), decided=True, frees=frees)


def _settled_by_parent(known: Step) -> Part:
    """An open call that was inherited: the log it comes from may know by now."""
    theirs: Step | None = yield Recall(known.key)
    if theirs is None or not theirs.done:
        return False
    if theirs.failure is not None:
        failed = ev.StepFailed(key=known.key, name=known.name, failure=theirs.failure, attempts=theirs.attempts)
        yield Record((failed,), decided=True)
    else:
        settled = ev.StepSettled(key=known.key, happened=True, result=theirs.result, by="the parent's log")
        yield Record((settled,), decided=True)
    return True


def until(time_us: int) -> Part:
    """Let time pass. Whatever interrupts it, the time is waited for."""
    while (yield Now()) < time_us:
        yield Sleep(time_us)

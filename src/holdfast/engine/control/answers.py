"""What others do to a task: signals, answers, settlements, cancellation. Each reads the log, decides and appends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from holdfast.core import codec, events as ev
from holdfast.core.errors import InvalidEvent, TaskFinished
from holdfast.core.events import Event
from holdfast.core.state.shapes import Hot
from holdfast.engine.control.change import Decide, Frees


def here(hot: Hot, key: str) -> str:
    """A key as it is in this turn: in a loop `3/pay#1` is what turn 3 calls `pay#1`."""
    own = key.removeprefix(f"{hot.turn}/") if hot.turn else key
    return own if own in hot.steps or own in hot.waits or own in hot.approvals else key


def signal(name: str, value: Any, by: str) -> Decide:
    """Something happened that the task may wait for, now or later. One that waits for other things goes on waiting."""
    packed = codec.pack(value, "the signal's value")

    def decide(hot: Hot) -> Sequence[Event]:
        awaited = any(wait.kind == "signal" and wait.name == name for wait in hot.waits.values())
        other = hot.summary.status == "waiting" and not awaited
        return (ev.SignalReceived(name=name, value=packed, by=by, unawaited=other),)

    return decide


def answer(question: str, value: Any, by: str, why: str) -> Decide:
    """End a wait for a person, named by its key or by its only question."""
    packed = codec.pack(value, "the answer")

    def decide(hot: Hot) -> Sequence[Event]:
        asked = {key: wait for key, wait in hot.waits.items() if wait.kind == "person"}
        named = here(hot, question)
        keys = [named] if named in asked else [key for key, wait in asked.items() if wait.name == question]
        if hot.ended:
            raise TaskFinished(hot.summary.id, hot.summary.status, "app.answer")
        if len(keys) != 1:
            wrong = f"{question!r} may be one of {keys}" if keys else f"nobody asked {question!r}"
            still = f"open questions: {', '.join(sorted(asked)) or 'none'}"
            raise InvalidEvent(wrong, hint=_other_verb(hot, question) or still)
        return (ev.WaitEnded(key=keys[0], value=packed, by=by, why=why),)

    return decide


def _other_verb(hot: Hot, name: str) -> str:
    """What ends the wait that somebody took for a question; empty if there is none of that name."""
    key = here(hot, name)
    for one in hot.approvals.values():
        if one.status == "asked" and (one.key == key or name in (one.tool, one.name)):
            return f"it waits for consent: app.approve(id, {one.key!r}) or app.reject(id, {one.key!r})"
    for wait in hot.waits.values():
        if wait.kind == "signal" and (wait.key == key or wait.name == name):
            return f"it waits for a signal: app.signal(id, {wait.name!r}, value)"
    for step in hot.steps.values():
        if step.status == "doubt" and (step.key == key or name in (step.tool, step.name)):
            return f"it is in doubt: app.settle(id, {step.key!r}, happened=…)"
    return ""


def settle(call: str, happened: bool, result: Any, by: str, why: str) -> Decide:
    """Say whether a call in doubt happened."""
    packed = codec.pack(result, "the result") if happened else UNSET

    def decide(hot: Hot) -> Sequence[Event]:
        key = here(hot, call)
        step = hot.steps.get(key)
        if step is None or step.status != "doubt":
            doubts = [one.key for one in hot.steps.values() if one.status == "doubt"]
            raise InvalidEvent(f"call {call!r} is not in doubt", hint=f"in doubt: {', '.join(doubts) or 'none'}")
        return (ev.StepSettled(key=key, happened=happened, result=packed, by=by, why=why),)

    return decide


def freed_by_settling(call: str, happened: bool) -> Frees:
    """A call that did not happen gives its unique key back."""

    def frees(hot: Hot) -> tuple[str, ...]:
        step = hot.steps.get(here(hot, call))
        return (step.unique,) if step is not None and step.unique and not happened else ()

    return frees


def approval(call: str, given: bool, by: str, why: str, until_us: int | None = None) -> Decide:
    """Consent to a call, or refuse it; the call is named by its key, or by its tool if only one is asked for."""

    def decide(hot: Hot) -> Sequence[Event]:
        key = _asked(hot, call)
        known = hot.approvals.get(key)
        bound = "" if known is None else known.bound
        if given:
            return (ev.ApprovalGiven(key=key, bound=bound, by=by, why=why, until_us=until_us),)
        return (ev.ApprovalRefused(key=key, bound=bound, by=by, why=why),)

    return decide


def _asked(hot: Hot, call: str) -> str:
    if here(hot, call) in hot.approvals:
        return here(hot, call)
    named = [one for one in hot.approvals.values() if call in (one.tool, one.name)]
    open = [one.key for one in named if one.status == "asked"]
    if len(open) > 1:
        raise InvalidEvent(f"{call!r} may be one of {open}", hint="name the call by its key")
    return open[0] if open else named[-1].key if named else call

"""What others do to a task: signals, answers, settlements, cancellation. Each reads the log, decides and appends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET

from holdfast.core import codec, limits
from holdfast.core import events as ev
from holdfast.core.errors import Conflict, InvalidEvent
from holdfast.core.events import Event
from holdfast.core.hot import Hot
from holdfast.engine.log import Log, Logs

Decide = Callable[[Hot], Sequence[Event]]


def change(logs: Logs, id: str, decide: Decide) -> Log:
    """Append what a decision about the present state asks for. If the log moves meanwhile, decide again."""
    log = logs.load(id)
    for _ in range(limits.MAX_APPEND_TRIES):
        events = decide(log.state)
        log.check(events)
        try:
            log.append(events)
        except Conflict:
            log.refresh()
        else:
            return log
    raise Conflict(id, log.head.seq, None)


def signal(name: str, value: Any, by: str) -> Decide:
    """Something happened that the task may wait for, now or later."""
    event = ev.SignalReceived(name=name, value=codec.pack(value, "the signal's value"), by=by)
    return lambda hot: (event,)


def answer(question: str, value: Any, by: str, why: str) -> Decide:
    """End a wait for a person, named by its key or by its only question."""
    packed = codec.pack(value, "the answer")

    def decide(hot: Hot) -> Sequence[Event]:
        asked = {key: wait for key, wait in hot.waits.items() if wait.kind == "person"}
        keys = [key for key, wait in asked.items() if question in (key, wait.name)]
        if not keys:
            raise InvalidEvent(f"nobody asked {question!r}", hint=f"open questions: {sorted(asked)}")
        return (ev.WaitEnded(key=keys[0], value=packed, by=by, why=why),)

    return decide


def settle(call: str, happened: bool, result: Any, by: str, why: str) -> Decide:
    """Say whether a call in doubt happened."""
    packed = codec.pack(result, "the result") if happened else UNSET

    def decide(hot: Hot) -> Sequence[Event]:
        step = hot.steps.get(call)
        if step is None or step.status != "doubt":
            doubts = [one.key for one in hot.steps.values() if one.status == "doubt"]
            raise InvalidEvent(f"call {call!r} is not in doubt", hint=f"in doubt: {doubts}")
        return (ev.StepSettled(key=call, happened=happened, result=packed, by=by, why=why),)

    return decide


def cancel(by: str, why: str) -> Decide:
    """Ask a task to stop. One that nobody holds stops at once."""

    def decide(hot: Hot) -> Sequence[Event]:
        asked = ev.CancelRequested(by=by, why=why)
        open_calls = any(step.open and step.effect == "once" for step in hot.steps.values())
        at_rest = hot.summary.status in ("pending", "waiting") and not open_calls
        return (asked, ev.TaskCancelled(by=by, why=why)) if at_rest else (asked,)

    return decide


def reopen(by: str, why: str) -> Decide:
    """Let a failed task go on: the step that ended it is tried afresh."""

    def decide(hot: Hot) -> Sequence[Event]:
        failed = [step for step in hot.steps.values() if step.status == "failed"]
        ended_it = hot.failure is not None and hot.failure.type == "StepFailed" and failed
        void = max(failed, key=lambda step: step.last_seq).key if ended_it else ""
        return (ev.TaskReopened(void=void, by=by, why=why),)

    return decide

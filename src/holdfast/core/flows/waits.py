"""Waits as flows: for a person, a signal, a time, a child task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from holdfast.core import events as ev, limits
from holdfast.core.events import Fields
from holdfast.core.flows.requests import Append, Branch, Flow, Now, Park, RunChild, Sleep, Subflow, Surroundings, Timer
from holdfast.core.flows.spending import within_budget
from holdfast.core.flows.step import after_others, person_answers, recorded_result
from holdfast.core.flows.stops import earliest, ends_us, in_time, may_begin
from holdfast.core.phases import FEEDBACK, following
from holdfast.core.state.fold import address
from holdfast.core.state.shapes import Wait


def wait(
    surroundings: Surroundings,
    branch: Branch,
    name: str,
    kind: ev.WaitKind,
    prompt: Raw | None,
    seconds: float | None,
    answer: Raw | UnsetType = UNSET,
) -> Flow:
    """Wait for a person, a signal or a time; what ended the wait is its result. `answer` is a question's schema."""
    key = branch.key(name)
    while True:
        looked = surroundings.state.seq
        known = surroundings.state.steps_of(branch.turn).get(key)
        if known is not None and known.done:
            return recorded_result(surroundings.state, branch, known)
        yield from may_begin(surroundings, branch, key)
        waiting = surroundings.state.waits.get(key)
        now_us: int = yield Now()
        if waiting is None:
            wake_us = None if seconds is None else now_us + int(seconds * 1_000_000)
            if kind == "timer" and wake_us is not None:
                yield Timer(wake_us)
            asked = UNSET if prompt is None else prompt
            state = surroundings.state
            phase = following(state.phases, state.phase, FEEDBACK) if kind == "person" else ""
            begun = ev.WaitStarted(
                key=key, wait=kind, name=name, prompt=asked, wake_us=wake_us, phase=phase, answer=answer
            )
            yield Append((begun,), decided=True)
        else:
            yield from _end_or_park(surroundings, waiting, now_us, looked)


def _end_or_park(surroundings: Surroundings, waiting: Wait, now_us: int, looked: int) -> Subflow:
    key, kind, wake_us = waiting.key, waiting.kind, waiting.wake_us
    named = (one for one in surroundings.state.signals if one.name == waiting.name)
    signal = next(named, None) if kind == "signal" else None
    if signal is not None:
        ended = ev.WaitEnded(key=key, value=signal.value, by=signal.by, signal=signal.seq)
        yield Append((ended,), decided=True)
    elif wake_us is not None and now_us >= wake_us:
        yield Append((ev.WaitEnded(key=key, expired=True),), decided=True)
    elif kind == "timer" and wake_us is not None:
        state = surroundings.state
        yield Sleep(earliest(wake_us, state.summary.deadline_us) or wake_us, ends_us=ends_us(state))
    else:
        yield Park(kind, looked, earliest(wake_us, surroundings.state.summary.deadline_us))


def approve(surroundings: Surroundings, branch: Branch, name: str, prompt: Raw, seconds: float | None) -> Flow:
    """Ask a person to agree; true or false is the result, and silence is false."""
    key = branch.key(name)
    while True:
        known = surroundings.state.steps_of(branch.turn).get(key)
        if known is not None and known.done:
            return recorded_result(surroundings.state, branch, known)
        yield from may_begin(surroundings, branch, key)
        looked = surroundings.state.seq
        now_us: int = yield Now()
        asked = surroundings.state.approvals.get(key)
        if asked is None:
            wake_us = None if seconds is None else now_us + int(seconds * 1_000_000)
            request = ev.ApprovalAsked(key=key, name=name, prompt=prompt, wake_us=wake_us)
            yield Append((request,), decided=True)
        else:
            yield from person_answers(surroundings, key, asked.wake_us, now_us, looked)


def spawn(surroundings: Surroundings, branch: Branch, name: str, agent: Any, input: Fields) -> Flow:
    """Give work to a child task and wait for its result. Starting it twice is starting it once: its id is its place."""
    key = branch.key(name)
    while True:
        known = surroundings.state.steps_of(branch.turn).get(key)
        if known is not None and known.done:
            surroundings.claim(key)
            return recorded_result(surroundings.state, branch, known)
        state = surroundings.state
        id = f"{state.summary.id}/{address(state.turn, key) if state.turn else key}"
        if surroundings.replaying:
            surroundings.claim(key)
            if key not in state.waits:
                yield from after_others(surroundings, key, "error")
        if key not in state.waits:
            yield from may_begin(surroundings, branch, key)
            yield from within_budget(surroundings, f"turn of {key}", None)
            yield Append((ev.WaitStarted(key=key, wait="child", name=id),), decided=True)
            continue
        yield RunChild(id, agent, input, key)
        yield from in_time(surroundings)  # what ended the child may end this task, too; and it may still run elsewhere
        looked = surroundings.state.seq
        if key in surroundings.state.waits:
            yield Park("child", looked, surroundings.state.summary.deadline_us)


def checkpoint(surroundings: Surroundings, branch: Branch, label: str) -> Flow:
    """Everything before this is durable when it ends."""
    key = branch.key("checkpoint")
    while True:
        known = surroundings.state.steps_of(branch.turn).get(key)
        if known is not None:
            return recorded_result(surroundings.state, branch, known)
        yield from may_begin(surroundings, branch, key)
        yield Append((ev.CheckpointMade(label=label, key=key),), decided=True)


def together(waits: Sequence[Park], looked: int) -> Park:
    """Choose the wait to show for a task whose branches wait for different things: first one that a person can end."""
    kinds: list[ev.WaitKind] = [one.why for one in waits]
    why = min(kinds, key=lambda kind: _FIRST.index(kind) if kind in _FIRST else len(_FIRST))
    note = next((one.note for one in waits if one.why == why and one.note), "")
    blockers = {(one.why, one.task, one.key): one for wait in waits for one in wait.blockers}
    some = tuple(blockers.values())[: limits.MAX_BLOCKERS]
    return Park(why, looked, earliest(*(one.wake_us for one in waits)), note, some)


_FIRST = ("person", "doubt", "budget", "signal", "child")


def suspended(wait: Park) -> ev.TaskSuspended:
    """The event that suspends a task, after all its branches have looked at the log as it is."""
    return ev.TaskSuspended(why=wait.why, wake_us=wait.wake_us, note=wait.note, looked=True, blockers=wait.blockers)

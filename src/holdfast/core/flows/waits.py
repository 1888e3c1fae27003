"""Waits as flows: for a person, a signal, a time, a child task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Raw

from holdfast.core import events as ev
from holdfast.core.events import Fields
from holdfast.core.flows.requests import Branch, Child, Desk, Flow, Now, Park, Part, Record, Sleep
from holdfast.core.flows.spending import within_budget
from holdfast.core.flows.step import earliest, found, may_begin, person_answers
from holdfast.core.state.fold import address


def wait(desk: Desk, branch: Branch, name: str, kind: ev.WaitKind, prompt: Raw | None, seconds: float | None) -> Flow:
    """Wait for a person, a signal or a time; what ended the wait is its result."""
    key = branch.key(name)
    while True:
        known = desk.hot.steps_of(branch.turn).get(key)
        if known is not None and known.done:
            return found(desk.hot, branch, known)
        yield from may_begin(desk, branch, key)
        waiting = desk.hot.waits.get(key)
        now_us: int = yield Now()
        if waiting is None:
            wake_us = None if seconds is None else now_us + int(seconds * 1_000_000)
            asked = UNSET if prompt is None else prompt
            yield Record((ev.WaitStarted(key=key, wait=kind, name=name, prompt=asked, wake_us=wake_us),), decided=True)
        else:
            yield from _end_or_park(desk, key, waiting.name, kind, waiting.wake_us, now_us)


def _end_or_park(desk: Desk, key: str, name: str, kind: ev.WaitKind, wake_us: int | None, now_us: int) -> Part:
    signal = next((one for one in desk.hot.signals if kind == "signal" and one.name == name), None)
    if signal is not None:
        ended = ev.WaitEnded(key=key, value=signal.value, by=signal.by, signal=signal.seq)
        yield Record((ended,), decided=True)
    elif wake_us is not None and now_us >= wake_us:
        yield Record((ev.WaitEnded(key=key, expired=True),), decided=True)
    elif kind == "timer" and wake_us is not None:
        yield Sleep(earliest(wake_us, desk.hot.summary.deadline_us) or wake_us)
    else:
        yield Park(kind, earliest(wake_us, desk.hot.summary.deadline_us))


def approve(desk: Desk, branch: Branch, name: str, prompt: Raw, seconds: float | None) -> Flow:
    """Ask a person to agree; true or false is the result, and silence is false."""
    key = branch.key(name)
    while True:
        known = desk.hot.steps_of(branch.turn).get(key)
        if known is not None and known.done:
            return found(desk.hot, branch, known)
        yield from may_begin(desk, branch, key)
        now_us: int = yield Now()
        asked = desk.hot.approvals.get(key)
        if asked is None:
            wake_us = None if seconds is None else now_us + int(seconds * 1_000_000)
            request = ev.ApprovalAsked(key=key, name=name, prompt=prompt, wake_us=wake_us)
            yield Record((request,), decided=True)
        else:
            yield from person_answers(desk, key, asked.wake_us, now_us)


def spawn(desk: Desk, branch: Branch, name: str, agent: Any, input: Fields) -> Flow:
    """Give work to a child task and wait for its result. Starting it twice is starting it once: its id is its place."""
    key = branch.key(name)
    while True:
        known = desk.hot.steps_of(branch.turn).get(key)
        if known is not None and known.done:
            return found(desk.hot, branch, known)
        hot = desk.hot
        id = f"{hot.summary.id}/{address(hot.turn, key) if hot.turn else key}"
        if key not in hot.waits:
            yield from may_begin(desk, branch, key)
            yield from within_budget(desk, f"turn of {key}", None)
            yield Record((ev.WaitStarted(key=key, wait="child", name=id),), decided=True)
            continue
        yield Child(id, agent, input, key)
        if key in desk.hot.waits:
            yield Park("child", desk.hot.summary.deadline_us)


def checkpoint(desk: Desk, branch: Branch, label: str) -> Flow:
    """Everything before this is durable when it ends."""
    key = branch.key("checkpoint")
    while True:
        known = desk.hot.steps_of(branch.turn).get(key)
        if known is not None:
            return found(desk.hot, branch, known)
        yield from may_begin(desk, branch, key)
        yield Record((ev.CheckpointMade(label=label, key=key),), decided=True)


def foremost(kinds: Sequence[ev.WaitKind]) -> ev.WaitKind:
    """What a task is said to wait for when its branches wait for different things: what people can end, first."""
    return min(kinds, key=lambda kind: _FOREMOST.index(kind) if kind in _FOREMOST else len(_FOREMOST))


_FOREMOST = ("person", "doubt", "signal", "child")

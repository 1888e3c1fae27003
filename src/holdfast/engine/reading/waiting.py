"""Why a task waits, as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from holdfast.core import codec
from holdfast.core.codec import moment
from holdfast.core.state import budget
from holdfast.core.state.rules import bound_digest
from holdfast.core.state.shapes import State, Step
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading import serving


class Waiting:
    """Why a task waits, until when, and on what: questions, approvals, calls in doubt, signals, times, children."""

    def __init__(self, state: State, logs: Logs, kind: str, why: str = "") -> None:
        summary = state.summary
        self.kind = kind
        self.why = why
        self.wake_at = None if summary.wake_us is None else moment(summary.wake_us)
        self._state = state
        self._logs = logs

    @property
    def on(self) -> list[dict[str, Any]]:
        """What is waited for, each with the key by which it is answered, approved or settled."""
        waits = [
            {"kind": wait.kind, "key": wait.key, "name": wait.name, "prompt": self._value(wait.prompt)}
            for wait in self._state.waits.values()
        ]
        approvals = [
            {"kind": "approval", "key": one.key, "name": one.name, "prompt": self._value(one.prompt)}
            | {"tool": one.tool, "risk": one.risk, "arguments": self._values(one.input), "bound": bound_digest(one)}
            for one in self._state.approvals.values()
            if one.status == "asked"
        ]
        doubts = [
            {"kind": "doubt", "key": step.key, "name": step.name, "prompt": _raised(step)}
            | {"tool": step.tool, "arguments": self._values(step.input)}
            for step in self._state.steps.values()
            if step.status == "doubt"
        ]
        return [*waits, *approvals, *doubts, *self._budget()]

    def _budget(self) -> list[dict[str, Any]]:
        """The limits that are reached, if it is for them that the task waits."""
        state = self._state
        if self.kind != "budget":
            return []
        used = budget.used(state, state.updated_us)
        most = {} if state.budget is None else dict(budget.allowed(state.budget))
        reached = [name for name in most if used[name] >= most[name]]
        own = [
            {"kind": "budget", "key": name, "name": name, "prompt": None, "used": used[name], "of": most[name]}
            for name in reached
        ]
        told = "a task that pays for this one has used up its budget: app.raise_budget(key, …)"
        return own or [{"kind": "budget", "key": one, "name": one, "prompt": told} for one in state.payers]

    def _value(self, raw: Raw) -> Any:
        return codec.unpack(raw, self._logs.blob)

    def _values(self, fields: Mapping[str, Raw]) -> dict[str, Any]:
        return {name: self._value(raw) for name, raw in fields.items()}

    def __repr__(self) -> str:
        return f"<waiting for {self.kind}{': ' + self.why if self.why else ''}>"


def _raised(step: Step) -> str | None:
    return None if step.raised is None else f"it raised {step.raised.type}: {step.raised.message}"


def waiting(state: State, logs: Logs) -> Waiting | None:
    """Why a task does not go on, if so: what the log says, or that it is not time yet, or that nobody serves it."""
    summary = state.summary
    if summary.waiting is not None:
        return Waiting(state, logs, summary.waiting, state.wait_note)
    if summary.status != "pending" or state.block:
        return None
    if summary.wake_us is not None and summary.wake_us > logs.clock.now_us():
        return Waiting(state, logs, "timer", "it is not to begin before then" if not state.begun else "")
    unserved = serving.why_unserved(summary, logs.store)
    return None if unserved is None else Waiting(state, logs, "no_worker", unserved)

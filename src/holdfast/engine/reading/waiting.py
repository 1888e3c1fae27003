"""Why a task waits, as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from holdfast.core import codec
from holdfast.core.codec import moment
from holdfast.core.events import Blocker, StepDoubted
from holdfast.core.state import budget
from holdfast.core.state.rules import bound_digest
from holdfast.core.state.shapes import State, Step
from holdfast.engine.logs.log import decoded
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading import serving, steps


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
        """The waits, each with the key by which it is answered, approved or settled."""
        waits = [
            {"kind": wait.kind, "key": wait.key, "name": wait.name, "prompt": self._value(wait.prompt)}
            | ({"answer": self._value(wait.answer)} if isinstance(wait.answer, Raw) else {})
            for wait in self._state.waits.values()
        ]
        approvals = [
            {"kind": "approval", "key": one.key, "name": one.name, "prompt": self._value(one.prompt)}
            | {"tool": one.tool, "risk": one.risk, "arguments": self._values(one.input), "bound": bound_digest(one)}
            for one in self._state.approvals.values()
            if one.status == "asked"
        ]
        doubts = [self._doubt(step) for step in self._state.steps.values() if step.status == "doubt"]
        return [*waits, *approvals, *doubts, *self._blockers()]

    def to_json(self) -> str:
        """Return it as a line of JSON."""
        return codec.dump({"kind": self.kind, "why": self.why, "wake_at": self.wake_at, "on": self.on}).decode()

    def _doubt(self, step: Step) -> dict[str, Any]:
        told = {"kind": "doubt", "key": step.key, "name": step.name, "prompt": _raised(step)}
        told |= {"tool": step.tool, "risk": step.risk, "arguments": self._values(step.input)}
        again = self._why_again(step)
        return told | {"why": again} if again else told

    def _why_again(self, step: Step) -> str:
        """Return why a settled call is in doubt again, as its last record says; empty if it was never settled."""
        if step.status != "doubt":
            return ""
        rows = self._logs.rows(self._state.summary.id, after=step.last_seq - 1, upto=step.last_seq)
        last = next((decoded(log, row) for log, row in rows), None)
        if not isinstance(last, StepDoubted) or last.failure is not None or last.why.startswith(_PLAIN):
            return ""
        return last.why

    def _blockers(self) -> list[dict[str, Any]]:
        """Return what blocks a suspended task whose own log has nothing to answer."""
        state = self._state
        if state.summary.status != "waiting":
            return []
        if self.kind == "budget" and not state.blockers:
            return self._reached()
        return [told for told in map(self._blocker, state.blockers) if told is not None]

    def _blocker(self, one: Blocker) -> dict[str, Any] | None:
        """Describe a blocker; return nothing if it ends by itself or was settled."""
        is_own = one.task == self._state.summary.id
        if one.why == "budget":
            told = {"kind": "budget", "key": one.key, "name": one.key, "prompt": None, "used": one.used, "of": one.of}
            return told | {"ahead": one.ahead, "owner": "" if is_own else one.task}
        if is_own:
            step = self._state.maybe_done.get(one.key)
            return None if step is None or step.status != "failed" else self._doubt(step)
        if not steps.is_in_doubt(self._logs, one.task, one.key):
            return None
        return {"kind": "blocked", "key": one.key, "name": one.key, "prompt": self.why or None, "owner": one.task}

    def _reached(self) -> list[dict[str, Any]]:
        """The limits that are reached in a task that an older version suspended, which did not say which."""
        state = self._state
        used = budget.used(state, state.updated_us)
        most = {} if state.budget is None else dict(budget.allowed(state.budget))
        own = [
            {"kind": "budget", "key": name, "name": name, "prompt": None, "used": used[name], "of": most[name]}
            for name in most
            if used[name] >= most[name]
        ]
        told = "a task that pays for this one has used up its budget, or an estimate is over a limit"
        others = [{"kind": "budget", "key": "", "name": "", "prompt": told, "owner": one} for one in state.payers]
        return own or others or [{"kind": "budget", "key": "", "name": "", "prompt": told}]

    def _value(self, raw: Raw) -> Any:
        return codec.unpack(raw, self._logs.blob)

    def _values(self, fields: Mapping[str, Raw]) -> dict[str, Any]:
        return {name: self._value(raw) for name, raw in fields.items()}

    def __str__(self) -> str:
        """Return the question or the call, and the command that comes next: for `print(done.waiting)`."""
        from holdfast.engine.reading.inbox import explained

        return explained(self._logs, self._state, self)

    def __repr__(self) -> str:
        return f"<waiting for {self.kind}{': ' + self.why if self.why else ''}>"


_PLAIN = "announced"
"""Begins the reason of a call whose outcome was never recorded: it says no more than that the call is in doubt."""


def _raised(step: Step) -> str | None:
    return None if step.raised is None else f"it raised {step.raised.type}: {step.raised.message}"


def waiting(state: State, logs: Logs) -> Waiting | None:
    """Why a task does not continue: its log's reason, a time that has not come, or that no worker serves it."""
    summary = state.summary
    if summary.waiting is not None:
        return Waiting(state, logs, summary.waiting, state.wait_note)
    if summary.status != "pending" or state.block:
        return None
    if summary.wake_us is not None and summary.wake_us > logs.clock.now_us():
        return Waiting(state, logs, "timer", "it is not to begin before then" if not state.begun else "")
    unserved = serving.why_unserved(summary, logs.store)
    return None if unserved is None else Waiting(state, logs, "no_worker", unserved)

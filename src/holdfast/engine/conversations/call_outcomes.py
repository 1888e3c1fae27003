"""What the log knows of calls whose results are missing in the conversation: nothing done is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from msgspec import Raw

from holdfast.core import codec, limits
from holdfast.core.codec import Summary
from holdfast.core.messages import ToolCall
from holdfast.core.state.fold import evolve
from holdfast.core.state.shapes import State, Step
from holdfast.engine.logs.log import decoded
from holdfast.engine.logs.logs import Logs

_KINDS = ("step_started", "step_completed", "step_failed", "step_settled", "step_doubted", "attempt_failed")


class CallOutcomes:
    """The calls that were made in the turn of a message, up to where the reader sees."""

    def __init__(self, logs: Logs, log: str, value: Callable[[Raw], Any]) -> None:
        self._logs = logs
        self._log = log
        self._value = value
        self._over: dict[int, list[Step]] = {}  # a message's seq → the calls of its turn, when that is over

    def known(self, calls: Mapping[int, list[ToolCall]], upto: int) -> dict[str, str]:
        """Return the outcomes of these calls, by id, as a model reads them, at the seqs of their messages."""
        found: dict[str, str] = {}
        for seq, asked in calls.items():
            made = [(step, self._arguments(step)) for step in self._calls(seq, upto)]
            for call in asked:
                wanted = _wanted(call)
                at = next((at for at, one in enumerate(made) if one[0].tool == call.name and one[1] == wanted), None)
                if at is not None:
                    found[call.id] = self._told(made.pop(at)[0])
        return found

    def _calls(self, seq: int, upto: int) -> list[Step]:
        """The calls after a message, to the end of its turn."""
        if seq in self._over:
            return self._over[seq]
        state = State(summary=Summary(id=self._log, agent=""))
        rows = islice(self._logs.live_rows(self._log, after=seq, upto=upto), limits.LEDGER_EVENTS)
        over = False
        for log, row in rows:
            over = row.kind == "turn_started"
            if over:
                break
            if row.kind in _KINDS:
                evolve(state, log, row.seq, row.at_us, decoded(log, row))
        found = [step for step in state.steps.values() if step.tool and step.done]
        if over:
            self._over[seq] = found
        return found

    def _arguments(self, step: Step) -> dict[str, Any]:
        return {name: self._value(raw) for name, raw in step.input.items()}

    def _told(self, step: Step) -> str:
        if step.status == "failed" and step.failure is not None:
            return f"error: {step.failure.type}: {step.failure.message}"
        value = self._value(step.result)
        return value if isinstance(value, str) else codec.text(value)


def _wanted(call: ToolCall) -> Any:
    try:
        return codec.parse(call.arguments or "{}")
    except (ValueError, RecursionError):
        return None

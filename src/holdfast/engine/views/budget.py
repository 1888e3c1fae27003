"""What a task may use up and what it has, as people read it."""

from __future__ import annotations

from typing import Any

from holdfast.core import codec
from holdfast.core.codec import moment
from holdfast.core.events import Usage
from holdfast.core.state import budget
from holdfast.core.state.shapes import Lost, State


class BudgetState:
    """What a task may use up and what it has, its children included, as of one moment."""

    def __init__(self, state: State, now_us: int) -> None:
        self._state = state
        self.used = budget.used(state, now_us)
        self.limits: dict[str, float] = {} if state.budget is None else dict(budget.allowed(state.budget))
        self.on_exceed = "fail" if state.budget is None else state.budget.on_exceed

    @property
    def left(self) -> dict[str, float]:
        """The rest of each limit, never below 0."""
        return {name: max(0, most - self.used[name]) for name, most in self.limits.items()}

    @property
    def usage(self) -> Usage:
        """The tokens and the money that are on record."""
        spent = self._state.spent
        return Usage(spent.input_tokens, spent.output_tokens, cost=spent.cost)

    @property
    def unknown(self) -> list[dict[str, Any]]:
        """Spend without a record: where, why, and the estimate. It counts as used."""
        return [_lost(one) for one in self._state.spent.lost]

    @property
    def pressure(self) -> bool:
        """True if a limit was, or is, nearly reached."""
        return bool(self._state.pressed)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        spent = {"input_tokens": self.usage.input_tokens, "output_tokens": self.usage.output_tokens}
        known = {"limits": self.limits, "used": self.used, **spent, "on_exceed": self.on_exceed}
        return {**known, "pressure": self.pressure, "unknown": self.unknown}

    def to_json(self) -> str:
        """Return it as a line of JSON."""
        return codec.dump(self.to_dict()).decode()

    def __repr__(self) -> str:
        shown = ", ".join(f"{self.used[name]:,.6g} of {most:,.6g} {name}" for name, most in self.limits.items())
        return f"<budget {shown or 'without limits'}>"


def _lost(one: Lost) -> dict[str, Any]:
    tokens = one.estimate.input_tokens + one.estimate.output_tokens
    return {"step": one.step, "why": one.why, "tokens": tokens, "cost": one.estimate.cost, "at": moment(one.at_us)}

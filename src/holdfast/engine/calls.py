"""The call a tool is in: what it may know of it, and what `reconcile` and `compensate` are given."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class Call:
    """One call of a tool, or one step. `result` is known when it is to be undone, `announced_at` when in doubt."""

    def __init__(self, task_id: str, step: str, attempt: int, **known: Any) -> None:
        self.task_id = task_id
        self.step = step
        self.attempt = attempt
        self.tool: str = known.get("tool", "")
        self.arguments: dict[str, Any] = known.get("arguments", {})
        self.idempotency_key: str = known.get("idempotency_key", "")
        self.time_left: float | None = known.get("time_left")
        self.announced_at: float | None = known.get("announced_at")
        self.result: Any = known.get("result")

    def __repr__(self) -> str:
        return f"<call {self.step} of {self.task_id}>"


_current: ContextVar[Call | None] = ContextVar("holdfast_call", default=None)


def current_call() -> Call | None:
    """The call a tool is running in: its idempotency key, attempt and time left. None outside a step."""
    return _current.get()


@contextmanager
def calling(call: Call) -> Generator[None, None, None]:
    """Mark that a step's function is running."""
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)

"""What templates may name of a task, and filling them in: the same for an agent and for whoever reads a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Raw

from holdfast.core import codec
from holdfast.core.context import template
from holdfast.core.state.shapes import Hot

Value = Callable[[Raw], Any]


def render(text: str, hot: Hot, value: Value, state: Callable[[], Any], also: template.Roots | None = None) -> str:
    """Fill in a template with what a state knows. `also` has further names to begin with."""
    return template.render(text, {**_roots(hot, value, state), **(also or {})})


def _roots(hot: Hot, value: Value, state: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    return {
        "state": lambda: codec.parse(codec.text(dict(state()))),
        "facts": lambda: {key: value(fact.value) for key, fact in hot.facts.items()},
        "notes": lambda: _values(hot.notes, value),
        "input": lambda: _values(hot.input, value),
        "goal": lambda: hot.goal or None,
        "stage": lambda: hot.summary.stage,
        "phase": lambda: hot.phase,
        "turn": lambda: hot.turn,
        "plan": lambda: [step.text for step in hot.plan],
        "questions": lambda: list(hot.questions),
        "id": lambda: hot.summary.id,
    }


def _values(fields: Mapping[str, Raw], value: Value) -> dict[str, Any]:
    return {name: value(raw) for name, raw in fields.items()}

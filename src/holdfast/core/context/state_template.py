"""Templates filled in with what a state knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Raw

from holdfast.core import codec
from holdfast.core.context import template
from holdfast.core.state.shapes import State, goal_of

Value = Callable[[Raw], Any]


def render(text: str, state: State, value: Value, bag: Callable[[], Any], also: template.Roots | None = None) -> str:
    """Fill in a template with what a state knows. `also` has further names to begin with."""
    return template.render(text, {**_roots(state, value, bag), **(also or {})})


def _roots(state: State, value: Value, bag: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    return {
        "state": lambda: codec.parse(codec.text(dict(bag()))),
        "facts": lambda: {key: value(fact.value) for key, fact in state.facts.items()},
        "notes": lambda: _values(state.notes, value),
        "input": lambda: _values(state.input, value),
        "goal": lambda: goal_of(state, value) or None,
        "flags": lambda: list(state.flags),
        "stage": lambda: state.summary.stage,
        "phase": lambda: state.phase,
        "turn": lambda: state.turn,
        "plan": lambda: [step.text for step in state.plan],
        "questions": lambda: list(state.questions),
        "id": lambda: state.summary.id,
    }


def _values(fields: Mapping[str, Raw], value: Value) -> dict[str, Any]:
    return {name: value(raw) for name, raw in fields.items()}

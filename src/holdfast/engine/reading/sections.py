"""The sections of a task's document: what `to_dict` gives, each to be had alone."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import UNSET, Raw

from holdfast.core import codec
from holdfast.core.errors import InvalidValue
from holdfast.core.state.shapes import Spent, State
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading.budgets import BudgetState
from holdfast.engine.reading.steps import StepState, iso

if TYPE_CHECKING:
    from holdfast.engine.reading.task_state import TaskState


class Subject(NamedTuple):
    """A task at one moment: as people read it, and the state that this is a view of."""

    view: TaskState
    state: State
    logs: Logs

    def value(self, raw: Raw) -> Any:
        """Decode a value of the state."""
        return codec.unpack(raw, self.logs.blob)


class StepPage(NamedTuple):
    """Which steps are wanted: those after a key, and how many."""

    after: str | None = None
    limit: int | None = None

    def keys(self, steps: Mapping[str, Any]) -> list[str]:
        """Their keys."""
        after, limit = self
        if limit is not None and limit < 1:
            raise InvalidValue(f"steps_limit={limit} is not a number of steps", hint="give 1 or more, or None for all")
        if after is not None and after not in steps:
            raise InvalidValue(
                f"steps_after={after!r} is not a step of this turn", hint="give the last key you have seen"
            )
        keys = iter(steps)
        if after is not None:
            keys = itertools.islice(itertools.dropwhile(lambda key: key != after, keys), 1, None)
        return [*itertools.islice(keys, limit)]


class Element(NamedTuple):
    """A section with named elements: where the state holds them, and how one is shown."""

    held: Callable[[State], Mapping[str, Any]]
    shown: Callable[[Subject, Any], Any]


def _fact(task: Subject, one: Any) -> dict[str, Any]:
    return {"value": task.value(one.value), "source": one.source}


def _artifact(task: Subject, one: Any) -> dict[str, Any]:
    return {"type": one.type, "summary": one.summary, "bytes": one.bytes, "step": one.step}


def _step(task: Subject, one: Any) -> dict[str, Any]:
    return StepState(one, task.logs, task.state.turn).to_dict()


def _value(task: Subject, one: Any) -> Any:
    return task.value(one)


def _same(task: Subject, one: Any) -> Any:
    return one


ELEMENTS: dict[str, Element] = {
    "facts": Element(operator.attrgetter("facts"), _fact),
    "artifacts": Element(operator.attrgetter("artifacts"), _artifact),
    "notes": Element(operator.attrgetter("notes"), _value),
    "state": Element(operator.attrgetter("bag"), _value),
    "steps": Element(operator.attrgetter("steps"), _step),
    "checkpoints": Element(operator.attrgetter("checkpoints"), _same),
}


def _plan(task: Subject) -> list[dict[str, Any]]:
    return [{"step": step.text, "done": step.done} for step in task.state.plan]


def _budget(task: Subject) -> Any:
    """Shown where there is one, or where anything was spent."""
    state = task.state
    if state.budget is None and state.spent == Spent():
        return UNSET
    return codec.as_json(BudgetState(state, state.updated_us).to_dict())


_OF_VIEW = (
    *("id", "agent", "status", "stage", "phase", "turn", "seq", "result", "user", "thread", "parent"),
    *("goal", "questions", "flags", "decisions", "messages"),
)

_WHOLE: dict[str, Callable[[Subject], Any]] = {
    **{name: operator.attrgetter(f"view.{name}") for name in _OF_VIEW},
    "input": lambda task: dict(task.view.input),
    "failure": lambda task: codec.as_json(task.state.failure),
    "waiting": lambda task: task.state.summary.waiting,
    "plan": _plan,
    "created_at": lambda task: iso(task.state.summary.created_us),
    "updated_at": lambda task: iso(task.state.updated_us),
    "budget": _budget,
    "constraints": lambda task: task.view.constraints or UNSET,
    "mock": lambda task: True if task.state.mock else UNSET,
}
"""Sections without named elements. One that gives UNSET is left out."""

SECTIONS = (
    *(*_OF_VIEW, "input", "failure", "waiting", "plan", "facts", "artifacts", "notes", "state", "steps"),
    *("checkpoints", "created_at", "updated_at", "budget", "constraints", "mock"),
)
"""Every section, in the order of the document."""


def checked_sections(sections: Collection[str] | None) -> list[str]:
    """Return sections in the order of the document; all of them for None. An unknown one is refused."""
    if sections is None:
        return [*SECTIONS]
    unknown = [sections] if isinstance(sections, str) else [one for one in sections if one not in SECTIONS]
    if unknown:
        raise InvalidValue(
            f"{unknown[0]!r} is not a section of a task, or not a list of them",
            hint=f"use some of {', '.join(SECTIONS)}",
        )
    return [name for name in SECTIONS if name in sections]


def document(task: Subject, sections: Collection[str], page: StepPage = StepPage()) -> dict[str, Any]:  # noqa: B008
    """The sections of a task that are asked for, as JSON. Others are not read."""
    found: dict[str, Any] = {}
    for name in sections:
        if name not in ELEMENTS:
            value = _WHOLE[name](task)
            if value is not UNSET:
                found[name] = value
            continue
        held = ELEMENTS[name].held(task.state)
        keys = page.keys(held) if name == "steps" else held
        found[name] = {key: ELEMENTS[name].shown(task, held[key]) for key in keys}
    return found

"""What LangGraph's searches ask of memories: filters of values, and patterns of namespaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from langgraph.store.base import MatchCondition

from holdfast import InvalidValue

_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, wanted: value == wanted,
    "$ne": lambda value, wanted: value != wanted,
    "$gt": lambda value, wanted: value > wanted,
    "$gte": lambda value, wanted: value >= wanted,
    "$lt": lambda value, wanted: value < wanted,
    "$lte": lambda value, wanted: value <= wanted,
}


def fits(value: Mapping[str, Any], filter: Mapping[str, Any]) -> bool:
    """Whether a value has what a filter names: `{"age": {"$gte": 18}, "city": "Oslo"}`."""
    return all(_fits(value.get(name), wanted) for name, wanted in filter.items())


def _fits(value: Any, wanted: Any) -> bool:
    if not isinstance(wanted, Mapping):
        return value == wanted
    asked = cast("Mapping[str, Any]", wanted)
    if not any(name.startswith("$") for name in asked):
        return isinstance(value, Mapping) and fits(cast("Mapping[str, Any]", value), asked)
    return all(_compared(value, operator, operand) for operator, operand in asked.items())


def _compared(value: Any, operator: str, operand: Any) -> bool:
    if operator not in _COMPARED:
        raise InvalidValue(f"the filter has {operator!r}", hint=f"use one of {', '.join(_COMPARED)}")
    try:
        return _COMPARED[operator](value, operand)
    except TypeError:  # what can't be compared, such as None and 5, does not fit
        return False


def matches(condition: MatchCondition, namespace: Sequence[str]) -> bool:
    """Whether a namespace begins, or ends, as a pattern says; `*` stands for any label."""
    pattern = condition.path
    if len(namespace) < len(pattern):
        return False
    part = namespace[: len(pattern)] if condition.match_type == "prefix" else namespace[len(namespace) - len(pattern) :]
    return all(wanted in ("*", label) for wanted, label in zip(pattern, part, strict=True))

"""Mocks: what answers for tools in a task that must touch nothing outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast.core import names
from holdfast.core.errors import InvalidValue
from holdfast.core.flows.requests import StepRequest
from holdfast.core.state.shapes import Undo
from holdfast.engine.definitions.signature import Parameters
from holdfast.engine.definitions.tool import Tool, is_tool, undo_name
from holdfast.engine.execution import step_request
from holdfast.engine.logs.log import Log


def register_mocks(mocks: dict[str, Mapping[str, Any]], id: str, given: Any) -> bool:
    """Return whether a task is a mock, by `mock=`. Mocks given for this task alone are kept for this process."""
    if isinstance(given, bool):
        return given
    if not isinstance(given, Mapping):
        raise InvalidValue(f"mock={given!r} is neither a bool nor a mapping", hint="give True, or {tool: value}")
    mocks[id] = {_name(tool): mock for tool, mock in given.items()}  # pyright: ignore[reportUnknownVariableType]
    return True


def _name(tool: Any) -> str:
    if isinstance(tool, str):
        return names.short_name(tool, "name of a mocked tool")
    if not callable(tool):
        raise InvalidValue(f"{tool!r} is not a tool, and can't be mocked", hint="give tools, or their names")
    return undo_name(tool)


def refuse_real(log: Log, asked: bool) -> None:
    """A real task cannot become a mock one. A mock stays a mock however it is resumed."""
    state = log.state
    if asked and not state.mock and state.effects != "recorded":
        raise InvalidValue(
            f"task {log.name!r} exists, and is not a mock task",
            hint="give the mock task another id, or leave mock= out to resume the real one",
        )


def mocked(request: StepRequest, given: Mapping[str, Any], in_mock_task: bool) -> StepRequest:
    """A call as its task makes it: with the mock that was given for it, and a unique key apart from the real ones."""
    if given and request.tool in given:
        request = replace(request, mock=given[request.tool])
    if in_mock_task and request.unique:
        request = replace(request, unique=names.MOCK_KEYS + request.unique)
    return request


def stand_in(request: StepRequest) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """Return the function that replaces a tool, and the parameters of it that Holdfast fills in."""
    mock = request.mock
    if isinstance(mock, Tool):
        mock = mock.fn
    return (mock, Parameters(mock, name=request.name).given) if callable(mock) else (_giving(mock), ())


def undo_request(
    found: Any, one: Undo, task_id: str, value: Callable[[Raw], Any], given: Mapping[str, Any]
) -> StepRequest:
    """A step that undoes nothing outside: the mock of what would, or nothing but its record."""
    mock = given.get(one.name, found.mock if is_tool(found) else UNSET)
    instead = mock if callable(mock) else _giving(None if mock is UNSET else mock)
    undo: Any = found if is_tool(found) else instead
    return step_request.undo_request(undo, one, task_id, value, _named(instead))


def _giving(value: Any) -> Callable[..., Any]:
    def give(*args: Any, **kwargs: Any) -> Any:
        return value

    return give


def _named(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with a name, which a lambda lacks."""

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return stand_in

"""effect: what a function tool does to the world, and durable calls of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, cast

from agents import FunctionTool
from agents.tool import maybe_invoke_function_tool_failure_error_function, set_function_tool_failure_error_function
from agents.tool_context import ToolContext
from pydantic import BaseModel
from pydantic_core import from_json

from holdfast import InvalidValue, StepFailed, Tool, current_call
from holdfast.adapters.run import FrameworkRun
from holdfast.core.events import Effect

RUN: ContextVar[FrameworkRun | None] = ContextVar("holdfast.adapters.openai_agents", default=None)
"""The task that an agent works in here, if it works in one."""

_DECLARED = "__holdfast__"


def effect(
    effect: Effect, *, risk: str = "", unique: str = "", **options: Any
) -> Callable[[FunctionTool], FunctionTool]:
    """Declare what a function tool does to the world.

        @effect("once", risk="money")
        @function_tool
        def charge(euros: int) -> str: ...

    The options are those of `holdfast.Tool`: `risk`, `unique`, `reconcile`, `on_doubt`, `definite`, `retry`, …
    """
    declared: dict[str, Any] = {"effect": effect, "risk": risk, "unique": unique, **options}

    def declare(tool: FunctionTool) -> FunctionTool:
        if not isinstance(tool, FunctionTool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{tool!r} is not a function tool", hint="write @effect(…) above @function_tool")
        _tool(tool.name, declared, _nothing)
        made = copy.copy(tool)
        setattr(made, _DECLARED, declared)
        return made

    return declare


def durable_tool(tool: FunctionTool, effects: Mapping[str, Effect]) -> FunctionTool:
    """Return a copy of a tool whose calls are durable while it is used inside of a task.

    Its time limit becomes that of the call. The SDK would tell the model that the tool took too long, and the model
    would call it again; but it may have had its effect.
    """
    declared: dict[str, Any] = {"timeout": tool.timeout_seconds, "effect": effects.get(tool.name)}
    declared |= getattr(tool, _DECLARED, {})
    _tool(tool.name, declared, _nothing)
    raising = set_function_tool_failure_error_function(copy.copy(tool), None)  # what it raises is seen here first

    async def invoke(ctx: ToolContext[Any], input: str) -> Any:
        run = RUN.get()
        if run is None or current_call() is not None:
            return await tool.on_invoke_tool(ctx, input)

        async def call(**arguments: Any) -> Any:
            return _recorded(await raising.on_invoke_tool(ctx, input))

        try:
            key = run.key("call", ctx.tool_call_id)
            return await run.task.call(_tool(tool.name, declared, call), _arguments(input), key=key)
        except StepFailed as failed:  # the same failure each time, so the model reads the same text each time
            text = await maybe_invoke_function_tool_failure_error_function(
                function_tool=tool, context=ctx, error=failed
            )
            if text is None:
                raise
            return text

    made = copy.copy(tool)
    made.on_invoke_tool = invoke
    made.timeout_seconds = None
    return made


def is_declared(tool: FunctionTool) -> bool:
    """Whether a tool has an `@effect`."""
    return hasattr(tool, _DECLARED)


def _tool(name: str, declared: Mapping[str, Any], fn: Callable[..., Any]) -> Tool[..., Any]:
    return Tool(fn, name=name, schema={"type": "object"}, **declared)


def _nothing(**arguments: Any) -> None:
    """Stands for a tool while its declaration is checked."""


def _arguments(input: str) -> dict[str, Any]:
    """The model's arguments as they are recorded; what is not an object is refused by the tool itself."""
    try:
        found: Any = from_json(input) if input else {}
    except ValueError:
        return {"input": input}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {"input": found}


def _recorded(output: Any) -> Any:
    """A tool's output as it is recorded. The SDK takes the dict of a structured output as well as the object."""
    match output:
        case BaseModel():
            return output.model_dump(mode="json", exclude_none=True)
        case list():
            return [_recorded(one) for one in cast("list[Any]", output)]
        case str() | int() | float() | bool() | None | dict():
            return cast("Any", output)
        case _:
            return str(output)

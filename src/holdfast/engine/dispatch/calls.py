"""Durable calls outside of any task. Each is a small task of its own, so that it is found again by its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from holdfast.core import names
from holdfast.core.errors import InvalidValue, StepChanged, Suspended, TaskFinished
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.definitions.tool import Tool, is_tool
from holdfast.engine.dispatch import block
from holdfast.engine.dispatch.begin import TaskOptions
from holdfast.engine.dispatch.dispatcher import Assignment, Dispatcher


class DurableCall:
    """One call of a tool, by its key."""

    def __init__(
        self, dispatcher: Dispatcher, tool: Tool, arguments: Any, named: Mapping[str, Any], *, key: str, by: str
    ) -> None:
        self._dispatcher = dispatcher
        self._tool = _a_tool(tool)
        self._arguments = _arguments(tool, arguments, named)
        self._id = names.task_log(f"call.{tool.name}.{names.given_key(key)}")
        self._first = dispatcher.first_events(self._id, tool.name, None, TaskOptions(by=by, block=True))

    def make(self) -> Any:
        """Make the call, or return the recorded result."""
        try:
            with block.block(self._dispatcher, self._id, *self._first) as task:
                result = task.call(self._tool, self._arguments)
                task.finish(result)
            return result
        except StepChanged as error:
            error.hint = "one key stands for one call: use another key for other arguments"
            raise
        except Suspended:
            raise self._waits() from None

    async def make_async(self) -> Any:
        """`make` on the running event loop: an async tool runs on it, a def tool in a thread of its own."""
        import asyncio

        log = await asyncio.to_thread(block.entered, self._dispatcher, self._id, *self._first)
        if log.state.ended:
            return await asyncio.to_thread(self.make)  # which only replays

        raised: list[BaseException] = []
        results: list[Any] = []

        async def body(task: Any) -> Any:
            try:
                results.append(await task.call(self._tool, self._arguments))
            except Exception as error:  # whatever the tool raises is raised to the caller, as it is
                raised.append(error)
                raise
            return results[-1]

        assignment = Assignment(self._id, Agent(body, name=self._tool.name), lambda: (log, False))
        done = await self._dispatcher.work_async(assignment)
        if raised:
            raise raised[-1]
        if done.state.summary.status == "waiting":
            raise self._waits()
        if not results:
            raise TaskFinished(self._id, done.state.summary.status, "app.call")
        return results[-1]

    def _waits(self) -> Suspended:
        waiting = self._dispatcher.logs.load(self._id).state.summary.waiting
        return Suspended(
            f"the call {self._id!r} waits ({waiting}) and has no result yet. See app.inbox({self._id!r}), or: "
            "holdfast inbox. When it is settled or approved, make the same call again"
        )


def _a_tool(tool: Tool) -> Tool:
    if not is_tool(tool):
        raise InvalidValue(f"{tool!r} is not a tool", hint="declare it with @tool")
    return tool


def _arguments(tool: Tool, arguments: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, given as one mapping or by name."""
    if arguments is not None and not isinstance(arguments, Mapping):
        raise InvalidValue(f"{tool!r} was given {arguments!r} without a name", hint="name each argument: n=5")
    if arguments is not None and named:
        raise InvalidValue(f"{tool!r} was given arguments in two ways", hint="give one mapping, or name each of them")
    return dict(cast("Mapping[str, Any]", arguments or named))

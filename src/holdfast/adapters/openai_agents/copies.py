"""Copies of agents whose models and tools are recorded. The user's own agents are never changed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from types import CellType, FunctionType
from typing import Any, cast

from agents import Agent, AgentUpdatedStreamEvent, FunctionTool, Handoff, Model, RunContextWrapper, StreamEvent, Tool
from agents.tool_context import ToolContext

from holdfast import InvalidValue, current_call
from holdfast.adapters.openai_agents.effects import RUN, durable_tool, is_declared
from holdfast.adapters.openai_agents.model import RecordedModel
from holdfast.core.events import Effect


class AgentCopies:
    """Makes copies of agents, each agent once, since they can hand off in circles."""

    def __init__(self, effects: Mapping[str, Effect]) -> None:
        self._effects = effects
        self._made: dict[int, Agent[Any]] = {}
        self._originals: dict[int, Agent[Any]] = {}

    def of(self, agent: Agent[Any]) -> Agent[Any]:
        """Return the copy of an agent."""
        if id(agent) in self._made:
            return self._made[id(agent)]
        model = RecordedModel(agent.model) if isinstance(agent.model, Model) else agent.model
        made = self._made[id(agent)] = agent.clone(model=model, tools=[], handoffs=[])
        self._originals[id(made)] = agent
        made.tools = [self._tool(one) for one in agent.tools]
        made.handoffs = [self._handoff(one) for one in agent.handoffs]
        if agent.mcp_servers:
            fetch = made.get_mcp_tools

            async def recorded(run_context: RunContextWrapper[Any]) -> list[Tool]:
                return [self._tool(one) for one in await fetch(run_context)]

            # The SDK asks servers for their tools in each turn; these are wrapped when they come.
            made.get_mcp_tools = recorded
        return made

    def _tool(self, tool: Tool) -> Tool:
        """A tool whose calls are recorded. One that runs an agent is not a call: what the agent does is recorded."""
        if not isinstance(tool, FunctionTool):
            return tool
        inner = getattr(tool, "_agent_instance", None)
        if not isinstance(inner, Agent):
            return durable_tool(tool, self._effects)
        if is_declared(tool) or tool.name in self._effects:
            raise InvalidValue(
                f"tool {tool.name!r} runs an agent, and has no effect of its own",
                hint=f"declare the effects of the tools of agent {inner.name!r}",
            )
        return _agent_tool(tool, cast("Agent[Any]", inner), self.of(cast("Agent[Any]", inner)))

    def _handoff(self, one: Agent[Any] | Handoff[Any, Any]) -> Agent[Any] | Handoff[Any, Any]:
        if isinstance(one, Agent):
            return self.of(one)
        made = copy.copy(one)

        async def invoke(context: Any, arguments: str) -> Any:
            target = await one.on_invoke_handoff(context, arguments)
            return self.of(cast("Agent[Any]", target)) if isinstance(target, Agent) else target

        made.on_invoke_handoff = invoke
        return made

    def shown(self, event: StreamEvent) -> StreamEvent:
        """Return an event as a reader expects it: with the user's own agent, where it names one that takes over."""
        if isinstance(event, AgentUpdatedStreamEvent):
            return replace(event, new_agent=self._originals.get(id(event.new_agent), event.new_agent))
        return event


def _agent_tool(tool: FunctionTool, agent: Agent[Any], made: Agent[Any]) -> FunctionTool:
    """A copy of a tool that runs the copy of an agent, as a run inside of the call."""
    bound = _bound(tool, agent, made)

    async def invoke(ctx: ToolContext[Any], input: str) -> Any:
        run = RUN.get()
        if run is None or current_call() is not None:
            return await tool.on_invoke_tool(ctx, input)
        token = RUN.set(run.inside(ctx.tool_call_id))
        try:
            return await bound.on_invoke_tool(ctx, input)
        finally:
            RUN.reset(token)

    copied = copy.copy(tool)
    copied.on_invoke_tool = invoke
    copied._agent_instance = made  # pyright: ignore[reportPrivateUsage]
    return copied


def _bound(tool: FunctionTool, agent: Agent[Any], made: Agent[Any]) -> FunctionTool:
    """A copy of a tool whose function has another agent.

    The SDK has no way to ask for it: `Agent.as_tool` makes a function that holds the agent. So the function is made
    anew, and the agent it holds is exchanged.
    """
    bound = copy.copy(tool)
    invoker = copy.copy(bound.on_invoke_tool)
    function: Any = getattr(invoker, "_invoke_tool_impl", None)
    held = [one.cell_contents is agent for one in getattr(function, "__closure__", None) or ()]
    if held.count(True) != 1:
        raise InvalidValue(
            f"tool {tool.name!r} runs an agent in a way that this version of the SDK does not let us record",
            hint="hand over to the agent instead, or call it in a function tool",
        )
    cells = (CellType(made) if is_agent else one for one, is_agent in zip(function.__closure__, held, strict=True))
    remade = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, tuple(cells)
    )
    remade.__kwdefaults__ = function.__kwdefaults__
    remade.__dict__.update(function.__dict__)
    cast("Any", invoker)._invoke_tool_impl = remade
    bound.on_invoke_tool = invoker
    return bound

"""Tools of an MCP server, by holdfast.mcp.tools, in agents of two other frameworks: called once, with their key."""

import asyncio

import mcp_types as types
import pytest
from agents import Agent, FunctionTool
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from mcp import Client
from mcp.server import Server
from pydantic_core import from_json

from holdfast.adapters.langgraph import HoldfastSaver, once_calls
from holdfast.adapters.openai_agents import DurableRunner
from holdfast.mcp import tools
from holdfast.mcp.client import KEY_META
from tests.adapters.langgraph.shop import CONFIG, Model
from tests.adapters.openai_agents.test_runner import Replies

STORES = ("memory", "sqlite")
SCHEMA = {"type": "object", "properties": {"euros": {"type": "integer"}}, "required": ["euros"]}


class Bank:
    """An MCP server elsewhere with one tool, and what was called there, with which key."""

    def __init__(self, answer="charged"):
        self.called, self.answer = [], answer
        self.server = Server("bank", on_list_tools=self.list, on_call_tool=self.call)

    async def list(self, ctx, params):
        return types.ListToolsResult(tools=[types.Tool(name="charge", description="Charge.", input_schema=SCHEMA)])

    async def call(self, ctx, params):
        self.called.append((params.arguments["euros"], (ctx.meta or {}).get(KEY_META)))
        content = [types.TextContent(type="text", text=self.answer)]
        return types.CallToolResult(content=content, is_error=self.answer == "lost")


def for_langchain(tool):
    return StructuredTool.from_function(
        coroutine=tool.fn, name=tool.name, description=tool.__doc__, args_schema=tool.input_schema
    )


def for_openai(tool):
    async def invoke(context, arguments):
        return await tool.fn(**from_json(arguments))

    return FunctionTool(tool.name, tool.__doc__, tool.input_schema, invoke, strict_json_schema=False)


class ChargesOnce(Model):
    """A model of LangChain that charges, and is done."""

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        calls = [{"name": "charge", "args": {"euros": 5}, "id": "call_1"}] if len(messages) == 1 else []
        message = AIMessage("" if calls else "done", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


async def with_langgraph(app, bank, tmp_path, effects):
    async with Client(bank.server) as session:
        found = await tools(session, effects=effects)
        graph = create_agent(
            ChargesOnce(log=tmp_path),
            [for_langchain(one) for one in found],
            middleware=[once_calls(app, effects={one.name: one.effect for one in found})],
            checkpointer=HoldfastSaver(app),
        )
        state = await graph.ainvoke({"messages": [("user", "one book")]}, CONFIG)
        if "__interrupt__" in state:
            return state["__interrupt__"][0].value["kind"]
        before = [one async for one in graph.aget_state_history(CONFIG) if one.next == ("tools",)]
        again = await graph.ainvoke(None, before[0].config)  # the node with the call, once more
        return again["messages"][-2].content


async def with_openai_agents(app, bank, tmp_path, effects):
    async with Client(bank.server) as session:
        found = await tools(session, effects=effects)
        for _ in range(2):
            shop = Agent(
                name="shop",
                model=Replies([("charge", {"euros": 5})], ConnectionError("away"), "done"),
                tools=[for_openai(one) for one in found],
            )
            runner = DurableRunner(shop, app, effects={one.name: one.effect for one in found})
            done = await runner.run("one book", id="order-7")
            if done.status == "waiting":
                return done.waiting.kind
            done = await runner.resume("order-7")
        return done.steps["call:call_1_0"].result


@pytest.mark.parametrize("framework", [with_langgraph, with_openai_agents])
def test_a_tool_of_an_mcp_server_is_called_once(app, tmp_path, framework):
    bank = Bank()
    assert asyncio.run(framework(app, bank, tmp_path, {"charge": "once"})) == "charged"
    ((euros, key),) = bank.called
    assert euros == 5 and key and ":charge:" in key


@pytest.mark.parametrize("framework", [with_langgraph, with_openai_agents])
def test_an_error_of_the_server_leaves_the_call_in_doubt(app, tmp_path, framework):
    bank = Bank(answer="lost")
    assert asyncio.run(framework(app, bank, tmp_path, {"charge": "once"})) == "doubt"
    assert len(bank.called) == 1 and [item.kind for item in app.inbox()] == ["doubt"]

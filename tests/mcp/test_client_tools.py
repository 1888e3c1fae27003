"""tools(): the tools of another MCP server, called durably from agents."""

import asyncio

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server import Server

from holdfast import AsyncTask, InvalidValue, agent
from holdfast.mcp import tools
from holdfast.mcp.client import KEY_META
from tests.engine.both import Crash

STORES = ("memory", "sqlite", "postgres")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


class Elsewhere:
    """An MCP server that somebody else runs, and what was called there."""

    def __init__(self):
        self.called = []
        self.server = Server("elsewhere", on_list_tools=self.list, on_call_tool=self.call)

    async def list(self, ctx, params):
        page = params.cursor if params and params.cursor else "look"
        hints = types.ToolAnnotations(read_only_hint=page == "look", idempotent_hint=page == "put")
        following = {"look": "put", "put": "pay"}.get(page)
        found = types.Tool(name=page, description=f"{page}!", input_schema=SCHEMA, annotations=hints)
        return types.ListToolsResult(tools=[found], next_cursor=following)

    async def call(self, ctx, params):
        number = params.arguments["n"]
        self.called.append((params.name, number, (ctx.meta or {}).get(KEY_META)))
        if number < 0:
            raise MCPError(types.INVALID_PARAMS, "n is negative")
        content = [types.TextContent(type="text", text=f"{params.name} {number}")]
        structured = {"n": number} if params.name == "look" else None
        return types.CallToolResult(content=content, structured_content=structured, is_error=number > 99)


def with_tools(check, **options):
    async def run():
        elsewhere = Elsewhere()
        async with Client(elsewhere.server) as client:
            found = {one.name: one for one in await tools(client, **options)}
            return await check(found, elsewhere)

    return asyncio.run(run())


def test_hints_are_believed_only_if_they_are_trusted():
    async def effects(found, elsewhere):
        return {name: one.effect for name, one in found.items()}

    assert with_tools(effects) == {"look": "once", "put": "once", "pay": "once"}
    assert with_tools(effects, trust_hints=True) == {"look": "read", "put": "idempotent", "pay": "once"}
    named = with_tools(effects, effects={"pay": "idempotent", "look": "once"}, trust_hints=True)
    assert named == {"look": "once", "put": "idempotent", "pay": "idempotent"}


def test_effects_that_make_no_sense_are_refused():
    async def check():
        async with Client(Elsewhere().server) as client:
            with pytest.raises(InvalidValue, match="names 'nope'"):
                await tools(client, effects={"nope": "read"})
            with pytest.raises(InvalidValue, match="'odd'"):
                await tools(client, effects={"pay": "odd"})

    asyncio.run(check())


def test_a_call_is_made_once_however_often_the_agent_crashes(app):
    async def check(found, elsewhere):
        crashes = [1, 1]

        @agent
        async def buyer(task: AsyncTask) -> list:
            first = await task.call(found["pay"], n=5)
            looked = await task.call(found["look"], n=7)
            if crashes:
                crashes.pop()
                raise Crash
            return [first, looked]

        for _ in range(2):
            with pytest.raises(Crash):
                await app.arun(buyer, id="t")
        done = await app.arun(buyer, id="t")
        assert done.result == ["pay 5", {"n": 7}]
        assert [one[:2] for one in elsewhere.called] == [("pay", 5), ("look", 7)]
        assert elsewhere.called[0][2] == done.steps["pay#1"].idempotency_key
        await app.aio.close()

    with_tools(check)


def test_an_error_that_means_that_nothing_was_called_is_definite_and_another_is_not(app):
    async def check(found, elsewhere):
        @agent
        async def buyer(task: AsyncTask, n) -> str:
            return await task.call(found["pay"], n=n)

        refused = await app.arun(buyer, {"n": -1}, id="refused")
        assert refused.status == "failed" and "n is negative" in refused.failure.message
        broken = await app.arun(buyer, {"n": 100}, id="broken")
        assert broken.status == "failed" and "pay 100" in broken.failure.message
        odd = await app.arun(buyer, {"n": "five"}, id="odd")
        assert odd.status == "failed" and [one[1] for one in elsewhere.called] == [-1, 100]
        await app.aio.close()

    with_tools(check, effects={})


def test_a_worker_on_another_event_loop_calls_through_the_session(app):
    async def check(found, elsewhere):
        @agent
        async def buyer(task: AsyncTask) -> str:
            return await task.call(found["pay"], n=5)

        done = await asyncio.to_thread(lambda: asyncio.run(app.arun(buyer, id="t")))
        assert done.result == "pay 5" and len(elsewhere.called) == 1
        await app.aio.close()

    with_tools(check)

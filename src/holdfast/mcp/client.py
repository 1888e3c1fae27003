"""tools(): the tools of any MCP server as Holdfast tools, so that calling them is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

import mcp_types as types
from mcp import MCPError

from holdfast import NotDone, Tool, current_call
from holdfast.core.errors import InvalidValue
from holdfast.core.events import Effect

MOST_PAGES = 100
"""How many pages of tools a server may have."""

KEY_META = "holdfast/idempotency-key"
"""Where a call's key is sent, for servers that know it."""

_DEFINITE = (types.INVALID_PARAMS, types.METHOD_NOT_FOUND, types.INVALID_REQUEST, types.PARSE_ERROR)
"""Errors of the protocol that mean that the tool was not called."""


class Session(Protocol):
    """A connection to an MCP server: the SDK's `Client` or `ClientSession`."""

    list_tools: Any
    call_tool: Any


async def tools(
    session: Session, *, effects: Mapping[str, Effect] | None = None, trust_hints: bool = False
) -> list[Tool[..., Any]]:
    """Return the tools of an MCP server as Holdfast tools: in an agent, `await task.call(tool, …)` is durable.

    `effects` says what each does to the world, by name. A tool that is not named counts as `once`: a server's hints
    prove nothing. With `trust_hints`, a tool that says it only reads is `read`, one that says it can be repeated is
    `idempotent`. The session must stay open, and the event loop it belongs to must run.
    """
    named: Mapping[str, Effect] = effects or {}
    found = await _listed(session)
    unknown = sorted(set(named) - {one.name for one in found})
    if unknown:
        known = ", ".join(one.name for one in found) or "none"
        raise InvalidValue(f"effects= names {unknown[0]!r}, which the server does not have", hint=f"it has {known}")
    loop = asyncio.get_running_loop()
    return [_tool(session, loop, one, named.get(one.name) or _hinted(one, trust_hints)) for one in found]


async def _listed(session: Session) -> list[types.Tool]:
    found: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page: types.ListToolsResult = await session.list_tools(**({} if cursor is None else {"cursor": cursor}))
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return found
    raise InvalidValue(f"the server has more than {MOST_PAGES} pages of tools", hint="is its cursor moving?")


def _hinted(tool: types.Tool, trust_hints: bool) -> Effect | None:
    hints = tool.annotations
    if not trust_hints or hints is None:
        return None
    return "read" if hints.read_only_hint else "idempotent" if hints.idempotent_hint else None


def _tool(session: Session, loop: asyncio.AbstractEventLoop, one: types.Tool, effect: Effect | None) -> Tool[..., Any]:
    async def send(arguments: dict[str, Any], key: str) -> Any:
        try:
            return _value(one.name, await session.call_tool(one.name, arguments, meta={KEY_META: key} if key else None))
        except MCPError as error:
            if error.error.code in _DEFINITE:
                raise NotDone(f"{one.name}: {error.error.message}") from None
            raise

    async def call(**arguments: Any) -> Any:
        about = current_call()
        sending = send(arguments, about.idempotency_key if about is not None else "")
        if asyncio.get_running_loop() is loop:
            return await sending
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(sending, loop))  # a worker's own loop

    call.__doc__ = one.description
    return Tool(call, name=one.name, schema=one.input_schema, effect=effect)


def _value(name: str, result: types.CallToolResult) -> Any:
    """Return a tool's structured result, else its text, else its content."""
    texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
    if result.is_error:
        raise RuntimeError(f"{name}: {' '.join(texts) or 'the tool failed'}")
    if result.structured_content is not None:
        return result.structured_content
    if len(texts) == len(result.content):
        return "\n".join(texts)
    return [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]

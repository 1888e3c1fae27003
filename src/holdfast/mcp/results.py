"""Results and errors as the protocol has them, and what is known of the client that asks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext

from holdfast.core.errors import HoldfastError, StoreError
from holdfast.engine.reading.values import parse
from holdfast.mcp.reading import documents, resources

Context = ServerRequestContext[Any, Any]
T = TypeVar("T")

logger = logging.getLogger(__name__)


def client_of(ctx: Context) -> str:
    """Return the name a client gives itself."""
    given = ctx.session.client_params
    return given.client_info.name if given is not None else ""


def shows_forms(ctx: Context) -> bool:
    """Return whether a client says that it can show forms to its person."""
    declared = ctx.session.client_capabilities
    return declared is not None and declared.elicitation is not None


def tool_result(document: dict[str, Any], *, more: str = "", is_error: bool = False) -> types.CallToolResult:
    """Return a document as a tool's result: fenced for models, and as data for programs."""
    shown = documents.capped(document, more)
    fenced = f"{documents.NOTICE}\n```json\n{shown}\n```"
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=fenced)],
        structured_content=parse(shown),
        is_error=is_error,
        _meta=dict(documents.META),
    )


def tool_error(text: str, code: str) -> types.CallToolResult:
    """Return a tool's refusal, with the reason that a model reads."""
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content={"code": code}, is_error=True
    )


async def asked(function: Callable[..., T], *arguments: Any, **about: str) -> T:
    """Call a function in a thread; what it refuses is an error of the protocol with its reason and what it is about."""
    try:
        return await asyncio.to_thread(function, *arguments)
    except HoldfastError as error:
        _refuse(error, about)
    except Exception:  # a bug of ours: the client gets an error without a traceback, and the server lives on
        logger.exception("a request failed")
        raise MCPError(types.INTERNAL_ERROR, "The request failed. The server's stderr has the reason.") from None


def _refuse(error: HoldfastError, about: dict[str, str]) -> NoReturn:
    code = types.INTERNAL_ERROR if isinstance(error, StoreError) else types.INVALID_PARAMS
    raise MCPError(code, resources.refusal(error), {"code": error.code, **about}) from None

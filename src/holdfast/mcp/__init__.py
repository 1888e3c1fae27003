"""Tasks over the Model Context Protocol: read, change and continue them from any MCP client.

server(app) serves a store to MCP clients; tools(session) makes an MCP server's tools durable.
"""

from __future__ import annotations

from importlib.util import find_spec

from holdfast.core.errors import MissingExtra

if find_spec("mcp") is None:
    raise MissingExtra("the mcp SDK is not installed", hint="from a checkout: pip install 'path/to/holdfast[mcp]'")

from holdfast.mcp.client import tools
from holdfast.mcp.service import server

__all__ = ["server", "tools"]

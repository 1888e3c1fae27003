"""How clients reach a server: over stdin and stdout of this process, or over HTTP."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import uvicorn
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings

from holdfast.core.errors import InvalidValue

PATH = "/mcp"
MOST_BODY_BYTES = 4 * 1024 * 1024
"""The largest request that is read."""

TOKEN_LENGTH = 16
"""The least a token must have."""

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Message, Receive, Send], Awaitable[None]]


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client on stdin and stdout, until it closes stdin. What else prints goes to stderr."""
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def http_app(server: Server[Any], *, host: str, token: str = "", allowed: Sequence[str] = ()) -> Asgi:
    """An ASGI app that serves clients at /mcp. Host and Origin are always checked; `allowed` are further names.

    Off loopback a token is required: every request must carry it as `Authorization: Bearer`.
    """
    if token and len(token) < TOKEN_LENGTH:
        raise InvalidValue(
            f"the token has {len(token)} characters", hint=f"use {TOKEN_LENGTH} or more: openssl rand -hex 24"
        )
    if not token and not is_loopback(host):
        raise InvalidValue(
            f"{host} can be reached from other machines, and there is no token",
            hint="name the variable that has one: --token-env VAR; or serve on 127.0.0.1",
        )
    names = [*_LOOPBACK, *((_bracketed(host),) if host not in ("0.0.0.0", "::") else ()), *allowed]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[*names, *(f"{name}:*" for name in names)],
        allowed_origins=[
            f"{scheme}://{name}{port}" for scheme in ("http", "https") for name in names for port in ("", ":*")
        ],
    )
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        transport_security=security,
        host=host,
        max_request_body_size=MOST_BODY_BYTES,
    )
    return _with_token(app, token) if token else app


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only. A name counts as one only if it is localhost."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _with_token(app: Asgi, token: str) -> Asgi:
    """Refuse every request without the token, whatever its path and method."""
    expected = f"Bearer {token}".encode()

    async def checked(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
            return
        given = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        if scope["type"] == "http" and len(given) == 1 and hmac.compare_digest(given[0], expected):
            await app(scope, receive, send)
            return
        headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b"A bearer token is required."})

    return checked


def bound_socket(host: str, port: int) -> socket.socket:
    """Listen on an address; port 0 is any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), port))
    except (OSError, OverflowError) as error:
        raise InvalidValue(f"can't listen on {host}:{port}: {error}", hint="use another port, or 0 for any") from None
    listening.listen(128)
    return listening


async def serve_http(app: Asgi, listening: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C. Open streams are closed then."""
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2, lifespan="on", access_log=False)
    await uvicorn.Server(config).serve(sockets=[listening])

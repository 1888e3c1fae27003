"""Subscriptions of clients, old and new: `resources/subscribe` and `subscriptions/listen`, over one watcher."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated

from holdfast.mcp.changes import LISTED, ChangeFeed
from holdfast.mcp.reading.scope import Scope
from holdfast.mcp.task_handles import require_declared

MOST = 10_000
"""How many URIs one connection may subscribe to."""

Context = ServerRequestContext[Any, Any]
logger = logging.getLogger(__name__)


class Subscriptions:
    """Who wants to know of which URI."""

    def __init__(self, scope: Scope) -> None:
        self._changes = ChangeFeed(scope)
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus, max_subscriptions=MOST)
        self._sessions: dict[str, dict[int, Connection]] = {}
        self._servers = 0
        self._looking: asyncio.Future[None] | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Watch while a server runs. Several connections of one process share the watcher."""
        self._servers += 1
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._changes.run(self._tell))
        try:
            yield
        finally:
            self._servers -= 1
            if self._servers == 0:
                looking, self._looking = self._looking, None
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)

    async def listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve one stream of a modern client. A URI that is not served is accepted and never changes."""
        wanted = params.notifications
        if "taskIds" in (wanted.model_extra or {}):
            require_declared(ctx)  # the answer agrees to none: handles are polled, and tasks are resources
        names = [*(wanted.resource_subscriptions or ()), *([LISTED[0]] if wanted.resources_list_changed else [])]
        watched = await self._changes.watch(names[:MOST])
        try:
            return await self._listen(ctx, params)
        finally:
            self._changes.leave(watched)

    async def subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """Tell an older client of changes of a URI, until it unsubscribes or goes away."""
        uri, connection = params.uri, _connection(ctx)
        if not await self._changes.watch([uri]):
            return types.EmptyResult()
        if id(connection) in self._sessions.get(uri, {}):
            self._changes.leave([uri])  # it was subscribed already, or by a request at the same time
        else:
            self._sessions.setdefault(uri, {})[id(connection)] = connection
            connection.exit_stack.callback(self._left, uri, connection)
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        """Tell an older client no more."""
        self._left(params.uri, _connection(ctx))
        return types.EmptyResult()

    def _left(self, uri: str, connection: Connection) -> None:
        if self._sessions.get(uri, {}).pop(id(connection), None) is not None:
            self._changes.leave([uri])
            if not self._sessions[uri]:
                del self._sessions[uri]

    async def _tell(self, changed: list[str]) -> None:
        """Tell everyone who wants to know. One client that does not read must not keep the others waiting."""
        for uri in changed:
            event = ResourcesListChanged() if uri == LISTED[0] else ResourceUpdated(uri=uri)
            await self._bus.publish(event)
            for connection in tuple(self._sessions.get(uri, {}).values()):
                try:
                    with anyio.fail_after(1):
                        await connection.send_resource_updated(uri)
                except Exception:  # noqa: BLE001 - a closed or stuck connection may fail in any way; it is left
                    logger.info("a client that no longer reads gets no more updates of %s", uri)
                    self._left(uri, connection)


def _connection(ctx: Context) -> Connection:
    """The connection of a request. The SDK has no public name for it."""
    return ctx.session._connection  # pyright: ignore[reportPrivateUsage]

"""One attempt of a durable call whose function runs elsewhere: begun here, ended when that has come back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from holdfast import App, Suspended, Tool


class OpenCall:
    """A call that is announced by `begin` and recorded by `end`; in between, the tool is run by others."""

    def __init__(self, app: App, key: str) -> None:
        self.key = key
        self._app = app
        loop = asyncio.get_running_loop()
        self._entered: asyncio.Future[None] = loop.create_future()
        self._outcome: asyncio.Future[Any] = loop.create_future()
        self._call: asyncio.Task[Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the call is announced and has no outcome yet: the tool is to be run now."""
        return self._entered.done() and not self._outcome.done()

    async def run(self, **arguments: Any) -> Any:
        """Stand for the tool: say that it is to be run, and return what comes of it."""
        self._entered.set_result(None)
        return await self._outcome

    async def begin(self, tool: Tool[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Announce the call; return its recorded result if it has one."""
        self._call = asyncio.create_task(self._app.acall(tool, arguments, key=self.key))
        await asyncio.wait({self._call, self._entered}, return_when=asyncio.FIRST_COMPLETED)
        return None if self.is_open else await self._call

    async def end(self, outcome: Any) -> None:
        """Record the outcome; it is durable when this returns."""
        assert self._call is not None
        self._outcome.set_result(outcome)
        await self._call

    async def fail(self, error: BaseException) -> None:
        """Record what the tool raised. Raises what becomes of the call: StepFailed, or Suspended if it is in doubt."""
        assert self._call is not None
        if isinstance(error, asyncio.CancelledError):
            await self.give_up()
            return
        self._outcome.set_exception(error)
        await self._call

    async def give_up(self) -> None:
        """Stop waiting for the tool. The call is in doubt, and in the inbox when it is made again."""
        assert self._call is not None
        self._call.cancel()
        with contextlib.suppress(asyncio.CancelledError, Suspended):
            await self._call

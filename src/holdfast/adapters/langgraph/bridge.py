"""Between an event loop and the threads that wait for the store."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

R = TypeVar("R")
Request = TypeVar("Request")


async def run_in_thread(
    work: Callable[[Request, Callable[[Request], Any]], R],
    request: Request,
    handler: Callable[[Request], Awaitable[Any]],
) -> R:
    """Run `work` in a thread of its own, where its handler, which is async, runs on this event loop.

    It has a thread of its own because tools may need those of the loop's executor: enough calls at a time would keep
    them all, and wait for each other for ever.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[R] = loop.create_future()
    under_way: list[Future[Any]] = []

    async def call(given: Request) -> Any:
        return await handler(given)

    def on_loop(given: Request) -> Any:
        under_way.append(asyncio.run_coroutine_threadsafe(call(given), loop))
        return under_way[-1].result()

    def run() -> None:
        try:
            result, error = work(request, on_loop), None
        except BaseException as raised:  # noqa: BLE001 — it is raised where it is awaited
            result, error = None, raised
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing waits any more
            loop.call_soon_threadsafe(_end, done, result, error)

    threading.Thread(target=contextvars.copy_context().run, args=(run,), name="holdfast-call", daemon=True).start()
    try:
        return await done
    except asyncio.CancelledError:
        for one in under_way:
            one.cancel()
        raise


def _end(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)

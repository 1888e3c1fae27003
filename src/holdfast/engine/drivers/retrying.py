"""`holdfast.retry`: the retries of steps, for code outside of tasks. Nothing of it is recorded."""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, overload

from msgspec import Struct

from holdfast.core import retries
from holdfast.core.durations import shown
from holdfast.core.errors import InvalidValue, NotDone, RetriesExhausted
from holdfast.core.events import ANNOUNCED
from holdfast.core.flows.requests import ErrorTest
from holdfast.core.retries import Retry
from holdfast.engine.definitions.call import BODY, CALLER
from holdfast.engine.definitions.tool import Errors, as_retry, error_test, is_tool
from holdfast.engine.definitions.types import R


@overload
def retry(
    fn: Callable[..., Awaitable[R]], *args: Any, retry: Retry | int = 3, retry_on: Errors = (), **kwargs: Any
) -> Coroutine[Any, Any, R]: ...
@overload
def retry(fn: Callable[..., R], *args: Any, retry: Retry | int = 3, retry_on: Errors = (), **kwargs: Any) -> R: ...
def retry(fn: Callable[..., Any], *args: Any, retry: Retry | int = 3, retry_on: Errors = (), **kwargs: Any) -> Any:
    """Call a function outside of any task, and try again if it raises: after 1 s, 2 s, 4 s …, not after the last time.

    `retry`: how many attempts, or a Retry. `retry_on`: the only errors that are tried again, as exception classes or a
    function of the error. An `async def` function is awaited: `await holdfast.retry(fetch, url)`. A server's
    `Retry-After` is heeded; errors that every attempt would meet (HTTP 400, 401, 404 …) are raised at once. After the
    last attempt it is RetriesExhausted. Nothing is recorded: in an agent, use `task.step(fn, retry=3)`.
    """
    _refuse(fn)
    trying = _Trying(
        lambda: fn(*args, **kwargs), _name(fn), as_retry(retry), error_test(retry_on, "retry_on= of retry")
    )
    attempt = 0
    while True:
        attempt += 1
        try:
            value = trying.fn()
        except Exception as error:  # noqa: BLE001 — which errors are tried again is the policy's matter
            time.sleep(trying.pause(attempt, error))
        else:
            return trying.awaited(value, attempt) if hasattr(value, "__await__") else value


class _Trying(Struct, frozen=True):
    """A function and how often it is tried."""

    fn: Callable[[], Any]
    name: str
    policy: Retry
    retry_on: ErrorTest | None

    async def awaited(self, given: Awaitable[Any], attempt: int) -> Any:
        """Continue with a function that gives something to await."""
        import asyncio

        value: Awaitable[Any] | None = given
        while True:
            try:
                return await (self.fn() if value is None else value)
            except Exception as error:  # noqa: BLE001 — as above
                pause = self.pause(attempt, error)
            value, attempt = None, attempt + 1
            await asyncio.sleep(pause)

    def pause(self, attempt: int, error: Exception) -> float:
        """Return how many seconds to wait before the next attempt; raise if there is none."""
        if not self._may_repeat(error):
            raise error
        if attempt >= self.policy.attempts:
            raise RetriesExhausted(self.name, attempt, type(error).__qualname__, str(error)) from error
        now_us = time.time_ns() // 1000
        pause = (retries.due_us(self.policy, attempt, now_us, error) - now_us) / 1_000_000
        told = f"{type(error).__qualname__}: {error}"
        _warn("%s: attempt %d of %d failed, again in %s: %s", self.name, attempt, self.policy.attempts, pause, told)
        return pause

    def _may_repeat(self, error: Exception) -> bool:
        if isinstance(error, NotDone):
            return not error.permanent
        return not retries.is_permanent(error) if self.retry_on is None else self.retry_on(error)


def _refuse(fn: Any) -> None:
    if not callable(fn):
        raise InvalidValue(f"{fn!r} cannot be called", hint="give a function, and its arguments after it")
    if BODY.get() is not None and CALLER.get() is None:
        raise InvalidValue(
            "holdfast.retry in an agent's body would be done again on every replay",
            hint="use task.step(fn, retry=3), which is recorded; in a step's function, holdfast.retry is fine",
        )
    if is_tool(fn) and fn.effect in ANNOUNCED:
        raise InvalidValue(
            f"tool {fn.name!r} can be done once only, and an attempt that failed may have happened",
            hint=f"make a durable call: app.call({fn.name}, key=…)",
        )


def _name(fn: Any) -> str:
    """What the function is called in messages; a lambda has no name."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = fn.name if is_tool(fn) else getattr(fn, "__name__", type(fn).__name__)
    return "the function" if name == "<lambda>" else name


def _warn(text: str, name: str, attempt: int, most: int, pause: float, told: str) -> None:
    import logging  # few programs fail

    logging.getLogger("holdfast").warning(text, name, attempt, most, shown(pause), told)

"""Steps whose functions yield: each chunk is published, and the end result is what the step records."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import typing
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from typing import Any, cast

from msgspec.structs import replace

from holdfast.core.errors import InvalidValue
from holdfast.core.flows.requests import StepRequest
from holdfast.engine.definitions.call import streaming
from holdfast.engine.definitions.declared.convert import convert
from holdfast.engine.definitions.signature import Parameters

_WHOLE = (str, bytes, bytearray, Mapping)
"""What can be iterated, and is not a stream."""


def streamed(request: StepRequest, parameters: Parameters) -> StepRequest:
    """Make a step of a function that yields: its chunks are published as they come."""
    made = request.fn

    def fn() -> Any:
        return _drained(made(), parameters.name)

    is_async = request.is_async or _yields_async(parameters.fn)
    return replace(request, fn=fn, is_async=is_async, result=result_of(parameters))


def result_of(parameters: Parameters) -> Callable[[Any], Any] | None:
    """Return what restores the declared result: the third type of a `Generator[…]`, if it has one."""
    declared = parameters.types.get("return")
    if typing.get_origin(declared) is not collections.abc.Generator:
        return None
    wanted = typing.get_args(declared)[2:]
    if not wanted or wanted[0] in (Any, None, type(None)):
        return None
    return lambda value: convert(value, wanted[0], f"the result of {parameters.name}()")


def _yields_async(fn: Any) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.isasyncgenfunction(fn) or inspect.isasyncgenfunction(getattr(fn, "__call__", None))  # noqa: B004


def _drained(made: Any, name: str) -> Any:
    """Publish what a function yields; returns its end result, or something to await that does."""
    if hasattr(made, "__await__"):
        return _awaited(made, name)
    if hasattr(made, "__aiter__"):
        return _to_the_end_async(made)
    kind = cast("type[object]", type(made))
    if issubclass(kind, _WHOLE) or not hasattr(made, "__iter__"):
        raise InvalidValue(
            f"{name} returned {kind.__name__}, which is not a stream",
            hint="yield chunks, or return an iterator of them; task.step takes any other function",
        )
    return _to_the_end(made)


async def _awaited(made: Any, name: str) -> Any:
    result = _drained(await made, name)
    return await result if hasattr(result, "__await__") else result


def _to_the_end(chunks: Iterable[Any]) -> Any:
    stream, kept, work = streaming(), list[Any](), iter(chunks)
    while True:
        try:
            chunk = next(work)
        except StopIteration as end:
            return _whole(kept) if end.value is None else end.value
        stream.send(chunk)
        kept.append(chunk)


async def _to_the_end_async(chunks: AsyncIterable[Any]) -> Any:
    stream, kept = streaming(), list[Any]()
    async for chunk in chunks:
        stream.send(chunk)
        kept.append(chunk)
    return _whole(kept)


def _whole(chunks: list[Any]) -> Any:
    """Return texts joined, and a list of anything else."""
    return "".join(cast("list[str]", chunks)) if all(isinstance(one, str) for one in chunks) else chunks

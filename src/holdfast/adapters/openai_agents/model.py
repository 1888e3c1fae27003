"""Model requests as steps: whole ones, and those whose reply is streamed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, cast

from agents import Model, ModelBehaviorError, ModelProvider, ModelResponse, Usage
from agents.items import TResponseStreamEvent
from openai.types.responses import Response, ResponseCompletedEvent, ResponseOutputItem, ResponseUsage
from pydantic import TypeAdapter

from holdfast import current_call, report_usage, streaming
from holdfast.adapters.openai_agents.effects import RUN

_OUTPUT: TypeAdapter[list[Any]] = TypeAdapter(list[ResponseOutputItem])
_USAGE: TypeAdapter[Usage] = TypeAdapter(Usage)
_FAILED = frozenset({"response.incomplete", "response.failed", "response.error", "error"})
"""Events after which there is no reply."""


class RecordedModel(Model):
    """A model whose requests are steps of the task that it is asked in: `model:1`, `model:2`, …"""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Return the recorded response, or ask the model and record it."""
        run = RUN.get()
        if run is None or current_call() is not None:
            return await self._model.get_response(*args, **kwargs)

        async def request() -> dict[str, Any]:
            response = await self._model.get_response(*args, **kwargs)
            return _reported(response)

        return _load(await run.task.step(request, name="model", key=run.next_key("model")))

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncGenerator[TResponseStreamEvent, None]:
        """Stream the reply of a model, and record it. What is recorded already comes as its last event only.

        That event is held back until the reply is durable: the SDK acts on it.
        """
        run = RUN.get()
        if run is None or current_call() is not None:
            async with aclosing(_events(self._model.stream_response(*args, **kwargs))) as events:
                async for event in events:
                    yield event
            return
        live: asyncio.Queue[TResponseStreamEvent | None] = asyncio.Queue()

        async def request() -> dict[str, Any]:
            async with aclosing(_events(self._model.stream_response(*args, **kwargs))) as events:
                return _reported(await _reply(events, live))

        step = asyncio.ensure_future(run.task.step(request, name="model", key=run.next_key("model")))
        step.add_done_callback(lambda done: live.put_nowait(None))
        try:
            while (event := await live.get()) is not None:
                yield event
            yield completed(await step)
        finally:
            step.cancel()  # nothing, unless the stream was closed in the middle

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()


class RecordedProvider(ModelProvider):
    """A provider of models whose requests are steps."""

    def __init__(self, provider: ModelProvider) -> None:
        self._provider = provider

    def get_model(self, model_name: str | None) -> Model:
        """Return the model of that name."""
        return RecordedModel(self._provider.get_model(model_name))

    async def aclose(self) -> None:
        """Close the provider."""
        await self._provider.aclose()


async def _events(events: AsyncIterator[TResponseStreamEvent]) -> AsyncGenerator[TResponseStreamEvent, None]:
    async for event in events:
        yield event


async def _reply(
    events: AsyncIterator[TResponseStreamEvent], live: asyncio.Queue[TResponseStreamEvent | None]
) -> ModelResponse:
    """The reply that a stream ends with. Its other events are passed on as they come, here and to `app.follow`."""
    watched, items, reply = streaming(), list[Any](), None
    async for event in events:
        if event.type in _FAILED:
            raise ModelBehaviorError(f"the model's reply ended with {event.type}: {event.model_dump_json()[:2_000]}")
        if isinstance(event, ResponseCompletedEvent):
            reply = event.response
            continue
        if event.type == "response.output_item.done":
            items.append(event.item)
        watched.send(event.model_dump(mode="json", exclude_unset=True))
        live.put_nowait(event)
    if reply is None:
        raise ModelBehaviorError("the model's reply ended without response.completed")
    return ModelResponse(
        output=reply.output or items,  # some providers leave it empty, and give the items one by one only
        usage=_usage(reply.usage),
        response_id=reply.id,
        request_id=getattr(reply, "_request_id", None),
    )


def _usage(used: ResponseUsage | None) -> Usage:
    if used is None:
        return Usage(requests=1)
    return Usage(
        requests=1,
        input_tokens=used.input_tokens or 0,
        output_tokens=used.output_tokens or 0,
        total_tokens=used.total_tokens or 0,
        input_tokens_details=used.input_tokens_details,
        output_tokens_details=used.output_tokens_details,
    )


def completed(recorded: dict[str, Any]) -> ResponseCompletedEvent:
    """Return the event that ends the stream of a reply, made of what is recorded of it."""
    loaded = _load(recorded)
    used = loaded.usage
    response = Response(
        id=loaded.response_id or "",
        created_at=0,
        model="",
        object="response",
        output=loaded.output,
        tool_choice="auto",
        tools=[],
        parallel_tool_calls=False,
        usage=ResponseUsage(
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            total_tokens=used.total_tokens,
            input_tokens_details=used.input_tokens_details,
            output_tokens_details=used.output_tokens_details,
        ),
    )
    cast("Any", response)._request_id = loaded.request_id
    return ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)


def _reported(response: ModelResponse) -> dict[str, Any]:
    """A response as it is recorded, after its usage was reported to the task's budget."""
    report_usage(input_tokens=response.usage.input_tokens, output_tokens=response.usage.output_tokens)
    output = [one.model_dump(mode="json", exclude_unset=True) for one in response.output]
    usage: Any = _USAGE.dump_python(response.usage, mode="json")
    return {"output": output, "used": usage, "response_id": response.response_id, "request_id": response.request_id}


def _load(recorded: dict[str, Any]) -> ModelResponse:
    return ModelResponse(
        output=_OUTPUT.validate_python(recorded["output"]),
        usage=_USAGE.validate_python(recorded["used"]),
        response_id=recorded["response_id"],
        request_id=recorded["request_id"],
    )

"""Model requests as steps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents import Model, ModelProvider, ModelResponse, Usage
from openai.types.responses import ResponseOutputItem
from pydantic import TypeAdapter

from holdfast import InvalidValue, current_call, report_usage
from holdfast.adapters.openai_agents.effects import RUN

_OUTPUT: TypeAdapter[list[Any]] = TypeAdapter(list[ResponseOutputItem])
_USAGE: TypeAdapter[Usage] = TypeAdapter(Usage)


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
            report_usage(input_tokens=response.usage.input_tokens, output_tokens=response.usage.output_tokens)
            return _dump(response)

        return _load(await run.task.step(request, name="model", key=run.next_key("model")))

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Refuse to stream inside of a task; outside of one, the model streams as it does."""
        if RUN.get() is not None:
            raise InvalidValue("a streamed run is not recorded", hint="use DurableRunner.run")
        return self._model.stream_response(*args, **kwargs)

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


def _dump(response: ModelResponse) -> dict[str, Any]:
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

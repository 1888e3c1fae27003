"""Models behind an OpenAI-compatible endpoint, reached with the official SDK. It is imported when it is first used."""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from holdfast import Retry, Secret
from holdfast.core import retries
from holdfast.core.codec import failures
from holdfast.core.errors import MissingExtra
from holdfast.engine.reading.values import Duration, seconds
from holdfast.llm.models import ModelError, ModelRefused, OnToken

TIMEOUT_SECONDS = 600.0
"""How long a reply may take by default."""

MAX_CALLS = 128
"""How many tool calls a streamed reply may hold."""

HINTS = {
    400: "the endpoint does not take this request",
    401: "set OPENAI_API_KEY, or give api_key=",
    403: "the key may not use this model",
    404: "look at the model's name and at base_url",
    422: "the endpoint does not take this request",
    429: "too many requests, or no credit; loop_agent(retry=Retry(…)) waits and tries again",
}


class OpenAIModel:
    """A model by its name, at OpenAI or wherever `base_url` (or $OPENAI_BASE_URL) says.

    The key is `api_key` or $OPENAI_API_KEY; it is never written down. `timeout` is for a whole reply. Retries are the
    agent's, not the SDK's. `client` makes the SDK's client where the usual one will not do (Azure, a proxy). Other
    options go into every request: `OpenAIModel("gpt-5", temperature=0)`.
    """

    retry = Retry(attempts=5, jitter=0.2)

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | Secret | None = None,
        timeout: Duration = TIMEOUT_SECONDS,
        stream: bool = False,
        client: Callable[[], Any] | None = None,
        **options: Any,
    ) -> None:
        if find_spec("openai") is None:
            raise MissingExtra(
                "the openai SDK is not installed", hint="from a checkout: pip install 'path/to/holdfast[llm]'"
            )
        self.model = model
        self._base_url = base_url
        self._key = Secret(api_key) if isinstance(api_key, str) else api_key
        self._seconds = seconds(timeout, "timeout")
        self._stream = stream
        self._client = client or self._usual_client
        self._options = options

    def __repr__(self) -> str:
        return f"<openai model {self.model}>"

    async def __call__(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        *,
        on_token: OnToken | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        request = {"model": self.model, "messages": messages, **self._options, **options}
        if tools:
            request["tools"] = tools
        client = await asyncio.to_thread(self._client)  # the SDK takes a second to import
        from openai import OpenAIError

        try:
            async with asyncio.timeout(self._seconds), client:
                if self._stream or on_token is not None:
                    return await self._streamed(client, request, on_token)
                return self._whole(await client.chat.completions.create(**request))
        except TimeoutError:
            raise self._error(f"gave no answer within {self._seconds:g} s", hint="raise its timeout") from None
        except OpenAIError as error:
            raise self._refused(error) from None

    def _whole(self, completion: Any) -> dict[str, Any]:
        """A reply that came at once."""
        said = completion.model_dump(exclude_none=True)
        if not said.get("choices"):
            raise self._error(f"answered without a choice: {str(said)[:200]}")
        choice = said["choices"][0]
        message = {name: value for name, value in choice["message"].items() if value not in ([], {})}
        return {**message, **_aside(said, choice.get("finish_reason"))}

    async def _streamed(self, client: Any, request: dict[str, Any], on_token: OnToken | None) -> dict[str, Any]:
        """A reply that comes in pieces."""
        given = {"stream": True, "stream_options": {"include_usage": True}, **request}
        reply, finish = _Growing(), None
        aside: dict[str, Any] = {}
        async with await client.chat.completions.create(**given) as stream:
            async for chunk in stream:
                said = chunk.model_dump(exclude_none=True)
                aside |= _aside(said, None)
                for choice in said.get("choices") or ():
                    delta: dict[str, Any] = choice.get("delta") or {}
                    reply.add(delta)
                    finish = choice.get("finish_reason") or finish
                    if on_token is not None and delta.get("content"):
                        on_token(delta["content"])
        if finish is None:
            raise self._error("stopped in the middle of its reply")
        return {**reply.message(), **aside, "finish_reason": finish}

    def _usual_client(self) -> Any:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        base_url = self._base_url or os.environ.get("OPENAI_BASE_URL") or None
        return AsyncOpenAI(
            api_key=self._api_key() or ("none" if base_url else self._no_key()),
            base_url=base_url,
            timeout=self._seconds,
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(verify=_certificates()),
        )

    def _api_key(self) -> str:
        return os.environ.get("OPENAI_API_KEY", "") if self._key is None else self._key.reveal()

    def _no_key(self) -> str:
        raise ModelRefused(f"there is no key for model {self.model!r}", hint=HINTS[401], permanent=True)

    def _refused(self, error: Exception) -> ModelError:
        status: int | None = getattr(error, "status_code", None)
        key = self._api_key()
        text = failures.hidden(str(error), (key,) if key else ())
        told: dict[str, Any] = {"hint": HINTS.get(status or 0, ""), "status": status}
        what = f"model {self.model!r} did not answer: {text}"
        if not retries.is_refusal(error):
            return ModelError(what, **told)
        told["retry_after"] = retries.wait_asked_for(error, time.time())
        return ModelRefused(what, **told, permanent=retries.is_permanent(error))

    def _error(self, what: str, hint: str = "") -> ModelError:
        return ModelError(f"model {self.model!r} {what}", hint=hint, status=None)


class _Growing:
    """A message that comes in pieces: texts grow, calls grow by their index, all else is what it was last."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: dict[int, dict[str, Any]] = {}

    def add(self, delta: dict[str, Any]) -> None:
        """The next piece."""
        for name, value in delta.items():
            if name == "tool_calls":
                for call in value:
                    self._add_call(call)
            elif isinstance(value, str) and name != "role":
                self._message[name] = (self._message.get(name) or "") + value
            else:
                self._message[name] = value

    def _add_call(self, piece: dict[str, Any]) -> None:
        index = piece.get("index")
        if index is None:  # some endpoints leave it out: an id begins a call
            index = len(self._calls) - (0 if piece.get("id") or not self._calls else 1)
        if index not in self._calls and len(self._calls) >= MAX_CALLS:
            raise ModelError(f"a reply has more than {MAX_CALLS} tool calls", hint="tell the model to make fewer")
        empty: dict[str, Any] = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        call = self._calls.setdefault(index, empty)
        function: dict[str, Any] = piece.get("function") or {}
        call["id"] = call["id"] or piece.get("id") or ""
        call["function"]["name"] = call["function"]["name"] or function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""

    def message(self) -> dict[str, Any]:
        """The message, whole."""
        calls = [self._calls[index] for index in sorted(self._calls)]
        return {**self._message, **({"tool_calls": calls} if calls else {})}


def _aside(said: dict[str, Any], finish: str | None) -> dict[str, Any]:
    """Return the metadata of a completion."""
    about = {"usage": said.get("usage"), "model": said.get("model"), "finish_reason": finish}
    return {name: value for name, value in about.items() if value}


@functools.cache
def _certificates() -> Any:
    """Whom to trust, read once: it takes longer than all else that makes a client."""
    try:
        from httpx2 import create_ssl_context  # what the SDK itself stands on
    except ImportError:
        return True
    return create_ssl_context()

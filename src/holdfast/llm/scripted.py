"""A model with scripted replies: for tests, and for demos without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from holdfast.core.errors import InvalidValue
from holdfast.engine.reading import values
from holdfast.llm.models import OnToken

Reply = Mapping[str, Any] | Sequence[Mapping[str, Any]] | Callable[[list[dict[str, Any]]], Any]
"""A message, several `use(…)` at once, or a function of the messages that gives one of these."""


def say(answer: Any, **more: Any) -> dict[str, Any]:
    """A reply in words; other values become JSON. `more` may be its usage.

    >>> say({"degrees": 21})["content"]
    '{"degrees":21}'
    """
    content = answer if isinstance(answer, str) else values.text(answer)
    return {"role": "assistant", "content": content, **more}


def use(tool: str, /, **arguments: Any) -> dict[str, Any]:
    """A reply that calls a tool. A list of them is one reply that calls several at once.

    >>> use("look_up", city="Rome")["tool_calls"][0]["function"]
    {'name': 'look_up', 'arguments': '{"city":"Rome"}'}
    """
    call = {"type": "function", "function": {"name": tool, "arguments": values.text(arguments)}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class ScriptedModel:
    """Gives one reply after the other. The messages decide which, so a crash changes nothing.

    >>> ScriptedModel([use("look_up", city="Rome"), say("Sunny.")])
    <scripted model, 2 replies>
    """

    def __init__(self, replies: Sequence[Reply]) -> None:
        self._replies = list(replies)

    async def __call__(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        *,
        on_token: OnToken | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        number = sum(message["role"] == "assistant" for message in messages)
        if number >= len(self._replies):
            raise InvalidValue(
                f"the script has {len(self._replies)} replies, and another was asked for",
                hint="add one: the last should be say(…)",
            )
        reply = spoken(self._replies[number], messages, f"call_{number + 1}")
        if on_token is not None:
            for piece in pieces(reply.get("content") or ""):
                on_token(piece)
        return reply

    def __repr__(self) -> str:
        return f"<scripted model, {len(self._replies)} replies>"


def spoken(reply: Reply, messages: list[dict[str, Any]], prefix: str) -> dict[str, Any]:
    """A scripted reply as a message; calls without an id get one that begins with the prefix."""
    given: Any = reply(messages) if callable(reply) else reply
    parts = cast("list[Mapping[str, Any]]", [given] if isinstance(given, Mapping) else list(given))
    merged: dict[str, Any] = {name: value for part in parts for name, value in part.items()}
    calls = [call for part in parts for call in part.get("tool_calls") or ()]
    if calls:
        merged["tool_calls"] = [{"id": f"{prefix}_{n}", **call} for n, call in enumerate(calls, start=1)]
    return merged


def pieces(text: str) -> list[str]:
    """A text in words, as a stream brings them.

    >>> pieces("It is sunny.")
    ['It ', 'is ', 'sunny.']
    """
    return [piece for piece in text.replace(" ", " \0").split("\0") if piece]

"""The chat-completions form: tools as models are shown them, replies as they are kept, messages as they are sent."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from holdfast import Tool
from holdfast.core.errors import InvalidValue
from holdfast.core.messages import stored
from holdfast.engine.reading import values

Message = dict[str, Any]
"""A chat-completions message."""

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What endpoints take as a tool's name."""

KEPT_ASIDE = stored.ASIDE
"""What a reply says about itself. It is kept with the message and not sent back."""


def tool_schema(tool: Tool) -> dict[str, Any]:
    """A tool as models are shown it: name, docstring, and its parameters as JSON Schema.

    >>> from holdfast import tool
    >>> @tool(effect="read")
    ... def look_up(city: str) -> dict: "Tell the weather."
    >>> tool_schema(look_up)["function"]["description"]
    'Tell the weather.'
    """
    if not isinstance(tool, Tool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"{tool!r} is not a tool", hint="declare it with @tool")
    if not TOOL_NAME.fullmatch(tool.name):
        raise InvalidValue(
            f"no model can call a tool {tool.name!r}", hint="@tool(name=…) of letters, digits, _ and -, at most 64"
        )
    described = inspect.cleandoc(tool.__doc__ or "")
    function = {"name": tool.name, "description": described, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def tidy(reply: Any, known: Collection[str], number: int) -> Message:
    """A reply as it is kept: an assistant's message that endpoints take back, every call with an id of its own.

    `known` are the ids of earlier calls, `number` how many messages come before it.
    """
    if not isinstance(reply, Mapping):
        raise InvalidValue(f"the model gave a {type(reply).__name__}", hint="give a chat-completions message, a dict")
    kept: Message = {"content": None, **cast("Mapping[str, Any]", reply), "role": "assistant"}
    calls = kept.pop("tool_calls", None)
    if calls:
        taken: set[str] = set()
        kept["tool_calls"] = [_call(call, known, taken, f"call_{number}_{n}") for n, call in enumerate(calls)]
    elif kept["content"] is None:
        kept["content"] = ""
    return kept


def sent(messages: Iterable[Message]) -> list[Message]:
    """Messages as an endpoint takes them: without what a reply says about itself, arguments always an object."""
    return [_sent(message) for message in messages]


def text_of(reply: Message) -> str:
    """Return the text of a reply, or the texts of its parts, or its refusal."""
    content: Any = reply.get("content") or reply.get("refusal") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content)


def _call(call: Mapping[str, Any], known: Collection[str], taken: set[str], spare: str) -> dict[str, Any]:
    """A call with a unique id: some endpoints give none, or the same ones in every reply."""
    id = str(call.get("id") or "")
    while not id or id in taken or id in known:
        id, spare = spare, f"{spare}_"
    taken.add(id)
    function: Mapping[str, Any] = call.get("function") or {}
    arguments: Any = function.get("arguments") or "{}"
    text = arguments if isinstance(arguments, str) else values.text(arguments)
    named = {**function, "name": str(function.get("name") or ""), "arguments": text}
    return {**call, "id": id, "type": "function", "function": named}


def _sent(message: Message) -> Message:
    if message.get("role") != "assistant":
        return message
    shown = {name: value for name, value in message.items() if name not in KEPT_ASIDE}
    if "tool_calls" in shown:
        shown["tool_calls"] = [_readable(call) for call in shown["tool_calls"]]
    return shown


def _readable(call: dict[str, Any]) -> dict[str, Any]:
    """A call whose arguments are an object. A model may write anything, and many endpoints then refuse it."""
    function = call["function"]
    try:
        if isinstance(values.parse(function["arguments"]), dict):
            return call
    except (ValueError, RecursionError):
        pass  # not JSON at all, which comes to the same
    return {**call, "function": {**function, "arguments": values.text({"malformed": function["arguments"]})}}

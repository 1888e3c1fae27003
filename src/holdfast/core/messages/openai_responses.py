"""Messages as items of OpenAI's Responses API: a flat list, in which a reply's reasoning, texts and calls are items.

An error of a tool is written in its text, since there is no field for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.messages.message import (
    Content,
    Image,
    Message,
    Other,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    a_list,
    a_text,
    an_id,
    an_object,
    beyond,
    complete,
    merged,
    optional_text,
    own,
    refuse,
    stand_in,
)
from holdfast.core.messages.openai_chat import a_role, error_text

FORM = "responses"
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
OUTPUTS = ("function_call_output", "custom_tool_call_output")


def parse(item: Mapping[str, Any], path: str) -> tuple[Message, ...]:
    """Read one item; a reply's items are messages of their own, which `groups` keeps together."""
    kind = a_text(item, "type", path) if "type" in item else "message"
    if kind == "message":
        return (_message(item, path),)
    if kind in CALLS:
        field = CALLS[kind]
        known = {"type": 0, "call_id": 0, "name": 0, field: 0}
        id, name = an_id(item, "call_id", path), an_id(item, "name", path)
        custom = kind == "custom_tool_call"
        call = ToolCall(id, name, a_text(item, field, path), custom=custom, extra=beyond(item, known, FORM))
        return (Message("assistant", (call,)),)
    if kind in OUTPUTS:
        content = _read(item.get("output"), f"{path}.output")
        extra = beyond(item, {"type": 0, "call_id": 0, "output": 0}, FORM)
        id, custom = an_id(item, "call_id", path), kind == "custom_tool_call_output"
        return (Message("tool", (ToolResult(id, content, custom=custom, extra=extra),)),)
    if kind == "reasoning":
        summary = a_list(item.get("summary"), f"{path}.summary")
        said = [optional_text(an_object(part, f"{path}.summary"), "text") for part in summary]
        return (Message("assistant", (Reasoning("\n".join(said), complete(item, FORM)),)),)
    return (Message("assistant", (Other(kind, apart=True, extra=complete(item, FORM)),)),)


def render(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages as items, each part in its place."""
    custom = {call.id for message in messages for call in message.calls if call.custom}
    return [item for message in messages for item in _items(message, custom)]


def _message(item: Mapping[str, Any], path: str) -> Message:
    role = a_role(item, path)
    if role == "tool":
        refuse(f"{path}.role", "is 'tool'", "unknown-role", "in this form a result is a function_call_output")
    content = _read(item.get("content"), f"{path}.content")
    return Message(role, content, beyond(item, {"type": 0, "role": 0, "content": 0}, FORM))


def _read(content: Any, path: str) -> tuple[Content, ...]:
    if content is None or content == "":
        return ()
    if isinstance(content, str):
        return (Text(content),)
    return tuple(
        _block(an_object(block, f"{path}[{index}]"), f"{path}[{index}]")
        for index, block in enumerate(a_list(content, path))
    )


def _block(block: Mapping[str, Any], path: str) -> Content:
    match a_text(block, "type", path):
        case "input_text" | "output_text" | "text":
            said = a_text(block, "text", path)
            return Text(said, beyond(block, {"type": 0, "text": 0}, FORM))
        case "input_image":
            known = {"type": 0, "image_url": 0, "file_id": 0, "detail": 0}
            found = [optional_text(block, name) for name in ("image_url", "file_id", "detail")]
            return Image(*found, extra=beyond(block, known, FORM))
        case kind:
            return Other(kind, optional_text(block, kind) or optional_text(block, "text"), extra=complete(block, FORM))


def _items(message: Message, custom: set[str]) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [_written_result(message.result, custom)]
    items: list[dict[str, Any]] = []
    said: list[Content] = []
    for part in message.parts:
        item = _item(part)
        if item is not None:
            items += [*_written(message, said), item]
            said = []
        elif isinstance(part, Text | Image | Other):
            said.append(part)
    items += _written(message, said)
    if not message.parts:
        items.append({"type": "message", "role": message.role, "content": ""})
    return _with_extra(items, message)


def _item(part: Any) -> dict[str, Any] | None:
    """A part that is an item of its own; None for what belongs into a message, or came from another provider."""
    match part:
        case ToolCall():
            kind = "custom_tool_call" if part.custom else "function_call"
            base = {"type": kind, "call_id": part.id, "name": part.name, CALLS[kind]: part.arguments}
            return merged(base, part.extra, FORM)
        case Reasoning():
            return own(part, FORM)
        case Other() if part.apart:
            return own(part, FORM)
        case _:
            return None


def _with_extra(items: list[dict[str, Any]], message: Message) -> list[dict[str, Any]]:
    """The first message among the items gets what only this provider has, such as its id."""
    for index, item in enumerate(items):
        if item["type"] == "message":
            items[index] = merged(item, message.extra, FORM)
            break
    return items


def _written(message: Message, parts: Sequence[Content]) -> list[dict[str, Any]]:
    return [{"type": "message", "role": message.role, "content": _content(parts, message.role)}] if parts else []


def _content(parts: Sequence[Content], role: Role) -> str | list[dict[str, Any]]:
    """One plain text as text, anything else as a list."""
    blocks = [_written_block(part, role) for part in parts]
    if not blocks:
        return ""
    alone = len(blocks) == 1 and blocks[0].keys() == {"type", "text"}
    return blocks[0]["text"] if alone else blocks


def _written_block(part: Content, role: Role) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    match part:
        case Text():
            return merged({"type": kind, "text": part.text}, part.extra, FORM)
        case Image() if role in ("user", "tool"):
            named = {"image_url": part.url, "file_id": part.file, "detail": part.detail}
            base = {"type": "input_image", **{name: value for name, value in named.items() if value}}
            return merged(base, part.extra, FORM)
        case Image():
            return {"type": kind, "text": stand_in(part)}
        case Other():
            return own(part, FORM) or {"type": kind, "text": stand_in(part)}


def _written_result(result: ToolResult, custom: set[str]) -> dict[str, Any]:
    kind = "custom_tool_call_output" if result.custom or result.call_id in custom else "function_call_output"
    output = error_text(result) if result.is_error else _content(result.content, "tool")
    return merged({"type": kind, "call_id": result.call_id, "output": output}, result.extra, FORM)

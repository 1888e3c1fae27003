"""Messages as OpenAI's chat completions have them: calls inside the assistant's message, one message a result.

Images are the user's; anywhere else, and where a picture is known by a file's id, its name in brackets stands for it.
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

FORM = "chat"
THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details")
"""Where servers of this form put what the model thought."""

ROLES: dict[str, Role] = {role: role for role in ("system", "developer", "user", "assistant", "tool")}


def parse(message: Mapping[str, Any], path: str) -> tuple[Message, ...]:
    """Read one message."""
    role = a_role(message, path)
    content = read_content(message.get("content"), f"{path}.content")
    if role == "tool":
        result = ToolResult(an_id(message, "tool_call_id", path), content)
        return (Message("tool", (result,), beyond(message, {"role": 0, "tool_call_id": 0, "content": 0}, FORM)),)
    if role != "assistant":
        return (Message(role, content, beyond(message, {"role": 0, "content": 0}, FORM)),)
    calls = [
        _call(an_object(call, f"{path}.tool_calls[{index}]"), f"{path}.tool_calls[{index}]")
        for index, call in enumerate(a_list(message.get("tool_calls"), f"{path}.tool_calls"))
    ]
    thoughts = {name: message[name] for name in THOUGHTS if message.get(name)}
    known = {"role": 0, "content": 0, "tool_calls": 0, **thoughts}
    parts = (*_reasoning(thoughts), *content, *calls)
    return (Message("assistant", parts, beyond(message, known, FORM)),)


def render(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages. The assistant's messages of one group become one, or its calls would lack their results."""
    return [_written(message) for message in messages if _says_something(message)]


def a_role(message: Mapping[str, Any], path: str) -> Role:
    """The role of a message, or a refusal."""
    found = a_text(message, "role", path)
    if found not in ROLES:
        refuse(f"{path}.role", f"is {found!r}", "unknown-role", f"use one of {', '.join(ROLES)}")
    return ROLES[found]


def read_content(content: Any, path: str) -> tuple[Content, ...]:
    """Read content: nothing, a text, or a list of parts."""
    if content is None or content == "":
        return ()
    if isinstance(content, str):
        return (Text(content),)
    return tuple(
        _block(an_object(block, f"{path}[{index}]"), f"{path}[{index}]")
        for index, block in enumerate(a_list(content, path))
    )


def error_text(result: ToolResult) -> str:
    """Return the text of an error where a form has no field for errors."""
    said = "\n".join(part.text if isinstance(part, Text) else stand_in(part) for part in result.content)
    return said if said.lower().startswith("error") else f"error: {said}"


def _block(block: Mapping[str, Any], path: str) -> Content:
    match a_text(block, "type", path):
        case "text":
            said = a_text(block, "text", path)
            return Text(said, beyond(block, {"type": 0, "text": 0}, FORM))
        case "image_url":
            given = block.get("image_url")
            image: Mapping[str, Any] = {"url": given} if isinstance(given, str) else an_object(given, path)
            found = Image(a_text(image, "url", path), detail=optional_text(image, "detail"))
            known = {"type": 0, "image_url": {"url": 0, "detail": 0}}
            return Image(found.url, detail=found.detail, extra=beyond(block, known, FORM))
        case kind:
            return Other(kind, optional_text(block, kind) or optional_text(block, "text"), extra=complete(block, FORM))


def _call(call: Mapping[str, Any], path: str) -> ToolCall:
    id, kind = an_id(call, "id", path), call.get("type", "function")
    if kind == "custom":
        custom = an_object(call.get("custom"), f"{path}.custom")
        name, text = an_id(custom, "name", f"{path}.custom"), a_text(custom, "input", f"{path}.custom")
        known = {"id": 0, "type": 0, "custom": {"name": 0, "input": 0}}
        return ToolCall(id, name, text, custom=True, extra=beyond(call, known, FORM))
    if kind != "function":
        refuse(f"{path}.type", f"is {kind!r}", "unknown-call", "use 'function' or 'custom'")
    function = an_object(call.get("function"), f"{path}.function")
    name, text = an_id(function, "name", f"{path}.function"), a_text(function, "arguments", f"{path}.function")
    known = {"id": 0, "type": 0, "function": {"name": 0, "arguments": 0}}
    return ToolCall(id, name, text, extra=beyond(call, known, FORM))


def _reasoning(thoughts: Mapping[str, Any]) -> tuple[Reasoning, ...]:
    if not thoughts:
        return ()
    said = next((text for text in thoughts.values() if isinstance(text, str)), "")
    return (Reasoning(said, complete(thoughts, FORM)),)


def _says_something(message: Message) -> bool:
    """Return whether anything is left of a message: another provider's reasoning has no place here."""
    return not message.parts or any(
        not isinstance(part, Reasoning) or own(part, FORM) is not None for part in message.parts
    )


def _written(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        result = message.result
        content = error_text(result) if result.is_error else _content(result.content, "tool")
        base = {"role": "tool", "tool_call_id": result.call_id, "content": content}
        return merged(merged(base, result.extra, FORM), message.extra, FORM)
    said = [part for part in message.parts if isinstance(part, Text | Image | Other)]
    base: dict[str, Any] = {"role": message.role, "content": _content(said, message.role)}
    if message.calls:
        base["content"] = base["content"] or None
        base["tool_calls"] = [_written_call(call) for call in message.calls]
    for part in message.parts:
        if isinstance(part, Reasoning):
            for name, thought in (own(part, FORM) or {}).items():
                base[name] = base[name] + thought if name in base else thought
    return merged(base, message.extra, FORM)


def _content(parts: Sequence[Content], role: Role) -> str | list[dict[str, Any]]:
    """One plain text as text, anything else as a list."""
    blocks = [_written_block(part, role) for part in parts]
    if not blocks:
        return ""
    alone = len(blocks) == 1 and blocks[0].keys() == {"type", "text"}
    return blocks[0]["text"] if alone else blocks


def _written_block(part: Content, role: Role) -> dict[str, Any]:
    match part:
        case Text():
            return merged({"type": "text", "text": part.text}, part.extra, FORM)
        case Image() if role == "user" and part.url:
            detail = {"detail": part.detail} if part.detail else {}
            return merged({"type": "image_url", "image_url": {"url": part.url, **detail}}, part.extra, FORM)
        case Image():
            return {"type": "text", "text": stand_in(part)}
        case Other():
            return own(part, FORM) or {"type": "text", "text": stand_in(part)}


def _written_call(call: ToolCall) -> dict[str, Any]:
    if call.custom:
        base: dict[str, Any] = {"type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    else:
        base = {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    return merged({"id": call.id, **base}, call.extra, FORM)

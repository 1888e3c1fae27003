"""Messages as Anthropic has them: blocks, user and assistant in turns, results first in the message after their calls.

What this form asks for, `render` does: system messages stand apart (`system`), messages of one role become one, a
conversation that an assistant began gets an opening by the user, empty texts are left out. Arguments are an object
here, so their spelling is not kept; any other value is carried inside one. Ids with other characters are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

from holdfast.core import codec
from holdfast.core.messages.message import (
    Image,
    Message,
    Other,
    Part,
    Reasoning,
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
from holdfast.core.messages.openai_chat import a_role

FORM = "anthropic"
OPENING = "(The conversation goes on.)"
EMPTY = "(empty message)"
NO_OBJECT = "arguments"
"""The one key of an object made of arguments that are none."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)


def parse(message: Mapping[str, Any], path: str) -> tuple[Message, ...]:
    """Read one message: its results as a message each, then what else it says.

    The system text, which this form keeps apart, is read as a message of the role `system`.
    """
    role = a_role(message, path)
    if role in ("tool", "developer"):
        refuse(f"{path}.role", f"is {role!r}", "unknown-role", "in this form results are blocks of a user message")
    extra = beyond(message, {"role": 0, "content": 0}, FORM)
    parts = _read(message.get("content"), f"{path}.content")
    results = [Message("tool", (part,)) for part in parts if isinstance(part, ToolResult)]
    if results and role != "user":
        refuse(f"{path}.content", f"has a tool result in a message of the role {role!r}", "misplaced-part")
    rest = tuple(part for part in parts if not isinstance(part, ToolResult))
    if rest or not results:
        return (*results, Message(role, rest, extra))
    return (*results[:-1], Message("tool", results[-1].parts, extra))


def render(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages, without those of the system: a part of a conversation, which `joined` makes whole."""
    written: list[tuple[str, list[dict[str, Any]]]] = []
    for message in messages:
        role = "user" if message.role in ("user", "tool") else message.role
        own_blocks = [] if message.role in ("system", "developer") else _blocks(message)
        if not own_blocks:
            continue
        if written and written[-1][0] == role:
            written[-1][1].extend(own_blocks)
        else:
            written.append((role, own_blocks))
    return [{"role": role, "content": _content(said)} for role, said in written]


def joined(parts: Iterable[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Join parts of a conversation: where one role goes on, its messages become one."""
    found: list[dict[str, Any]] = []
    for part in parts:
        if found and part and found[-1]["role"] == part[0]["role"]:
            found[-1] = {"role": part[0]["role"], "content": _content([*blocks(found[-1]), *blocks(part[0])])}
            found += part[1:]
        else:
            found += part
    return found


def opened(written: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give a conversation that the assistant began an opening by the user."""
    return (
        [{"role": "user", "content": OPENING}, *written]
        if written[:1] and written[0]["role"] == "assistant"
        else written
    )


def blocks(written: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The blocks of a message that `render` wrote."""
    content = written["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def with_blocks(written: Mapping[str, Any], part: slice) -> dict[str, Any]:
    """A message that `render` wrote, with some of its blocks."""
    return {"role": written["role"], "content": _content(blocks(written)[part])}


def system(messages: Sequence[Message]) -> str | list[dict[str, Any]]:
    """The system text of a conversation; a list where a block has more to it than text."""
    spoken = [message for message in messages if message.role in ("system", "developer")]
    said = [block for message in spoken for block in _blocks(message)]
    if any(block.keys() != {"type", "text"} for block in said):
        return said
    return "\n\n".join(block["text"] for block in said)


def wire_id(id: str) -> str:
    """A call's id as this form allows it: as it is, or made from its hash, the same every time.

    >>> wire_id("call_1"), wire_id("call/1")
    ('call_1', 'call_c5fb05e4d7a4906f0d48e54e')
    """
    return id if _ID.fullmatch(id) else f"call_{sha256(id.encode()).hexdigest()[:24]}"


def input_of(call: ToolCall) -> dict[str, Any]:
    """The arguments of a call as an object; what is none stands in one, under `NO_OBJECT`."""
    try:
        given = codec.parse(call.arguments)
    except ValueError:
        given = call.arguments
    return cast("dict[str, Any]", given) if isinstance(given, dict) and not call.custom else {NO_OBJECT: given}


# Reading


def _read(content: Any, path: str) -> tuple[Part, ...]:
    if content is None or content == "":
        return ()
    if isinstance(content, str):
        return (Text(content),)
    return tuple(
        _block(an_object(block, f"{path}[{index}]"), f"{path}[{index}]")
        for index, block in enumerate(a_list(content, path))
    )


def _block(block: Mapping[str, Any], path: str) -> Part:
    match a_text(block, "type", path):
        case "text":
            return Text(a_text(block, "text", path), beyond(block, {"type": 0, "text": 0}, FORM))
        case "image":
            return _image(block, path)
        case "tool_use":
            given = codec.dump(an_object(block.get("input", {}), f"{path}.input")).decode()
            known = {"type": 0, "id": 0, "name": 0, "input": 0}
            return ToolCall(
                an_id(block, "id", path), an_id(block, "name", path), given, extra=beyond(block, known, FORM)
            )
        case "tool_result":
            return _result(block, path)
        case "thinking" | "redacted_thinking":
            return Reasoning(optional_text(block, "thinking"), complete(block, FORM))
        case kind:
            return Other(kind, optional_text(block, "text"), extra=complete(block, FORM))


def _image(block: Mapping[str, Any], path: str) -> Image:
    source = an_object(block.get("source"), f"{path}.source")
    match source.get("type"):
        case "base64":
            media, data = a_text(source, "media_type", path), a_text(source, "data", path)
            found = Image(f"data:{media};base64,{data}")
        case "url":
            found = Image(a_text(source, "url", f"{path}.source"))
        case "file":
            found = Image(file=a_text(source, "file_id", f"{path}.source"))
        case kind:
            refuse(f"{path}.source.type", f"is {kind!r}", "unknown-part", "use 'base64', 'url' or 'file'")
    return Image(found.url, found.file, extra=beyond(block, {"type": 0, "source": dict(source)}, FORM))


def _result(block: Mapping[str, Any], path: str) -> ToolResult:
    inside = _read(block.get("content"), f"{path}.content")
    content = tuple(part for part in inside if isinstance(part, Text | Image | Other))
    if len(content) != len(inside):
        refuse(f"{path}.content", "of a tool result holds a call, a result or reasoning", "misplaced-part")
    known = {"type": 0, "tool_use_id": 0, "content": 0, "is_error": 0}
    return ToolResult(
        an_id(block, "tool_use_id", path), content, bool(block.get("is_error")), extra=beyond(block, known, FORM)
    )


# Writing


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [_written_result(message.result)]
    written = [_written(part, pictures=message.role == "user") for part in message.parts]
    blocks = [block for block in written if block is not None]
    if not blocks and message.role == "user":
        return [{"type": "text", "text": EMPTY}]
    return blocks


def _written(part: Part, *, pictures: bool = True) -> dict[str, Any] | None:
    """A block; None for what this form does not allow: empty texts, reasoning of another provider."""
    match part:
        case Text():
            return merged({"type": "text", "text": part.text}, part.extra, FORM) if part.text.strip() else None
        case Image():
            return _written_image(part) if pictures else {"type": "text", "text": stand_in(part)}
        case ToolCall():
            base = {"type": "tool_use", "id": wire_id(part.id), "name": part.name, "input": input_of(part)}
            return merged(base, part.extra, FORM)
        case ToolResult():
            return _written_result(part)
        case Reasoning():
            return own(part, FORM)
        case Other():
            return own(part, FORM) or {"type": "text", "text": stand_in(part)}


def _written_image(image: Image) -> dict[str, Any]:
    inline = _DATA_URL.fullmatch(image.url)
    if inline:
        source = {"type": "base64", "media_type": inline[1], "data": inline[2]}
    elif image.url:
        source = {"type": "url", "url": image.url}
    else:
        source = {"type": "file", "file_id": image.file}
    return merged({"type": "image", "source": source}, image.extra, FORM)


def _written_result(result: ToolResult) -> dict[str, Any]:
    written = [_written(part) for part in result.content]
    base: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": wire_id(result.call_id),
        "content": _content([block for block in written if block is not None]),
    }
    if result.is_error:
        base["is_error"] = True
    return merged(base, result.extra, FORM)


def _content(blocks: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """One plain text as text, anything else as a list."""
    if not blocks:
        return ""
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0].keys() == {"type", "text"} else blocks

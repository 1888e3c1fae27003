"""Conversations as text for the model that summarises them: no calls to be declared, and as long as it may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.context.window import WindowSummary
from holdfast.core.messages import Image, Message, Other, Part, Text, ToolCall, ToolResult
from holdfast.core.messages.tokens import MESSAGE_TOKENS, Counter, count, estimate

TASK = (
    "You keep the notes of an assistant that will go on working with your summary instead of what you are shown. Keep "
    "what the user wants, what was decided and why, facts with their names and numbers, what tools gave, and what is "
    "still open. Leave out pleasantries. If there is a summary of what came before, yours takes its place: keep what "
    "matters of it. Use at most {words} words, and give nothing but the summary."
)

WORDS_PER_TOKEN = (3, 5)
"""How many words a model is asked for, for the tokens there are: rather too few."""


def space(max_tokens: int, room: int) -> int:
    """Return how many tokens of messages fit into one request, beside the question and the earlier summary."""
    return max(max_tokens // 4, (max_tokens - room) * 7 // 8 - 128)


def request(
    messages: Sequence[Message], earlier: str, *, max_tokens: int, room: int, counter: Counter | None = None
) -> list[dict[str, Any]]:
    """Build the request for a summary: in chat form, within the limit however long the messages are."""
    most, per = WORDS_PER_TOKEN
    asked = TASK.format(words=max(10, room * most // per))
    before = f"Summary of what came before:\n{earlier}\n\n" if earlier else ""
    measure = counter or estimate
    left = max_tokens - 2 * MESSAGE_TOKENS - measure(f"system\n{asked}") - measure(f"user\n{before}")
    said = before + _fitted([_line(message) for message in messages], max(left, 0), measure)
    return [{"role": "system", "content": asked}, {"role": "user", "content": said}]


def brief(text: str, room: int, counter: Counter | None = None) -> str:
    """A summary cut from its end until it has the room there is."""
    least, most = 0, len(text)
    if _size(text, counter) <= room:
        return text
    while least < most:
        middle = (least + most + 1) // 2
        if _size(f"{text[:middle]} …", counter) <= room:
            least = middle
        else:
            most = middle - 1
    return f"{text[:least]} …"


def _size(text: str, counter: Counter | None) -> int:
    return count(WindowSummary(text, ()).message(), counter).tokens


def _line(message: Message) -> str:
    said = "\n".join(words for part in message.parts if (words := _words(part)))
    return f"{message.role}: {said}"


def _words(part: Part) -> str:
    match part:
        case Text():
            return part.text
        case ToolCall():
            return f"[calls {part.name}({part.arguments}), as {part.id}]"
        case ToolResult():
            said = "\n".join(words for inner in part.content if (words := _words(inner)))
            return f"[result of {part.call_id}{', an error' if part.is_error else ''}] {said}"
        case Image():
            return "[image]"
        case Other():
            return part.text or f"[{part.kind}]"
        case _:
            return ""


def _fitted(lines: list[str], max_tokens: int, measure: Counter) -> str:
    """The lines in one, the longest of them cut in their middle until all of it fits."""
    whole = "\n".join(lines)
    if measure(whole) <= max_tokens:
        return whole
    least, most = 0, max(map(len, lines), default=0)
    while least < most:
        middle = (least + most + 1) // 2
        if measure("\n".join(_cut(line, middle) for line in lines)) <= max_tokens:
            least = middle
        else:
            most = middle - 1
    return "\n".join(_cut(line, least) for line in lines)


def _cut(line: str, size: int) -> str:
    if len(line) <= size:
        return line
    head = -(-2 * size // 3)
    return f"{line[:head]} […] {line[len(line) - (size - head) :]}"

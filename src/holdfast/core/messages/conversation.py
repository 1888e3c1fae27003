"""Conversations in each provider's form: parsed, rendered, and checked at the door. `grouping` repairs them.

What a form cannot carry, `losses` names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, cast

from msgspec.structs import replace

from holdfast.core import codec, names
from holdfast.core.messages import anthropic, openai_chat, openai_responses
from holdfast.core.messages.grouping import Arranged, groups
from holdfast.core.messages.message import (
    FORMS,
    Extra,
    Form,
    Image,
    Message,
    Other,
    Part,
    Reasoning,
    ToolResult,
    both,
    refuse,
)

_MODULES: dict[Form, Any] = {"chat": openai_chat, "responses": openai_responses, "anthropic": anthropic}

system = anthropic.system


# Forms


def parse(message: Mapping[str, Any], form: Form = "chat", *, path: str = "message") -> tuple[Message, ...]:
    """Read a provider's message; only Anthropic's, which can hold several results, may become more than one.

    >>> parse({"role": "user", "content": "Is the disk full?"})
    (Message(role='user', parts=(Text(text='Is the disk full?', extra=None),), extra=None),)
    """
    if not isinstance(cast("object", message), Mapping):
        refuse(path, f"is {names.a(type(message).__name__)}, not an object", "wrong-type", "give a dict")
    return _MODULES[checked_form(form)].parse(message, path)


def parse_all(messages: Iterable[Mapping[str, Any]], form: Form = "chat") -> list[Message]:
    """Read a provider's list of messages, or of items."""
    return [one for index, given in enumerate(messages) for one in parse(given, form, path=f"messages[{index}]")]


def render(messages: Sequence[Message], form: Form = "chat") -> list[dict[str, Any]]:
    """Write messages in a provider's form, each result right after its call. (Anthropic: `system` gives the rest.)

    What the form cannot carry is left out (reasoning of another provider) or written as text; `losses` lists it. Calls
    without results and results without calls are written as they are: `repair` first.

    >>> render([Message("user", (Text("Is the disk full?"),))], "responses")
    [{'type': 'message', 'role': 'user', 'content': 'Is the disk full?'}]
    """
    return joined([written(Arranged(messages).in_order(), checked_form(form))], form)


def written(ordered: Sequence[Message], form: Form) -> list[dict[str, Any]]:
    """Write whole groups, each result after its call: a part of a conversation, which `joined` makes whole."""
    return _MODULES[form].render(_joined(ordered) if form == "chat" else ordered)


def joined(parts: Iterable[list[dict[str, Any]]], form: Form) -> list[dict[str, Any]]:
    """Join parts that were written in this form to a whole conversation. What is in it is still that of the parts."""
    if form == "anthropic":
        return anthropic.opened(anthropic.joined(parts))
    return list(chain.from_iterable(parts))


def losses(messages: Sequence[Message], form: Form) -> list[str]:
    """Say what `render` cannot write in this form."""
    found: list[str] = []
    for index, message in enumerate(messages):
        found += [f"message {index}: {loss}" for loss in _lost_fields(message.extra, form)]
        for part in message.parts:
            inside = part.content if isinstance(part, ToolResult) else ()
            found += [f"message {index}: {loss}" for one in (part, *inside) for loss in _losses(one, message, form)]
    return found


def _losses(part: Part, message: Message, form: Form) -> list[str]:
    ours = part.extra is not None and part.extra.form == form
    match part:
        case Reasoning():
            return [] if ours else ["reasoning of another provider is left out"]
        case Other():
            return [] if ours else [f"{part.kind!r} is written as text"]
        case Image():
            shown = ("user",) if form == "chat" else ("user", "tool")
            fits = message.role in shown and (bool(part.url) or form != "chat")
            return _lost_fields(part.extra, form) if fits else ["an image is written as text"]
        case ToolResult() if part.is_error and form != "anthropic":
            return ["that a result is an error is written as text", *_lost_fields(part.extra, form)]
        case _:
            return _lost_fields(part.extra, form)


def _lost_fields(extra: Extra | None, form: Form) -> list[str]:
    if extra is None or extra.form == form:
        return []
    return [f"the fields {sorted(extra.decoded())} of another provider are left out"]


def checked_form(form: Form) -> Form:
    """Refuse a form that no provider has."""
    if not isinstance(form, str) or form not in _MODULES:  # pyright: ignore[reportUnnecessaryIsInstance]
        refuse("form", f"is {form!r}", "unknown-form", f"use one of {', '.join(FORMS)}")
    return form


def _joined(messages: Sequence[Message]) -> list[Message]:
    """The assistant's messages of one group as one: chat wants a reply's calls in one message."""
    joined: list[Message] = []
    for group in groups(messages):
        for index in group:
            message = messages[index]
            last = joined[-1] if joined and index > group.start else None
            if last is not None and last.calls and message.role == "assistant":
                parts, extra = last.parts + message.parts, both(last.extra, message.extra, "chat")
                joined[-1] = replace(last, parts=parts, extra=extra)
            else:
                joined.append(message)
    return joined


# At the door


def check(
    message: Mapping[str, Any],
    form: Form = "chat",
    *,
    open: Collection[str] = (),
    seen: Collection[str] = (),
    path: str = "message",
) -> tuple[Message, ...]:
    """Refuse a message that could never be sent, naming the place and the reason; give it as it was read.

    `open` are the ids of calls that still wait for a result, `seen` those of all calls of the conversation.
    """
    codec.pack(message, path)
    parsed = parse(message, form, path=path)
    check_calls(parsed, open, seen, path)
    for one in parsed:
        # A model's reply may be empty; an empty message of another role is a mistake.
        if not one.parts and (message.get("content") is None) and (one.role != "assistant" or one.extra is None):
            refuse(f"{path}.content", "is missing", "no-content", "say something, or add no message")
    return parsed


def check_calls(parsed: Iterable[Message], open: Collection[str], seen: Collection[str], path: str = "message") -> None:
    """Refuse a result without a call that waits for it, and a call under an id that was used before."""
    made: set[str] = set()
    answered: set[str] = set()
    for one in parsed:
        if one.role == "tool":
            id = one.result.call_id
            _check_result(id, (id in open or id in made) and id not in answered, id in seen or id in answered, path)
            answered.add(id)
        for call in one.calls:
            if call.id in seen or call.id in open or call.id in made:
                refuse(path, f"uses the call id {call.id!r} again", "duplicate-call", "each call needs its own id")
            made.add(call.id)


def _check_result(id: str, waits: bool, known: bool, path: str) -> None:
    if not waits:
        why = "has its result already" if known else "is not in the conversation"
        reason = "duplicate-result" if known else "orphan-result"
        remedy = "a call has one result" if known else "add the message with the call first"
        refuse(path, f"is the result of call {id!r}, which {why}", reason, remedy)

"""Messages as they are kept in the log: in chat form where that says all, else in the neutral one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from holdfast.core import codec
from holdfast.core.errors import InvalidMessage, NotSerializable
from holdfast.core.messages import conversation
from holdfast.core.messages.conversation import Form, Message
from holdfast.core.messages.grouping import Groups
from holdfast.core.messages.tokens import Count, estimate_tokens, reported
from holdfast.core.usage import USAGE

ASIDE = (USAGE, "model", "finish_reason")
"""What a reply says about itself. It is kept with the message and not sent back."""

LEAST_SHARE = 4
"""A provider's count is not believed when the estimate is this many times as much."""


def admitted(given: Any, form: Form, known: Groups | None, path: str = "message") -> list[Mapping[str, Any]]:
    """Return the part of a message to keep; refuse one that no provider would take back, with the place and reason.

    `known` are the calls of the conversation; without it, no message may have calls or be a result.
    """
    if isinstance(given, Message):
        return [_admitted_typed(given, known, path)]
    if not isinstance(given, Mapping):
        why, hint = f"is {given!r}, which is not a message", 'give {"role": "user", "content": …}'
        conversation.refuse(path, why, "wrong-type", hint)
    message = cast("Mapping[str, Any]", given)
    open, seen = ({}, {}) if known is None else (known.open, known.seen)
    try:
        parsed = conversation.check(message, form, open=open, seen=seen, path=path)
    except NotSerializable as error:
        raise InvalidMessage(error.message, hint=error.hint, reason="not-json", **error.details) from error
    return [message] if form == "chat" else [_kept(one) for one in parsed]


def has_calls(given: Any, form: Form) -> bool:
    """Return whether a message may have calls, or be the result of one: only then the conversation's calls matter."""
    if isinstance(given, Message):
        return given.role == "tool" or bool(given.calls)
    if form != "chat" or not isinstance(given, Mapping):
        return True
    message = cast("Mapping[str, Any]", given)
    return message.get("role") == "tool" or bool(message.get("tool_calls"))


def read(value: Any, path: str = "message") -> Message:
    """A message of the log."""
    if isinstance(value, Mapping) and "parts" in value and "content" not in value:
        return codec.load(codec.raw(codec.dump(value)), Message)
    return conversation.parse(_sendable(value), path=path)[0]


def of_item(item: Any) -> list[Mapping[str, Any]]:
    """What an item that was kept as it was given says, as messages; nothing if no form here can read it."""
    for form in _ITEM_FORMS:
        try:
            parsed = conversation.parse(_sendable(item), form)
        except InvalidMessage:
            continue
        return [item] if form == "chat" else [_kept(one) for one in parsed]
    return []


_ITEM_FORMS: tuple[Form, ...] = ("chat", "responses")


def counted(value: Any) -> Count | None:
    """Return the provider's own count of a reply, if it is there and can be believed."""
    reply: Mapping[str, Any] = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
    return reported(reply, estimate_tokens(read(reply)) // LEAST_SHARE) if reply.get(USAGE) else None


def _admitted_typed(message: Message, known: Groups | None, path: str) -> Mapping[str, Any]:
    if not message.parts:
        conversation.refuse(f"{path}.parts", "is empty", "no-content", "say something, or add no message")
    conversation.check_calls((message,), {} if known is None else known.open, {} if known is None else known.seen, path)
    return _kept(message)


def _kept(message: Message) -> Mapping[str, Any]:
    written = conversation.render([message]) if not conversation.losses([message], "chat") else []
    if len(written) == 1 and codec.as_json(conversation.parse(written[0])) == codec.as_json([message]):
        return written[0]
    return codec.as_json(message)


def _sendable(value: Any) -> Any:
    if isinstance(value, Mapping) and any(name in value for name in ASIDE):
        reply = cast("Mapping[str, Any]", value)
        if reply.get("role") == "assistant":
            return {name: one for name, one in reply.items() if name not in ASIDE}
    return cast("Any", value)

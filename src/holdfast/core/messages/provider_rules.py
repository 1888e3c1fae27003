"""What each provider refuses: the rules of a request's messages, checked on what would be sent.

These know nothing of how messages are made; they read a provider's own form, as the provider does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from holdfast.core.messages.message import Form

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_RESULT_TYPES = ("function_call_output", "custom_tool_call_output")
_CALL_TYPES = ("function_call", "custom_tool_call")

Sent = Sequence[Mapping[str, Any]]


def problems(messages: Sent, form: Form, *, held: Collection[str] = ()) -> list[str]:
    """Say what a provider would refuse; nothing if it would take these messages.

    `held` are the ids of calls the provider itself remembers (Responses with `previous_response_id`): their results
    may come without them.

    >>> problems([{"role": "tool", "tool_call_id": "c1", "content": "91 %"}], "chat")
    ["messages[0] is the result of 'c1', which no message before it calls"]
    """
    if not messages:
        return ["there is no message"]
    match form:
        case "chat":
            return _Chat(held).problems(messages)
        case "responses":
            return _Responses(held).problems(messages)
        case "anthropic":
            return _Anthropic(held).problems(messages)


class _Rules:
    """What all have in common: which calls are open, which were answered, and what was found wrong."""

    def __init__(self, held: Collection[str]) -> None:
        self.open: dict[str, None] = {}
        self.seen: set[str] = set(held)
        self.held: set[str] = set(held)
        self.answered: set[str] = set()
        self.found: list[str] = []

    def problems(self, messages: Sent) -> list[str]:
        for index, message in enumerate(messages):
            self.one(f"messages[{index}]", message, messages[index - 1] if index else None)
        self.end(messages)
        self.nothing_open("the end")
        return self.found

    def one(self, at: str, message: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
        raise NotImplementedError

    def end(self, messages: Sent) -> None:
        """Check the rules that need all messages."""

    def wrong(self, text: str) -> None:
        self.found.append(text)

    def call(self, at: str, id: Any) -> None:
        if not isinstance(id, str) or not id:
            self.wrong(f"{at} has a call without an id")
        elif id in self.seen:
            self.wrong(f"{at} uses the call id {id!r} again")
        else:
            self.seen.add(id)
            self.open[id] = None

    def result(self, at: str, id: Any) -> None:
        if id in self.answered:
            self.wrong(f"{at} is another result of {id!r}")
        elif id in self.open or id in self.held:
            self.open.pop(id, None)
            self.answered.add(id)
        else:
            self.wrong(f"{at} is the result of {id!r}, which no message before it calls")

    def nothing_open(self, at: str) -> None:
        if self.open:
            self.wrong(f"{at} comes before the results of {', '.join(map(repr, self.open))}")
            self.answered |= set(self.open)
            self.open.clear()


class _Chat(_Rules):
    def one(self, at: str, message: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            self.result(at, message.get("tool_call_id"))
        elif role in ("system", "developer", "user", "assistant"):
            self.nothing_open(at)
        else:
            self.wrong(f"{at} has the role {role!r}")
        calls = message.get("tool_calls")
        if calls == []:
            self.wrong(f"{at} has an empty list of calls")
        if calls and role != "assistant":
            self.wrong(f"{at} has calls, but is of the role {role!r}")
        for call in calls or ():
            self.call(at, call.get("id"))
        if (content is None and not (calls or message.get("function_call"))) or content == []:
            self.wrong(f"{at} has no content")
        for block in _blocks(content):
            if block.get("type") != "text" and role != "user" and (role, block.get("type")) != ("assistant", "refusal"):
                self.wrong(f"{at} has a part of the type {block.get('type')!r}, which only a user's message may have")


class _Responses(_Rules):
    """A flat list. Reasoning belongs to the item after it, so it is never the last of a reply."""

    def one(self, at: str, message: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
        kind = message.get("type", "message")
        replied = kind in ("reasoning", *_CALL_TYPES) or (kind == "message" and message.get("role") == "assistant")
        known = kind in _RESULT_TYPES or kind == "message"
        if before is not None and before.get("type") == "reasoning" and known and not replied:
            self.wrong(f"{at} comes where the item should be that the reasoning before it led to")
        if kind in _CALL_TYPES:
            self.call(at, message.get("call_id"))
        elif kind in _RESULT_TYPES:
            self.result(at, message.get("call_id"))
        elif kind == "message":
            self._message(at, message)

    def end(self, messages: Sent) -> None:
        if messages[-1].get("type") == "reasoning":
            self.wrong("the last item is reasoning, without the item it led to")

    def _message(self, at: str, message: Mapping[str, Any]) -> None:
        role, content = message.get("role"), message.get("content")
        if role not in ("system", "developer", "user", "assistant"):
            self.wrong(f"{at} has the role {role!r}")
        if role != "assistant":
            self.nothing_open(at)
        if content is None or content == []:
            self.wrong(f"{at} has no content")
        wanted = ("output_text", "refusal") if role == "assistant" else ("input_",)
        for block in () if isinstance(content, str) else _blocks(content):
            if not str(block.get("type")).startswith(wanted):
                self.wrong(f"{at} of the role {role!r} has a part of the type {block.get('type')!r}")


class _Anthropic(_Rules):
    """Turns. The results of a message's calls come first in the very next message, all of them."""

    def one(self, at: str, message: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
        role, blocks = message.get("role"), _blocks(message.get("content"))
        if role not in ("user", "assistant"):
            self.wrong(f"{at} has the role {role!r}; the system text stands apart")
        if before is None and role != "user":
            self.wrong(f"{at} is the first, and not the user's")
        if before is not None and before.get("role") == role:
            self.wrong(f"{at} is of the role {role!r}, like the one before it")
        if not message.get("content"):
            self.wrong(f"{at} has no content")
        if message.keys() - {"role", "content"}:
            self.wrong(f"{at} has the fields {sorted(message.keys() - {'role', 'content'})}, which are not taken")
        if role == "assistant":
            self._assistant(at, blocks)
        else:
            self._user(at, blocks)

    def _assistant(self, at: str, blocks: list[Mapping[str, Any]]) -> None:
        for block in blocks:
            if block.get("type") == "tool_use":
                self.call(at, block.get("id"))
                if not _ID.fullmatch(str(block.get("id"))):
                    self.wrong(f"{at} has the call id {block.get('id')!r}, with characters that are not taken")
                if not isinstance(block.get("input"), Mapping):
                    self.wrong(f"{at} has a call whose input is not an object")
            elif block.get("type") in ("tool_result", "image"):
                self.wrong(f"{at} has a {block.get('type')}, which only a user's message may have")
            self._text(at, block)

    def _user(self, at: str, blocks: list[Mapping[str, Any]]) -> None:
        late = False
        for block in blocks:
            if block.get("type") == "tool_result":
                if late:
                    self.wrong(f"{at} has a tool result after something else")
                self.result(at, block.get("tool_use_id"))
                for inner in _blocks(block.get("content")):
                    self._text(at, inner)
            else:
                late = True
                if block.get("type") in ("tool_use", "thinking", "redacted_thinking"):
                    self.wrong(f"{at} has a {block.get('type')}, which only the assistant's message may have")
            self._text(at, block)
        self.nothing_open(f"the end of {at}")

    def _text(self, at: str, block: Mapping[str, Any]) -> None:
        if block.get("type") == "text" and not str(block.get("text", "")).strip():
            self.wrong(f"{at} has an empty text")


def _blocks(content: Any) -> list[Mapping[str, Any]]:
    """The parts of content; a plain text is one."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [cast("Mapping[str, Any]", block) for block in content or () if isinstance(block, Mapping)]

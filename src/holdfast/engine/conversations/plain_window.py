"""`holdfast.window`: what fits of a list of messages that no task holds."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Raw

from holdfast.core import codec
from holdfast.core.codec import MessagesRef
from holdfast.core.errors import InvalidMessage
from holdfast.core.messages import Form, Groups, Message, stored
from holdfast.core.messages.tokens import Counter
from holdfast.engine.conversations.conversation import Conversation, Counted, Sent, Shown


def window(
    messages: Iterable[Mapping[str, Any] | Message],
    *,
    max_tokens: int | None = None,
    keep_last: int | None = None,
    keep_turns: int | None = None,
    pinned: Collection[int] = (),
    reserve: int = 0,
    counter: Counter | None = None,
    form: Form = "chat",
) -> Sent:
    """Return what fits of a plain list of messages into so many tokens; the parameters are those of a task's window.

    System messages, what is pinned and the newest are kept, calls with their results; the oldest go first. Nothing is
    stored. `form` is the provider's form of the messages given. The list is of chat-completions messages, and has
    `.tokens`, `.left_out` and `.render(form)`.

    >>> talk = [{"role": "user", "content": word} for word in ("one", "two", "three")]
    >>> [one["content"] for one in window(talk, max_tokens=15, keep_last=1)]
    ['two', 'three']
    """
    if isinstance(messages, Mapping | str | bytes) or not isinstance(messages, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidMessage(
            "messages is not a list of messages", hint='give [{"role": "user", "content": …}]', reason="wrong-type"
        )
    raws: list[tuple[int, Raw]] = []
    calls, digest = Groups(), ""
    for position, given in enumerate(messages):
        where = f"messages[{position}]"
        for one in stored.admitted(given, form, calls, where):
            raw = codec.pack(one, where)
            digest = codec.running(digest, raw)
            raws.append((0, raw))  # at no place of a log
            calls.add(stored.read(one, where))
    shown, ref = Shown(raws, len(raws), (), len(raws)), MessagesRef("", len(raws), digest)
    counted = Counted(lambda raw: codec.unpack(raw, _no_blob), None, threading.RLock(), place="of the list")
    limits: dict[str, Any] = {"max_tokens": max_tokens, "keep_last": keep_last, "keep_turns": keep_turns}
    talk = Conversation(shown, ref, counted, None)
    return talk.window(**limits, pinned=pinned, reserve=reserve, counter=counter)


def _no_blob(hash: str) -> bytes:
    raise AssertionError("what is packed here is whole")

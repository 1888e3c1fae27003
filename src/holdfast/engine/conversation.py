"""The conversation as an agent sees it: a list of messages that knows its identity, and what of it fits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from holdfast.core import messages, window
from holdfast.core.codec import MessagesRef
from holdfast.core.messages import Form, Message
from holdfast.core.tally import Tally
from holdfast.core.tokens import Counter


class Counted:
    """What was read and counted of a task's conversation, kept from turn to turn: a message is looked at once."""

    def __init__(self) -> None:
        self._tallies: dict[Counter | None, tuple[Tally, list[Message]]] = {}

    def upto(self, shown: Sequence[Any], settled: int, counter: Counter | None) -> tuple[Tally, list[Message]]:
        """The tally of these messages. The first `settled` of them are in the log, and stay counted."""
        tally, read = self._tallies.setdefault(counter, (Tally(counter), []))
        for message in shown[len(read) : settled]:
            _add(tally, read, message)
        if settled == len(read) == len(shown):
            return tally, read
        fresh = Tally(counter)  # what is only said so far, or an earlier view: not worth remembering
        seen: list[Message] = []
        for message in shown:
            _add(fresh, seen, message)
        return fresh, seen


def _add(tally: Tally, read: list[Message], message: Any) -> None:
    for one in messages.parse(message, path=f"messages[{len(read)}]"):
        tally.add(one)
        read.append(one)


class Sent(list[Any]):
    """Messages in chat-completions form, as they are sent. As a step's input only their identity is recorded."""

    def __init__(self, chosen: Sequence[Message], ref: MessagesRef, left_out: str = "") -> None:
        super().__init__(messages.render(chosen))
        self._chosen = chosen
        self.ref = ref
        self.left_out = left_out
        """What does not fit, in words; empty if everything does."""

    def render(self, form: Form) -> list[dict[str, Any]]:
        """The same messages for another provider: "responses" or "anthropic"."""
        return messages.render(self._chosen, form)


class Conversation(list[Any]):
    """The messages so far. As a step's input only their identity is recorded: whose, how many, their running digest."""

    def __init__(self, shown: Sequence[Any], ref: MessagesRef, counted: Counted, settled: int) -> None:
        super().__init__(shown)
        self.ref = ref
        self._counted = counted
        self._settled = settled

    def window(
        self,
        *,
        max_tokens: int,
        keep_last: int = window.KEEP_LAST,
        pinned: Collection[int] = (),
        reserve: int = 0,
        counter: Counter | None = None,
    ) -> Sent:
        """What fits into so many tokens: whole groups, the newest first, the system's and what is pinned always.

        `counter` counts a text's tokens; without one they are estimated. `reserve` is kept free, for tools' schemas.
        """
        tally, read = self._counted.upto(self, self._settled, counter)
        chosen = window.window(tally, max_tokens=max_tokens, keep_last=keep_last, pinned=pinned, reserve=reserve)
        kept = window.fitted(chosen, tally, [read[position] for position in chosen.positions])
        return Sent(kept, self.ref, str(chosen) if chosen.left_out or chosen.shortened else "")

    def render(self, form: Form = "chat") -> list[dict[str, Any]]:
        """All of it in a provider's form."""
        return messages.render(messages.parse_all(self), form)

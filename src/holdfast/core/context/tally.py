"""Running totals of a conversation: tokens, groups and roles, so that a window costs the same however long it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from holdfast.core.messages import Groups, Message, Text
from holdfast.core.messages.spans import below
from holdfast.core.messages.tokens import Basis, Count, Counter, count


class Tally:
    """Running totals of a conversation. Keep it, and add each message once; a window is then cheap.

    >>> tally = Tally.of([Message("system", (Text("Be brief."),)), Message("user", (Text("Is the disk full?"),))])
    >>> len(tally), tally.totals[-1]
    (2, 19)

    With `max_result_tokens`, a longer tool result is always shortened to that.
    """

    def __init__(self, counter: Counter | None = None, *, max_result_tokens: int | None = None) -> None:
        self.counter = counter
        self.groups = Groups()
        self.totals = [0]
        self.systems: list[int] = []
        self.users: list[int] = []
        self.roles: list[str] = []
        self.floors: dict[int, int] = {}
        """Results that can be shortened: position → what is the least they can be."""
        self.capped: dict[int, int] = {}
        """Results that are always shortened: position → what they may be."""
        self._capped_at: list[int] = []
        self._pointers: dict[int, str] = {}
        self._estimates = [0]
        self._exacts = [0]
        self._cap = max_result_tokens

    @classmethod
    def of(
        cls, messages: Iterable[Message], counter: Counter | None = None, *, max_result_tokens: int | None = None
    ) -> Tally:
        """The tally of these messages."""
        tally = cls(counter, max_result_tokens=max_result_tokens)
        for message in messages:
            tally.add(message)
        return tally

    def __len__(self) -> int:
        return len(self.roles)

    def add(self, message: Message, counted: Count | None = None, *, pointer: str = "") -> Count:
        """Take the next message, with its count if that is known; the pointer says where a result is in full.

        However a result was counted, what it is when shortened is measured with the counter.
        """
        position = len(self.roles)
        counted = counted or count(message, self.counter)
        tokens = counted.tokens
        self.groups.add(message)
        self.roles.append(message.role)
        if message.role in ("system", "developer"):
            self.systems.append(position)
        elif message.role == "user":
            self.users.append(position)
        elif message.role == "tool":
            tokens = self._add_result(position, message, tokens, pointer)
        self.totals.append(self.totals[-1] + tokens)
        self._estimates.append(self._estimates[-1] + (counted.basis == "estimate"))
        self._exacts.append(self._exacts[-1] + (counted.basis == "exact"))
        return counted

    def rewind(self, count: int) -> None:
        """Forget all but the first messages."""
        self.groups.rewind(count)
        for position in range(count, len(self.roles)):
            self.floors.pop(position, None)
            self._pointers.pop(position, None)
            self.capped.pop(position, None)
        for sums in (self.totals, self._estimates, self._exacts):
            del sums[count + 1 :]
        for positions in (self.systems, self.users, self._capped_at):
            del positions[below(positions, count) :]
        del self.roles[count:]

    def _add_result(self, position: int, message: Message, tokens: int, pointer: str) -> int:
        floor = count(_cut(message, 0, pointer), self.counter).tokens
        if floor < tokens:
            self.floors[position] = floor
            if pointer:
                self._pointers[position] = pointer
        if self._cap is not None and floor < tokens > self._cap:
            tokens = self.capped[position] = max(self._cap, floor)
            self._capped_at.append(position)
        return tokens

    def tokens(self, span: range) -> int:
        """The tokens of a range of messages."""
        return self.totals[span.stop] - self.totals[span.start]

    def basis(self, spans: Sequence[range]) -> Basis:
        """Return how a range was counted: the weakest method in it."""
        if any(self._estimates[span.stop] > self._estimates[span.start] for span in spans):
            return "estimate"
        exact = any(self._exacts[span.stop] > self._exacts[span.start] for span in spans)
        return "exact" if exact or not spans else "reported"

    def capped_in(self, spans: Sequence[range]) -> dict[int, int]:
        """The results among these that are always shortened."""
        found = self._capped_at
        return {
            position: self.capped[position]
            for span in spans
            for position in found[below(found, span.start) : below(found, span.stop)]
        }

    def shorten(self, position: int, message: Message, max_tokens: int) -> Message:
        """A tool message cut to so many tokens, with its pointer."""
        return shorten(message, max_tokens, counter=self.counter, pointer=self._pointers.get(position, ""))


def shorten(message: Message, max_tokens: int, *, counter: Counter | None = None, pointer: str = "") -> Message:
    """Cut the text of a tool message, from its middle, until the message has so many tokens; say what is missing.

    >>> from holdfast.core.messages import ToolCall, answer
    >>> print(shorten(answer(ToolCall("c1", "cat"), "=" * 1000), 60, pointer="all of it is artifact a1").text)
    ============================
    [958 of 1,000 characters left out; all of it is artifact a1]
    ==============
    """
    if count(message, counter).tokens <= max_tokens:
        return message
    least, most = 0, min(len(message.text), 16 * max_tokens)
    while least < most:
        middle = (least + most + 1) // 2
        if count(_cut(message, middle, pointer), counter).tokens <= max_tokens:
            least = middle
        else:
            most = middle - 1
    return _cut(message, least, pointer)


def _cut(message: Message, size: int, pointer: str) -> Message:
    """A tool message with so many characters of its text: two thirds from its beginning, the rest from its end."""
    result, text = message.result, message.text
    head = -(-2 * size // 3)
    tail = text[len(text) - (size - head) :]
    pointer = pointer or f"the whole is the result of call {result.call_id}"
    note = f"[{len(text) - size:,} of {len(text):,} characters left out; {pointer}]"
    said = f"{text[:head]}\n{note}\n{tail}" if size else note
    return replace(message, parts=(replace(result, content=(Text(said),)),))

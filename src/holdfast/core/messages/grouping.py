"""Whole groups of messages: found, repaired, and checked at the door.

A *group* is what can only be kept or left out together: a message of the user; or a reply with its reasoning, all its
calls and all their results. Nothing is ever silently dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.core.messages.message import Message, Part, Reasoning, ToolCall, answer
from holdfast.core.messages.spans import below

NO_RESULT = "error: no result was recorded for this call; whether it happened is not known"
"""What a call without a result is answered with, so that the model knows."""


class Groups:
    """Where whole groups begin. It grows with the conversation, a message at a time."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.open: dict[str, int] = {}
        """Calls without a result, each with the position of its message."""
        self.seen: dict[str, int] = {}
        """All calls, each with the position of the message that first made it."""
        self._last: Message | None = None
        self._thinking = False
        self._before: list[_Before] = []

    def __len__(self) -> int:
        return len(self._before)

    def add(self, message: Message) -> None:
        """Take the next message. A late result draws all that came since its call into one group."""
        at, whole = len(self), len(self.starts)
        closes = message.result.call_id if message.role == "tool" else None
        since = self.open.get(closes, at) if closes is not None else at
        drawn = tuple(self.starts[below(self.starts, since + 1) :])
        made = tuple((call.id, self.open.get(call.id), call.id not in self.seen) for call in message.calls)
        closed = None if closes is None or since == at else (closes, since)
        self._before.append(_Before(self._last, self._thinking, whole, drawn, closed, made))
        self._take(message, at)

    def rewind(self, count: int) -> None:
        """Forget all but the first messages, as if they had never come."""
        while len(self) > count:
            was = self._before.pop()
            self._last, self._thinking = was.last, was.thinking
            self.starts[was.starts - len(was.drawn) :] = was.drawn
            for id, opened, first in reversed(was.made):
                self.open.pop(id, None)
                if opened is not None:
                    self.open[id] = opened
                if first:
                    self.seen.pop(id, None)
            if was.closed is not None:
                self.open[was.closed[0]] = was.closed[1]

    def _take(self, message: Message, at: int) -> None:
        if message.role == "tool":
            called = self.open.pop(message.result.call_id, None)
            if called is None:
                self.starts.append(at)
            while called is not None and self.starts[-1] > called:
                self.starts.pop()
        elif not self._joins(message):
            self.starts.append(at)
            self._thinking = False
        for part in message.parts:
            if isinstance(part, ToolCall):
                self.open[part.id] = at
                self.seen.setdefault(part.id, at)
            self._thinking = self._thinking or isinstance(part, Reasoning)
        self._last = message

    def _joins(self, message: Message) -> bool:
        """Return whether a message belongs to the group before it."""
        if self._last is None:
            return False
        pending = any(called >= self.starts[-1] for called in self.open.values())
        if message.role != "assistant":
            return pending
        if self._last.role != "assistant":
            return False
        begins = bool(message.parts) and isinstance(message.parts[0], Reasoning)
        only_thought = all(isinstance(part, Reasoning) for part in self._last.parts) and bool(self._last.parts)
        return pending or only_thought or (self._thinking and not begins)


class _Before(NamedTuple):
    """What a message changed, to be able to take it back."""

    last: Message | None
    thinking: bool
    starts: int
    drawn: tuple[int, ...]
    closed: tuple[str, int] | None
    made: tuple[tuple[str, int | None, bool], ...]


def groups(messages: Iterable[Message]) -> list[range]:
    """The ranges that can only be kept or left out whole.

    >>> call = Message("assistant", (ToolCall("c1", "df"),))
    >>> groups([Message("user"), call, answer(call.calls[0], "91 %"), Message("assistant")])
    [range(0, 1), range(1, 3), range(3, 4)]
    """
    found = Groups()
    for message in messages:
        found.add(message)
    stops = [*found.starts[1:], len(found)]
    return [range(start, stop) for start, stop in zip(found.starts, stops, strict=False)]


def repair(
    messages: Sequence[Message], known: Mapping[str, str] | None = None, *, held: Collection[str] = ()
) -> tuple[list[Message], list[str]]:
    """Fix what providers refuse, and describe each change.

    Each call gets exactly one result, right after it: the one that is there, else the one the call ledger knows (text
    by call id), else an observation that none was recorded. A result without a call, and a second one, is left out, and
    so is reasoning that led to nothing; a call id used again is replaced. What is whole comes back as it is, without
    a note.

    >>> fixed, notes = repair([Message("assistant", (ToolCall("c1", "df"),))], {"c1": "91 %"})
    >>> fixed[1].text, notes
    ('91 %', ["call 'c1' had no result; it was filled in from the record of calls"])
    """
    arranged = Arranged(messages, known, held, mend=True)
    whole = arranged.in_order()
    return whole, arranged.notes + arranged.idle


class UsedIds:
    """The ids of the calls of messages that were sent before, each with the position of its group."""

    def __init__(self) -> None:
        self.at: dict[str, int] = {}
        self.numbers: dict[str, int] = {}
        """The id of a call → the number with which the next call of this id is likely to be unique."""

    def __contains__(self, id: str) -> bool:
        return id in self.at

    def take(self, arranged: Arranged, position: int) -> None:
        """Add the ids of a group."""
        self.at |= dict.fromkeys(arranged.used, position)
        self.numbers |= arranged.numbers

    def before(self, position: int) -> UsedIds:
        """Return those of the groups before a position."""
        made = UsedIds()
        made.at = {id: at for id, at in self.at.items() if at < position}
        return made


class Arranged:
    """Messages with each result right after its call. `before` are the calls of the groups in front of them."""

    def __init__(
        self,
        messages: Sequence[Message],
        known: Mapping[str, str] | None = None,
        held: Collection[str] = (),
        *,
        mend: bool = False,
        before: UsedIds | None = None,
    ) -> None:
        self.notes: list[str] = []
        self.idle: list[str] = []
        """The reasoning that was left out because it led to nothing, in words, the last one first."""
        self.used: set[str] = set()
        """The ids of the calls, as they are now."""
        self.numbers: dict[str, int] = {}
        self.renamed = False
        """Whether the id of a call was changed."""
        self.reaches_back = False
        """Whether a result is that of a call in the groups before."""
        self._before = before if before is not None else UsedIds()
        self._known = known or {}
        self._held = held
        self._mend = mend
        self._kept: list[Message] = []
        self._run_of: dict[str, int] = {}  # call id → position, in what is kept, of the last message of its reply
        self._ids: dict[str, str] = {}  # the id a result has → the id its call has now
        self._results: dict[int, dict[str, Message]] = {}  # that position → its results
        self._run = -1  # the reply whose results come next; none after a message of another role
        self._run_calls: list[str] = []
        for message in messages:
            self._take(message)

    def in_order(self) -> list[Message]:
        """All of it."""
        arranged: list[Message] = []
        calls = self._calls_by_run()
        for position, message in enumerate(self._kept):
            arranged.append(message)
            results = self._results.get(position, {})
            arranged += results.values()
            if self._mend:
                arranged += [self._missing(call) for call in calls.get(position, ()) if call.id not in results]
        return self._without_idle_thoughts(arranged) if self._mend else arranged

    def _calls_by_run(self) -> dict[int, list[ToolCall]]:
        found: dict[int, list[ToolCall]] = {}
        for message in self._kept:
            for call in message.calls:
                found.setdefault(self._run_of[call.id], []).append(call)
        return found

    def _without_idle_thoughts(self, messages: list[Message]) -> list[Message]:
        """Reasoning is refused without what it led to, so where that was lost it goes, too."""
        arranged: list[Message] = []
        for message in reversed(messages):
            parts = message.parts
            while parts and isinstance(parts[-1], Reasoning) and not (arranged and arranged[-1].role == "assistant"):
                self.idle.append(f"reasoning that led to nothing was left out: {parts[-1].text[:80]!r}")
                parts = parts[:-1]
            if parts or not message.parts:
                arranged.append(message if parts is message.parts else replace(message, parts=parts))
        return arranged[::-1]

    def _take(self, message: Message) -> None:
        if message.role == "tool":
            self._take_result(message)
        elif message.role == "assistant":
            self._take_reply(message)
        else:
            self._kept.append(message)
            self._run = -1

    def _take_reply(self, message: Message) -> None:
        if self._mend:
            message = self._with_own_ids(message)
        position = len(self._kept)
        if self._run < 0 or self._run in self._results:
            self._run_calls = []
        # Items of one reply (Responses) follow each other: the results of all its calls come after the last of them.
        self._run_calls += [call.id for call in message.calls]
        for id in self._run_calls:
            self._run_of[id] = position
            self._ids.setdefault(id, id)
        self._kept.append(message)
        self._run = position if self._run_calls else -1

    def _with_own_ids(self, message: Message) -> Message:
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                fresh = self._fresh(part.id)
                self.used.add(fresh)
                self._ids[part.id] = fresh
                if fresh != part.id:
                    self.notes.append(f"the call id {part.id!r} was used before; the later call became {fresh!r}")
                    part = replace(part, id=fresh)
            parts.append(part)
        return message if tuple(parts) == message.parts else replace(message, parts=tuple(parts))

    def _fresh(self, id: str) -> str:
        fresh, number = id, self.numbers.get(id) or self._before.numbers.get(id, 2)
        while fresh in self.used or fresh in self._before:
            fresh, number = f"{id}-{number}", number + 1
        if fresh != id:
            self.numbers[id] = number
            self.renamed = True
        return fresh

    def _take_result(self, message: Message) -> None:
        result = message.result
        id = self._ids.get(result.call_id)
        run = self._run_of.get(id) if id is not None else None
        if id is None or run is None:
            self.reaches_back = self.reaches_back or result.call_id in self._before
            return self._stray(message, "which is not in the conversation", kept=result.call_id in self._held)
        there = self._results.setdefault(run, {})
        if id in there and there[id].text != NO_RESULT:
            return self._stray(message, "which has one already", kept=False)
        if id in there:
            self.notes.append(f"call {id!r} was recorded as having no result; the one that came later took its place")
        elif run != self._run:
            self.notes.append(f"the result of call {id!r} was moved to its place, right after the call")
        there[id] = message if id == result.call_id else replace(message, parts=(replace(result, call_id=id),))
        return None

    def _stray(self, message: Message, why: str, *, kept: bool) -> None:
        if not self._mend or kept:
            self._kept.append(message)
            self._run = -1
        else:
            text = message.text
            shown = text if len(text) <= 80 else f"{text[:80]}… ({len(text):,} characters)"
            self.notes.append(f"a result of call {message.result.call_id!r}, {why}, was left out: {shown!r}")

    def _missing(self, call: ToolCall) -> Message:
        if call.id in self._known:
            self.notes.append(f"call {call.id!r} had no result; it was filled in from the record of calls")
            return answer(call, self._known[call.id])
        self.notes.append(f"call {call.id!r} had no result, and none is recorded; the model sees a note about it")
        return answer(call, NO_RESULT, is_error=True)

"""Whole groups of a conversation, repaired and written once. Closed groups never change, so their form doesn't either.

A window of a long conversation consists of such groups and of its newest messages. Only the newest are repaired and
written again for each window. `Outgoing` is such a window: parts that were written before, and messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from holdfast.core.messages import anthropic, conversation
from holdfast.core.messages.grouping import Arranged, Groups, UsedIds
from holdfast.core.messages.message import Form, Message
from holdfast.core.messages.spans import below
from holdfast.core.messages.tokens import Counter, count

COUNTERS = 4
"""How many counters' totals of repaired groups are kept."""


class WrittenGroups:
    """The whole groups from the position `start` of a conversation up to `stop`. It only grows; `cut` gives another."""

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.stop = start
        self.ids = UsedIds()
        """The ids of their calls, as sent."""
        self._starts: list[int] = []
        self._groups: list[Sequence[Message]] = []
        self._systems: list[tuple[int, Message]] = []
        self._repaired: list[_Repaired] = []
        self._grown: dict[Counter | None, tuple[int, int]] = {}
        self._forms: dict[Form, _Written] = {}

    @property
    def repaired(self) -> int:
        """The number of groups that repairs changed."""
        return len(self._repaired)

    def notes(self, count: int) -> list[str]:
        """The first repairs, in words, but for idle reasoning."""
        return [note for one in self._repaired[:count] for note in one.notes]

    def idle(self, count: int) -> list[str]:
        """The reasoning that the first repairs left out because it led to nothing, in words, the last one first."""
        return [note for one in reversed(self._repaired[:count]) for note in one.idle]

    def grow(self, groups: Groups, read: Sequence[Message]) -> None:
        """Take the groups that no later message can change: those before the last one and before open calls."""
        starts, until = groups.starts, min(groups.open.values(), default=len(read))
        for number in range(below(starts, self.stop), len(starts) - 1):
            after = starts[number + 1]
            if after > until or not self._take(read[starts[number] : after], read[after]):
                return

    def _take(self, group: Sequence[Message], after: Message) -> bool:
        """Take the next group, unless what a provider gets of it depends on messages that come later."""
        arranged = Arranged(group, mend=True, before=self.ids)
        noted = len(arranged.notes)
        whole = arranged.in_order()
        if arranged.reaches_back or len(arranged.notes) > noted:
            return False  # a second result of an earlier call, or a call without a result
        if arranged.idle and after.role in ("assistant", "tool"):
            return False  # whether reasoning led to anything is not known yet
        self.ids.take(arranged, self.stop)
        if arranged.notes or not same(group, whole):
            self._repaired.append(_Repaired(self.stop, arranged.notes, arranged.idle, group, whole))
        self._systems += [(self.stop, one) for one in whole if one.role in ("system", "developer")]
        self._starts.append(self.stop)
        self._groups.append(whole)
        self.stop += len(group)
        return True

    def cut(self, count: int) -> WrittenGroups:
        """Return the groups that can't change if all but the first messages are forgotten."""
        kept = max(0, below([*self._starts, self.stop], count) - 1)  # the last of them may get more messages
        made = WrittenGroups(self.start)
        made.stop = self._starts[kept] if kept < len(self._starts) else self.stop
        made.ids = self.ids.before(made.stop)
        made._starts, made._groups = self._starts[:kept], self._groups[:kept]
        made._systems = [one for one in self._systems if one[0] < made.stop]
        made._repaired = [one for one in self._repaired if one.at < made.stop]
        made._forms = {form: written.first(kept) for form, written in self._forms.items()}
        return made

    def repaired_in(self, span: range) -> bool:
        """Whether repairs changed a group in these positions."""
        places = [one.at for one in self._repaired] if self._repaired else []
        return below(places, span.stop) > below(places, span.start)

    def grown(self, counter: Counter | None) -> int:
        """By how many tokens repairs made all of them longer."""
        done, tokens = self._grown.pop(counter, (0, 0))
        for one in self._repaired[done:]:
            before, after = (sum(count(message, counter).tokens for message in some) for some in (one.group, one.whole))
            tokens += after - before
        while len(self._grown) >= COUNTERS:
            del self._grown[next(iter(self._grown))]
        self._grown[counter] = (len(self._repaired), tokens)
        return tokens

    def messages(self, span: range) -> list[Message]:
        """The messages in these positions, repaired."""
        numbers = range(below(self._starts, span.start), below(self._starts, span.stop))
        return [message for number in numbers for message in self._groups[number]]

    def systems(self, span: range) -> list[Message]:
        """The system's messages in these positions."""
        return [message for at, message in self._systems if span.start <= at < span.stop]

    def items(self, span: range, form: Form) -> Items:
        """The groups in these positions, as written; they are for reading only."""
        written = self._forms.get(form)
        if written is None:
            written = self._forms[form] = _Turns() if form == "anthropic" else _Written(form)
        for group in self._groups[len(written) :]:
            written.add(group)
        starts = self._starts
        return written.part(below(starts, span.start), below(starts, span.stop))


class Items(NamedTuple):
    """A stretch of a list that only grows."""

    of: list[dict[str, Any]]
    start: int
    stop: int

    def listed(self) -> list[dict[str, Any]]:
        """The items, not copied."""
        return self.of[self.start : self.stop]


class Outgoing(NamedTuple):
    """The messages of a window, repaired: positions of `written`, and messages that are written for this window."""

    parts: Sequence[range | list[Message]]
    written: WrittenGroups
    notes: Sequence[str] = ()
    """The repairs of the messages, in words."""
    idle: Sequence[str] = ()
    """Their reasoning that was left out because it led to nothing, in words."""
    repaired: int = 0
    """The number of written groups that repairs changed."""
    grown: int = 0
    """By how many tokens repairs made the window longer, beyond the room there was for answers."""

    @property
    def repairs(self) -> list[str]:
        """All repairs, in words."""
        return [*self.written.notes(self.repaired), *self.notes, *self.idle, *self.written.idle(self.repaired)]

    @property
    def messages(self) -> list[Message]:
        """All messages, in order."""
        parts = (self.written.messages(part) if isinstance(part, range) else part for part in self.parts)
        return list(chain.from_iterable(parts))

    def stretches(self, form: Form = "chat") -> list[Items]:
        """The parts as written; they are for reading only."""
        return [
            self.written.items(part, form) if isinstance(part, range) else _all(conversation.written(part, form))
            for part in self.parts
        ]

    def render(self, form: Form = "chat") -> list[dict[str, Any]]:
        """The messages in a provider's form; the list and what is in it are the caller's own."""
        parts = [one.listed() for one in self.stretches(conversation.checked_form(form))]
        return msgspec.to_builtins(conversation.joined(parts, form))

    def system(self) -> str | list[dict[str, Any]]:
        """The system's text, which Anthropic takes beside the messages."""
        parts = (self.written.systems(part) if isinstance(part, range) else part for part in self.parts)
        return msgspec.to_builtins(anthropic.system(list(chain.from_iterable(parts))))


def same(some: Sequence[Message], others: Sequence[Message]) -> bool:
    """Whether these are the very same messages, in the same order."""
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))


class _Repaired(NamedTuple):
    """A group that repairs changed."""

    at: int
    notes: list[str]
    idle: list[str]
    group: Sequence[Message]
    whole: Sequence[Message]


class _Written:
    """Groups in one form, in which they follow each other."""

    def __init__(self, form: Form) -> None:
        self._form: Form = form
        self._items: list[dict[str, Any]] = []
        self._offsets = [0]

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def add(self, group: Sequence[Message]) -> None:
        self._items += conversation.written(group, self._form)
        self._offsets.append(len(self._items))

    def first(self, count: int) -> _Written:
        made = _Written(self._form)
        made._offsets = self._offsets[: count + 1]
        made._items = self._items[: made._offsets[-1]]
        return made

    def part(self, start: int, stop: int) -> Items:
        return Items(self._items, self._offsets[start], self._offsets[stop])


class _Turns(_Written):
    """Groups in Anthropic's form, where what one role says in two groups is one message."""

    def __init__(self) -> None:
        super().__init__("anthropic")
        self._begins: list[tuple[int, int]] = []  # where each group begins: its item, and the block in that item

    def add(self, group: Sequence[Message]) -> None:
        more = conversation.written(group, self._form)
        last = self._items[-1] if self._items else None
        if last is not None and (not more or last["role"] == more[0]["role"]):
            self._begins.append((len(self._items) - 1, len(anthropic.blocks(last))))
            self._items[-1:] = anthropic.joined([[last], more[:1]])
            self._items += more[1:]
        else:
            self._begins.append((len(self._items), 0))
            self._items += more
        self._offsets.append(len(self._items))

    def first(self, count: int) -> _Turns:
        made = _Turns()
        made._begins, made._offsets = self._begins[:count], self._offsets[: count + 1]
        made._items = self.part(0, count).listed()
        return made

    def part(self, start: int, stop: int) -> Items:
        end, blocks = self._begins[stop] if stop < len(self) else (len(self._items), 0)
        if start == stop:
            return Items(self._items, end, end)
        first, skipped = self._begins[start]
        if not skipped and not blocks:
            return Items(self._items, first, end)
        found = self._items[first : end + bool(blocks)]
        if blocks:
            found[-1] = anthropic.with_blocks(found[-1], slice(blocks))
        if skipped:
            found[0] = anthropic.with_blocks(found[0], slice(skipped, None))
        return _all([one for one in found if one["content"]])


def _all(items: list[dict[str, Any]]) -> Items:
    return Items(items, 0, len(items))

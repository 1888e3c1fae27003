"""Windows: which messages of a conversation are sent, so that they fit and no provider refuses them.

Whole groups only, in their order. System messages, what is pinned, the newest message of the user, the newest group and
groups with open calls are always kept; then as much of the newest as fits. The oldest groups go first. When even the newest
do not fit, their tool results are shortened, with a pointer to where the whole is. What was left out is said.

A `Tally` grows with the conversation and holds running totals, so a window costs the same however long that is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import InvalidValue
from holdfast.core.message_anthropic import OPENING
from holdfast.core.messages import NO_RESULT, Groups, Message, Text, ToolCall, answer
from holdfast.core.tokens import Basis, Count, Counter, count

Strategy = Literal["drop_oldest", "summarise"]
KEEP_LAST = 6
"""How many of the newest messages are kept in preference to all others when nobody says."""

SUMMARY_TOKENS = 512
"""How much room a summary gets when nobody says; at most a quarter of the window."""


class Summary(Struct, frozen=True):
    """What stands for messages that are no longer sent: a text, and the positions it covers."""

    text: str
    covers: tuple[range, ...]

    def message(self) -> Message:
        """The message it is sent as, right after the system's."""
        return Message("user", (Text(f"Summary of the conversation so far:\n{self.text}"),))


class Window(Struct, frozen=True):
    """What is sent of a conversation, and what is not, by position."""

    kept: tuple[range, ...]
    left_out: tuple[range, ...]
    tokens: int
    """What is sent, summary included; never more than was allowed."""
    left_out_tokens: int
    basis: Basis
    """How the tokens were counted: the weakest of what is kept."""
    shortened: dict[int, int] = {}
    """Tool results that are not sent in full: position → the tokens the message may have."""
    summary: Summary | None = None
    """The summary that is sent."""
    summarise: tuple[range, ...] = ()
    """What should be summarised now, beside what the summary covers already."""

    @property
    def positions(self) -> list[int]:
        """The positions of what is kept, in order."""
        return [position for span in self.kept for position in span]

    @property
    def covers(self) -> tuple[range, ...]:
        """What the next summary covers, if it is made of the present one and of `summarise`."""
        present = self.summary.covers if self.summary is not None else ()
        return _coalesced([*present, *self.summarise])

    def __str__(self) -> str:
        words = [f"{sum(map(len, self.kept))} messages, {self.tokens:,} tokens ({self.basis})"]
        if self.left_out:
            spans = ", ".join(str(one.start) if len(one) == 1 else f"{one.start}-{one[-1]}" for one in self.left_out)
            words.append(f"left out: {spans} ({self.left_out_tokens:,} tokens)")
        if self.shortened:
            words.append(f"shortened: {', '.join(map(str, self.shortened))}")
        return "; ".join(words)


class Tally:
    """Running totals of a conversation. Keep it, and add each message once; a window is then cheap.

    >>> tally = Tally.of([Message("system", (Text("Be brief."),)), Message("user", (Text("Is the disk full?"),))])
    >>> print(window(tally, max_tokens=100))
    2 messages, 21 tokens (estimate)

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
    def of(cls, messages: Iterable[Message], counter: Counter | None = None) -> Tally:
        """The tally of these messages."""
        tally = cls(counter)
        for message in messages:
            tally.add(message)
        return tally

    def __len__(self) -> int:
        return len(self.roles)

    def add(self, message: Message, counted: Count | None = None, *, pointer: str = "") -> Count:
        """Take the next message, with its count if that is known; the pointer says where a result is in full."""
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
        """How a range was counted: the weakest of it."""
        for basis, sums in (("estimate", self._estimates), ("exact", self._exacts)):
            if any(sums[span.stop] > sums[span.start] for span in spans):
                return basis
        return "reported" if spans else "exact"

    def capped_in(self, spans: Sequence[range]) -> dict[int, int]:
        """The results among these that are always shortened."""
        found = self._capped_at
        return {
            position: self.capped[position]
            for span in spans
            for position in found[_below(found, span.start) : _below(found, span.stop)]
        }

    def shorten(self, position: int, message: Message, max_tokens: int) -> Message:
        """A tool message cut to so many tokens, with its pointer."""
        return shorten(message, max_tokens, counter=self.counter, pointer=self._pointers.get(position, ""))


def window(
    tally: Tally,
    *,
    max_tokens: int,
    keep_last: int = KEEP_LAST,
    pinned: Collection[int] = (),
    strategy: Strategy = "drop_oldest",
    reserve: int = 0,
    summary: Summary | None = None,
    summary_tokens: int = SUMMARY_TOKENS,
) -> Window:
    """Choose what to send. `reserve` is kept free: for the tools' schemas, say.

    With "summarise", what would be dropped is named in `summarise` and room is left for its summary; give that summary
    with what it covers (`covers`), and it is sent in place of them. More than needed is summarised at a time, so that it
    need not be done every turn. The window is right without it, too.
    """
    _check(tally, max_tokens, keep_last, pinned, strategy, reserve)
    if not len(tally):
        return Window((), (), 0, 0, "exact")
    allowed = max_tokens - reserve
    if strategy == "summarise":
        try:
            return _summarising(tally, allowed, keep_last, pinned, summary, min(summary_tokens, max_tokens // 4))
        except InvalidValue:
            pass  # there is no room for a summary: without one it may fit
    plan = _Plan(tally, keep_last, pinned, ())
    choice = plan.choose(allowed)
    if plan.opening(choice) and plan.cost(choice) > allowed:
        choice = plan.choose(allowed - plan.opening(choice))
    return plan.window(choice, None)


def fitted(window: Window, tally: Tally, messages: Sequence[Message]) -> list[Message]:
    """The messages of a window (those at its `positions`, in order) as they are sent: shortened, with the summary."""
    positions = window.positions
    assert len(positions) == len(messages), "give exactly the messages that are kept"
    sent = [
        tally.shorten(position, message, window.shortened[position]) if position in window.shortened else message
        for position, message in zip(positions, messages, strict=True)
    ]
    if window.summary is not None:
        leading = next((at for at, one in enumerate(sent) if one.role not in ("system", "developer")), len(sent))
        sent.insert(leading, window.summary.message())
    return sent


def shorten(message: Message, max_tokens: int, *, counter: Counter | None = None, pointer: str = "") -> Message:
    """Cut the text of a tool message, from its middle, until the message has so many tokens; say what is missing.

    >>> long = answer(ToolCall("c1", "cat"), "All work and no play. " * 100)
    >>> print(shorten(long, 50, pointer="all of it is artifact a1").text)
    All work and no play. All
    [2,160 of 2,200 characters left out; all of it is artifact a1]
     and no play.
    """
    text = message.text
    least, most = 0, min(len(text), 16 * max_tokens)
    if count(message, counter).tokens <= max_tokens:
        return message
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


def _check(tally: Tally, max_tokens: int, keep_last: int, pinned: Collection[int], strategy: str, reserve: int) -> None:
    for name, value, least in (("max_tokens", max_tokens, 1), ("keep_last", keep_last, 0), ("reserve", reserve, 0)):
        if type(value) is not int or value < least:
            raise InvalidValue(f"{name} is {value!r}", hint=f"give a whole number of at least {least}", path=name)
    if strategy not in ("drop_oldest", "summarise"):
        raise InvalidValue(f"there is no strategy {strategy!r}", hint="use 'drop_oldest' or 'summarise'")
    for position in pinned:
        if not 0 <= position < len(tally):
            hint = f"positions go from 0 to {len(tally) - 1}"
            raise InvalidValue(f"position {position!r} is pinned, but there is no such message", hint=hint)


# Choosing


def _summarising(
    tally: Tally,
    allowed: int,
    keep_last: int,
    pinned: Collection[int],
    summary: Summary | None,
    room: int,
) -> Window:
    plan = _Plan(tally, keep_last, pinned, summary.covers if summary is not None else ())
    spent = count(summary.message(), tally.counter).tokens if summary is not None else 0
    choice = plan.choose(allowed - spent)
    if plan.dropped(choice):
        room = max(room, spent)
        choice = plan.choose(allowed - room, at_most=(allowed - room) // 2)
    elif summary is None and plan.opening(choice) and plan.cost(choice) > allowed:
        choice = plan.choose(allowed - plan.opening(choice))
    return plan.window(choice, summary, spent)


class _Choice(Struct, frozen=True):
    """The newest groups from `start` on, and what is shortened among what is kept."""

    start: int
    shortened: dict[int, int] = {}


class _Plan:
    """What must be kept, and what each choice of the rest would cost. Groups are known by their number."""

    def __init__(self, tally: Tally, keep_last: int, pinned: Collection[int], covers: Iterable[range]) -> None:
        self.tally = tally
        self.starts = tally.groups.starts
        self.count = len(self.starts)
        self.pinned = {self._group(position) for position in pinned}
        always = [*tally.systems, *tally.groups.open.values(), *tally.users[-1:], len(tally) - 1]
        self.required = sorted({self._group(position) for position in always} | self.pinned)
        self._required_sums = [0, *accumulate(self._size(range(group, group + 1)) for group in self.required)]
        self.recent = self._group(max(0, len(tally) - max(1, keep_last)))
        self.covered = [span for span in map(self._within, _coalesced(covers)) if span]
        unanswered = [count(answer(ToolCall(id, ""), NO_RESULT, is_error=True), tally.counter) for id in self._open()]
        self._fixed = sum(one.tokens for one in unanswered)

    def choose(self, allowed: int, at_most: int | None = None) -> _Choice:
        """Keep as much of the newest as fits; at the least the recent ones, cut short if need be.

        With `at_most`, no more than that, unless the recent ones already are.
        """
        if self._tokens(self.recent) > allowed:
            return self._squeezed(allowed)
        wanted = allowed if at_most is None else at_most
        least, most = 0, self.recent
        while least < most:
            middle = (least + most) // 2
            if self._tokens(middle) <= wanted:
                most = middle
            else:
                least = middle + 1
        return _Choice(self._from_a_user(most))

    def cost(self, choice: _Choice) -> int:
        """The tokens of a choice, with the opening some form may need."""
        sizes = self.tally.totals
        saved = sum(sizes[at + 1] - sizes[at] - tokens for at, tokens in choice.shortened.items())
        return self._tokens(choice.start) - saved + self.opening(choice)

    def opening(self, choice: _Choice) -> int:
        """What it costs that the first message that is not the system's is not the user's."""
        roles = (self.tally.roles[self.starts[group]] for span in self._kept(choice) for group in span)
        first = next((role for role in roles if role not in ("system", "developer")), "user")
        return 0 if first == "user" else count(Message("user", (Text(OPENING),)), self.tally.counter).tokens

    def dropped(self, choice: _Choice) -> tuple[range, ...]:
        """The groups that are neither kept nor covered by a summary."""
        return _gaps(_coalesced([*self._kept(choice), *self.covered]), self.count)

    def window(self, choice: _Choice, summary: Summary | None, spent: int = 0) -> Window:
        """The choice in positions of messages."""
        tally, kept = self.tally, tuple(map(self._positions, self._kept(choice)))
        left_out = _gaps(kept, len(tally))
        return Window(
            kept,
            left_out,
            (self._tokens(choice.start) if summary is not None else self.cost(_Choice(choice.start)))
            - (self.cost(_Choice(choice.start)) - self.cost(choice))
            + spent,
            sum(map(tally.tokens, left_out)),
            tally.basis(kept),
            tally.capped_in(kept) | choice.shortened,
            summary,
        )

    def _kept(self, choice: _Choice) -> tuple[range, ...]:
        newest = _without(range(choice.start, self.count), self.covered)
        return _coalesced([*(range(group, group + 1) for group in self.required), *newest])

    def _tokens(self, start: int) -> int:
        """What is always kept and the newest groups from here on."""
        total = self._fixed + self._required_sums[_below(self.required, start)] + self._size(range(start, self.count))
        for span in self.covered:
            inside = range(max(start, span.start), span.stop)
            if inside:
                first, last = _below(self.required, inside.start), _below(self.required, inside.stop)
                total -= self._size(inside) - (self._required_sums[last] - self._required_sums[first])
        return total

    def _from_a_user(self, start: int) -> int:
        """Begin with a message of the user, if one comes before the recent ones; some providers want that."""
        users = self.tally.users
        if not start or start == self.count or not users or self.starts[start] > users[-1]:
            return start
        group = self._group(users[_below(users, self.starts[start])])
        return group if group <= self.recent else start

    def _squeezed(self, allowed: int) -> _Choice:
        """Shorten results; if that is not enough, keep fewer of the recent groups."""
        sizes = self.tally.totals
        for start in range(self.recent, self.count + 1):
            kept = {*self.required, *range(start, self.count)} - self.pinned
            results = [at for group in sorted(kept) for at in self._group_span(group) if at in self.tally.floors]
            whole = [
                (sizes[at + 1] - sizes[at], min(self.tally.floors[at], sizes[at + 1] - sizes[at])) for at in results
            ]
            over = self._tokens(start) - allowed
            if over <= sum(size - floor for size, floor in whole):
                level = _level(whole, over)
                cut = {at: max(floor, level) for at, (size, floor) in zip(results, whole, strict=True) if size > level}
                return _Choice(start, {at: tokens for at, tokens in cut.items() if tokens < sizes[at + 1] - sizes[at]})
        over -= sum(size - floor for size, floor in whole)
        raise InvalidValue(
            f"the conversation cannot be made to fit: what must be kept has {allowed + over:,} tokens even with its "
            f"results cut short, {over:,} more than there is room for ({allowed:,})",
            hint="allow more tokens, pin less, or shorten the system message and the newest ones",
            needed=allowed + over,
            over=over,
        )

    def _open(self) -> Collection[str]:
        return self.tally.groups.open.keys()

    def _group(self, position: int) -> int:
        """The number of the group a message is in."""
        return _below(self.starts, position + 1) - 1

    def _group_span(self, group: int) -> range:
        return self._positions(range(group, group + 1))

    def _positions(self, span: range) -> range:
        stop = len(self.tally) if span.stop == self.count else self.starts[span.stop]
        return range(self.starts[span.start] if span.start < self.count else stop, stop)

    def _within(self, positions: range) -> range:
        """The groups that lie wholly in a range of messages."""
        stop = self.count if positions.stop >= len(self.tally) else self._group(positions.stop)
        return range(_below(self.starts, positions.start), stop)

    def _size(self, span: range) -> int:
        return self.tally.tokens(self._positions(span))


def _level(whole: list[tuple[int, int]], over: int) -> int:
    """The most that each result may have, so that all of them together save as much as is over."""
    least, most = 0, max(size for size, _ in whole)
    while least < most:
        middle = (least + most + 1) // 2
        if sum(size - max(floor, middle) for size, floor in whole if size > max(floor, middle)) >= over:
            least = middle
        else:
            most = middle - 1
    return least


# Ranges and sorted lists


def _below(values: Sequence[int], limit: int) -> int:
    """How many of these sorted values are less than the limit."""
    least, most = 0, len(values)
    while least < most:
        middle = (least + most) // 2
        if values[middle] < limit:
            least = middle + 1
        else:
            most = middle
    return least


def _coalesced(spans: Iterable[range]) -> tuple[range, ...]:
    """Ranges in order, those that touch made one."""
    found: list[range] = []
    for span in sorted((span for span in spans if span), key=lambda span: span.start):
        if found and span.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, span.stop))
        else:
            found.append(span)
    return tuple(found)


def _gaps(spans: Sequence[range], stop: int) -> tuple[range, ...]:
    """What lies between ranges that are in order, up to the stop."""
    edges = zip([0, *(span.stop for span in spans)], [*(span.start for span in spans), stop], strict=True)
    return tuple(range(start, end) for start, end in edges if start < end)


def _without(span: range, others: Sequence[range]) -> list[range]:
    """A range without others, which are in order."""
    found: list[range] = []
    start = span.start
    for other in others:
        found.append(range(start, min(other.start, span.stop)))
        start = max(start, other.stop)
    return [one for one in [*found, range(start, span.stop)] if one]

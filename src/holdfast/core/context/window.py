"""Windows: which messages of a conversation are sent, so that they fit and no provider refuses them.

Whole groups only, in their order. System messages, what is pinned, the newest message of the user, the newest group,
groups with open calls, and what `keep_last` and `keep_turns` ask for are always kept; then as much of the newest as
fits. The oldest groups go first. When even what must be kept does not fit, its tool results are shortened, with a
pointer to where the whole is; when that is not enough, the window is refused. It names what was left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from msgspec import Struct

from holdfast.core.context.tally import Tally
from holdfast.core.errors import InvalidValue, WindowTooSmall
from holdfast.core.messages import NO_RESULT, Message, Text, ToolCall, answer, repair
from holdfast.core.messages.anthropic import OPENING
from holdfast.core.messages.grouping import Arranged
from holdfast.core.messages.spans import below, coalesced, gaps, without
from holdfast.core.messages.tokens import Basis, count
from holdfast.core.messages.written import Outgoing, WrittenGroups, same

Strategy = Literal["drop_oldest", "summarise"]
_SYSTEM = ("system", "developer")
STRATEGIES: tuple[Strategy, ...] = ("drop_oldest", "summarise")
KEEP_LAST = 6
"""How many of the newest messages are kept, their results shortened, before older ones if nothing else is asked for.
That many are not promised."""

SUMMARY_TOKENS = 512
"""How much room a summary gets by default; at most a quarter of the window."""

LEAST_SUMMARY_TOKENS = 32
"""With less room than this nothing is summarised: it would say nothing."""


class WindowSummary(Struct, frozen=True):
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
    summary: WindowSummary | None = None
    """The summary that is sent."""
    summarise: tuple[range, ...] = ()
    """What should be summarised now, beside what the summary covers already."""

    @property
    def positions(self) -> list[int]:
        """The positions of what is kept, in order."""
        return [position for span in self.kept for position in span]

    @property
    def covers(self) -> tuple[range, ...]:
        """The ranges of the next summary, if it is made of the present one and of `summarise`."""
        return merge_spans(self.summary, self.summarise)

    @property
    def uncovered(self) -> tuple[range, ...]:
        """The messages that are neither sent nor covered by the summary that is sent."""
        covered = coalesced(self.summary.covers if self.summary is not None else ())
        return tuple(span for one in self.left_out for span in without(one, covered))

    def __str__(self) -> str:
        words = [f"{sum(map(len, self.kept))} messages, {self.tokens:,} tokens ({self.basis})"]
        if self.left_out:
            spans = ", ".join(str(one.start) if len(one) == 1 else f"{one.start}-{one[-1]}" for one in self.left_out)
            words.append(f"left out: {spans} ({self.left_out_tokens:,} tokens)")
        if self.shortened:
            words.append(f"shortened: {', '.join(map(str, self.shortened))}")
        return "; ".join(words)


def window(
    tally: Tally,
    *,
    max_tokens: int,
    keep_last: int | None = None,
    keep_turns: int | None = None,
    pinned: Collection[int] = (),
    strategy: Strategy = "drop_oldest",
    reserve: int = 0,
    summary: WindowSummary | None = None,
    summary_tokens: int = SUMMARY_TOKENS,
    answers: Mapping[str, Message] | None = None,
) -> Window:
    """Choose what to send. `reserve` is kept free: for the tools' schemas, say.

    `keep_last` messages and `keep_turns` turns, the newest, are kept whole groups and all, or it is WindowTooSmall. A
    turn is a reply with its results and the user's message before it; what came after the last reply is kept too.

    A call without a result will be given one, so there is room for it: for that of `answers`, by the call's id, or
    for the words that there is none.

    With "summarise", what would be dropped is named in `summarise` and room is left for its summary; give that
    summary with what it covers (`covers`), and it is sent in their place. More than needed is summarised at a time,
    so that it need not be done every turn. The window is right without it, too.

    >>> tally = Tally.of(Message("user", (Text(word),)) for word in ("one", "two", "three"))
    >>> print(window(tally, max_tokens=15, keep_last=1))
    2 messages, 13 tokens (estimate); left out: 0 (6 tokens)
    """
    _check(tally, max_tokens, pinned, strategy, reserve)
    check_kept(keep_last, keep_turns)
    if not len(tally):
        return Window((), (), 0, 0, "exact")
    allowed, newest = max_tokens - reserve, _newest(tally, keep_last, keep_turns)
    plan = _Plan(tally, max_tokens, newest, pinned, answers)
    room = summary_room(max_tokens, summary_tokens)
    if strategy == "summarise" and room and plan.cost(_Choice(0)) > allowed:
        try:
            return _summarising(_Plan(tally, max_tokens, newest, pinned, answers, summary), allowed, room)
        except WindowTooSmall:
            pass  # there is no room for a summary: without one it may fit
    return plan.window(plan.choose(allowed))


def summary_room(max_tokens: int, summary_tokens: int = SUMMARY_TOKENS) -> int:
    """Return how many tokens a summary may have in this window; 0 if that is too few for one."""
    room = min(summary_tokens, max_tokens // 4)
    return room if room >= LEAST_SUMMARY_TOKENS else 0


def merge_spans(present: WindowSummary | None, more: Sequence[range]) -> tuple[range, ...]:
    """Return the ranges of a summary that is made of the present one and of these."""
    return coalesced([*(present.covers if present is not None else ()), *more])


def portion(tally: Tally, spans: Sequence[range], max_tokens: int) -> tuple[range, ...]:
    """The first whole groups of these ranges that have so many tokens together; one at the least."""
    starts, taken, left = tally.groups.starts, list[range](), max_tokens
    for span in spans:
        stop = span.start
        while stop < span.stop:
            group = below(starts, stop + 1)
            after = min(starts[group] if group < len(starts) else len(tally), span.stop)
            left -= tally.tokens(range(stop, after))
            if left < 0 and (taken or stop > span.start):
                return coalesced([*taken, range(span.start, stop)])
            stop = after
        taken.append(span)
    return coalesced(taken)


def fitted(window: Window, tally: Tally, messages: Sequence[Message]) -> list[Message]:
    """The messages of a window (those at its `positions`, in order) as they are sent: shortened, with the summary."""
    positions = window.positions
    assert len(positions) == len(messages), "give exactly the messages that are kept"
    sent = [_shown(window, tally, *one) for one in zip(positions, messages, strict=True)]
    if window.summary is not None:
        leading = next((at for at, one in enumerate(sent) if one.role not in _SYSTEM), len(sent))
        sent.insert(leading, window.summary.message())
    return sent


def outgoing(
    window: Window, tally: Tally, read: Sequence[Message], written: WrittenGroups, known: Mapping[str, str]
) -> Outgoing:
    """The messages of a window, repaired. `read` are those of the whole conversation, `written` its groups so far.

    Only what isn't among the written groups is repaired here. If a repair concerns both, all of it is. `known` are
    outcomes of calls without a result, by the call's id.
    """
    found = _beside_written(window, tally, read, written, known)
    if found is not None:
        return found
    kept = fitted(window, tally, [read[position] for position in window.positions])
    whole, notes = repair(kept, known)
    grown = 0 if same(kept, whole) else max(0, _growth(kept, whole, tally, known))
    return Outgoing([whole], written, notes, grown=grown)


def _beside_written(
    window: Window, tally: Tally, read: Sequence[Message], written: WrittenGroups, known: Mapping[str, str]
) -> Outgoing | None:
    """Take what is kept of the written groups as it is; None if the rest can't be repaired without them."""
    until = _first_shortened(window, tally, written.stop)
    middle = [found for span in window.kept if (found := _common(span, range(written.start, until)))]
    if not middle or (until < written.stop and written.repaired):
        return None
    head = [read[at] for span in window.kept for at in _common(span, range(written.start))]
    everything = middle == [range(written.start, written.stop)]
    if any(one.role in ("assistant", "tool") for one in head):
        return None
    if not everything and any(map(written.repaired_in, middle)):
        return None
    after = (at for span in window.kept for at in _common(span, range(until, len(read))))
    tail = [_shown(window, tally, at, read[at]) for at in after]
    if not everything and any(written.ids.at.get(id, until) < until for one in tail for id in _ids(one)):
        return None
    arranged = Arranged(tail, known, mend=True, before=written.ids if everything else None)
    whole = arranged.in_order()
    if arranged.reaches_back or (arranged.renamed and not everything):
        return None
    grown, repaired = 0, written.repaired if everything else 0
    if repaired or not same(tail, whole):
        grown = max(0, (written.grown(tally.counter) if repaired else 0) + _growth(tail, whole, tally, known))
    parts = _with_summary([head, *middle], window.summary, tally)
    return None if parts is None else Outgoing([*parts, whole], written, arranged.notes, arranged.idle, repaired, grown)


def _first_shortened(window: Window, tally: Tally, stop: int) -> int:
    """Find the first group with a shortened result: from there on, nothing is as it was written."""
    first = min(window.shortened, default=stop)
    return stop if first >= stop else tally.groups.starts[below(tally.groups.starts, first + 1) - 1]


def _with_summary(
    parts: list[range | list[Message]], summary: WindowSummary | None, tally: Tally
) -> list[range | list[Message]] | None:
    """Put the summary after the system's messages at the beginning; None if there is nothing else."""
    if summary is None:
        return parts
    for number, part in enumerate(parts):
        roles = [one.role for one in part] if isinstance(part, list) else map(tally.roles.__getitem__, part)
        leading = next((at for at, role in enumerate(roles) if role not in _SYSTEM), None)
        if leading is not None:
            return [*parts[:number], part[:leading], [summary.message()], part[leading:], *parts[number + 1 :]]
    return None


def _shown(window: Window, tally: Tally, position: int, message: Message) -> Message:
    """A message as it is sent."""
    most = window.shortened.get(position)
    return message if most is None else tally.shorten(position, message, most)


def _ids(message: Message) -> list[str]:
    """The ids of calls in a message."""
    return [message.result.call_id] if message.role == "tool" else [call.id for call in message.calls]


def _growth(kept: Sequence[Message], whole: Sequence[Message], tally: Tally, known: Mapping[str, str]) -> int:
    """By how much repairs made messages longer, beyond the room there was for answers."""
    told = [answer(ToolCall(id, ""), known.get(id, NO_RESULT), is_error=id not in known) for id in tally.groups.open]
    before, after = (sum(count(one, tally.counter).tokens for one in some) for some in ([*kept, *told], whole))
    return after - before


def _common(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))


def check_kept(keep_last: int | None, keep_turns: int | None) -> None:
    """Refuse what is not a number of messages, or of turns."""
    for name, value in (("keep_last", keep_last), ("keep_turns", keep_turns)):
        if value is not None and (type(value) is not int or value < 0):
            raise InvalidValue(f"{name} is {value!r}", hint="give a whole number of at least 0", path=name)


def _check(tally: Tally, max_tokens: int, pinned: Collection[int], strategy: str, reserve: int) -> None:
    for name, value, least in (("max_tokens", max_tokens, 1), ("reserve", reserve, 0)):
        if type(value) is not int or value < least:
            raise InvalidValue(f"{name} is {value!r}", hint=f"give a whole number of at least {least}", path=name)
    if strategy not in STRATEGIES:
        raise InvalidValue(f"there is no strategy {strategy!r}", hint="use 'drop_oldest' or 'summarise'")
    if not isinstance(pinned, Collection) or not all(type(position) is int for position in pinned):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"pinned={pinned!r} is not a list of positions", hint="give [0, 2]: the first is 0")
    for position in pinned:
        if not 0 <= position < len(tally):
            hint = f"positions go from 0 to {len(tally) - 1}"
            raise InvalidValue(f"position {position!r} is pinned, but there is no such message", hint=hint)


# Choosing


class _Newest(NamedTuple):
    """The first of the newest messages that are kept before others, and the first of those that must be, if any."""

    start: int
    promised: int | None


def _newest(tally: Tally, keep_last: int | None, keep_turns: int | None) -> _Newest:
    """Keep at least as many of the newest as without a limit."""
    asked = [] if keep_last is None else [len(tally) - max(1, keep_last)]
    asked += [] if keep_turns is None else [_first_of_turns(tally, keep_turns)]
    start = max(0, min(*asked, len(tally) - KEEP_LAST) if asked else len(tally) - KEEP_LAST)
    return _Newest(start, max(0, min(asked)) if asked else None)


def _first_of_turns(tally: Tally, turns: int) -> int:
    """Find the start of the newest turns: so many replies back, with the user's message before the first of them."""
    first, replies = len(tally), 0
    for start in reversed(tally.groups.starts):
        role = tally.roles[start]
        if role in ("system", "developer"):
            continue
        if role != "user":
            if replies == turns:
                break
            replies += 1
        first = start
    return first


def _summarising(plan: _Plan, allowed: int, room: int) -> Window:
    """Take what fits beside the summary there is; if not all does, leave room for the next one, and name its part."""
    choice = plan.choose(allowed)
    if not plan.dropped(choice):
        return plan.window(choice)
    room = max(room - plan.spent, 0)
    choice = plan.choose(allowed - room, at_most=(allowed - room) // 2)
    return plan.window(choice, summarise=True)


class _Choice(Struct, frozen=True):
    """The newest groups from `start` on, and what is shortened among what is kept."""

    start: int
    shortened: dict[int, int] = {}


class _Plan:
    """What must be kept, and what each choice of the rest would cost. Groups are known by their number."""

    def __init__(
        self,
        tally: Tally,
        max_tokens: int,
        newest: _Newest,
        pinned: Collection[int],
        answers: Mapping[str, Message] | None = None,
        summary: WindowSummary | None = None,
    ) -> None:
        self.tally = tally
        self._max_tokens = max_tokens
        self.starts = tally.groups.starts
        self.count = len(self.starts)
        self.pinned = {self._group(position) for position in pinned}
        always = [*tally.systems, *tally.groups.open.values(), *tally.users[-1:], len(tally) - 1]
        self.required = sorted({self._group(position) for position in always} | self.pinned)
        self._required_sums = [0, *accumulate(self._size(range(group, group + 1)) for group in self.required)]
        self.recent = self._group(min(newest.start, len(tally) - 1))
        self._promised = None if newest.promised is None else self._group(min(newest.promised, len(tally) - 1))
        self.summary = summary
        covers = coalesced(summary.covers if summary is not None else ())
        before = self.count if self._promised is None else self._promised  # what is promised is sent, summary or not
        covered = (self._within(span) for span in covers)
        self.covered = [range(span.start, min(span.stop, before)) for span in covered if span and span.start < before]
        self.spent = self._count(summary.message()) if summary is not None else 0
        told = answers or {}
        unanswered = [told.get(id) or answer(ToolCall(id, ""), NO_RESULT, is_error=True) for id in tally.groups.open]
        self._fixed = self.spent + sum(map(self._count, unanswered))

    def choose(self, allowed: int, at_most: int | None = None) -> _Choice:
        """Keep as much of the newest as fits; at the least the recent ones, cut short if need be.

        With `at_most`, no more than that, unless the recent ones already are.
        """
        if self._tokens(self.recent) <= allowed:
            start = self._oldest(min(allowed, allowed if at_most is None else at_most))
            from_user = self._from_a_user(start)
            with_opening = self._oldest(allowed - self.opening(_Choice(start)))
            for candidate in (start, from_user, with_opening) if not start else (from_user, start, with_opening):
                if self.cost(_Choice(candidate)) <= allowed:
                    return _Choice(candidate)
        return self._squeezed(allowed)

    def cost(self, choice: _Choice) -> int:
        """The tokens of a choice, with the summary, and with the opening some form may need."""
        sizes = self.tally.totals
        saved = sum(sizes[at + 1] - sizes[at] - tokens for at, tokens in choice.shortened.items())
        return self._tokens(choice.start) - saved + self.opening(choice)

    def opening(self, choice: _Choice) -> int:
        """Return the cost of a window whose first message, after the system's, is not the user's."""
        if self.summary is not None:
            return 0
        roles = (self.tally.roles[self.starts[group]] for span in self._kept(choice) for group in span)
        first = next((role for role in roles if role not in ("system", "developer")), "user")
        return 0 if first == "user" else self._count(Message("user", (Text(OPENING),)))

    def dropped(self, choice: _Choice) -> tuple[range, ...]:
        """The groups that are neither kept nor covered by the summary."""
        return gaps(coalesced([*self._kept(choice), *self.covered]), self.count)

    def window(self, choice: _Choice, *, summarise: bool = False) -> Window:
        """The choice in positions of messages."""
        tally, kept = self.tally, tuple(map(self._positions, self._kept(choice)))
        left_out = gaps(kept, len(tally))
        return Window(
            kept=kept,
            left_out=left_out,
            tokens=self.cost(choice),
            left_out_tokens=sum(map(tally.tokens, left_out)),
            basis=tally.basis(kept),
            shortened=tally.capped_in(kept) | choice.shortened,
            summary=self.summary,
            summarise=tuple(map(self._positions, self.dropped(choice))) if summarise else (),
        )

    def _oldest(self, wanted: int) -> int:
        """The first group from which on all fits; the recent ones in any case."""
        least, most = 0, self.recent
        while least < most:
            middle = (least + most) // 2
            if self._tokens(middle) <= wanted:
                most = middle
            else:
                least = middle + 1
        return most

    def _kept(self, choice: _Choice) -> tuple[range, ...]:
        newest = without(range(choice.start, self.count), self.covered)
        return coalesced([*(range(group, group + 1) for group in self.required), *newest])

    def _tokens(self, start: int) -> int:
        """Count the tokens of the messages that are always kept and of the newest groups from here on."""
        total = self._fixed + self._required_sums[below(self.required, start)] + self._size(range(start, self.count))
        for span in self.covered:
            inside = range(max(start, span.start), span.stop)
            if inside:
                first, last = below(self.required, inside.start), below(self.required, inside.stop)
                total -= self._size(inside) - (self._required_sums[last] - self._required_sums[first])
        return total

    def _from_a_user(self, start: int) -> int:
        """Begin with a message of the user, if one comes before the recent ones; some providers want that."""
        users = self.tally.users
        if not users or self.starts[start] > users[-1] or not self.opening(_Choice(start)):
            return start
        group = self._group(users[below(users, self.starts[start])])
        return group if group <= self.recent else start

    def _squeezed(self, allowed: int) -> _Choice:
        """Shorten results; if that is not enough, keep fewer of the recent groups, unless they are promised."""
        over = 0
        for start in range(self.recent, (self.count if self._promised is None else self._promised) + 1):
            results = self._results({group for span in self._kept(_Choice(start)) for group in span} - self.pinned)
            over = self.cost(_Choice(start)) - allowed
            if over <= sum(size - floor for size, floor in results.values()):
                return _Choice(start, _cut_down(results, over))
            over -= sum(size - floor for size, floor in results.values())
        needed = self._max_tokens + over
        raise WindowTooSmall(
            f"the conversation cannot be made to fit: what must be kept, with its results cut short, needs {needed:,} "
            f"tokens, {over:,} more than the {self._max_tokens:,} there are",
            hint="allow more tokens, keep or pin fewer messages, or shorten the system message and the newest ones",
            needed=needed,
            over=over,
        )

    def _results(self, groups: set[int]) -> dict[int, tuple[int, int]]:
        """The results in these groups that can be shortened, by position: their size, and the least it can be."""
        floors = self.tally.floors
        positions = (at for group in sorted(groups) for at in self._positions(range(group, group + 1)) if at in floors)
        sizes = {at: self.tally.tokens(range(at, at + 1)) for at in positions}
        return {at: (size, floors[at]) for at, size in sizes.items() if floors[at] < size}

    def _count(self, message: Message) -> int:
        return count(message, self.tally.counter).tokens

    def _group(self, position: int) -> int:
        """The number of the group a message is in."""
        return below(self.starts, position + 1) - 1

    def _positions(self, span: range) -> range:
        stop = len(self.tally) if span.stop == self.count else self.starts[span.stop]
        return range(self.starts[span.start] if span.start < self.count else stop, stop)

    def _within(self, positions: range) -> range:
        """The groups that lie wholly in a range of messages."""
        stop = self.count if positions.stop >= len(self.tally) else self._group(positions.stop)
        return range(below(self.starts, positions.start), stop)

    def _size(self, span: range) -> int:
        return self.tally.tokens(self._positions(span))


def _cut_down(results: dict[int, tuple[int, int]], over: int) -> dict[int, int]:
    """Cut the longest results down to one size, the most with which all save as much as is over."""
    least, most = 0, max((size for size, _ in results.values()), default=0)
    while least < most:
        middle = (least + most + 1) // 2
        if sum(max(0, size - max(floor, middle)) for size, floor in results.values()) >= over:
            least = middle
        else:
            most = middle - 1
    return {at: max(floor, least) for at, (size, floor) in results.items() if max(floor, least) < size}

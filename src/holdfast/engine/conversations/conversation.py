"""The conversation as an agent sees it: messages that know their identity, what of them fits, what is summarised."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, cast, overload

from msgspec import Raw, to_builtins
from msgspec.structs import replace

from holdfast.core.codec import MessagesRef
from holdfast.core.context import transcript, window
from holdfast.core.context.tally import Tally, shorten
from holdfast.core.context.window import Strategy, Window, WindowSummary
from holdfast.core.errors import InvalidValue, WindowTooSmall
from holdfast.core.messages import Form, Groups, Message, ToolCall, answer, stored
from holdfast.core.messages.tokens import Basis, Counter
from holdfast.core.messages.written import Outgoing, WrittenGroups
from holdfast.core.state import shapes
from holdfast.engine.conversations.call_outcomes import CallOutcomes
from holdfast.engine.logs.cache import Bounded, Heard
from holdfast.engine.system.token_counter import installed

COUNTERS = 4
"""How many counters' totals are kept of a conversation. Give the same function every time."""

NO_LIMIT = 2**53
"""As many tokens as anybody could have."""

TRIES = 4
"""How often a window is cut again because repairs made it longer."""


class Shown(NamedTuple):
    """What a branch sees of a conversation: so many of the messages in the log, and its own since."""

    logged: Sequence[tuple[int, Raw]]
    settled: int
    said: Sequence[Raw]
    seen: int

    @property
    def total(self) -> int:
        """The number of messages."""
        return self.settled + len(self.said)

    def raw(self, at: int) -> Raw:
        """One of them, encoded."""
        return self.logged[at][1] if at < self.settled else self.said[at - self.settled]


class Counted:
    """What was read and counted of a task's conversation, kept from turn to turn: a message is looked at once."""

    def __init__(
        self,
        value: Callable[[Raw], Any],
        ledger: CallOutcomes | None,
        lock: threading.RLock,
        memory: Bounded[Heard] | None = None,
        place: str = "in the log",
    ) -> None:
        self.value = value
        self._place = place
        self.ledger = ledger
        self.lock = lock
        self.groups = Groups()
        self.read: list[Message] = []
        self._raws: list[Raw] = []
        self._heard: list[Heard] = []
        self._memory = Bounded[Heard](0, 0) if memory is None else memory
        self._checked = 0
        self._written = WrittenGroups()
        self._tallies: dict[Counter | None, Tally] = {}

    def follow(self, shown: Shown) -> None:
        """Read what is new. Messages that were not written as they were recorded are forgotten again."""
        at, raws = min(self._checked, shown.settled), self._raws
        while at < min(len(raws), shown.total) and _same(raws[at], shown.raw(at)):
            at += 1
        if at < len(raws):
            self._forget(at)
        for position in range(at, shown.total):
            raw = shown.raw(position)
            heard = self._hear(raw, position)
            self._heard.append(heard)
            self.read.append(heard.message)
            self.groups.add(heard.message)
            raws.append(raw)
        self._checked = shown.settled

    def _hear(self, raw: Raw, position: int) -> Heard:
        """Read a message, or remember how it was read in whatever task that was: what it is depends on nothing else."""
        key = bytes(raw)
        heard = self._memory.get(key)
        if heard is None:
            value = self.value(raw)
            heard = Heard(stored.read(value, f"messages[{position}]"), stored.counted(value))
            self._memory.put(key, heard, heard.weight + len(key))
        return heard

    def tally(self, counter: Counter | None) -> Tally:
        """The totals of what was read. Without a counter: as reported, else counted exactly or estimated."""
        tally = self._tallies.pop(counter, None) or Tally(counter or installed())
        while len(self._tallies) >= COUNTERS:
            del self._tallies[next(iter(self._tallies))]
        self._tallies[counter] = tally
        for at in range(len(tally), len(self.read)):
            message = self.read[at]
            where = f"the whole is message {at} {self._place}, the result of call {_result_of(message)}"
            heard = self._heard[at]
            told = heard.reported or heard.count if counter is None else None
            counted = tally.add(message, told, pointer=where if message.role == "tool" else "")
            if counter is None:
                heard.count = counted
        return tally

    def outgoing(self, chosen: Window, tally: Tally, known: Mapping[str, str]) -> Outgoing:
        """Return the messages of a window. Groups are repaired and written once, from where windows begin."""
        first = max(chosen.kept, key=len, default=range(0)).start
        if not self._written.start <= first <= self._written.stop:
            self._written = WrittenGroups(first)
        self._written.grow(self.groups, self.read)
        return window.outgoing(chosen, tally, self.read, self._written, known)

    def _forget(self, count: int) -> None:
        if count <= self._written.stop:
            self._written = self._written.cut(count)
        for kept in (self.read, self._raws, self._heard):
            del kept[count:]
        self.groups.rewind(count)
        for tally in self._tallies.values():
            tally.rewind(min(count, len(tally)))


class _Sent:
    """The messages of a window, and how it was cut."""

    def __init__(self, messages: Outgoing, ref: MessagesRef, counted: Counted, fits: Window) -> None:
        self._messages = messages
        self._lock = counted.lock
        self._fits = fits
        self.calls: Groups = counted.groups
        """The calls of the whole conversation."""
        self.ref = ref
        self.tokens: int = fits.tokens
        """How many tokens these are, at the most."""
        self.basis: Basis = fits.basis
        """How they were counted: "reported", "exact" or "estimate"; the weakest of all."""
        self.summarised: tuple[range, ...] = fits.summary.covers if fits.summary is not None else ()
        """The positions that a summary stands for."""
        self.uncovered: tuple[range, ...] = fits.uncovered
        """The positions that are left out, and no summary stands for."""

    @property
    def repaired(self) -> list[str]:
        """The repairs, in words: a call without a result, for example."""
        return self._messages.repairs

    @property
    def left_out(self) -> str:
        """What does not fit, and the repairs, in words; empty if all is as it is in the log."""
        words = [str(self._fits)] if self._fits.left_out or self._fits.shortened else []
        return "; ".join([*words, *self.repaired])

    def render(self, form: Form) -> list[dict[str, Any]]:
        """The same messages for another provider: "responses" or "anthropic"; the latter wants `system` apart."""
        with self._lock:
            return self._messages.render(form)

    @property
    def system(self) -> str | list[dict[str, Any]]:
        """The system's text, which Anthropic takes beside the messages."""
        return self._messages.system()


class Sent(_Sent, list[Any]):
    """Messages in chat-completions form, as they are sent. As a step's input only their identity is recorded."""

    def __init__(self, messages: Outgoing, ref: MessagesRef, counted: Counted, fits: Window) -> None:
        super().__init__(messages, ref, counted, fits)
        self.extend(messages.render())


class SentView(_Sent, Sequence[Any]):
    """Such messages for reading only: a message is copied when it is looked at, so a long window costs little."""

    def __init__(self, messages: Outgoing, ref: MessagesRef, counted: Counted, fits: Window) -> None:
        super().__init__(messages, ref, counted, fits)
        self._stretches = messages.stretches()
        self._ends = list(accumulate(one.stop - one.start for one in self._stretches))

    def __len__(self) -> int:
        return self._ends[-1]

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            wanted = range(len(self))[index]
            return self if wanted == range(len(self)) else [self[at] for at in wanted]
        at = range(len(self))[index]
        number = bisect_right(self._ends, at)
        stretch = self._stretches[number]
        return to_builtins(stretch.of[stretch.stop - (self._ends[number] - at)])

    def __iter__(self) -> Iterator[Any]:
        return (to_builtins(one.of[at]) for one in self._stretches for at in range(one.start, one.stop))

    def __eq__(self, other: object) -> bool:
        return list(self) == list(cast("Any", other)) if isinstance(other, list | SentView) else NotImplemented

    __hash__ = None  # pyright: ignore[reportAssignmentType] — like a list

    def __repr__(self) -> str:
        return repr(list(self))


class Stretch(NamedTuple):
    """What is to be summarised next: messages, and what the summary of before says; and what the new one covers."""

    messages: list[Message]
    earlier: str
    covers: tuple[range, ...]


class WindowLimits(NamedTuple):
    """How a window is cut."""

    max_tokens: int
    keep_last: int | None = None
    keep_turns: int | None = None
    pinned: Collection[int] = ()
    reserve: int = 0
    counter: Counter | None = None
    summary_tokens: int = window.SUMMARY_TOKENS

    def checked(self) -> WindowLimits:
        """Refuse an odd limit, before anything is done."""
        if type(self.max_tokens) is not int or self.max_tokens < 1:
            hint = "give a whole number of at least 1"
            raise InvalidValue(f"max_tokens is {self.max_tokens!r}", hint=hint, path="max_tokens")
        window.check_kept(self.keep_last, self.keep_turns)
        if self.counter is not None and not callable(self.counter):
            raise InvalidValue(f"the counter {self.counter!r} cannot be called", hint="give a function of a text")
        return self

    def options(self, max_tokens: int) -> dict[str, Any]:
        """For `core.window`, with this limit."""
        given = self._asdict() | {"max_tokens": max_tokens}
        del given["counter"]
        return given


class Conversation(Sequence[Any]):
    """The messages so far. As a step's input only their identity is recorded: whose, how many, their running digest.

    A message is decoded when it is looked at; a step's function is given a plain list.
    """

    def __init__(self, shown: Shown, ref: MessagesRef, counted: Counted, summarised: shapes.Summarised | None) -> None:
        self.ref = ref
        self._shown = shown
        self._counted = counted
        self._summarised = summarised

    def __len__(self) -> int:
        return self._shown.total

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self._value(at) for at in range(len(self))[index]]
        return self._value(range(len(self))[index])

    def __iter__(self) -> Iterator[Any]:
        return (self._value(at) for at in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return list(self) == list(cast("Any", other)) if isinstance(other, list | Conversation) else NotImplemented

    __hash__ = None  # pyright: ignore[reportAssignmentType] — like a list

    def __add__(self, more: Iterable[Any]) -> list[Any]:
        return [*self, *more]

    def __repr__(self) -> str:
        return repr(list(self))

    def window(
        self,
        *,
        max_tokens: int | None = None,
        keep_last: int | None = None,
        keep_turns: int | None = None,
        strategy: Strategy = "drop_oldest",
        pinned: Collection[int] = (),
        reserve: int = 0,
        counter: Counter | None = None,
    ) -> Sent:
        """Return a window of at most so many tokens: whole groups, newest first, the system's and pinned ones always.

        The last `keep_last` messages and `keep_turns` turns are kept, results shortened if need be, or it is
        WindowTooSmall. A turn is a reply with its results and the user's message before it. By default no number is
        promised. Without a limit it is all of it. What a provider would refuse (a call cut off) is repaired, and
        named. With "summarise" the newest summary stands for what it covers; `task.summarise` makes them, and
        `.uncovered` tells what has none. `reserve` is kept free, for tools' schemas. `counter` counts a text's tokens;
        without one, replies count as their provider reported, the rest exactly if the extra `tokens` is installed,
        else by estimate.
        """
        limits = WindowLimits(
            NO_LIMIT if max_tokens is None else max_tokens, keep_last, keep_turns, pinned, reserve, counter
        )
        return Sent(*self._cut(limits, strategy))

    def view(
        self,
        *,
        max_tokens: int | None = None,
        keep_last: int | None = None,
        keep_turns: int | None = None,
        strategy: Strategy = "drop_oldest",
        pinned: Collection[int] = (),
        reserve: int = 0,
        counter: Counter | None = None,
    ) -> SentView:
        """Return the same as `window`, as a sequence for reading only. A message is copied when it is looked at.

        Use it where a window of thousands of messages is handed on every turn: a list copies all of them each time.
        """
        limits = WindowLimits(
            NO_LIMIT if max_tokens is None else max_tokens, keep_last, keep_turns, pinned, reserve, counter
        )
        return SentView(*self._cut(limits, strategy))

    def render(self, form: Form = "chat") -> list[dict[str, Any]]:
        """All of it in a provider's form, repaired where that provider would refuse it."""
        with self._counted.lock:
            self._counted.follow(self._shown)
            whole = Window((range(len(self)),), (), 0, 0, "exact")
            known = self._ledger(self._counted.groups)
            return self._counted.outgoing(whole, self._counted.tally(None), known).render(form)

    def part(self, limits: WindowLimits) -> Stretch | None:
        """Return the part to summarise next, so that such a window covers all messages; None if there is none."""
        with self._counted.lock:
            self._counted.follow(self._shown)
            tally = self._counted.tally(limits.counter)
            chosen = self._chosen(tally, limits, limits.max_tokens, "summarise", self._known(tally, 0))
            if not chosen.summarise:
                return None
            room = window.summary_room(limits.max_tokens, limits.summary_tokens)
            spans = window.portion(tally, chosen.summarise, transcript.space(limits.max_tokens, room))
            read = [self._counted.read[at] for span in spans for at in span]
            earlier = "" if chosen.summary is None else chosen.summary.text
            covers = window.merge_spans(chosen.summary, spans)
        return Stretch(read, earlier, covers)

    def calls(self) -> Groups:
        """The calls of the conversation: which have been made, and which wait for a result."""
        with self._counted.lock:
            self._counted.follow(self._shown)
            return self._counted.groups

    def _value(self, at: int) -> Any:
        return self._counted.value(self._shown.raw(at))

    def _cut(self, limits: WindowLimits, strategy: Strategy) -> tuple[Outgoing, MessagesRef, Counted, Window]:
        """Cut a window; repairs may make it longer, and then it is cut again."""
        limits.checked()
        with self._counted.lock:
            self._counted.follow(self._shown)
            tally = self._counted.tally(limits.counter)
            known, max_tokens = self._known(tally, limits.max_tokens), limits.max_tokens
            for _ in range(TRIES):
                chosen = self._chosen(tally, limits, max_tokens, strategy, known)
                outgoing = self._counted.outgoing(chosen, tally, known)
                tokens = chosen.tokens + outgoing.grown
                over = tokens - (limits.max_tokens - limits.reserve)
                if over <= 0:
                    return outgoing, self.ref, self._counted, replace(chosen, tokens=tokens)
                max_tokens -= over
        raise WindowTooSmall(
            f"the repaired conversation does not fit into {limits.max_tokens:,} tokens", hint="allow more tokens"
        )

    def _chosen(
        self, tally: Tally, limits: WindowLimits, max_tokens: int, strategy: Strategy, known: Mapping[str, str]
    ) -> Window:
        answers = {id: answer(ToolCall(id, ""), text) for id, text in known.items()}
        summary = self._summary() if strategy == "summarise" else None
        options = limits.options(max(max_tokens, 1))
        return window.window(tally, **options, strategy=strategy, summary=summary, answers=answers)

    def _summary(self) -> WindowSummary | None:
        made = self._summarised
        if made is None:
            return None
        text = self._counted.value(made.text)["text"]
        return WindowSummary(text, tuple(range(first, stop) for first, stop in made.covers))

    def _known(self, tally: Tally, max_tokens: int) -> dict[str, str]:
        """Return the outcomes of calls that have no result here, none longer than its share."""
        found = self._ledger(tally.groups)
        share = max_tokens // 4 // max(1, len(found))
        return {
            id: shorten(answer(ToolCall(id, ""), text), share, counter=tally.counter).text for id, text in found.items()
        }

    def _ledger(self, groups: Groups) -> dict[str, str]:
        asked: dict[int, list[ToolCall]] = {}
        for id, position in groups.open.items():
            if position < self._shown.settled and self._shown.logged[position][0]:  # else another task's, in a thread
                calls = [call for call in self._counted.read[position].calls if call.id == id]
                asked.setdefault(self._shown.logged[position][0], []).extend(calls[:1])
        ledger = self._counted.ledger
        return ledger.known(asked, self._shown.seen) if asked and ledger is not None else {}


def _same(one: Raw, other: Raw) -> bool:
    return one is other or bytes(one) == bytes(other)


def _result_of(message: Message) -> str:
    return message.result.call_id if message.role == "tool" else ""

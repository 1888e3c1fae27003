"""What each branch of a task sees (law 5): the state up to its last waiting verb, and what it has recorded since."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.structs import replace

from holdfast.core.codec import JSON_NULL
from holdfast.core.events import (
    Event,
    MessageAdded,
    PatchRefused,
    StateMigrated,
    StatePatched,
    StepCompleted,
    StepSettled,
    ThreadPatched,
    UserPatched,
    WaitEnded,
)
from holdfast.core.flows.requests import Branch
from holdfast.core.state.fold import evolve
from holdfast.core.state.fold_knowledge import identity_of
from holdfast.core.state.paths import is_nested
from holdfast.core.state.shapes import State
from holdfast.engine.definitions.state_versions import States, version_of
from holdfast.engine.logs.log import Log, PlacedEvent, decoded
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading.steps import message_values

if TYPE_CHECKING:
    from holdfast.core.state.moments import Moments


class Views:
    """The past of one turn, as far as it was read."""

    def __init__(
        self,
        logs: Logs,
        log: Log,
        first: int,
        messages: list[tuple[int, Raw]] | None = None,
        states: States | None = None,
    ) -> None:
        self._logs = logs
        self._states = states
        self._log = log
        self._first = first
        self._upto = log.head.seq
        self._start: State | None = log.state.copy() if log.head.seq == first else None
        self._recorded: dict[tuple[str, int], Event] | None = None
        self._messages = messages
        self._results: dict[str, Raw] = {}
        self._moments: Moments | None = None
        self._latest: tuple[int, State] | None = None
        self._read = 0
        log.tail = []
        self._tail = log.tail

    def load(self) -> None:
        """Read the turn so far. Happens by itself on the first look; an event loop has it done beforehand."""
        if self._start is not None:
            return
        name = self._log.name
        rows = self._logs.live_rows(name, after=self._first, upto=self._upto)
        before = [PlacedEvent(row.seq, row.at_us, decoded(log, row)) for log, row in rows]
        self._tail[:0] = before
        self._start = self._logs.load(name, upto=self._first).state

    def of(self, branch: Branch, version: int = 0) -> State:
        """Return a branch's view, its state of that version at least. Not to be changed, nor kept."""
        return self._lifted(self._of(branch), version)

    def _of(self, branch: Branch) -> State:
        if branch.sketch is not None:
            return branch.sketch
        past = self._log.state if branch.seen >= self._log.head.seq else self._at(branch.seen)
        if branch.own is None:
            return past
        sketch = past.sketch()
        for one in _oldest_first(branch.own):
            sketch = self._told(sketch, one)
        branch.sketch = sketch
        return sketch

    def load_conversation(self) -> None:
        """Read the messages before this turn. Happens by itself on the first look."""
        if self._messages is None:
            said_any = self._log.state.messages.count > 0
            self._messages = message_values(self._logs, self._log.name, self._first) if said_any else []

    def messages(self, branch: Branch) -> tuple[list[tuple[int, Raw]], int, list[Raw]]:
        """The conversation as far as a branch sees it, encoded: so many of those in the log, and its own since.

        What was read once is not read again, and costs nothing: the list only grows.
        """
        self._grow()
        assert self._messages is not None
        said = [event for event in self.own(branch) if isinstance(event, MessageAdded)]
        settled = bisect_right(self._messages, branch.seen, key=_first)
        return self._messages, settled, [_text_of(event, self._results) for event in said]

    def own(self, branch: Branch) -> list[Event]:
        """Return a branch's writings since its last waiting verb."""
        said = _oldest_first(branch.own)
        return [one if isinstance(one, Event) else self._said_before(one) for one in said]

    def _grow(self) -> None:
        """Take in the messages of this turn that were written since the last look."""
        self.load_conversation()
        self.load()
        assert self._messages is not None
        for told in self._tail[self._read :]:
            event = told.event
            if isinstance(event, MessageAdded):
                self._messages.append((told.seq, _text_of(event, self._results)))
            elif isinstance(event, StepCompleted | StepSettled) and isinstance(event.result, Raw):
                self._results[event.key] = event.result
            elif isinstance(event, WaitEnded) and isinstance(event.value, Raw):
                self._results[event.key] = event.value
        self._read = len(self._tail)

    def carried(self) -> list[tuple[int, Raw]] | None:
        """The conversation for the next turn, if anybody looked at it in this one."""
        if self._messages is not None:
            self._grow()
        return self._messages

    def add(self, branch: Branch, one: Event | tuple[str, int]) -> None:
        """The branch records an event, or gets what it recorded at that place the first time."""
        branch.own = (one, branch.own)
        if branch.sketch is not None:
            branch.sketch = self._told(branch.sketch, one)

    def again(self, branch: Branch, which: tuple[str, int], now: Event) -> None:
        """The branch records something again. The first record counts, unless it is of an older form than the state."""
        if self._states is not None and hasattr(now, "state_version"):
            sees = self.of(branch).state_version
            self.add(branch, now if version_of(self._said_before(which)) < sees else which)
        else:
            self.add(branch, which)

    def unless_older(self, which: tuple[str, int], event: Event) -> Event:
        """Return a repeated writing; or, if an older version took its path for a name, what that version wrote."""
        then = self._said_before(which)
        is_older = not is_nested(then) and _names(then) == _names(event)
        return then if is_older else event

    def _lifted(self, seen: State, version: int) -> State:
        if version <= seen.state_version or self._states is None:
            return seen
        return self._states.lift(seen, version, self._logs.blob)

    def _told(self, sketch: State, one: Event | tuple[str, int]) -> State:
        event = one if isinstance(one, Event) else self._said_before(one)
        sketch = self._lifted(sketch, version_of(event))
        return evolve(sketch, self._log.name, sketch.seq, sketch.updated_us, event)

    def _at(self, seq: int) -> State:
        """The state at an earlier event. The one asked for last is kept: a branch reads several times in a row."""
        self.load()
        assert self._start is not None
        if self._moments is None:
            from holdfast.core.state.moments import Moments

            self._moments = Moments(self._start)
        if self._latest is not None and self._latest[0] == seq:
            return self._latest[1]
        first = bisect_right(self._tail, self._moments.seq, key=_seq)
        last = bisect_right(self._tail, seq, key=_seq)
        for told in self._tail[first:last]:
            self._moments.grow(self._log.name, told.seq, told.at_us, told.event)
        found = self._moments.at(seq)
        self._latest = seq, found
        return found

    def _said_before(self, which: tuple[str, int]) -> Event:
        """Return the first writing at that place: its value counts, whatever the code writes now."""
        if self._recorded is None:
            self.load()
            assert self._start is not None
            self._recorded = _sayings(self._tail, self._start.state_version)
        return self._recorded[which]


def _first(message: tuple[int, Raw]) -> int:
    return message[0]


def _text_of(event: MessageAdded, results: dict[str, Raw]) -> Raw:
    """A message's own value, or the result of the step it was made of."""
    return event.message if isinstance(event.message, Raw) else results.get(event.step, JSON_NULL)


def _seq(told: PlacedEvent) -> int:
    return told.seq


def _oldest_first(own: Any) -> list[Any]:
    found: list[Any] = []
    while own is not None:
        one, own = own
        found.append(one)
    return found[::-1]


def _sayings(tail: list[PlacedEvent], version: int) -> dict[tuple[str, int], Event]:
    """Return the writings, each with the version of the state that it was made for."""
    found: dict[tuple[str, int], Event] = {}
    counts: dict[str, int] = {}
    for told in tail:
        if isinstance(told.event, StateMigrated):
            version = told.event.version
        if told.event.branch:
            identity = identity_of(told.event.branch, told.event)
            counts[identity] = counts.get(identity, 0) + 1
            event = _as_said(told.event)
            under = {"state_version": version} if hasattr(event, "state_version") else {}
            found[identity, counts[identity]] = replace(event, branch="", **under)
    return found


def _names(event: Event) -> tuple[Any, ...]:
    """Return the names that an event changes in the bag."""
    if isinstance(event, StatePatched):
        return (*event.patch.set, *event.patch.increment, *event.patch.append, *event.patch.delete)
    return (getattr(event, "name", ""),)


def _as_said(event: Event) -> Event:
    """Show refused changes as if they were done, until the verb that raises."""
    if not isinstance(event, PatchRefused):
        return event
    said = UserPatched if event.user else ThreadPatched if event.thread else StatePatched
    return said(patch=event.patch)

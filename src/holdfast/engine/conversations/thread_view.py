"""A thread's messages as one of its tasks sees them.

A thread outlives its tasks, so it has the messages itself; each says whose it is and which of that task's messages.
A task sees its thread up to where its turn began or up to its own last message, whichever is later.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw

from holdfast.core import codec, events as ev
from holdfast.core.codec import MessagesRef
from holdfast.core.state.shapes import State
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.logs import Logs

if TYPE_CHECKING:
    from holdfast.engine.conversations.thread_cache import ThreadMessages
    from holdfast.engine.logs.cache import Removal

Logged = list[tuple[int, Raw]]
"""Messages, each with its seq in the task's own log; 0 for those of others."""


class ThreadView:
    """The messages of a thread, read as they come."""

    def __init__(self, logs: Logs, name: str, log: Log) -> None:
        self.name = name
        self.is_stale = True
        self._logs = logs
        first = logs.segments(log.name)[0]
        self._owner, self._inherited = first.log, first.upto
        self._messages: Logged = []
        self._seqs: list[int] = []
        self._digests: list[str] = [""]
        self._mine: dict[int, int] = {}
        self._unplaced: list[tuple[int, int]] = []
        self._removals: list[Removal] = []
        self._upto = 0

    def grow(self) -> None:
        """Read the messages since the last look; the first look may begin with this process's cache."""
        from holdfast.engine.conversations import thread_cache  # few tasks have a thread

        self.is_stale = False
        if not self._seqs:
            self._take(thread_cache.all_of(self._logs, self.name))
        else:
            rows = self._logs.store.read(self.name, after=self._upto)
            self._take(thread_cache.read(self._logs, self.name, rows, self._digests[-1]))

    def _take(self, more: ThreadMessages) -> None:
        start = len(self._messages)
        self._removals += more.removals
        self._upto = max((self._upto, *more.seqs[-1:], *(one[0] for one in more.removals[-1:])))
        self._seqs += more.seqs
        self._messages += [(0, raw) for raw in more.raws]
        self._digests += more.digests
        for at, (task, index) in enumerate(more.owners, start):
            if task == self._owner:
                self._mine[index] = at + 1
                self._unplaced.append((at, index))

    def shown(self, own: Logged, count: int, pins: ev.Pins) -> tuple[Logged, int]:
        """Return the list for a reader who sees so many of the task's own messages, and how many of it."""
        if self.is_stale:
            self.grow()
        for at, index in self._unplaced:
            if index <= len(own):
                self._messages[at] = (own[index - 1][0], self._messages[at][1])
        self._unplaced = [(at, index) for at, index in self._unplaced if index > len(own)]
        spoken_messages = (
            count  # what a fork says itself, or its parent after the fork, is not in the thread as its own
        )
        if self._inherited is not None:
            spoken_messages = min(count, bisect_right(own, self._inherited, key=lambda one: one[0]))
        last = next((self._mine[index] for index in range(spoken_messages, 0, -1) if index in self._mine), 0)
        end = max(bisect_right(self._seqs, pins.thread), last)
        first = next(iter(self._mine), spoken_messages + 1)  # before it: what a contract brought along
        apart = [*own[: min(first - 1, spoken_messages)], *own[spoken_messages:count]]
        left = self._left(end, max(pins.thread, self._seqs[last - 1] if last else 0)) if self._removals else None
        if left is not None:
            return left + apart, len(left) + len(apart)
        return (self._messages[:end] + apart, end + len(apart)) if apart else (self._messages, end)

    def _left(self, end: int, horizon: int) -> Logged | None:
        """Those of the first messages that are left for a reader who sees the log up to a seq; None if all are."""
        gone, upto = set[int](), 0
        for at, seqs, cleared in self._removals:
            if at <= horizon:
                gone.update(seqs)
                upto = max(upto, cleared)
        if not gone and not upto:
            return None
        pairs = zip(self._seqs[:end], self._messages[:end], strict=True)
        return [one for seq, one in pairs if seq > upto and seq not in gone]

    def ref(self, logged: Logged, settled: int, said: Sequence[Raw]) -> MessagesRef:
        """The identity of what is shown: the thread, how many messages, their running digest."""
        if logged is self._messages:
            digest, rest = self._digests[settled], said
        else:
            digest, rest = "", [*(raw for _, raw in logged[:settled]), *said]
        for raw in rest:
            digest = codec.running(digest, raw)
        return MessagesRef(self.name, settled + len(said), digest)


def spoken_messages(state: State, events: Sequence[ev.Event], logs: Logs) -> list[ev.MessageAdded]:
    """Return a task's messages among these events, as its thread keeps them: each with its value."""
    said: list[ev.MessageAdded] = []
    for event in events:
        if isinstance(event, ev.MessageAdded):
            step = None if not event.step else state.steps.get(event.step) or state.prelude.get(event.step)
            raw = event.message if event.message is not UNSET else codec.JSON_NULL if step is None else step.result
            index = state.messages.count + len(said) + 1
            if bytes(raw).startswith(b'{"$blob"'):
                raw = codec.pack(codec.unpack(raw, logs.blob))  # it is salted as the thread's values are
            said.append(ev.MessageAdded(message=raw, task=state.summary.id, index=index, user=state.summary.user or ""))
    return said

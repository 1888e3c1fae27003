"""Records on their way to the log, and what may stop a task."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core import events as ev
from holdfast.core.codec import Write
from holdfast.core.flows.requests import Append
from holdfast.core.state import merge
from holdfast.engine.logs.committer import PlacedEvent
from holdfast.engine.logs.foreseen import Foreseen

_PENDING = object()


class Stop:
    """Whether a task was asked to stop before its next step, and can be resumed; so are its children then.

    A child is stopped at `until_us`, too: when the wall time of the parent that it is worked on for is over.
    """

    def __init__(self, parent: Stop | None = None, until_us: int | None = None) -> None:
        self.asked = parent is not None and parent.asked
        self.until_us = until_us
        self._children: weakref.WeakSet[Stop] | None = None
        if parent is not None:
            if parent._children is None:
                parent._children = weakref.WeakSet()
            parent._children.add(self)

    def ask(self) -> None:
        """Stop it."""
        self.asked = True
        for child in () if self._children is None else list(self._children):
            child.ask()

    def ask_at(self, now_us: int) -> None:
        """Stop a child whose parent's wall time is over: its parent decides what comes of it."""
        if self.until_us is not None and now_us >= self.until_us:
            self.ask()


class PendingWrite:
    """A record on its way: what to write, here and `also` in other logs, and what became of it."""

    __slots__ = ("also", "answer", "decided_at", "error", "parent", "record", "tell")

    def __init__(self, record: Append, decided_at: int) -> None:
        self.record = record
        self.decided_at = decided_at
        self.also: tuple[Write, ...] = ()
        self.parent: Foreseen | None = None
        self.answer: Any = _PENDING
        self.error: BaseException | None = None
        self.tell: Callable[[PendingWrite], None] | None = None

    def settle(self, answer: Any, error: BaseException | None = None) -> None:
        self.answer, self.error = answer, error
        if self.tell is not None:
            self.tell(self)

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.answer

    @property
    def settled(self) -> bool:
        """True if it is known what became of it."""
        return self.answer is not _PENDING

    @property
    def alone(self) -> bool:
        """True if it may be refused for a reason of its own, which must not fail others with it."""
        record = self.record
        signals = record.decided and any(type(one) is ev.WaitEnded for one in record.events)
        return bool(record.unique_keys or record.freed_keys or signals or self.also or record.heads)

    def overtaken(self, tail: Sequence[PlacedEvent], before: Sequence[ev.Event]) -> bool:
        """Return whether what it was decided on has changed since, in the log or by what would be written before it."""
        reads = self.record.reads
        if reads is None:
            return False
        since = itertools.takewhile(lambda one: one.seq > reads.seq, reversed(tail))
        touched = (touch.path for event in (*(one.event for one in since), *before) for touch in merge.touches(event))
        return any(merge.overlap(one, path) for one in touched for path in reads.paths)


def settle(batch: Sequence[PendingWrite], error: BaseException | None = None) -> None:
    """Tell all of them the same."""
    for entry in batch:
        entry.settle(error is None, error)


def no_body() -> None:
    """Stands in for an agent's function where there is none."""
    raise AssertionError("a block has no body to call")

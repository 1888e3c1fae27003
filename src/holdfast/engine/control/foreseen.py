"""Logs that many tasks of this process are about to write to: each write follows the one before, committed or not.

When the children of a task end together, each end is a group with an event for their parent's log. If each followed
the head that is committed, only one of a batch could be written, and all others would begin again. So each follows
what the others have drafted. If one of them is refused, those after it are too, and they are drafted anew.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

from holdfast.core.codec import Write
from holdfast.core.errors import HoldfastError
from holdfast.core.events import Event
from holdfast.core.state.shapes import State
from holdfast.engine.logs.heads import Heads
from holdfast.engine.logs.log import Log

Decide = Callable[[State], Sequence[Event]]


class Foreseen:
    """A log as it will be when everything drafted here is committed."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.under_way = 0


class ForeseenLogs:
    """The logs with drafts under way; and one whose drafts are all committed, which may soon get another."""

    def __init__(self, load: Callable[[str], Log], heads: Heads) -> None:
        self._load = load
        self._heads = heads
        self._lock = threading.Lock()
        self._logs: dict[str, Foreseen] = {}
        self._idle: Foreseen | None = None

    def draft(self, name: str, decide: Decide) -> tuple[Write, Foreseen] | None:
        """Draft what a decision about the foreseen state asks for, or nothing. `settle` must follow a draft."""
        try:
            return self.draft_at_once(name, decide)
        except BlockingIOError:
            return self.draft_at_once(name, decide, self.read(name))

    def draft_at_once(self, name: str, decide: Decide, fresh: Log | None = None) -> tuple[Write, Foreseen] | None:
        """Draft without reading anything: BlockingIOError if the log must be read first, which gives `fresh`.

        What was foreseen may be behind, or never come. So only a fresh log can say that nothing is asked for.
        """
        with self._lock:
            found = self._logs.get(name)
            events = None if found is None or self._is_stale(found) else decide(found.log.state)
            if found is None or not events:
                if fresh is None:
                    raise BlockingIOError
                events = decide(fresh.state)
                if not events:
                    return None
                found = self._logs[name] = Foreseen(fresh)
            write = found.log.draft(events)
            found.log.foresee(write)
            found.under_way += 1
            return write, found

    def read(self, name: str) -> Log:
        """Read what is new in a log, or all of it if drafts are under way."""
        with self._lock:
            found = self._logs.get(name)
            known = self._logs.pop(name).log if found is not None and not found.under_way else None
        return self._news(known) or self._load(name)

    def _news(self, known: Log | None) -> Log | None:
        """Return a known log with what is new in it; None if that cannot be had."""
        if known is not None:
            with contextlib.suppress(HoldfastError):  # why, is found out by reading all of it
                known.refresh()
                return known
        return None

    def _is_stale(self, found: Foreseen) -> bool:
        """Return whether a log with no draft under way is known to have moved on."""
        known = self._heads.get(found.log.name)
        return not found.under_way and known is not None and known.head.seq > found.log.head.seq

    def settle(self, one: Foreseen, *, committed: bool) -> None:
        """A draft was committed, or refused: then whatever was drafted after it will be refused, too."""
        with self._lock:
            one.under_way -= 1
            if not committed:
                self._drop(one)
            elif not one.under_way:
                idle, self._idle = self._idle, one
                if idle is not None and idle is not one and not idle.under_way:
                    self._drop(idle)

    def _drop(self, one: Foreseen) -> None:
        if self._logs.get(one.log.name) is one:
            del self._logs[one.log.name]

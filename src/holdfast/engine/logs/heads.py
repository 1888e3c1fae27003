"""Heads that were acknowledged to this process: a log that is behind one has lost something."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from holdfast.core import limits
from holdfast.core.codec import Head


class KnownHead(NamedTuple):
    """A head that was acknowledged, and the turn the task was in."""

    head: Head
    turn: int


class Heads:
    """How far logs had come when this process last wrote to them: one that is behind that later has lost something."""

    def __init__(self) -> None:
        self._known: dict[str, KnownHead] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def get(self, name: str) -> KnownHead | None:
        """Return the acknowledged head of a log, if it was written here."""
        return self._known.get(name)

    def remember(self, name: str, head: Head, turn: int) -> None:
        """Keep in mind how far a task's log has come."""
        before = self._known.get(name)
        if name[0] == "@" or (before is not None and before.head.seq > head.seq):
            return
        self._known[name] = KnownHead(head, turn)
        while len(self._known) > limits.MAX_KNOWN_HEADS:
            with contextlib.suppress(RuntimeError, StopIteration, KeyError):  # another thread does the same
                del self._known[next(iter(self._known))]

    def forget(self, name: str) -> None:
        """Forget the head of a removed log."""
        self._known.pop(name, None)


class RecordHeads:
    """The same for logs of records, which others may drop and begin again.

    With a known head, an append is one statement. If the log has moved on, the write itself finds out and is refused.
    No seq of a key is used twice: so a head behind a known one says that records were lost.
    """

    def __init__(self) -> None:
        self._known: dict[str, Head] = {}

    def get(self, name: str) -> Head | None:
        """Return the known head of a log."""
        return self._known.get(name)

    def remember(self, name: str, head: Head) -> None:
        """Keep in mind how far a log has come."""
        self._known[name] = head
        while len(self._known) > limits.MAX_KNOWN_HEADS:
            with contextlib.suppress(RuntimeError, StopIteration, KeyError):  # another thread does the same
                del self._known[next(iter(self._known))]

    def forget(self, name: str) -> None:
        """Look next time."""
        self._known.pop(name, None)

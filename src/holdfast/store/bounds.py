"""How long, and by whom, the connection of a transaction tool may be used; the same for every store."""

from __future__ import annotations

import threading
import time

from holdfast.core.errors import StoreClosed, StoreError, TimeLimit


class Bounds:
    """The time and the thread that a transaction belongs to."""

    def __init__(self, seconds: float | None) -> None:
        self.ended = False
        self._thread = threading.get_ident()
        self._seconds = seconds
        self._until = None if seconds is None else time.monotonic() + seconds

    @property
    def is_late(self) -> bool:
        """True if the time limit has passed."""
        return self._until is not None and time.monotonic() > self._until

    def too_late(self) -> TimeLimit:
        """Return the error for that case."""
        return TimeLimit(
            f"the transaction took longer than its limit of {self._seconds:g} s; nothing was written",
            hint="raise its timeout",
            seconds=self._seconds,
        )

    def refuse_outside(self) -> None:
        """Refuse a statement after the transaction, or beside it."""
        if self.ended:
            raise StoreClosed("this connection's transaction has ended", hint="use it inside the tool it was given to")
        if self._thread != threading.get_ident():
            raise StoreError("this connection belongs to another thread", hint="use it where the tool runs")

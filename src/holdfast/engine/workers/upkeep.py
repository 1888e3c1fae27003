"""Retention on a schedule: workers remove old tasks by themselves, one of them each time.

What tells them whose turn it is is a record in the store: the worker that appends it collects. Any number of workers
may declare the same; who comes second finds that it was done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import force_setattr

from holdfast.core import codec
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import Conflict, HoldfastError, InvalidValue
from holdfast.engine.dispatch import claim
from holdfast.engine.logs.logs import Logs
from holdfast.engine.maintenance import retention
from holdfast.engine.maintenance.retention import Collected
from holdfast.engine.records.records import Records

SPACE, KEY = "holdfast.upkeep", "gc"
MARKS_KEPT = 10
LOOK_SECONDS = 0.5
"""How often a worker looks at the clock. It asks the store only when the time has come."""


class Retention(Struct, frozen=True, kw_only=True):
    """How often workers remove ended tasks, and which: `app.worker([…], gc=Retention(every="1h", older_than="30d"))`.

    `older_than`: those that ended longer ago than this. `keep`: all but the newest so many. `snapshots_older_than`:
    cached states too. At least one of them is needed; they are those of `app.gc`.
    """

    every: Duration
    older_than: Duration | None = None
    keep: int | None = None
    snapshots_older_than: Duration | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "every", seconds(self.every, "every", above_zero=True))
        for name in ("older_than", "snapshots_older_than"):
            given = getattr(self, name)
            if given is not None:
                force_setattr(self, name, seconds(given, name))
        retention.refuse_keep(self.keep)
        if self.older_than is None and self.keep is None and self.snapshots_older_than is None:
            raise InvalidValue(
                "this retention removes nothing", hint='say what may go: Retention(every="1h", older_than="30d")'
            )


class Upkeep:
    """Collects what is due, in a thread of its own, until it is stopped."""

    def __init__(self, logs: Logs, wanted: Retention, who: str, tell: Callable[[Collected], None]) -> None:
        self._logs, self._wanted, self._who, self._tell = logs, wanted, who, tell
        self._records = Records(logs, SPACE)
        self._next_us = 0
        self._trouble = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-gc", daemon=True)

    def __enter__(self) -> Upkeep:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        """Stop. What is being collected may take a while longer; it is safe at any point."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._logs.clock.now_us() >= self._next_us:
                try:
                    found = self.collect_due()
                    self._trouble = ""
                except HoldfastError as error:
                    found = None
                    self._warn_once(error)
                if found is not None:
                    self._tell(found)
            self._stopping.wait(LOOK_SECONDS)

    def collect_due(self) -> Collected | None:
        """Collect, if it is due and no other worker has begun; None if not."""
        now_us, every_us = self._logs.clock.now_us(), int(seconds(self._wanted.every) * 1_000_000)
        self._next_us = now_us + every_us  # also after an error: what fails now is not tried again at once
        head = self._records.head(KEY)
        last = self._records.read(KEY, last=1)
        due_us = last[0].at_us + every_us if last else now_us
        if now_us < due_us:
            self._next_us = due_us
            return None
        try:
            self._records.append(KEY, codec.dump({"by": self._who}), expect=head)
        except Conflict:
            return None  # another worker was first
        found = self._collect(now_us)
        self._records.trim(KEY, keep=MARKS_KEPT)
        return found

    def _collect(self, now_us: int) -> Collected:
        wanted = self._wanted
        before = [
            None if age is None else now_us - int(seconds(age) * 1_000_000)
            for age in (wanted.older_than, wanted.snapshots_older_than)
        ]
        return retention.collect(
            self._logs, older_than_us=before[0], keep=wanted.keep, snapshots_before_us=before[1], why="retention"
        )

    def _warn_once(self, error: HoldfastError) -> None:
        if error.message != self._trouble:
            self._trouble = error.message
            claim.warn("worker %s: gc: %s; it tries again in its next turn", self._who, error.message)

"""Notices when the inbox fills: to the program that opened the store, and to its webhook, from any process.

A thread watches the inbox while the app is open. A task that this process itself worked on is reported by the thread
that worked on it, as soon as it waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.core.errors import HoldfastError, StoreError
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.logs import Logs
from holdfast.engine.notices.watch import FOR_PEOPLE, InboxWatch, Notice
from holdfast.engine.notices.webhook import NotDelivered, Webhook
from holdfast.engine.reading import inbox
from holdfast.engine.reading.task_state import TaskState
from holdfast.engine.system.warning import warn

OnWait = Callable[[TaskState], None]

JOIN_SECONDS = 5.0
"""How long closing waits for a notice that is being delivered."""


class Notices:
    """Tells of what is new in the inbox until it is closed."""

    def __init__(
        self, logs: Logs, on_wait: OnWait | None, webhook: Webhook | None, is_ours: Callable[[str], bool]
    ) -> None:
        """`is_ours` knows which tasks are being worked on here: of those, who works on them tells."""
        self._logs = logs
        self._on_wait = on_wait
        self._webhook = webhook
        self._watch = InboxWatch(logs, kinds=FOR_PEOPLE, is_left_alone=is_ours)
        self._watch.skip_present()
        self._posted: list[Notice] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._attempts: int | None = None
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name="holdfast-notices", daemon=True)
        self._thread.start()

    def skip(self, log: Log) -> None:
        """Mark what a task waits for as reported, before others here can see that this process is done with it."""
        items = inbox.items_of_log(self._logs, log)
        with self._lock:
            self._posted += self._watch.skip(log.state.summary, items)

    def tell(self, log: Log) -> None:
        """Tell the program that a task it worked on now waits for a person."""
        if self._on_wait is not None and _waits_for_people(log):
            self._call(log.name, lambda: log)

    def close(self) -> None:
        """Stop. A notice that is being delivered may take a while longer."""
        self._stopping.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_SECONDS)

    # The thread that watches

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._lock:
                    found = self._watch.look()
                    posted, self._posted = self._posted, []
                self._trouble = ""
            except HoldfastError as error:
                self._warn_once(error)
                found, posted = [], []
            self._tell_of(found)
            self._post([*posted, *found])
            self._stopping.wait(self._watch.rest_seconds)

    def _tell_of(self, found: list[Notice]) -> None:
        """Tell the program of each task once, however many things it waits for."""
        if self._on_wait is not None:
            for id in dict.fromkeys(notice.item.task for notice in found):
                self._call(id, lambda id=id: self._logs.load(id))

    def _call(self, id: str, load: Callable[[], Log]) -> None:
        """Call the program's function. What it raises, also SystemExit, ends neither a task's work nor this thread."""
        assert self._on_wait is not None
        try:
            self._on_wait(TaskState(load(), self._logs))
        except (Exception, SystemExit) as error:  # noqa: BLE001 — whatever the program does with it, others get their notice too
            warn("on_wait failed for task %s: %s: %s", id, type(error).__name__, error)

    def _post(self, found: list[Notice]) -> None:
        """Send notices. While the receiver is away, each is tried once only: there may be many."""
        if self._webhook is None:
            return
        for notice in found:
            if self._stopping.is_set():
                return
            try:
                self._webhook.deliver(notice, self._stopping, attempts=self._attempts)
                self._attempts = None
            except NotDelivered as error:
                self._attempts = self._attempts if error.permanent else 1
                warn("webhook: task %s: %s", notice.item.task, error)

    def _warn_once(self, error: HoldfastError) -> None:
        """The store cannot be read, for now: say so once."""
        if isinstance(error, StoreError) and self._stopping.is_set():
            return
        if error.message != self._trouble:
            self._trouble = error.message
            warn("the inbox can't be watched: %s; it keeps trying", error.message)


def _waits_for_people(log: Log) -> bool:
    return log.state.summary.waiting in ("person", "doubt", "budget", "quarantined", "diverged")

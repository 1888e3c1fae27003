"""Reports of failed tasks: to the program's log, always, and to its `on_failure`, whichever process the task ran in.

A task that this process worked on is reported by the thread that worked on it. For the others, a thread watches the
changes of tasks while the app is open.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.core import limits
from holdfast.core.errors import HoldfastError, TaskCollected, TaskNotFound
from holdfast.engine.lists.feed import Feed
from holdfast.engine.lists.watch import TaskWatch
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading.task_state import TaskState
from holdfast.engine.system.warning import warn
from holdfast.store.protocol import Query

OnFailure = Callable[[TaskState], None]

Identity = tuple[str, int, int]
"""A failure of a task: it may fail again when it was resumed."""


class FailureNotices:
    """Tells a program of each failure once, until it is closed."""

    def __init__(self, logs: Logs, feed: Feed, on_failure: OnFailure, is_ours: Callable[[str], bool]) -> None:
        """`is_ours` knows which tasks are being worked on here: of those, the thread that works on them tells."""
        self._logs, self._feed, self._on_failure, self._is_ours = logs, feed, on_failure, is_ours
        self._told: dict[Identity, None] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._trouble = ""
        self._cursor = self._failed_tasks(None).cursor
        self._thread = threading.Thread(target=self._run, name="holdfast-failures", daemon=True)
        self._thread.start()

    def expect(self, log: Log) -> bool:
        """Mark a failure as reported; return whether it is new. Called before others can see that the work is over."""
        name = (log.name, log.state.failed_at, log.state.summary.claims)
        with self._lock:
            is_new = name not in self._told
            self._told[name] = None
            while len(self._told) > limits.FAILURES_KEPT:
                del self._told[next(iter(self._told))]
        return is_new

    def tell(self, log: Log) -> None:
        """Call the program's function. What it raises, also SystemExit, ends neither a task's work nor the thread."""
        try:
            self._on_failure(TaskState(log, self._logs))
        except (Exception, SystemExit) as error:  # noqa: BLE001 — whatever the program does with it, work continues
            warn("on_failure failed for task %s: %s: %s", log.name, type(error).__name__, error)

    def close(self) -> None:
        """Stop reporting. The feed is closed too, which ends the thread."""
        self._stopping.set()

    # The thread that watches

    def _run(self) -> None:
        while not self._stopping.is_set():
            watch = self._failed_tasks(self._cursor)
            try:
                self._watch(watch)
            except HoldfastError as error:
                self._warn_once(error)
            self._cursor = watch.cursor
            if self._feed.is_closed:
                return
            self._stopping.wait(limits.NOTICE_SECONDS)

    def _failed_tasks(self, after: str | None) -> TaskWatch:
        query = Query(status="failed", namespace=self._logs.namespace)
        return TaskWatch(self._logs, self._feed, query, after=after, seconds=None)

    def _watch(self, watch: TaskWatch) -> None:
        for change in watch:
            self._trouble = ""
            if self._stopping.is_set():
                return
            if self._is_ours(change.id):
                continue
            try:
                log = self._logs.load(change.id)
            except (TaskNotFound, TaskCollected):
                continue  # it went away meanwhile
            if log.state.summary.status == "failed" and self.expect(log):
                self.tell(log)

    def _warn_once(self, error: HoldfastError) -> None:
        """The store cannot be read, for now: say so once."""
        if not self._stopping.is_set() and error.message != self._trouble:
            self._trouble = error.message
            warn("failed tasks can't be watched for: %s; it keeps trying", error.message)


def log_failure(logs: Logs, log: Log) -> None:
    """Write to the program's log that a task failed, of what, and where the state is that it failed in."""
    import logging  # few programs fail

    state, failure = log.state, log.state.failure
    assert failure is not None
    step = state.failed_step or next((one.step for one in (failure, failure.cause) if one is not None and one.step), "")
    raised = failure.cause if failure.step and failure.cause is not None else failure
    told = {"task": log.name, "agent": state.summary.agent, "step": step, "state_seq": state.failed_at}
    level = logging.ERROR if state.summary.parent is None else logging.INFO  # a child's is its parent's to handle
    logging.getLogger(limits.FAILURE_LOGGER).log(
        level,
        "task %s of agent %s failed%s: %s: %s; the state it failed in: app.at(%r, %d)",
        log.name,
        state.summary.agent,
        f" in step {step}" if step else "",
        raised.type,
        raised.message,
        log.name,
        state.failed_at,
        extra={f"holdfast_{name}": value for name, value in told.items()} | {"holdfast_namespace": logs.namespace},
    )

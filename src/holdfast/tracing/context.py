"""Task, step and trace on the log lines that a program writes itself."""

from __future__ import annotations

import logging

from holdfast.engine.app import App
from holdfast.engine.definitions.call import BODY, current_call
from holdfast.engine.verbs.task import Task
from holdfast.tracing.readable import trace_id


class TaskContext(logging.Filter):
    """Add `holdfast_task`, `holdfast_step` and `trace_id` to log records; they are empty outside of a task.

    It is a filter that lets everything through: `handler.addFilter(TaskContext(app))`.
    """

    def __init__(self, app: App) -> None:
        super().__init__()
        self._app = app
        self._last = ("", "")

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the values. A record that has them already, as those of `holdfast.events` do, keeps them."""
        if not hasattr(record, "holdfast_task"):
            call, body = current_call(), BODY.get()
            task = call.task_id if call is not None else body.id if isinstance(body, Task) else ""
            record.holdfast_task, record.holdfast_step = task, "" if call is None else call.step
            record.trace_id = self._trace(task)
        return True

    def _trace(self, task: str) -> str:
        known, trace = self._last
        if known != task:
            trace = trace_id(self._app, task) if task else ""
            self._last = task, trace
        return trace

"""Links between a task and the one that continues its work."""

from __future__ import annotations

from holdfast import App, StatePatch, TaskState
from holdfast.core.errors import TaskFinished
from holdfast.mcp.reading.uris import task_uri

CONTINUES, CONTINUED_BY = "continues", "continued_by"
"""The facts that link a task with the one it continues, and back."""

SPACE = "mcp-continued"
"""Records of what continues tasks that have ended: the log of such a task takes nothing more."""


def continued_by(app: App, task: TaskState) -> str | None:
    """The URI of the task that continues this one."""
    if CONTINUED_BY in task.facts:
        return str(task.facts[CONTINUED_BY].value)
    if task.status not in ("completed", "failed", "cancelled"):
        return None
    return next((record.data.decode() for record in app.records(SPACE).read(task.id)), None)


def link(app: App, old: TaskState, new: TaskState, by: str) -> None:
    """Write into a task, or beside it if it has ended, what continues it. The first link stays."""
    if continued_by(app, old) is not None:
        return
    uri = task_uri(new.agent, new.id)
    fact = {"key": CONTINUED_BY, "value": uri, "source": by}
    try:
        app.patch(old.id, StatePatch(append_facts=[fact]), by=by, why="another task continues the work")
    except TaskFinished:
        app.records(SPACE).append(old.id, uri.encode())

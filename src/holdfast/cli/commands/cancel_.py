"""`holdfast cancel`."""

from __future__ import annotations

from holdfast.cli.command import by_options, command, task_argument
from holdfast.cli.environment import Environment


@command("cancel")
@task_argument
@by_options
def cancel_(environment: Environment, id: str, by: str, why: str) -> None:
    """Cancel a task and its children.

    A task that no worker has ends at once. A running task ends before its next step, after its compensations.

    Example: holdfast cancel trip-oslo --why "plans changed"
    """
    from holdfast.cli.input.changes import CANCELLING, changed

    changed(environment, id, lambda app, id: app.cancel(id, by=by, why=why), CANCELLING)

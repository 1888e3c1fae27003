"""`holdfast reopen`."""

from __future__ import annotations

import click

from holdfast.cli.command import by_options, command, task_argument
from holdfast.cli.environment import Environment


@command("reopen")
@task_argument
@click.option("--deadline", metavar="TIME", help='How long it may take from now on, such as "10m".')
@click.option("--anyway", is_flag=True, help="Reopen it even if its log has lost events.")
@by_options
def reopen_(environment: Environment, id: str, deadline: str | None, anyway: bool, by: str, why: str) -> None:
    """Make a failed or quarantined task pending for workers.

    Nothing is run here: a worker takes the task. The failed step gets fresh attempts. A task that has lost events
    continues from what is left, if you say --anyway.

    Example: holdfast reopen trip-oslo --why "the server is back"
    """
    from holdfast.cli.input.changes import changed

    changed(
        environment,
        id,
        lambda app, id: app.reopen(id, by=by, why=why, anyway=anyway, deadline=deadline),
        "reopened it",
        for_workers=True,
    )

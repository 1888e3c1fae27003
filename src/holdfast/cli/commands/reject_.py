"""`holdfast reject`."""

from __future__ import annotations

import click

from holdfast.cli.command import by_options, command, task_argument
from holdfast.cli.completion import waited_for
from holdfast.cli.environment import Environment


@command("reject")
@task_argument
@click.argument("call", shell_complete=waited_for("approval"))
@by_options
def reject_(environment: Environment, id: str, call: str, by: str, why: str) -> None:
    """Refuse a call that waits for consent; it stays refused.

    Example: holdfast reject trip-oslo book_flight#1 --by ana --why "too dear"
    """
    from holdfast.cli.input.changes import changed

    changed(environment, id, lambda app, id: app.reject(id, call, by=by, why=why), f"rejected {call}")

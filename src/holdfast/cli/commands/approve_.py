"""`holdfast approve`."""

from __future__ import annotations

import click

from holdfast.cli.command import by_options, command, task_argument
from holdfast.cli.completion import waited_for
from holdfast.cli.environment import Environment


@command("approve")
@task_argument
@click.argument("call", shell_complete=waited_for("approval"))
@click.option("--expires", metavar="TIME", help='How long the consent holds, such as "1h".')
@by_options
def approve_(environment: Environment, id: str, call: str, expires: str | None, by: str, why: str) -> None:
    """Consent to a call that waits for it, once, for exactly its arguments.

    CALL is its key, or the name of its tool if only one waits.

    Example: holdfast approve trip-oslo book_flight#1 --by ana
    """
    from holdfast.cli.input.changes import changed

    changed(environment, id, lambda app, id: app.approve(id, call, by=by, why=why, expires=expires), f"approved {call}")

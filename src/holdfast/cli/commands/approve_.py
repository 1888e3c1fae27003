"""`holdfast approve`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.command import bound_option, by_options, command, task_argument
from holdfast.cli.completion import waited_for
from holdfast.cli.environment import Environment


@command("approve")
@task_argument
@click.argument("call", shell_complete=waited_for("approval"))
@click.option("--expires", metavar="TIME", help='How long the approval holds, such as "1h".')
@bound_option
@by_options
def approve_(
    environment: Environment, id: str, call: str, expires: str | None, bound: str | None, by: str, why: str
) -> None:
    """Approve a pending call, once, for exactly these arguments.

    CALL is its key, or the name of its tool if only one waits. `holdfast inbox` prints the whole command, with the
    digest of the arguments that it shows.

    Example: holdfast approve trip-oslo book_flight#1 --bound 3f2a90c11b7e --by ana
    """
    from holdfast.cli.input.changes import changed

    def approve(app: Any, id: str) -> Any:
        return app.approve(id, call, bound=bound, by=by, why=why, expires=expires)

    changed(environment, id, approve, f"approved {call}")

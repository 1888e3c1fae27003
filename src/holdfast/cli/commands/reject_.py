"""`holdfast reject`."""

from __future__ import annotations

import click

from holdfast.cli.command import bound_option, by_options, command, task_argument
from holdfast.cli.completion import waited_for
from holdfast.cli.environment import Environment


@command("reject")
@task_argument
@click.argument("call", shell_complete=waited_for("approval"))
@bound_option
@by_options
def reject_(environment: Environment, id: str, call: str, bound: str | None, by: str, why: str) -> None:
    """Refuse a call that waits for approval; it stays refused.

    Example: holdfast reject trip-oslo book_flight#1 --bound 3f2a90c11b7e --by ana --why "too dear"
    """
    from holdfast.cli.input.changes import changed

    changed(environment, id, lambda app, id: app.reject(id, call, bound=bound, by=by, why=why), f"rejected {call}")

"""`holdfast approve`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.command import bound_option, by_options, command, resume_option, task_argument
from holdfast.cli.completion import waited_for
from holdfast.cli.environment import Environment


@command("approve")
@task_argument
@click.argument("call", shell_complete=waited_for("approval"))
@resume_option
@click.option("--expires", metavar="TIME", help='How long the approval is valid, such as "1h".')
@bound_option
@by_options
def approve_(environment: Environment, id: str, call: str, target: str | None, resume: bool, **given: Any) -> None:
    """Approve a pending call, once, for exactly these arguments.

    CALL is the call's key, or the name of its tool if only one waits. `holdfast inbox` shows the arguments and prints
    the whole command. An approval covers one attempt that may have had an effect. FILE is for --resume.

    Example: holdfast approve trip-oslo book_flight#1 trip.py --resume --bound 3f2a90c11b7e --by ana
    """
    from holdfast.cli.work.decisions import decided

    decided(
        environment,
        id,
        lambda app, id: app.approve(id, call, **given),
        f"approved {call}",
        target=target,
        resume=resume,
    )

"""`holdfast reject`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.command import bound_option, by_options, command, resume_option, task_argument
from holdfast.cli.completion import waited_for
from holdfast.cli.environment import Environment


@command("reject")
@task_argument
@click.argument("call", shell_complete=waited_for("approval"))
@resume_option
@bound_option
@by_options
def reject_(environment: Environment, id: str, call: str, target: str | None, resume: bool, **given: Any) -> None:
    """Reject a call that waits for approval, for good.

    The call fails with ApprovalDenied, also when the task is resumed. CALL is the call's key, or the name of its tool
    if only one waits.

    Example: holdfast reject trip-oslo book_flight#1 --bound 3f2a90c11b7e --by ana --why "too dear"
    """
    from holdfast.cli.work.decisions import decided

    decided(
        environment, id, lambda app, id: app.reject(id, call, **given), f"rejected {call}", target=target, resume=resume
    )

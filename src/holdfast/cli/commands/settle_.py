"""`holdfast settle`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.command import by_options, command, resume_option, task_argument
from holdfast.cli.completion import waited_for
from holdfast.cli.environment import Environment


@command("settle")
@task_argument
@click.argument("call", shell_complete=waited_for("doubt"))
@resume_option
@click.option("--happened", is_flag=True, help="The call happened; you have checked.")
@click.option("--did-not-happen", is_flag=True, help="The call did not happen, and will not.")
@click.option(
    "--result", metavar="VALUE", help="With --happened: the value that the tool returned, as JSON, or else text."
)
@by_options
def settle_(
    environment: Environment,
    id: str,
    call: str,
    happened: bool,
    did_not_happen: bool,
    result: str | None,
    target: str | None,
    resume: bool,
    **given: Any,
) -> None:
    """Record whether a call in doubt happened.

    Check at the destination first: Holdfast can't check your answer. With --happened, give the tool's return value as
    --result; without it the recorded result is null. With --did-not-happen, a call that a crash or a time limit cut off
    is made when the task is resumed. A call that raised is retried if attempts are left, and fails otherwise. Until the
    task is resumed, you can settle the call again.

    Example: holdfast settle trip-oslo book_flight#1 --happened --result ticket-7 --by ana
    """
    from holdfast.cli.input import values
    from holdfast.cli.work.decisions import decided

    if happened == did_not_happen:
        raise click.UsageError(f"give --happened or --did-not-happen{', not both' if happened else ''}")
    if result is not None and not happened:
        raise click.UsageError("--result is for a call that happened")
    value = None if result is None else values.value(result)
    said = "it happened" if happened else "it did not happen"
    decided(
        environment,
        id,
        lambda app, id: app.settle(id, call, happened=happened, result=value, **given),
        f"settled {call}: {said}",
        target=target,
        resume=resume,
    )

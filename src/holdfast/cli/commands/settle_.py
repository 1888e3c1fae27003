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
@click.option("--happened", is_flag=True, help="It happened: the destination says so.")
@click.option("--did-not-happen", is_flag=True, help="It did not happen, and will not.")
@click.option("--result", metavar="JSON", help="The result of a call that happened, of the type that its tool returns.")
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
    """Say whether a call in doubt happened.

    Look at the destination first: Holdfast believes what you say. After --did-not-happen, a call that a crash or a time
    limit cut off is made when the task is resumed; a call that raised fails with its error, or is retried if attempts
    are left. You can settle it again, differently, until the task is resumed.

    Example: holdfast settle trip-oslo book_flight#1 --happened --result '"ticket-7"' --by ana
    """
    from holdfast.cli.input import values
    from holdfast.cli.work.decisions import decided

    if happened == did_not_happen:
        raise click.UsageError(f"say --happened or --did-not-happen{', not both' if happened else ''}")
    if result is not None and not happened:
        raise click.UsageError("--result is for a call that happened")
    value = None if result is None else values.json_value(result, "--result")
    said = "it happened" if happened else "it did not happen"
    decided(
        environment,
        id,
        lambda app, id: app.settle(id, call, happened=happened, result=value, **given),
        f"settled {call}: {said}",
        target=target,
        resume=resume,
    )

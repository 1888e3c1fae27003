"""`holdfast answer`."""

from __future__ import annotations

import click

from holdfast.cli.command import by_options, command, task_argument
from holdfast.cli.completion import waited_for
from holdfast.cli.environment import Environment


@command("answer")
@task_argument
@click.argument("question", shell_complete=waited_for("question"))
@click.argument("value")
@by_options
def answer_(environment: Environment, id: str, question: str, value: str, by: str, why: str) -> None:
    """Answer what a task asked.

    QUESTION is its key or its name, as `holdfast inbox` shows it. VALUE is text, := and JSON, or - for stdin.

    Example: holdfast answer trip-oslo seat aisle --by ana
    """
    from holdfast.cli.input import values
    from holdfast.cli.input.changes import changed

    said = values.value(value)
    changed(environment, id, lambda app, id: app.answer(id, question, said, by=by, why=why), f"answered {question}")

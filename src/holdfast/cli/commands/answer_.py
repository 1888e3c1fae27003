"""`holdfast answer`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.command import by_options, command, resume_option, task_argument
from holdfast.cli.completion import waited_for
from holdfast.cli.environment import Environment


@command("answer")
@task_argument
@click.argument("question", shell_complete=waited_for("question"))
@click.argument("value")
@resume_option
@by_options
def answer_(
    environment: Environment, id: str, question: str, value: str, target: str | None, resume: bool, **given: Any
) -> None:
    """Answer a task's question.

    QUESTION is the question's key or name, as `holdfast inbox` shows it. VALUE is JSON, or else text; - reads stdin.

    Example: holdfast answer trip-oslo seat aisle --by ana
    """
    from holdfast.cli.input import values
    from holdfast.cli.work.decisions import decided

    said = values.value(value)
    decided(
        environment,
        id,
        lambda app, id: app.answer(id, question, said, **given),
        f"answered {question}",
        target=target,
        resume=resume,
    )

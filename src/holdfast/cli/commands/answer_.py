"""`holdfast answer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import by_options, command, resume_option, task_argument
from holdfast.cli.completion import waited_for
from holdfast.cli.environment import Environment
from holdfast.core.errors import InvalidValue

if TYPE_CHECKING:
    from holdfast import App, TaskState


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

    read = values.value(value)

    def act(app: App, id: str) -> TaskState:
        try:
            return app.answer(id, question, read, **given)
        except InvalidValue:
            if read == value or value == "-":
                raise
        return app.answer(id, question, value, **given)  # what looks like JSON is text where text is asked for

    decided(
        environment,
        id,
        act,
        f"answered {question}",
        target=target,
        resume=resume,
    )

"""`holdfast signal`."""

from __future__ import annotations

import click

from holdfast.cli.command import command, task_argument
from holdfast.cli.environment import Environment


@command("signal")
@task_argument
@click.argument("name")
@click.argument("value", required=False)
@click.option("--by", default="", help="The sender, recorded with the signal. Default: none.")
def signal_(environment: Environment, id: str, name: str, value: str | None, by: str) -> None:
    """Send a signal to a task.

    A signal is kept until the task waits for it. VALUE is JSON, or else text; - reads stdin. Default: null.

    Example: holdfast signal order-7 paid '{"cents": 4400}'
    """
    from holdfast.cli.input import values
    from holdfast.cli.input.changes import changed

    said = None if value is None else values.value(value)
    changed(environment, id, lambda app, id: app.signal(id, name, said, by=by), f"signalled {name}")

"""`holdfast log`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from holdfast.cli.command import command, task_argument
from holdfast.cli.environment import Environment
from holdfast.core.errors import InvalidValue

if TYPE_CHECKING:
    from holdfast import App
    from holdfast.engine.reading.values import LoggedEvent


@command("log", lines=True)
@task_argument
@click.option("--follow", "-f", is_flag=True, help="Keep printing new events until the task ends.")
@click.option("--for", "seconds", metavar="TIME", help="With --follow: for how long.")
@click.option("--after", type=int, default=0, metavar="SEQ", help="Only events after this one.")
@click.option("--full", is_flag=True, help="Print every event and whole values.")
def log_(environment: Environment, id: str, follow: bool, seconds: str | None, after: int, full: bool) -> None:
    """Show the timeline of a task: steps, attempts, waits, decisions, cost.

    Example: holdfast log @last --follow
    """
    if seconds is not None and not follow:
        raise InvalidValue("--for needs --follow", hint="add --follow")
    from holdfast.cli.show import event_lines
    from holdfast.engine.reading.describe import as_json

    app = environment.app()
    id = environment.task(id)
    records: Iterator[LoggedEvent] = (
        iter(app.follow(id, after=after, seconds=seconds)) if follow else app.events(id, after=after)
    )
    if environment.jsonl or (environment.as_json and follow):
        for record in records:
            environment.data(as_json(record, app.fetch))
    elif environment.as_json:
        environment.data([as_json(record, app.fetch) for record in records])
    else:
        environment.lines(event_lines.lines(records, app.fetch, environment.style, _began_us(app, id), full=full))


def _began_us(app: App, id: str) -> int:
    return next(iter(app.events(id, limit=1))).at_us

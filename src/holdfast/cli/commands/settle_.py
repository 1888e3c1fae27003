"""`holdfast settle`."""

from __future__ import annotations

import click

from holdfast.cli.command import by_options, command, task_argument
from holdfast.cli.place import Place


@command("settle")
@task_argument
@click.argument("call")
@click.option("--happened/--did-not-happen", "happened", default=None, help="What the destination says.")
@click.option("--result", metavar="JSON", help="What the call gave, if it happened.")
@by_options
def settle_(place: Place, id: str, call: str, happened: bool | None, result: str | None, by: str, why: str) -> None:
    """Say whether a call in doubt happened.

    Ask the destination first: what is settled is believed. One that did not happen is made when the task goes on.

    Example: holdfast settle trip-oslo book_flight#1 --happened --result '"ticket-7"' --by ana
    """
    from holdfast.cli import given
    from holdfast.cli.outside import changed

    if happened is None:
        raise click.UsageError("say --happened or --did-not-happen")
    if result is not None and not happened:
        raise click.UsageError("--result is for a call that happened")
    value = None if result is None else given.json_value(result, "--result")
    said = "it happened" if happened else "it did not happen"
    changed(
        place,
        id,
        lambda app, id: app.settle(id, call, happened=happened, result=value, by=by, why=why),
        f"settled {call}: {said}",
    )

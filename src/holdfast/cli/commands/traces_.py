"""`holdfast traces`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import command
from holdfast.cli.completion import ids
from holdfast.cli.environment import Environment
from holdfast.core.errors import InvalidValue

if TYPE_CHECKING:
    from holdfast.tracing import Exported, Otlp


@command("traces", lines=True)
@click.argument("action", type=click.Choice(["export", "tail"]))
@click.argument("tasks", nargs=-1, metavar="[ID …]", shell_complete=ids)
@click.option("--endpoint", metavar="URL", help="The collector; else OTEL_EXPORTER_OTLP_ENDPOINT, else localhost:4318.")
@click.option("--content", is_flag=True, help="Send arguments, results, prompts and texts of errors too.")
@click.option("--seconds", metavar="TIME", help="With tail: how long; else until Ctrl-C.")
def traces_(environment: Environment, action: str, tasks: tuple[str, ...], **given: Any) -> None:
    """Send spans of tasks to an OTLP collector.

    `export` sends those of the tasks that are named, else of all. `tail` sends spans as they come, from whatever
    process, until Ctrl-C. The same log gives the same ids: sending twice changes nothing.

    Example: holdfast traces export trip-oslo --endpoint http://localhost:6006
    """
    from holdfast.tracing import Otlp, export

    to = Otlp(endpoint=given["endpoint"] or "", content=given["content"])
    if action == "tail":
        _tail(environment, tasks, to, given["seconds"])
        return
    if given["seconds"] is not None:
        raise InvalidValue("--seconds is for tail", hint="leave it out")
    app = environment.app()
    done = export(app, [environment.task(id) for id in tasks] or None, to=to)
    _say(environment, done, to)


def _tail(environment: Environment, tasks: tuple[str, ...], to: Otlp, seconds: str | None) -> None:
    from holdfast.engine.reading import values
    from holdfast.tracing import tail

    if tasks:
        raise InvalidValue(
            f"tail sends what changes, and takes no ids: {' '.join(tasks)}", hint="holdfast traces export ID …"
        )
    limit = None if seconds is None else values.seconds(seconds, "--seconds")
    app = environment.app()
    environment.say(f"sending spans of {environment.where} to {to.shown} as they come; Ctrl-C stops")
    try:
        done = tail(app, to=to, seconds=limit, told=lambda one: _line(environment, one))
    except KeyboardInterrupt:
        return
    _say(environment, done, to)


def _line(environment: Environment, done: Exported) -> None:
    if environment.jsonl:
        environment.data(_facts(done))


def _facts(done: Exported) -> dict[str, Any]:
    return {"tasks": done.tasks, "spans": done.spans, "dropped": done.dropped, "why": done.why}


def _say(environment: Environment, done: Exported, to: Otlp) -> None:
    from holdfast.cli.show.formatting import times

    if environment.for_programs:
        environment.data({**_facts(done), "endpoint": to.shown})
        return
    lost = f"; {times(done.dropped, 'span')} lost: {done.why}" if done.dropped else ""
    environment.lines([f"sent {times(done.spans, 'span')} of {times(done.tasks, 'task')} to {to.shown}{lost}"])

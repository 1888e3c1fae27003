"""`holdfast list`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import command
from holdfast.cli.environment import Environment
from holdfast.cli.show.style import STATUS_TONES, clean
from holdfast.core.errors import InvalidValue

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast import App
    from holdfast.engine.reading.values import Summary

WATCH_SECONDS = 1.0


@command("list", lines=True)
@click.option("--status", help="pending, running, waiting, completed, failed, cancelled or interrupted.")
@click.option("--agent", help="Tasks of this agent.")
@click.option("--stage", help="Tasks in this stage.")
@click.option("--user", help="Tasks of this user.")
@click.option("--thread", help="Tasks of this thread.")
@click.option("--queue", help="Tasks of this queue.")
@click.option("--parent", metavar="ID", help="Children of this task.")
@click.option("--waiting", metavar="KIND", help="Tasks that wait for this: person, doubt, timer, signal, child …")
@click.option("--version", help="Tasks begun by this version of their agent, as @agent(version=…) declares it.")
@click.option("--in-doubt", is_flag=True, default=None, help="Tasks with a call in doubt.")
@click.option("--prefix", metavar="TEXT", help="Tasks whose id starts with this.")
@click.option("--state-version-below", type=int, metavar="N", help="Tasks whose typed state has a version below N.")
@click.option("--changed-since", metavar="TIME", help='Tasks changed since: "2h" ago, or 2026-11-16T08:00.')
@click.option("--order", help="newest, oldest, or changed (last change first). Default: newest.")
@click.option("--limit", type=int, default=100, show_default=True, help="The most tasks to print.")
@click.option("--after", metavar="ID", help="The next page: tasks after this id.")
@click.option("-q", "--quiet", is_flag=True, help="Print only ids, one per line.")
@click.option("--watch", is_flag=True, help="Print the list again when it changes, until Ctrl-C.")
@click.option("--for", "seconds", metavar="TIME", help="With --watch: for how long.")
def list_(environment: Environment, quiet: bool, watch: bool, seconds: str | None, **filters: Any) -> None:
    """List tasks, newest first.

    A running task whose process is dead is shown as interrupted; you can resume it. `holdfast ls` is the same command.

    Example: holdfast list --status waiting --agent travel
    """
    if seconds is not None and not watch:
        raise InvalidValue("--for needs --watch", hint="add --watch")
    app = environment.app()
    filters["changed_since"] = _since(app, filters["changed_since"])
    if not watch:
        _print(environment, app, _found(app, **filters), quiet)
        return
    from holdfast.engine.reading import values

    until = None if seconds is None else time.monotonic() + values.seconds(seconds)
    before: Any = None
    while True:
        rows = _found(app, **filters)
        if rows != before:
            if environment.style.terminal and not environment.for_programs:
                click.echo("\x1b[H\x1b[2J", nl=False, color=True)
            _print(environment, app, rows, quiet)
            before = rows
        if until is not None and time.monotonic() >= until:
            return
        time.sleep(WATCH_SECONDS if until is None else min(WATCH_SECONDS, max(0.0, until - time.monotonic())))


def _since(app: App, given: str | None) -> datetime | None:
    from holdfast.cli.input import values
    from holdfast.engine.reading.values import moment

    since_us = values.age_us(given, app.clock.now_us())
    return None if since_us is None else moment(since_us)


def _found(app: App, status: str | None, limit: int, order: str | None, **filters: Any) -> Sequence[Summary]:
    """Tasks as they are listed. Which of them are interrupted no store knows: it is seen when one looks."""
    from holdfast.engine.reading.task_state import STATUSES

    if status not in (None, "interrupted", *STATUSES):
        raise InvalidValue(f"there is no status {status!r}", hint=f"use {', '.join(STATUSES)} or interrupted")
    if status == "interrupted":
        filters["interrupted"], status = True, None
    if order is not None:
        filters["order"] = order
    return app.list(status=status, limit=limit, **filters)


def _print(environment: Environment, app: App, rows: Sequence[Summary], quiet: bool) -> None:
    if quiet:
        _print_ids(environment, [row.id for row in rows])
        return
    if environment.for_programs:
        from holdfast.engine.lists.query import row_json

        why_not = unserved(app, rows, environment.options)
        rows_json = (row_json(row, interrupted=app.is_interrupted(row)) for row in rows)
        environment.rows([{**told, "why": why_not.get(told["id"])} for told in rows_json])
        return
    if not rows:
        environment.say(f"no tasks in {environment.where}")
        return
    from holdfast.cli.show.formatting import age
    from holdfast.cli.show.table import Cell, table

    now, why_not = app.clock.now_us(), unserved(app, rows, environment.options)
    cells: list[list[Cell | str]] = []
    for row in rows:
        status = status_of(app, row)
        why = _why(app, row) if row.waiting else ", no worker" if row.id in why_not else ""
        if row.doubts and row.waiting != "doubt":
            why += why_waiting("doubt")
        named = (f"{row.agent} (mock)" if row.mock else row.agent, row.stage or "", row.user or "")
        cells.append(
            [row.id, Cell(f"{status}{why}", STATUS_TONES.get(status, "plain")), *named, age(row.changed_us, now)]
        )
    environment.lines(table(["ID", "STATUS", "AGENT", "STAGE", "USER", "CHANGED"], cells, environment.style))
    for why in dict.fromkeys(why_not.values()):
        environment.say(clean(why), "warn")


def _print_ids(environment: Environment, ids: Sequence[str]) -> None:
    """Ids as they are: not folded, not cut."""
    if environment.as_json:
        environment.data(ids)
        return
    for id in ids:
        environment.data(id) if environment.jsonl else click.echo(clean(id))


def _why(app: App, row: Summary) -> str:
    """Return the text after `waiting`. A call in doubt may be another task's, or settled by now: the inbox knows."""
    from holdfast.cli.input.suggestions import LABELS

    kinds = {one.kind for one in app.inbox(row.id)} if row.waiting == "doubt" else set[str]()
    if row.waiting != "doubt" or "doubt" in kinds:
        return why_waiting(row.waiting or "")
    return f", {LABELS['blocked']}" if "blocked" in kinds else " for a call"


def why_waiting(kind: str) -> str:
    """Return the text after `waiting`.

    >>> why_waiting("person"), why_waiting("doubt"), why_waiting("quarantined")
    (' for person', ', call in doubt', ', quarantined')
    """
    if kind == "doubt":
        return ", call in doubt"
    return f", {kind.replace('_', ' ')}" if kind in ("quarantined", "diverged", "no_worker") else f" for {kind}"


def status_of(app: App, row: Summary) -> str:
    """Return the status that a list shows: the task's own, or `interrupted` if its worker is dead."""
    return "interrupted" if app.is_interrupted(row) else row.status


def unserved(app: App, rows: Sequence[Summary], options: str) -> dict[str, str]:
    """Why no worker takes a task that is due; tasks that a worker will take are not in it."""
    from holdfast.core.errors.commands import in_commands
    from holdfast.engine.reading import serving

    now = app.clock.now_us()
    ready = [row for row in rows if row.status == "pending" and (row.wake_us is None or row.wake_us <= now)]
    workers = app.workers() if ready else []
    found = ((row.id, serving.why_none_of(workers, row)) for row in ready)
    return {id: in_commands(why, options=options) for id, why in found if why is not None}

"""`holdfast audit`."""

from __future__ import annotations

import click

from holdfast.cli.command import command
from holdfast.cli.place import Place


@command("audit", lines=True)
@click.option("--task", metavar="ID", help="Of this task; else of all.")
@click.option("--tool", default="", help="Calls of this tool.")
@click.option("--by", default="", help="What this person did.")
@click.option("--decision", metavar="TEXT", help="Decisions whose question or choice has this text.")
@click.option("--since", metavar="TIME", help='Since then: "2h" ago, or 2026-11-16T08:00.')
@click.option("--until", metavar="TIME", help="Until then.")
@click.option("--limit", type=int, default=1000, show_default=True, help="How many at the most.")
def audit_(
    place: Place,
    task: str | None,
    tool: str,
    by: str,
    decision: str | None,
    since: str | None,
    until: str | None,
    limit: int,
) -> None:
    """Show who did what: by tool, person, decision, time.

    Calls of tools, what people said, what was decided; task by task, each in the order of its log.

    Example: holdfast audit --tool send_email --since 24h
    """
    from itertools import islice

    from holdfast.cli import given
    from holdfast.cli.progress import Progress
    from holdfast.cli.table import table
    from holdfast.cli.words import clock, shown
    from holdfast.engine import audit
    from holdfast.engine.view import iso

    app = place.app()
    now = app.clock.now_us()
    asked = audit.Asked(
        task=None if task is None else place.task(task),
        tool=tool,
        by=by,
        decision=decision,
        since_us=given.age_us(since, now),
        until_us=given.age_us(until, now),
    )
    with Progress("looked at", "event", quiet=place.for_programs) as progress:
        found = list(islice(audit.acts(app.logs, asked, progress), max(0, limit)))
    if place.for_programs:
        same = ("task", "seq", "kind", "what", "about", "tool", "by", "value")
        place.rows({"at": iso(one.at_us), **{name: getattr(one, name) for name in same}} for one in found)
        return
    rows = [
        [
            clock(one.at_us),
            one.task,
            str(one.seq),
            one.what,
            one.tool or one.about,
            one.by,
            "" if one.value is None else shown(one.value),
        ]
        for one in found
    ]
    place.lines(table(["WHEN (UTC)", "TASK", "SEQ", "WHAT", "ABOUT", "BY", "VALUE"], rows, place.look, right=(2,)))
    if len(found) == limit:
        place.say(f"only the first {limit:,}; --limit shows more")

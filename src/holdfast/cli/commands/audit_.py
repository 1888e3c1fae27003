"""`holdfast audit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import command
from holdfast.cli.environment import Environment
from holdfast.core.errors import InvalidValue

if TYPE_CHECKING:
    from holdfast.engine.reading.audit import AuditRow


@command("audit", lines=True)
@click.option("--task", metavar="ID", help="Only of this task. Default: of all tasks.")
@click.option("--tool", default="", help="Only calls of this tool.")
@click.option("--by", default="", help="Only acts of this person.")
@click.option("--decision", metavar="TEXT", help="Only decisions whose question or choice contains this text.")
@click.option("--since", metavar="TIME", help='From this time on: "2h" ago, or 2026-11-16T08:00.')
@click.option("--until", metavar="TIME", help="Up to this time.")
@click.option("--after", metavar="CURSOR", help="The next page: `cursor` of the last row of --json.")
@click.option("--limit", type=int, default=1000, show_default=True, help="The most rows to print.")
def audit_(
    environment: Environment,
    task: str | None,
    tool: str,
    by: str,
    decision: str | None,
    since: str | None,
    until: str | None,
    after: str | None,
    limit: int,
) -> None:
    """Show who did what: by tool, person, decision or time.

    Lists tool calls, people's answers and approvals, and decisions, newest first.

    Example: holdfast audit --tool send_email --since 24h
    """
    from holdfast.cli.input import values
    from holdfast.cli.show.screen import Progress
    from holdfast.engine.reading.values import MAX_SEQ

    if limit < 1:
        raise InvalidValue(f"--limit {limit} is not a number of rows", hint="give 1 or more")
    app = environment.app()
    now = app.clock.now_us()
    when: dict[str, Any] = {"since_us": values.age_us(since, now), "until_us": values.age_us(until, now)}
    of = None if task is None else environment.task(task)
    with Progress("looked at", "event", quiet=environment.for_programs) as progress:
        what: dict[str, Any] = {
            "tool": tool,
            "by": by,
            "decision": decision,
            "after": after,
            "limit": min(limit, MAX_SEQ),
        }
        found = list(app.audit(task=of, **what, progress=progress, **when))
    _print(environment, found, limit)


def _print(environment: Environment, found: list[AuditRow], limit: int) -> None:
    from holdfast.cli.show.event_lines import NARROW
    from holdfast.cli.show.formatting import clock, shown
    from holdfast.cli.show.table import table
    from holdfast.engine.reading.audit import as_json
    from holdfast.engine.reading.steps import iso

    if environment.for_programs:
        environment.rows({"at": iso(one.at_us), **as_json(one, "value", "answered_by", "cursor")} for one in found)
        return
    if not found:
        environment.say(f"no such entry in {environment.where}")
        return
    days = {clock(one.at_us).split()[0] for one in found}
    is_one = len(days) == 1 and not 0 < environment.style.width < NARROW  # without columns there is no head
    rows = [
        [
            *(one.task, str(one.seq), clock(one.at_us).split()[1] if is_one else clock(one.at_us)),
            *(one.what, one.tool or one.about, one.by, _value(shown, one.value)),
        ]
        for one in found
    ]
    heads = ["TASK", "SEQ", f"{days.pop()} UTC" if is_one else "WHEN (UTC)", "WHAT", "ABOUT", "BY", "VALUE"]
    environment.lines(table(heads, rows, environment.style, right=(1,), text=(4, 6)))
    if len(found) == limit:
        environment.say(f"only the newest {limit:,} are shown; --limit shows more")


def _value(shown: Callable[[Any], str], value: Any) -> str:
    return "" if value is None else shown(value)

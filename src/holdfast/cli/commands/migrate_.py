"""`holdfast migrate`."""

from __future__ import annotations

import click

from holdfast.cli.command import command
from holdfast.cli.environment import Place


@command("migrate")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--dump-sql", is_flag=True, help="Print the SQL that would be run.")
def migrate_(place: Place, dry_run: bool, dump_sql: bool) -> None:
    """Bring a store's schema up to date, or show what that would do.

    Opening a store does the same by itself; this is for whoever wants to see it first. It is one transaction: an
    interrupted one leaves the store as it was.

    Example: holdfast migrate --dry-run
    """
    from holdfast.cli.environment import path_of
    from holdfast.cli.show.screen import Progress
    from holdfast.engine.maintenance.doctor import schema_of

    schema = schema_of(place.url, path_of(place.url))
    steps = [f"{one.version:04}_{one.name}" for one in schema.pending]
    if dump_sql:
        if place.as_json:
            place.data([{"version": one.version, "name": one.name, "sql": one.sql} for one in schema.pending])
        else:
            place.lines(f"-- {name}\n{one.sql.rstrip()}\n" for name, one in zip(steps, schema.pending, strict=True))
        return
    if not dry_run and schema.pending:
        with Progress("migrated", "step", quiet=place.as_json) as progress:
            place.app(make=True)
            progress(len(steps), len(steps))
    facts = {"from": schema.found, "to": schema.known, "steps": steps, "dry_run": dry_run, "store": place.shown}
    if place.as_json:
        place.data(facts)
        return
    did = "would run" if dry_run else "ran"
    place.lines(f"{did} {name}" for name in steps)
    place.lines([f"schema {schema.found} → {schema.known}" if steps else f"schema {schema.found} is up to date"])
    place.say_store()

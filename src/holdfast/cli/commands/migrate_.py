"""`holdfast migrate`."""

from __future__ import annotations

import click

from holdfast.cli.command import command
from holdfast.cli.environment import Environment


@command("migrate")
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@click.option("--dump-sql", is_flag=True, help="Print the SQL that would be run.")
def migrate_(environment: Environment, dry_run: bool, dump_sql: bool) -> None:
    """Update the store's schema, or show what that would do.

    Opening a store updates it too; this command lets you look first. The update is one transaction: if it is
    interrupted, the store is as it was.

    Example: holdfast migrate --dry-run
    """
    from holdfast.cli.show.screen import Progress
    from holdfast.engine.reading.schema import schema_of

    schema = schema_of(environment.url, environment.path)
    steps = [f"{one.version:04}_{one.name}" for one in schema.pending]
    if dump_sql:
        if environment.as_json:
            environment.data([{"version": one.version, "name": one.name, "sql": one.sql} for one in schema.pending])
        else:
            environment.lines(
                f"-- {name}\n{one.sql.rstrip()}\n" for name, one in zip(steps, schema.pending, strict=True)
            )
        return
    if not dry_run and schema.pending:
        with Progress("migrated", "step", quiet=environment.as_json) as progress:
            environment.app(make=True)
            progress(len(steps), len(steps))
    facts = {"from": schema.found, "to": schema.known, "steps": steps, "dry_run": dry_run, "store": environment.shown}
    if environment.as_json:
        environment.data(facts)
        return
    did = "would run" if dry_run else "ran"
    environment.lines(f"{did} {name}" for name in steps)
    environment.lines([f"schema {schema.found} → {schema.known}" if steps else f"schema {schema.found} is up to date"])
    environment.say_store()

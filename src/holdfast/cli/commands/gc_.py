"""`holdfast gc`."""

from __future__ import annotations

import click

from holdfast.cli.command import command
from holdfast.cli.environment import Environment


@command("gc")
@click.option("--older-than", metavar="TIME", help='Ended longer ago than this, such as "30d".')
@click.option("--keep", type=int, metavar="N", help="Keep the newest N that have ended.")
@click.option("--snapshots-older-than", metavar="TIME", help="Also drop cached states older than this.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--why", default="retention", help="The reason, kept with what is left of them.")
def gc_(
    environment: Environment,
    older_than: str | None,
    keep: int | None,
    snapshots_older_than: str | None,
    dry_run: bool,
    yes: bool,
    why: str,
) -> None:
    """Remove ended tasks that are old; their ids never act again.

    Unique keys stay taken, and the parents of living forks stay.

    Example: holdfast gc --older-than 30d --keep 1000 --dry-run
    """
    from holdfast.cli.show.formatting import times
    from holdfast.cli.show.screen import Progress
    from holdfast.core.errors import InvalidValue

    if older_than is None and keep is None and snapshots_older_than is None:
        raise click.UsageError("say what may go: --older-than, --keep or --snapshots-older-than")
    if keep is not None and keep < 0:
        raise InvalidValue(f"--keep {keep} is not a number of tasks; nothing was written", hint="give 0 or more")
    app = environment.app()
    going = app.collectable(older_than=older_than, keep=keep)
    if dry_run:
        _say_dry(environment, going)
        return
    if going or snapshots_older_than is not None:
        environment.may(f"Remove {times(len(going), 'task')} from {environment.where}?", yes=yes)
    with Progress("removed", "task", quiet=environment.as_json) as progress:
        found = app.gc(
            older_than=older_than,
            keep=keep,
            snapshots_older_than=snapshots_older_than,
            why=why,
            progress=lambda done, _: progress(done, len(going)),
        )
    if environment.as_json:
        environment.data({"tasks": found.tasks, "snapshots": found.snapshots, "kept_for_forks": found.kept_for_forks})
        return
    counted = f"{times(found.tasks, 'task')} and {times(found.snapshots, 'snapshot')}"
    environment.lines([f"removed {counted}; {found.kept_for_forks} kept for their forks"])
    environment.say_store()


def _say_dry(environment: Environment, going: list[str]) -> None:
    if environment.as_json:
        environment.data({"dry_run": True, "tasks": len(going), "ids": going})
        return
    environment.lines(going)
    environment.say(f"{len(going):,} would be removed from {environment.where}; nothing was written")

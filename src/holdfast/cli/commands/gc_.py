"""`holdfast gc`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import command
from holdfast.cli.environment import Environment

if TYPE_CHECKING:
    from holdfast.engine.reading.values import Expired


@command("gc")
@click.option("--older-than", metavar="TIME", help='Remove tasks that ended longer ago than this, such as "30d".')
@click.option("--keep", type=int, metavar="N", help="Keep the newest N ended tasks.")
@click.option("--snapshots-older-than", metavar="TIME", help="Also remove cached states older than this.")
@click.option("--expired", is_flag=True, help="Only handle what has expired.")
@click.option("--dry-run", is_flag=True, help="Only print what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--why", default="retention", help="The reason, recorded with the removed ids.")
def gc_(
    environment: Environment,
    older_than: str | None,
    keep: int | None,
    snapshots_older_than: str | None,
    expired: bool,
    dry_run: bool,
    yes: bool,
    why: str,
) -> None:
    """Remove old tasks that have ended. Their ids are never reused.

    Unique keys stay taken. Tasks that a fork was made from are kept. What has expired is handled by every gc: waiting
    tasks past their `expire` are cancelled, and expired threads, users and records are removed.

    Example: holdfast gc --older-than 30d --keep 1000 --dry-run
    """
    from holdfast.cli.show.formatting import times
    from holdfast.cli.show.screen import Progress
    from holdfast.core.errors import InvalidValue
    from holdfast.engine.reading import values

    if older_than is None and keep is None and snapshots_older_than is None and not expired:
        raise click.UsageError(
            "gc needs to know what to remove; give --older-than, --keep, --snapshots-older-than or --expired"
        )
    if keep is not None and keep < 0:
        raise InvalidValue(f"--keep {keep} is not a number of tasks; nothing was written", hint="give 0 or more")
    for name, given in (("older_than", older_than), ("snapshots_older_than", snapshots_older_than)):
        if given is not None:
            values.seconds(given, name)
    app = environment.app()
    going = app.collectable(older_than=older_than, keep=keep)
    due = app.expired()
    if dry_run:
        _say_dry(environment, going, due)
        return
    if going or snapshots_older_than is not None or due.total:
        tasks, more = times(len(going), "task"), f"{due.total:,} that expired"
        question = f"Remove {tasks}{f', and end or remove {more},' if due.total else ''} from {environment.where}?"
        doing = f"removing {tasks}{f' and {more}' if due.total else ''}"
        environment.may(question, doing, yes=yes)
    with Progress("removed", "task", quiet=environment.as_json) as progress:
        found = app.gc(
            older_than=older_than,
            keep=keep,
            snapshots_older_than=snapshots_older_than,
            why=why,
            progress=lambda done, _: progress(done, len(going)),
        )
    _say(environment, found, due)
    if not environment.as_json:
        environment.say_store()


def _say(environment: Environment, found: Any, due: Expired) -> None:
    from holdfast.cli.show.formatting import times

    if environment.as_json:
        environment.data({name: getattr(found, name) for name in found.__struct_fields__})
        return
    counted = f"{times(found.tasks, 'task')} and {times(found.snapshots, 'snapshot')}"
    environment.lines([f"removed {counted}; {found.kept_for_forks} kept for their forks"])
    if due.total:
        removed = (
            times(found.expired_threads, "thread"),
            times(found.expired_users, "user"),
            f"{times(found.expired_records, 'key')} of records",
        )
        environment.lines([f"expired: {times(found.expired_tasks, 'task')} cancelled; removed {', '.join(removed)}"])


def _say_dry(environment: Environment, going: list[str], due: Expired) -> None:
    if environment.as_json:
        expired = {name: getattr(due, name) for name in due.__struct_fields__}
        environment.data({"dry_run": True, "tasks": len(going), "ids": going, "expired": expired})
        return
    environment.lines(going)
    expired = [
        *(f"task {id}, would be cancelled" for id in due.tasks),
        *(f"thread {id}" for id in due.threads),
        *(f"user {id}" for id in due.users),
        *(f"records {key} of {space}" for space, key in due.records),
    ]
    environment.lines(f"expired: {one}" for one in expired)
    total = len(going) + due.total
    environment.say(f"{total:,} would be removed from {environment.where}; nothing was written")

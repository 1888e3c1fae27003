"""`holdfast rollback`."""

from __future__ import annotations

import click

from holdfast.cli.command import by_options, command, task_argument
from holdfast.cli.environment import Environment


@command("rollback")
@task_argument
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Go back by N steps. Default: 1.")
@click.option("--versions", type=click.IntRange(min=1), metavar="N", help="Go back by N changes of the state.")
@click.option("--to", "to", metavar="SEQ|LABEL", help="Go back to this event, or to this checkpoint.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@by_options
def rollback_(
    environment: Environment,
    id: str,
    steps: int | None,
    versions: int | None,
    to: str | None,
    yes: bool,
    by: str,
    why: str,
) -> None:
    """Roll a task back by steps or state changes, or to an event or checkpoint.

    A rollback is recorded as an event: the history is kept, and calls that changed the world are not repeated. It is
    refused while a call is in doubt. If --steps or --versions is more than there are, the task goes back to before the
    first one.

    Example: holdfast rollback trip-oslo --to 5 --yes --why "wrong seat"
    """
    from holdfast.cli.input.changes import changed
    from holdfast.core.events import ANNOUNCED

    if sum(one is not None for one in (steps, versions, to)) > 1:
        raise click.UsageError("--steps, --versions and --to exclude each other")
    steps = steps or 1
    target = int(to) if to is not None and to.isascii() and to.isdigit() else to
    count, what = (steps, "step") if versions is None else (versions, "change")
    back = f"to {target}" if target is not None else f"by 1 {what}" if count == 1 else f"by up to {count} {what}s"
    app = environment.app()
    id = environment.task(id)
    steps_now = app.get(id).steps.values()
    refused = any(one.effect in ANNOUNCED and one.status in ("running", "doubt") for one in steps_now)
    if not refused:  # a call is in doubt: there is nothing to confirm
        environment.may(f"Roll {id} back {back}?", f"rolling {id} back {back}", yes=yes)
    changed(
        environment,
        id,
        lambda app, id: app.rollback(id, steps, versions=versions, to=target, by=by, why=why),
        f"rolled back {back}",
    )

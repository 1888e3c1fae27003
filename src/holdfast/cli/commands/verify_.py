"""`holdfast verify`."""

from __future__ import annotations

import click

from holdfast.cli.command import command
from holdfast.cli.completion import ids
from holdfast.cli.environment import Environment
from holdfast.cli.failures.refusal import FAILED


@command("verify")
@click.argument("id", required=False, shell_complete=ids)
def verify_(environment: Environment, id: str | None) -> None:
    """Check that no stored event was changed or lost.

    Checks the chain of digests of one task, or of every log in the store. Exit code: 1 if something is damaged.

    Example: holdfast verify
    """
    from holdfast.cli.show.formatting import times
    from holdfast.cli.show.screen import Progress

    app = environment.app()
    id = None if id is None else environment.task(id)
    with Progress("verified", "log", quiet=environment.for_programs) as progress:
        total = app.stats().tasks if id is None else 0
        found = app.verify(id, progress=lambda done: progress(done, total))
    if environment.as_json:
        problems = [{"task": one.task, "seq": one.seq, "why": one.why} for one in found.problems]
        counted = {"logs": found.tasks, "events": found.events, "erased": found.erased}
        environment.data({"ok": found.ok, **counted, "problems": problems, "store": environment.shown})
    else:
        for one in found.problems:
            environment.lines([environment.style.paint(one.why if one.task else f"the store: {one.why}", "bad")])
        counted = f"{times(found.tasks, 'log')}, {times(found.events, 'event')}, {found.erased:,} of them erased"
        environment.lines([f"{environment.style.paint('intact', 'good') if found.ok else 'DAMAGED'}: {counted}"])
        environment.say_store()
    if not found.ok:
        raise click.exceptions.Exit(FAILED)

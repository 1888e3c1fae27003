"""`holdfast verify`."""

from __future__ import annotations

import click

from holdfast.cli.command import command
from holdfast.cli.completion import ids
from holdfast.cli.environment import Place
from holdfast.cli.failures.refusal import FAILED


@command("verify")
@click.argument("id", required=False, shell_complete=ids)
def verify_(place: Place, id: str | None) -> None:
    """Walk the chains of digests and name what is not as it was written.

    One task, or every log there is. Ends with 1 if something is damaged.

    Example: holdfast verify
    """
    from holdfast.cli.show.formatting import times
    from holdfast.cli.show.screen import Progress
    from holdfast.core import names
    from holdfast.engine.reading import verify

    app = place.app()
    log = None if id is None else names.task_log(place.task(id))
    with Progress("verified", "log", quiet=place.for_programs) as progress:
        total = app.stats().tasks if log is None else 0
        found = verify.verify(app.logs, log, lambda done: progress(done, total))
    if place.as_json:
        problems = [{"task": one.task, "seq": one.seq, "why": one.why} for one in found.problems]
        counted = {"logs": found.tasks, "events": found.events, "erased": found.erased}
        place.data({"ok": found.ok, **counted, "problems": problems, "store": place.shown})
    else:
        for one in found.problems:
            place.lines([place.look.paint(one.why if one.task else f"the store: {one.why}", "bad")])
        counted = f"{times(found.tasks, 'log')}, {times(found.events, 'event')}, {found.erased:,} of them erased"
        place.lines([f"{place.look.paint('intact', 'good') if found.ok else 'DAMAGED'}: {counted}"])
        place.say_store()
    if not found.ok:
        raise click.exceptions.Exit(FAILED)

"""`holdfast copy`."""

from __future__ import annotations

import click

from holdfast.cli.command import command
from holdfast.cli.completion import files
from holdfast.cli.environment import Place


@command("copy")
@click.argument("url", shell_complete=files)
def copy_(place: Place, url: str) -> None:
    """Copy everything into another store and verify it there.

    Run it again to go on after an interruption, or to catch up. A log that is damaged is left out, and named.

    Example: holdfast copy sqlite:////backups/agents.db
    """
    from holdfast.cli.environment import is_same, redacted
    from holdfast.cli.show.formatting import times
    from holdfast.cli.show.screen import Progress
    from holdfast.core.errors import InvalidValue

    if is_same(url, place.url):
        raise InvalidValue(f"{redacted(url)!r} is the store itself; nothing was written", hint="name another one")
    app = place.app()
    with Progress("copied", "log", quiet=place.as_json) as progress:
        copied = app.copy_to(url, progress)
    if place.as_json:
        place.data({"to": redacted(url), "logs": copied.logs, "events": copied.events, "skipped": copied.skipped})
        return
    counted = f"{times(copied.logs, 'log')} with {times(copied.events, 'event')} copied, {copied.skipped} there already"
    place.lines([f"{redacted(url)}: {counted}; verified"])
    place.say_store()

"""`holdfast copy`."""

from __future__ import annotations

import click

from holdfast.cli.command import command
from holdfast.cli.completion import files
from holdfast.cli.environment import Environment


@command("copy")
@click.argument("url", shell_complete=files)
def copy_(environment: Environment, url: str) -> None:
    """Copy everything into another store and verify it there.

    Run it again to continue after an interruption, or to copy what is new. A damaged log is left out and named.

    Example: holdfast copy sqlite:////backups/holdfast.db
    """
    from holdfast.cli.environment import is_same, redacted
    from holdfast.cli.show.formatting import times
    from holdfast.cli.show.screen import Progress
    from holdfast.core.errors import InvalidValue

    if is_same(url, environment.url):
        raise InvalidValue(f"{redacted(url)!r} is the store itself; nothing was written", hint="name another one")
    app = environment.app()
    with Progress("copied", "log", quiet=environment.as_json) as progress:
        copied = app.copy_to(url, progress)
    if environment.as_json:
        environment.data({"to": redacted(url), "logs": copied.logs, "events": copied.events, "skipped": copied.skipped})
        return
    counted = f"{times(copied.logs, 'log')} with {times(copied.events, 'event')} copied, {copied.skipped} already there"
    environment.lines([f"{redacted(url)}: {counted}; verified"])
    environment.say_store()

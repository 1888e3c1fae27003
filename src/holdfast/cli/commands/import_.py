"""`holdfast import`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import click

from holdfast.cli.command import command
from holdfast.cli.completion import files
from holdfast.cli.environment import Environment
from holdfast.cli.show.screen import Progress


@command("import")
@click.argument("path", metavar="FILE", shell_complete=files)
def import_(environment: Environment, path: str) -> None:
    """Read a task from a file that `holdfast export` wrote.

    Every digest is checked before anything is written. Logs that the store already has are not changed. - is stdin.

    Example: holdfast import trip-oslo.jsonl --store other.db
    """
    from holdfast.cli.show.formatting import times
    from holdfast.core.errors import InvalidValue, LogCorrupt
    from holdfast.engine.maintenance import export

    try:
        file: BinaryIO = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115 — closed below
    except OSError as error:
        raise InvalidValue(
            f"{path!r} cannot be read: {error.strerror}; nothing was written", hint="give a file"
        ) from None
    with file, Progress("read", "line", quiet=environment.as_json) as progress:
        try:
            incoming = export.read_export(_counted(export.lines_of(file), progress))
        except LogCorrupt as error:
            place = "{log!r} at seq {seq}".format_map(error.details)
            raise InvalidValue(
                f"{path!r} is damaged in {place}: {error.details['why']}; nothing was written", hint=export.EXPORT_AGAIN
            ) from error
        except InvalidValue as error:
            raise InvalidValue(
                f"{path!r} can't be imported; {error.message}; nothing was written", hint=error.hint
            ) from error
    copied = export.adopt(environment.app(make=True).store, incoming)
    if environment.as_json:
        environment.data(
            {"logs": copied.logs, "events": copied.events, "skipped": copied.skipped, "store": environment.shown}
        )
        return
    environment.lines(
        [f"{times(copied.logs, 'log')} with {times(copied.events, 'event')} imported, {copied.skipped} already there"]
    )
    environment.say_store()


def _counted(lines: Iterable[bytes], progress: Progress) -> Iterator[bytes]:
    for number, line in enumerate(lines, start=1):
        progress(number)
        yield line

"""`holdfast backup`."""

from __future__ import annotations

import os

import click

from holdfast.cli.command import command
from holdfast.cli.completion import files
from holdfast.cli.environment import Place


@command("backup")
@click.argument("path", metavar="FILE", shell_complete=files)
def backup_(place: Place, path: str) -> None:
    """Write a consistent copy of the store while others go on.

    FILE must be new; it appears under its name when it is complete.

    Example: holdfast backup holdfast-monday.db
    """
    from holdfast.cli.show.formatting import size

    place.app().backup(path)
    written = os.path.getsize(path) if os.path.exists(path) else 0
    if place.as_json:
        place.data({"file": path, "bytes": written, "store": place.shown})
        return
    place.lines([f"{path}: {size(written)}"])
    place.say_store()

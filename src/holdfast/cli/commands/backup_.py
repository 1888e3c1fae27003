"""`holdfast backup`."""

from __future__ import annotations

import os

import click

from holdfast.cli.command import command
from holdfast.cli.completion import files
from holdfast.cli.environment import Environment


@command("backup")
@click.argument("path", metavar="FILE", shell_complete=files)
def backup_(environment: Environment, path: str) -> None:
    """Write a consistent copy of the store to a file while others use it.

    FILE must not exist. It appears under its name when it is complete.

    Example: holdfast backup holdfast-monday.db
    """
    from holdfast.cli.show.formatting import size

    environment.app().backup(path)
    written = os.path.getsize(path) if os.path.exists(path) else 0
    if environment.as_json:
        environment.data({"file": path, "bytes": written, "store": environment.shown})
        return
    environment.lines([f"{path}: {size(written)}"])
    environment.say_store()

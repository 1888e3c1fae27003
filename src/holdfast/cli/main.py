"""`holdfast`: one group of commands, each imported when it is called."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from holdfast import HoldfastError, __version__

COMMANDS = {"demo": "holdfast.cli.demo"}
"""Every command and the module it lives in. A closed list: nothing is imported by a name found in data."""


class _Lazy(click.Group):
    """A group that imports a command's module only when that command is wanted."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS.get(cmd_name)
        return getattr(importlib.import_module(module), cmd_name) if module is not None else None


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="holdfast %(version)s")
def cli() -> None:
    """The durable state layer for AI agents."""


def main(arguments: list[str] | None = None) -> Any:
    """Run a command; an error of ours is one line on stderr, with its remedy."""
    try:
        return cli(arguments, prog_name="holdfast")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read us has had enough
        sys.exit(1)
    except HoldfastError as error:
        click.echo(f"error[{error.code}]: {error.message}", err=True)
        if error.hint:
            click.echo(f"help: {error.hint}", err=True)
        sys.exit(1)

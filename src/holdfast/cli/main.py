"""`holdfast`: one group of commands, each imported when it is called."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from holdfast import __version__
from holdfast.cli import streams
from holdfast.cli.failures.refusal import FAILED, INTERRUPTED, UNREAD, Refused, misused, show
from holdfast.cli.show.catalog import COMMANDS as COMMANDS, SECTIONS as SECTIONS
from holdfast.cli.show.help_page import HelpContext

ALIASES = {"ls": "list"}
"""Short forms of commands."""


class Lazy(click.Group):
    """A group that imports a command's module only when that command is wanted."""

    context_class = HelpContext

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in COMMANDS:
            return None
        name = f"{cmd_name.replace('-', '_')}_"  # of a module and the function in it; `list` would hide Python's own
        module, function = ("demo", "demo") if cmd_name == "demo" else (f"commands.{name}", name)
        return getattr(importlib.import_module(f"holdfast.cli.{module}"), function)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[:1] == ["help"]:
            args = [*args[1:2], "--help"]
        if args == ["--help"]:
            click.echo(ctx.get_help())
            ctx.exit()
        if args and not args[0].startswith("-") and args[0] not in (*COMMANDS, *ALIASES):
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, 1)
            more = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"there is no command {args[0]!r}.{more}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(_with_aliases(name), line) for name, line in commands.items()])

    def main(self, args: Sequence[str] | None = None, *rest: Any, **given: Any) -> Any:
        """Run a command; what is not understood is reported like every other error.

        Where the reader has left (`holdfast log ID | head`) it ends quietly, with what a shell says of such an end.
        """
        if not given.pop("standalone_mode", True):
            return super().main(args, *rest, standalone_mode=False, **given)
        try:
            code = super().main(args, *rest, standalone_mode=False, **given)
        except click.ClickException as error:
            code = misused(error, sys.argv[1:] if args is None else args)
        except click.Abort:
            code = INTERRUPTED
        except OSError as error:  # what stands outside commands, --help and the like, and cannot be written
            show(Refused("unexpected", f"{type(error).__name__}: {error}"), as_json=False)
            code = FAILED
        except SystemExit as stop:  # click's ways to end: where the reader has left, and after completion
            code = UNREAD if stop.code == 1 else stop.code
        sys.exit(code if isinstance(code, int) else 0)


def _with_aliases(name: str) -> str:
    return ", ".join((name, *(short for short, meant in ALIASES.items() if meant == name)))


@click.group("holdfast", cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--store", metavar="URL", help="The store, for any command. Default: HOLDFAST_URL, or holdfast.db.")
@click.option("--namespace", metavar="NAME", help="The tenant, for any command. Default: HOLDFAST_NAMESPACE.")
@click.version_option(__version__, message="holdfast %(version)s")
@click.pass_context
def cli(ctx: click.Context, store: str | None, namespace: str | None) -> None:
    """The durable state layer for AI agents.

    ID is a task's id, or @last for the newest task. `holdfast help COMMAND` shows a command's options and an example.
    `holdfast explain CODE` explains an error.
    """
    ctx.obj = {"store": store, "namespace": namespace}


def main(arguments: list[str] | None = None) -> Any:
    """Run the `holdfast` script."""
    streams.complete()
    return cli(arguments, prog_name="holdfast")

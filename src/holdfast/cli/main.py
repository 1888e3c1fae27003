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

SECTIONS: dict[str, dict[str, str]] = {
    "Work": {
        "demo": "Kill an agent with SIGKILL after it charged a card, and see that it is charged once.",
        "worker": "Take tasks from queues and work on many at a time, until told to stop.",
        "run": "Start a task, or go on with it, until it ends or waits.",
        "test": "Try an agent in a throw-away store: with mocks, or crashed everywhere.",
        "resume": "Go on with a task that was interrupted, waits or has failed.",
        "cancel": "Ask a task to stop, and its children.",
        "reopen": "Make a failed or quarantined task pending for workers.",
        "ui": "See and steer tasks in a browser, on this machine.",
        "mcp": "Serve tasks to MCP clients: coding agents, desktop apps, other agents.",
    },
    "Look": {
        "list": "List tasks, newest first.",
        "show": "Show a task as it is now, or as it was just after an event.",
        "log": "Show the timeline of a task: steps, attempts, waits, decisions, cost.",
        "diff": "Show what differs between two moments of a task, or between two tasks.",
        "audit": "Show who did what: by tool, person, decision, time.",
        "workers": "List workers that are alive, and what they serve.",
        "stats": "Count tasks, events, bytes, and what waits in queues.",
        "traces": "Send spans of tasks to an OTLP collector.",
    },
    "People": {
        "inbox": "List tasks waiting for a person, each with its reason and the command that helps.",
        "answer": "Answer what a task asked.",
        "approve": "Approve a pending call, once, for exactly these arguments.",
        "reject": "Reject a call that waits for approval, for good.",
        "settle": "Say whether a call in doubt happened.",
        "signal": "Tell a task that something happened.",
        "budget": "Show what a task may use up, or allow it more.",
    },
    "Time": {
        "fork": "Begin a new task whose past is another's, up to an event.",
        "rollback": "Take a task back by steps, by changes of its state, to an event or to a checkpoint.",
    },
    "Store": {
        "verify": "Walk the chains of digests and name what is not as it was written.",
        "export": "Write a task to a file as JSON Lines, lossless.",
        "import": "Bring in what export wrote.",
        "gc": "Remove ended tasks that are old; their ids never act again.",
        "migrate": "Bring a store's schema up to date, or show what that would do.",
        "migrate-states": "Write the typed state of open tasks under the present version of their agents.",
        "backup": "Write a consistent copy of the store while others go on.",
        "copy": "Copy everything into another store and verify it there.",
        "doctor": "Check the store and its place, and say what to fix.",
    },
    "Help": {
        "explain": "Explain the code of an error.",
        "config": "Show each setting and where it comes from.",
        "completion": "Print what lets your shell complete commands and ids.",
    },
}
"""Every command and its one line. A closed list: nothing is imported by a name found in data."""

COMMANDS: dict[str, str] = {name: line for section in SECTIONS.values() for name, line in section.items()}


ALIASES = {"ls": "list"}
"""Short forms of commands."""


class Lazy(click.Group):
    """A group that imports a command's module only when that command is wanted."""

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
        """Run a command; what is not understood is told like every other error.

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
@click.version_option(__version__, message="holdfast %(version)s")
def cli() -> None:
    """The durable state layer for AI agents.

    A task is named by its id, or @last for the newest. Every command has --help with an example.
    """


def main(arguments: list[str] | None = None) -> Any:
    """Run the `holdfast` script."""
    streams.complete()
    return cli(arguments, prog_name="holdfast")

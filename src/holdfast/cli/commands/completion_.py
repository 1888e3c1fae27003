"""`holdfast completion`."""

from __future__ import annotations

import click

from holdfast.cli.command import command
from holdfast.cli.environment import Environment

_WHERE = {
    "bash": 'add to ~/.bashrc: eval "$(holdfast completion bash)"',
    "zsh": 'add to ~/.zshrc: eval "$(holdfast completion zsh)"',
    "fish": "holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
}


@command("completion", store=False)
@click.argument("shell", type=click.Choice(sorted(_WHERE)))
def completion_(environment: Environment, shell: str) -> None:
    """Print the shell completion script.

    With it, your shell completes commands, options, files, task ids and keys of calls.

    Example: eval "$(holdfast completion bash)"
    """
    from click.shell_completion import get_completion_class

    from holdfast.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None
    made = found(cli, {}, "holdfast", "_HOLDFAST_COMPLETE")
    script = made.source_template % made.source_vars()
    if environment.as_json:
        environment.data({"shell": shell, "add": _WHERE[shell], "script": script})
        return
    click.echo(script)  # as it is: a shell reads it
    environment.say(_WHERE[shell])

"""`holdfast export`."""

from __future__ import annotations

import os
import sys

import click

from holdfast.cli.command import command, task_argument
from holdfast.cli.completion import files
from holdfast.cli.environment import Environment


@command("export")
@task_argument
@click.argument("path", metavar="FILE", shell_complete=files)
def export_(environment: Environment, id: str, path: str) -> None:
    """Write a task to a file as JSON Lines, lossless.

    FILE must not exist; - is stdout. The file also has the task's large values and, for a fork, the logs it shares.

    Example: holdfast export trip-oslo trip-oslo.jsonl
    """
    from holdfast.cli.show.formatting import size, times
    from holdfast.cli.show.screen import Progress
    from holdfast.cli.show.style import escaped, is_terminal
    from holdfast.core.errors import InvalidValue

    app = environment.app()
    id = environment.task(id)
    app.get(id)
    if path == "-":
        shown = escaped if is_terminal(sys.stdout) else str  # a file must get the very bytes
        for line in app.export_lines(id):
            sys.stdout.write(shown(line.decode()))
        return
    if os.path.exists(path):
        raise InvalidValue(f"{path!r} exists; nothing was written", hint="give another name")
    lines = written = 0
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with (
            Progress("exported", "line", quiet=environment.as_json) as progress,
            open(partial, "xb", opener=_private) as file,
        ):
            for lines, line in enumerate(app.export_lines(id), start=1):
                written += file.write(line)
                progress(lines)
            file.flush()
            os.fsync(file.fileno())
        os.rename(partial, path)
    except OSError as error:
        raise InvalidValue(f"{path!r} cannot be written: {error.strerror}", hint="give another place") from None
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
    if environment.as_json:
        environment.data({"id": id, "file": path, "lines": lines, "bytes": written})
    else:
        environment.lines([f"{path}: {times(lines, 'line')}, {size(written)}"])


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

"""How a command says no: one line on stderr, its remedy below, and an exit code that programs can tell apart."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import IO, Any

import click

from holdfast import HoldfastError
from holdfast.core import codec, errors

EXIT_CODES: tuple[tuple[type[HoldfastError], int], ...] = (
    (errors.InvalidValue, 2),
    (errors.TaskNotFound, 3),
    (errors.StepNotFound, 3),
    (errors.TaskBusy, 4),
    (errors.Conflict, 4),
    (errors.StoreError, 5),
)
"""2 the command was given something wrong, 3 not there, 4 somebody else was first, 5 the store; 1 is all the rest."""

INTERRUPTED = 130


class Refusal(click.ClickException):
    """An error of ours, as the command line shows it."""

    def __init__(self, error: HoldfastError, *, as_json: bool = False) -> None:
        super().__init__(error.message)
        self.exit_code = next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)
        self._error = error
        self._as_json = as_json

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it; with --json as a document."""
        error = self._error
        if self._as_json:
            told = {"code": error.code, "message": error.message, "hint": error.hint}
            click.echo(codec.text({"error": told}), file=file, err=True)
            return
        click.echo(f"error[{error.code}]: {error.message}", file=file, err=True)
        if error.hint:
            click.echo(f"help: {error.hint}", file=file, err=True)


@contextmanager
def refusing(*, as_json: bool = False) -> Generator[None, None, None]:
    """Let errors of ours end the command as refusals, and Ctrl-C as programs expect it."""
    try:
        yield
    except HoldfastError as error:
        raise Refusal(error, as_json=as_json) from error
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None

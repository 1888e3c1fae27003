"""How a command says no: one line on stderr, its remedy below, and an exit code that programs can tell apart."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

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


@contextmanager
def refusing(*, as_json: bool = False) -> Generator[None, None, None]:
    """Let errors of ours, and Ctrl-C, end the command as people and programs expect it."""
    try:
        yield
    except HoldfastError as error:
        _show(error, as_json=as_json)
        code = next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)
        raise click.exceptions.Exit(code) from None
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None


def _show(error: HoldfastError, *, as_json: bool) -> None:
    if as_json:
        told = {"code": error.code, "message": error.message, "hint": error.hint}
        click.echo(codec.text({"error": told}), err=True)
        return
    click.echo(f"error[{error.code}]: {error.message}", err=True)
    if error.hint:
        click.echo(f"help: {error.hint}", err=True)

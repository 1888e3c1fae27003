"""What a shell completes: ids of tasks, what they wait for, files, words of a closed list."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from holdfast.cli.environment import LAST, Environment
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Completes = Callable[[click.Context, click.Parameter, str], list[str]]


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of files, which the shell knows itself."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The newest ids."""
    found = [LAST, *_seen(ctx, lambda environment: [row.id for row in environment.app().list()])]
    return [id for id in found if id.startswith(incomplete)]


def waited_for(kind: str) -> Completes:
    """The keys of what a task waits for people to say."""

    def keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        return [key for key in _seen(ctx, of_task(ctx.params["id"])) if key.startswith(incomplete)]

    def of_task(id: str) -> Callable[[Environment], list[str]]:
        return lambda environment: [
            one.key for one in environment.app().inbox(environment.task(id)) if one.kind == kind
        ]

    return keys


def codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Codes of errors."""
    from holdfast.cli.failures.explanation import known

    return [code for code in known() if code.startswith(incomplete)]


def _seen(ctx: click.Context, look: Callable[[Environment], list[str]]) -> list[str]:
    """Return values from the command's store. Errors are left out: a shell that completes cannot show them."""
    try:
        environment = Environment(ctx.params.get("store"), namespace=ctx.params.get("namespace"), looks=True)
    except click.UsageError:
        return []
    if environment.path is None or not os.path.exists(environment.path):
        return []
    try:
        return look(environment)
    except HoldfastError:
        return []
    finally:
        environment.close()

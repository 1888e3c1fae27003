"""`holdfast explain`."""

from __future__ import annotations

import click

from holdfast.cli.command import command
from holdfast.cli.completion import codes
from holdfast.cli.environment import Environment


@command("explain", store=False)
@click.argument("code", required=False, shell_complete=codes)
def explain_(environment: Environment, code: str | None) -> None:
    """Explain an error code.

    Without CODE, all codes are listed.

    Example: holdfast explain step-changed
    """
    from holdfast.cli.failures.explanation import explained, known

    if code is None:
        every = [explained(one) for one in known()]
        if environment.as_json:
            environment.data([one.as_json() for one in every])
        else:
            wide = max(len(one.code) for one in every)
            environment.lines(f"{one.code:<{wide}}  {one.when}" for one in every)
        return
    found = explained(code)
    if environment.as_json:
        environment.data(found.as_json())
    else:
        environment.lines(found.lines(environment.style))

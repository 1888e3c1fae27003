"""`holdfast explain`."""

from __future__ import annotations

import click

from holdfast.cli.command import command
from holdfast.cli.completion import codes
from holdfast.cli.environment import Place


@command("explain", store=False)
@click.argument("code", required=False, shell_complete=codes)
def explain_(place: Place, code: str | None) -> None:
    """Explain the code of an error.

    Without a code, all of them are listed.

    Example: holdfast explain step-changed
    """
    from holdfast.cli.failures.explanation import explained, known

    if code is None:
        every = [explained(one) for one in known()]
        if place.as_json:
            place.data([one.as_json() for one in every])
        else:
            wide = max(len(one.code) for one in every)
            place.lines(f"{one.code:<{wide}}  {one.when}" for one in every)
        return
    found = explained(code)
    if place.as_json:
        place.data(found.as_json())
    else:
        place.lines(found.lines(place.look))

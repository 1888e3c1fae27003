"""`holdfast doctor`."""

from __future__ import annotations

import os

import click

from holdfast.cli.command import command
from holdfast.cli.environment import Environment
from holdfast.cli.failures.refusal import FAILED


@command("doctor")
def doctor_(environment: Environment) -> None:
    """Check the store and its environment, and name what to fix.

    Exit code: 1 if something must be fixed.

    Example: holdfast doctor
    """
    import holdfast

    path = environment.path
    environment.refuse_missing()
    if path is not None and not os.path.isfile(path):
        environment.app()  # says why it can be none
    found = holdfast.doctor(environment.url, opened=environment.app)
    if environment.as_json:
        environment.data([{name: getattr(one, name) for name in one.__struct_fields__} for one in found])
    else:
        tones = {"ok": "good", "warn": "warn", "fail": "bad"}
        wide = max(len(one.what) for one in found)
        for one in found:
            environment.lines(
                [f"{environment.style.paint(f'{one.level:<4}', tones[one.level])}  {one.what:<{wide}}  {one.said}"]
            )
            if one.remedy:
                environment.lines([f"      {'':<{wide}}  {one.remedy}"])
        environment.say_store()
    if any(one.level == "fail" for one in found):
        raise click.exceptions.Exit(FAILED)

"""`holdfast doctor`."""

from __future__ import annotations

import os

import click

from holdfast.cli.command import command
from holdfast.cli.environment import Environment
from holdfast.cli.failures.refusal import FAILED


@command("doctor")
def doctor_(environment: Environment) -> None:
    """Look at the store and its place, and say what to mend.

    Ends with 1 if something must be mended.

    Example: holdfast doctor
    """
    from holdfast.cli.environment import path_of
    from holdfast.engine.maintenance import doctor

    path = path_of(environment.url)
    environment.refuse_missing()
    if path is not None and not os.path.isfile(path):
        environment.app()  # says why it can be none
    found = list(doctor.findings(lambda: environment.app().logs, path))
    if environment.url.startswith(("postgres:", "postgresql:")):
        from holdfast.engine.maintenance import doctor_postgres

        found = [*doctor_postgres.findings(environment.url), *found]
    if not environment.url.startswith("memory:"):
        found.insert(1, doctor.schema(environment.url, path))
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

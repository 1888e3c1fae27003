"""`holdfast doctor`."""

from __future__ import annotations

import os

import click

from holdfast.cli.command import command
from holdfast.cli.environment import Place
from holdfast.cli.failures.refusal import FAILED


@command("doctor")
def doctor_(place: Place) -> None:
    """Look at the store and its place, and say what to mend.

    Ends with 1 if something must be mended.

    Example: holdfast doctor
    """
    from holdfast.cli.environment import path_of
    from holdfast.engine.maintenance import doctor

    path = path_of(place.url)
    place.refuse_missing()
    if path is not None and not os.path.isfile(path):
        place.app()  # says why it can be none
    found = list(doctor.findings(lambda: place.app().logs, path))
    if place.url.startswith(("postgres:", "postgresql:")):
        from holdfast.engine.maintenance import doctor_postgres

        found = [*doctor_postgres.findings(place.url), *found]
    if not place.url.startswith("memory:"):
        found.insert(1, doctor.schema(place.url, path))
    if place.as_json:
        place.data([{name: getattr(one, name) for name in one.__struct_fields__} for one in found])
    else:
        tones = {"ok": "good", "warn": "warn", "fail": "bad"}
        wide = max(len(one.what) for one in found)
        for one in found:
            place.lines([f"{place.look.paint(f'{one.level:<4}', tones[one.level])}  {one.what:<{wide}}  {one.said}"])
            if one.remedy:
                place.lines([f"      {'':<{wide}}  {one.remedy}"])
        place.say_store()
    if any(one.level == "fail" for one in found):
        raise click.exceptions.Exit(FAILED)

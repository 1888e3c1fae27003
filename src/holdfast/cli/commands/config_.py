"""`holdfast config`."""

from __future__ import annotations

import os
import sys
from typing import Any

from holdfast.cli.command import command
from holdfast.cli.environment import Environment


@command("config")
def config_(environment: Environment) -> None:
    """Show each setting and where it comes from.

    Example: holdfast config
    """
    from holdfast import __version__
    from holdfast.cli.environment import redacted, whoami
    from holdfast.cli.input.agents import PROJECT, files_declared
    from holdfast.cli.show.table import table

    project, files = files_declared()
    path = environment.path
    there = "" if path is None or os.path.exists(path) else " (not there yet)"
    colour = next(
        (f"{name}={os.environ[name]}" for name in ("NO_COLOR", "FORCE_COLOR") if os.environ.get(name)), "the terminal"
    )
    rows: list[tuple[str, Any, str]] = [
        ("store", redacted(environment.url) + there, environment.source),
        ("namespace", environment.namespace or "none", environment.namespace_source or "the default"),
        ("agents", ", ".join(files) or "none", str(project) if files else f"no agents in {PROJECT}"),
        ("by", whoami(), "HOLDFAST_BY" if os.environ.get("HOLDFAST_BY") else "the login name"),
        ("colour", "on" if environment.style.colour else "off", colour),
        ("holdfast", __version__, os.path.dirname(os.path.dirname(os.path.dirname(__file__)))),
        ("python", sys.version.split()[0], sys.executable),
    ]
    if environment.as_json:
        environment.data({name: {"value": value, "source": source} for name, value, source in rows})
    else:
        environment.lines(
            table(["SETTING", "VALUE", "FROM"], [list(row) for row in rows], environment.style, text=(1,))
        )

"""The page: see and steer tasks in a browser. `asgi(app, authorize=…)` mounts it in a program of yours.

`asgi` has the table of routes. `access` decides who may, `reading` and `acting` answer, `feed` streams what is new. The
page uses the public names and the reading side only. The front end lies in `static`: plain modules, nothing to build.
"""

from __future__ import annotations

from importlib.util import find_spec

from holdfast.core.errors import MissingExtra

if find_spec("starlette") is None or find_spec("uvicorn") is None:
    raise MissingExtra(
        "starlette and uvicorn are not installed", hint="from a checkout: pip install 'path/to/holdfast[ui]'"
    )

from holdfast.web.access.gate import Person
from holdfast.web.asgi import asgi

__all__ = ["Person", "asgi"]

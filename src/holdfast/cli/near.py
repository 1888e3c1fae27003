"""What somebody may have meant: the ids that are spelled nearly like one that is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError, TaskNotFound

if TYPE_CHECKING:
    from holdfast import App

LOOKED_AT = 1000
"""How many of the newest tasks are compared."""


def suggesting(error: TaskNotFound, app: App) -> TaskNotFound:
    """The same error; its remedy begins with the id that is most like the one that was not found."""
    import difflib

    wanted = str(error.details.get("id", ""))
    try:
        close = difflib.get_close_matches(wanted, [row.id for row in app.list(limit=LOOKED_AT)], 1)
    except HoldfastError:  # the store has just gone: what is known is said
        return error
    if close:
        error.hint = f"did you mean {close[0]}? {error.hint}"
    return error

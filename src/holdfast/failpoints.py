"""Named places where a test can stop the world. They cost one look at a module's name unless armed.

Each durable boundary has one on both sides, so that a crash before and after it can be provoked at will.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

NAMES = (
    *("append.before", "append.after", "commit.before", "commit.after"),
    *("claim.before", "claim.after", "snapshot.before", "snapshot.after"),
    *("migrate.before", "migrate.commit", "migrate.after", "act.before", "act.after"),
    *("checkpoint.before", "checkpoint.after"),
)

_armed: Callable[[str], None] | None = None


def failpoint(name: str) -> None:
    """Stop here if a test asked for it."""
    if _armed is not None:
        _armed(name)


@contextmanager
def armed(action: Callable[[str], None]) -> Generator[None, None, None]:
    """Call `action` with the name of every failpoint passed inside the block."""
    global _armed
    before, _armed = _armed, action
    try:
        yield
    finally:
        _armed = before

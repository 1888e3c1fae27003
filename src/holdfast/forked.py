"""Whether this process was forked off another: asked before every write, so it may cost nothing."""

from __future__ import annotations

import os


class Generation:
    """Which process this is, counted from the one that first imported this: a fork's child is the next."""

    now = 0


def _born() -> None:
    Generation.now += 1


os.register_at_fork(after_in_child=_born)

"""Random bytes for seeds, salts and nonces, read from the system in bulk: asking it takes as long as an event."""

from __future__ import annotations

import os
import threading

_HANDFUL = 1024
_drawn = threading.local()


def random_hex(bytes: int) -> str:
    """So many random bytes, as hex. No two callers get the same, not even across a fork."""
    left: bytearray | None = getattr(_drawn, "left", None)
    if left is None or len(left) < bytes or _drawn.pid != os.getpid():
        left = _drawn.left = bytearray(os.urandom(_HANDFUL))
        _drawn.pid = os.getpid()
    given = left[-bytes:]
    del left[-bytes:]
    return given.hex()

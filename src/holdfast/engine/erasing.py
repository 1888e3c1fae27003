"""Forgetting what logs say. That they were written, and when, stays; so does the chain of digests."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core import limits
from holdfast.engine.log import Logs
from holdfast.store.protocol import Erasure


def erase_logs(logs: Logs, names: Iterable[str], *, by: str, why: str) -> int:
    """Erase the body of every event of these logs, and the large values only they refer to; gives how many."""
    at_us = logs.clock.now_us()
    erased = 0
    for name in names:
        blobs = tuple(blob.hash for blob in logs.store.blobs_of(name))
        seq = 0
        while chunk := logs.store.read(name, after=seq, limit=limits.READ_CHUNK):
            gone = [Erasure(name, row.seq, by, why, at_us, ()) for row in chunk if row.body is not None]
            if gone:
                last = chunk[-1].seq == logs.head(name).seq
                gone[-1] = Erasure(name, gone[-1].seq, by, why, at_us, blobs if last else ())
                logs.store.erase(gone)
                erased += len(gone)
            seq = chunk[-1].seq
    logs.forget()
    return erased

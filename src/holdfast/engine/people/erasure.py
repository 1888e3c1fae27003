"""Forgetting what logs say. That they were written, and when, stays; so does the chain of digests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from holdfast.core import codec, limits
from holdfast.core.events import Event
from holdfast.core.names import thread_log
from holdfast.engine.logs.log import decoded
from holdfast.engine.logs.logs import Logs
from holdfast.store.protocol import Erasure

_THREADS = thread_log("x")[:-1]


def erase_logs(
    logs: Logs, names: Iterable[str], *, by: str, why: str, only: Callable[[Event], bool] | None = None
) -> int:
    """Erase the body of events of these logs, all or `only` some, and the large values they refer to; gives how many.

    A large value that an event that stays refers to as well is kept with it.
    """
    at_us = logs.clock.now_us()
    erased, touched = 0, list[str]()
    for name in names:
        kept = set[str]() if only is None else _kept(logs, name, only)
        seq = 0
        while chunk := logs.store.read(name, after=seq, limit=limits.READ_CHUNK):
            events = ((row.seq, decoded(name, row)) for row in chunk if row.body is not None)
            found = [
                Erasure(name, place, by, why, at_us, tuple({ref.hash for ref in codec.blob_refs(event)} - kept))
                for place, event in events
                if only is None or only(event)
            ]
            if found:
                logs.store.erase(found)
                erased += len(found)
                touched.append(name)
            seq = chunk[-1].seq
    logs.forget(dict.fromkeys(touched))
    return erased


def _kept(logs: Logs, name: str, gone: Callable[[Event], bool]) -> set[str]:
    """The large values that what stays of a log refers to, wherever in it that stands."""
    events = (decoded(log, row) for log, row in logs.rows(name) if row.body is not None)
    return {ref.hash for event in events if not gone(event) for ref in codec.blob_refs(event)}


def threads_of(logs: Logs) -> Iterator[str]:
    """The logs of all threads."""
    after: str | None = None
    while names := logs.store.logs(prefix=_THREADS, after=after, limit=limits.PAGE_SIZE):
        yield from names
        after = names[-1]

"""What steps stream while they run, beside the logs: batches of chunks for watchers in other processes.

Nothing here is the truth. A batch may be missing, or left over from a process that died: whether it counts is up to
the log. So it is never exported, copied or verified, and may be deleted at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct


class ChunkBatch(Struct, frozen=True, gc=False):
    """Some chunks of one attempt of a step, in order.

    `stream` is a random id of the attempt, `part` the batch's number in it, from 1. `after` is the seq of the log's
    last event when the attempt began to stream. `data` is nothing to a store.
    """

    log: str
    stream: str
    part: int
    step: str
    attempt: int
    after: int
    at_us: int
    data: bytes


class Chunks(Protocol):
    """The verbs of those who stream and those who watch. They need not be durable when a call returns."""

    def put(self, batches: Sequence[ChunkBatch]) -> None:
        """Keep batches. The first of a stream removes what other attempts of its step left.

        A batch that is there already is not an error, and one of a log that is not there is forgotten.
        """
        ...

    def read(self, log: str, seen: Mapping[str, int]) -> list[ChunkBatch]:
        """Return a log's batches, in order within each stream; of the streams in `seen` only those after that part."""
        ...

    def drop(self, log: str, streams: Sequence[str]) -> None:
        """Delete some streams of a log."""
        ...

    def drop_old(self, before_us: int) -> int:
        """Delete streams whose newest batch is older than a time; returns the number of batches deleted."""
        ...

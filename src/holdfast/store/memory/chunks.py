"""Chunks of a store in memory: watchers are threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from holdfast.store.chunks import ChunkBatch


class MemoryChunks:
    """Batches by the name of their log, under the store's lock."""

    def __init__(self, lock: threading.RLock, is_there: Callable[[str], bool]) -> None:
        self._lock = lock
        self._is_there = is_there
        self._batches: dict[str, list[ChunkBatch]] = {}

    def put(self, batches: Sequence[ChunkBatch]) -> None:
        with self._lock:
            for batch in batches:
                if self._is_there(batch.log):
                    self._batches[batch.log] = [*self._kept_beside(batch), batch]

    def _kept_beside(self, new: ChunkBatch) -> list[ChunkBatch]:
        """Return the batches that stay when one comes: not its older version, nor other attempts if it is the first."""
        there = self._batches.get(new.log, [])
        if new.part == 1:
            there = [one for one in there if one.step != new.step or one.stream == new.stream]
        return [one for one in there if (one.stream, one.part) != (new.stream, new.part)]

    def read(self, log: str, seen: Mapping[str, int]) -> list[ChunkBatch]:
        with self._lock:
            return [one for one in self._batches.get(log, ()) if one.part > seen.get(one.stream, 0)]

    def drop(self, log: str, streams: Sequence[str]) -> None:
        with self._lock:
            self._keep(log, [one for one in self._batches.get(log, ()) if one.stream not in streams])

    def drop_log(self, log: str) -> None:
        """Delete what a log has: it was removed, or something in it erased."""
        self._batches.pop(log, None)

    def drop_old(self, before_us: int) -> int:
        with self._lock:
            count = sum(map(len, self._batches.values()))
            for log, batches in list(self._batches.items()):
                young = {one.stream for one in batches if one.at_us >= before_us}
                self._keep(log, [one for one in batches if one.stream in young])
            return count - sum(map(len, self._batches.values()))

    def _keep(self, log: str, batches: list[ChunkBatch]) -> None:
        if batches:
            self._batches[log] = batches
        else:
            self._batches.pop(log, None)

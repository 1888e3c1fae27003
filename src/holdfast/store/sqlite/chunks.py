"""Chunks in a SQLite file: a table beside the logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import apsw

from holdfast.core import codec
from holdfast.store.chunks import ChunkBatch
from holdfast.store.sqlite import queries as q
from holdfast.store.sqlite.file import fetch_all


class SqliteChunks:
    """Batches by the number of their log."""

    def __init__(
        self,
        changing: Callable[[], AbstractContextManager[apsw.Connection]],
        reading: Callable[[], AbstractContextManager[apsw.Connection]],
    ) -> None:
        self._changing = changing
        self._reading = reading

    def put(self, batches: Sequence[ChunkBatch]) -> None:
        with self._changing() as writer:
            for one in batches:
                row = {name: getattr(one, name) for name in one.__struct_fields__}
                if one.part == 1:
                    writer.execute(q.DROP_OTHER_CHUNKS, {"log": one.log, "step": one.step, "stream": one.stream})
                writer.execute(q.PUT_CHUNKS, row)

    def read(self, log: str, seen: Mapping[str, int]) -> list[ChunkBatch]:
        with self._reading() as reader:
            rows = fetch_all(reader, q.CHUNKS, {"log": log, "seen": codec.dump(dict(seen)).decode()})
            return [ChunkBatch(log, *row) for row in rows]

    def drop(self, log: str, streams: Sequence[str]) -> None:
        with self._changing() as writer:
            writer.execute(q.DROP_CHUNKS, {"log": log, "streams": codec.dump(list(streams)).decode()})

    def drop_old(self, before_us: int) -> int:
        with self._changing() as writer:
            writer.execute(q.DROP_OLD_CHUNKS, {"before": before_us})
            return writer.changes()

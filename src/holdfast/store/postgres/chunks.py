"""Chunks on a PostgreSQL server: a table beside the logs. Nothing waits until they are on the disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg.types.numeric import Int8

from holdfast.store.chunks import ChunkBatch
from holdfast.store.postgres.server import queries as q
from holdfast.store.postgres.server.connections import Connections, Question
from holdfast.store.postgres.server.statements import Ints, Texts


class PostgresChunks:
    """Batches by the number of their log."""

    def __init__(self, links: Connections) -> None:
        self._links = links

    def put(self, batches: Sequence[ChunkBatch]) -> None:
        statements: list[Question] = []
        for one in batches:
            place = {"name": one.log, "step": one.step, "stream": one.stream}
            if one.part == 1:
                statements.append((q.DROP_OTHER_CHUNKS, place))
            numbers = {"part": one.part, "attempt": one.attempt, "after": one.after, "at": one.at_us}
            row = {**place, **{name: Int8(value) for name, value in numbers.items()}, "data": one.data}
            statements.append((q.PUT_CHUNKS, row))
        self._change(*statements)

    def read(self, log: str, seen: Mapping[str, int]) -> list[ChunkBatch]:
        bounds = {"name": log, "streams": Texts(seen), "parts": Ints(seen.values())}
        return [ChunkBatch(log, *row) for row in self._links.rows(q.CHUNKS, bounds)]

    def drop(self, log: str, streams: Sequence[str]) -> None:
        self._change((q.DROP_CHUNKS, {"name": log, "streams": Texts(streams)}))

    def drop_old(self, before_us: int) -> int:
        return self._change((q.DROP_OLD_CHUNKS, {"before": Int8(before_us)}))

    def _change(self, *statements: Question) -> int:
        """Run statements in one transaction; returns how many rows the last one changed."""
        count = 0
        with self._links.changing() as link:
            self._links.run(link, q.LAZY)
            for text, bindings in statements:
                count = self._links.run(link, text, bindings).rowcount
        return count

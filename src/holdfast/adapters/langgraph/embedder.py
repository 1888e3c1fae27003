"""Search by meaning: texts as vectors, which an embedder of the user's makes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.store.base import IndexConfig, Op, PutOp, SearchOp, ensure_embeddings, get_text_at_path, tokenize_path

Vectors = Mapping[str, Sequence[float]]
"""Vectors of texts."""


class Embedder:
    """An embedder, and which parts of a value it is given."""

    def __init__(self, index: IndexConfig) -> None:
        self._embeddings = ensure_embeddings(index.get("embed"))
        self._fields: Sequence[str] = index.get("fields") or ["$"]

    def vectors(self, ops: Sequence[Op]) -> Vectors:
        """The vectors of all that operations store and ask for."""
        texts, queries = self._texts(ops)
        found = dict(zip(texts, self._embeddings.embed_documents(texts) if texts else (), strict=True))
        return {**found, **{query: self._embeddings.embed_query(query) for query in queries}}

    async def avectors(self, ops: Sequence[Op]) -> Vectors:
        """`vectors`, to be awaited: the embedder may be async."""
        texts, queries = self._texts(ops)
        found = dict(zip(texts, await self._embeddings.aembed_documents(texts) if texts else (), strict=True))
        asked = await asyncio.gather(*(self._embeddings.aembed_query(query) for query in queries))
        return {**found, **dict(zip(queries, asked, strict=True))}

    def of(self, op: PutOp, vectors: Vectors) -> list[list[float]]:
        """The vectors of what an operation stores."""
        return [[float(one) for one in vectors[text]] for text in self._parts(op)]

    def scores(self, query: Sequence[float], candidates: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, float]:
        """How close each candidate is to a query, by the closest of its vectors; one without vectors has no score."""
        return {name: max(_cosine(query, one) for one in found) for name, found in candidates.items() if found}

    def _texts(self, ops: Sequence[Op]) -> tuple[list[str], list[str]]:
        texts = {text: None for op in ops if isinstance(op, PutOp) for text in self._parts(op)}
        queries = {op.query: None for op in ops if isinstance(op, SearchOp) and op.query}
        return [*texts], [*queries]

    def _parts(self, op: PutOp) -> list[str]:
        """The texts of a value that are embedded."""
        if op.value is None or op.index is False:
            return []
        fields = self._fields if op.index is None else op.index
        return [text for field in fields for text in _texts_at(op.value, field)]


def _texts_at(value: Mapping[str, Any], field: str) -> list[str]:
    return get_text_at_path(value, field if field == "$" else tokenize_path(field))


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    size = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / size if size else 0.0

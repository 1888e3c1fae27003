"""HoldfastStore: LangGraph's long-term memory in a Holdfast store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import ormsgpack
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)
from msgspec import Struct
from msgspec.structs import replace

from holdfast import App, InvalidValue, Record, RecordWrite
from holdfast.adapters.langgraph.embedder import Embedder, Vectors
from holdfast.adapters.langgraph.matching import fits, matches
from holdfast.adapters.langgraph.strict import refuse_lossy, strict_serializer
from holdfast.adapters.langgraph.values import Packed, from_record, pack, to_record, typed
from holdfast.engine.reading.values import moment

SPACE = "langgraph-store"
"""The space of records that memories are kept in, one key a memory."""

PAGE = 1_000
"""How many memories are read at a time."""

TRIM_EVERY = 16
"""After so many changes of a memory, its earlier values are taken away."""

MINUTE_US = 60_000_000
_ESCAPED = {"%": "%25", "/": "%2F", "=": "%3D"}


class HoldfastStore(BaseStore):
    """Keep a graph's long-term memory in a Holdfast store: `builder.compile(store=HoldfastStore(app))`.

    Values are searched by namespace and by filter: equality, `$eq $ne $gt $gte $lt $lte`. `index`: LangGraph's
    configuration of an embedder, for search by meaning; without one, `query=` is refused. Vectors are compared one by
    one: that is for thousands of memories, not for millions. `ttl`: LangGraph's configuration of times to live. An
    expired memory is not given any more; `sweep_ttl` takes expired ones away.
    """

    supports_ttl = True

    def __init__(self, app: App, *, index: IndexConfig | None = None, ttl: TTLConfig | None = None) -> None:
        if not isinstance(app, App):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{app!r} is not an app", hint="give HoldfastStore(holdfast.open(…))")
        self.ttl_config = ttl
        self._clock = app.clock
        self._records = app.records(SPACE)
        self._serde = strict_serializer()
        self._embedder = None if index is None else Embedder(index)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do operations: first what reads, then what writes, which is all or nothing. Results are in their order."""
        given = list(ops)
        self._refuse_wrong(given)
        return self._done(given, {} if self._embedder is None else self._embedder.vectors(given))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """`batch`, to be awaited."""
        given = list(ops)
        self._refuse_wrong(given)
        vectors: Vectors = {} if self._embedder is None else await self._embedder.avectors(given)
        return await asyncio.to_thread(self._done, given, vectors)

    def sweep_ttl(self) -> int:
        """Take expired memories away; returns how many they were."""
        now = self._clock.now_us()
        expired = [one.place for one in self._memories("") if not one.lives(now)]
        return sum(self._records.drop(place, why="expired") for place in expired)

    def _refuse_wrong(self, ops: Sequence[Op]) -> None:
        """Refuse wrong input before any of the operations is done."""
        for op in ops:
            _check_namespace(op)
            if isinstance(op, PutOp):
                _check_put(op)
        asked = next((op.query for op in ops if isinstance(op, SearchOp) and op.query), None)
        if asked is not None and self._embedder is None:
            raise InvalidValue(
                f"query={asked!r} searches by meaning, and this store has no embedder",
                hint='give one, HoldfastStore(app, index={"dims": …, "embed": …}), or search with filter=',
            )

    def _done(self, ops: Sequence[Op], vectors: Vectors) -> list[Result]:
        results = [self._read(op, vectors) for op in ops]
        puts = {_place(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        kept = {place: op for place, op in puts.items() if op.value is not None}
        seqs = self._records.write([self._write(place, op, vectors) for place, op in kept.items()])
        for place, (seq,) in zip(kept, seqs, strict=True):
            if seq % TRIM_EVERY == 0:
                self._records.trim(place, keep=1)
        for place in puts:
            if place not in kept:
                self._records.drop(place, why="deleted")
        return results

    # Reading

    def _read(self, op: Op, vectors: Vectors) -> Result:
        match op:
            case GetOp():
                found = self._memory(_place(op.namespace, op.key))
                if found is None or not found.lives(self._clock.now_us()):
                    return None
                self._refresh([found], op.refresh_ttl)
                return Item(**self._fields(found))
            case SearchOp():
                return self._found(op, vectors)
            case ListNamespacesOp():
                return self._namespaces(op)
            case _:
                return None

    def _found(self, op: SearchOp, vectors: Vectors) -> list[SearchItem]:
        alive = self._alive("".join(f"{_escape(label)}/" for label in op.namespace_prefix))
        fitting = [one for one in alive if not op.filter or fits(self._value(one), op.filter)]
        scores: Mapping[str, float] = {}
        if op.query and self._embedder is not None:
            scores = self._embedder.scores(vectors[op.query], {one.place: one.vectors for one in fitting})
        ordered = sorted(fitting, key=lambda one: (-scores.get(one.place, -2.0), -one.updated_us, one.place))
        page = ordered[op.offset : op.offset + op.limit]
        self._refresh(page, op.refresh_ttl)
        return [SearchItem(**self._fields(one), score=scores.get(one.place)) for one in page]

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        every = {_names(one.place)[0] for one in self._alive("")}
        wanted = [one for one in every if all(matches(condition, one) for condition in op.match_conditions or ())]
        return sorted({one[: op.max_depth] for one in wanted})[op.offset : op.offset + op.limit]

    def _alive(self, prefix: str) -> list[StoredItem]:
        now = self._clock.now_us()
        return [one for one in self._memories(prefix) if one.lives(now)]

    def _memories(self, prefix: str) -> Iterator[StoredItem]:
        after: str | None = None
        while page := self._records.latest(prefix, after=after, limit=PAGE):
            yield from map(_memory, page)
            after = page[-1].key

    def _memory(self, place: str) -> StoredItem | None:
        found = self._records.read(place, last=1)
        return _memory(found[0]) if found else None

    def _value(self, memory: StoredItem) -> dict[str, Any]:
        return self._serde.loads_typed(typed(memory.value))

    def _fields(self, memory: StoredItem) -> dict[str, Any]:
        namespace, key = _names(memory.place)
        created, updated = moment(memory.created_us), moment(memory.updated_us)
        return {
            "namespace": namespace,
            "key": key,
            "value": self._value(memory),
            "created_at": created,
            "updated_at": updated,
        }

    # Writing

    def _write(self, place: str, op: PutOp, vectors: Vectors) -> RecordWrite:
        value = pack(dict(op.value or {}), self._serde.dumps_typed)
        refuse_lossy(self._serde, value, f"memory {op.key!r} of {op.namespace!r}")
        now, before = self._clock.now_us(), self._memory(place)
        created = before.created_us if before is not None and before.lives(now) else now
        ttl_us = None if op.ttl is None else int(op.ttl * MINUTE_US)
        found = [] if self._embedder is None else self._embedder.of(op, vectors)
        return _written(StoredItem(place, created, now, ttl_us, None if ttl_us is None else now + ttl_us, value, found))

    def _refresh(self, memories: Sequence[StoredItem], wanted: bool) -> None:
        """Let memories that are read live as long again."""
        now = self._clock.now_us()
        self._records.write(
            [_written(replace(one, until_us=now + one.ttl_us)) for one in memories if wanted and one.ttl_us is not None]
        )


class StoredItem(Struct, frozen=True):
    """A memory as it is kept."""

    place: str
    created_us: int
    updated_us: int
    ttl_us: int | None
    until_us: int | None
    value: Packed
    vectors: list[list[float]]

    def lives(self, now_us: int) -> bool:
        """Whether its time has not passed."""
        return self.until_us is None or now_us < self.until_us


def _written(memory: StoredItem) -> RecordWrite:
    blobs: dict[str, bytes] = {}
    times = [memory.created_us, memory.updated_us, memory.ttl_us, memory.until_us]
    data = ormsgpack.packb([*times, to_record(memory.value, blobs), memory.vectors])
    return RecordWrite(key=memory.place, data=data, blobs=blobs or None)


def _memory(record: Record) -> StoredItem:
    created, updated, ttl, until, value, vectors = ormsgpack.unpackb(record.data)
    return StoredItem(record.key, created, updated, ttl, until, from_record(value, record.blobs), vectors)


def _check_namespace(op: Op) -> None:
    """Refuse a text as a namespace: it would be taken for a tuple of its letters."""
    if isinstance(op, ListNamespacesOp):
        return
    given: Any = op.namespace_prefix if isinstance(op, SearchOp) else op.namespace
    if isinstance(given, str):
        raise InvalidValue(f"namespace={given!r} is a text, not a tuple of labels", hint=f"give ({given!r},)")


def _check_put(op: PutOp) -> None:
    value, ttl = cast("tuple[Any, Any]", (op.value, op.ttl))
    where = f"memory {op.key!r} of {op.namespace!r}"
    if value is not None and not isinstance(value, Mapping):
        raise InvalidValue(
            f"the value of {where} is of type {type(value).__name__}, not a dict; nothing was saved",
            hint='give a dict: store.put(namespace, key, {"text": …})',
        )
    if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 <= ttl < float("inf")):
        raise InvalidValue(
            f"ttl={ttl!r} of {where} is not a number of minutes", hint="give 0 or more, or None for ever"
        )


def _escape(text: str) -> str:
    return "".join(_ESCAPED.get(one, one) for one in text)


def _place(namespace: tuple[str, ...], key: str) -> str:
    """The key of the records of a memory: `users/ana/=diet`."""
    return "".join(f"{_escape(label)}/" for label in namespace) + f"={_escape(str(key))}"


def _names(place: str) -> tuple[tuple[str, ...], str]:
    """The namespace and the key of a memory."""
    path, _, key = place.rpartition("=")
    return tuple(_plain(label) for label in path.split("/")[:-1]), _plain(key)


def _plain(text: str) -> str:
    for plain, escaped in reversed(_ESCAPED.items()):  # the percent sign last: it is what the others are written with
        text = text.replace(escaped, plain)
    return text

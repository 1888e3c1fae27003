"""Logs of records: where one begins, and whether its rows are what was written. Nothing in them is folded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from msgspec import Struct

from holdfast.core import codec, limits
from holdfast.core.codec import Blob, Head, Origin, RecordBlob, Stored
from holdfast.core.errors import LogCorrupt, TaskNotFound, UnknownEvent, ValueDamaged
from holdfast.engine.logs.log import DAMAGED
from holdfast.store.protocol import Erasure, Store

T = TypeVar("T")


class RecordLog(Struct, frozen=True):
    """A log of records as it was at one moment."""

    name: str
    start: Head
    rows: list[Stored]
    blobs: list[Blob]
    erasures: list[Erasure]


def start_of(store: Store, name: str, origin: Origin) -> Head:
    """Return the start of a record log's chain: its name, or the tombstone of its removed part."""
    if origin.at == 0:
        return Head(0, codec.genesis(name))
    stone = store.tombstone(name)
    if stone is None or stone.seq != origin.at:
        raise LogCorrupt(name, origin.at, "what came before it is gone, and no tombstone says what that was")
    return Head(stone.seq, stone.digest)


def steadily(store: Store, name: str, look: Callable[[Origin], T]) -> T:
    """Look through a log of records. What seems damaged because some of it went meanwhile is looked at again."""
    for tries in range(1, limits.MAX_APPEND_TRIES + 1):
        origin, erased = store.origin(name), len(store.erasures(name))
        if origin is None:
            raise TaskNotFound(name)
        try:
            return look(origin)
        except DAMAGED:
            moved = (store.origin(name), len(store.erasures(name))) != (origin, erased)
            if not moved or tries == limits.MAX_APPEND_TRIES:
                raise
    raise AssertionError("the loop ends by itself")


def rows_of(store: Store, name: str, *, after: int = 0, upto: int | None = None) -> Iterator[Stored]:
    """The rows of a log, page by page."""
    while rows := store.read(name, after=after, upto=upto, limit=limits.READ_CHUNK):
        yield from rows
        after = rows[-1].seq


def blobs_of(name: str, row: Stored) -> Mapping[str, RecordBlob]:
    """The large values that a row refers to, by name; says why if it is not a row of records."""
    try:
        return codec.record_blobs(row)
    except KeyError:
        raise UnknownEvent(name, row.seq, row.kind) from None
    except codec.MALFORMED as error:
        raise LogCorrupt(name, row.seq, f"its body cannot be read: {error}") from error


def hashes_of(name: str, rows: Iterable[Stored]) -> set[str]:
    """The hashes of all large values that rows refer to."""
    return {ref.hash for row in rows for ref in blobs_of(name, row).values()}


def unused(name: str, hashes: set[str], stays: Iterable[Stored]) -> tuple[str, ...]:
    """Those of some large values that no row which stays refers to. Without any, no row is looked at."""
    left = set(hashes)
    for row in stays if left else ():
        left -= hashes_of(name, (row,))
    return tuple(sorted(left))


def check_blobs(
    name: str, row: Stored, stored: Callable[[str], bytes | None], known: Collection[str] = ()
) -> list[str]:
    """Refuse a row whose large values are missing or damaged; gives their hashes. `known` ones are not looked at."""
    refs = list(blobs_of(name, row).values())
    for ref in refs:
        if ref.hash in known:
            continue
        data = stored(ref.hash)
        if data is None:
            raise LogCorrupt(name, row.seq, "a value it refers to is missing")
        try:
            codec.open_record_blob(ref, data)
        except ValueDamaged as error:
            raise LogCorrupt(name, row.seq, error.message) from error
    return [ref.hash for ref in refs]

"""Lists as PostgreSQL's arrays, each of one fixed type: an empty list has it too, so a statement is prepared once."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from psycopg import Connection, DataError
from psycopg.adapt import Dumper
from psycopg.pq import Format

_TEXT, _BIGINT, _BYTEA, _DOUBLE, _BOOLEAN = 25, 20, 17, 701, 16
_NULL = struct.pack("!i", -1)
_HEADER = struct.Struct("!iIIii")
_LENGTH = struct.Struct("!i")


class Array:
    """A list on its way into a statement."""

    __slots__ = ("items",)

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self.items: list[Any] = list(items)


class Texts(Array):
    """text[]"""


class Ints(Array):
    """bigint[]"""


class Bytes(Array):
    """bytea[]"""


class Floats(Array):
    """double precision[]"""


class Bools(Array):
    """boolean[]"""


def register(connection: Connection[Any]) -> None:
    """Teach a connection these types."""
    for kind, dumper in _DUMPERS:
        connection.adapters.register_dumper(kind, dumper)


def _dump(items: list[Any], element: int, encode: Callable[[Any], bytes]) -> bytes:
    """The binary form: the number of dimensions, whether nulls may occur, the type; size and start; the elements."""
    if not items:
        return struct.pack("!iII", 0, 0, element)
    parts = [_HEADER.pack(1, 1, element, len(items), 1)]
    for item in items:
        if item is None:
            parts.append(_NULL)
        else:
            encoded = encode(item)
            parts += (_LENGTH.pack(len(encoded)), encoded)
    return b"".join(parts)


def _text(item: str) -> bytes:
    if "\0" in item:
        raise DataError(f"text with a NUL (0x00) in it: {item[:80]!r}")
    return item.encode()


class _TextsDumper(Dumper):
    format = Format.BINARY
    oid = 1009

    def dump(self, obj: Texts) -> bytes:
        return _dump(obj.items, _TEXT, _text)


class _IntsDumper(Dumper):
    format = Format.BINARY
    oid = 1016

    def dump(self, obj: Ints) -> bytes:
        return _dump(obj.items, _BIGINT, struct.Struct("!q").pack)


class _BytesDumper(Dumper):
    format = Format.BINARY
    oid = 1001

    def dump(self, obj: Bytes) -> bytes:
        return _dump(obj.items, _BYTEA, bytes)


class _FloatsDumper(Dumper):
    format = Format.BINARY
    oid = 1022

    def dump(self, obj: Floats) -> bytes:
        return _dump(obj.items, _DOUBLE, struct.Struct("!d").pack)


class _BoolsDumper(Dumper):
    format = Format.BINARY
    oid = 1000

    def dump(self, obj: Bools) -> bytes:
        return _dump(obj.items, _BOOLEAN, struct.Struct("!?").pack)


_DUMPERS = (
    *((Texts, _TextsDumper), (Ints, _IntsDumper), (Bytes, _BytesDumper)),
    *((Floats, _FloatsDumper), (Bools, _BoolsDumper)),
)

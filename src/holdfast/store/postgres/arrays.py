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


def text(item: str) -> bytes:
    """A text as the server takes it."""
    if "\0" in item:
        raise DataError(f"text with a NUL (0x00) in it: {item[:80]!r}")
    return item.encode()


def _dumping(element: int, encode: Callable[[Any], bytes]) -> Callable[[Array], bytes]:
    return lambda array: _dump(array.items, element, encode)


# The server's number of each type, and a list of it as the server takes it.
TYPES: dict[type[Array], tuple[int, Callable[[Any], bytes]]] = {
    Texts: (1009, _dumping(_TEXT, text)),
    Ints: (1016, _dumping(_BIGINT, struct.Struct("!q").pack)),
    Bytes: (1001, _dumping(_BYTEA, bytes)),
    Floats: (1022, _dumping(_DOUBLE, struct.Struct("!d").pack)),
    Bools: (1000, _dumping(_BOOLEAN, struct.Struct("!?").pack)),
}


def _dumper(oid: int, dump: Callable[[Any], bytes]) -> type[Dumper]:
    """The same for psycopg."""
    given: dict[str, Any] = {"format": Format.BINARY, "oid": oid, "dump": lambda _, array: dump(array)}  # pyright: ignore[reportUnknownLambdaType]
    return type("ArrayDumper", (Dumper,), given)


_DUMPERS = [(kind, _dumper(*how)) for kind, how in TYPES.items()]

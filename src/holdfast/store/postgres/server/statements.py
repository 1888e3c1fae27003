"""Our statements, without the machinery that others need.

psycopg finds out anew for each statement what it says, what its values are and how they travel, which takes longer than
the server does to answer. Ours are few, and so are the types of their values: each is read once and prepared once
a connection, and its values are handed to libpq as they are.
"""

from __future__ import annotations

import functools
import re
import select
import struct
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

import psycopg
from psycopg import Connection, DataError, pq
from psycopg.adapt import Dumper, Transformer
from psycopg.pq import Format
from psycopg.rows import TupleRow
from psycopg.types.numeric import Int8

# Lists as arrays, each of one fixed type: an empty list has it too, so a statement is prepared once.


class Silent(psycopg.OperationalError):
    """The server has not answered for longer than anything may take it."""


class PatientConnection(psycopg.Connection[TupleRow]):
    """A connection that is given up when an answer takes longer than `patience` seconds, if that is set."""

    patience: float | None = None

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.quick: set[bytes] = set()

    def __del__(self, *given: Any) -> None:
        """A store that is dropped without being closed releases its connections, as one in a file does."""
        if hasattr(self, "pgconn"):
            self.pgconn.finish()

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **given: Any) -> Any:
        """Wait for the server, as psycopg does, but not for ever."""
        if self.patience is None:
            return super().wait(gen, *args, **given)
        try:
            return super().wait(_within(gen, self.patience), *args, **given)
        except Silent:
            self.pgconn.finish()  # the statement's outcome is unknown: it is as if the connection had broken
            raise


def _within(gen: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
    """The same waiting; psycopg looks in every so often with nothing to tell, and that is when time is looked at."""
    until = time.monotonic() + seconds
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > until:
                raise Silent(f"the server has not answered for {seconds:g} s")
            wanted = gen.send(ready)
    except StopIteration as done:
        return done.value


_TEXT, _BIGINT, _BYTEA, _DOUBLE, _BOOLEAN = 25, 20, 17, 701, 16


_NULL = struct.pack("!i", -1)


_HEADER = struct.Struct("!iIIii")


_SINGLE = struct.Struct("!iIIiii")


_LENGTH = struct.Struct("!i")


class Array(list[Any]):
    """A list on its way into a statement."""


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


def _dump(element: int, encode: Callable[[Any], bytes], items: list[Any]) -> bytes:
    """The binary form: the number of dimensions, whether nulls may occur, the type; size and start; the elements."""
    if len(items) == 1:  # most writes are of one event or one task
        if items[0] is None:
            return _lone_null(element)
        encoded = encode(items[0])
        return _SINGLE.pack(1, 1, element, 1, 1, len(encoded)) + encoded
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


@functools.cache
def _lone_null(element: int) -> bytes:
    return _HEADER.pack(1, 1, element, 1, 1) + _NULL


def text(item: str) -> bytes:
    """A text as the server takes it."""
    if "\0" in item:
        raise DataError(f"text with a NUL (0x00) in it: {item[:80]!r}")
    return item.encode()


# The server's number of each type, and a list of it as the server takes it.
TYPES: dict[type[Array], tuple[int, Callable[[Any], bytes]]] = {
    Texts: (1009, functools.partial(_dump, _TEXT, text)),
    Ints: (1016, functools.partial(_dump, _BIGINT, struct.Struct("!q").pack)),
    Bytes: (1001, functools.partial(_dump, _BYTEA, bytes)),
    Floats: (1022, functools.partial(_dump, _DOUBLE, struct.Struct("!d").pack)),
    Bools: (1000, functools.partial(_dump, _BOOLEAN, struct.Struct("!?").pack)),
}


def _dumper(oid: int, dump: Callable[[Any], bytes]) -> type[Dumper]:
    """The same for psycopg."""
    given: dict[str, Any] = {"format": Format.BINARY, "oid": oid, "dump": lambda _, array: dump(array)}  # pyright: ignore[reportUnknownLambdaType]
    return type("ArrayDumper", (Dumper,), given)


_DUMPERS = [(kind, _dumper(*how)) for kind, how in TYPES.items()]


# Statements

Values = Mapping[str, Any]
Statement = tuple[bytes, Values | None]
"""A text with named parameters, and their values."""

Encode = Callable[[Any], bytes | None]
"""Makes of a value what the server takes."""

_NO_VALUES: Values = {}

_PARAMETER = re.compile(rb"%\((\w+)\)[sb]")
_OKAY = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)

_integer = struct.Struct("!q").pack

# By the type of a value: the server's number of that type, and the value as the server takes it.
_TYPES: dict[type, tuple[int, Encode]] = {
    str: (25, text),
    int: (20, _integer),
    Int8: (20, _integer),
    bytes: (17, bytes),
    float: (701, struct.Struct("!d").pack),
    bool: (16, struct.Struct("!?").pack),
    type(None): (0, lambda _: None),
    **TYPES,
}


class Result:
    """What a statement gave, and how many rows it gave or changed."""

    __slots__ = ("_rows", "rowcount")

    def __init__(self, rows: list[tuple[Any, ...]], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All of its rows."""
        return self._rows

    def fetchone(self) -> tuple[Any, ...] | None:
        """Its first row, if there is one."""
        return self._rows[0] if self._rows else None


class _Prepared(NamedTuple):
    """A statement by its name, with the types of its parameters."""

    name: bytes
    text: bytes
    types: tuple[int, ...]
    formats: list[pq.Format]


class Insert:
    """The statement that is sent most: its values come in the order of its parameters, each of a known type."""

    def __init__(self, name: str, text: bytes, types: Sequence[type]) -> None:
        oids = tuple(_TYPES[one][0] for one in types)
        read, self.parameters = _parsed(text)
        self._prepared = _Prepared(name.encode(), read, oids, [pq.Format.BINARY] * len(types))
        self._encoders = [_TYPES[one][1] for one in types]

    def run(self, link: PatientConnection, values: Sequence[Any]) -> int:
        """Run it to its end, in one round trip; gives how many rows it wrote."""
        encoded = [encode(value) for encode, value in zip(self._encoders, values, strict=True)]
        return _run(link, self._prepared, encoded).rowcount


class StatementRunner:
    """The statements of a store. Any number of threads may use it, each with a connection of its own."""

    def __init__(self) -> None:
        self._read: dict[bytes, tuple[bytes, tuple[str, ...]]] = {}
        self._known: dict[tuple[bytes, tuple[type, ...]], tuple[_Prepared, list[Encode]]] = {}
        self._numbers = count()

    def run(self, link: PatientConnection, text: bytes, values: Values | None) -> Result:
        """Run a statement to its end, in one round trip."""
        return _run(link, *self._encoded(text, values))

    def together(self, link: PatientConnection, statements: Sequence[Statement]) -> list[Result]:
        """Run statements one after the other, in one round trip. When one fails, those after it are not run."""
        return _together(link, [self._encoded(text, values) for text, values in statements])

    def _encoded(self, text: bytes, values: Values | None) -> tuple[_Prepared, list[bytes | None]]:
        """Encode the values by their types; a statement is prepared once for each combination of types."""
        read = self._read.get(text)
        if read is None:
            read = self._read[text] = _parsed(text)
        if values is None:
            values = _NO_VALUES
        given = [values[name] for name in read[1]]
        key = (text, tuple(map(type, given)))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._prepare(read[0], key[1])
        return found[0], [encode(value) for encode, value in zip(found[1], given, strict=True)]

    def _prepare(self, text: bytes, types: Sequence[type]) -> tuple[_Prepared, list[Encode]]:
        oids = tuple(_TYPES[one][0] for one in types)
        name = b"holdfast_%d" % next(self._numbers)
        return _Prepared(name, text, oids, [pq.Format.BINARY] * len(types)), [_TYPES[one][1] for one in types]


def _parsed(text: bytes) -> tuple[bytes, tuple[str, ...]]:
    """A text as the server reads it, and its parameters in their order."""
    places: dict[str, int] = {}

    def numbered(found: re.Match[bytes]) -> bytes:
        return b"$%d" % places.setdefault(found[1].decode(), len(places) + 1)

    return _PARAMETER.sub(numbered, text), tuple(places)


def roll_back(link: PatientConnection) -> None:
    """End a transaction. psycopg would also make the server forget every prepared statement, which outlive it."""
    with _whole(link):
        link.pgconn.send_query(b"rollback")
        _answer(link)


@contextmanager
def _whole(link: PatientConnection) -> Generator[None, None, None]:
    """Whatever interrupts it: a connection with an unread answer is of no more use."""
    try:
        yield
    except BaseException:  # whatever interrupts it
        if link.pgconn.transaction_status == pq.TransactionStatus.ACTIVE or (
            link.pgconn.pipeline_status != pq.PipelineStatus.OFF
        ):
            link.pgconn.finish()
        raise


def _run(link: PatientConnection, prepared: _Prepared, values: Sequence[bytes | None]) -> Result:
    if prepared.name not in link.quick:
        return _together(link, [(prepared, values)])[0]
    try:
        with _whole(link):
            _send(link, prepared, values)
            return _answer(link)
    except psycopg.errors.InvalidSqlStatementName:  # it was removed, and nothing was done
        link.quick.clear()
        if link.pgconn.transaction_status != pq.TransactionStatus.IDLE:
            raise
        return _together(link, [(prepared, values)])[0]


def _send(link: PatientConnection, prepared: _Prepared, values: Sequence[bytes | None]) -> None:
    link.pgconn.send_query_prepared(prepared.name, values, prepared.formats, result_format=pq.Format.BINARY)


def _together(link: PatientConnection, ready: Sequence[tuple[_Prepared, Sequence[bytes | None]]]) -> list[Result]:
    """Statements in one round trip, also those that this connection does not know yet."""
    connection = link.pgconn
    sent: list[bytes | None] = []  # the name of what was prepared, or None for what was asked
    with _whole(link):
        connection.enter_pipeline_mode()
        for prepared, values in ready:
            if prepared.name not in link.quick and prepared.name not in sent:
                connection.send_prepare(prepared.name, prepared.text, prepared.types)
                sent.append(prepared.name)
            _send(link, prepared, values)
            sent.append(None)
        connection.pipeline_sync()
        results, error = _answers(link)
        connection.exit_pipeline_mode()
    link.quick.update(name for name in sent[: len(results)] if name is not None)
    if isinstance(error, psycopg.errors.InvalidSqlStatementName):
        link.quick.clear()
    if error is not None:
        raise error
    return [_loaded(link, result) for result, name in zip(results, sent, strict=True) if name is None]


def _answer(link: PatientConnection) -> Result:
    """Wait for the answer to what was sent."""
    last = None
    error: psycopg.Error | None = None
    _flush(link)
    while (result := _result(link)) is not None:
        if result.status in _OKAY:
            last = result
        else:
            error = psycopg.errors.error_from_result(result)
    if error is not None:
        raise error
    return _loaded(link, last)


def _answers(link: PatientConnection) -> tuple[list[pq.abc.PGresult], psycopg.Error | None]:
    """Wait for the answers to all that was sent in a pipeline, up to the first error."""
    found: list[pq.abc.PGresult] = []
    error: psycopg.Error | None = None
    _flush(link)
    while True:
        result = _result(link)
        if result is None:
            if link.pgconn.status != pq.ConnStatus.OK:
                raise error or psycopg.OperationalError("the connection is lost")
        elif result.status == pq.ExecStatus.PIPELINE_SYNC:
            return found, error
        elif result.status in _OKAY:
            found.append(result)
        elif result.status != pq.ExecStatus.PIPELINE_ABORTED:
            error = error or psycopg.errors.error_from_result(result)


def _loaded(link: PatientConnection, result: pq.abc.PGresult | None) -> Result:
    if result is None:
        return Result([], 0)
    if result.ntuples == 0:
        return Result([], result.command_tuples or 0)
    transformer = Transformer(link)
    transformer.set_pgresult(result, format=pq.Format.BINARY)
    return Result(transformer.load_rows(0, result.ntuples, tuple), result.ntuples)


def _flush(link: PatientConnection) -> None:
    while link.pgconn.flush():
        _wait(link, select.POLLOUT | select.POLLIN)
        link.pgconn.consume_input()  # the server may want to be listened to before it listens


def _result(link: PatientConnection) -> pq.abc.PGresult | None:
    while link.pgconn.is_busy():
        _wait(link, select.POLLIN)
        link.pgconn.consume_input()
    return link.pgconn.get_result()


def _wait(link: PatientConnection, events: int) -> None:
    """Until the connection has something to say, but not for ever."""
    poll = select.poll()
    poll.register(link.pgconn.socket, events)
    if not poll.poll(None if link.patience is None else link.patience * 1000):
        link.pgconn.finish()  # the statement's outcome is unknown: it is as if the connection had broken
        raise Silent(f"the server has not answered for {link.patience:g} s")

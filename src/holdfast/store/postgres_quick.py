"""The statement that is sent most, without the machinery that other statements need.

psycopg finds out anew for each statement what its values are and how they travel, which takes longer than the server
does to answer. Where both are known beforehand, the statement is prepared once a connection and its values are handed
to libpq as they are.
"""

from __future__ import annotations

import re
import select
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import pq

from holdfast.store.postgres_patience import PatientConnection, Silent

_PARAMETER = re.compile(rb"%\((\w+)\)[sb]")
_OKAY = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)


class Quick:
    """A statement by its name, with the types of its parameters in the order in which values are given."""

    def __init__(self, name: str, text: bytes, types: dict[str, int]) -> None:
        places = {parameter: f"${place}".encode() for place, parameter in enumerate(types, start=1)}
        self._name = name.encode()
        self._text = _PARAMETER.sub(lambda found: places[found[1].decode()], text)
        self._types = tuple(types.values())
        self._formats = [pq.Format.BINARY] * len(types)

    def run(self, link: PatientConnection, values: Sequence[bytes | None]) -> int:
        """Run it to its end; gives how many rows it changed."""
        with _whole(link):
            try:
                return self._run(link, values)
            except psycopg.errors.InvalidSqlStatementName:  # somebody took it away, and nothing was done
                link.quick.discard(self._name)
                return self._run(link, values)

    def _run(self, link: PatientConnection, values: Sequence[bytes | None]) -> int:
        if self._name not in link.quick:
            link.pgconn.send_prepare(self._name, self._text, self._types)
            _done(link)
            link.quick.add(self._name)
        link.pgconn.send_query_prepared(self._name, values, self._formats)
        return _done(link)


def roll_back(link: PatientConnection) -> None:
    """End a transaction. psycopg would also make the server forget every prepared statement, which outlive it."""
    with _whole(link):
        link.pgconn.send_query(b"rollback")
        _done(link)


@contextmanager
def _whole(link: PatientConnection) -> Generator[None, None, None]:
    """Whatever interrupts it: a connection whose answer nobody took is of no more use."""
    try:
        yield
    except psycopg.Error:
        raise
    except BaseException:
        link.pgconn.finish()
        raise


def _done(link: PatientConnection) -> int:
    """Wait for the answer to what was sent."""
    connection, changed = link.pgconn, 0
    error: psycopg.Error | None = None
    while connection.flush():
        _wait(link, select.POLLOUT | select.POLLIN)
    while True:
        while connection.is_busy():
            _wait(link, select.POLLIN)
            connection.consume_input()
        result = connection.get_result()
        if result is None:
            break
        if result.status not in _OKAY:
            error = psycopg.errors.error_from_result(result)
        changed = result.command_tuples or 0
    if error is not None:
        raise error
    return changed


def _wait(link: PatientConnection, events: int) -> None:
    """Until the connection has something to say, but not for ever."""
    poll = select.poll()
    poll.register(link.pgconn.socket, events)
    if not poll.poll(None if link.patience is None else link.patience * 1000):
        link.pgconn.finish()  # nobody knows what became of the statement: it is as if the connection had broken
        raise Silent(f"the server has not answered for {link.patience:g} s")

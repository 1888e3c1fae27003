"""Connections that do not wait for ever. A server that is frozen, or cut off behind something that still acknowledges
what it is sent, says nothing and breaks nothing: neither TCP nor the server's own time limits notice that.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg.rows import TupleRow


class Silent(psycopg.OperationalError):
    """The server has not answered for longer than anything may take it."""


class PatientConnection(psycopg.Connection[TupleRow]):
    """A connection that is given up when an answer takes longer than `patience` seconds, if that is set."""

    patience: float | None = None

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.quick: set[bytes] = set()

    def __del__(self, *given: Any) -> None:
        """A store that is dropped without being closed lets go of its connections, as one in a file does."""
        if hasattr(self, "pgconn"):
            self.pgconn.finish()

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **given: Any) -> Any:
        """Wait for the server, as psycopg does, but not for ever."""
        if self.patience is None:
            return super().wait(gen, *args, **given)
        try:
            return super().wait(_within(gen, self.patience), *args, **given)
        except Silent:
            self.pgconn.finish()  # nobody knows what became of the statement: it is as if the connection had broken
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

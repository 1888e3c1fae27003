"""The PostgreSQL store beside bare psycopg: a lone caller, and two hundred at once. Needs a server, or one to start."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import holdfast
from benchmarks.append import append_seconds
from benchmarks.concurrent import APPENDERS, EACH, loop_seconds, thread_seconds
from benchmarks.table import Row, at_least, at_most
from benchmarks.workload import best, new_task, say, step
from holdfast.core import codec

BLOCK = 25
ROUNDS = 40
CONCURRENT_ROUNDS = 6
_INSERT = """
insert into holdfast.events (log, seq, kind, at, body, body_hash, digest)
values (%s, %s, %s, %s, %b, %b, %b)
"""


def rows(place: Path) -> list[Row]:
    """With fsync on, over TCP on this machine."""
    try:
        import psycopg  # noqa: F401
        from tests.postgres_server import Server, binaries
    except ImportError:
        say("postgres: no psycopg")
        return []
    url = os.environ.get("HOLDFAST_TEST_URL")
    if url:
        return _measured(url)
    found = binaries()
    if found is None:
        say("postgres: no server")
        return []
    server = Server(found, fsync="on")
    try:
        return _measured(server.url())
    finally:
        server.stop()


def _measured(url: str) -> list[Row]:
    say("postgres")
    with holdfast.open(url) as app:
        log = new_task(app, "lone")
        raw = _BareAppends(url)
        lone = best(ROUNDS, ours=lambda: append_seconds(log, BLOCK), raw=lambda: raw.seconds(BLOCK))
        logs = [new_task(app, f"task-{number}") for number in range(APPENDERS)]
        many = best(
            CONCURRENT_ROUNDS,
            loop=lambda: asyncio.run(loop_seconds(app, logs)),
            threads=lambda: thread_seconds(logs),
        )
        raw.close()
    per, written, bare = 1e6 / BLOCK, APPENDERS * EACH, BLOCK / lone["raw"]
    ours = lone["ours"] * per
    return [
        Row(name="append, postgres", measured=ours, unit="µs", compare=lone["raw"] * per, goal=at_most(1.5)),
        _many("under asyncio", written / many["loop"], bare),
        _many("in threads", written / many["threads"], bare),
    ]


def _many(how: str, measured: float, bare: float) -> Row:
    name = f"{APPENDERS} appenders {how}, postgres"
    return Row(name=name, measured=measured, unit="events/s", compare=bare, goal=at_least(3))


class _BareAppends:
    """One prepared autocommit insert an event into the same table, with nothing around it."""

    def __init__(self, url: str) -> None:
        import psycopg

        self._connection = psycopg.connect(url, autocommit=True)
        self._seq = 0

    def seconds(self, count: int) -> float:
        """How long so many inserts take; what they insert is ready beforehand."""
        drafts = [codec.draft(step(self._seq + number), 0)[0] for number in range(1, count + 1)]
        rows = [
            (0, self._seq + number, draft.kind, time.time_ns() // 1000, draft.body, draft.body_hash, draft.body_hash)
            for number, draft in enumerate(drafts, start=1)
        ]
        self._seq += count
        began = time.perf_counter()
        for row in rows:
            self._connection.execute(_INSERT, row, prepare=True)
        return time.perf_counter() - began

    def close(self) -> None:
        """Let go of the server."""
        self._connection.close()

"""DBOS on SQLite. It opens its file with a rollback journal; here it gets WAL and synchronous=FULL, which is faster."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from dbos import DBOS
from serving import RESULT, serve
from sqlalchemy import Engine, event

_place = Path(sys.argv[1])


@event.listens_for(Engine, "connect")
def _set_durability(connection: Any, record: Any) -> None:
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")


@DBOS.step()
def _work(number: int) -> str:
    return RESULT


@DBOS.step()
async def _work_async(number: int) -> str:
    return RESULT


@DBOS.workflow()
def _sequence(steps: int) -> None:
    for number in range(steps):
        _work(number)


@DBOS.workflow()
async def _sequence_async(steps: int) -> None:
    for number in range(steps):
        await _work_async(number)


def sequential(steps: int) -> float:
    """Steps of a workflow, one after the other."""
    began = time.perf_counter()
    _sequence(steps)
    return time.perf_counter() - began


def concurrent(tasks: int, steps: int) -> float:
    """Many workflows at once, on one event loop."""

    async def together() -> float:
        began = time.perf_counter()
        await asyncio.gather(*(_sequence_async(steps) for _ in range(tasks)))
        return time.perf_counter() - began

    return asyncio.run(together())


if __name__ == "__main__":
    DBOS(
        config={
            "name": "benchmark",
            "system_database_url": f"sqlite:///{_place / 'dbos.db'}",
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    serve(sequential=sequential, concurrent=concurrent)
    DBOS.destroy()

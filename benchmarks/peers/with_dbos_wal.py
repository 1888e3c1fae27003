"""DBOS on SQLite with a write-ahead log, which its users would have to ask for; still each commit is synced."""

from __future__ import annotations

from typing import Any

import with_dbos
from sqlalchemy import Engine, event


@event.listens_for(Engine, "connect")
def _set_durability(connection: Any, record: Any) -> None:
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")


if __name__ == "__main__":
    with_dbos.answer()

"""Between SQLite's rows and our records."""

from __future__ import annotations

from typing import Any

import apsw

from holdfast.core.errors import LogCorrupt
from holdfast.core.records import Group, Stored, Summary
from holdfast.store import sqlite_queries as q
from holdfast.store.protocol import Query
from holdfast.store.sqlite_file import fetch_one


def is_one_event(group: Group) -> bool:
    """Whether a group is one event after a known head, with nothing beside it."""
    if len(group.writes) != 1 or group.takes or group.frees:
        return False
    write = group.writes[0]
    beside = write.summary or write.snapshot or write.origin or write.blobs
    return not beside and write.expect is not None and len(write.drafts) == 1


def list_query(query: Query) -> str:
    """The query whose index fits the filters best."""
    any_status = query.status is None
    if query.user is not None:
        return q.LIST_BY_USER if any_status else q.LIST_BY_USER_AND_STATUS
    if query.agent is not None:
        return q.LIST_BY_AGENT if any_status else q.LIST_BY_AGENT_AND_STATUS
    if query.stage is not None:
        return q.LIST_BY_STAGE if any_status else q.LIST_BY_STAGE_AND_STATUS
    return q.LIST if any_status else q.LIST_BY_STATUS


_SUMMARY_FIELDS = (
    *("id", "agent", "status", "stage", "user", "thread", "parent", "waiting", "holder", "lease_seconds"),
    *("queue", "priority", "wake_us", "deadline_us", "created_us", "changed_us"),
)


def to_summary(row: tuple[Any, ...]) -> Summary:
    return Summary(**dict(zip(_SUMMARY_FIELDS, row, strict=True)))


def task_row(number: int | None, summary: Summary, seq: int, digest: bytes) -> dict[str, Any]:
    row = {name.removesuffix("_us"): getattr(summary, name) for name in _SUMMARY_FIELDS}
    return {**row, "log": number, "anchor_seq": seq, "anchor_digest": digest}


def row_itself(reader: apsw.Connection, rowid: int, log: str, number: int | None, seq: int) -> Stored:
    """One event as it lies in the table, so that damage there is not hidden by the index."""
    try:
        row = fetch_one(reader, q.ROW, (rowid,))
    except (apsw.Error, UnicodeDecodeError) as error:
        raise LogCorrupt(log, seq, f"its row cannot be read: {error}") from error
    if row is None or row[:2] != (number, seq):
        raise LogCorrupt(log, seq, "its row is not where the index says")
    _, _, kind, at, body, hashed, digest, kind_is = row
    well_formed = (
        kind_is == "text"
        and isinstance(kind, bytes)
        and isinstance(at, int)
        and isinstance(body, bytes | None)
        and isinstance(hashed, bytes)
        and isinstance(digest, bytes)
    )
    if not well_formed:
        raise LogCorrupt(log, seq, "its row has columns of the wrong type")
    return Stored(seq, kind.decode("utf-8", "replace"), at, body, hashed, digest)

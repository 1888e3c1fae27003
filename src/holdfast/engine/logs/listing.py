"""Lists of tasks, also where the row of one cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core import limits
from holdfast.core.codec import Summary
from holdfast.store.protocol import Query, Store

DAMAGED = "(damaged)"
"""What stands for the agent of a task whose row cannot be read."""


def list_tasks(store: Store, query: Query) -> list[Summary]:
    """Tasks, newest first. A byte that is not UTF-8 in the row of one must not keep the others from being listed."""
    try:
        return store.list(query)
    except UnicodeDecodeError:
        found = _one_by_one(store, query)
        return [summary for _, summary in zip(range(query.limit), found, strict=False)]


def _one_by_one(store: Store, query: Query) -> Iterator[Summary]:
    """The same, a question a task. What cannot be read is in a list of everything, and in no narrower one."""
    names: list[str] = []
    while page := store.logs(after=names[-1] if names else None, limit=limits.READ_CHUNK):
        names += page
    if query.after in names:
        del names[names.index(query.after) :]
    rows = (_row(store, name) for name in reversed(names))
    return query.matching(row for row in rows if row is not None)


def _row(store: Store, name: str) -> Summary | None:
    try:
        return store.summary(name)
    except UnicodeDecodeError:
        return Summary(id=name, agent=DAMAGED, status="failed")

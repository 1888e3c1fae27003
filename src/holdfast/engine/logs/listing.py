"""Lists of tasks, also where the row of one cannot be read."""

from __future__ import annotations

import itertools
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
    if query.order != "oldest":
        names.reverse()
    found = (row for row in (_row(store, name) for name in names) if row is not None)
    rows = sorted(found, key=lambda row: -row.changed_us) if query.order == "changed" else found
    after = query.after
    if after is not None:
        rows = itertools.dropwhile(lambda row: row.id != after, rows)
        next(iter(rows), None)
    return query.matching(rows)


def _row(store: Store, name: str) -> Summary | None:
    try:
        return store.summary(name)
    except UnicodeDecodeError:
        return Summary(id=name, agent=DAMAGED, status="failed")

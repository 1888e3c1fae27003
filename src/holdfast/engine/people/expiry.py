"""What has expired: tasks that waited too long are cancelled; threads, users and records that are not used are removed.

A length of time is given with `expire=`, and counts from the last change. It is `gc` that looks, so nothing goes before
that, and what is used again in the meantime stays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from msgspec.structs import replace

from holdfast.core import codec, events as ev, limits, names
from holdfast.core.codec import Summary, Tombstone
from holdfast.core.errors import Conflict, TaskCollected, TaskFinished, TaskNotFound
from holdfast.core.state.shapes import State
from holdfast.engine.control.change import change, stopped
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading.values import Expired
from holdfast.engine.records.removal import RecordRemover
from holdfast.engine.records.writing import RecordWriter
from holdfast.store.protocol import Query

_OWN_TIME = ("timer", "child", "diverged")
"""Waits that do not make a task expire: it knows itself when it resumes, or a person must look at it first."""

_PLACES = ("@thread/", "@user/")


def expired(logs: Logs) -> Expired:
    """What has expired by now. Nothing is written."""
    now = logs.clock.now_us()
    threads, users = (list(_silent(logs, prefix, now)) for prefix in _PLACES)
    return Expired(
        tasks=[row.id for row in _waiting(logs, now)],
        threads=[names.thread_of(name) for name, _ in threads],
        users=[names.user_of(name) for name, _ in users],
        records=[names.record_key(name) for name, _ in _records(logs, now)],
    )


def expire(logs: Logs) -> Expired:
    """Cancel tasks that waited too long, and remove what was not used; gives what that was."""
    now = logs.clock.now_us()
    tasks = [row.id for row in list(_waiting(logs, now)) if _cancelled(logs, row.id, now)]
    removed = {
        prefix: [name for name, seq in list(_silent(logs, prefix, now)) if _removed(logs, name, seq)]
        for prefix in _PLACES
    }
    remover = RecordRemover(logs, RecordWriter(logs))
    dropped: list[str] = []
    for name, seq in list(_records(logs, now)):
        with contextlib.suppress(Conflict):  # it was used at this moment
            dropped += [name] if remover.drop(name, seq, "expired") else []
    return Expired(
        tasks=tasks,
        threads=[names.thread_of(name) for name in removed["@thread/"]],
        users=[names.user_of(name) for name in removed["@user/"]],
        records=[names.record_key(name) for name in dropped],
    )


def _waiting(logs: Logs, now: int) -> Iterator[Summary]:
    after: str | None = None
    while page := logs.store.list(Query(expired_us=now, after=after, limit=limits.PAGE_SIZE)):
        yield from (row for row in page if _is_due(row, now))
        after = page[-1].id


def _is_due(row: Summary, now: int) -> bool:
    later = row.wake_us is not None and row.wake_us > now
    due = row.expires_at is not None and row.changed_us + (row.expire_us or 0) <= now
    return due and row.waiting not in _OWN_TIME and not later


def _cancelled(logs: Logs, id: str, now: int) -> bool:
    """Cancel a task, if it still waits for longer than it may."""
    asked = False

    def decide(state: State) -> tuple[ev.Event, ...]:
        nonlocal asked
        asked = _is_due(state.summary, now) and state.cancel is None
        length = (state.summary.expire_us or 0) / 1_000_000
        why = f"expired: nothing happened to it for {length:g} s"
        return stopped(state, ev.CancelRequested(why=why, expired=True), alone=True) if asked else ()

    with contextlib.suppress(TaskFinished, TaskNotFound, TaskCollected):  # it ended, or went, at this moment
        change(logs, id, decide)
    return asked


def _silent(logs: Logs, prefix: str, now: int) -> Iterator[tuple[str, int]]:
    """The logs of threads or users in which nothing has happened for as long as they may be kept, and their heads."""
    after: str | None = None
    while page := logs.store.newest(prefix=prefix, after=after, limit=limits.PAGE_SIZE):
        for name, last in page:
            with contextlib.suppress(TaskNotFound):
                state = logs.load(name).state
                if state.expire_us and state.updated_us + state.expire_us <= now and not _is_used(logs, prefix, name):
                    yield name, last.seq
        after = page[-1][0]


def _is_used(logs: Logs, prefix: str, name: str) -> bool:
    """Whether a task of a thread or a user has not ended."""
    id = name.removeprefix(prefix)
    asked = Query(limit=1, thread=id) if prefix == "@thread/" else Query(limit=1, user=id)
    return any(logs.store.list(replace(asked, status=one)) for one in ("pending", "running", "waiting"))


def _removed(logs: Logs, name: str, seq: int) -> bool:
    head = logs.store.head(name)
    if head is None or head.seq != seq:
        return False  # it was used at this moment
    gone = logs.store.remove([Tombstone(name, head.seq, head.digest, logs.clock.now_us(), "expired")])
    logs.forget(gone)
    return bool(gone)


def _records(logs: Logs, now: int) -> Iterator[tuple[str, int]]:
    """The logs of records whose newest one has expired, and their heads."""
    after: str | None = None
    while page := logs.store.newest(prefix=names.RECORDS, after=after, limit=limits.PAGE_SIZE):
        for name, row in page:
            length = codec.read_record(row.body)[0].expire_us if codec.is_live(row) and row.body else 0
            if length and row.at_us + length <= now:
                yield name, row.seq
        after = page[-1][0]

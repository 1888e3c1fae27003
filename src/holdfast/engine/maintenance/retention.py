"""Retention: ended tasks that are old go; their ids never act again."""

from __future__ import annotations

from holdfast.core import codec, limits
from holdfast.core.errors import InvalidValue
from holdfast.core.state.shapes import ENDED
from holdfast.engine.logs.logs import Logs
from holdfast.engine.maintenance.export import Progress
from holdfast.store.protocol import Tombstone


class Collected(codec.JsonStruct, frozen=True):
    """What gc took away."""

    tasks: int
    snapshots: int
    kept_for_forks: int
    expired_tasks: int = 0
    """Tasks that waited too long, and were cancelled."""
    expired_threads: int = 0
    expired_users: int = 0
    expired_records: int = 0
    """Keys of records."""


def refuse_keep(keep: object) -> None:
    """Refuse what is not a number of tasks to keep."""
    if keep is not None and not (type(keep) is int and keep >= 0):
        raise InvalidValue(f"keep={keep!r} is not a number of tasks", hint="give 0 or more")


def collect(
    logs: Logs,
    *,
    older_than_us: int | None,
    keep: int | None,
    snapshots_before_us: int | None,
    why: str,
    progress: Progress | None = None,
) -> Collected:
    """Remove ended tasks beyond the newest `keep` and older than a time; parents of living forks stay."""
    removed = spared = 0
    if older_than_us is not None or keep is not None:
        # A fork goes before its parent can: so go round until nothing more goes.
        while True:
            gone, spared = _collect_once(logs, older_than_us, keep or 0, why)
            removed += gone
            if progress is not None:
                progress(removed, 0)
            if not gone:
                break
    dropped = 0
    if snapshots_before_us is not None:
        dropped = logs.store.drop_snapshots(before_us=snapshots_before_us)
    logs.store.chunks.drop_old(logs.clock.now_us() - int(limits.CHUNKS_STALE_SECONDS * 1_000_000))
    return Collected(removed, dropped, spared)


def _collect_once(logs: Logs, older_than_us: int | None, keep: int, why: str) -> tuple[int, int]:
    """One round. What moved on, was forked or went away meanwhile is left alone: the store compares the head."""
    store = logs.store
    removed = spared = 0
    collected: list[str] = []
    for name in store.finished(before_us=older_than_us, skip=keep, limit=limits.MAX_PAGE_SIZE):
        # The head comes first: what is reopened after that no longer has it, what was before is seen to be.
        head, summary = store.head(name), store.summary(name)
        if head is not None and summary is not None and summary.status in ENDED:
            gone = store.remove([Tombstone(name, head.seq, head.digest, logs.clock.now_us(), why)])
            removed += len(gone)
            spared += not gone and bool(store.forks(name))
            collected += gone
    logs.cache.forget(collected)
    return removed, spared


def collectable(logs: Logs, *, older_than_us: int | None, keep: int | None) -> list[str]:
    """Return what `collect` would remove if nothing happens meanwhile: a fork goes before its parent can."""
    store = logs.store
    found: list[str] = []
    if older_than_us is None and keep is None:
        return found
    while page := store.finished(before_us=older_than_us, skip=(keep or 0) + len(found), limit=limits.MAX_PAGE_SIZE):
        found += page
    gone = set(found)
    while held := {name for name in gone if any(fork not in gone for fork in store.forks(name))}:
        gone -= held
    return [name for name in found if name in gone]

"""Copies of whole stores: everything in them, verified at the other end."""

from __future__ import annotations

from holdfast.core import limits, names
from holdfast.core.codec import Origin
from holdfast.core.errors import LogCorrupt, TaskNotFound
from holdfast.engine.logs.logs import Logs
from holdfast.engine.maintenance import record_copies
from holdfast.engine.maintenance.export import (
    Copied,
    NoClock,
    Progress,
    adopt_log,
    read_all,
    refuse_cut_off,
    summary_of,
)
from holdfast.engine.reading.verify import past_of, replayed, verify
from holdfast.store.protocol import Store
from holdfast.store.tenants import Tenant


def _copy_store(source: Logs, target: Store, progress: Progress | None) -> tuple[Copied, dict[str, LogCorrupt]]:
    """Copy every log, key and tombstone; return what was damaged and left out. Run again, it continues where it was."""
    total = source.store.stats().tasks
    logs = events = skipped = 0
    damaged: dict[str, LogCorrupt] = {}
    after: str | None = None
    while page := source.store.logs(after=after, limit=limits.PAGE_SIZE):
        for name in page:
            try:
                written = _copy_log(*_views(source.store, target, name))
            except LogCorrupt as error:
                damaged[name] = error
                continue
            logs, skipped, events = logs + (written > 0), skipped + (written == 0), events + written
            if progress is not None:
                progress(logs + skipped, total)
        after = page[-1]
    _copy_marks(source.store, target)
    return Copied(logs, events, skipped), damaged


def _views(source: Store, target: Store, name: str) -> tuple[Store, Store, str]:
    """A tenant's log is copied as the tenant sees it, so that its task is that tenant's in the copy too."""
    namespace, end, own = name.partition(names.NAMESPACE_END)
    return (Tenant(source, namespace), Tenant(target, namespace), own) if end else (source, target, name)


def _copy_log(source: Store, target: Store, name: str) -> int:
    """Copy what the target lacks of a log; one that is removed meanwhile is left out."""
    origin = source.origin(name)
    if origin is None:
        return 0
    if origin.parent is not None:
        head = target.head(origin.parent)
        if head is None or head.seq < origin.at:
            _copy_log(source, target, origin.parent)  # it grew since it was copied, and was forked there
    anchor, head = source.anchor(name), source.head(name)
    if head is not None and target.head(name) == head and _marks(target, name) == _marks(source, name):
        refuse_cut_off(name, anchor, head.seq)
        return 0
    try:
        one = read_all(source, name)
        if one.is_records:
            return record_copies.bring(target, one.records, follows=True)
        history = replayed(name, one.rows, past_of(Logs(source, NoClock()), one.origin))
        return adopt_log(target, one, summary_of(one, history), follows=True)
    except TaskNotFound:
        return 0


def _marks(store: Store, name: str) -> tuple[Origin | None, int]:
    """Return the parts of a log that can change without its head: its start, and the number of erased bodies."""
    return store.origin(name), len(store.erasures(name))


def _copy_marks(source: Store, target: Store) -> None:
    """Remove in the copy what was removed here; keys that were taken stay taken."""
    name = key = ""
    while stones := source.tombstones(after=name):
        tasks = [stone for stone in stones if not names.begins_again(stone.log)]
        target.remove(tasks)
        target.restore_marks(tasks, ())
        for stone in stones:
            # A log that is there, and is not a task's, was copied with its tombstone: that covers its beginning only.
            if names.begins_again(stone.log) and source.head(stone.log) is None:
                record_copies.drop(target, stone)
        name = stones[-1].log
    while keys := source.unique_keys(after=key):
        target.restore_marks((), keys)
        key = keys[-1].key


def verified_copy(source: Logs, target: Logs, progress: Progress | None = None) -> Copied:
    """Copy a store and walk every chain of the copy. What is damaged is left out and named once the rest is there."""
    copied, damaged = _copy_store(source, target.store, progress)
    found = verify(target)
    if not found.ok:
        problem = found.problems[0]
        raise LogCorrupt(problem.task, problem.seq, f"the copy does not verify: {problem.why}")
    if damaged:
        raise _left_out(copied, damaged)
    return copied


def _left_out(copied: Copied, damaged: dict[str, LogCorrupt]) -> LogCorrupt:
    first = next(iter(damaged.values())).details
    left = ", ".join(repr(name) for name in damaged)
    rest = f"left out of the copy: {left}; the others, {copied.logs + copied.skipped}, are there and verified"
    why = f"{first['why']}; {rest}; the store itself was not touched"
    return LogCorrupt(first["log"], first["seq"], why, hint="import what is missing into the copy, from a backup")

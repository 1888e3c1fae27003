"""Looking at a store and its place: what is well, what is not, and what to do about it."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Literal

from holdfast.core import codec, limits
from holdfast.core.errors import HoldfastError, NotAStore, TaskCollected, TaskNotFound
from holdfast.engine.logs.addresses import Place, place_of
from holdfast.engine.logs.listing import list_tasks
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading.schema import schema_of
from holdfast.engine.reading.serving import LiveWorker, workers_of
from holdfast.engine.reading.verify import Problem, verify
from holdfast.store.protocol import Query

SAFE_SQLITE = (3, 51, 3)
"""The first version without the bug that can damage a write-ahead log under two writers."""

_NETWORK = ("nfs", "nfs4", "cifs", "smb", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ncpfs", "glusterfs", "ceph")
_ROOM_BYTES = 256 * 1024 * 1024
_SLOW_SYNC_SECONDS = 0.05
_SYNCS = 5
_LOOK_SECONDS = 2.0
_LONG_WAL_BYTES = 16 * limits.WAL_BYTES


class Finding(codec.JsonStruct, frozen=True):
    """One thing that was looked at."""

    what: str
    level: Literal["ok", "warn", "fail"]
    said: str
    remedy: str = ""


def examine(url: str, opened: Callable[[], Logs]) -> list[Finding]:
    """Look at a store and the place it is in: everything there is to see, what is wrong with a remedy.

    `opened` opens it; a file that can't be opened is a finding, a server that does not answer raises.
    """
    place = place_of(url)
    path, found = place.path, list[Finding]()
    if path is not None and not os.path.exists(path):
        raise NotAStore(f"there is no store at {path!r}; nothing was made", hint="name a file that is there")
    if place.url is not None:
        from holdfast.engine.maintenance import doctor_postgres  # it needs psycopg

        found += doctor_postgres.findings(url)
    if not any(one.what == "locks" and one.level == "fail" for one in found):  # else it is refused for just that
        found += findings(opened, path)
    if place != Place():
        found.insert(1, schema(url, path))
    return found


def findings(opened: Callable[[], Logs], path: str | None) -> Iterator[Finding]:
    """Everything there is to look at; `path` is the file of a store that is one.

    A file that cannot be opened is a finding; a server that does not answer leaves nothing to look at.
    """
    if path is not None:
        yield _library()
        yield _file_system(path)
        yield _room(path)
        yield _sync(path)
        yield _rights(path)
        yield _write_ahead_log(path)
    try:
        logs = opened()
    except HoldfastError as error:
        if path is None:
            raise
        yield _failing("integrity", error)
        return
    looks = (("integrity", _integrity), ("interrupted", _interrupted), ("threads", _threads), ("clock", _clock))
    for what, look in looks:
        try:
            yield look(logs)
        except HoldfastError as error:  # it is damaged where this look needs it; the others may do without
            yield _failing(what, error)


def schema(url: str, path: str | None) -> Finding:
    """Check the version of the schema."""
    try:
        found = schema_of(url, path)
    except HoldfastError as error:
        if path is None:
            raise
        return _failing("schema", error)
    return Finding("schema", "ok", f"version {found.found} of {found.known}")


def _failing(what: str, error: HoldfastError) -> Finding:
    """Report an error of a check as a finding."""
    remedy = (
        "if it was a store: restore a backup; else choose another file" if error.code == "not-a-store" else error.hint
    )
    return Finding(what, "fail", error.message, remedy)


def _library() -> Finding:
    from holdfast.store.sqlite.file import library_version

    version = library_version()
    numbers = tuple(int(part) for part in version.split(".")[:3])
    if numbers >= SAFE_SQLITE:
        return Finding("sqlite", "ok", f"SQLite {version}")
    why = f"SQLite {version} can damage a file that several processes write to (fixed in 3.51.3)"
    return Finding("sqlite", "fail", why, "pip install --upgrade apsw, or keep to one process")


def _file_system(path: str) -> Finding:
    kind = _kind_of_mount(os.path.realpath(path))
    if kind in _NETWORK:
        why = f"{kind}: locks over a network are not to be trusted"
        return Finding("file system", "fail", why, "keep the store on a local disk")
    return Finding("file system", "ok", kind or "not known here")


def _kind_of_mount(path: str) -> str:
    """The kind of file system a path is on, where the system tells."""
    best = ("", "")
    try:
        with open("/proc/mounts", encoding="utf-8") as mounts:
            for line in mounts:
                _, place, kind, *_ = line.split()
                inside = path == place or path.startswith(place.rstrip("/") + "/")
                if inside and len(place) >= len(best[0]):
                    best = (place, kind)
    except OSError:
        return ""
    return best[1]


def _room(path: str) -> Finding:
    free = shutil.disk_usage(os.path.dirname(os.path.abspath(path))).free
    said = f"{free / 1e9:,.1f} GB free"
    if free < _ROOM_BYTES:
        return Finding("room", "warn", said, "free some space: a full disk refuses writes, and loses nothing")
    return Finding("room", "ok", said)


def _sync(path: str) -> Finding:
    """Measure how long the disk takes to sync: the price of a step."""
    probe = f"{path}.{os.urandom(4).hex()}.probe"
    try:
        file = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as error:
        return Finding(
            "sync", "fail", f"nothing can be made beside it: {error.strerror}", "check the directory's rights"
        )
    try:
        began = time.perf_counter()
        for _ in range(_SYNCS):
            os.write(file, b"x" * 4096)
            os.fsync(file)
        each = (time.perf_counter() - began) / _SYNCS
    finally:
        os.close(file)
        os.unlink(probe)
    if each > _SLOW_SYNC_SECONDS:
        return Finding("sync", "warn", f"{each * 1000:.1f} ms", "each step waits for it; a faster disk helps")
    return Finding("sync", "ok", f"{each * 1000:.1f} ms")


def _rights(path: str) -> Finding:
    mode = os.stat(path).st_mode & 0o777
    if mode & 0o077:
        return Finding("rights", "warn", f"others may read it (mode {mode:o})", f"chmod 600 {path}")
    return Finding("rights", "ok", f"mode {mode:o}")


def _write_ahead_log(path: str) -> Finding:
    """Measure the part of the write-ahead log that is not in the database file yet."""
    size = os.path.getsize(f"{path}-wal") if os.path.exists(f"{path}-wal") else 0
    said = f"{size / 1e6:,.1f} MB"
    if size > _LONG_WAL_BYTES:
        return Finding(
            "write-ahead log", "warn", said, "a process has been reading for long: end it, and write something"
        )
    return Finding("write-ahead log", "ok", said)


def _integrity(logs: Logs) -> Finding:
    problems = logs.store.check()
    if problems:
        return Finding("integrity", "fail", problems[0], "restore a backup; to list the logs: holdfast verify")
    damaged = _newest_damaged(logs)
    if damaged:
        named = ", ".join(one.task for one in damaged[:3]) + (" …" if len(damaged) > 3 else "")
        what = "task is" if len(damaged) == 1 else "tasks are"
        said = f"{len(damaged)} of the newest {what} damaged: {named}; {damaged[0].why}"
        return Finding("integrity", "fail", said, "holdfast verify looks at all of them; import them from a backup")
    return Finding("integrity", "ok", "the store's own check finds nothing; to check every log: holdfast verify")


def _newest_damaged(logs: Logs) -> list[Problem]:
    """Check the newest tasks, as many as a few seconds allow."""
    found: list[Problem] = []
    until = time.monotonic() + _LOOK_SECONDS
    for row in list_tasks(logs.store, Query(limit=limits.PAGE_SIZE)):
        if time.monotonic() > until:
            break
        with contextlib.suppress(TaskNotFound, TaskCollected):
            found += verify(logs, row.id).problems
    return found


def _interrupted(logs: Logs) -> Finding:
    running = list_tasks(logs.store, Query(status="running", limit=limits.MAX_PAGE_SIZE))
    lost = logs.store.queues.lost()
    dead = [row.id for row in running if row.holder in lost]
    if dead:
        named = ", ".join(dead[:3]) + (" …" if len(dead) > 3 else "")
        what = "task" if len(dead) == 1 else "tasks"
        how = "dead or silent" if "presumed" in lost.values() else "dead"
        return Finding("interrupted", "warn", f"{len(dead)} {what} whose process is {how}: {named}", _REMEDY)
    return Finding("interrupted", "ok", "no task was left behind")


_REMEDY = "holdfast worker FILE takes them over; so does holdfast resume ID FILE"


def _threads(logs: Logs) -> Finding:
    """Name the tasks whose threads workers had to abandon, and that still run."""
    left = [one for one in workers_of(logs.store, logs.namespace) if one.serving.abandoned]
    if not left:
        return Finding("threads", "ok", "no worker has abandoned threads that still run")
    told = [f"{len(one.serving.abandoned)} in worker {one.serving.name}: {_named(one)}" for one in left]
    clogged = [one for one in left if len(one.serving.abandoned) >= limits.MAX_ABANDONED_THREADS]
    more = "; it claims no more tasks" if len(clogged) == 1 else "; they claim no more tasks" if clogged else ""
    said = f"abandoned threads still run, {'; '.join(told)}{more}"
    return Finding("threads", "fail" if clogged else "warn", said, _END_THREADS)


def _named(worker: LiveWorker) -> str:
    """Each task once, with how many of its threads there are."""
    counted = Counter(worker.serving.abandoned)
    return ", ".join(name if times == 1 else f"{name} ({times} times)" for name, times in counted.items())


_END_THREADS = "restart the worker; give what hangs in these steps a time limit of its own (a socket's, a query's)"


def _clock(logs: Logs) -> Finding:
    newest = list_tasks(logs.store, Query(limit=1))
    ahead = (newest[0].changed_us - logs.clock.now_us()) / 1_000_000 if newest else 0.0
    if ahead > 60:
        why = f"the newest task is {ahead:,.0f} s in the future"
        return Finding("clock", "warn", why, "set the clock; order does not depend on it, times shown do")
    return Finding("clock", "ok", "no event is in the future")

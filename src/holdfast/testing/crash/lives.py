"""Processes that die on command: simulated inside this one, or forked and killed.

A life opens a store, works on it and ends, or crashes at a failpoint when it comes there for the n-th time. The store
lies in a place that outlives it.
"""

from __future__ import annotations

import copy
import gc
import logging
import os
import select
import shutil
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, Protocol

from msgspec import Struct

import holdfast
from holdfast.core import codec
from holdfast.core.errors import LeaseLost, StoreClosed, Suspended
from holdfast.engine.app import App
from holdfast.failpoints import armed
from holdfast.store.memory.store import MemoryStore
from holdfast.store.protocol import Store
from holdfast.testing.auditor import audit

MAX_HITS = 10_000
"""How many failpoints a life may pass before it counts as endless."""

THREAD_SECONDS = 10.0
"""How long a life's threads may take to end with it."""

_OURS = str(Path(holdfast.__file__).parent)

Spot = tuple[str, int]
"""Where to crash: a failpoint, and which of its hits."""

Open = Callable[[], App]
Work = Callable[[App], object]


class Crash(BaseException):
    """The process dies here."""


class LostAnswer(Exception):
    """Injected into a step or tool: it raises before its effect, or its answer is lost after it."""


class _Gone(StoreClosed):
    """The message for others of a thread that must not die itself."""


class Life(Struct, frozen=True):
    """What became of one process: the failpoints it passed, and how it ended if not as it should."""

    hits: tuple[str, ...] = ()
    crashed: bool = False
    raised: bool = False
    error: str = ""
    stuck: bool = False


class Fuse:
    """Counts the failpoints a life passes and blows at one of them; from then on every one ends its thread.

    At `raise_at` it raises LostAnswer instead, and the life continues.
    """

    def __init__(self, crash_at: Spot | None, die: Callable[[str], None], raise_at: Spot | None = None) -> None:
        self.hits: list[str] = []
        self.blown = False
        self.raised = False
        self._crash_at = crash_at
        self._raise_at = raise_at
        self._die = die
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def endless(self) -> bool:
        """True if it blew because nothing ever ended."""
        return len(self.hits) > MAX_HITS

    def __call__(self, name: str) -> None:
        with self._lock:
            if not self.blown:
                self.hits.append(name)
                self._counts[name] += 1
                self.blown = self.endless or (name, self._counts[name]) == self._crash_at
                raises = (name, self._counts[name]) == self._raise_at
                self.raised |= raises
                if raises:
                    raise LostAnswer(f"injected at {name}")
        if self.blown:
            self._die(name)

    def life(self, error: str) -> Life:
        """Describe the end of the life it was for."""
        if self.endless:
            return Life(error=f"it passed {MAX_HITS:,} crash points and did not end", stuck=True)
        return Life(tuple(self.hits), crashed=self.blown, raised=self.raised, error="" if self.blown else error)


# Lives


def simulated(open: Open, work: Work, crash_at: Spot | None, raise_at: Spot | None = None) -> Life:
    """Live inside this process. A crash is an exception that nothing survives: code that continues meets it again."""
    fuse = Fuse(crash_at, _crash, raise_at)
    before = {thread for thread in threading.enumerate() if _is_busy(thread)}
    with armed(fuse), _quiet(fuse):
        app, error = _live(fuse, open, work)
        left = _end(app, before)
    if left:
        error = f"its threads {left} would not end: use mode='kill', where they die with their process"
        return Life(tuple(fuse.hits), error=error)
    return fuse.life(error)


def _live(fuse: Fuse, open: Open, work: Work) -> tuple[App | None, str]:
    """Open and work; gives what was opened, and what went wrong."""
    app: App | None = None
    try:
        app = open()
        work(app)
    except BaseException as raised:  # a planned crash may come as anything; what is not one is raised again
        if not isinstance(raised, Exception | Suspended | LeaseLost) and not (fuse.blown and _is_of_a_crash(raised)):
            raise
        return app, told(raised)
    return app, ""


def _end(app: App | None, before: set[threading.Thread]) -> list[str]:
    """Let a life's threads end, then close its store; return the names of threads that still run."""
    if app is not None:
        app.logs.committer.close()
    deadline = time.monotonic() + THREAD_SECONDS
    while busy := [thread.name for thread in threading.enumerate() if thread not in before and _is_busy(thread)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.001)
    if app is not None:
        app.close()
    return busy


def _is_busy(thread: threading.Thread) -> bool:
    """Return whether a thread may still do something. Ours that only wait for work, or watch, are left alone."""
    frame = sys._current_frames().get(thread.ident or 0)  # pyright: ignore[reportPrivateUsage] — documented, if odd
    waits_for_work = (
        frame is not None and frame.f_code.co_name == "_serve" and frame.f_code.co_filename.startswith(_OURS)
    )
    return not waits_for_work and thread.name not in ("holdfast-watch", "holdfast-beat")


def forked(open: Open, work: Work, crash_at: Spot | None, timeout: float, raise_at: Spot | None = None) -> Life:
    """Live in a child process; a crash is SIGKILL. Nothing may hold the store open here meanwhile."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of a test runner; none of ours are alive
        pid = os.fork()
    if pid == 0:
        _be_a_child(writing, open, work, crash_at, raise_at)
    os.close(writing)
    told: bytes | None = None
    try:
        told = _read(reading, timeout)
    finally:
        if told is None:
            os.kill(pid, signal.SIGKILL)
        os.close(reading)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if told is None:
        return Life(error=f"it hung for {timeout:g} s and was killed", stuck=True)
    if code == -signal.SIGKILL and crash_at is not None:
        return Life(crashed=True)
    if code != 0:
        return Life(error=f"its process ended with {code}")
    return codec.load(told, Life)


def _be_a_child(writing: int, open: Open, work: Work, crash_at: Spot | None, raise_at: Spot | None) -> NoReturn:
    status = 1
    try:
        gc.freeze()  # what the parent left open is not ours to close
        fuse = Fuse(crash_at, _crash if crash_at is None else _kill, raise_at)
        with armed(fuse), _quiet(fuse):
            life = fuse.life(_live(fuse, open, work)[1])
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(codec.dump(life))
        status = 0
    finally:
        os._exit(status)


def _read(pipe: int, timeout: float) -> bytes | None:
    """Everything a child says until it ends; None if it takes too long."""
    deadline = time.monotonic() + timeout
    said = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        chunk = os.read(pipe, 1 << 16)
        if not chunk:
            return said
        said += chunk


def _crash(name: str) -> None:
    """Stop this thread. Nothing happens between two failpoints, so where that is awkward, the next one does it."""
    if name.startswith(("snapshot.", "checkpoint.")):
        return  # passed on behalf of all who wait for what was written, or while the store is closed
    if threading.current_thread().name == "holdfast-commit":
        raise _Gone("this process has crashed", hint="nothing more is written")  # were it to die, others would wait
    raise Crash("this process has crashed")


def _kill(name: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _is_of_a_crash(raised: BaseException) -> bool:
    """Return whether a crash explains it. A Ctrl-C, or a test that took too long, belongs to the test runner."""
    return type(raised).__module__.partition(".")[0] in ("holdfast", "asyncio")


def told(raised: BaseException) -> str:
    """An exception in a line: what, and the line of the user's own code it came from."""
    frames = [frame for frame in traceback.extract_tb(raised.__traceback__) if not frame.filename.startswith(_OURS)]
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""
    return f"{type(raised).__name__}: {raised}{where}"


@contextmanager
def _quiet(fuse: Fuse) -> Generator[None, None, None]:
    """Threads, tasks and forgotten generators of a crashed process do not complain."""
    thread_hook, unraisable_hook = threading.excepthook, sys.unraisablehook

    def in_thread(args: Any) -> None:
        if not fuse.blown:
            thread_hook(args)

    def unraisable(args: Any) -> None:
        if not isinstance(args.exc_value, Crash):
            unraisable_hook(args)

    logging.getLogger("asyncio").addFilter(_is_no_crash)  # for good: some complain only when they are collected
    threading.excepthook, sys.unraisablehook = in_thread, unraisable
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = thread_hook, unraisable_hook


def _is_no_crash(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, Crash | _Gone)


# Places


class TestPlace(Protocol):
    """Where a store lies while no process lives."""

    kind: str

    def clear(self) -> None:
        """Begin with an empty store."""
        ...

    def open(self) -> Store:
        """Open it as a new process would; the process that had it open before is dead."""
        ...

    def audit(self) -> list[str]:
        """Return the auditor's findings. It shares no code with the engine."""
        ...

    def keep(self, name: str) -> str:
        """Put a copy aside; gives its path."""
        ...

    def end(self) -> None:
        """No process will live here again."""
        ...


class MemoryPlace:
    """A store in memory that outlives the lives simulated on it."""

    kind = "memory:"

    def __init__(self) -> None:
        self._store = _MortalStore()

    def clear(self) -> None:
        self._store = _MortalStore()

    def open(self) -> Store:
        self._store = self._store.reborn()
        return self._store

    def audit(self) -> list[str]:
        return []

    def keep(self, name: str) -> str:
        return ""

    def end(self) -> None:
        return None


class SqlitePlace:
    """A file. Its name stays the same, since a process never closes the file that shows who is alive."""

    kind = "sqlite"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "crash.db"

    def clear(self) -> None:
        for ending in ("", "-wal", "-shm"):
            Path(f"{self._path}{ending}").unlink(missing_ok=True)

    def open(self) -> Store:
        from holdfast.store.sqlite.store import SqliteStore

        return SqliteStore(str(self._path), durability="process")

    def audit(self) -> list[str]:
        return audit(self._path)

    def keep(self, name: str) -> str:
        return str(shutil.copyfile(self._path, self._directory / f"{name}.db"))

    def end(self) -> None:
        return None


class PostgresPlace:
    """A schema of its own on a server. Where it may be emptied past its guards it is, which takes less time."""

    kind = "postgres"

    def __init__(self, url: str) -> None:
        self._url = url
        self._name = f"crash_{os.getpid():x}_{os.urandom(3).hex()}"
        self._kept = 0

    @property
    def _schema(self) -> str:
        return f"{self._name}_{self._kept}"

    @property
    def _at(self) -> str:
        return f"{self._url}{'&' if '?' in self._url else '?'}schema={self._schema}&connections=4"

    def clear(self) -> None:
        import psycopg

        with self._linked() as link:
            try:
                link.execute("set session_replication_role = replica")
            except psycopg.errors.InsufficientPrivilege:
                self.end()
                return
            self._empty(link)

    def _empty(self, link: Any) -> None:
        from psycopg import sql

        tables = link.execute(_TABLES, {"schema": self._schema}).fetchall()
        for (table,) in tables:
            link.execute(sql.SQL("delete from {}").format(sql.Identifier(self._schema, table)))

    def open(self) -> Store:
        from holdfast.store.postgres.store import PostgresStore

        return PostgresStore(self._at, durability="process")

    def audit(self) -> list[str]:
        return audit(self._at)

    def keep(self, name: str) -> str:
        self._kept += 1  # that schema stays, and the next trial has another
        return f"schema {self._name}_{self._kept - 1} of {self._url}"

    def end(self) -> None:
        """Remove what the last trial left."""
        from psycopg import sql

        drop = sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(self._schema))
        with self._linked() as link:
            link.execute(drop)

    def _linked(self) -> Any:
        """Connect to the server itself; the address may have options that are the store's."""
        from holdfast.store.postgres.server.connecting import connect, parse

        return connect(parse(self._url), direct=True)


_TABLES = """
select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relkind in ('r', 'p') and not c.relispartition and c.relname <> 'migrations'
"""


class _MortalStore(MemoryStore):
    """A store whose process can die while what it stored lives on."""

    def reborn(self) -> _MortalStore:
        """The same logs, open, in another process."""
        other = copy.copy(self)
        whose = {name: value for name, value in vars(MemoryStore()).items() if isinstance(value, bool | str)}
        vars(other).update(whose)
        return other

    def close(self, *, present: bool = False) -> None:
        tables, self._tables = self._tables, None
        super().close()
        self._tables = tables

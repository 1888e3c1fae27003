"""A file system that fails on command: full disks, failing syncs, power cuts, a process killed at a write.

Each is a VFS for SQLite, written in Python, over the real files. SQLite uses it by name, in one connection:

    vfs = PowerCutVFS("cut", "shadow", cut_at=17)
    store = SqliteStore("holdfast.db", vfs="cut", exclusive=True)

`operations` counts the writes, truncations, syncs and deletions, so a run without a fault tells a test how many places
there are to fail at. An error in a checkpoint, which SQLite itself would swallow, reaches the caller here.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal

import apsw

if TYPE_CHECKING:
    from typing_extensions import Buffer

SECTOR_BYTES = 512


class PowerCut(BaseException):
    """The power went off. What lies in the shadow directory is what reached the disk."""


@dataclass(frozen=True)
class DiskWrite:
    offset: int
    data: bytes


@dataclass(frozen=True)
class Truncate:
    size: int


@dataclass(frozen=True)
class Delete:
    synced: bool


Change = DiskWrite | Truncate | Delete
Side = Literal["before", "halfway", "after"]


class FaultyVFS(apsw.VFS):
    """Passes everything through, counts, and fails on demand.

    Set `room` to the number of writes that still fit on the disk: 0 is a full disk, None a large one. Set
    `fail_sync_at` to the number of the sync that fails, counted by `syncs`.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, "")
        self.operations = 0
        self.syncs = 0
        self.room: int | None = None
        self.fail_sync_at: int | None = None

    def opening(self, path: str) -> None:
        """Called before a file is opened."""

    def changing(self, path: str, change: Change) -> None:
        """Called before a file is changed; raises what keeps it from happening."""
        self.operations += 1
        if isinstance(change, DiskWrite) and self.room is not None:
            if self.room == 0:
                raise apsw.FullError("there is no room for another write")
            self.room -= 1

    def syncing(self, path: str) -> None:
        """Called instead of syncing: a disk that is only simulated gains nothing from a real sync."""
        self.operations += 1
        self.syncs += 1
        if self.syncs == self.fail_sync_at:
            raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)

    def done(self) -> None:
        """Called after a file was changed or synced."""

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return apsw.VFSFile("", None, flags) if name is None else _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.changing(filename, Delete(syncdir))
        super().xDelete(filename, syncdir)
        self.done()

    def excepthook(
        self, etype: type[BaseException] | None, evalue: BaseException | None, etraceback: TracebackType | None
    ) -> bool:
        """Our own failures need no report where they can't be caught."""
        return True


class PowerCutVFS(FaultyVFS):
    """Keeps a shadow of every file that holds what was synced and nothing else.

    At operation `cut_at` the power goes off: PowerCut is raised there and at every later change, or the process ends
    with `exit_code`. With a `seed`, some of what was not synced reaches the shadow too, in part, as on real disks.
    """

    def __init__(
        self,
        name: str,
        shadow_dir: str | os.PathLike[str],
        *,
        cut_at: int | None = None,
        exit_code: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(name)
        self.shadow_dir = Path(shadow_dir)
        self.shadow_dir.mkdir(parents=True, exist_ok=True)
        self.cut_at = cut_at
        self.exit_code = exit_code
        self.off = False
        self._chance = None if seed is None else random.Random(seed)
        self._unsynced: dict[str, list[Change]] = {}

    def shadow(self, path: str | os.PathLike[str]) -> Path:
        """Return the path of a file's shadow."""
        return self.shadow_dir / Path(path).name

    def opening(self, path: str) -> None:
        """Take a file's content before the first change through us as synced."""
        if path not in self._unsynced:
            self._unsynced[path] = []
            if os.path.exists(path):
                shutil.copyfile(path, self.shadow(path))

    def changing(self, path: str, change: Change) -> None:
        self._cut_if_due(path, change)
        super().changing(path, change)
        self._unsynced.setdefault(path, []).append(change)
        if isinstance(change, Delete) and change.synced:
            self._sync_directory()

    def syncing(self, path: str) -> None:
        self._cut_if_due(path)
        changes = self._unsynced[path]
        try:
            super().syncing(path)
        except apsw.IOError:
            # Linux takes the pages of a failed sync for clean, so no later sync brings them to the disk.
            changes.clear()
            raise
        if _is_journal(path) and (_deletions(changes) or not self.shadow(path).exists()):
            self._sync_directory()
        self._reach_disk(path, changes)
        changes.clear()

    def _cut_if_due(self, path: str, *under_way: Change) -> None:
        if not self.off and self.operations + 1 == self.cut_at:
            self.off = True
            self._unsynced.setdefault(path, []).extend(under_way)
            self._let_some_through()
        if self.off and self.exit_code is not None:
            os._exit(self.exit_code)
        if self.off:
            raise PowerCut(f"at operation {self.cut_at}")

    def _let_some_through(self) -> None:
        if self._chance is not None:
            for path, changes in self._unsynced.items():
                self._reach_disk(path, _some(changes, self._chance))

    def _sync_directory(self) -> None:
        """Make deletions last. SQLite does so with the first sync of a new journal or write-ahead log."""
        for path, changes in self._unsynced.items():
            count = _deletions(changes)
            self._reach_disk(path, changes[:count])
            del changes[:count]

    def _reach_disk(self, path: str, changes: Iterable[Change]) -> None:
        for change in changes:
            _apply(self.shadow(path), change)


class KillVFS(FaultyVFS):
    """Kills its own process with SIGKILL at operation `kill_at`: before it, after it, or with half of a write done.

    `writes` holds the numbers of the operations that were writes: only these can be left half done.
    """

    def __init__(self, name: str, *, kill_at: int | None = None, side: Side = "before") -> None:
        super().__init__(name)
        self.kill_at = kill_at
        self.side = side
        self.writes: list[int] = []

    def changing(self, path: str, change: Change) -> None:
        super().changing(path, change)
        if isinstance(change, DiskWrite):
            self.writes.append(self.operations)
            if self.side == "halfway" and self.operations == self.kill_at:
                _apply(Path(path), DiskWrite(change.offset, change.data[: len(change.data) // 2]))
        self._kill_if_due("before", "halfway")

    def syncing(self, path: str) -> None:
        super().syncing(path)
        self._kill_if_due("before", "halfway")

    def done(self) -> None:
        self._kill_if_due("after")

    def _kill_if_due(self, *sides: Side) -> None:
        if self.operations == self.kill_at and self.side in sides:
            os.kill(os.getpid(), signal.SIGKILL)


class _File(apsw.VFSFile):
    """A file that asks its VFS before it changes."""

    def __init__(self, vfs: FaultyVFS, name: str | apsw.URIFilename, flags: list[int]) -> None:
        self._vfs = vfs
        self._path = name if isinstance(name, str) else name.filename()
        vfs.opening(self._path)
        super().__init__("", name, flags)

    def xWrite(self, data: Buffer, offset: int) -> None:
        self._vfs.changing(self._path, DiskWrite(offset, bytes(data)))
        super().xWrite(data, offset)
        self._vfs.done()

    def xTruncate(self, newsize: int) -> None:
        self._vfs.changing(self._path, Truncate(newsize))
        super().xTruncate(newsize)
        self._vfs.done()

    def xSync(self, flags: int) -> None:
        self._vfs.syncing(self._path)
        self._vfs.done()

    def excepthook(
        self, etype: type[BaseException] | None, evalue: BaseException | None, etraceback: TracebackType | None
    ) -> bool:
        return True


def _is_journal(path: str) -> bool:
    return path.endswith(("-wal", "-journal"))


def _deletions(changes: Sequence[Change]) -> int:
    """Count the changes up to the last deletion, included."""
    return max((index for index, change in enumerate(changes, start=1) if isinstance(change, Delete)), default=0)


def _some(changes: Iterable[Change], chance: random.Random) -> Iterator[Change]:
    """Some of the changes, in order; a write may be torn between sectors."""
    for change in changes:
        if chance.random() < 0.5:
            yield change
        elif isinstance(change, DiskWrite):
            yield from (piece for piece in _sectors(change) if chance.random() < 0.5)
        elif isinstance(change, Delete):
            # What follows went into a new file that the directory on the disk does not know.
            return


def _sectors(write: DiskWrite) -> Iterator[DiskWrite]:
    offset, end = write.offset, write.offset + len(write.data)
    while offset < end:
        after = min(end, (offset // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield DiskWrite(offset, write.data[offset - write.offset : after - write.offset])
        offset = after


def _apply(file: Path, change: Change) -> None:
    if isinstance(change, Delete):
        file.unlink(missing_ok=True)
        return
    file.touch()
    with file.open("r+b") as opened:
        if isinstance(change, Truncate):
            opened.truncate(change.size)
        else:
            opened.seek(change.offset)
            opened.write(change.data)

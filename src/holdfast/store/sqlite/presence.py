"""Who is alive: a lock that the operating system drops when the process dies, however it dies.

Every holder locks one byte, at an offset drawn at random, of an empty file beside the database. Such locks belong to
the process, not to a file descriptor: a forked child does not inherit them, a killed process cannot keep them. They are
lost when *any* descriptor of the file is closed, so each file is opened once per process and never closed.
"""

from __future__ import annotations

import fcntl
import os
import threading

_MAX_OFFSET = 1 << 62
_lock = threading.Lock()
_descriptors: dict[str, int] = {}
_mine: set[tuple[str, int]] = set()


class FilePresence:
    """This process's sign of life on one file, under one name."""

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        self._offset = int.from_bytes(os.urandom(8)) % _MAX_OFFSET
        self._pid = os.getpid()
        with _lock:
            fcntl.lockf(_descriptor(self._path), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._offset)
            _mine.add((self._path, self._offset))
        self.name = f"{self._pid}-{self._offset:x}"

    def alive(self, name: str) -> bool:
        """Whether the holder of that name still lives."""
        try:
            offset = int(name.rpartition("-")[2], 16)
        except ValueError:
            return False
        with _lock:
            if (self._path, offset) in _mine:
                return True
            return is_locked(_descriptor(self._path), offset, fcntl.LOCK_EX)

    def close(self) -> None:
        """Be gone, as if the process had died."""
        with _lock:
            if (self._path, self._offset) in _mine:
                _mine.discard((self._path, self._offset))
                fcntl.lockf(_descriptor(self._path), fcntl.LOCK_UN, 1, self._offset)


def is_locked(descriptor: int, offset: int, kind: int) -> bool:
    """Whether another process has a lock there; asked by taking one of that kind and dropping it."""
    try:
        fcntl.lockf(descriptor, kind | fcntl.LOCK_NB, 1, offset)
    except OSError:
        return True
    fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, offset)
    return False


def _descriptor(path: str) -> int:
    if path not in _descriptors:
        _descriptors[path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return _descriptors[path]


def _forget_after_fork() -> None:
    """A child holds none of its parent's locks. Its copy of the lock object may be held by a thread it lacks."""
    global _lock
    _lock = threading.Lock()
    _mine.clear()


os.register_at_fork(after_in_child=_forget_after_fork)

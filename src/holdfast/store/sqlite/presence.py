"""Who is alive: a lock that the operating system drops when the process dies, however it dies.

Every process locks one byte of the guard file, at a random offset, through a descriptor of its own. The lock
goes with that descriptor: a killed process cannot keep it, and a forked child closes its copy (see `locks`).
"""

from __future__ import annotations

import os

from holdfast.store.sqlite.file_guard import FIRST_FREE
from holdfast.store.sqlite.locks import HAS_OFD, Span, close_file, is_locked, lock, open_file, unlock

_MAX_OFFSET = 1 << 62


_here: set[str] = set()


class FilePresence:
    """A sign of life on one file, under one name."""

    def __init__(self, path: str) -> None:
        self._span = Span(FIRST_FREE + int.from_bytes(os.urandom(8)) % (_MAX_OFFSET - FIRST_FREE))
        self._file = open_file(path, os.O_RDWR | os.O_CREAT)
        taken = lock(self._file, self._span.exclusive)
        assert taken, "two processes drew the same of 2^62 bytes"
        self.name = f"{os.getpid()}-{self._span.start:x}"
        _here.add(self.name)

    def alive(self, name: str) -> bool:
        """Return whether the process of that name still lives."""
        return name in _here or is_alive(self._file, name)

    def close(self) -> None:
        """Be gone, as if the process had died."""
        if self.name in _here:
            _here.discard(self.name)
            unlock(self._file, self._span)
            if HAS_OFD:  # else closing would take other signs of life of this process along
                close_file(self._file)


def is_alive(file: int, name: str) -> bool:
    """Return whether a process has its byte of an open guard file locked."""
    try:
        offset = int(name.rpartition("-")[2], 16)
    except ValueError:
        return False
    return FIRST_FREE <= offset < _MAX_OFFSET and is_locked(file, Span(offset))


os.register_at_fork(after_in_child=_here.clear)

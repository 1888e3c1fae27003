"""Byte-range locks that belong to a descriptor, and not to the process.

POSIX drops all locks of a process on a file as soon as any code in that process closes any descriptor of it: an agent
that reads every file of its directory is enough. Linux also has open-file-description (OFD) locks. They go when the
last copy of their descriptor is closed, and two descriptors of one process exclude each other as two processes do.

Systems without OFD locks get POSIX locks here. `locks_work` tells: it is False on them.

A forked child gets copies of all descriptors, and with them the locks. It closes its copies at once and unlocks
nothing, so that the locks stay with the parent alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time

_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: kind, from where, start, length, pid
HAS_OFD = hasattr(fcntl, "F_OFD_SETLK")
SET: int = getattr(fcntl, "F_OFD_SETLK", fcntl.F_SETLK)
GET: int = getattr(fcntl, "F_OFD_GETLK", fcntl.F_GETLK)

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.0001, 0.005

_open: set[int] = set()


class Span:
    """A range of bytes of a file, ready to be locked."""

    __slots__ = ("exclusive", "free", "shared", "start")

    def __init__(self, start: int, length: int = 1) -> None:
        self.start = start
        self.shared = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, start, length, 0)
        self.exclusive = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
        self.free = _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, start, length, 0)


def open_file(path: str, flags: int, mode: int = 0o600) -> int:
    """Open a file for locking; a forked child closes it."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    _open.add(descriptor)
    return descriptor


def close_file(descriptor: int) -> None:
    """Close a descriptor, and with it drop its locks."""
    if descriptor in _open:  # a forked child has closed it already
        _open.discard(descriptor)
        os.close(descriptor)


def lock(descriptor: int, request: bytes) -> bool:
    """Take a lock (`Span.shared` or `Span.exclusive`) without waiting. Return False if it is taken."""
    try:
        fcntl.fcntl(descriptor, SET, request)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def lock_within(descriptor: int, request: bytes, seconds: float) -> bool:
    """Take a lock, and wait so long for it. Return False if it was taken all the time."""
    if lock(descriptor, request):
        return True
    until, pause = time.monotonic() + seconds, _FIRST_PAUSE_SECONDS
    while time.monotonic() < until:
        time.sleep(pause)
        if lock(descriptor, request):
            return True
        pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)
    return False


def unlock(descriptor: int, span: Span) -> None:
    """Drop a lock, or that part of one."""
    fcntl.fcntl(descriptor, SET, span.free)


def is_locked(descriptor: int, span: Span) -> bool:
    """Return whether another descriptor, here or in another process, has a lock of any kind there."""
    return _FLOCK.unpack(fcntl.fcntl(descriptor, GET, span.exclusive))[0] != fcntl.F_UNLCK


def is_locked_elsewhere(descriptor: int, span: Span) -> bool:
    """Return whether another process has a lock there, of whichever kind. Locks of SQLite in this process do not count.

    An OFD lock of this process does count: ask before taking one.
    """
    return _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, span.exclusive))[0] != fcntl.F_UNLCK


def locks_work(path: str, span: Span) -> bool:
    """Return whether two descriptors of this file exclude each other: not every system and file system can do it."""
    one = other = -1
    try:
        one, other = open_file(path, os.O_RDWR), open_file(path, os.O_RDWR)
        return not lock(one, span.exclusive) or is_locked(other, span)  # if another process has it, locks work
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP):
            return False
        raise
    finally:
        close_file(one)
        close_file(other)


def _close_copies() -> None:
    for descriptor in _open:
        os.close(descriptor)
    _open.clear()


os.register_at_fork(after_in_child=_close_copies)

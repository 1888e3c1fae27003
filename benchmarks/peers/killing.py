"""SIGKILL at a durable system call: the kernel stops a process at each of its calls, and here they are counted.

No library has to help and none can tell: whoever writes to a file is killed at the same places, before or after the
call was carried out. Linux lets a process trace its children (ptrace); where it does not, `Untraceable` is raised.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from collections.abc import Callable
from typing import NamedTuple

# What reaches a file or its directory, by the kernel's numbers.
DURABLE = {
    "x86_64": {18, 74, 75, 77, 82, 87, 296},  # pwrite64, fsync, fdatasync, ftruncate, rename, unlink, pwritev
    "aarch64": {68, 82, 83, 46, 38, 35, 70},  # the same; renameat and unlinkat stand for two of them
}.get(platform.machine(), set[int]())

_SYSCALL, _SEIZE, _INTERRUPT, _SYSCALL_INFO = 24, 0x4206, 0x4207, 0x420E
_OPTIONS = 0x1 | 0x8 | 0x100000  # tell calls from signals; follow threads; end with whoever traces
_WALL = 0x40000000
_ENTRY, _EXIT = 1, 2

_ptrace = ctypes.CDLL(None, use_errno=True).ptrace
_ptrace.restype = ctypes.c_long
_ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


class Untraceable(Exception):
    """This system does not let a process be stopped at its calls."""


class _Info(ctypes.Structure):
    """struct ptrace_syscall_info, as far as a call's number."""

    _fields_ = (
        ("op", ctypes.c_uint8),
        ("arch", ctypes.c_uint32),
        ("instruction", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("arguments", ctypes.c_uint64 * 6),
    )


class End(NamedTuple):
    """How a life ended."""

    killed: bool
    code: int
    calls: int


def live(action: Callable[[], object], kill_at: int = 0, side: str = "before") -> End:
    """Let a forked process act; it is killed at its durable call of that number, on that side of it, or lives on."""
    if not DURABLE:
        raise Untraceable(f"the numbers of system calls on {platform.machine()} are not known here")
    begin, go = os.pipe()
    child = os.fork()
    if not child:
        os.read(begin, 1)
        _act(action)
    try:
        if _ptrace(_SEIZE, child, None, _OPTIONS) == -1:
            os.kill(child, signal.SIGKILL)
            raise Untraceable(os.strerror(ctypes.get_errno()))
        _ptrace(_INTERRUPT, child, None, None)  # from its first stop on it stops at every call
        os.write(go, b".")
        return _Watch(child, kill_at, side).until_the_end()
    finally:
        os.close(begin)
        os.close(go)


def _act(action: Callable[[], object]) -> None:
    import traceback

    try:
        action()
    except BaseException:  # noqa: BLE001 — a fork must not come back to whoever made it
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


class _Watch:
    def __init__(self, child: int, kill_at: int, side: str) -> None:
        self._child, self._kill_at, self._side = child, kill_at, side
        self._calls = 0
        self._last: set[int] = set()
        self._info = _Info()

    def until_the_end(self) -> End:
        while True:
            thread, status = os.waitpid(-1, _WALL)
            if os.WIFSTOPPED(status):
                self._go_on(thread, status)
            elif thread == self._child:
                killed = os.WIFSIGNALED(status)
                return End(killed, os.WTERMSIG(status) if killed else os.WEXITSTATUS(status), self._calls)

    def _go_on(self, thread: int, status: int) -> None:
        """Count, kill if this is the place, and let the thread run to its next stop."""
        stopped_by = os.WSTOPSIG(status)
        if stopped_by == signal.SIGTRAP | 0x80:
            self._at_call(thread)
            stopped_by = 0
        elif status >> 16:
            stopped_by = 0  # a new thread, or the end of one
        _ptrace(_SYSCALL, thread, None, stopped_by)

    def _at_call(self, thread: int) -> None:
        _ptrace(_SYSCALL_INFO, thread, ctypes.sizeof(self._info), ctypes.addressof(self._info))
        if self._info.op == _ENTRY and self._info.number in DURABLE:
            self._calls += 1
            if self._calls == self._kill_at:
                self._last.add(thread)
                if self._side == "before":
                    os.kill(self._child, signal.SIGKILL)
        elif self._info.op == _EXIT and thread in self._last:
            os.kill(self._child, signal.SIGKILL)

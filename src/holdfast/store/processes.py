"""Which process this is, and whether another one is gone for certain.

A pid says little: it is given again, and other machines and containers have the same ones. A boot id, a pid namespace,
a pid and a start time together name one process. Whether such a process exists can be asked only in its own namespace,
under its own kernel, and only where the system tells all of it: elsewhere nothing is ever proven.

A namespace's number may be given again once all processes in the namespace are dead. So may a pid, and then the start
time differs. Either way the process that was named is gone.
"""

from __future__ import annotations

import os
from functools import lru_cache

from msgspec import Struct

_ZOMBIE = "ZX"
_STATE, _START = 0, 19  # fields of /proc/PID/stat, counted from the one after the name in brackets


class ProcessName(Struct, frozen=True, gc=False):
    """Names one process: the kernel and namespaces it lives in, and its pid and start time there.

    Both are empty where the system does not tell.
    """

    machine: str = ""
    process: str = ""


def current() -> ProcessName:
    """Return the name of this process."""
    place, pid = machine(), os.getpid()
    started = _started(pid) if place else None
    return ProcessName() if started is None else ProcessName(place, f"{pid}-{started}")


def machine() -> str:
    """Return what tells this kernel and these namespaces from all others; nothing if the system does not tell.

    The time namespace counts too: it shifts the start times that distinguish processes. A /proc of another
    namespace, as containers may be given, speaks of other processes and tells nothing.
    """
    return _machine_of(os.getpid())


@lru_cache(maxsize=1)  # a forked child may be the first of another namespace
def _machine_of(pid: int) -> str:
    try:
        if os.readlink("/proc/self") != str(pid):
            return ""
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        spaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "time") if _has_namespace(kind)]
    except OSError:
        return ""
    return " ".join((boot, *spaces)) if boot and spaces else ""


def is_gone(name: ProcessName) -> bool:
    """Return whether that process is gone for certain. False if it lives, or if that cannot be known from here."""
    pid, _, started = name.process.partition("-")
    if not name.machine or not (pid.isdigit() and started.isdigit()) or name.machine != machine():
        return False
    try:
        os.kill(int(pid), 0)  # /proc may hide the processes of other users, so only this says that there is none
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    found = _started(int(pid))
    return found is not None and found != int(started)


def _has_namespace(kind: str) -> bool:
    return os.path.lexists(f"/proc/self/ns/{kind}")  # kernels before 5.6 have none for time


def _started(pid: int) -> int | None:
    """Return when a process started, in ticks since the boot; 0 if it has ended, None if it cannot be looked at.

    A process that has ended stays visible until its parent asks for it. It counts as ended when no thread is left.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        if fields[_STATE] in _ZOMBIE and len(os.listdir(f"/proc/{pid}/task")) <= 1:
            return 0
        return int(fields[_START])
    except (OSError, IndexError, ValueError):
        return None

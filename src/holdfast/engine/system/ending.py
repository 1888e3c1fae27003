"""The end of the interpreter, as threads see it that are still at work.

When the main thread has ended, Python closes all executors and refuses new ones, while daemon threads run on for a
while: as long as an executor's thread is busy, or a thread that is not a daemon runs. What user code raises because of
that says nothing about its task. Nothing is recorded then, as if the process had been killed; another one continues.
"""

from __future__ import annotations

import sys
import threading

from holdfast.core.errors import LeaseLost


class Ending(LeaseLost):
    """The process ends while it works on the task; nothing more is written here."""


def refuse(error: BaseException, task: str) -> None:
    """Raise Ending if user code raised this because the interpreter ends."""
    if (end := of(error, task)) is not None:
        raise end from error


def of(error: BaseException, task: str) -> Ending | None:
    """Return what to raise in place of an error of the interpreter's end; None for all others."""
    if not (_is_ending() and _is_of_the_end(error)):
        return None
    return Ending(f"task {task!r}: this process ends, and starts no more threads; another process continues it")


def _is_ending() -> bool:
    """Return whether the main thread has ended, or runs what is registered for its end."""
    return getattr(threading, "_SHUTTING_DOWN", False) or not threading.main_thread().is_alive() or sys.is_finalizing()


def _is_of_the_end(error: BaseException) -> bool:
    """Return whether Python refused a thread or an executor; libraries raise errors of their own for that."""
    seen: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in seen:
        if isinstance(found, RuntimeError) and "shutdown" in str(found):
            return True
        seen.append(found)
        found = found.__cause__ or found.__context__
    return False

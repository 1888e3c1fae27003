"""The three streams of a process: none is missing, and stdout is for data alone where agents' code is executed."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any


def complete() -> None:
    """Put nothing in the place of a stream that is closed: the next file that is opened would get its number."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, number)
            os.set_inheritable(number, True)
            if nothing != number:
                os.close(nothing)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    for stream in (sys.stdout, sys.stderr):
        _speak_utf8(stream)


def _speak_utf8(stream: Any) -> None:
    """Programs read UTF-8, whatever the locale; so do terminals that declare nothing else."""
    if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
        keeps = stream.isatty() and stream.encoding.lower() not in ("ascii", "us-ascii", "ansi_x3.4-1968")
        stream.reconfigure(encoding=stream.encoding if keeps else "utf-8", errors="backslashreplace")


@contextmanager
def apart() -> Generator[Any, None, None]:
    """A stream for data. What anything else writes to stdout from now on, a program too, goes to stderr."""
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        number, elsewhere = out.fileno(), sys.stderr.fileno()
    except (OSError, ValueError):  # it isn't a file: this process itself reads what is written here
        yield out
        return
    out.flush()
    data = os.fdopen(os.dup(number), "w", encoding=out.encoding, errors=out.errors)
    os.dup2(elsewhere, number)
    try:
        yield data
    finally:
        with suppress(OSError):  # its reader has left, and that was reported already
            data.close()

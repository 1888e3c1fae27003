"""Where `holdfast demo` works: files of its own, and never anybody else's."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import holdfast
from holdfast.cli.demo.agent import handle_order
from holdfast.cli.demo.world import HEADER, DemoWorld


@contextmanager
def cleared(path: str) -> Generator[DemoWorld, None, None]:
    """Remove what an earlier demo left there, and nothing else; no other demo begins there meanwhile."""
    if not path or ":" in path.partition("/")[0]:
        raise holdfast.InvalidValue(f"{path!r} is not a file", hint="give the demo's log a path, such as demo.db")
    world = DemoWorld(f"{path}-world")
    _refuse_strangers(path, world)
    try:
        file = os.open(world.path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        why = f"{str(world.path)!r} cannot be written: {error.strerror}"
        raise holdfast.StoreReadOnly(why, hint="run the demo in another directory") from None
    try:
        _lock(file, path)
        for suffix in ("", "-wal", "-shm", "-guard"):
            Path(path + suffix).unlink(missing_ok=True)
        os.ftruncate(file, 0)
        os.write(file, HEADER.encode())
        yield world
    finally:
        os.close(file)


def fresh_world(store: str) -> DemoWorld:
    """The world beside a store, with nothing in it. Refuses a file that no demo has made."""
    world = DemoWorld(f"{store}-world")
    if world.path.exists() and not _is_ours(world.path):
        raise _taken(str(world.path))
    world.path.unlink(missing_ok=True)
    return world


def _refuse_strangers(path: str, world: DemoWorld) -> None:
    """Refuse files that no demo has made, before anything is opened that opening could change."""
    if world.path.exists() and not _is_ours(world.path):
        raise _taken(str(world.path))
    if os.path.exists(path) and not world.path.exists():
        raise _taken(path)
    with holdfast.open(path) as app:
        tasks = app.list(limit=2)
    if len(tasks) > 1 or any(task.agent != handle_order.name for task in tasks):
        raise _taken(path)


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(HEADER)) == HEADER.encode()


def _taken(path: str) -> holdfast.InvalidValue:
    hint = "move it away, or give the demo a file of its own: holdfast demo --store another.db"
    return holdfast.InvalidValue(f"{path!r} exists and is not a demo's; it was not touched", hint=hint)


def _lock(file: int, path: str) -> None:
    """Hold the place as long as this process lives."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        why = f"another demo is at work on {path!r}"
        raise holdfast.StoreBusy(
            why, hint="wait for it, or use another file: holdfast demo --store another.db"
        ) from None

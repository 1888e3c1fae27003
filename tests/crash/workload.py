"""What the crash tests share: a bit of everything to write, and what must hold afterwards."""

from __future__ import annotations

import os
import random
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import apsw

import holdfast
from holdfast import RecordWrite, events as ev
from holdfast.core import codec, names
from holdfast.engine.app import App
from holdfast.store.sqlite.file import Durability
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.auditor import audit
from tests.crash.writer import Acks, large, note, write_pair

THOROUGH = os.environ.get("HOLDFAST_TEST_ALL") == "1"


def sample(count: int, size: int, seed: int = 0) -> list[int]:
    """Some of the numbers from 1 to `count`; all of them in a thorough run."""
    everything = range(1, count + 1)
    return list(everything) if THOROUGH else sorted(random.Random(seed).sample(everything, min(size, count)))


def open_on(vfs: str, path: Path, durability: Durability = "full") -> App:
    """An app over a store that writes through a VFS."""
    return App(SqliteStore(str(path), durability=durability, vfs=vfs, exclusive=True))


@contextmanager
def eager_checkpoints(pages: int = 16) -> Generator[None, None, None]:
    """Let every connection that is opened inside check-point after so many pages."""

    def hook(connection: apsw.Connection) -> None:
        connection.wal_autocheckpoint(pages)

    apsw.connection_hooks.append(hook)
    try:
        yield
    finally:
        apsw.connection_hooks.remove(hook)


def work(app: App, acks: Acks) -> None:
    """Write a bit of everything: tasks, single events, batches, large values, a snapshot, a pair, a fork, an end."""
    chance = random.Random(7)
    for id in ("one", "two"):
        app.start("tester", {"name": id}, id=id)
        acks.head(app, id)
        acks.records(app.append(id, note("single")))
        acks.records(app.append(id, *[note(f"batch {number}") for number in range(5)]))
        acks.records(app.append(id, large(chance, 9_000)))
        acks.records(app.append(id, note("single again"), ev.CheckpointMade(label="here")))
    write_pair(app, acks, "one", "two", "both or none")
    acks.records(app.append("one", *[large(chance, 3_900) for _ in range(18)]))
    acks.records(app.append("one", note("with a snapshot")))
    assert app.stats().snapshots == 1
    app.fork("one", at=4, id="fork")
    acks.head(app, "fork")
    acks.records(app.append("fork", note("in the fork")))
    for _ in range(5):
        acks.records(app.append("two", note("and on")))
    acks.records(app.append("two", ev.TaskCompleted(result=codec.pack("done"))))
    work_on_records(app, acks)


def work_on_records(app: App, acks: Acks) -> None:
    """Do everything that can be done to records: two of those that are trimmed stay, a dropped key begins again."""
    records = app.records("space")
    kept, dropped = (names.record_log("space", key) for key in ("kept", "dropped"))
    records.append("kept", b"one", blobs={"large": b"gone " * 2_000})
    acks.head(app, kept)
    for change in (
        lambda: records.append("kept", [b"two", b"three"]),
        lambda: records.append("kept", b"four", blobs={"large": b"stays " * 2_000}),
        lambda: records.pop("kept"),
        lambda: records.append("kept", b"five", blobs={"large": b"stays " * 2_000}),
        lambda: records.trim("kept", keep=2),
        lambda: records.write([RecordWrite(key="kept", data=b"both"), RecordWrite(key="dropped", data=b"both")]),
    ):
        change()
        acks.head(app, kept)
    acks.head(app, dropped)
    records.drop("dropped")
    records.append("dropped", b"again")
    acks.head(app, dropped)


def assert_goes_on(path: Path) -> None:
    """A store opens, verifies and takes new work."""
    with holdfast.open(path, durability="process") as app:
        found = app.verify()
        assert found.ok, found.problems
        task = app.start("later")
        assert app.append(task.id, note("later"))[0].seq == 2


def assert_whole(path: Path, acks: Acks) -> None:
    """Everything acknowledged is there and nothing is wrong, as it lies there and after work has gone on."""
    if acks.seqs():
        assert_audited(path, acks)
    assert_goes_on(path)
    assert_audited(path, acks)


def assert_audited(path: Path, acks: Acks) -> None:
    """The auditor finds nothing."""
    findings = audit(path, acks.path)
    assert not findings, findings

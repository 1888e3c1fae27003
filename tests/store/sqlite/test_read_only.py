"""A SQLite file that is only looked at: all of it can be seen, nothing can be changed, nothing is made beside it."""

import os
import subprocess
import sys

import apsw
import pytest

import holdfast
from holdfast import LogCorrupt, StoreBusy, StoreClosed, StoreReadOnly, StoreTooNew
from holdfast.store.sqlite.read_only import ReadOnlyStore


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "store.db")
    with holdfast.open(path) as app:
        app.start("clerk", id="t")
    with holdfast.open(path, namespace="acme") as app:
        app.start("clerk", id="theirs")
    return path


def beside(path):
    return sorted(os.listdir(os.path.dirname(path)))


def altered(path, statement):
    connection = apsw.Connection(path)
    connection.execute(statement)
    connection.close()


def test_what_is_there_is_seen_and_nothing_is_made_or_changed(path, texts):
    there, before = beside(path), os.stat(path).st_mtime_ns
    with holdfast.open(path, read_only=True) as app:
        assert [row.id for row in app.list()] == ["t"]
        assert [record.kind for record in app.events("t")] == ["task_created"]
        assert app.verify().ok
        with texts.raises(StoreReadOnly):
            app.start("clerk", id="new")
    assert (beside(path), os.stat(path).st_mtime_ns) == (there, before)


def test_a_tenant_looks_at_its_own(path):
    with holdfast.open(path, namespace="acme", read_only=True) as app:
        assert [row.id for row in app.list()] == ["theirs"]


def test_what_others_write_meanwhile_is_seen(path):
    with holdfast.open(path) as writer, holdfast.open(path, read_only=True) as app:
        writer.start("clerk", id="new")
        assert {row.id for row in app.list()} == {"t", "new"}


def test_a_look_during_which_others_write_sees_one_moment(path):
    with holdfast.open(path, read_only=True) as app:
        with app.store._reading() as reader:
            before = reader.execute("select count(*) from events").get
            with holdfast.open(path) as writer:
                for number in range(20):
                    writer.start("clerk", id=f"new-{number}")
            assert reader.execute("select count(*) from events").get == before
        assert len(app.list()) == 21


def test_without_a_guard_file_a_look_during_which_others_begin_to_write_is_not_believed(path, texts):
    os.unlink(f"{path}-guard")
    with holdfast.open(path, read_only=True) as app:
        reading = app.store._reading()
        reading.__enter__()
        with holdfast.open(path) as writer:
            writer.start("clerk", id="new")
            with texts.raises(StoreBusy):
                reading.__exit__(None, None, None)


HOLDER = """
import sys, holdfast
with holdfast.open(sys.argv[1]) as app:
    app.logs.load("t").claim()
    print(app.store.holder(), flush=True)
    sys.stdin.read()
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_who_holds_a_task_is_seen_to_live_and_to_be_dead(path):
    given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen([sys.executable, "-c", HOLDER, path], **given) as process,
        holdfast.open(path, read_only=True) as app,
    ):
        holder = process.stdout.readline().strip()
        assert app.list()[0].holder == holder
        assert app.store.alive(holder)
        assert app.store.alive(holder), "asking changes nothing"
        process.stdin.close()
        process.wait(30)
        assert not app.store.alive(holder)
        assert not app.store.alive("nonsense")
        assert app.store.alive(app.store.holder())
        assert not app.store.alive(f"{os.getpid()}-7"), "no store of this process holds anything under that name"


def test_where_holders_are_not_known_none_is_said_to_live(path):
    store = ReadOnlyStore(path)
    assert not store.alive("1-5")
    store.close()


def test_files_of_another_version_are_refused_and_named(path, texts):
    altered(path, "pragma user_version = 99")
    with texts.raises(StoreTooNew):
        holdfast.open(path, read_only=True)
    altered(path, "pragma user_version = 1")
    with texts.raises(StoreReadOnly):
        holdfast.open(path, read_only=True)


def test_a_file_that_is_no_store_or_damaged_is_told_as_such(path, texts):
    with open(path, "r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 2000)
    with texts.raises(LogCorrupt):
        holdfast.open(path, read_only=True)
    with texts.raises(StoreReadOnly):
        holdfast.open(f"{path}.missing", read_only=True)


def test_what_is_closed_is_not_looked_at(path):
    app = holdfast.open(path, read_only=True)
    app.close()
    with pytest.raises(StoreClosed):
        app.list()

"""Who is alive, across processes: at once, however a process dies, and whatever it forked."""

import json
import os
import subprocess
import sys

import pytest

import holdfast
from holdfast.store.sqlite.store import SqliteStore
from tests.crash import writer
from tests.crash.workload import assert_goes_on
from tests.waiting import until


@pytest.fixture
def db(tmp_path):
    return str(tmp_path / "store.db")


@pytest.fixture
def store(db):
    opened = SqliteStore(db)
    yield opened
    opened.close()


def start(program, db):
    command = [sys.executable, writer.__file__, program, db]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def holding(db):
    """A process that holds on until its input ends."""
    process = start("hold", db)
    yield process
    process.stdin.close()
    process.wait()
    process.stdout.close()


def test_a_holder_is_alive_while_its_process_lives_and_dead_once_it_is_killed(store, holding):
    holder = holding.stdout.readline().strip()
    assert store.alive(holder)
    holding.kill()
    holding.wait()
    assert not store.alive(holder)


def test_a_holder_that_ends_by_itself_is_dead(store, holding):
    holder = holding.stdout.readline().strip()
    assert store.alive(holder)
    holding.stdin.close()
    holding.wait()
    assert not store.alive(holder)


def test_asking_who_is_alive_takes_no_holder_away(store, db):
    processes = [start("hold", db) for _ in range(3)]
    holders = [process.stdout.readline().strip() for process in processes]
    own = store.holder()
    for _ in range(3):
        assert all(store.alive(holder) for holder in (own, *holders))
    for process in processes:
        process.kill()
        process.communicate()
    assert not any(store.alive(holder) for holder in holders)
    assert store.alive(own)


def test_closing_another_store_of_the_same_file_keeps_a_holder_alive(store, db):
    """The locks of a process go when any descriptor of the file is closed; ours must not."""
    own = store.holder()
    other = SqliteStore(db)
    gone = other.holder()
    other.close()
    assert seen_alive(db, own, gone) == [True, False]


def test_a_holder_is_seen_alive_through_a_link_to_the_file(store, tmp_path):
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(store.path)
    assert seen_alive(str(link), store.holder()) == [True]


def seen_alive(db, *holders):
    """Whom another process sees alive."""
    told = subprocess.run([sys.executable, writer.__file__, "see", db, *holders], capture_output=True, text=True)
    return json.loads(told.stdout)


def test_a_forked_child_does_not_keep_its_parent_alive(store, db):
    process = start("hold_and_fork", db)
    holder = process.stdout.readline().strip()
    child = int(process.stdout.readline())
    assert store.alive(holder)
    process.kill()
    process.wait()
    until(lambda: not store.alive(holder), 5)  # a child that has not run yet has not let go of what it inherited
    os.kill(child, 0)  # asks only whether it is there, and it is
    process.stdin.close()
    process.stdout.read()
    process.stdout.close()


def test_a_store_cannot_be_used_in_a_forked_child_and_the_parent_does_not_notice(db):
    told = subprocess.run([sys.executable, writer.__file__, "use_after_fork", db], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    child, parent = (json.loads(line) for line in told.stdout.splitlines())
    assert set(child.values()) == {"StoreClosed"}, child
    assert set(parent.values()) == {"done"}, parent
    assert_goes_on(db)


def test_a_store_opened_by_a_relative_path_stays_where_it_is_when_the_process_goes_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with holdfast.open("store.db") as app:
        app.start("tester", id="task")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        monkeypatch.chdir(elsewhere)
        assert app.get("task").seq == 1
        assert app.store.alive(app.store.holder())
    assert list(elsewhere.iterdir()) == []

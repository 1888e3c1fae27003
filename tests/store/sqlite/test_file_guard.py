"""Code in the process reads the store's files, or something removes them: the store stays whole, or says what happened.

`read_all` is what an agent does that reads every file of its directory: POSIX then drops all locks of its process.
Each part of the guard has a test here that fails without that part.
"""

import logging
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import StoreBusy, StorePoisoned, events as ev
from holdfast.core import limits
from holdfast.store.sqlite import file_guard, locks
from holdfast.store.sqlite.store import SqliteStore
from tests.conftest import ALL

HEADER_BYTES = 48


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


@pytest.fixture
def app(path):
    with holdfast.open(path) as app:
        app.start("clerk", id="t")
        yield app


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(file_guard, "BUSY_SECONDS", 0.2)


def read_all(path):
    """Open, read and close every file of the store."""
    for file in Path(path).parent.iterdir():
        file.read_bytes()


def note(app, count=1, size=10):
    for _ in range(count):
        app.append("t", ev.LogWritten(text="x" * size))


def elsewhere(program, *arguments):
    """Run a program in another process, and return what it prints."""
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


OPEN_AND_CLOSE = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
print(connection.execute("select count(*) from events").get)
connection.close()
"""


# Held while the store is open


def test_another_program_that_closes_the_file_last_leaves_the_write_ahead_log(app, path):
    """SQLite's last connection moves the log into the database and removes it. With locks dropped, any is the last."""
    before = os.stat(f"{path}-wal").st_ino
    read_all(path)
    assert elsewhere(OPEN_AND_CLOSE, path) == "1"
    assert os.stat(f"{path}-wal").st_ino == before
    note(app)
    assert elsewhere(OPEN_AND_CLOSE, path) == "2"


def test_a_process_that_opens_the_store_does_not_reset_the_index_of_another(app, path):
    note(app, 5)
    read_all(path)
    with open(f"{path}-shm", "rb") as index:
        before = index.read()
        elsewhere("import sys, holdfast; holdfast.open(sys.argv[1]).close()", path)
        index.seek(0)
        assert index.read()[: 2 * HEADER_BYTES] == before[: 2 * HEADER_BYTES]
    note(app)
    assert app.get("t").seq == 7


def test_the_store_opens_next_to_a_long_transaction_of_another_process(app, path):
    """Reading and opening wait for no writer."""
    inside, done = threading.Event(), threading.Event()

    def work(connection):
        inside.set()
        assert done.wait(30)
        raise RuntimeError("enough")

    def transact():
        with pytest.raises(RuntimeError, match="enough"):
            app.store.transact("t", app.store.head("t"), work)

    thread = threading.Thread(target=transact)
    thread.start()
    assert inside.wait(30)
    try:
        looked = "import sys, holdfast; print(holdfast.open(sys.argv[1]).get('t').seq)"
        assert elsewhere(looked, path) == "1"
    finally:
        done.set()
        thread.join()


def test_closing_leaves_everything_in_one_file(app, path, tmp_path):
    note(app, 3)
    app.close()
    assert os.path.getsize(f"{path}-wal") == 0
    copy = tmp_path / "elsewhere" / "copy.db"
    copy.parent.mkdir()
    copy.write_bytes(Path(path).read_bytes())
    with holdfast.open(copy) as other:
        assert other.get("t").seq == 4


def test_closing_one_of_two_stores_leaves_the_log_to_the_other(app, path):
    with holdfast.open(path) as other:
        other.append("t", ev.LogWritten(text="x"))
    assert os.path.getsize(f"{path}-wal") > 0
    note(app)
    assert app.get("t").seq == 3


# One writes at a time


def test_nothing_is_written_during_a_transaction_whose_locks_were_dropped(app, path, impatient):
    head = app.store.head("t")
    program = """
        import sys, holdfast
        from holdfast import events as ev
        from holdfast.store.sqlite import file_guard
        file_guard.BUSY_SECONDS = 0.2
        try:
            with holdfast.open(sys.argv[1]) as app:
                app.append("t", ev.LogWritten(text="from elsewhere"))
        except holdfast.StoreBusy:
            print("busy")
    """

    def work(connection):
        connection.execute("create table mine (x)")
        read_all(path)
        assert elsewhere(program, path) == "busy"
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        app.store.transact("t", head, work)
    assert app.store.head("t") == head
    note(app)
    assert elsewhere(OPEN_AND_CLOSE, path) == "2"


def test_two_stores_of_one_process_take_turns(app, path, impatient):
    with holdfast.open(path) as other:

        def work(connection):
            with pytest.raises(StoreBusy):
                other.append("t", ev.LogWritten(text="x"))
            raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            app.store.transact("t", app.store.head("t"), work)
        other.append("t", ev.LogWritten(text="x"))
    assert app.get("t").seq == 2


def test_an_interrupt_in_the_middle_of_a_write_leaves_the_turn_to_others(app, path, impatient):
    class Interrupt(BaseException):
        pass

    def interrupt(name):
        if name == "commit.before":
            raise Interrupt

    from holdfast import failpoints

    with failpoints.armed(interrupt), pytest.raises(Interrupt):
        note(app)
    with holdfast.open(path) as other:
        other.append("t", ev.LogWritten(text="x"))
    note(app)
    assert app.get("t").seq == 3


def test_a_worker_stays_alive_when_its_guard_file_is_read(app, path):
    holder = app.store.holder()
    read_all(path)
    seen = "import sys, holdfast; print(holdfast.open(sys.argv[1]).store.alive(sys.argv[2]))"
    assert elsewhere(seen, path, holder) == "True"


# Readers and checkpoints


def test_what_a_reader_sees_is_not_moved_under_it_though_its_locks_were_dropped(app, path, monkeypatch):
    monkeypatch.setattr(limits, "WAL_BYTES", 50_000)
    monkeypatch.setattr(app.store._guard, "_checkpoint_at", 50_000)
    with app.store._reading() as reader:
        seen = reader.execute("select count(*) from events").get
        read_all(path)
        size = os.path.getsize(path)
        note(app, 60, 2_000)
        assert os.path.getsize(path) == size, "nothing is moved into the database while it is read"
        assert reader.execute("select count(*) from events").get == seen
        assert reader.execute("pragma integrity_check").get == "ok"
    note(app, 20, 2_000)
    assert os.path.getsize(path) > size


def test_the_write_ahead_log_is_kept_short(app, path, monkeypatch):
    monkeypatch.setattr(limits, "WAL_BYTES", 200_000)
    monkeypatch.setattr(app.store._guard, "_checkpoint_at", 200_000)
    note(app, 300, 5_000)
    assert os.path.getsize(f"{path}-wal") < 400_000
    assert app.verify().ok


def test_readers_that_follow_each_other_do_not_starve_a_checkpoint(app, path, monkeypatch):
    monkeypatch.setattr(limits, "WAL_BYTES", 100_000)
    monkeypatch.setattr(limits, "WAL_LONG_BYTES", 200_000)
    monkeypatch.setattr(app.store._guard, "_checkpoint_at", 100_000)
    over, passes = threading.Event(), [0, 0]

    def read(which):
        while not over.is_set():
            with app.store._reading() as reader:
                passes[which] += 1
                reader.execute("select count(*) from events").fetchall()
                over.wait(0.01)  # the other one begins before this one ends

    readers = [threading.Thread(target=read, args=(which,)) for which in (0, 1)]
    for thread in readers:
        thread.start()
    try:
        note(app, 400, 5_000)
    finally:
        over.set()
        for thread in readers:
            thread.join()
    assert min(passes) > 3
    assert os.path.getsize(f"{path}-wal") < 1_200_000, "of two megabytes that were written"


def test_erasing_leaves_nothing_in_the_write_ahead_log(app, path):
    app.start("clerk", {"name": "Berta Kowalski"}, id="b", user="b")
    app.cancel("b")
    app.user("b").erase(by="ana", why="asked")
    assert b"Berta Kowalski" not in Path(f"{path}-wal").read_bytes()
    assert b"Berta Kowalski" not in Path(path).read_bytes()


# Recovery


def tear_index(path):
    """Leave the index as a writer does that dies between the two copies of its header."""
    with open(f"{path}-shm", "r+b") as index:
        index.seek(HEADER_BYTES + 8)
        index.write(b"\xff\xff\xff\xff")


def test_an_index_that_is_being_written_is_not_rebuilt_under_its_writer(app, path, impatient):
    """The locks of the writer were dropped, so that SQLite takes it for dead."""
    note(app, 3)
    with holdfast.open(path) as other:
        other.get("t")
        with app.store._guard.turn():
            tear_index(path)
            read_all(path)
            before = Path(f"{path}-shm").read_bytes()
            with pytest.raises(StoreBusy):
                other.store.head("t")
            assert Path(f"{path}-shm").read_bytes() == before
        assert other.get("t").seq == 4, "once the writer is gone, the index is rebuilt"
        assert other.store._guard.index_is_whole()


def test_a_writer_that_died_in_the_index_costs_nothing(app, path):
    note(app, 3)
    tear_index(path)
    note(app)
    tear_index(path)
    assert elsewhere("import sys, holdfast; print(holdfast.open(sys.argv[1]).get('t').seq)", path) == "5"
    assert app.get("t").seq == 5


@pytest.mark.skipif(not ALL, reason="a long way round: HOLDFAST_TEST_ALL=1")
def test_a_writer_that_dies_right_after_a_reader_looked_costs_ten_seconds_at_most(app, path, monkeypatch):
    note(app, 3)
    app.get("t")
    monkeypatch.setattr(app.store._guard, "index_is_whole", lambda: True)
    tear_index(path)
    assert app.store.head("t").seq == 4


# Files that were removed, replaced or cut


def poisoned(app, texts):
    with texts.raises(StorePoisoned):
        note(app)
    with pytest.raises(StorePoisoned):
        note(app)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-guard"])
@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_a_file_that_is_gone_is_noticed_before_the_next_acknowledgement(app, path, suffix, how, texts):
    note(app)
    file = Path(path + suffix)
    match how:
        case "removed":
            file.unlink()
        case "moved":
            file.rename(f"{file}.moved")
        case "replaced":
            copy = file.with_name("copy")
            copy.write_bytes(file.read_bytes())
            copy.rename(file)
    poisoned(app, texts)


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("left", [0, 4096])
def test_a_file_that_was_cut_short_is_noticed_before_the_next_acknowledgement(app, path, suffix, left, texts):
    note(app, 3)
    if suffix == "":  # in the database itself, only what was moved there
        app.store._guard.checkpoint(app.store._writer, seconds=1)
        note(app)
    os.truncate(path + suffix, left)
    poisoned(app, texts)


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-guard"])
def test_a_store_that_lost_a_file_while_others_use_it_is_not_opened(app, path, suffix, texts):
    os.unlink(path + suffix)
    with texts.raises(StorePoisoned):
        holdfast.open(path)


def test_other_files_in_the_directory_may_come_and_go(app, path):
    for number in range(20):
        Path(path).with_name(f"other-{number}").write_text("x")
        note(app)
        Path(path).with_name(f"other-{number}").unlink()
        note(app)
    assert app.get("t").seq == 41


def test_a_store_whose_companions_were_removed_while_it_was_closed_opens(app, path):
    note(app)
    app.close()
    for suffix in ("-wal", "-shm", "-guard"):
        os.unlink(path + suffix)
    with holdfast.open(path) as again:
        note(again)
        assert again.get("t").seq == 3


# Older versions, other systems, other programs


def test_a_file_that_an_older_version_has_open_is_not_migrated(app, path, texts):
    app.close()
    raw = apsw.Connection(path)
    raw.execute(f"pragma user_version = {file_version_before_guard()}")
    raw.close()
    program = """
        import sys, apsw
        connection = apsw.Connection(sys.argv[1])
        connection.execute("select * from events").fetchall()
        print("open", flush=True)
        sys.stdin.read()
    """
    given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(program), path], **given) as older:
        assert older.stdout.readline() == "open\n"
        with texts.raises(StoreBusy):
            holdfast.open(path)
        older.stdin.close()
        older.wait()
    with holdfast.open(path) as again:
        assert again.get("t").seq == 1


def file_version_before_guard():
    from holdfast.store.sqlite.file import GUARDED_VERSION

    return GUARDED_VERSION - 1


def test_without_locks_of_descriptors_a_store_works_and_says_what_is_not_promised(path, monkeypatch, caplog):
    import fcntl

    monkeypatch.setattr(locks, "SET", fcntl.F_SETLK)
    monkeypatch.setattr(locks, "GET", fcntl.F_GETLK)
    with caplog.at_level(logging.WARNING, "holdfast"), holdfast.open(path) as app:
        app.start("clerk", id="t")
        note(app, 3)
        assert app.get("t").seq == 4
        assert app.store.alive(app.store.holder())
    assert "open-file-description locks" in caplog.text


def test_no_guard_is_left_beside_the_database_of_another_program(tmp_path):
    path = tmp_path / "other.db"
    other = apsw.Connection(str(path))
    other.execute("create table t (x)")
    other.close()
    with pytest.raises(holdfast.NotAStore):
        holdfast.open(path)
    assert [file.name for file in tmp_path.iterdir()] == ["other.db"]


def test_the_guard_has_the_rights_of_the_database(app, path):
    app.close()
    os.unlink(f"{path}-guard")
    os.chmod(path, 0o640)
    with holdfast.open(path):
        assert os.stat(f"{path}-guard").st_mode & 0o777 == 0o640


# Processes and descriptors


def test_a_forked_child_holds_nothing(app, path):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if not any(Path(f"/proc/self/fd/{fd}").exists() for fd in held_by(app)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    note(app)


def held_by(app):
    guard = app.store._guard
    return (guard._file, guard._database, guard._index, guard._wal)


def test_closing_closes_every_descriptor(path):
    def count():
        return len(os.listdir("/proc/self/fd"))

    holdfast.open(path).close()
    before = count()
    for _ in range(5):
        with holdfast.open(path) as app:
            app.store.holder()
            app.list()
            listener = app.store.queues.listen()
            listener.close()
    assert count() == before


def test_a_reader_outlives_the_store_that_is_closed_under_it(path):
    store = SqliteStore(path)
    with store._reading() as reader:
        store.close()
        assert reader.execute("select count(*) from events").get == 0
    assert store._guard._users == 0

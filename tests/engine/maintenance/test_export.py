"""Looking after a store: verify, export and import, retention, backups, copies, erasure."""

import json
import os
import threading
from datetime import timedelta

import apsw
import pytest
from hypothesis import given

import holdfast
from holdfast import events as ev
from holdfast.core import codec
from holdfast.store.protocol import Erasure
from tests.engine.reading.test_reading import step, worked, write
from tests.legal import histories

P = codec.pack


def finished(app, id, **start):
    app.start("a", id=id, **start)
    app.append(id, step("big#1", "x" * 9000), ev.TaskCompleted(result=P("done")))


def test_verify_walks_every_chain_and_counts(app):
    worked(app)
    app.fork("t", at=3, id="f")
    found = app.verify()
    assert (found.ok, found.tasks, found.events, found.erased) == (True, 2, 8, 0)
    assert app.verify("f").events == 8, "a fork's past is its own"


@given(histories(stored=False))
def test_an_exported_task_comes_back_lossless_and_its_chain_intact(events):
    from holdfast.engine.maintenance import export

    with holdfast.open("memory:") as one, holdfast.open("memory:") as two:
        write(one, "t", events)
        one.fork("t", id="f")
        lines = list(export.export(one.logs, "f"))
        assert two.import_(lines).logs == 2
        assert two.get("f").to_dict() == one.get("f").to_dict()
        assert [r.digest for r in two.events("f")] == [r.digest for r in one.events("f")]
        assert two.verify().ok
        assert list(export.export(two.logs, "f")) == lines
        assert two.import_(lines).skipped == 2, "again: nothing to do"


def test_export_and_import_by_file(app, tmp_path, texts):
    worked(app)
    file = tmp_path / "t.jsonl"
    assert app.export("t", file) == file.stat().st_size
    with texts.raises(holdfast.InvalidValue):
        app.export("t", file)
    with holdfast.open("memory:") as other:
        assert other.import_(file).events == 7
        assert [row.id for row in other.list()] == ["t"]
        other.append("t", step("more#1"))
        assert other.import_(file).skipped == 1, "what is ahead of the file stays"
        assert app.get("t").seq == 7


def test_an_import_goes_on_where_an_older_copy_ends(app, tmp_path):
    worked(app)
    app.export("t", tmp_path / "old.jsonl")
    app.append("t", step("later#1"))
    app.export("t", tmp_path / "new.jsonl")
    with holdfast.open("memory:") as other:
        other.import_(tmp_path / "old.jsonl")
        assert other.import_(tmp_path / "new.jsonl").events == 1
        assert other.get("t").to_dict() == app.get("t").to_dict()


@pytest.mark.parametrize("damage", ["cut", "edit", "reorder", "garbage", "other task", "no header"])
def test_a_damaged_export_is_refused_and_nothing_is_written(app, tmp_path, damage):
    worked(app)
    app.export("t", tmp_path / "t.jsonl")
    lines = (tmp_path / "t.jsonl").read_bytes().splitlines(keepends=True)
    broken = {
        "cut": lines[:-2],
        "edit": [line.replace(b"Oslo", b"Rome") for line in lines],
        "reorder": [lines[0], lines[2], lines[1], *lines[3:]],
        "garbage": [*lines[:3], b"what?\n", *lines[3:]],
        "other task": [lines[0].replace(b'"t"', b'"u"'), *lines[1:]],
        "no header": lines[1:],
    }[damage]
    with holdfast.open("memory:") as other:
        with pytest.raises((holdfast.LogCorrupt, holdfast.InvalidValue)):
            other.import_(broken)
        assert other.list() == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [line.decode() for line in lines],
        lambda lines: [lines[0], b'{"is":"end","events":0}\n'],
        lambda lines: [edited(lines[0], prev="00" * 32), *lines[1:]],
        lambda lines: [lines[0], edited(lines[1], data="a"), *lines[2:]],
        lambda lines: [lines[0], edited(lines[1], data="AAAA"), *lines[2:]],
        lambda lines: [lines[0], *lines[2:]],
        lambda lines: [*lines[:2], edited(lines[2], at=9 * 10**17), *lines[3:]],
        lambda lines: [*lines[:2], edited(lines[2], digest="00" * 32), *lines[3:]],
        lambda lines: [edited(lines[0], format=99), *lines[1:]],
        lambda lines: [edited(lines[0], parent="nobody", base=3), *lines[1:]],
    ],
)
def test_an_export_that_was_tampered_with_says_what_is_wrong(app, tmp_path, damage, texts):
    finished(app, "t")
    app.export("t", tmp_path / "t.jsonl")
    lines = (tmp_path / "t.jsonl").read_bytes().splitlines(keepends=True)
    assert [json.loads(line)["is"] for line in lines] == ["log", "blob", *["event"] * 3, "end"]
    with holdfast.open("memory:") as other:
        with texts.raises((holdfast.LogCorrupt, holdfast.InvalidValue)):
            other.import_(damage(lines))
        assert other.list() == [] and other.verify().tasks == 0


def edited(line, **fields):
    return json.dumps({**json.loads(line), **fields}, separators=(",", ":"), ensure_ascii=False).encode()


def test_an_import_never_overwrites_another_history(app, tmp_path):
    worked(app)
    app.export("t", tmp_path / "t.jsonl")
    with holdfast.open("memory:") as other:
        other.start("someone else", id="t")
        with pytest.raises(holdfast.TaskExists):
            other.import_(tmp_path / "t.jsonl")


@pytest.fixture
def one_is_damaged(tmp_path):
    """A store in which a byte of a task was changed, with a fork that stands on it; and what that task was."""
    path = tmp_path / "store.db"
    with holdfast.open(path) as app:
        for id in ("first", "struck", "whole"):
            worked(app, id)
        app.append("struck", step("far#1", "Kyoto"))
        app.export("struck", tmp_path / "struck.jsonl")
        app.fork("struck", at=3, id="above")
    data = path.read_bytes()
    assert data.count(b"Kyoto") == 1
    path.write_bytes(data.replace(b"Kyoto", b"Tokyo"))
    with holdfast.open(path) as app:
        yield app


def test_a_damaged_log_is_not_called_there_already(one_is_damaged, tmp_path, texts):
    with texts.raises(holdfast.LogCorrupt):
        one_is_damaged.import_(tmp_path / "struck.jsonl")


DAMAGE = {
    "a hole": "delete from events where log = :log and seq = 4",
    "no beginning": "delete from events where log = :log and seq = 1",
    "no end": "delete from events where log = :log and seq = 9",
    "nothing": "delete from events where log = :log",
    "a body that nobody erased": "update events set body = null where log = :log and seq = 4",
    "another kind": "update events set kind = 'dream_dreamt' where log = :log and seq = 4",
    "another time": "update events set at = at + 1 where log = :log and seq = 4",
    "another value": "update blobs set data = zeroblob(9)",
    "no value": "delete from blobs",
}


@pytest.mark.parametrize("how", DAMAGE.values(), ids=DAMAGE)
def test_whatever_was_done_to_a_log_it_is_neither_called_there_nor_copied(tmp_path, how, texts):
    path = tmp_path / "store.db"
    with holdfast.open(path) as app:
        worked(app, "whole")
        worked(app, "struck")
        app.append("struck", step("far#1", "x" * 10_000), ev.TaskCompleted(result=codec.pack("done")))
        app.export("struck", tmp_path / "struck.jsonl")
    knife = apsw.Connection(str(path))
    for trigger in ("events_are_never_changed", "events_are_never_deleted"):
        knife.execute(f"drop trigger {trigger}")
    ((log,),) = knife.execute("select log from logs where name = 'struck'").fetchall()
    knife.execute(how, {"log": log} if ":log" in how else ())
    knife.close()
    with holdfast.open(path) as app:
        assert [one.task for one in app.verify().problems] == ["struck"]
        with texts.raises(holdfast.LogCorrupt):
            app.import_(tmp_path / "struck.jsonl")
        with pytest.raises(holdfast.LogCorrupt, match="struck"):
            app.copy_to(tmp_path / "copy.db")
    with holdfast.open(tmp_path / "copy.db") as other:
        assert {row.id for row in other.list()} == {"whole"} and other.verify().ok


def test_a_copy_takes_along_what_is_whole_and_names_what_it_left_out(one_is_damaged, tmp_path, texts):
    copy = str(tmp_path / "copy.db")
    with texts.raises(holdfast.LogCorrupt):
        one_is_damaged.copy_to(copy)
    with holdfast.open(copy) as other:
        assert {row.id for row in other.list()} == {"first", "whole"}
        assert other.import_(tmp_path / "struck.jsonl").logs == 1, "what was left out comes from a backup"
        assert other.verify().ok and other.get("struck").seq == 8


def test_gc_removes_by_age_and_count_and_the_id_never_acts_again(app, clock):
    for n in range(5):
        finished(app, f"old{n}")
    clock.advance(3600)
    finished(app, "new")
    app.start("a", id="open")
    assert app.gc(older_than=timedelta(minutes=30), keep=4).tasks == 2
    assert {row.id for row in app.list()} == {"old4", "old3", "old2", "new", "open"}
    assert app.gc(older_than=timedelta(minutes=30)).tasks == 3
    assert app.stats().blobs == 1, "shared content stays while someone uses it"
    with pytest.raises(holdfast.TaskCollected):
        app.get("old0")
    with pytest.raises(holdfast.TaskCollected):
        app.start("a", id="old0")
    assert app.gc(keep=0).tasks == 1 and app.stats().blobs == 0
    assert app.verify().ok and app.get("open").status == "pending"


def test_gc_keeps_the_parents_of_living_forks(app):
    finished(app, "p")
    app.fork("p", id="f")
    assert app.gc(keep=0) == holdfast.engine.maintenance.retention.Collected(0, 0, 1)
    app.append("f", ev.TaskCompleted(result=P(1)))
    assert app.gc(keep=0).tasks == 2


def test_gc_without_a_rule_removes_nothing_and_old_snapshots_go_by_age(app, clock):
    finished(app, "t")
    assert app.gc().tasks == 0
    log = app.logs.load("t")
    assert log.state.ended
    app.start("a", id="u")
    log = app.logs.load("u")
    log._snapshot_at = -1
    log.append([step("a#1")])
    assert app.gc(snapshots_older_than=timedelta(hours=1)).snapshots == 0
    clock.advance(7200)
    assert app.gc(snapshots_older_than=timedelta(hours=1)).snapshots == 1
    assert app.get("u").steps["a#1"].result == 1


def test_an_erased_body_is_gone_and_the_chain_still_verifies(app, clock):
    worked(app)
    app.store.erase([Erasure("t", 5, "ana", "asked for it", clock.now_us())])
    assert (app.verify("t").ok, app.verify("t").erased) == (True, 1)
    assert dict(app.get("t").facts) == {} and app.get("t").state["mood"] == "good"
    assert list(app.events("t"))[4].event == ev.Erased()


def test_the_hash_of_a_users_body_tells_nothing(app):
    for id in ("one", "two"):
        app.start("a", {"secret": "yes"}, id=id, user="ana")
        app.append(id, step("big#1", "x" * 9000))
    rows = [app.store.read(id) for id in ("one", "two")]
    assert rows[0][1].body_hash != rows[1][1].body_hash
    assert app.stats().blobs == 2, "their blobs are salted, so equal ones do not meet"
    assert app.get("one").steps["big#1"].result == "x" * 9000


def test_a_backup_is_consistent_while_others_write(tmp_path, texts):
    with holdfast.open(tmp_path / "a.db", durability="process") as app:
        finished(app, "t")
        app.start("a", id="busy")
        stop = threading.Event()

        def scribble():
            log = app.logs.load("busy")
            while not stop.is_set():
                log.append([ev.LogWritten(text="x")])

        writer = threading.Thread(target=scribble)
        writer.start()
        for n in range(3):
            app.backup(tmp_path / f"copy{n}.db")
        stop.set()
        writer.join()
        with texts.raises(holdfast.InvalidValue):
            app.backup(tmp_path / "copy0.db")
    for n in range(3):
        with holdfast.open(tmp_path / f"copy{n}.db") as copy:
            assert copy.verify().ok and copy.get("t").result == "done"
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".partial")]


def test_a_store_in_memory_says_how_to_back_it_up(texts):
    with holdfast.open("memory:") as app, texts.raises(holdfast.StoreError):
        app.backup("x")


@pytest.mark.parametrize("target", ["memory to file", "file to file"])
def test_a_whole_store_is_copied_verified_and_resumed(tmp_path, target):
    source = "memory:" if target.startswith("memory") else tmp_path / "a.db"
    with holdfast.open(source) as app:
        worked(app)
        finished(app, "gone")
        finished(app, "kept", user="ana")
        app.fork("t", at=3, id="f")
        app.store.erase([Erasure("t", 5, "ana", "why", 1)])
        from holdfast.core.codec import Group, UniqueKey, Write

        take = UniqueKey("order-17", "t", "pay#1", "h")
        app.store.append([Group((Write("t", (codec.draft(step("p#1"), 1)[0],)),), (take,))])
        app.gc(keep=1)
        seen = []
        copied = app.copy_to(tmp_path / "b.db", lambda done, of: seen.append((done, of)))
        assert (copied.logs, copied.skipped) == (3, 0) and seen[-1] == (3, 3)
        app.append("f", step("later#1"))
        again = app.copy_to(tmp_path / "b.db")
        assert (again.logs, again.events, again.skipped) == (1, 1, 2)
        with holdfast.open(tmp_path / "b.db") as copy:
            for id in ("t", "f", "kept"):
                assert copy.get(id).to_dict() == app.get(id).to_dict()
            assert {row.id: row.status for row in copy.list()} == {row.id: row.status for row in app.list()}
            assert copy.store.owner_of_key("order-17") == take
            with pytest.raises(holdfast.TaskCollected):
                copy.get("gone")
            assert copy.verify().erased == 1


def test_stats_say_what_a_store_holds(app):
    worked(app)
    finished(app, "u")
    stats = app.stats()
    assert (stats.tasks, stats.events, stats.blobs) == (2, 10, 1)
    assert stats.by_status == {"pending": 1, "completed": 1}

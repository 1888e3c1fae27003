"""What only SQLite does: triggers, permissions, several processes."""

import stat

import apsw
import pytest

import holdfast
from holdfast import events as ev
from holdfast.core import codec


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.db"
    with holdfast.open(path) as app:
        app.start("a", {"x": 1}, id="t")
        app.append("t", ev.LogWritten(text="hello"))
    return path


@pytest.mark.parametrize(
    "statement",
    [
        "update events set body = x'00' where seq = 1",
        "update events set body = null where seq = 1",
        "update events set kind = 'other' where seq = 1",
        "update events set seq = 9 where seq = 2",
        "update events set digest = zeroblob(32)",
        "delete from events where seq = 2",
        "delete from events",
        "insert or replace into events select log, seq, 'x', at, body, body_hash, digest from events where seq = 1",
        "insert into events select log, seq, kind, at, body, body_hash, digest from events where seq = 1",
        "insert into events select log, 3, kind, at, body, x'00', digest from events where seq = 1",
        "insert into events select log, 0, kind, at, body, body_hash, digest from events where seq = 1",
    ],
)
def test_the_database_itself_refuses_to_change_events(path, statement):
    raw = apsw.Connection(str(path))
    raw.pragma("recursive_triggers", True)
    before = raw.execute("select * from events").fetchall()
    with pytest.raises(apsw.ConstraintError):
        raw.execute(statement)
    assert raw.execute("select * from events").fetchall() == before
    raw.close()


def test_the_two_exceptions_need_a_row_of_their_own(path):
    raw = apsw.Connection(str(path))
    raw.execute("insert into erasures values (1, 1, 'ana', 'asked', 5)")
    raw.execute("update events set body = null where seq = 1")
    with pytest.raises(apsw.ConstraintError):
        raw.execute("update events set body = null where seq = 2")
    raw.execute("insert into tombstones values ('t', 1, 2, zeroblob(32), 5, 'old')")
    raw.execute("delete from events")
    for statement in ("delete from tombstones", "update erasures set by = 'bob'"):
        with pytest.raises(apsw.ConstraintError):
            raw.execute(statement)
    raw.close()


def test_a_new_file_is_readable_by_its_owner_alone(path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_durability_sets_how_often_the_disk_is_asked(tmp_path):
    for durability, level in (("full", 2), ("process", 1)):
        with holdfast.open(tmp_path / f"{durability}.db", durability=durability) as app:
            writer = app.store._writable()
            assert writer.pragma("synchronous") == level
            assert writer.pragma("journal_mode") == "wal"


def test_an_old_file_opens_without_being_migrated_again(path):
    before = path.read_bytes()
    with holdfast.open(path) as app:
        assert app.get("t").seq == 2
    assert path.read_bytes() == before


def test_a_file_from_before_mock_tasks_learns_of_them_and_keeps_its_tasks(path):
    raw = apsw.Connection(str(path))
    raw.execute("alter table tasks drop column mock; delete from migrations where version = 2; pragma user_version = 1")
    raw.close()
    with holdfast.open(path) as app:
        app.start("a", id="m", mock=True)
        assert {one.id: one.mock for one in app.list()} == {"t": False, "m": True}
        assert app.get("t").seq == 2 and app.verify().ok
    with holdfast.open(path) as app:
        assert app.list()[0].mock and app.get("m").mock


def test_listing_uses_an_index_for_every_filter(path):
    from holdfast.store.protocol import Query
    from holdfast.store.sqlite import queries as q

    raw = apsw.Connection(str(path))
    bindings = dict.fromkeys(Query().filters(), "x") | dict.fromkeys(("place", "changed", "limit"), 9)
    bindings |= {"first": "x", "end": "y"}
    for (lead, order), listed in q.LISTS.items():
        text = " ".join(row[3] for row in raw.execute("explain query plan " + listed, bindings))
        assert "SCAN" not in text, (lead, order, text)
        by_change = {("", "changed"), ("changed_since_us", "changed")}
        if (lead, order) in by_change or (order != "changed" and lead not in ("prefix", "due_us", "changed_since_us")):
            assert "TEMP B-TREE" not in text, (lead, order, text)
    for query, index in ((q.CHANGES, "tasks_by_change"), (q.ACTS, "events_acts"), (q.IN_DOUBT, "tasks_in_doubt")):
        given = dict.fromkeys(("change", "log", "limit", "since", "until", "at", "seq", "namespace"), 1)
        text = " ".join(row[3] for row in raw.execute("explain query plan " + query, given))
        assert index in text and "TEMP B-TREE" not in text, text
    bounds = {"log": 1, "kind": "x", "after": 0, "upto": 9, "limit": 1}
    plan = raw.execute("explain query plan " + q.READ_KIND, bounds).fetchall()
    assert "events_cold" in plan[0][3] and "TEMP B-TREE" not in str(plan)
    raw.close()


def test_a_blob_that_was_tampered_with_is_found(path, texts):
    with holdfast.open(path) as app:
        app.append("t", ev.StepCompleted(key="a#1", name="a", result=codec.pack("x" * 9000)))
    raw = apsw.Connection(str(path))
    other = codec.make_blob(codec.pack("y" * 9000))[1]
    raw.execute("update blobs set data = ?", (other.data,))
    raw.close()
    with holdfast.open(path) as app:
        assert app.verify("t").problems[0].seq == 3
        with texts.raises(holdfast.ValueDamaged):
            _ = app.get("t").steps["a#1"].result


def test_a_file_that_refuses_an_event_for_a_reason_of_its_own_is_named_and_nobody_tries_for_ever(tmp_path, texts):
    path = str(tmp_path / "a.db")
    holdfast.open(path).close()
    connection = apsw.Connection(path)
    connection.execute(
        "create trigger odd before insert on events when new.kind = 'step_completed' "
        "begin select raise(abort, 'odd'); end"
    )
    connection.close()

    @holdfast.agent
    def worker(task):
        return task.step(lambda: 1, name="one")

    with holdfast.open(path) as app, texts.raises(holdfast.LogCorrupt):
        app.run(worker, id="t")

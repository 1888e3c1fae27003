"""The auditor finds what it says it looks for, and nothing where nothing is wrong."""

import ast
import json
import shutil
import subprocess
import sys

import apsw
import pytest

import holdfast
from holdfast import events as ev
from holdfast.core import codec, urls
from holdfast.core.state import rules
from holdfast.store.postgres.server.connecting import ServerAddress
from holdfast.store.protocol import Erasure
from holdfast.testing import auditor
from holdfast.testing.auditor import audit, tables
from tests.crash.workload import work
from tests.crash.writer import note


@pytest.fixture
def path(tmp_path, acks):
    """A store with a bit of everything, and what was acknowledged of it."""
    made = tmp_path / "store.db"
    with holdfast.open(made, durability="process") as app:
        work(app, acks)
        app.fork("fork", at=3, id="fork-in-the-grandparent")
        app.fork("fork", id="fork-of-the-fork")
        app.append("one", ev.TaskFailed(failure=holdfast.Failure("Error", "no")), ev.TaskReopened(), note("more"))
        app.rollback("two", to=2)
        app.append("two", ev.TaskCancelled(), ev.StepObserved(key="late#1"))
    return made


def tampered(path, sql):
    connection = apsw.Connection(str(path))
    triggers = connection.execute("select name from sqlite_schema where type = 'trigger'").fetchall()
    for (name,) in triggers:
        connection.execute(f"drop trigger {name}")
    connection.execute(sql)
    connection.close()
    return path


def test_nothing_is_found_where_nothing_is_wrong(path, acks):
    assert audit(path, acks.path) == []


def test_nothing_is_found_in_a_store_whose_tasks_were_removed_and_whose_bodies_were_erased(path, acks):
    with holdfast.open(path) as app:
        app.start("late", id="late")
        acks.records(app.append("late", ev.TaskCompleted(result=codec.pack(1))))
        assert app.gc(keep=0).tasks == 2
        app.store.erase([Erasure("one", 2, "me", "asked", 1)])
    assert audit(path, acks.path) == []


ONE = "log = (select log from logs where name = 'one')"
FINDINGS = {
    f"update events set body = x'00' where {ONE} and seq = 3": "one: event 3 has not the body",
    f"update events set body = null where {ONE} and seq = 3": "one: event 3 has lost its body",
    f"update events set at = at + 1 where {ONE} and seq = 3": "one: the digest of event 3 does not follow",
    f"update events set kind = 'note_set' where {ONE} and seq = 3": "one: the digest of event 3 does not follow",
    f"update events set digest = zeroblob(32) where {ONE} and seq = 4": "fork: the digest of event 5 does not follow",
    f"update events set digest = zeroblob(32) where {ONE} and seq = 2": "one: the digest of event 3 does not follow",
    f"update events set seq = 900 where {ONE} and seq = 3": "one: event 4 follows 2",
    f"delete from events where {ONE} and seq = 3": "one: event 4 follows 2",
    f"delete from events where {ONE} and seq > 20": "one: was at",
    f"delete from events where {ONE}": "one: has no events",
    "delete from events where log = (select log from logs where name = 'fork')": "of-the-fork: its past ends before",
    "delete from logs where name = 'fork'": "event 5 belongs to no log",
    "update logs set parent = null where name = 'fork'": "fork: begins at 4, but has no parent",
    "update logs set base = 3 where name = 'fork'": "fork: event 5 follows 3",
    "update logs set name = 'other' where name = 'one'": "other: the digest of event 1 does not follow",
    f"delete from tasks where {ONE}": "one: has no row in tasks",
    f"update tasks set anchor_seq = 900 where {ONE}": "one: was at 900",
    f"update tasks set anchor_digest = zeroblob(32) where {ONE}": "one: was at",
    f"update tasks set status = 'completed' where {ONE}": "one: is completed in tasks, but not ended",
    "update tasks set status = 'pending' where status = 'cancelled'": "two: is pending in tasks, but cancelled",
    "insert into tasks select 99, agent, status, stage, user, thread, parent, waiting, holder, lease_seconds, queue,"
    " priority, wake, deadline, created, changed, anchor_seq, anchor_digest, mock, namespace, key,"
    " version, claims, doubts, change, expire from tasks limit 1": "a task without a log",
    "delete from blobs": "which is missing",
    "delete from blobs where hash not in (select hash from blobs limit 1)": "refers to blob",
    "update blob_uses set log = 99": "but is not a log",
    "update snapshots set digest = zeroblob(32)": "one: the snapshot at",
    "update snapshots set seq = 900 where seq = (select max(seq) from snapshots)": "one: the snapshot at 900",
    "insert into tombstones values ('one', 1, 1, zeroblob(32), 1, '')": "one: there is more than one log of this name",
    "delete from tombstones": "@records/space/kept: begins at 2, but what came before is gone up to 0",
    "update tombstones set digest = zeroblob(32)": "@records/space/kept: the digest of event 3 does not follow",
    "update logs set base = 1 where name = '@records/space/kept'": "@records/space/kept: begins at 1, but",
    "delete from events where kind = 'record_erased'": "@records/space/kept: event 6 follows 4",
    "delete from erasures": "@records/space/kept: event 4 has lost its body",
    "drop table blobs": "the store cannot be read",
}


@pytest.mark.parametrize(("sql", "finding"), FINDINGS.items(), ids=FINDINGS.values())
def test_tampering_is_found(path, sql, finding):
    found = audit(tampered(path, sql))
    assert any(finding in one for one in found), found


# What is written to several logs at once


def spend(tokens):
    holdfast.report_usage(input_tokens=tokens)
    return tokens


@pytest.fixture
def linked(tmp_path):
    """A user whose tasks changed their state, and a tree of tasks with one budget."""
    made = tmp_path / "linked.db"

    @holdfast.agent
    def grandchild(task):
        return task.step(spend, 3)

    @holdfast.agent
    def child(task, tokens: int):
        task.user.state.increment("children")
        task.step(spend, tokens, estimate=5)
        return task.spawn(grandchild)

    @holdfast.agent(budget=holdfast.Budget(tokens=1_000))
    def parent(task):
        task.user.state.letter = "word " * 2_000
        task.user.patch(holdfast.StatePatch(set={"city": "Rome"}, append_facts=[{"key": "k", "value": 1}]))
        return task.map(child, [{"tokens": 7}, {"tokens": 8}], limit=1)

    with holdfast.open(made) as app:
        app.user("ana").state.city = "Oslo"
        assert app.run(parent, id="p", user="ana").status == "completed"
        app.fork("p", at=5, id="fork")
        app.run(parent, id="q", user="ana")
    return made


def test_nothing_is_found_where_several_logs_agree(linked, tmp_path):
    assert audit(linked) == []
    with holdfast.open(linked) as app:
        app.copy_to(f"sqlite:///{tmp_path}/copy.db")
        app.export("q", tmp_path / "q.jsonl")
    assert audit(tmp_path / "copy.db") == []
    with holdfast.open(tmp_path / "alone.db") as alone:
        alone.import_(tmp_path / "q.jsonl")
        assert audit(tmp_path / "alone.db") == []
        alone.user("ana").state.city = "Paris"
    assert audit(tmp_path / "alone.db") == [], "a task may be copied without its user's log"
    with holdfast.open(linked) as app:
        app.cancel("fork")
        app.user("ana").erase()
    assert audit(linked) == []


def half_a_group(path, kind, log):
    """Cut the last events off a log, from the last of that kind on, as if they had never been written."""
    connection = apsw.Connection(str(path))
    number = connection.execute("select log from logs where name = ?", (log,)).fetchone()[0]
    found = connection.execute("select max(seq) from events where log = ? and kind = ?", (number, kind)).fetchone()[0]
    connection.close()
    return tampered(path, f"delete from events where log = {number} and seq >= {found}")


@pytest.mark.parametrize(
    ("kind", "log", "finding"),
    [
        ("state_patched", "@user/ana", "q/~2/child#1: 1 of its changes to its user are not in @user/ana"),
        ("user_patched", "q", "@user/ana: has 1 changes by q, which does not know of them"),
        ("child_spent", "q", "q/~2/child#1/grandchild#1: 1 of its steps used up something that q has no record of"),
        ("step_completed", "q/~1/child#1/grandchild#1", "q: pays 1 times for what q/~1/child#1/grandchild#1 has not"),
    ],
)
def test_half_of_what_was_written_together_is_found(linked, kind, log, finding):
    found = audit(half_a_group(linked, kind, log))
    assert any(finding in one for one in found), found


def test_a_user_that_is_listed_as_a_task_is_found(linked):
    sql = (
        "insert into tasks select (select log from logs where name = '@user/ana'), agent, status, stage, user, thread,"
        " parent, waiting, holder, lease_seconds, queue, priority, wake, deadline, created, changed, anchor_seq,"
        " anchor_digest, mock, namespace, key, version, claims, doubts, change, expire from tasks limit 1"
    )
    assert audit(tampered(linked, sql)) == ["@user/ana: is not a task, but has a row in tasks"]


def test_an_event_after_the_end_is_found(path):
    with holdfast.open(path) as app:
        log = app.logs.load("two")
        log.append([note("after the end")])
    assert any("log_written, comes after the task was cancelled" in one for one in audit(path))


def test_two_logs_of_one_name_are_found(path):
    sql = (
        "pragma writable_schema = on;"
        "create table twins (log integer primary key, name text, parent integer, base integer);"
        "insert into twins select log, name, parent, base from logs;"
        "insert into twins select 99, name, parent, base from logs where name = 'two';"
        "drop table logs; alter table twins rename to logs;"
    )
    assert any("two: there is more than one log of this name" in one for one in audit(tampered(path, sql)))


@pytest.mark.parametrize(
    ("ack", "finding"),
    [
        ({"log": "one", "seq": 2, "digest": "00" * 32}, "was acknowledged with another digest"),
        ({"log": "one", "seq": 999, "digest": "00" * 32}, "was acknowledged and is not there"),
        ({"log": "nobody", "seq": 1, "digest": "00" * 32}, "was acknowledged and is not there"),
    ],
)
def test_an_acknowledged_event_that_is_not_there_is_found(path, acks, ack, finding):
    with open(acks.path, "a") as file:
        file.write(json.dumps(ack) + "\n")
    assert [finding in one for one in audit(path, acks.path)] == [True]


def test_an_acknowledgement_whose_writer_was_killed_does_not_count(path, acks):
    with open(acks.path, "a") as file:
        file.write('{"log": "one", "se')
    assert audit(path, acks.path) == []


def run(*arguments):
    command = [sys.executable, "-m", "holdfast.testing.auditor", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_program_prints_what_it_found_and_ends_accordingly(path, acks):
    done = run(path, "--acks", acks.path)
    assert (done.returncode, done.stderr) == (0, "")
    with holdfast.open(path) as app:
        assert done.stdout == f"audited 7 logs, {app.stats().events} events: ok\n"
    done = run(tampered(path, f"update events set at = 0 where {ONE} and seq = 2"))
    assert done.returncode == 1
    first, last = done.stdout.splitlines()
    assert first == "one: the digest of event 2 does not follow from what came before"
    assert last.startswith("audited 7 logs") and last.endswith(": 1 finding")


def test_the_auditor_leaves_a_store_and_its_write_ahead_log_as_they_are(path, tmp_path):
    copies = tmp_path / "copies"
    copies.mkdir()
    with holdfast.open(path) as app:
        app.append("one", note("not yet in the main file"))
        for name in ("store.db", "store.db-wal"):
            shutil.copyfile(tmp_path / name, copies / name)
    before = {one.name: one.read_bytes() for one in copies.iterdir()}
    assert audit(copies / "store.db") == []
    assert {name: (copies / name).read_bytes() for name in before} == before


def test_the_auditor_knows_every_kind_of_event_that_may_come_after_an_end():
    assert auditor.AWAKENING | auditor.LATE == rules.KINDS_AFTER_THE_END - auditor.FIRST


def test_the_auditor_knows_every_option_of_an_address_that_is_not_for_libpq():
    """It imports nothing of ours, so it has a list of its own."""
    assert sorted(tables.OPTIONS) == sorted((*urls.PLAIN_OPTIONS, *urls.SECRET_OPTIONS))
    assert {*tables.OPTIONS} == {*ServerAddress.__struct_fields__} - {"conninfo"}, "what an address may say"


def test_a_store_on_a_server_is_audited_by_the_address_it_was_opened_by(postgres_url):
    """Every option but those of a pooler; libpq would refuse a name that it does not know."""
    said = "?schema=audited&presence=lease&lease_seconds=9&connections=3&durability=process"
    more = "&lock_seconds=5&statement_seconds=20&wait_seconds=20&connect_timeout=5"
    with holdfast.open(postgres_url + said + more) as app:
        app.start("agent", id="t")
    assert audit(postgres_url + said + more) == []


@pytest.mark.parametrize("module", [auditor, tables], ids=lambda module: module.__name__.rpartition(".")[2])
def test_the_auditor_knows_nothing_of_ours(module):
    with open(module.__file__) as file:
        names = {
            name
            for node in ast.walk(ast.parse(file.read()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
        }
    assert {name for name in names if name.startswith("holdfast")} <= {tables.__name__}

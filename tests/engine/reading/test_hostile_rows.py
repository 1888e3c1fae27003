"""Rows written straight into the database by somebody who knows how digests are made: nothing is executed, no look at
the store fails because of one task, and each damaged one is named."""

import contextlib
import json
import re
import time

import apsw
import psycopg
import pytest
from backports import zstd
from click.testing import CliRunner

import holdfast
from holdfast import agent
from holdfast.cli.main import cli
from holdfast.core import codec
from holdfast.store.protocol import Query
from tests.engine.reading import hostile_rows

STORES = ("sqlite", "postgres")


@agent
def asks(task):
    return task.ask("still there?", name="ask")


@pytest.fixture
def sql(url):
    """A way past the store: to the tables themselves, by named parameters."""
    if url.startswith("postgres"):
        with psycopg.connect(url, autocommit=True) as link:
            link.execute("set search_path = holdfast")
            yield lambda text, **given: link.execute(re.sub(r":(\w+)", r"%(\1)s", text), given)
    else:
        link = apsw.Connection(url)
        link.setbusytimeout(5000)
        yield lambda text, **given: link.execute(text, given)
        link.close()


INSERT = """insert into events (log, seq, kind, at, body, body_hash, digest)
values ((select log from logs where name = :name), :seq, :kind, :at, :body, :body_hash, :digest)"""


def insert(app, sql, name, kind, text, **changed):
    """Write an event after the head of a log, past the store."""
    seq, kind, at, body, hashed, digest = hostile_rows.chained(
        app.store.head(name).digest, app.store.head(name).seq + 1, kind, text
    )
    row = {"seq": seq, "kind": kind, "at": at, "body": body, "body_hash": hashed, "digest": digest} | changed
    sql(INSERT, name=name, **row)
    if app.store.url.startswith("postgres"):
        sql(
            "update logs set seq = :seq, digest = :digest where name = :name",
            name=name,
            seq=row["seq"],
            digest=row["digest"],
        )


def strike(sql, name, **columns):
    """Change what lists show of a task, past the store."""
    for column, value in columns.items():
        quoted = '"user"' if column == "user" else column
        sql(
            f"update tasks set {quoted} = :value where log = (select log from logs where name = :name)",
            value=value,
            name=name,
        )


SOUND = ("executed value",)
"""Text that is only text: nothing is wrong with it, and it is given back as it is."""


def looks(app, id):
    """Every way of looking at one task."""
    return {
        "get": lambda: app.get(id).to_dict(),
        "contract": lambda: app.get(id).contract(),
        "events": lambda: [repr(record) for record in app.events(id)],
        "describe": lambda: list(app.describe(id)),
        "steps": lambda: [step.to_dict() for step in app.steps(id)],
        "inbox": lambda: list(app.inbox(id)),
        "audit": lambda: list(app.audit(task=id)),
        "export": lambda: list(app.export_lines(id)),
        "at": lambda: app.at(id, 1).to_dict(),
        "signal": lambda: app.signal(id, "hello"),
    }


@pytest.fixture
def struck(app, sql, tmp_path):
    """A store with a sound task that asks, and a task for each hostile row; gives the rows by their task."""
    app.run(asks, id="asked")
    rows = {}
    for number, (name, kind, body) in enumerate(hostile_rows.rows(str(tmp_path / "canary"))):
        if app.store.url.startswith("postgres") and "\0" in kind:
            continue  # which its columns cannot hold
        id = f"h{number}"
        app.start("a", id=id)
        insert(app, sql, id, kind, body)
        strike(sql, id, status="waiting", waiting="person")
        rows[id] = name
    assert len(rows) > 180
    yield rows
    assert not (tmp_path / "canary").exists(), "something that was stored was executed"


def test_nothing_is_executed_and_every_look_at_a_task_names_what_is_wrong(app, struck):
    wrong = {}
    for id, name in struck.items():
        for what, look in looks(app, id).items():
            try:
                look()
            except holdfast.HoldfastError as error:
                if not error.hint or (id not in str(error) and not isinstance(error, holdfast.ValueDamaged)):
                    wrong[name, what] = repr(error)
            except Exception as error:
                wrong[name, what] = repr(error)
        sound = name.startswith(SOUND)
        if app.verify(id).ok is not sound:
            wrong[name, "verify"] = "sound" if sound else "damaged"
    assert not wrong


def test_looks_at_all_tasks_survive_and_name_the_damaged_ones(app, struck):
    damaged = {id for id, name in struck.items() if not name.startswith(SOUND)}
    assert {row.id for row in app.list(limit=1000)} == {*struck, "asked"}
    assert {one.task for one in app.verify().problems} == damaged
    entries = list(app.inbox())
    assert [one.prompt for one in entries if one.task == "asked"] == ["still there?"], "the sound one can be answered"
    told = {one.task for one in entries if one.kind == "damaged"}
    assert len(told) > 100 and told <= damaged
    assert {row.task for row in app.audit() if row.kind == "damaged"} <= damaged
    (found,) = [one for one in app.doctor() if one.what == "integrity"]
    assert found.level == "fail" and "damaged: h" in found.said and "verify" in found.remedy
    assert app.stats().tasks == len(struck) + 1
    app.answer("asked", "ask#1", "yes")
    assert app.resume("asked", asks).result == "yes"


def test_the_command_line_survives_too(app, struck, url):
    for line in (["list", "--limit", "999"], ["inbox"], ["doctor"], ["verify"], ["stats"], ["audit"], ["workers"]):
        for more in ([], ["--json"]):
            done = CliRunner().invoke(cli, [*line, *more, "--store", url])
            assert "unexpected" not in done.stderr and done.exit_code in (0, 1), (line, done.stderr)
            # The audit reads what its index has, and names damage it comes upon there; all of it is for `verify`.
            assert line[0] in ("stats", "workers", "audit") or "h18" in done.stdout, line
    wrong = {}
    for id, name in [*struck.items()][::25]:
        for line in (["show", id], ["log", id], ["show", id, "--json"]):
            done = CliRunner().invoke(cli, [*line, "--store", url])
            if done.exit_code not in (0, 5) or (done.exit_code and id not in done.stderr):
                wrong[name, line[0]] = done.stderr
    assert not wrong


BIG = 2**63 - 1
COLUMNS = [
    *({"agent": ""}, {"agent": "\x1b[2J" * 1000}, {"stage": "\x1b]0;x\x07"}, {"user": "no spaces\n"}, {"thread": ""}),
    *({"parent": "nobody"}, {"waiting": "godot"}, {"holder": "nobody"}, {"holder": ""}, {"lease_seconds": 1e308}),
    *({"queue": "@block"}, {"priority": BIG}, {"wake": BIG}, {"wake": -BIG}, {"deadline": BIG}),
    *({"created": BIG, "changed": BIG}, {"created": -BIG, "changed": -BIG}, {"version": "∞"}, {"namespace": "other"}),
    *({"status": "running", "holder": None}, {"status": "completed"}, {"claims": -5}, {"key": "x" * 10_000}),
]


def test_rows_of_lists_that_say_anything_are_shown(app, sql, url):
    app.run(asks, id="asked")
    for number, columns in enumerate(COLUMNS):
        app.start("a", id=f"c{number}")
        strike(sql, f"c{number}", **columns)
    assert len(app.list(limit=1000)) == len(COLUMNS), "one is in another namespace now"
    assert [one.task for one in app.inbox() if one.kind != "no_worker"] == ["asked"]
    app.doctor(), app.stats(), app.depths(), app.gc(keep=100)
    for number in range(len(COLUMNS)):
        app.get(f"c{number}").to_dict()
    for line in (["list"], ["list", "--json"], ["stats"], ["doctor"], ["inbox"]):
        done = CliRunner().invoke(cli, [*line, "--store", url])
        assert "unexpected" not in done.stderr and done.exit_code in (0, 1), (line, done.stderr)
    assert app.worker([asks]).name, "and workers look for tasks among them"


def test_a_row_that_is_not_text_keeps_no_other_from_being_listed(tmp_path):
    """A flipped bit is enough. PostgreSQL looks after its text itself."""
    path = str(tmp_path / "store.db")
    with holdfast.open(path) as app:
        app.run(asks, id="asked")
        app.start("a", id="struck")
        app.start("a", id="whole")
    knife = apsw.Connection(path)
    knife.execute("update tasks set agent = cast(x'ff61' as text) where agent = 'a' and log = 2")
    knife.close()
    with holdfast.open(path) as app:
        assert [row.id for row in app.list()] == ["whole", "struck", "asked"]
        assert [row.id for row in app.list(limit=1)] == ["whole"]
        assert [row.id for row in app.list(after="whole")] == ["struck", "asked"]
        assert [row.id for row in app.list(status="waiting")] == ["asked"]
        assert [(one.task, one.kind) for one in app.inbox()] == [("asked", "question"), ("whole", "no_worker")]
        assert [(one.task, "its row in lists" in one.why) for one in app.verify().problems] == [("struck", True)]
        assert [one.level for one in app.doctor() if one.what == "integrity"] == ["fail"]
        assert app.get("struck").agent == "a", "the log itself is whole"


@agent(version="2")
def drafts(task):
    task.stage("drafting")
    return task.ask("still there?", name="ask")


def test_a_list_with_a_row_that_is_not_text_is_no_wider_than_its_filters(tmp_path):
    """The store finds the row by its filter and can't read it: the others are then looked at one by one."""
    wanted = {"status": "waiting", "agent": "drafts", "stage": "drafting", "user": "ana", "thread": "talk"}
    wanted |= {"queue": "mail", "parent": "above", "waiting": "person", "version": "2", "in_doubt": True, "prefix": "w"}
    wanted["changed_since"] = "1h"
    assert {*wanted, "due", "expired", "namespace"} == {*(name.removesuffix("_us") for name in Query().filters())}, (
        "a value is missing"
    )
    path = str(tmp_path / "store.db")
    with holdfast.open(path) as app:
        for id in ("whole", "struck"):
            app.run(drafts, id=id, user="ana", thread="talk", queue="mail")
        app.start("another", id="other")
    knife = apsw.Connection(path)
    knife.execute(
        "update tasks set version = cast(x'ff61' as text) where log = (select log from logs where name = ?)",
        ("struck",),
    )
    knife.execute("update tasks set parent = 'above', doubts = '[\"pay#1\"]' where user = 'ana'")
    knife.execute("update tasks set changed = 1 where user is null")
    knife.close()
    with holdfast.open(path) as app:
        assert [row.id for row in app.list()] == ["other", "struck", "whole"]
        assert [row.id for row in app.list(order="oldest")] == ["whole", "struck", "other"]
        for name, value in wanted.items():
            assert [row.id for row in app.list(**{name: value})] == ["whole"], name


def test_digests_hashes_and_times_that_are_wrong_are_named(app, sql):
    for id, changed in {
        "digest": {"digest": b"\0" * 32},
        "hash": {"body_hash": b"\1" * 32},
        "gap": {"seq": 7},
        "no body": {"body": None},
        "late": {"at": 2**62},
        "early": {"at": -(2**62)},
    }.items():
        name = id.replace(" ", "-")
        app.start("a", id=name)
        insert(app, sql, name, "log_written", b'{"text":"x"}', **changed)
    assert {one.task for one in app.verify().problems if one.task} == {
        "digest",
        "hash",
        "gap",
        "no-body",
        "late",
        "early",
    }
    for row in app.list():
        with contextlib.suppress(holdfast.LogCorrupt):
            app.get(row.id).to_dict()
        with contextlib.suppress(holdfast.LogCorrupt):
            list(app.describe(row.id))


@pytest.mark.parametrize(
    "body",
    [b"", b"=", b"x" * 100, b"\0" * 8 + b"z" + zstd.compress(b"0" * 10_000_000), None],
    ids=["nothing", "short", "anything", "a bomb", "another state"],
)
def test_a_snapshot_that_is_none_is_not_used(app, sql, body, caplog):
    app.start("a", id="t")
    app.append("t", *[holdfast.events.StateSet(name=f"n{n}", value=codec.pack(n)) for n in range(5)])
    head = app.store.head("t")
    made = codec.deflate(b'{"summary":{"id":5}}') if body is None else body
    sql(
        """insert into snapshots (log, seq, digest, version, at, body)
        values ((select log from logs where name = 't'), :seq, :digest, :version, 1, :body)""",
        seq=head.seq,
        digest=head.digest,
        version=holdfast.core.state.shapes.FOLD_VERSION,
        body=made,
    )
    app.logs.cache.forget(["t"])
    assert dict(app.get("t").state) == {f"n{n}": n for n in range(5)}
    assert "ignored a snapshot" in caplog.text


def test_a_log_that_stands_on_itself_ends(app, sql):
    app.start("a", id="t")
    app.fork("t", id="f")
    sql("update logs set parent = log, base = 1 where name = 'f'")
    began = time.monotonic()
    with contextlib.suppress(holdfast.HoldfastError):
        app.get("f")
    assert not app.verify().ok or time.monotonic() - began < 30
    assert [row.id for row in app.list()] == ["f", "t"]


def test_large_values_that_are_gone_or_others_are_named(app, sql):
    for id in ("gone", "other"):
        app.start("a", {"x": id * 3000}, id=id)
    hashes = {id: json.loads(bytes(app.store.read(id)[0].body))["input"]["x"]["$blob"] for id in ("gone", "other")}
    sql("delete from blob_uses where hash = :hash", hash=bytes.fromhex(hashes["gone"]))
    sql("delete from blobs where hash = :hash", hash=bytes.fromhex(hashes["gone"]))
    sql(
        "update blobs set data = :data where hash = :hash",
        data=zstd.compress(b'"x"'),
        hash=bytes.fromhex(hashes["other"]),
    )
    app.logs.forget([])
    assert {one.task for one in app.verify().problems} == {"gone", "other"}
    for id in ("gone", "other"):
        with pytest.raises(holdfast.ValueDamaged):
            app.get(id).to_dict()
    assert {row.id for row in app.list()} == {"gone", "other"} == {one.task for one in app.inbox()}


def test_what_workers_say_of_themselves_is_not_believed_either(app, sql, url):
    for number, said in enumerate(["", "5", "[", "[5]", '[{"name":5}]', "[" * 5000, '{"lc":1}', "\u202e"]):
        sql(
            f"insert into holders (name, serves, beat) values (:name, :serves, {'now()' if 'post' in url else '1'})",
            name=f"w{number}",
            serves=said,
        )
    assert app.workers() == []
    app.start("a", id="t")
    assert app.get("t").waiting.kind == "no_worker"
    assert CliRunner().invoke(cli, ["workers", "--store", url]).exit_code == 0

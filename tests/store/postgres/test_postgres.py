"""What only PostgreSQL does: triggers, schemas, settings, poolers, errors of a server, and many processes."""

import subprocess
import sys
import threading
import time
from urllib.parse import quote

import pytest
from hypothesis import given, strategies as st

import holdfast
from holdfast import events as ev
from holdfast.core import codec
from holdfast.core.codec import Group, Head, UniqueKey, Write
from holdfast.core.state.summary import summarise
from holdfast.store.memory.store import MemoryStore
from holdfast.store.migrations import migrations
from holdfast.store.protocol import Query, Tombstone
from holdfast.testing.conformance.samples import AT, SampleCrash, created, draft, group, head_of, note, ok
from holdfast.testing.conformance.transact import begin, ledger, run_threads
from tests.postgres_server import Server, binaries

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

from holdfast.store.postgres.server import queries as q  # noqa: E402
from holdfast.store.postgres.server.connecting import parse  # noqa: E402
from holdfast.store.postgres.store import PostgresStore  # noqa: E402


def transact(store, work, seconds=None):
    """Run work that writes one event after the head of `t` when it has done its own."""
    head = head_of(store, "t")

    def and_record(connection):
        work(connection)
        return group(Write("t", draft(note("done")), head))

    return store.transact("t", head, and_record, seconds)


# The database refuses


@pytest.mark.parametrize(
    "statement",
    [
        "update events set body = '\\x00' where seq = 1",
        "update events set body = null where seq = 1",
        "update events set kind = 'other' where seq = 1",
        "update events set seq = 9 where seq = 2",
        "update events set log = 9 where seq = 2",
        "update events set digest = body_hash",
        "delete from events where seq = 2",
        "delete from events",
        "truncate events",
        "do $$ begin for n in 0 .. 15 loop execute 'truncate events_' || n; end loop; end $$",
        "insert into events select log, seq, kind, at, body, body_hash, digest from events where seq = 1",
        "insert into events select log, 3, kind, at, body, '\\x00', digest from events where seq = 1",
        "insert into events select log, 0, kind, at, body, body_hash, digest from events where seq = 1",
        "update erasures set by = 'bob'; delete from tombstones",
    ],
)
def test_the_database_itself_refuses_to_change_events(store, raw, statement):
    store.append([group(created("t"))])
    store.append([group(Write("t", draft(note("x"))))])
    raw.execute("insert into erasures values (9, 1, 'ana', 'asked', 5)")
    before = raw.execute("select * from events order by log, seq").fetchall()
    with pytest.raises(psycopg.IntegrityError):
        raw.execute(statement)
    assert raw.execute("select * from events order by log, seq").fetchall() == before


def test_the_two_exceptions_need_a_row_of_their_own(store, raw):
    store.append([group(created("t"))])
    store.append([group(Write("t", draft(note("x"))))])
    raw.execute("insert into erasures select log, 1, 'ana', 'asked', 5 from logs")
    raw.execute("update events set body = null where seq = 1")
    with pytest.raises(psycopg.IntegrityError):
        raw.execute("update events set body = null where seq = 2")
    raw.execute("insert into tombstones select 't', log, 2, digest, 5, 'old' from logs")
    raw.execute("delete from events")
    with pytest.raises(psycopg.IntegrityError):
        raw.execute("delete from tombstones")


def test_a_removed_name_is_not_given_again_even_by_hand(store, raw):
    raw.execute("insert into tombstones values ('gone', 1, 1, sha256('x'), 0, '')")
    with pytest.raises(psycopg.IntegrityError):
        raw.execute("insert into logs (name, seq, digest) values ('gone', 1, sha256('x'))")


def test_events_are_spread_over_parts_and_counted_as_one_table(store, raw):
    store.append([group(created(f"t{n}")) for n in range(60)])
    used = raw.execute("select count(distinct tableoid) from events").fetchone()[0]
    assert used > 8
    sizes = store.stats().bytes_by_table
    assert set(sizes) >= {"events", "tasks", "logs", "blobs"} and not any("_1" in name for name in sizes)


def test_a_guard_that_was_switched_off_is_reported(store, raw):
    raw.execute("alter table events disable trigger events_are_never_deleted")
    assert any("events_are_never_deleted" in found for found in store.check())


def test_listing_uses_an_index_for_every_filter(store, raw):
    bindings = dict.fromkeys(Query().filters(), "x") | dict.fromkeys(("place", "changed", "limit"), 9)
    bindings |= {
        "in_doubt": True,
        "status": "waiting",
        "changed_since_us": 9,
        "due_us": 9,
        "expired_us": 9,
        "first": "x",
        "end": "y",
    }
    raw.execute("set enable_seqscan = off")
    texts = q.QueryTexts("holdfast")
    for (lead, order), listed in q.LISTS.items():
        plan = str(raw.execute(b"explain " + texts[listed], bindings).fetchall())
        assert "tasks_" in plan and "Seq Scan on tasks" not in plan, (lead, order, plan)
    for query, index in ((q.CHANGES, "tasks_by_change"), (q.ACTS, "_at_log_seq_idx"), (q.IN_DOUBT, "tasks_in_doubt")):
        given = dict.fromkeys(("change", "log", "limit", "since", "until", "at", "seq"), 1) | {"namespace": "x"}
        plan = str(raw.execute(b"explain " + texts[query], given).fetchall())
        assert index in plan and "Seq Scan on tasks" not in plan and "Sort  (" not in plan, plan


def test_counts_of_connections_that_are_gone_are_added_up(store, raw, postgres_url):
    for number in range(4):
        other = PostgresStore(postgres_url)
        other.append([group(created(f"t{number}"))])
        other.close()
    raw.execute("update task_counts set slot = -slot")  # as if those processes had ended long ago
    store.holder()
    assert raw.execute("select slot, tasks from task_counts").fetchall() == [(0, 4)]
    assert store.counts().by_status == {"pending": 4} and store.check() == []


def test_a_count_that_is_wrong_is_named(store, raw):
    store.append([group(created("t"))])
    raw.execute("update task_counts set tasks = tasks + 2")
    assert store.check() == ["the kept count of pending tasks is 3, and there are 1"]


def test_the_feed_waits_for_a_transaction_that_began_before(store, raw):
    """A change that is committed late must not be passed by one that began after it."""
    store.append([group(created("slow")), group(created("quick"))])
    begin = store.last_change()
    with raw.transaction():
        raw.execute("update tasks set stage = 'late' where log = (select log from logs where name = 'slow')")
        row = summarise(store.summary("quick"), "quick", ev.TaskClaimed(holder="x"), AT)
        store.append([group(Write("quick", draft(note("x")), summary=row))])
        assert store.changes(begin) == []
    assert [one.summary.id for one in store.changes(begin)] == ["slow", "quick"]


def test_a_restored_dump_whose_changes_lie_in_the_future_is_numbered_anew(store, raw, postgres_url):
    store.append([group(created("t"))])
    begin = store.last_change()
    raw.execute("alter table tasks disable trigger changes_are_numbered")
    raw.execute("update tasks set change = 1000000000000")
    raw.execute("alter table tasks enable trigger changes_are_numbered")
    assert store.changes(begin) == []
    store.holder()
    assert [one.summary.id for one in store.changes(begin)] == ["t"]


# One store beside another

NAMES, KEYS = ("a", "b", "c"), ("k", "l")
EXPECTS = ("none", "head", "stale", "beyond")
writes = st.tuples(
    st.sampled_from(NAMES), st.sampled_from(("create", *EXPECTS)), st.integers(1, 3), st.booleans(), st.booleans()
)
groups = st.tuples(
    st.lists(writes, min_size=1, max_size=3, unique_by=lambda write: write[0]),
    st.lists(st.sampled_from(KEYS), max_size=1),
    st.sets(st.sampled_from(KEYS)),
)


def made_write(store, mark, write):
    name, kind, count, shown, blob = write
    log = f"{mark}-{name}"
    if kind == "create":
        return created(log)
    found = store.head(log) or Head(1, b"\1" * 32)
    expect = {
        "none": None,
        "head": found,
        "stale": Head(found.seq - 1, b"\0" * 32),
        "beyond": Head(found.seq + 1, b"\2" * 32),
    }
    summary = store.summary(log) if shown else None
    blobs = (codec.make_blob(codec.pack(log * 2000))[1],) if blob else ()
    return Write(log, draft(*(note(f"{kind} {n}") for n in range(count))), expect[kind], None, summary, blobs)


def shown(store, mark):
    logs = [f"{mark}-{name}" for name in NAMES]
    return [
        (store.read(log), store.head(log), store.summary(log), store.blobs_of(log) if store.head(log) else 0)
        for log in logs
    ] + [store.owner_of_key(f"{mark}-{key}") for key in KEYS]


@given(batches=st.lists(st.lists(groups, min_size=1, max_size=4), min_size=1, max_size=4))
def test_it_decides_every_batch_as_the_store_in_memory_does(shared, batches):
    memory, mark = MemoryStore(), str(time.monotonic_ns())
    for batch in batches:
        made = [
            Group(
                tuple(made_write(memory, mark, write) for write in several),
                tuple(UniqueKey(f"{mark}-{key}", f"{mark}-a", "s#1") for key in keys),
                tuple(f"{mark}-{key}" for key in freed_keys),
            )
            for several, keys, freed_keys in batch
        ]
        theirs, ours = memory.append(made), shared.append(made)
        assert [str(one) if isinstance(one, Exception) else one for one in theirs] == [
            str(one) if isinstance(one, Exception) else one for one in ours
        ]
    assert shown(memory, mark) == shown(shared, mark)


@pytest.fixture(scope="module")
def shared(postgres_databases):
    url = postgres_databases.new()
    store = PostgresStore(url)
    yield store
    store.close()
    postgres_databases.drop(url)


def test_logs_are_copied_both_ways_between_sqlite_and_postgresql(postgres_url, tmp_path):
    first, last = str(tmp_path / "a.db"), str(tmp_path / "b.db")
    with holdfast.open(first) as app:
        app.start("a", {"x": "y" * 9000}, id="t", user="ana")
        app.append("t", ev.LogWritten(text="hello"))
        app.fork("t", id="f")
        assert app.copy_to(postgres_url).logs == 2
    with holdfast.open(postgres_url) as app:
        assert app.verify().ok
        assert app.copy_to(last).logs == 2
    with holdfast.open(first) as one, holdfast.open(postgres_url) as two, holdfast.open(last) as three:
        for store in (two.store, three.store):
            for name in ("t", "f"):
                assert store.read(name) == one.store.read(name) != []
                assert store.blobs_of(name) == one.store.blobs_of(name)
                assert store.summary(name) == one.store.summary(name)
        assert three.verify().ok and one.store.blobs_of("t")


# Many at once


def test_many_who_open_a_new_schema_at_once_migrate_it_once(postgres_databases):
    url = postgres_databases.new(empty=True)
    opened, failed = [], []

    def one(number):
        try:
            opened.append(PostgresStore(url))
        except Exception as error:
            failed.append(error)

    run_threads(6, one)
    assert failed == [] and len(opened) == 6
    with psycopg.connect(url) as raw:
        applied = raw.execute("select version from holdfast.migrations order by 1").fetchall()
        assert applied == [(one.version,) for one in migrations("postgres")]
    for store in opened:
        store.close()
    postgres_databases.drop(url)


def test_a_process_that_runs_survives_a_later_migration(store, raw):
    store.append([group(created("t"))])
    for statement in (
        "alter table tasks add column shade text not null default 'grey'",
        "alter table logs add column more bigint",
        "alter table events add column extra text",
        "create table later (x bigint)",
        "insert into migrations values (99, 'later', 'x', 0)",
    ):
        raw.execute(statement)
        head = head_of(store, "t")
        assert isinstance(store.append_event("t", head, draft(note("x"))[0]), bytes)
        assert ok(
            store.append([group(Write("t", draft(note("x")), summary=store.summary("t")), created(statement[:20]))])[0]
        )
        assert len(store.list(Query())) > 0 and store.read("t")


def test_two_processes_that_append_to_many_logs_in_opposite_order_both_go_on(postgres_url):
    stores = [PostgresStore(postgres_url) for _ in range(4)]
    names = [f"t{n}" for n in range(12)]
    stores[0].append([group(created(name)) for name in names])

    def write(number):
        for _ in range(15):
            order = names if number % 2 else names[::-1]
            outcomes = stores[number].append([group(*(Write(name, draft(note("x"))) for name in order))])
            assert ok(outcomes[0])

    failed = []

    def tried(number):
        try:
            write(number)
        except BaseException as error:
            failed.append(error)

    run_threads(4, tried)
    assert failed == []
    assert {len(stores[0].read(name)) for name in names} == {61}
    assert stores[0].check() == []
    for store in stores:
        store.close()


def test_a_blob_that_one_log_loses_while_another_begins_to_use_it_is_kept(postgres_url):
    first, second = PostgresStore(postgres_url), PostgresStore(postgres_url)
    _, blob = codec.make_blob(codec.pack("b" * 5000))
    failed = []

    def work(number):
        store = (first, second)[number]
        try:
            for n in range(40):
                name = f"{number}-{n}"
                ok(store.append([group(created(name))])[0])
                ok(store.append([group(Write(name, draft(note("x")), blobs=(blob,)))])[0])
                assert store.blob(blob.hash) == blob.data, "whoever uses it finds it"
                head = head_of(store, name)
                assert store.remove([Tombstone(name, head.seq, head.digest, AT)]) == [name]
        except BaseException as error:
            failed.append(error)

    run_threads(2, work)
    assert failed == []
    assert first.blob(blob.hash) is None and first.stats().blobs == 0
    first.close()
    second.close()


# Transactions with user code

REFUSED = [
    *("begin", "start transaction", "commit", "end", "rollback", "abort", "ROLLBACK AND CHAIN", "/* x */ commit"),
    *("-- x\n commit", "/* a /* b */ c */commit", "prepare transaction 'x'", "set lock_timeout = 0", "reset all"),
    *("discard all", "listen x", "set session authorization default"),
]


@pytest.mark.parametrize("statement", REFUSED)
def test_user_code_may_not_end_the_transaction_or_leave_a_setting(store, statement, texts):
    begin(store)

    def work(db):
        db.execute("insert into ledger values (1, 'x')")
        with texts.raises(holdfast.StoreError):
            db.execute(statement)
        raise SampleCrash

    with pytest.raises(SampleCrash):
        transact(store, work)
    assert (len(store.read("t")), ledger(store)) == (1, [])


@pytest.mark.parametrize(
    "statement",
    [
        "delete from holdfast.effects",
        "update holdfast.logs set seq = 9",
        "insert into holdfast.tombstones values ('t', 1, 1, sha256('x'), 0, '')",
        "drop table holdfast.snapshots",
        "create index more on holdfast.events (at)",
        "alter table holdfast.tasks add column more text",
        "select nextval('holdfast.logs_log_seq')",
        "do $$ begin delete from holdfast.effects; end $$",
        "with gone as (delete from holdfast.blobs returning 1) select * from gone",
    ],
)
def test_user_code_that_changes_holdfasts_tables_is_rolled_back(store, raw, statement, texts):
    begin(store)
    with texts.raises(holdfast.StoreError):
        transact(store, lambda db: db.execute(statement))
    assert len(store.read("t")) == 1 and store.check() == []
    assert transact(store, lambda db: db.execute("select * from holdfast.events, holdfast.tasks"))


def test_several_statements_in_one_are_refused_by_the_server(store):
    begin(store)
    with pytest.raises(psycopg.errors.SyntaxError):
        transact(store, lambda db: db.execute("insert into ledger values (1, 'x'); commit"))
    assert ledger(store) == []


def test_an_error_that_user_code_swallows_spoils_the_transaction_unless_it_set_a_savepoint(store, texts):
    begin(store)

    def careless(db):
        db.execute("insert into ledger values (1, 'x')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            db.execute("insert into ledger values (1, 'x')")

    def careful(db):
        db.execute("insert into ledger values (1, 'x')")
        db.execute("savepoint a")
        with pytest.raises(psycopg.errors.UniqueViolation):
            db.execute("insert into ledger values (1, 'x')")
        db.execute("rollback to savepoint a")
        db.executemany("insert into ledger values (%s, %s)", [(2, "y"), (3, "z")])
        assert db.execute("select count(*) from ledger where text like '%'").fetchone() == (3,)

    with texts.raises(holdfast.StoreError):
        transact(store, careless)
    assert transact(store, careful)
    assert ledger(store) == [1, 2, 3]


def test_what_user_code_leaves_on_a_connection_is_gone_before_the_next(postgres_url):
    store = PostgresStore(postgres_url + "?connections=1")
    begin(store)

    def work(db):
        db.execute("create temp table scratch (x int)")
        db.execute("select pg_advisory_lock(77)")
        db.execute("set local lock_timeout = '1s'")

    assert transact(store, work)

    def look(db):
        assert db.execute("select to_regclass('scratch')").fetchone() == (None,)
        assert db.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone() == (0,)
        assert db.execute("show lock_timeout").fetchone() == ("10s",)

    assert transact(store, look)
    store.close()


# Settings and addresses


def test_durability_sets_whether_a_commit_waits_for_the_disk(postgres_url):
    seen = {}
    for durability in ("full", "process"):
        store = PostgresStore(postgres_url + "?lock_seconds=3&statement_seconds=7", durability=durability)
        with store._links.link() as link:
            seen[durability] = link.execute("show synchronous_commit").fetchone()[0]
            assert link.execute("show lock_timeout").fetchone() == ("3s",)
            assert link.execute("show statement_timeout").fetchone() == ("7s",)
        store.close()
    assert seen == {"full": "on", "process": "off"}


def test_a_server_that_does_not_wait_for_the_disk_by_default_is_made_to(postgres_url, raw):
    raw.execute(f"alter database {raw.info.dbname} set synchronous_commit = off")
    with holdfast.open(postgres_url) as app, app.store._links.link() as link:
        assert link.execute("show synchronous_commit").fetchone() == ("on",)


@pytest.mark.parametrize("schema", ["agents", 'My "odd" Schéma; --', "select"])
def test_every_schema_is_a_store_of_its_own(postgres_url, schema):
    with holdfast.open(f"{postgres_url}?schema={quote(schema)}") as one, holdfast.open(postgres_url) as other:
        one.start("a", id="t")
        assert [task.id for task in one.list()] == ["t"] and other.list() == []
        assert one.verify().ok and one.store.check() == [] and one.store.stats().tasks == 1


@pytest.mark.parametrize(
    "options",
    [
        "?pooled=session",
        "?pooled=transaction",
        "?connections=0",
        "?lock_seconds=soon",
        "?schema=",
        "?schema=pg_mine",
        "?durability=maybe",
        "?colour=red",
    ],
)
def test_an_address_that_is_not_understood_is_refused(options, texts):
    with texts.raises(holdfast.InvalidUrl):
        holdfast.open("postgresql://user@127.0.0.1:1/x" + options)


def test_no_message_shows_a_password():
    address = parse("postgresql://ana:s3cret@127.0.0.1:1/x?connect_timeout=2")
    assert "s3cret" not in address.shown
    with pytest.raises(holdfast.StoreUnreachable) as caught:
        holdfast.open("postgresql://ana:s3cret@127.0.0.1:1/x?connect_timeout=2")
    assert "s3cret" not in str(caught.value)


# Errors


def test_a_database_or_role_that_is_not_there_is_named(postgres_databases, postgres_url, texts):
    with texts.raises(holdfast.StoreUnreachable):
        holdfast.open(postgres_databases._at("nowhere"))
    with texts.raises(holdfast.StoreUnreachable):
        holdfast.open(postgres_url.replace("postgres@", "nobody_there@"))


def test_a_wrong_password_says_so_at_once(texts):
    found = binaries()
    if found is None:
        pytest.skip("there are no binaries of a server to start")
    server = Server(found, password="right")
    began = time.monotonic()
    with texts.raises(holdfast.StoreUnreachable):
        holdfast.open(server.url().replace("postgres@", "postgres:wrong@"))
    with texts.raises(holdfast.StoreUnreachable):
        holdfast.open(server.url())
    assert time.monotonic() - began < 20
    holdfast.open(server.url().replace("postgres@", "postgres:right@")).close()
    server.stop()


def test_a_role_without_rights_is_told_what_it_needs(postgres_databases, texts):
    url = postgres_databases.new(empty=True)
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("drop role if exists holdfast_guest")
        raw.execute("create role holdfast_guest login")
    guest = url.replace("postgres@", "holdfast_guest@")
    with texts.raises(holdfast.StoreReadOnly):
        holdfast.open(guest)
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("create schema holdfast authorization holdfast_guest")
    with holdfast.open(guest) as app:
        assert app.start("a", id="t").id == "t"
    postgres_databases.drop(url)
    postgres_databases._execute("drop role holdfast_guest")


def test_a_schema_that_is_too_new_foreign_or_changed_is_refused(postgres_url, raw, texts):
    raw.execute("insert into migrations values (99, 'later', 'x', 0)")
    with texts.raises(holdfast.StoreTooNew):
        holdfast.open(postgres_url)
    raw.execute("delete from migrations where version = 99")
    raw.execute("update migrations set checksum = 'x' where version = 1")
    with texts.raises(holdfast.StoreError):
        holdfast.open(postgres_url)
    raw.execute("create schema theirs; create table theirs.events (x int)")
    with texts.raises(holdfast.NotAStore):
        holdfast.open(postgres_url + "?schema=theirs")


def test_a_schema_from_before_mock_tasks_learns_of_them_and_keeps_its_tasks(postgres_url, raw):
    with holdfast.open(postgres_url) as app:
        app.start("a", id="t")
    raw.execute("alter table tasks drop column mock; delete from migrations where version = 2")
    with holdfast.open(postgres_url) as app:
        app.start("a", id="m", mock=True)
        assert {one.id: one.mock for one in app.list()} == {"t": False, "m": True}


def test_a_pool_without_a_free_connection_and_a_lock_that_is_held_are_busy(postgres_url, raw, texts):
    store = PostgresStore(postgres_url + "?connections=1&wait_seconds=0.1&lock_seconds=0.1&statement_seconds=0.5")
    store.append([group(created("t"))])
    head = head_of(store, "t")
    with store._links.link(), texts.raises(holdfast.StoreBusy):
        store.append([group(created("u"))])
    with raw.transaction():
        raw.execute("select from logs for update")
        for write in (Write("t", draft(note("x")), head), Write("t", draft(note("x")))):
            with texts.raises(holdfast.StoreBusy):
                store.append([group(write)])
        with pytest.raises(holdfast.StoreBusy):
            store.append_event("t", head, draft(note("x"))[0])
    with raw.transaction():
        raw.execute("lock table events in access exclusive mode")
        with pytest.raises(holdfast.StoreBusy):
            store.read("t")
    assert isinstance(store.append_event("t", head, draft(note("x"))[0]), bytes)
    store.close()


def test_text_that_postgresql_cannot_keep_is_refused_and_nothing_written(postgres_url, texts):
    with holdfast.open(postgres_url) as app:
        app.start("a", id="t")
        with texts.raises(holdfast.InvalidValue):
            app.append("t", ev.TaskClaimed(holder="a\0b"))
        assert app.get("t").seq == 1
        assert app.append("t", ev.LogWritten(text="a\0b")), "the body of an event may hold anything"


def test_a_database_that_refuses_an_event_for_a_reason_of_its_own_is_named(postgres_url, raw, texts):
    raw.execute("create function odd() returns trigger language plpgsql as $$ begin raise exception 'odd'; end $$")
    when = "when (new.kind = 'step_completed')"
    raw.execute(f"create trigger odd before insert on events for each row {when} execute function odd()")

    @holdfast.agent
    def worker(task):
        return task.step(lambda: 1, name="one")

    with holdfast.open(postgres_url) as app, texts.raises(holdfast.LogCorrupt):
        app.run(worker, id="t")


def test_a_backup_is_left_to_the_tools_of_the_server(store, tmp_path, texts):
    with texts.raises(holdfast.StoreError):
        store.backup(str(tmp_path / "x"))


def test_a_forked_child_is_told_to_open_its_own(store):
    code = """
import os, sys, holdfast
from holdfast.store.postgres.store import PostgresStore
store = PostgresStore(sys.argv[1])
store.head("t"), store.holder()
if os.fork() == 0:
    try:
        store.head("t")
    except holdfast.StoreClosed as error:
        store.close()
        os._exit(7 if "fork" in str(error) else 1)
    os._exit(1)
_, status = os.wait()
assert store.head("t") is None and store.alive(store.holder())
sys.exit(os.waitstatus_to_exitcode(status))
"""
    url = store._links.address.conninfo
    place = dict(part.split("=") for part in url.split() if "=" in part)
    address = f"postgresql://{place['user']}@{place['host']}:{place['port']}/{place['dbname']}"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code, address], capture_output=True, text=True)
    assert done.returncode == 7, done.stderr


def test_without_psycopg_the_extra_is_named():
    code = "import sys; sys.modules['psycopg'] = None; import holdfast; holdfast.open('postgresql://x/y')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "MissingExtra" in done.stderr and "pip install 'path/to/holdfast[postgres]'" in done.stderr


def test_readers_do_not_wait_for_a_transaction(store):
    begin(store)
    head = head_of(store, "t")
    seen = []

    def work(db):
        db.execute("insert into ledger values (1, 'x')")
        reader = threading.Thread(target=lambda: seen.append((store.head("t"), len(store.list(Query())))))
        reader.start()
        reader.join(timeout=30)
        assert seen == [(head, 1)]

    assert transact(store, work)

"""Transactions with user code in them: what SQLite lets it do, what a crash leaves, and how others fare meanwhile."""

import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import apsw
import pytest

import holdfast
from holdfast import events as ev
from holdfast.core.codec import Group, UniqueKey, Write
from holdfast.failpoints import armed
from holdfast.store.memory.store import MemoryStore
from holdfast.store.sqlite import queries as q
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.auditor import audit
from holdfast.testing.conformance.samples import SampleCrash, draft, group, head_of, note, ok
from holdfast.testing.conformance.transact import ENDLESS, begin, entry, ledger


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "shop.db")


@pytest.fixture
def store(path):
    store = SqliteStore(path)
    begin(store)
    yield store
    store.close()
    assert audit(path) == []


def transact(store, work, seconds=None):
    """Run work that writes one event after the head of `t` when it has done its own."""
    head = head_of(store, "t")

    def and_record(connection):
        work(connection)
        return group(Write("t", draft(note("done")), head))

    return store.transact("t", head, and_record, seconds)


def contents(path):
    """Everything in Holdfast's own tables."""
    raw = apsw.Connection(path)
    tables = [name for (name,) in raw.execute(q.TABLES) if name != "ledger"]
    found = {name: raw.execute(f'select * from "{name}" order by 1, 2').fetchall() for name in tables}
    raw.close()
    return found


# What user code may not do

REFUSED = [
    *("begin", "begin immediate", "commit", "end", "rollback"),
    *("attach ':memory:' as other", "detach main", "analyze", "analyze ledger"),
    *("pragma synchronous = off", "pragma journal_mode = delete", "pragma journal_mode", "pragma user_version = 9"),
    *("pragma writable_schema = on", "pragma foreign_keys = on", "pragma wal_checkpoint", "pragma optimize"),
    *("PRAGMA Synchronous = 0", "pragma page_size = 512", "pragma table_info = 1; commit"),
    "insert into events values (1, 2, 'x', 0, null, zeroblob(32), zeroblob(32))",
    *("INSERT INTO Events SELECT * FROM events", 'insert into main."events" select * from events'),
    *("update events set kind = 'x'", "delete from events", "delete from events where seq = 99", "drop table events"),
    *("update logs set name = 'u'", "delete from tasks", "replace into effects values ('k', 't', 's', '')"),
    *("delete from snapshots", "delete from blobs", "delete from blob_uses", "delete from migrations"),
    *(
        "insert into tombstones values ('t', 1, 1, zeroblob(32), 0, '')",
        "insert into erasures values (1, 1, '', '', 0)",
    ),
    *("alter table events add column more", "alter table tasks rename to tasks2", "alter table logs drop column base"),
    *("create index more on events (at)", "drop index events_cold", "drop trigger events_are_never_changed"),
    "create trigger mine after insert on events begin select 1; end",
    "create temp trigger mine after insert on main.events begin select 1; end",
    *("create temp table events (log)", "create temp table scratch (x)", "create temp view logs as select 1"),
    *(
        "create temporary table EVENTS as select 1",
        "create table temp.events (log)",
        "create view temp.tasks as select 1",
    ),
    *("create virtual table temp.events using fts5 (log)", "create virtual table temp.scratch using dbstat"),
    "explain insert into effects values ('k', 't', 's', '')",
    "with x as (select 1) delete from effects",
    "insert into effects select 'k', 't', 's', '' on conflict do update set step = 'x'",
    *("select 1; commit", "insert into ledger values (9, 'x'); rollback"),
]


@pytest.mark.parametrize("statement", REFUSED)
def test_it_may_not_touch_the_transaction_the_connection_or_holdfasts_tables(store, path, statement, texts):
    before = contents(path)

    def work(db):
        with texts.raises(apsw.AuthError):
            db.execute(statement)
        assert db.execute("select count(*) from ledger where id <> 9").fetchall() == [(0,)], "it goes on"
        raise SampleCrash

    with pytest.raises(SampleCrash):
        transact(store, work)
    assert contents(path) == before
    assert transact(store, lambda db: db.execute("insert into ledger values (1, 'x')"))


@pytest.mark.parametrize("statement", ["vacuum", "vacuum into ?", "select load_extension('x')"])
def test_it_may_not_do_either_what_sqlite_itself_refuses(store, tmp_path, statement):
    def work(db):
        with pytest.raises(apsw.Error):
            db.execute(statement, (str(tmp_path / "copy.db"),) if "?" in statement else ())

    assert transact(store, work)
    assert not (tmp_path / "copy.db").exists()


def test_a_refusal_says_what_is_not_allowed(store, texts):
    def work(db):
        for statement in ("commit", "Delete From Events", "pragma synchronous = off", "create temp table x (y)"):
            with texts.raises(apsw.AuthError):
                db.execute(statement)

    assert transact(store, work)


def test_a_store_in_memory_refuses_the_same_names(path):
    store = MemoryStore()
    begin(store)

    def work(db):
        for statement in ("create table Events (x)", "create temp table x (y)", "commit"):
            with pytest.raises(apsw.AuthError):
                db.execute(statement)

    assert transact(store, work)


def test_a_statement_of_the_stores_own_that_is_still_prepared_is_refused_too(store):
    one = draft(note("x"))[0]
    row = (1, 3, one.kind, one.at_us, one.body, one.body_hash, b"\0" * 32)
    for _ in range(3):
        store.append([group(Write("t", (one, one)))])

    def work(db):
        for _ in range(2):
            with pytest.raises(apsw.AuthError):
                db.execute(q.INSERT_EVENT, row)
        with pytest.raises(apsw.AuthError):
            db.executemany(q.INSERT_EVENT, [row])

    assert transact(store, work)
    assert store.append([group(Write("t", (one, one)))]), "and the store itself may use it again"


def test_a_trigger_of_the_users_cannot_reach_holdfasts_tables_either(store):
    def work(db):
        db.execute("create trigger sly after insert on ledger begin delete from effects; end")
        with pytest.raises(apsw.AuthError):
            db.execute("insert into ledger values (1, 'x')")
        db.execute("drop trigger sly")

    assert transact(store, work)


@pytest.mark.parametrize("statement", ["update sqlite_sequence set seq = 0", "delete from sqlite_sequence"])
def test_the_numbers_of_logs_are_not_given_twice(store, statement, texts):
    before = head_of(store, "t")
    with texts.raises(holdfast.StoreError):
        transact(store, lambda db: db.execute(statement))
    assert store.head("t") == before


# What it may do


def test_it_may_do_what_it_likes_with_tables_of_its_own(store, path):
    def make(db):
        db.execute("create table mine (id integer primary key autoincrement, events text unique)")
        db.execute("create table notes (id integer references mine, text)")
        db.execute("create index by_text on notes (text); create view all_of_it as select * from mine")
        db.execute("create trigger copies after insert on mine begin insert into notes values (new.id, 'made'); end")
        db.execute("create virtual table found using fts5 (text)")

    def use(db):
        db.executemany("insert into mine (events) values (?)", [("a",), ("b",)])
        db.execute("update mine set events = :text where id = :id", {"text": "c", "id": 2})
        db.execute("insert into found values ('needle in hay')")
        assert db.execute("select events from all_of_it order by id").fetchall() == [("a",), ("c",)]
        assert db.execute("select count(*) from found where found match 'needle'").fetchone() == (1,)
        assert db.execute("select name from pragma_table_info('notes')").fetchall() == [("id",), ("text",)]
        assert len(db.execute("pragma table_info(mine)").fetchall()) == 2
        assert db.execute("select name, max(seq) from logs join events using (log)").fetchone()[0] == "t"

    def change(db):
        db.execute("alter table mine rename column events to words; alter table mine add column more")
        db.execute("alter table mine rename to ours; alter table ours drop column more")
        db.execute("drop view all_of_it; drop trigger copies; drop index by_text; drop table found; drop table notes")
        db.execute("drop table ours")

    for work in (make, use, change):
        assert transact(store, work)
        store.close()
        store.__init__(path)
    assert [row.seq for row in store.read("t")] == [1, 2, 3, 4]
    assert store.check() == []


def test_savepoints_lie_inside_the_transaction(store):
    def work(db):
        db.execute("savepoint a; insert into ledger values (1, 'x'); rollback to a; release a")
        db.execute("savepoint a; insert into ledger values (2, 'x'); release a")
        assert SqliteStore(store.path).read("t") == store.read("t"), "nothing is committed yet"
        db.execute("savepoint left_open; insert into ledger values (3, 'x')")

    assert transact(store, work)
    assert ledger(store) == [2, 3]

    def fails(db):
        db.execute("savepoint a; insert into ledger values (4, 'x'); release a; savepoint b")
        raise SampleCrash

    with pytest.raises(SampleCrash):
        transact(store, fails)
    assert ledger(store) == [2, 3]


# Errors


def test_an_error_of_a_users_statement_is_its_own_and_does_not_poison_the_store(store):
    def doubled(db):
        for _ in range(2):
            db.execute("insert into ledger values (1, 'x')")

    def at_the_disk(db):
        raise apsw.IOError("a file of the user's own")

    for work, error in ((doubled, apsw.ConstraintError), (at_the_disk, apsw.IOError)):
        with pytest.raises(error) as caught:
            transact(store, work)
        assert type(caught.value) is error
    assert ledger(store) == []
    assert transact(store, lambda db: db.execute("insert into ledger values (1, 'x')"))


def test_an_error_that_user_code_handles_costs_nothing(store):
    def work(db):
        db.execute("insert into ledger values (1, 'x')")
        with pytest.raises(apsw.ConstraintError):
            db.execute("insert into ledger values (1, 'x')")
        with pytest.raises(apsw.SQLError):
            db.execute("insert into nowhere values (1)")
        db.execute("insert into ledger values (2, 'x')")

    assert transact(store, work)
    assert ledger(store) == [1, 2]


@pytest.mark.parametrize("then", ["insert into ledger values (3, 'alone')", "savepoint a", "select 1"])
def test_after_an_error_that_rolls_back_nothing_more_can_be_written(store, then, texts):
    def work(db):
        db.execute("insert into ledger values (1, 'x')")
        with pytest.raises(apsw.ConstraintError):
            db.execute("insert or rollback into ledger values (1, 'x')")
        with texts.raises(holdfast.StoreError):
            db.execute(then)

    with texts.raises(holdfast.StoreError):
        transact(store, work)
    assert (len(store.read("t")), ledger(store)) == (1, [])


@pytest.mark.parametrize("statement", ["insert into ledger (text) values (?)", "savepoint a", "select ?"])
def test_a_transaction_that_is_lost_between_two_rows_stays_lost(store, statement, texts):
    def work(db):
        def rows():
            yield "x" * statement.count("?")
            with pytest.raises(apsw.ConstraintError):
                db.execute("insert or rollback into ledger values (1, null)")
            yield "x" * statement.count("?")

        with suppress(apsw.ConstraintError):
            db.executemany(statement, rows())

    with texts.raises(holdfast.StoreError):
        transact(store, work)
    assert (len(store.read("t")), ledger(store)) == (1, [])


def test_an_error_of_the_commit_itself_is_the_stores(store):
    def fail(name):
        if name == "commit.before":
            raise apsw.IOError("the disk is gone")

    with pytest.raises(holdfast.StorePoisoned), armed(fail):
        transact(store, lambda db: db.execute("insert into ledger values (1, 'x')"))
    with pytest.raises(holdfast.StorePoisoned):
        store.append([group(Write("t", draft(note("x"))))])
    again = SqliteStore(store.path)
    assert (len(again.read("t")), ledger(again)) == (1, [])
    again.close()


# Time


def test_the_limit_interrupts_a_statement_and_nothing_after_the_transaction(store):
    started = time.monotonic()
    with pytest.raises(holdfast.TimeLimit) as caught:
        transact(store, lambda db: db.execute(f"insert into ledger select 1, 'x' where ({ENDLESS}) > 0"), 0.1)
    assert time.monotonic() - started < 60
    assert isinstance(caught.value.__cause__, apsw.InterruptError)
    assert caught.value.details == {"seconds": 0.1}
    assert ok(transact(store, lambda db: None, 0.05))
    time.sleep(0.1)
    count = "with recursive n (x) as (select 1 union all select x + 1 from n limit 1000000) select count(*) from n"
    assert store._writable().execute(count).get == 1_000_000, "the limit is over with its transaction"


def test_an_error_after_the_limit_is_the_limits(store):
    def work(db):
        time.sleep(0.02)
        raise ValueError("because it was slow")

    with pytest.raises(holdfast.TimeLimit) as caught:
        transact(store, work, 0.01)
    assert isinstance(caught.value.__cause__, ValueError)


# Crashes


@pytest.mark.parametrize("point", ["append.before", "commit.before", "commit.after", "append.after"])
def test_after_a_crash_the_same_store_goes_on(store, point):
    def crash(name):
        if name == point:
            raise SampleCrash

    with pytest.raises(SampleCrash), armed(crash):
        transact(store, lambda db: db.execute("insert into ledger values (1, 'x')"))
    written = point in ("commit.after", "append.after")
    assert (len(store.read("t")), ledger(store)) == ((2, [1]) if written else (1, []))
    assert store._writable().authorizer is None
    assert transact(store, lambda db: db.execute("insert into ledger values (2, 'x')"))


KILLED = """
import os, signal, sys
from holdfast.core.codec import Group, Write
from holdfast.failpoints import armed
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.conformance.samples import draft, group, head_of, note

def die(name):
    if name == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

def work(db):
    for id in range(200):
        db.execute("insert into ledger values (?, ?)", (id, "x" * 40_000))  # more than stays in memory
    die("work")
    return group(Write("t", draft(note("done")), head))

store = SqliteStore(sys.argv[1])
head = head_of(store, "t")
with armed(die):
    store.transact("t", head, work)
"""


@pytest.mark.parametrize("point", ["work", "commit.before", "commit.after"])
def test_a_process_killed_inside_it_leaves_both_or_neither(path, point):
    store = SqliteStore(path)
    begin(store)
    done = subprocess.run([sys.executable, "-c", KILLED, path, point], stderr=subprocess.PIPE)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    rows = list(range(200)) if point == "commit.after" else []
    for opened in (store, SqliteStore(path)):
        assert ledger(opened) == rows
        assert len(opened.read("t")) == (2 if rows else 1)
        assert opened.check() == []
        opened.close()
    assert audit(path) == []


# Others


def test_readers_do_not_wait_for_it(store):
    head = head_of(store, "t")
    seen = []

    def look():
        seen.append((store.head("t"), [row.id for row in store.list(holdfast.store.protocol.Query())]))
        seen.append(store.alive(store.holder()))

    def work(db):
        db.execute("insert into ledger values (1, 'x')")
        reader = threading.Thread(target=look)
        reader.start()
        reader.join(timeout=30)
        assert seen == [(head, ["t"]), True]

    assert transact(store, work)


def test_another_process_that_writes_waits_for_it(store, path):
    other = SqliteStore(path)
    outcomes = []

    def write():
        outcomes.append(other.append([group(Write("t", draft(note("late"))))])[0])

    def work(db):
        thread.start()
        time.sleep(0.1)
        assert outcomes == []

    thread = threading.Thread(target=write)
    assert ok(transact(store, work))[0].first == 2
    thread.join()
    assert ok(outcomes[0])[0].first == 3
    other.close()


def test_its_connection_belongs_to_the_thread_it_was_given_to(store, texts):
    refused = []

    def elsewhere(db):
        try:
            db.execute("insert into ledger values (1, 'x')")
        except holdfast.StoreError as error:
            refused.append(error.message)

    def work(db):
        thread = threading.Thread(target=elsewhere, args=(db,))
        thread.start()
        thread.join()

    assert transact(store, work)
    assert len(refused) == 1
    texts.check(refused[0])
    assert ledger(store) == []


# Through the committer


@pytest.fixture
def committer(app):
    begin(app.store)
    return app.logs.committer


def test_the_committer_gives_places_or_raises_what_kept_the_group_out(app, committer):
    head = head_of(app.store, "t")
    (placed,) = committer.transact("t", head, entry(app.store, 1))
    assert placed.first == 2
    with pytest.raises(holdfast.Conflict):
        committer.transact("t", head, entry(app.store, 2))
    committer.commit(group(Write("t", draft(note("pays"))), unique_keys=(UniqueKey("k", "t", "pay#1"),)))
    with pytest.raises(holdfast.KeyTaken):
        committer.transact(
            "t", head_of(app.store, "t"), entry(app.store, 2, unique_keys=(UniqueKey("k", "t", "pay#2"),))
        )
    slow = entry(app.store, 2, then=lambda: time.sleep(0.05))
    with pytest.raises(holdfast.TimeLimit):
        committer.transact("t", head_of(app.store, "t"), slow, 0.01)
    assert ledger(app.store) == [1]
    assert committer.commit(group(Write("t", draft(note("goes on")))))[0].first == 4


def test_user_code_that_commits_inside_its_own_transaction_is_told_so(app, committer, texts):
    store, head = app.store, head_of(app.store, "t")
    verbs = [
        lambda: committer.commit(group(Write("t", draft(note("beside"))))),
        lambda: committer.commit_event("t", head, draft(note("beside"))[0]),
        lambda: committer.transact("t", head, entry(store, 2)),
        lambda: committer.close(),
        lambda: app.append("t", ev.LogWritten(text="beside")),
        lambda: app.start("a", id="beside"),
    ]

    def misuse():
        for verb in verbs:
            with texts.raises(holdfast.InvalidEvent):
                verb()

    assert committer.transact("t", head, entry(store, 1, then=misuse))[0].first == 2
    assert (store.logs(), len(store.read("t")), ledger(store)) == (["t"], 2, [1])
    assert app.append("t", ev.LogWritten(text="after it"))


def test_others_queue_while_it_runs_and_are_written_after_it(app, committer):
    store = app.store
    places = []
    groups = [group(Write("t", draft(note(str(n))))) for n in range(8)]
    threads = [threading.Thread(target=lambda one=one: places.extend(committer.commit(one))) for one in groups]

    def others_come():
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        assert places == []

    assert committer.transact("t", head_of(store, "t"), entry(store, 1, then=others_come))[0].first == 2
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(placed.first for placed in places) == list(range(3, 11))


def test_a_group_of_an_async_agent_is_written_after_it(app, committer):
    store = app.store
    settled = []
    done = threading.Event()

    def resolve(tickets):
        settled.extend(tickets)
        done.set()

    def other_comes():
        committer.submit(group(Write("t", draft(note("async")))), resolve, None)
        assert not done.wait(0.1)

    committer.transact("t", head_of(store, "t"), entry(store, 1, then=other_comes))
    assert done.wait(30)
    assert settled[0].result()[0].first == 3


def test_transactions_and_commits_of_many_threads_keep_ledger_and_log_alike(app, committer):
    store, threads, rounds = app.store, 6, 20
    starting = threading.Barrier(threads)
    done = []

    def work(number):
        starting.wait()
        for n in range(rounds):
            if n % 3 == 0:
                committer.commit(group(Write("t", draft(note("between")))))
                continue
            while True:
                head = head_of(store, "t")

                def insert(db, id=number * rounds + n, head=head):
                    db.execute("insert into ledger values (?, 'x')", (id,))
                    return group(Write("t", draft(note(f"entry {id}")), head))

                try:
                    committer.transact("t", head, insert, 60)
                except holdfast.Conflict:
                    continue
                done.append(number * rounds + n)
                break

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    recorded = [record.event.text for record in app.events("t") if record.kind == "log_written"]
    entries = sorted(int(text.removeprefix("entry ")) for text in recorded if text.startswith("entry"))
    assert len(done) == threads * (rounds - 7)
    assert ledger(store) == entries == sorted(done)
    assert app.verify("t").ok


def test_a_group_may_be_empty_or_of_several_logs(app, committer):
    app.start("a", id="u")

    def both(db):
        db.execute("insert into ledger values (1, 'x')")
        return Group((Write("t", draft(note("1"))), Write("u", draft(note("2")))))

    assert [placed.first for placed in committer.transact("t", head_of(app.store, "t"), both)] == [2, 2]
    assert committer.transact("t", head_of(app.store, "t"), lambda db: Group(())) == ()

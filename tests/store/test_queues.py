"""Queues where there are several processes: who was killed or is frozen, what is heard, and which index is used."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

import holdfast
from holdfast import events as ev
from holdfast.core.codec import Write
from holdfast.store.queues import Rate
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.auditor import audit
from holdfast.testing.conformance.samples import (
    AT,
    add,
    check_chain,
    claim,
    draft,
    group,
    note,
    summary_of,
    take,
    then,
    wanted,
    within,
)
from holdfast.testing.conformance.transact import run_threads

ALL = os.environ.get("HOLDFAST_TEST_ALL") == "1"
ROUNDS = 3000 if ALL else 300
CROWD = 20_000 if ALL else 4_000
PATIENCE_SECONDS = 20
CHILD = """
import sys, time
from holdfast.engine.logs.addresses import open_store
from holdfast.testing.conformance.samples import add, claim, take, wanted
store = open_store(sys.argv[1], durability=None, snapshots_kept=2, at_us=0)
print("open", flush=True)
for line in sys.stdin:
    word, *rest = line.split()
    if word == "claim":
        print(store.holder(), *claim(store, limit=int(rest[0])), flush=True)
    if word == "announce":
        store.queues.announce(rest[0])
        print(store.holder(), flush=True)
    if word == "close":
        store.close()
        print("closed", flush=True)
    if word == "add":
        add(store, rest[0])
        print("added", flush=True)
    if word == "claim-all":
        found, empty = [], 0
        while empty < 20:
            taken = claim(store, limit=3)
            found += taken
            empty = 0 if taken else empty + 1
        print(*found, flush=True)
"""


class Other:
    """A process of its own with the store open."""

    def __init__(self, url, prelude=""):
        self.process = subprocess.Popen(
            [sys.executable, "-c", prelude + CHILD, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == "open\n"

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self):
        return self.process.stdout.readline().split()

    def ask(self, line):
        self.tell(line)
        return self.hear()

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def store(place):
    store = open_store(place)
    yield store
    store.close()


@pytest.fixture
def other(place, store):
    other = Other(place)
    yield other
    other.end()


def open_store(url):
    from holdfast.engine.logs import addresses

    return addresses.open_store(url, durability=None, snapshots_kept=2, at_us=0)


# Several processes


def test_one_who_was_killed_is_lost_at_once_and_no_longer_serves(store, other):
    add(store, "t")
    holder, *taken = other.ask("claim 1")
    assert taken == ["t"]
    assert other.ask("announce everything") == [holder]
    assert [one.holder for one in store.queues.announced()] == [holder]
    assert store.queues.lost() == {}
    other.process.kill()
    other.process.wait()
    assert within(PATIENCE_SECONDS, lambda: store.queues.lost() == {holder: "proven"})
    assert within(PATIENCE_SECONDS, lambda: store.queues.announced() == [])
    assert claim(store, lost=(holder,)) == ["t"]
    assert check_chain(store, "t") == ["task_created", "task_claimed", "task_claimed"]


def test_what_another_process_makes_ready_is_heard_of(store, other):
    ears = store.queues.listen()
    for number in range(3):
        assert ears.wait(0.05) is False
        other.tell(f"add t{number}")
        assert ears.wait(PATIENCE_SECONDS) is True
        assert other.hear() == ["added"]
        ears.wait(0.05)  # an echo is allowed
    ears.close()


def test_processes_never_take_the_same_task_and_every_log_stays_whole(place, store, tmp_path):
    names = [f"t{number}" for number in range(60)]
    for name in names:
        add(store, name)
    others = [Other(place) for _ in range(2)]
    try:
        for other in others:
            other.tell("claim-all")
        mine = [name for _ in range(20) for name in claim(store, limit=1)]
        taken = [*mine, *(name for other in others for name in other.hear())]
    finally:
        for other in others:
            other.end()
    while found := claim(store):  # what was passed over because somebody was at it
        taken += found
    assert Counter(taken) == Counter(names)
    for name in names:
        assert check_chain(store, name) == ["task_created", "task_claimed"]
    if place.startswith("sqlite"):
        store.close()
        assert audit(tmp_path / "store.db") == []


def test_a_task_that_was_claimed_by_a_store_verifies(place, store):
    with holdfast.open(place) as app:
        add(store, "t")
        claim(store)
        assert app.verify("t")


# PostgreSQL: leases, connections, locks


@pytest.fixture
def psycopg():
    return pytest.importorskip("psycopg", reason="psycopg is not installed")


@pytest.fixture
def raw(postgres_url, psycopg):
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("set search_path = holdfast")
        yield connection


@pytest.fixture
def pg(postgres_url):
    store = open_store(postgres_url)
    yield store
    store.close()


def test_one_who_is_frozen_is_lost_after_its_lease_and_not_once_it_beats_again(pg, postgres_url):
    other = Other(postgres_url + "?lease_seconds=1.5")
    try:
        add(pg, "t")
        holder, *_ = other.ask("claim 1")
        assert summary_of(pg, "t").lease_seconds == 1.5
        for _ in range(15):
            assert pg.queues.lost() == {}, "it is heard of often enough"
            time.sleep(0.1)
        other.process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        assert within(PATIENCE_SECONDS, lambda: pg.queues.lost() == {holder: "presumed"})
        assert time.monotonic() - stopped > 0.3, "but not before its lease is over"
        assert pg.alive(holder) and not pg.alive(holder, 1.5)
        other.process.send_signal(signal.SIGCONT)
        assert within(PATIENCE_SECONDS, lambda: pg.queues.lost() == {})
        assert pg.alive(holder, 1.5)
        other.process.send_signal(signal.SIGSTOP)
        assert within(PATIENCE_SECONDS, lambda: pg.queues.lost() == {holder: "presumed"})
        assert claim(pg, lost=(holder,)) == ["t"]
        assert pg.queues.lost() == {}, "it holds nothing any more"
    finally:
        other.end()


def test_a_holder_without_a_lease_or_a_beat_is_not_lost_while_it_lives(pg, raw):
    add(pg, "t")
    claim(pg)
    raw.execute("update tasks set lease_seconds = 0")
    assert pg.queues.lost() == {}
    raw.execute("update tasks set lease_seconds = 0.001")
    raw.execute("delete from holders")
    assert pg.queues.lost() == {}


def test_rows_of_holders_long_gone_are_taken_away(postgres_url, raw):
    raw.execute("insert into holders values ('pg-old', '', now() - interval '2 days'), ('pg-new', '', now())")
    store = open_store(postgres_url)
    name = store.holder()
    assert {row[0] for row in raw.execute("select name from holders")} == {"pg-new", name}
    store.close()


def test_one_who_listens_hears_again_after_its_connection_was_cut(pg, raw):
    """It listens on the session that proves its process alive, which takes its lock again when it is cut."""
    ears = pg.queues.listen()
    held = "select pid from pg_locks where locktype = 'advisory' and granted"
    assert raw.execute(f"select pg_terminate_backend(pid) from ({held}) as held").fetchall() == [(True,)]
    assert ears.wait(PATIENCE_SECONDS) is True, "something may have been missed until it listens again"
    assert ears.wait(0.05) is False
    add(pg, "t")
    assert ears.wait(PATIENCE_SECONDS) is True
    ears.close()


def test_only_tasks_that_become_ready_are_told_of(pg, raw):
    add(pg, "t")
    ears = pg.queues.listen()
    claim(pg)
    then(pg, "t", ev.StageSet(stage="working"))
    then(pg, "t", ev.TaskSuspended(why="person"))
    assert ears.wait(0.1) is False
    then(pg, "t", ev.CancelRequested(why="x"))
    assert ears.wait(PATIENCE_SECONDS) is True
    ears.close()


def test_what_somebody_is_at_is_passed_over_and_what_is_behind_it_is_found(pg, raw):
    for number in range(4):
        add(pg, f"t{number}")
    raw.execute("begin")
    raw.execute("select from logs where name = 't0' for no key update")
    raw.execute("select from tasks where log = (select log from logs where name = 't1') for no key update")
    began = time.monotonic()
    assert claim(pg, limit=1) == ["t2"]
    assert claim(pg) == ["t3"]
    assert time.monotonic() - began < 20, "nobody waits"
    raw.execute("rollback")
    assert claim(pg) == ["t0", "t1"]


def test_tasks_that_are_not_taken_are_not_kept_from_others(pg, postgres_url):
    """One who asks for one task locks one, whatever else there is."""
    for number in range(5):
        add(pg, f"t{number}")
        add(pg, f"w{number}", start_us=AT - 1)
    other, found = open_store(postgres_url), []

    def look_meanwhile(due):
        found.extend(claim(other))
        return take(pg)(due)

    assert list(pg.queues.claim(wanted(limit=1), look_meanwhile)) == ["t0"]
    assert len(found) == 9
    other.close()


def test_many_rounds_of_claims_and_signals_meet_no_deadlock(pg, postgres_url, raw, psycopg):
    stores = [pg, *(open_store(postgres_url) for _ in range(3))]
    tasks = 20
    for number in range(tasks):
        add(pg, f"t{number}", queue_key=f"k{number % 7}")
    failed, claims, done = [], Counter(), threading.Event()
    limits = ({}, {}, {"per_key": 3}, {"concurrency": 15}, {"rate": Rate(1e6, 1)})

    def claim_and_release(number):
        store = stores[number % 4]
        while sum(claims.values()) < ROUNDS and not failed:
            names = claim(store, limit=1 + number % 4, **limits[number % 5])
            claims.update(names)
            for name in names:
                row = summary_of(store, name)
                assert (row.status, row.holder) == ("running", store.holder()), "nobody else took it"
                then(store, name, ev.TaskReleased())
        done.set()

    def signal_on(number):
        while not done.is_set() and not failed:
            several = [f"t{(number * 5 + step) % tasks}" for step in (7, 0, 3)]
            writes = [group(Write(name, draft(note("signal")))) for name in several]
            outcomes = stores[number % 4].append([*writes, group(*(Write(name, draft(note("x"))) for name in several))])
            assert all(isinstance(outcome, tuple) for outcome in outcomes)

    def work(number):
        try:
            claim_and_release(number) if number < 8 else signal_on(number)
        except BaseException as error:
            failed.append(error)

    run_threads(10, work)
    assert failed == []
    time.sleep(1.1)  # counters reach others after a second
    found = raw.execute("select deadlocks, conflicts from pg_stat_database where datname = current_database()")
    assert found.fetchone() == (0, 0)
    kinds = Counter(kind for number in range(tasks) for kind in check_chain(pg, f"t{number}"))
    assert kinds["task_claimed"] == kinds["task_released"] == sum(claims.values()) >= ROUNDS
    for store in stores[1:]:
        store.close()


# Which index is used


def crowd_postgres(raw):
    """Tasks that wait, are done, or are of an agent that nobody serves: ready, and due."""
    raw.execute(
        "insert into logs (name, seq, digest) select 'x' || n, 1, sha256(n::text::bytea) from generate_series(1, %s) n",
        (4 * CROWD,),
    )
    raw.execute(
        """
        insert into tasks (log, agent, status, wake, priority, created, changed)
        select log, case when kind < 2 then 'tester' else 'unknown' end,
          (array['waiting', 'completed', 'pending', 'waiting'])[kind + 1],
          case kind when 0 then %s + 1000000000 + log when 3 then log end, 9, 0, 0
        from (select log, log %% 4 as kind from logs) as one
        """,
        (AT,),
    )
    raw.execute("analyze")


PARAMETERS = {
    **dict.fromkeys(("namespace", "queue"), ("text", "''")),
    **dict.fromkeys(("full", "agents", "versions", "lost", "queues"), ("text[]", "'{x}'")),
    **dict.fromkeys(("now", "after", "limit", "reach", "most"), ("bigint", "9")),
    "starts": ("boolean", "true"),
}


USED = {
    "DUE": {"tasks_ready", "tasks_woken", "tasks_held", "tasks_pkey", "logs_pkey"},
    "RUNNING_BY_KEY": {"tasks_held"},
    "NEXT_WAKE": {"tasks_waking"},
    "NEXT_WAKE_OF_ALL": {"tasks_waking"},
    "TENANTS": {"tasks_ready", "tasks_waking", "tasks_held"},
    "COUNT_READY": {"tasks_ready"},
}


def test_postgres_finds_tasks_by_index_however_many_there_are(pg, raw):
    from holdfast.store.postgres.server import queries as q
    from holdfast.store.postgres.server.queries import QueryTexts

    crowd_postgres(raw)
    raw.execute("set plan_cache_mode = force_generic_plan")
    for name, indexes in USED.items():
        text = QueryTexts("holdfast")[getattr(q, name)].decode()
        names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
        for number, one in enumerate(names, start=1):
            text = text.replace(f"%({one})s", f"${number}")
        raw.execute(f"prepare {name} ({', '.join(PARAMETERS[one][0] for one in names)}) as {text}")
        given = ", ".join(PARAMETERS[one][1] for one in names)
        plan = "\n".join(row[0] for row in raw.execute(f"explain execute {name} ({given})"))
        assert "Seq Scan" not in plan and "JIT" not in plan, plan
        assert set(re.findall(r"Index (?:Only )?Scan (?:using|on) (\w+)", plan)) == indexes, plan
    for number in range(3):
        add(pg, f"t{number}", priority=number)
    assert claim(pg, limit=2) == ["t2", "t1"]
    first = raw.execute("select min(wake) from tasks where agent = 'tester' and status = 'waiting'").fetchone()
    assert (pg.queues.next_wake("", ["default"], AT),) == first


@pytest.mark.parametrize(
    ("name", "index", "how"),
    [
        ("DUE_READY", "tasks_ready", "namespace=? AND queue=? AND agent=? AND version=?"),
        ("DUE_WOKEN", "tasks_woken", "namespace=? AND queue=? AND agent=? AND version=? AND wake>? AND wake<?"),
        ("DUE_LOST", "tasks_held", "namespace=? AND queue=? AND holder=?"),
        ("RUNNING_BY_KEY", "tasks_held", "namespace=? AND queue=?"),
        ("NEXT_WAKE", "tasks_waking", "namespace=? AND queue=? AND wake>?"),
        ("COUNT_READY", "tasks_ready", "namespace=? AND queue=?"),
        ("NEXT_WAKE_OF_ALL", "tasks_waking", "namespace=? AND queue=? AND wake>?"),
        ("TENANTS", "tasks_ready", "namespace=? AND queue=?"),
        ("TENANTS", "tasks_ready", "namespace>?"),
        ("TENANTS", "tasks_waking", "namespace=? AND queue=? AND wake<?"),
        ("TENANTS", "tasks_waking", "namespace>?"),
        ("TENANTS", "tasks_held", "namespace=? AND queue=? AND holder=?"),
        ("TENANTS", "tasks_held", "namespace>?"),
    ],
)
def test_sqlite_finds_tasks_by_index(tmp_path, name, index, how):
    import apsw

    from holdfast.store.sqlite import queries as q

    SqliteStore(str(tmp_path / "x.db")).close()
    raw = apsw.Connection(str(tmp_path / "x.db"))
    bindings = dict.fromkeys(("namespace", "queue", "agent", "version"), "x") | {
        "full": "[]",
        "lost": '["x"]',
        "served": "[]",
        "queues": '["x"]',
    }
    bindings |= dict.fromkeys(("now", "limit", "starts", "after", "most"), 1)
    plan = [row[-1] for row in raw.execute(f"explain query plan {getattr(q, name)}", bindings)]
    assert any(f"{index} ({how})" in line for line in plan), plan
    if name in ("DUE_READY", "DUE_WOKEN"):
        assert not any("TEMP B-TREE" in line for line in plan), "it comes in order"
    raw.close()

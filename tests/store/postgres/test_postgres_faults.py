"""Lost connections, restarted servers, heads that moved back: what the PostgreSQL store makes of them."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

import holdfast
from holdfast.core import codec
from holdfast.core.codec import Group, Head, Snapshot, UniqueKey, Write
from holdfast.testing.conformance.samples import AT, created, draft, group, head_of, note, ok
from holdfast.testing.conformance.transact import begin, ledger
from tests.postgres_server import Server, binaries

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

from holdfast.store.postgres.store import PostgresStore  # noqa: E402

CUTS = [(number, how) for how in ("before", "after", "late") for number in range(1, 9)]


@pytest.mark.parametrize(("number", "how"), CUTS)
def test_a_write_is_there_exactly_once_wherever_its_connection_was_cut(postgres_url, proxy, through, number, how):
    store, sure = PostgresStore(through), PostgresStore(postgres_url)
    store.append([group(created("t"))])
    head = head_of(store, "t")
    proxy.cut(number, how)
    digest = store.append_event("t", head, draft(note("one"))[0])
    assert isinstance(digest, bytes)
    (second,) = ok(store.append([group(Write("t", draft(note("two"), note("three")), Head(2, digest)))])[0])
    (third,) = ok(store.append([group(Write("t", draft(note("four"))))])[0])
    taken = UniqueKey("k", "t", "pay#1")
    new, fifth = ok(store.append([group(created("u"), Write("t", draft(note("five"))), unique_keys=(taken,))])[0])
    outcomes = store.append([group(Write("t", draft(note(str(n))))) for n in (6, 7)])
    time.sleep(0.5 if how == "late" else 0)
    rows = sure.read("t")
    assert proxy.cuts == 1
    assert [row.seq for row in rows] == list(range(1, 9))
    assert rows[1].digest == digest
    assert [row.digest for row in rows[2:4]] == list(second.digests)
    assert (rows[4].digest, rows[5].digest) == (third.digests[0], fifth.digests[0])
    assert [row.digest for row in rows[6:]] == [ok(outcome)[0].digests[0] for outcome in outcomes]
    assert [row.digest for row in sure.read("u")] == list(new.digests)
    assert sure.owner_of_key("k") == taken and sure.check() == []
    store.close()
    sure.close()


@pytest.mark.parametrize(("number", "how"), [(n, how) for how in ("before", "after", "late") for n in range(1, 10)])
def test_a_transaction_leaves_both_or_neither_wherever_it_was_cut(postgres_url, proxy, through, number, how):
    store, sure = PostgresStore(through), PostgresStore(postgres_url)
    head = begin(store)
    ran = []

    def work(db):
        ran.append("ran")
        db.execute("insert into ledger (id, text) values (%s, 'entry')", (len(ran),))
        return group(Write("t", draft(note("paid")), head))

    proxy.cut(number, how)
    failures = []
    while True:
        try:
            outcome = store.transact("t", head, work, 30)
            break
        except (holdfast.StoreUnreachable, psycopg.OperationalError) as error:  # the second is what a tool sees
            failures.append(error)
            assert len(failures) == 1, failures
    time.sleep(0.8 if how == "late" else 0)
    (placed,) = ok(outcome)
    assert sure.head("t") == Head(2, placed.digests[0])
    assert ledger(sure) == [len(ran)], "only the one that was recorded"
    assert len(ran) <= 1 + len(failures)
    store.close()
    sure.close()


def test_a_server_that_says_nothing_is_given_up_in_time_and_used_again_when_it_speaks(postgres_url, proxy, through):
    """Cut off behind something that takes what it is sent: no limit of TCP or of the server ever passes."""
    limits = "&statement_seconds=1&lock_seconds=1&wait_seconds=1&connect_timeout=2"
    store, sure = PostgresStore(through + limits), PostgresStore(postgres_url)
    store.append([group(created("t"))])
    head = head_of(store, "t")
    proxy.silence()
    began = time.monotonic()
    with pytest.raises((holdfast.StoreUnreachable, holdfast.StorePoisoned)):
        store.append_event("t", head, draft(note("x"))[0])
    with pytest.raises(holdfast.StoreUnreachable):
        store.read("t")
    assert time.monotonic() - began < 30
    proxy.speak()
    assert isinstance(store.append_event("t", head, draft(note("x"))[0]), bytes)
    assert [row.seq for row in sure.read("t")] == [1, 2]
    store.close()
    sure.close()


def test_an_append_is_one_round_trip_whatever_it_holds(proxy, through):
    store = PostgresStore(through)
    store.append([group(created("t")), group(created("u"))])
    summary = store.summary("t")
    _, blob = codec.make_blob(codec.pack("b" * 5000))

    def trips(work):
        found = []
        for _ in range(4):  # the first time it is prepared; and an answer may come in two pieces
            before = proxy.trips
            work()
            found.append(proxy.trips - before)
        return min(found[1:])

    def event():
        assert isinstance(store.append_event("t", head_of(store, "t"), draft(note("x"))[0]), bytes)

    def several():
        heads = {name: head_of(store, name) for name in ("t", "u")}
        assert all(map(ok, store.append([group(Write(name, draft(note("x")), head)) for name, head in heads.items()])))

    def everything():
        head, name = head_of(store, "t"), f"n{proxy.trips}"
        snapshot = Snapshot(head.seq, head.digest, 1, AT, b"state")
        full = Write("t", draft(note("x"), note("y")), head, None, summary, (blob,), snapshot)
        ok(
            store.append(
                [group(full, created(name), unique_keys=(UniqueKey(name, "t", "s#1"),), freed_keys=("gone",))]
            )[0]
        )

    def at_the_head():
        ok(store.append([group(Write("t", draft(note("x"))))])[0])

    read = trips(lambda: head_of(store, "t"))
    assert read == 1
    assert trips(event) - read == 1
    assert trips(several) - 2 * read == 1
    assert trips(everything) - read == 1
    assert trips(at_the_head) == 2, "one to lock and look, one to write"
    store.close()


def test_a_conflict_after_a_cut_is_a_conflict(postgres_url, proxy, through):
    """While our write was lost, another one took its place: that is not ours."""
    store, other = PostgresStore(through), PostgresStore(postgres_url)
    store.append([group(created("t"))])
    head = head_of(store, "t")
    assert isinstance(other.append_event("t", head, draft(note("theirs"))[0]), bytes)
    proxy.cut(1, "before")
    outcome = store.append_event("t", head, draft(note("ours"))[0])
    assert isinstance(outcome, holdfast.Conflict) and outcome.details["actual"] == 2
    proxy.cut(1, "after")
    assert isinstance(store.append([group(Write("t", draft(note("ours")), head))])[0], holdfast.Conflict)
    assert len(other.read("t")) == 2
    store.close()
    other.close()


def test_reading_goes_on_over_a_new_connection(proxy, through):
    store = PostgresStore(through)
    store.append([group(created("t"))])
    holder = store.holder()
    for number, how in CUTS:
        proxy.cut(number, how)
        for _ in range(4):
            assert len(store.read("t")) == 1
            assert store.alive(holder)
    store.close()


def test_a_head_that_moved_back_is_told_and_not_extended(postgres_url):
    """As a backup that was restored, or a fail-over that lost something, would leave it."""
    store = PostgresStore(postgres_url)
    store.append([group(created("t"))])
    first = head_of(store, "t")
    for n in range(3):
        store.append([group(Write("t", draft(note(str(n)))))])
    known = head_of(store, "t")
    with psycopg.connect(postgres_url) as raw:
        raw.execute("set session_replication_role = replica")  # no triggers
        raw.execute("delete from holdfast.events where seq > 1")
        raw.execute("update holdfast.logs set seq = 1, digest = %s", (first.digest,))
    (one,) = draft(note("goes on"))
    for outcome in (store.append_event("t", known, one), store.append([group(Write("t", (one,), known))])[0]):
        assert isinstance(outcome, holdfast.Conflict)
        assert (outcome.details["expected"], outcome.details["actual"]) == (4, 1)
    assert store.read("t")[-1].digest == first.digest
    store.close()


def test_a_log_that_lost_its_tail_is_noticed(postgres_url):
    with holdfast.open(postgres_url) as app:
        app.start("a", id="t")
        app.append("t", holdfast.events.LogWritten(text="hello"))
        assert app.verify().ok and app.store.check() == []
        with psycopg.connect(postgres_url) as raw:
            raw.execute("set session_replication_role = replica")
            raw.execute("delete from holdfast.events where seq = 2")
        assert not app.verify("t").ok
        assert app.store.check() == ["the head of t is not its last event"]


# A server that goes away


@pytest.fixture
def server():
    found = binaries()
    if found is None:
        pytest.skip("there are no binaries of a server to start and kill")
    server = Server(found, fsync="on")
    yield server
    server.stop()


def test_after_a_server_was_killed_and_started_again_everything_acknowledged_is_there_and_work_goes_on(server):
    store, sure = PostgresStore(server.url()), PostgresStore(server.url())
    store.append([group(created("t"))])
    holder, head = store.holder(), head_of(store, "t")
    digests = [head.digest]
    for round in range(3):
        for n in range(10):
            digest = store.append_event("t", head, draft(note(f"{round}/{n}"))[0])
            assert isinstance(digest, bytes)
            head = Head(head.seq + 1, digest)
            digests.append(digest)
        server.kill()
        server.start()
        first = (
            lambda head=head: ok(store.transact("t", head, lambda db: Group(()))) == (),
            lambda: store.drop_snapshots() == 0,
            lambda: [row.digest for row in store.read("t")] == digests,
        )
        assert first[round](), "whatever comes first finds the broken connection"
        assert sure.alive(holder), "we are back under the same name before anybody asks us"
        assert [row.digest for row in store.read("t")] == digests and store.alive(holder)
    assert store.check() == []
    store.close()
    sure.close()


def test_while_the_server_is_away_writes_say_so_in_time_and_succeed_when_it_is_back(server, texts):
    store = PostgresStore(server.url() + "?wait_seconds=0.5&connect_timeout=2")
    store.append([group(created("t"))])
    head = head_of(store, "t")
    server.kill()
    began = time.monotonic()
    with pytest.raises((holdfast.StoreUnreachable, holdfast.StorePoisoned)):
        store.append_event("t", head, draft(note("x"))[0])
    with texts.raises(holdfast.StoreUnreachable):
        store.append([group(Write("t", draft(note("x"))))])
    with pytest.raises(holdfast.StoreUnreachable):
        store.read("t")
    assert time.monotonic() - began < 20
    server.start()
    deadline = time.monotonic() + 20
    while True:
        try:
            assert [row.seq for row in store.read("t")] == [1]
            break
        except holdfast.StoreUnreachable:
            assert time.monotonic() < deadline
    assert isinstance(store.append_event("t", head, draft(note("x"))[0]), bytes)
    store.close()


WRITER = """
import sys
from holdfast.core.codec import Head, Write
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.conformance.samples import draft, group, head_of, note
store = PostgresStore(sys.argv[1])
while True:
    head = head_of(store, "t")
    outcome = store.append([group(Write("t", draft(note(sys.argv[2]), note("second")), head))])[0]
    if isinstance(outcome, tuple):
        print(outcome[0].first, outcome[0].digests[1].hex(), flush=True)
"""


def test_processes_that_race_for_one_log_and_are_killed_leave_every_acknowledged_group_whole(postgres_url):
    store = PostgresStore(postgres_url)
    store.append([group(created("t"))])
    acknowledged = []
    for round in range(3):
        command = [sys.executable, "-c", WRITER, postgres_url]
        writers = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(3)]
        for writer in writers:
            writer.stdout.readline()
        time.sleep(0.1 * (round + 1))
        for writer in writers:
            writer.kill()
        for writer in writers:
            said, _ = writer.communicate()
            acknowledged += re.findall(r"^(\d+) ([0-9a-f]{64})$", said, re.M)  # the last line may be cut off anywhere
    rows = store.read("t")
    digests = {row.seq: row.digest.hex() for row in rows}
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1)) and len(rows) % 2 == 1
    assert len(acknowledged) > 10
    assert all(digests[int(first) + 1] == digest for first, digest in acknowledged)
    chained = rows[0].digest
    for row in rows[1:]:
        chained = codec.chain(chained, row.seq, row.kind, row.at_us, row.body_hash)
        assert chained == row.digest
    assert store.check() == []
    store.close()


HOLDER = """
import sys, time
from holdfast.store.postgres.store import PostgresStore
store = PostgresStore(sys.argv[1])
print(store.holder(), flush=True)
time.sleep(60)
"""


def test_a_killed_process_is_dead_at_once_even_if_a_child_of_it_lives(postgres_url):
    script = HOLDER.replace(
        "time.sleep(60)", "import os; child = os.fork(); os.write(1, b'%d\\n' % child); time.sleep(60)"
    )
    store = PostgresStore(postgres_url)
    process = subprocess.Popen([sys.executable, "-c", script, postgres_url], stdout=subprocess.PIPE, text=True)
    holder = process.stdout.readline().strip()
    told: list[int] = []
    while len(told) < 2:
        line = process.stdout.readline().strip()  # two processes write here: a line may be empty
        told += [int(line)] if line else []
    children = {*told} - {0}
    assert store.alive(holder)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 5
    while store.alive(holder):
        assert time.monotonic() < deadline
    for child in children:
        os.kill(child, signal.SIGKILL)
    process.stdout.close()
    store.close()

"""Who is alive: what proves a process dead, what only lets others presume it, and how soon."""

import contextlib
import logging
import os
import signal
import threading
import time
from urllib.parse import urlsplit

import pytest

import holdfast
from holdfast import agent, events as ev, tool
from holdfast.core import limits
from holdfast.testing.conformance.samples import add, claim, created, draft, group, head_of, within
from tests.postgres_server import Server, Standby, binaries
from tests.store.test_queues import PATIENCE_SECONDS, Other
from tests.waiting import until

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

from holdfast.store.postgres.liveness import Absences, Sighting  # noqa: E402
from holdfast.store.postgres.server import queries  # noqa: E402
from holdfast.store.postgres.store import PostgresStore  # noqa: E402

ELSEWHERE = """
from holdfast.store import processes
processes.machine = lambda: "another machine"
"""
"""A process that its neighbours can't look at, as if it ran elsewhere."""

HOLDERS = "select pid from pg_locks where locktype = 'advisory' and granted"


@pytest.fixture
def others(postgres_url):
    """Start processes that open the store; each ends with the test."""
    started = []

    def start(url=postgres_url, prelude=""):
        started.append(Other(url, prelude))
        return started[-1]

    yield start
    for one in started:
        one.end()


def holding(store, other, name="t"):
    """Let another process take a task; gives its name."""
    add(store, name)
    holder, *taken = other.ask("claim 1")
    assert taken == [name]
    return holder


AT_ONCE = limits.LEASE_SECONDS / 2
"""How long that may take which waits for no lease, on a busy machine."""


def took(true, seconds=PATIENCE_SECONDS):
    """How long it took until something was so."""
    began = time.monotonic()
    assert within(seconds, true)
    return time.monotonic() - began


# Proven


def test_one_killed_on_this_machine_is_proven_dead_at_once(store, others, postgres_url):
    other = others()
    holder = holding(store, other)
    other.process.kill()
    assert took(lambda: store.queues.lost() == {holder: "proven"}) < AT_ONCE
    fresh = PostgresStore(postgres_url)
    began = time.monotonic()
    assert fresh.loss(holder, 30.0) == "proven" and not fresh.alive(holder)
    assert time.monotonic() - began < AT_ONCE, "nobody waits for what is proven"
    fresh.close()


def test_one_that_says_goodbye_is_proven_gone_wherever_it_ran(store, others):
    other = others(prelude=ELSEWHERE)
    holder = holding(store, other)
    assert other.ask("announce everything") == [holder]
    assert other.ask("close") == ["closed"]
    assert took(lambda: store.queues.lost() == {holder: "proven"}) < AT_ONCE
    assert store.loss(holder) == "proven" and store.queues.announced() == []


def test_a_goodbye_goes_with_every_close_of_a_store(store, postgres_url):
    there = PostgresStore(postgres_url)
    add(store, "t")
    assert claim(there) == ["t"]
    name = there.holder()
    assert store.queues.lost() == {} and store.alive(name)
    there.close()
    assert store.queues.lost() == {name: "proven"}
    there.close()


def test_a_process_that_closes_its_store_in_the_middle_of_a_call_says_goodbye_when_that_is_over(store, postgres_url):
    """Whoever took it for gone would make the call again, while it is under way."""
    entered, leave = threading.Event(), threading.Event()

    @tool(effect="once")
    def pay() -> None:
        entered.set()
        leave.wait(20)

    @agent
    def payer(task):
        task.call(pay)

    def work():
        with contextlib.suppress(BaseException):
            app.run(payer, id="t")

    app = holdfast.open(postgres_url)
    working = threading.Thread(target=work)
    working.start()
    assert entered.wait(20)
    holder = app.store.holder()
    app.close(grace=0)
    store.holder()
    until = time.monotonic() + limits.ABSENT_SECONDS + 0.5
    while time.monotonic() < until:
        assert store.queues.lost() == {} and store.alive(holder)
        time.sleep(0.05)
    leave.set()
    working.join()
    assert within(PATIENCE_SECONDS, lambda: store.queues.lost() == {holder: "proven"})


# Presumed


def test_one_killed_elsewhere_is_presumed_dead_when_its_lock_was_missing_for_a_second(store, others, postgres_url):
    other, fresh = others(prelude=ELSEWHERE), PostgresStore(postgres_url)
    holder = holding(store, other)
    assert store.queues.lost() == {} and fresh.alive(holder)
    other.process.kill()
    waited = took(lambda: store.queues.lost() == {holder: "presumed"})
    assert limits.ABSENT_SECONDS <= waited < limits.ABSENT_SECONDS + AT_ONCE
    assert not fresh.alive(holder), "there is no sign of life, for whoever only looks"
    began = time.monotonic()
    assert fresh.loss(holder, 30.0) == "presumed"
    assert time.monotonic() - began >= limits.ABSENT_SECONDS, "who has not looked before looks for as long"
    fresh.close()


def test_one_whose_session_is_ended_takes_its_lock_again_and_loses_nothing(store, others, raw):
    other = others(prelude=ELSEWHERE)
    holder = holding(store, other)
    ends, until = 0, time.monotonic() + 3
    while time.monotonic() < until:
        ends += raw.execute(f"select count(pg_terminate_backend(pid)) from ({HOLDERS}) as held").fetchone()[0]
        assert store.queues.lost() == {}
        time.sleep(0.2)
    assert ends > 5
    assert within(PATIENCE_SECONDS, lambda: store.alive(holder))
    assert other.ask("announce still") == [holder], "under the same name"


def test_a_missing_lock_that_was_taken_in_between_is_missing_anew():
    def seen(beat_us, is_settled=True):
        return Sighting("pg-1", False, is_settled, False, False, "", "", beat_us)

    absences, first, second = Absences(), seen(1), seen(2)
    absences.looked([first])
    absences._since = {key: since - limits.ABSENT_SECONDS for key, since in absences._since.items()}
    assert absences.have_lasted(first)
    assert not absences.have_lasted(seen(1, is_settled=False)), "the server is new"
    assert not absences.have_lasted(second), "it was heard of since"
    absences.looked([second])
    assert not absences.have_lasted(second) and not absences.have_lasted(first)
    absences.looked([])
    assert absences._since == {}


def test_a_holder_of_another_store_is_presumed_dead_as_nobody_here_can_be_it(store):
    store.holder()
    for name in ("4711-beef", "nonsense", "pg-not-hexadecimal"):
        assert store.loss(name) == "presumed" and not store.alive(name)


# Restarts


@pytest.fixture
def server():
    found = binaries()
    if found is None:
        pytest.skip("there are no binaries of a server to start and kill")
    server = Server(found)
    yield server
    server.stop()


def test_after_a_restart_those_have_time_to_come_back_and_who_died_with_the_server_is_missed_later(server, others):
    store = PostgresStore(server.url())
    alive, dead = others(server.url(), ELSEWHERE), others(server.url(), ELSEWHERE)
    living, lost = holding(store, alive, "a"), holding(store, dead, "b")
    store.holder()
    dead.process.send_signal(signal.SIGSTOP)  # so that it can't come back before it is killed
    server.kill()
    server.start_again()
    dead.process.kill()
    began = time.monotonic()
    until(lambda: store.queues.lost() != {}, limits.RESTART_SECONDS + PATIENCE_SECONDS)
    waited = time.monotonic() - began
    assert store.queues.lost() == {lost: "presumed"} and store.alive(living)
    assert limits.RESTART_SECONDS - 1.5 < waited < limits.RESTART_SECONDS + 3
    store.close()


def test_ages_never_begin_before_this_incarnation_was_first_noted(store, others, raw):
    """As after an outage that lasted longer than the lease: nobody could be heard of meanwhile."""
    other = others()
    holder = holding(store, other)
    other.process.send_signal(signal.SIGSTOP)
    raw.execute("update holders set beat = now() - interval '1 hour' where name = %s", (holder,))
    raw.execute("update incarnations set noted = clock_timestamp()")
    assert store.queues.lost() == {} and store.loss(holder, 30.0) is None
    raw.execute("update incarnations set noted = now() - interval '31 seconds'")
    assert store.queues.lost() == {holder: "presumed"} and store.loss(holder, 30.0) == "presumed"
    raw.execute("delete from incarnations")
    assert store.queues.lost() == {}, "an incarnation that nobody has noted is new"
    store.queues.announce("something")
    assert raw.execute("select count(*) from incarnations where started = pg_postmaster_start_time()").fetchone() == (
        1,
    )


@pytest.mark.parametrize("incarnation", ["2020-01-01", None], ids=["another server's", "of an older version"])
def test_a_missing_lock_of_another_incarnation_counts_five_seconds_after_this_one_was_noted(store, raw, incarnation):
    add(store, "t")
    store.holder()
    raw.execute("update tasks set status = 'running', holder = 'pg-00000000000000ff', lease_seconds = 30")
    row = "insert into holders (name, beat, incarnation) values ('pg-00000000000000ff', now(), %s)"
    raw.execute(row, (incarnation,))
    raw.execute("update incarnations set noted = clock_timestamp() - interval '1.5 seconds'")
    store.queues.lost()
    time.sleep(limits.ABSENT_SECONDS + 0.1)
    assert store.queues.lost() == {}, "2.6 seconds"
    assert took(lambda: store.queues.lost() == {"pg-00000000000000ff": "presumed"}) < AT_ONCE


def test_notes_of_incarnations_and_rows_of_those_long_gone_are_taken_away(postgres_url, raw):
    raw.execute("insert into incarnations values ('2020-01-01', '2020-01-01'), ('2020-01-02', now())")
    store = PostgresStore(postgres_url)
    store.holder()
    left = raw.execute("select started < '2020-01-02' from incarnations order by 1").fetchall()
    assert left == [(False,), (False,)]
    store.close()


# The session itself


def test_a_session_that_says_nothing_is_not_ended_for_that(server):
    """`idle_session_timeout` ends what is idle; ours is meant to be."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("alter system set idle_session_timeout = '300ms'")
        connection.execute("select pg_reload_conf()")
    store = PostgresStore(server.url() + "?connections=1")
    holder = store.holder()
    ears = store.queues.listen()
    pids = set()
    for _ in range(8):
        time.sleep(0.2)
        with psycopg.connect(server.url()) as connection:
            pids |= {pid for (pid,) in connection.execute(HOLDERS)}
    assert len(pids) == 1 and store.alive(holder)
    assert not ears.wait(0.0), "nor is one that listens"
    ears.close()
    store.close()


def test_a_thread_that_signed_off_before_close_looked_has_left_nothing_to_do(postgres_url):
    """It is told to end, and may have ended before the next line of `close`."""
    store = PostgresStore(postgres_url)
    store.holder()
    presence = store._links.presence()
    with presence._news:
        presence._is_closed = True
        presence._wake()
    presence._thread.join(PATIENCE_SECONDS)
    presence._is_closed = False  # as `close` found it
    store.close()
    assert not presence._thread.is_alive() and not presence.is_held


def test_a_lock_that_an_older_session_of_ours_still_has_is_taken_when_that_one_is_gone(store, raw):
    """The server may not have noticed yet that the connection is lost."""
    holder, presence = store.holder(), store._links.presence()
    ghost = psycopg.connect(raw.info.dsn, autocommit=True)
    raw.execute("select pg_advisory_unlock_all()")
    raw.execute(f"select pg_terminate_backend(pid) from ({HOLDERS}) as held")
    while not ghost.execute("select pg_try_advisory_lock(%s)", (presence.key,)).fetchone()[0]:
        raw.execute(
            f"select pg_terminate_backend(pid) from ({HOLDERS}) as held where pid <> %s", (ghost.info.backend_pid,)
        )
    assert within(PATIENCE_SECONDS, lambda: presence.is_held) and store.alive(holder)
    ghost.close()
    held = "select count(*) from pg_locks where locktype = 'advisory' and pid <> %s"
    assert took(lambda: raw.execute(held, (raw.info.backend_pid,)).fetchone() == (1,)) < AT_ONCE


def test_nothing_is_announced_while_the_process_cannot_be_seen_alive(store, monkeypatch):
    presence, waits = (store.holder(), store._links.presence())[1], []
    store.append([group(created("t"))])
    monkeypatch.setattr(presence, "_is_held", False)
    monkeypatch.setattr(presence, "await_held", lambda: waits.append(1))
    (note,) = draft(ev.LogWritten(text="x"))
    assert isinstance(store.append_event("t", head_of(store, "t"), note), bytes) and waits == [], (
        "results are not held up"
    )
    (started,) = draft(ev.StepStarted(key="pay#1", name="pay", effect="once"))
    assert isinstance(store.append_event("t", head_of(store, "t"), started), bytes) and waits == [1]
    monkeypatch.undo()


def test_a_process_without_a_connection_to_spare_says_so_and_comes_back(postgres_url, raw, caplog):
    """Its session ends just when the server takes no more connections."""
    role = f"worker_{time.time_ns()}"
    raw.execute(f"create role {role} login")
    raw.execute(f"grant usage on schema holdfast to {role}")
    raw.execute(f"grant all on all tables in schema holdfast to {role}")
    store = PostgresStore(postgres_url.replace("postgres@", f"{role}@") + "?connections=2&wait_seconds=1")
    sure = PostgresStore(postgres_url)
    try:
        add(sure, "t")
        assert claim(store) == ["t"]
        sure.holder()
        holder, presence = store.holder(), store._links.presence()
        raw.execute(f"alter role {role} connection limit 0")
        with caplog.at_level(logging.WARNING, "holdfast"):
            ended = f"select pg_terminate_backend(pid) from ({HOLDERS}) as held join pg_stat_activity using (pid)"
            raw.execute(f"{ended} where usename = %s", (role,))
            assert within(PATIENCE_SECONDS, lambda: "can't show that it is alive" in caplog.text)
        assert not presence.is_held and store.head("t") is not None, "what is connected goes on"
        assert within(PATIENCE_SECONDS, lambda: sure.queues.lost() == {holder: "presumed"})
        raw.execute(f"alter role {role} connection limit -1")
        assert within(PATIENCE_SECONDS, lambda: presence.is_held and sure.queues.lost() == {})
        assert caplog.text.count("can't show") == 1 and "too many connections" in caplog.text
    finally:
        store.close()
        sure.close()
        raw.execute(f"drop owned by {role}")
        raw.execute(f"drop role {role}")


# Servers whose locks lock nothing


@pytest.fixture
def imitation(monkeypatch):
    """A server that says yes to every lock and holds none."""
    monkeypatch.setattr(queries, "HOLD", "select %(key)s::bigint is not null")


def test_a_server_whose_locks_lock_nothing_is_refused_and_nothing_is_written(postgres_databases, imitation, texts):
    url = postgres_databases.new(empty=True)
    with texts.raises(holdfast.NotAStore, database=urlsplit(url).path[1:]) as no:
        holdfast.open(url)
    assert "presence=lease" in no.value.hint
    with psycopg.connect(url) as raw:
        assert raw.execute("select to_regnamespace('holdfast')").fetchone() == (None,)
    postgres_databases.drop(url)


def test_the_doctor_names_a_server_whose_locks_lock_nothing(postgres_url, imitation, texts):
    (found,) = [one for one in holdfast.doctor(postgres_url) if one.what == "locks"]
    assert found.level == "fail" and "presence=lease" in found.remedy
    texts.check(found.said)
    found = {one.what: one for one in holdfast.doctor(postgres_url + "?presence=lease")}
    assert found["locks"].level == "ok"
    texts.check(found["locks"].said)
    assert found["interrupted"].level == "ok"


def test_the_doctor_is_content_with_locks_that_lock(postgres_url, texts):
    (found,) = [one for one in holdfast.doctor(postgres_url) if one.what == "locks"]
    assert (found.level, found.remedy) == ("ok", "")
    texts.check(found.said)


def test_locks_that_others_cannot_see_are_refused_when_a_process_is_to_hold_something(
    store, postgres_url, monkeypatch, texts
):
    monkeypatch.setattr(queries, "IS_HELD", "select %(key)s::bigint is null")
    with texts.raises(holdfast.NotAStore, database=urlsplit(postgres_url).path[1:]):
        store.holder()
    monkeypatch.undo()
    assert store.alive(store.holder())


def test_a_role_that_may_not_lock_is_told_how_to_do_without(postgres_url):
    lock = "function pg_try_advisory_lock(bigint)"
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        role = f"plain_{time.time_ns()}"
        raw.execute(f"create role {role} login")
        raw.execute(f"revoke execute on {lock} from public")
        raw.execute(f"grant usage on schema holdfast to {role}")
        raw.execute(f"grant all on all tables in schema holdfast to {role}")
    url = postgres_url.replace("postgres@", f"{role}@")
    try:
        with pytest.raises(holdfast.NotAStore, match="permission denied for function pg_try_advisory_lock") as no:
            holdfast.open(url)
        assert "presence=lease" in no.value.hint
        with holdfast.open(url + "?presence=lease") as app:
            app.start("somebody", id="t")
            assert app.store.alive(app.store.holder()) and app.workers() == []
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as raw:
            raw.execute(f"drop owned by {role}")
            raw.execute(f"drop role {role}")


# By lease alone


def test_an_address_says_what_proves_a_process_alive(postgres_url, texts):
    with texts.raises(holdfast.InvalidUrl):
        holdfast.open(postgres_url + "?presence=luck")
    with holdfast.open(postgres_url + "?presence=lease") as app:
        assert app.store.url.endswith("&presence=lease") and app.store.holder().startswith("lease-")


@pytest.fixture
def by_lease(postgres_url, monkeypatch):
    """A store that takes no lock: it would notice if one were asked for."""
    for name in ("HOLD", "IS_HELD", "LOCK_QUEUE"):
        monkeypatch.setattr(queries, name, "select 1 / 0")
    store = PostgresStore(postgres_url + "?presence=lease&lease_seconds=1.5")
    yield store
    store.close()


def test_by_lease_one_is_alive_while_it_is_heard_of_and_presumed_dead_when_it_is_silent(by_lease, others, postgres_url):
    other = others(postgres_url + "?presence=lease&lease_seconds=1.5", ELSEWHERE)
    by_lease.holder()
    holder = holding(by_lease, other)
    assert other.ask("announce everything") == [holder]
    until = time.monotonic() + limits.RESTART_SECONDS + 0.5
    while time.monotonic() < until:
        assert by_lease.queues.lost() == {} and by_lease.alive(holder)
        assert [one.holder for one in by_lease.queues.announced()] == [holder]
        time.sleep(0.1)
    other.process.send_signal(signal.SIGSTOP)
    assert took(lambda: by_lease.queues.lost() == {holder: "presumed"}) > 1.0
    assert by_lease.loss(holder, 1.5) == "presumed" and not by_lease.alive(holder)
    assert by_lease.queues.announced() == []
    other.process.send_signal(signal.SIGCONT)
    assert within(PATIENCE_SECONDS, lambda: by_lease.queues.lost() == {})


def test_by_lease_one_killed_here_or_gone_with_a_goodbye_is_lost_at_once(by_lease, others, postgres_url):
    url = postgres_url + "?presence=lease"
    killed, polite = others(url), others(url, ELSEWHERE)
    first, second = holding(by_lease, killed, "a"), holding(by_lease, polite, "b")
    killed.process.kill()
    polite.ask("close")
    assert took(lambda: by_lease.queues.lost() == {first: "proven", second: "proven"}) < AT_ONCE


def test_by_lease_an_outage_longer_than_the_lease_costs_nobody_its_tasks(server, others):
    url = server.url() + "?presence=lease&lease_seconds=1"
    store, other = PostgresStore(url), others(url, ELSEWHERE)
    store.holder()
    holder = holding(store, other)
    server.kill()
    time.sleep(2)
    server.start_again()
    until = time.monotonic() + 3
    while time.monotonic() < until:
        assert store.queues.lost() == {}
        time.sleep(0.02)
    assert store.alive(holder)
    store.close()


def test_who_has_a_lock_and_who_has_a_lease_see_each_other(store, by_lease, others, postgres_url):
    locked, leased = (
        others(postgres_url, ELSEWHERE),
        others(postgres_url + "?presence=lease&lease_seconds=1", ELSEWHERE),
    )
    first, second = holding(store, locked, "a"), holding(by_lease, leased, "b")
    for one in (store, by_lease):
        assert one.alive(first) and one.alive(second) and one.queues.lost() == {}
    leased.process.kill()
    assert took(lambda: store.queues.lost() == {second: "presumed"}) < AT_ONCE
    assert store.alive(first)


# Reading where nothing can be written


def test_a_role_that_may_only_read_sees_everything_and_takes_nothing(postgres_url, others):
    other = others()
    with holdfast.open(postgres_url) as app:
        holder = holding(app.store, other)
    role = f"reader_{time.time_ns()}"
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        raw.execute(f"create role {role} login")
        raw.execute(f"grant usage on schema holdfast to {role}")
        raw.execute(f"grant select on all tables in schema holdfast to {role}")
    try:
        with holdfast.open(postgres_url.replace("postgres@", f"{role}@")) as app:
            assert app.get("t").status == "running" and not app.get("t").interrupted
            assert [row.id for row in app.list(status="running")] == ["t"] and app.workers() == []
            assert app.store.alive(holder) and app.store.queues.lost() == {}
            with pytest.raises(holdfast.StoreReadOnly, match="permission denied"):
                app.start("somebody", id="u")
            with pytest.raises(holdfast.StoreReadOnly, match="permission denied"):
                app.store.holder()
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as raw:
            raw.execute(f"drop owned by {role}")
            raw.execute(f"drop role {role}")


def test_a_standby_is_refused_unless_it_is_asked_for_and_then_it_can_be_read(server, others):
    if not os.path.exists(f"{binaries()}/pg_basebackup"):
        pytest.skip("there is no pg_basebackup")
    with holdfast.open(server.url()) as app:
        app.start("somebody", id="u")
        holding(app.store, others(server.url(), ELSEWHERE))
        assert not app.get("t").interrupted
        standby = Standby(server)
        try:
            standby.wait_until_even(server)
            with pytest.raises(holdfast.StoreReadOnly, match="is a standby"):
                holdfast.open(standby.url())
            with holdfast.open(standby.url() + "?target_session_attrs=any") as reader:
                assert reader.get("u").status == "pending" and {row.id for row in reader.list()} == {"t", "u"}
                assert reader.get("t").interrupted, "locks are not copied"
                assert reader.workers() == [] and reader.store.queues.lost() == {}
                with pytest.raises(holdfast.StoreReadOnly):
                    reader.start("somebody", id="v")
                with pytest.raises(holdfast.StoreReadOnly):
                    reader.store.holder()
        finally:
            standby.stop()

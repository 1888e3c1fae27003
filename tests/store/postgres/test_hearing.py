"""Workers on PostgreSQL take turns at asking for tasks, and share what they found."""

import threading
import time
from contextlib import ExitStack

import psycopg
import pytest

import holdfast
from holdfast import AsyncTask, agent
from holdfast.core import limits
from holdfast.store.postgres.queues import PostgresQueues
from holdfast.store.postgres.server.hearing import PostgresWakeListener, channels
from holdfast.store.postgres.store import PostgresStore
from tests.waiting import until

PATIENCE_SECONDS = 20
WORKERS = 8
TASKS = 40


class Session:
    """A session that hears what the test says."""

    def __init__(self, name, workers):
        self.name, self.workers = name, workers

    def listen(self, listener):
        pass

    unlisten = listen


def fleet(number, kind="k"):
    """So many listeners, and what they tell each other."""
    names, told = tuple(f"pg-{one}" for one in range(number)), []
    tell = lambda channel, payload: told.append((channel, payload))  # noqa: E731
    return [PostgresWakeListener(Session(name, names), "s", tell, kind) for name in names], told


READY, NONE = channels("s")


def turns(listeners, seconds):
    """Those whose turn comes within a time."""
    return [one for one in listeners if one.wait(seconds)]


def test_a_worker_that_is_alone_asks_at_once_and_tells_nobody():
    (one,), told = fleet(1)
    one.heard(READY, " default 7")
    assert one.wait(0) is True
    one.nothing_left(1)
    assert told == []


@pytest.mark.parametrize("event", range(5))
def test_exactly_one_of_many_asks_at_once_and_the_others_one_after_the_other(event):
    listeners, _ = fleet(50)
    pauses = sorted(one._pause(f" default {event}") for one in listeners)
    step = limits.ASKS_PER_TURN * limits.TURN_SECONDS
    assert pauses == [pytest.approx(min(place * step, limits.TURNS_SECONDS)) for place in range(50)]


def test_those_that_hear_that_nothing_is_left_do_not_ask():
    listeners, told = fleet(50)
    for one in listeners:
        one.heard(READY, " default 1")
    first = min(listeners, key=lambda one: one._pause(" default 1"))
    assert first.wait(0) is True
    first.nothing_left(limits.QUIET_SECONDS)
    (note,) = told
    for one in listeners:
        one.heard(*note)
    others = [one for one in listeners if one is not first]
    assert all(one.quiet_seconds() > 0 for one in others)
    assert first.quiet_seconds() == 0, "it heard its own note"
    time.sleep(limits.TURNS_SECONDS)
    assert turns(listeners, 0) == []


def test_the_first_turn_goes_to_another_worker_each_time():
    listeners, _ = fleet(4)
    firsts = [min(listeners, key=lambda one: one._pause(event)) for event in map(str, range(400))]
    assert all(60 < firsts.count(one) < 140 for one in listeners)


def test_a_worker_that_does_not_ask_is_followed_by_the_next():
    listeners, _ = fleet(3)
    for one in listeners:
        one.heard(READY, " default 1")
    asked = [next(one for one in listeners if one.wait(0))]
    until = time.monotonic() + PATIENCE_SECONDS
    while len(asked) < 3 and time.monotonic() < until:
        asked += [one for one in listeners if one not in asked and one.wait(0.001)]
    assert len(asked) == 3


def test_what_a_worker_of_another_kind_found_says_nothing():
    (one, other), told = fleet(2)
    (stranger, _), _ = fleet(2, "other")
    for listener in (one, other, stranger):
        listener.heard(READY, " default 1")
    one.nothing_left(1)
    for listener in (one, other, stranger):
        listener.heard(*told[0])
    assert stranger.quiet_seconds() == 0 and stranger.wait(1) is True
    assert other.wait(0.1) is False


@pytest.mark.parametrize("payload", ["", "x", "x k", "x k soon", "x k nan", "x k 1e9", "x k -5"])
def test_a_note_of_another_version_does_no_harm(payload):
    (one, _), _ = fleet(2)
    one.heard(NONE, payload)
    one.heard("another channel", payload)
    assert 0 <= one.quiet_seconds() <= limits.QUIET_SECONDS + limits.TURNS_SECONDS
    one.heard(READY, " default 1")
    assert one.wait(1) is True


# On a server

LINKS = "select count(*) from pg_stat_activity where application_name = 'holdfast' and datname = current_database()"


@agent
async def doubled(task: AsyncTask, n: int) -> int:
    return await task.step(lambda: 2 * n, name="double")


@pytest.fixture
def asked(monkeypatch):
    """Counts the queries that look for tasks."""
    found, looks, lock = [], PostgresQueues._due, threading.Lock()

    def counted(self, *given, **named):
        rows = looks(self, *given, **named)
        with lock:
            found.append(len(rows))
        return rows

    monkeypatch.setattr(PostgresQueues, "_due", counted)
    return found


def test_workers_that_hear_of_each_task_ask_about_once_for_each(postgres_url, asked):
    """Without turns, each of them asks for every task: eight times as often. On a busy machine, some turns overlap."""
    with ExitStack() as stack:
        apps = [stack.enter_context(holdfast.open(postgres_url)) for _ in range(WORKERS)]
        workers = [app.worker([doubled], concurrency=4) for app in apps]
        threads = [threading.Thread(target=worker.run) for worker in workers]
        for thread in threads:
            thread.start()
        watch = stack.enter_context(psycopg.connect(postgres_url, autocommit=True))
        serving = "select count(*) from holdfast.holders where serves <> ''"
        until(lambda: watch.execute(serving).fetchone() == (WORKERS,))
        for app in apps:
            app.store._links.presence().renew()  # each has heard of all now
        assert all(len(app.store._links.presence().workers) == WORKERS for app in apps)
        before, links = len(asked), 0
        for n in range(TASKS):
            apps[0].start(doubled, {"n": n}, id=f"t{n}")
            links = max(
                links,
                watch.execute("select count(*) from pg_stat_activity where application_name = 'holdfast'").fetchone()[
                    0
                ],
            )
            time.sleep(0.02)
        until(lambda: all(apps[0].get(f"t{n}").status == "completed" for n in range(TASKS)))
        looked = len(asked) - before
        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join()
    assert looked < 4 * TASKS, f"{looked} queries for {TASKS} tasks"
    assert links <= 2 * WORKERS + 2


def test_a_session_that_hears_much_still_shows_that_it_is_alive(postgres_url):
    """Each thing heard ends its rest. If that began anew each time, it would never beat."""
    store = PostgresStore(postgres_url + "?lease_seconds=1")
    holder, ears = store.holder(), store.queues.listen()
    channel, _ = channels("holdfast")
    with psycopg.connect(postgres_url, autocommit=True) as noise:
        until = time.monotonic() + 3
        while time.monotonic() < until:
            noise.execute("select pg_notify(%s, ' default 1')", (channel,))
            time.sleep(0.01)
            assert store.alive(holder)
        age = "select extract(epoch from clock_timestamp() - beat) from holdfast.holders where name = %s"
        assert noise.execute(age, (holder,)).fetchone()[0] < 1
        began = time.monotonic()
        store.queues.announce("x")
        assert time.monotonic() - began < PATIENCE_SECONDS, "what wakes it is not lost beside what it hears"
    ears.close()
    store.close()


def test_apps_of_one_process_share_connections_and_each_closes_for_itself(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as watch:
        pids = LINKS.replace("count(*)", "array_agg(pid)")
        one, two = holdfast.open(postgres_url), holdfast.open(postgres_url)
        one.start("a", {}, id="t")
        before = watch.execute(pids).fetchone()
        assert two.get("t").status == "pending"
        assert watch.execute(pids).fetchone() == before
        one.close()
        assert two.get("t").status == "pending"
        assert watch.execute(pids).fetchone() == before
        two.close()
        until(lambda: watch.execute(pids).fetchone() == (None,))

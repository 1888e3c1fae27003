"""A real cluster fails over under living workers: `make test-failover`.

Three PostgreSQL under Patroni and etcd lose their leader in every way; six processes of workers make `once` calls of
0.05 s and 2 s all the while. What was acknowledged is kept, no effect is there twice, no task is taken from a living
worker, and work goes on soon after a bare psycopg client can write again, which waits beside it.
"""

import itertools
import json
import os
import threading
import time
from contextlib import contextmanager

import psycopg
import pytest

import holdfast
from holdfast import StoreError, events as ev
from holdfast.testing.auditor import audit
from tests.crash.storm import Crew, agents_at, assert_all_well
from tests.patroni_cluster import Cluster, Missing
from tests.waiting import again

PROCESSES, CONCURRENCY, STEPS, PAUSES = 6, 4, 8, [0.05, 0.05, 0.05, 2.0]
LOAD = PROCESSES * CONCURRENCY + 6
LOGGED = "logged"
"""The queue of the task to which somebody appends: nobody works on it."""
SECONDS = 120
TIMES = 3
"""How much longer than a bare client the work may stand still."""
MOMENT_SECONDS = 2.0
"""Calls take up to this long, so work may show nothing new for as long. A shorter standstill says nothing."""


@pytest.fixture(scope="module")
def cluster():
    try:
        one = Cluster()
    except Missing as why:
        pytest.skip(f"no cluster can be had: {why}")
    try:
        yield one
    finally:
        one.stop()


@pytest.fixture
def database(cluster, request):
    """A database of this test's own."""
    name = f"test_{os.urandom(4).hex()}"
    with psycopg.connect(conninfo(cluster, "postgres"), autocommit=True) as link:
        link.execute(f"create database {name}")
    cluster.wait_until_whole()
    yield name
    with psycopg.connect(conninfo(cluster, "postgres"), autocommit=True) as link:
        link.execute(f"drop database {name} with (force)")


def conninfo(cluster, database):
    hosts, ports = ",".join("127.0.0.1" for _ in cluster.machines), ",".join(str(one.port) for one in cluster.machines)
    return (
        f"host={hosts} port={ports} user=postgres dbname={database} target_session_attrs=read-write connect_timeout=5"
    )


def until(true, what, cluster=None):
    end = time.monotonic() + SECONDS
    while not true():
        if time.monotonic() > end:
            raise AssertionError(what if cluster is None else f"{what}\n{cluster.logs()}")
        time.sleep(0.05)


def left(app):
    depths = again(app.store.queues.depths)
    return sum(one.ready + one.running + one.timed for one in depths if one.queue != LOGGED)


def wait_until_done(app):
    """Wait until no task is left, and none waits for a person."""
    end = time.monotonic() + SECONDS
    while left(app):
        if time.monotonic() > end:
            rows = [row for row in app.list(limit=None) if row.status not in ("completed",)]
            raise AssertionError([(row.id, row.status, row.waiting, row.holder) for row in rows])
        time.sleep(0.2)
    rows = again(lambda: app.list(limit=None))
    assert [(row.id, row.status, row.waiting) for row in rows if row.status != "completed" and row.id != "log"] == []


# Those who write meanwhile


class Bare:
    """What a client without Holdfast sees: it writes rows with psycopg, and connects again when that fails."""

    def __init__(self, cluster, database):
        self._conninfo, self.acked = conninfo(cluster, database), []

    def run(self, over):
        link, number = None, 0
        while not over.is_set():
            try:
                if link is None:
                    link = psycopg.connect(self._conninfo, autocommit=True)
                    link.execute("create table if not exists bare (n int)")
                link.execute("insert into bare values (%s)", (number,))
            except psycopg.Error:
                if link is not None:
                    link.close()
                link = None
            else:
                number += 1
                self.acked.append(time.monotonic())
            time.sleep(0.02)
        if link is not None:
            link.close()


class Appender:
    """One who appends to a log, and notes what was acknowledged in the words of the auditor."""

    def __init__(self, app, acks):
        self._app, self._acks, self.acked = app, acks, []

    def run(self, over):
        with open(self._acks, "w") as file:
            again(lambda: self._app.start("log", id="log", queue=LOGGED))
            while not over.is_set():
                try:
                    (record,) = self._app.append("log", ev.LogWritten(text="x"))
                except StoreError:
                    continue
                self.acked.append(time.monotonic())
                file.write(json.dumps({"log": "log", "seq": record.seq, "digest": record.digest.hex()}) + "\n")
                time.sleep(0.02)


class Feeder:
    """One who starts tasks, so that there is always as much to do as all workers can do at once."""

    def __init__(self, app):
        self._app, self.started = app, 0

    def run(self, over):
        agents = agents_at("")
        while not over.is_set():
            for _ in range(LOAD - left(self._app)):
                name = f"t{self.started:04}"
                again(lambda name=name: self._app.start(agents[self.started % 2], {"steps": STEPS}, id=name))
                self.started += 1
            time.sleep(0.2)


@contextmanager
def at_once(*writers):
    """Let them write in threads of their own."""
    over, errors = threading.Event(), []

    def guarded(writer):
        try:
            writer.run(over)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(one,)) for one in writers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(SECONDS)
    assert errors == [], errors


def noted(folder):
    """Return what workers had acknowledged: (when, task, n), in the order of time."""
    found = []
    for name in os.listdir(folder):
        with open(f"{folder}/{name}") as file:
            found += [(one["at"], one["task"], one["n"]) for one in map(json.loads, file)]
    return sorted(found)


def gap(times, began, ended):
    """Return the longest time without an acknowledgement."""
    within = [began, *(at for at in times if began < at < ended), ended]
    return max(later - earlier for earlier, later in itertools.pairwise(within))


# The ways in which a cluster suffers


def machine_killed(cluster):
    """The leader's machine loses its power: Patroni, PostgreSQL and etcd."""
    lost = cluster.leader()
    lost.kill()
    until(lambda: cluster.leader() not in (None, lost), "no other machine leads", cluster)
    return lost.start


def leader_killed(cluster):
    """Patroni and PostgreSQL of the leader are killed."""
    lost = cluster.leader()
    lost.kill_patroni()
    until(lambda: cluster.leader() not in (None, lost), "no other machine leads", cluster)
    return lost.start


def switched_over(cluster):
    """An administrator has a standby lead."""
    before = cluster.leader()
    cluster.switch_over()
    until(lambda: cluster.leader() not in (None, before), "no other machine leads", cluster)


def postmaster_killed(cluster):
    """PostgreSQL of the leader is killed: Patroni starts it again."""
    cluster.leader().kill_postmaster()


def standby_lost(cluster):
    """The synchronous standby is killed: another one becomes synchronous."""
    lost = cluster.standbys()[0]
    lost.kill_patroni()
    return lost.start


def etcd_leader_lost(cluster):
    """The leading member of etcd is killed: the others elect one."""
    lost = cluster.etcd_leader()
    lost.kill_etcd()
    until(lambda: cluster.etcd_leader() not in (None, lost), "etcd elects no leader")
    return lost.start


KINDS = (machine_killed, leader_killed, switched_over, postmaster_killed, standby_lost, etcd_leader_lost)
STORM = [
    *[machine_killed, switched_over, postmaster_killed, leader_killed, switched_over] * 3,
    *[standby_lost, etcd_leader_lost],
    *[machine_killed, switched_over, postmaster_killed, leader_killed, switched_over],
]
"""Twenty times another leader or the same one anew, and two losses that the leader survives."""


def suffer(cluster, kinds, database, world, folder):
    """Let things happen under load, and see that all is well; gives for each how long who stood still."""
    url, acks, log = cluster.url(database), folder / "acks", folder / "log.jsonl"
    acks.mkdir()
    given = {"url": url, "world": world.address, "pauses": PAUSES, "acks": str(acks)}
    places = [{"elsewhere": number % 2 == 0} for number in range(PROCESSES)]
    windows = []
    with holdfast.open(url) as app, Crew(*places, workers=1, concurrency=CONCURRENCY, **given) as crew:
        before = list(crew.pids)
        bare_client, appender, feeder = Bare(cluster, database), Appender(app, log), Feeder(app)
        with at_once(bare_client, appender, feeder):
            until(lambda: len(noted(acks)) > 100, "the work does not begin")
            for kind in kinds:
                time.sleep(3)
                began = time.monotonic()
                repair = kind(cluster)
                until(lambda: min(appender.acked[-1], bare_client.acked[-1]) > time.monotonic() - 0.5, "no more writes")
                time.sleep(5)
                windows.append((kind.__name__, began, time.monotonic()))
                print(f"{len(windows)} of {len(kinds)}: {kind.__name__}", flush=True)
                if repair:
                    repair()
                cluster.wait_until_whole()
        wait_until_done(app)
        assert crew.pids == before
        crew.stop(60)
        seen = assert_all_well(app, world, feeder.started, STEPS)
        found = noted(acks)
        for name in {task for _, task, _ in found}:
            kept = {one.event.key for one in app.events(name) if one.kind in ("step_completed", "step_settled")}
            lost = [n for _, task, n in found if task == name and not {f"pay#{n + 1}", f"apay#{n + 1}"} & kept]
            assert lost == [], f"acknowledged, and not kept: {name} {lost}"
    assert seen["twice"] == 0, dict(seen)
    assert seen["task_claimed"] == feeder.started, dict(seen)
    assert audit(_plain(cluster, database), log) == []
    gaps = [
        (name, gap(bare_client.acked, *times), gap([at for at, *_ in found], *times), gap(appender.acked, *times))
        for name, *times in windows
    ]
    print(f"\n{feeder.started} tasks of {STEPS} calls, {len(found)} acknowledged calls, {dict(seen)}")
    for name, *each in gaps:
        print("{:20} bare client {:6.2f} s   workers {:6.2f} s   appender {:6.2f} s".format(name, *each))
    return gaps


def _plain(cluster, database):
    leader = cluster.leader()
    return f"postgresql://postgres@127.0.0.1:{leader.port}/{database}"


def assert_soon(gaps):
    late = [one for one in gaps if max(one[2:]) > max(TIMES * one[1], MOMENT_SECONDS)]
    assert late == [], f"the work stood still for more than {TIMES} times as long as a bare client"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])
def test_nothing_is_lost_repeated_or_taken_from_the_living(cluster, database, world, tmp_path, kind):
    assert_soon(suffer(cluster, [kind], database, world, tmp_path))


@pytest.mark.timeout(3600)
def test_twenty_fail_overs_of_mixed_kinds(cluster, database, world, tmp_path):
    assert_soon(suffer(cluster, STORM, database, world, tmp_path))

"""Celery on a real Redis: workers, their children, the pump and the broker are killed."""

import random
import time

import pytest

import holdfast
from holdfast.testing.crash.world import World
from tests.conftest import ALL
from tests.crash.storm import agents_at, begin
from tests.places.storm import Node, completed, grace, judged, survive, wait
from tests.redis_server import RedisServer, need_redis

pytest.importorskip("celery", reason="make test-places, or: pip install 'celery[redis]'")

AGAIN = 2.0
RECONNECT = 4.0
"""How long Celery waits between two tries to reach a broker that was restarted."""
WORKER = (
    "-m",
    "celery",
    "--app",
    "tests.places.celery_shop",
    "worker",
    "--loglevel",
    "INFO",
    "--prefetch-multiplier",
    "1",
)


@pytest.fixture
def world():
    with World() as started:
        yield started


@pytest.fixture
def broker():
    need_redis()
    server = RedisServer()
    yield server
    server.stop()


@pytest.fixture
def start(postgres_url, world, broker, tmp_path):
    """Start a program of Celery, with a name for its log."""
    given = {
        "PLACES_URL": postgres_url,
        "PLACES_WORLD": world.address,
        "PLACES_BROKER": broker.url(),
        "PLACES_PAUSE": "0.5",
    }
    nodes = []

    def begun(name, *command):
        nodes.append(Node(*command, log=tmp_path / f"{name}.log", **given))
        return nodes[-1]

    yield begun
    for one in nodes:
        one.kill()


def worker(start, name, *pool):
    return start(name, *WORKER, "--hostname", f"{name}@127.0.0.1", *pool)


THREADS, PREFORK = ("--pool", "threads", "--concurrency", "16"), ("--pool", "prefork", "--concurrency", "4")


PREFORK = ("--pool", "prefork", "--concurrency", "8")
THREADS = ("--pool", "threads", "--concurrency", "8")


def ready(app, nodes):
    """Wait until the workers and the pump are there: a task that was begun has ended, and each worker says so."""
    app.start(agents_at("")[0], {"steps": 0}, id="first")
    wait(lambda: app.get("first").status == "completed" and all("ready." in one.said() for one in nodes))


@pytest.mark.parametrize("seed", range(10 if ALL else 1))
def test_workers_pumps_and_brokers_are_killed_at_random(start, postgres_url, world, broker, tmp_path, seed):
    tasks, steps = 60, 6
    rng, pool = random.Random(seed), (THREADS, PREFORK)[seed % 2]
    nodes = [worker(start, f"worker{n}", *pool) for n in range(2)]
    pump = start("pump", "-m", "tests.places.celery_shop")

    def broker_restarts():
        broker.kill()
        broker.start()

    breaks = [nodes[0].restart, nodes[1].restart, pump.restart, broker_restarts]
    with holdfast.open(postgres_url) as app:
        ready(app, nodes)
        begin(app, tasks, steps)
        broken = survive(app, tasks, rng, breaks, every=3.0)
        taken, _, _ = judged(app, world, postgres_url, tmp_path, tasks, steps, broken)
    assert broken and taken < AGAIN + RECONNECT + grace()


@pytest.mark.parametrize("pool", [THREADS, PREFORK], ids=["threads", "prefork"])
def test_the_tasks_of_a_killed_node_are_taken_over_at_once(start, postgres_url, world, tmp_path, pool):
    """Those that it worked on, and those whose messages it had taken."""
    nodes = [worker(start, f"worker{n}", *pool) for n in range(2)]
    start("pump", "-m", "tests.places.celery_shop")
    with holdfast.open(postgres_url) as app:
        ready(app, nodes)
        begin(app, 8, 8)
        wait(lambda: len(app.list(status="running")) == 8)
        killed = time.time_ns() // 1000
        nodes[0].kill()
        wait(lambda: completed(app) == 8)
        taken, _, count = judged(app, world, postgres_url, tmp_path, 8, 8, [killed])
    assert count and taken < AGAIN + grace()


def test_a_broker_that_forgets_its_messages_costs_seconds(start, postgres_url, world, broker, tmp_path):
    """The messages of all tasks wait in Redis while no worker is there, and are gone."""
    pump = start("pump", "-m", "tests.places.celery_shop")
    with holdfast.open(postgres_url) as app, broker.client() as redis:
        begin(app, 8, 2)
        wait(lambda: redis.llen("celery") >= 8)
        pump.stop()
        broker.kill()
        broker.start()
        assert redis.llen("celery") == 0
        start("pump", "-m", "tests.places.celery_shop")
        node = worker(start, "worker", *THREADS)
        wait(lambda: "ready." in node.said())
        there = time.time_ns() // 1000
        wait(lambda: completed(app) == 8)
        judged(app, world, postgres_url, tmp_path, 8, 2, [])
        begun = [next(one.at_us for one in app.events(f"t{n:04}") if one.kind == "task_claimed") for n in range(8)]
    assert (max(begun) - there) / 1e6 < AGAIN + grace()


def test_messages_do_not_pile_up_while_no_worker_takes_them(start, postgres_url, world, broker):
    with holdfast.open(postgres_url) as app, broker.client() as redis:
        begin(app, 200, 1)
        start("pump", "-m", "tests.places.celery_shop")
        wait(lambda: redis.llen("celery") >= 100)
        time.sleep(2 * AGAIN + 1)
        assert redis.llen("celery") == 100

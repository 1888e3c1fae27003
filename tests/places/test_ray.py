"""Ray for real, with two nodes on this machine: actors' processes and whole nodes are killed."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import holdfast
from holdfast import HoldfastError, InvalidValue, StoreError
from holdfast.core.errors import InvalidUrl
from tests.conftest import ALL
from tests.crash.storm import agents_at
from tests.places.programs import children
from tests.places.storm import (
    PAYING,
    PLACES,
    REST_SECONDS,
    RESTING,
    SECONDS,
    STEPS,
    completed,
    judged,
    start,
    survive,
    wait,
    wake_as_it_dies,
)

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # read when Ray is imported: all addresses are 127.0.0.1
ray = pytest.importorskip("ray", reason="make test-places, or: pip install ray")

from holdfast import on_ray  # noqa: E402 — only where Ray is installed

ROOT = Path(__file__).parents[2]
AT_ONCE = 1.0
"""What is due is taken at once, if a worker is there."""
A_NODE_EACH = {"num_cpus": 3}
"""Of the four that a node has: two actors are never on one node. Ray spreads them by itself, but promises nothing."""
STARTED_AGAIN = 30.0
"""How long Ray takes to start an actor again at the most: some seconds, and more while others keep the machine busy."""
SETTINGS = {"include_dashboard": False, "object_store_memory": 80 * 1024 * 1024}
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(400)]  # warnings of Ray's own


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A head node on which nothing may run, and a driver. Tests add nodes."""
    from ray.cluster_utils import Cluster

    token = tmp_path_factory.mktemp("ray") / "token"
    token.write_text("0" * 64)
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_TOKEN_PATH": str(token)}
    made = started(lambda: Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **SETTINGS}))
    environment = {"env_vars": {"PYTHONPATH": str(ROOT)}}
    ray.init(address=made.address, runtime_env=environment, logging_level="ERROR", log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def started(start):
    """Start a node. On a machine that others keep busy it may take longer than the 30 s that Ray waits."""
    for _ in range(3):
        with suppress(Exception):
            return start()
    return start()


class Nodes:
    """So many nodes of a cluster, on which actors run."""

    def __init__(self, cluster, number):
        self._cluster = cluster
        self.all = [self._add() for _ in range(number)]

    def _add(self):
        return started(lambda: self._cluster.add_node(num_cpus=4, **SETTINGS))

    def of(self, worker):
        """The node that a worker is on."""
        (socket,) = [one["RayletSocketName"] for one in ray.nodes() if one["NodeID"] == worker.node]
        return next(one for one in self.all if one.raylet_socket_name == socket)

    def kill(self, node, app, deaths):
        """Kill a node and everything on it: as when the machine is switched off."""
        (raylet,) = node.all_processes["raylet"]
        deaths.know(app)
        deaths.note(raylet.process.pid)
        for pid in [raylet.process.pid, *children(raylet.process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def remove(self, node):
        with suppress(Exception):
            self._cluster.remove_node(node, allow_graceful=False)
        wait(
            lambda: not any(one["Alive"] and one["RayletSocketName"] == node.raylet_socket_name for one in ray.nodes())
        )
        self.all = [one for one in self.all if one is not node]

    def wait_until_the_dead_are_known(self):
        """Wait until Ray knows which nodes are gone: a new driver may else be sent to one of them, and fails."""
        wait(lambda: sum(one["Alive"] for one in ray.nodes()) == 1 + len(self.all))

    def replace(self, node, app, deaths):
        self.kill(node, app, deaths)
        self.remove(node)
        self.all.append(self._add())


@contextmanager
def nodes(cluster, number=2):
    made = Nodes(cluster, number)
    try:
        yield made
    finally:
        for one in list(made.all):
            made.remove(one)


@contextmanager
def crew(url, world, *, pause=0.5, **given):
    agents = agents_at(world.address, (pause,), timeout=10.0)
    made = on_ray.workers(url, agents, **{"number": 2, "concurrency": 16, "options": {"num_cpus": 1}, **given})
    try:
        yield made
    finally:
        made.stop(grace="10s")


def apart(url, world):
    """Two workers on two nodes."""
    return crew(url, world, options=A_NODE_EACH)


def kill(pid, app, deaths):
    deaths.know(app)
    deaths.note(pid)
    os.kill(pid, signal.SIGKILL)


def busiest(made):
    return max(made.status(), key=lambda one: one.busy)


def are_working(made, number):
    return [one.state for one in made.status()] == ["working"] * number


@pytest.mark.sample
def test_a_killed_actor_is_taken_over_at_once_and_started_again(cluster, postgres_url, world, deaths, tmp_path):
    with nodes(cluster, 1), crew(postgres_url, world) as made, holdfast.open(postgres_url) as app:
        for number in range(16):
            start(app, number, 8)
        wait(lambda: len(app.list(status="running")) == 16)
        kill(busiest(made).pid, app, deaths)
        wait(lambda: completed(app) == 16)
        assert judged(app, world, postgres_url, tmp_path, 16, 8, deaths, promised=AT_ONCE)["killed"]
        wait(lambda: are_working(made, 2))
        assert not deaths.pids.keys() & {one.pid for one in made.status()}


def test_the_tasks_of_a_killed_node_are_taken_over_at_once(cluster, postgres_url, world, deaths, tmp_path):
    with nodes(cluster) as places, apart(postgres_url, world) as made, holdfast.open(postgres_url) as app:
        for number in range(16):
            start(app, number, 8)
        wait(lambda: len(app.list(status="running")) == 16)
        node = places.of(busiest(made))
        places.kill(node, app, deaths)
        wait(lambda: completed(app) == 16)
        assert judged(app, world, postgres_url, tmp_path, 16, 8, deaths, promised=AT_ONCE)["killed"]
        places.remove(node)


def test_tasks_that_become_due_as_a_node_is_killed_wait_no_longer(cluster, postgres_url, world, deaths, tmp_path):
    with nodes(cluster) as places, apart(postgres_url, world) as made, holdfast.open(postgres_url) as app:
        node = places.of(made.status()[0])
        wake_as_it_dies(app, lambda: places.kill(node, app, deaths))
        assert judged(app, world, postgres_url, tmp_path, 8, 2, deaths, promised=AT_ONCE)["time"] >= 8
        places.remove(node)


def test_a_lone_actor_is_started_again_and_its_tasks_go_on(cluster, postgres_url, world, deaths, tmp_path):
    """Killed twice. Nothing can be done until Ray has started it again; after that, nothing waits."""
    outages = []
    with nodes(cluster, 1), crew(postgres_url, world, number=1) as made, holdfast.open(postgres_url) as app:
        for number in range(8):
            start(app, number, 8, REST_SECONDS if number % 2 else 0.0)
        for share in (2, 5):
            wait(lambda share=share: len(world.requests("pay")) >= 8 * share)
            began, (before,) = time.time_ns() // 1000, made.status()
            kill(before.pid, app, deaths)
            wait(lambda: are_working(made, 1) and made.status()[0].pid not in deaths.pids, STARTED_AGAIN)
            outages.append((began, time.time_ns() // 1000))
        wait(lambda: completed(app) == 8)
        counts = judged(app, world, postgres_url, tmp_path, 8, 8, deaths, promised=AT_ONCE, outages=outages)
    assert counts["killed"] >= 2


def test_what_the_workers_of_a_lost_head_had_is_continued_by_the_next(
    cluster, programs, postgres_url, world, deaths, tmp_path
):
    """Another cluster's head is killed, and some seconds later Ray ends its actors: then there are no workers."""
    lost = programs("head", "-m", "tests.places.ray_head", broker="")
    with nodes(cluster, 1), holdfast.open(postgres_url) as app:
        wait(lost.is_ready)
        for number in range(8):
            start(app, number, 40)
        wait(lambda: len(app.list(status="running")) == 8)
        deaths.know(app)
        began = time.time_ns() // 1000
        (head,) = re.findall(r"^head: (\d+) (\d+)$", (tmp_path / "head.log").read_text(), re.M)
        for pid in [*map(int, head), *(one.serving.pid for one in app.workers())]:
            deaths.note(pid)
        for pid in head:
            os.kill(int(pid), signal.SIGKILL)
        wait(lambda: app.workers() == [])
        with crew(postgres_url, world):
            outages = [(began, time.time_ns() // 1000)]
            wait(lambda: completed(app) == 8)
        given = {"promised": AT_ONCE, "outages": outages}
        assert judged(app, world, postgres_url, tmp_path, 8, 40, deaths, **given)["killed"]


@pytest.mark.parametrize("seed", range(10 if ALL else 1))
def test_actors_and_nodes_are_killed_at_random(cluster, postgres_url, world, deaths, tmp_path, seed):
    """Three actors on two nodes. One of them is always left."""
    rng, given = random.Random(seed), {"number": 3, "concurrency": PLACES, "max_deaths": 100}
    with nodes(cluster) as places, crew(postgres_url, world, **given) as made, holdfast.open(postgres_url) as app:

        def one_actor():
            kill(rng.choice(made.status()).pid, app, deaths)

        def one_node():
            node = rng.choice(places.all)
            if all(places.of(one) is node for one in made.status()):
                one_actor()
            else:
                places.replace(node, app, deaths)

        assert survive(app, rng, [one_actor, one_actor, one_node], is_whole=lambda: are_working(made, 3))
        judged(app, world, postgres_url, tmp_path, RESTING + PAYING, STEPS, deaths, promised=AT_ONCE)


def test_workers_are_scaled_while_they_work_and_drained(cluster, postgres_url, world, deaths, tmp_path):
    given = {"number": 1, "concurrency": 4}
    with nodes(cluster, 1), crew(postgres_url, world, **given) as made, holdfast.open(postgres_url) as app:
        for number in range(32):  # half a minute for one worker: there is work left when the others are there
            start(app, number, 8)
        wait(lambda: made.status()[0].busy == 4)
        made.scale(3)
        wait(lambda: sum(one.busy for one in made.status()) > 4)
        assert made.number == 3 and "holdfast_ray_worker_busy" in made.metrics()
        assert sum(one.counts["claimed"] for one in made.status()) >= 5
        made.scale(1)
        assert made.number == len(made.status()) == len(app.workers()) == 1
        wait(lambda: completed(app) == 32)
        seen = judged(app, world, postgres_url, tmp_path, 32, 8, deaths, promised=SECONDS)
        assert not seen["killed"], "nothing had to be taken over: the drained workers released what they had"
        made.stop()
        assert made.number == 0 and app.workers() == []


PROGRAM = f"""
import sys, ray
from holdfast import on_ray
from tests.crash.storm import agents_at
address, url, world = sys.argv[1:]
ray.init(address=address, runtime_env={{"env_vars": {{"PYTHONPATH": {str(ROOT)!r}}}}}, log_to_driver=False)
on_ray.workers(url, agents_at(world), number=2, name="shop", options={{"num_cpus": 1}})
"""


def test_named_workers_outlive_their_program_and_are_found_by_the_next(cluster, postgres_url, world):
    with nodes(cluster, 1) as places, holdfast.open(postgres_url) as app:
        places.wait_until_the_dead_are_known()
        command = [sys.executable, "-c", PROGRAM, cluster.address, postgres_url, world.address]
        subprocess.run(command, check=True, cwd=ROOT, timeout=120)
        with crew(postgres_url, world, number=1, name="shop") as made:
            assert made.number == 1 and len(app.workers()) == 1, "the second was stopped"
            for number in range(2):
                start(app, number, 1)
            wait(lambda: completed(app) == 2)
        assert app.workers() == []


def test_the_place_of_a_named_worker_that_somebody_ended_is_filled_again(cluster, postgres_url, world):
    with nodes(cluster, 1), crew(postgres_url, world, name="hole") as made:
        before = {one.pid for one in made.status()}
        ray.kill(ray.get_actor("hole-0", namespace=on_ray.NAMESPACE), no_restart=True)
        wait(lambda: len(on_ray._named("hole")) == 1)
        with crew(postgres_url, world, name="hole") as found:
            pids = {one.pid for one in found.status()}
            assert are_working(found, 2) and len(pids) == 2 and len(pids & before) == 1


def test_what_cannot_work_is_refused(cluster, postgres_url, world, monkeypatch):
    agents = agents_at(world.address)
    for odd in (agents[0], [], ["steady"], None):
        with pytest.raises(InvalidValue, match="is not a list of agents"):
            on_ray.workers(postgres_url, odd)
    with pytest.raises(InvalidValue, match="is not a number of workers"):
        on_ray.workers(postgres_url, agents, number=-1)
    for place in ("memory:", "shop.db", "sqlite:///shop.db"):
        with pytest.raises(InvalidUrl, match="names another store in each actor"):
            on_ray.workers(place, agents)
    for odd in ({"concurency": 5}, {"opened": {"durabilty": "full"}}):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            on_ray.workers(postgres_url, agents, **odd)
    with nodes(cluster, 1):
        with pytest.raises(StoreError, match=r"^the worker can't open its store"):
            on_ray.workers("postgresql://127.0.0.1:1/nothing", agents)
        with pytest.raises(InvalidValue, match=r"^concurrency=0 lets nothing happen"):
            on_ray.workers(postgres_url, agents, concurrency=0)
        monkeypatch.setattr(on_ray, "READY_SECONDS", 15.0)
        with pytest.raises(HoldfastError, match="1 of 2 workers were not started within 15 s"):
            on_ray.workers(postgres_url, agents, number=2, options=A_NODE_EACH)
        with holdfast.open(postgres_url) as app:
            wait(lambda: app.workers() == [])

"""Ray for real, with two nodes on this machine: actors' processes and whole nodes are killed."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import holdfast
from holdfast import InvalidValue, StoreError
from holdfast.testing.crash.world import World
from tests.conftest import ALL
from tests.crash.storm import agents_at, begin
from tests.places.storm import completed, grace, judged, survive, wait

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # read when Ray is imported: all addresses are 127.0.0.1
ray = pytest.importorskip("ray", reason="make test-places, or: pip install ray")

from holdfast import on_ray  # noqa: E402 — only where Ray is installed

ROOT = Path(__file__).parents[2]
TAKEN_OVER = 1.0
SETTINGS = {"include_dashboard": False, "object_store_memory": 80 * 1024 * 1024}
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(400)]  # warnings of Ray's own


@pytest.fixture
def world():
    with World() as started:
        yield started


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

    def kill(self, node):
        """Kill a node and everything on it: as when the machine is switched off."""
        (raylet,) = node.all_processes["raylet"]
        for pid in [raylet.process.pid, *children(raylet.process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def remove(self, node):
        with suppress(Exception):
            self._cluster.remove_node(node, allow_graceful=False)
        self.all = [one for one in self.all if one is not node]

    def replace(self, rng):
        node = rng.choice(self.all)
        self.kill(node)
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


def children(pid):
    """Every process below one."""
    found, parents = [], {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    for one, parent in parents.items():
        while parent and parent != pid:
            parent = parents.get(parent, 0)
        if parent == pid:
            found.append(one)
    return found


@contextmanager
def crew(url, world, *, pause=0.5, **given):
    agents = agents_at(world.address, pause, timeout=10.0)
    made = on_ray.workers(url, agents, **{"number": 2, "concurrency": 16, "options": {"num_cpus": 1}, **given})
    try:
        yield made
    finally:
        made.stop(grace="10s")


def kill_one(made, rng):
    pids = [one.pid for one in made.status() if one.pid]
    if pids:
        with suppress(ProcessLookupError):
            os.kill(rng.choice(pids), signal.SIGKILL)


def test_a_killed_actor_is_taken_over_at_once_and_started_again(cluster, postgres_url, world, tmp_path):
    with nodes(cluster, 1), crew(postgres_url, world) as made, holdfast.open(postgres_url) as app:
        begin(app, 16, 8)
        wait(lambda: len(app.list(status="running")) == 16)
        victim = max(made.status(), key=lambda one: one.busy)
        killed = time.time_ns() // 1000
        os.kill(victim.pid, signal.SIGKILL)
        wait(lambda: completed(app) == 16)
        taken, _, count = judged(app, world, postgres_url, tmp_path, 16, 8, [killed])
        assert count and taken < TAKEN_OVER + grace()
        wait(lambda: [one.state for one in made.status()] == ["working"] * 2)
        assert victim.pid not in {one.pid for one in made.status()}


def test_the_tasks_of_a_killed_node_are_taken_over_at_once(cluster, postgres_url, world, tmp_path):
    with nodes(cluster) as places, crew(postgres_url, world) as made, holdfast.open(postgres_url) as app:
        assert len({one.node for one in made.status()}) == 2
        begin(app, 16, 8)
        wait(lambda: len(app.list(status="running")) == 16)
        busiest = max(made.status(), key=lambda one: one.busy)
        (node,) = [one for one in places.all if one.node_id == busiest.node]
        killed = time.time_ns() // 1000
        places.kill(node)
        wait(lambda: completed(app) == 16)
        taken, _, count = judged(app, world, postgres_url, tmp_path, 16, 8, [killed])
        places.remove(node)
    assert count and taken < TAKEN_OVER + grace()


@pytest.mark.parametrize("seed", range(10 if ALL else 1))
def test_actors_and_nodes_are_killed_at_random(cluster, postgres_url, world, tmp_path, seed):
    tasks, steps, rng = 60, 8, random.Random(seed)
    given = {"number": 3, "concurrency": 6, "max_deaths": 100}
    with nodes(cluster) as places, crew(postgres_url, world, **given) as made, holdfast.open(postgres_url) as app:
        begin(app, tasks, steps)
        breaks = [lambda: kill_one(made, rng), lambda: kill_one(made, rng), lambda: places.replace(rng)]
        broken = survive(app, tasks, rng, breaks, every=3.0)
        taken, _, _ = judged(app, world, postgres_url, tmp_path, tasks, steps, broken)
    assert broken and taken < TAKEN_OVER + grace()


def test_workers_are_scaled_while_they_work_and_drained(cluster, postgres_url, world, tmp_path):
    given = {"number": 1, "concurrency": 4}
    with nodes(cluster, 1), crew(postgres_url, world, **given) as made, holdfast.open(postgres_url) as app:
        begin(app, 16, 4)
        wait(lambda: made.status()[0].busy == 4)
        made.scale(3)
        wait(lambda: sum(one.busy for one in made.status()) > 4)
        assert made.number == 3 and "holdfast_ray_worker_busy" in made.metrics()
        assert sum(one.counts["claimed"] for one in made.status()) >= 5
        made.scale(1)
        assert made.number == len(made.status()) == len(app.workers()) == 1
        wait(lambda: completed(app) == 16)
        seen = judged(app, world, postgres_url, tmp_path, 16, 4, [])
        assert seen[2] == 0, "nothing had to be taken over: the drained workers released what they had"
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
    with nodes(cluster, 1), holdfast.open(postgres_url) as app:
        command = [sys.executable, "-c", PROGRAM, cluster.address, postgres_url, world.address]
        subprocess.run(command, check=True, cwd=ROOT, timeout=120)
        with crew(postgres_url, world, number=1, name="shop") as made:
            assert made.number == 1 and len(app.workers()) == 1, "the second was stopped"
            begin(app, 2, 1)
            wait(lambda: completed(app) == 2)
        assert app.workers() == []


def test_what_cannot_work_is_refused(cluster, postgres_url, world):
    agents = agents_at(world.address)
    for odd in (agents[0], [], ["steady"]):
        with pytest.raises(InvalidValue, match="is not a list of agents"):
            on_ray.workers(postgres_url, odd)
    with pytest.raises(InvalidValue, match="is not a number of workers"):
        on_ray.workers(postgres_url, agents, number=-1)
    with nodes(cluster, 1), pytest.raises(StoreError, match="the worker can't open its store"):
        on_ray.workers("postgresql://127.0.0.1:1/nothing", agents)

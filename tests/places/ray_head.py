"""A cluster of Ray of its own with two workers, which says what its head is: `python -m tests.places.ray_head`.

It keeps no reference to the workers: they live as long as it does.
"""

import os
import signal
from pathlib import Path

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # read when Ray is imported: all addresses are 127.0.0.1
os.environ["RAY_gcs_rpc_server_reconnect_timeout_s"] = "5"  # noqa: SIM112 — how long nodes wait for a head; else 60

import ray
from ray.cluster_utils import Cluster

from holdfast import on_ray
from tests.crash.storm import agents_at
from tests.places.shop import PAUSE, URL, WORLD

ROOT = Path(__file__).parents[2]
SETTINGS = {"include_dashboard": False, "object_store_memory": 80 * 1024 * 1024}

if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **SETTINGS})
    cluster.add_node(num_cpus=4, **SETTINGS)
    ray.init(
        address=cluster.address,
        runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
        logging_level="ERROR",
        log_to_driver=False,
    )
    on_ray.workers(URL, agents_at(WORLD, (PAUSE,), timeout=10.0), number=2, concurrency=4, options={"num_cpus": 1})
    head = cluster.head_node.all_processes
    print("head:", *(head[name][0].process.pid for name in ("gcs_server", "raylet")), flush=True)
    print("ready.", flush=True)
    signal.pause()

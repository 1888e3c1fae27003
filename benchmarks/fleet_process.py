"""Many workers in one process, as `fleet` measures them: python -m benchmarks.fleet_process URL WORKERS CONCURRENCY.

Prints `ready`, and when its standard input ends, how often they asked for tasks and how many they took.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import holdfast
from benchmarks.worker_process import AGENTS
from holdfast.store.postgres.queues import PostgresQueues

COUNTS = {"asked": 0, "rows": 0}
_LOCK = threading.Lock()


def count_claims() -> None:
    """Count the queries that look for tasks, and the rows that they give."""
    looked = PostgresQueues._due  # type: ignore[reportPrivateUsage]

    def counted(self: PostgresQueues, *given: Any, **named: Any) -> Any:
        found = looked(self, *given, **named)
        with _LOCK:
            COUNTS["asked"] += 1
            COUNTS["rows"] += len(found)
        return found

    PostgresQueues._due = counted  # type: ignore[reportPrivateUsage]


def serve(url: str, workers: int, concurrency: int) -> None:
    """Work until the standard input ends."""
    apps = [holdfast.open(url) for _ in range(workers)]
    served = [app.worker(AGENTS, concurrency=concurrency) for app in apps]
    threads = [threading.Thread(target=worker.run) for worker in served]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    for _ in sys.stdin:  # each line asks for the counts so far
        print(json.dumps(COUNTS), flush=True)
    for worker in served:
        worker.stop()
    for thread in threads:
        thread.join()
    for app in apps:
        app.close()


if __name__ == "__main__":
    count_claims()
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

"""What a worker counts: how many tasks came to what."""

from __future__ import annotations

import threading
from collections import Counter

COUNTED = {
    "claimed": "tasks taken",
    "taken_over": "tasks taken from a worker that was dead or silent",
    "completed": "tasks that ended well",
    "failed": "tasks that failed",
    "cancelled": "tasks that were cancelled",
    "waiting": "tasks that went to wait",
    "released": "tasks released for other workers",
    "quarantined": "quarantined tasks",
    "lease_lost": "tasks that another worker had taken",
    "scheduled": "tasks begun by a schedule",
    "collected": "old tasks removed",
    "store_errors": "times the store could not be reached",
    "errors": "unexpected errors",
}


class WorkerCounts:
    """Counters, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        with self._lock:
            self._counts[name] += count

    def __getitem__(self, name: str) -> int:
        return self._counts[name]

    def all(self) -> dict[str, int]:
        """Every counter, those that stand at zero too."""
        return {name: self._counts[name] for name in COUNTED}

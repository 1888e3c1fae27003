"""A worker process as `workers` measures it: python -m benchmarks.worker_process URL CONCURRENCY."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import holdfast
from benchmarks.workload import at_once
from holdfast import AsyncTask, Task, agent


def entered() -> float:
    """When a step began; the clock is the same for all processes of a machine."""
    return time.monotonic()


def stay(told: str) -> None:
    """Say who is here since when, and stay a while."""
    with Path(told).open("a") as file:
        file.write(f"{os.getpid()} {time.monotonic()}\n")
    time.sleep(60)


@agent
async def short(task: AsyncTask) -> float:
    """One step."""
    return await task.step(entered)


@agent
def long(task: Task, told: str) -> None:
    """A step that does not end soon."""
    task.step(stay, told)


@agent
async def asleep(task: AsyncTask) -> None:
    """Costs nothing until tomorrow."""
    await task.sleep(24 * 60 * 60)


AGENTS = [at_once, short, long, asleep]


if __name__ == "__main__":
    with holdfast.open(sys.argv[1]) as app:
        app.worker(AGENTS, concurrency=int(sys.argv[2])).run()

"""Agents for the tests of workers at the command line."""

import time
from pathlib import Path

from holdfast import AsyncTask, Queue, Task, agent

mail = Queue("mail", concurrency=2)


def nap(task_id: str, n: int) -> int:
    with Path("steps").open("a") as file:
        file.write(f"{task_id} {n}\n")
    time.sleep(0.1)
    return n


@agent
def slow(task: Task, steps: int = 100) -> int:
    return sum(task.step(nap, task.id, n) for n in range(steps))


@agent
def stuck(task: Task) -> None:
    Path("stuck").touch()
    task.step(time.sleep, 600)


@agent
async def quick(task: AsyncTask, x: int = 1) -> int:
    print("this is no data")
    return await task.step(lambda: 2 * x, name="double")


@agent
def failer(task: Task) -> None:
    raise ValueError("no such city")

"""Absurd on PostgreSQL: its schema from the package of its command line, its workers in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import absurdctl
import psycopg
from absurd_sdk import Absurd
from serving import RESULT, serve

_url = sys.argv[1]

_LEFT = "select count(*) from absurd.{} where state not in ('completed', 'failed', 'cancelled')"


def _app(queue: str) -> Absurd:
    """A client of a queue, with all that workers can do."""
    app = Absurd(_url, queue_name=queue)

    @app.register_task("sequence")
    def sequence(params: Any, ctx: Any) -> None:
        for _ in range(params["steps"]):
            ctx.step("work", lambda: RESULT)

    @app.register_task("short")
    def short(params: Any, ctx: Any) -> float:
        return ctx.step("entered", time.monotonic)

    @app.register_task("long")
    def long(params: Any, ctx: Any) -> None:
        ctx.step("stay", lambda: _stay(Path(params["told"])))

    return app


def _stay(told: Path) -> None:
    """Say who is here since when, and stay a while."""
    with told.open("a") as file:
        file.write(f"{os.getpid()} {time.monotonic()}\n")
    time.sleep(60)


def _queue(name: str) -> Absurd:
    app = _app(name)
    app.create_queue()
    return app


@contextmanager
def _workers(queue: str, number: int, **options: object) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Worker processes of a queue."""
    command = [sys.executable, __file__, _url, queue, *(f"{name}={value}" for name, value in options.items())]
    found = [subprocess.Popen(command, stdin=subprocess.DEVNULL) for _ in range(number)]
    time.sleep(1.5)
    try:
        yield found
    finally:
        for one in found:
            one.kill()
            one.wait()


def sequential(steps: int) -> float:
    """Steps of a task, one after the other, by a worker in this process."""
    app = _lone
    began = time.perf_counter()
    app.spawn("sequence", {"steps": steps})
    app.work_batch()
    return time.perf_counter() - began


def concurrent(tasks: int, steps: int, processes: int) -> float:
    """Many tasks, by so many worker processes; one that has several at once shares one connection among them."""
    name = f"many_{processes}_{time.monotonic_ns()}"
    app = _queue(name)
    options = {"concurrency": 50} if processes == 1 else {"batch_size": 5}
    with _workers(name, processes, **options), psycopg.connect(_url, autocommit=True) as connection:
        began = time.perf_counter()
        for _ in range(tasks):
            app.spawn("sequence", {"steps": steps})
        while connection.execute(_LEFT.format(f"t_{name}")).fetchone() != (0,):
            time.sleep(0.01)
        return time.perf_counter() - began


def latency(samples: int) -> list[float]:
    """Seconds from spawning to the first step on an idle worker, with the poll interval it comes with."""
    app = _queue("idle")
    found: list[float] = []
    with _workers("idle", 1):
        for number in range(samples):
            time.sleep(0.037 * number % 0.25)  # at another moment between two polls each time
            began = time.monotonic()
            task = app.spawn("short", {})
            found.append(float(app.await_task_result(task["task_id"]).result) - began)
    return found


def takeover(lease_seconds: int) -> float:
    """Seconds from the kill of a worker to the moment another is where it was."""
    app = _queue("taken")
    told = Path(tempfile.mkdtemp()) / "told"
    with _workers("taken", 2, claim_timeout=lease_seconds) as workers:
        app.spawn("long", {"told": str(told)})
        pid, _ = _lines(told, 1)[0].split()
        os.kill(int(pid), signal.SIGKILL)
        killed = time.monotonic()
        entered = _lines(told, 2)[1].split()[1]
        assert int(pid) in [one.pid for one in workers]
    return float(entered) - killed


def _lines(path: Path, number: int) -> list[str]:
    """The lines of a file, when there are so many."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = path.read_text().splitlines() if path.exists() else []
        if len(found) >= number:
            return found
        time.sleep(0.005)
    raise TimeoutError(f"nobody came to {path}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        given = dict(pair.split("=") for pair in sys.argv[3:])
        _app(sys.argv[2]).start_worker(**{name: int(value) for name, value in given.items()})
    with psycopg.connect(_url, autocommit=True) as connection:
        connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
    _lone = _queue("lone")
    serve(sequential=sequential, concurrent=concurrent, latency=latency, takeover=takeover)

"""What traces and metrics cost an empty step: in the thread that makes it, and in the whole process.

Each round opens an app, runs one task and closes the app, so that everything is sent within
what is measured. The collector is a process of its own.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import count, repeat
from typing import Any

import holdfast
from benchmarks.bench import Bench
from benchmarks.table import Goal, Row, at_most
from benchmarks.workload import MOST_ROUNDS, say
from holdfast import Task, agent
from holdfast.tracing import Otlp

STEPS = 4_000
ROUNDS = min(10, MOST_ROUNDS)

COLLECTOR = """
import http.server

class Taking(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Taking)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@agent
def steps(task: Task) -> float:
    """Make steps that do nothing; return the CPU seconds of this thread for them."""
    began = time.thread_time()
    for number in range(STEPS):
        task.step(abs, number)
    return time.thread_time() - began


def rows(bench: Bench) -> list[Row]:
    """Steps with traces, and with metrics, beside steps with neither, on SQLite and on the store in memory."""
    with _collector() as endpoint:
        files = (str(bench.place / f"{number}.db") for number in count())
        on_sqlite = _rows("SQLite", files, endpoint, at_most(1.05))
        return [*on_sqlite, *_rows("the store in memory", repeat("memory:"), endpoint)]


def _rows(store: str, urls: Iterator[str], endpoint: str, goal: Goal | None = None) -> list[Row]:
    say(f"telemetry, {store}")
    to = Otlp(endpoint=endpoint)
    options: dict[str, dict[str, Any]] = {"neither": {}, "traces": {"traces": to}, "metrics": {"metrics": to}}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in options}
    for _ in range(1 + ROUNDS):
        for name, given in options.items():
            found[name].append(_seconds(next(urls), given))
    least = {name: [min(one) * 1e6 / STEPS for one in zip(*rounds[1:], strict=True)] for name, rounds in found.items()}
    return [
        Row(
            name=f"step with {name} on {store}, CPU of {where}",
            measured=least[name][place],
            unit="µs",
            compare=least["neither"][place],
            beside="with neither",
            goal=goal if (name, place) == ("traces", 0) else None,
        )
        for place, where in enumerate(("its thread", "the whole process"))
        for name in ("traces", "metrics")
    ]


def _seconds(url: str, options: dict[str, Any]) -> tuple[float, float]:
    """CPU seconds of the thread that made the steps, and of the process until everything was sent."""
    gc.collect()
    began = time.process_time()
    with holdfast.open(url, durability="process", **options) as app:
        thread = app.run(steps, id="task-1").result
    return thread, time.process_time() - began


@contextmanager
def _collector() -> Generator[str, None, None]:
    """A collector that takes everything, in a process of its own."""
    with subprocess.Popen([sys.executable, "-c", COLLECTOR], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()

"""The health of a worker: its counters, served on this machine."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from holdfast.core import codec
from holdfast.core.errors import HoldfastError, StoreUnreachable
from holdfast.engine.drivers.abandonable import ABANDONED
from holdfast.store.queues import QueueDepth

if TYPE_CHECKING:
    from holdfast.engine.workers.worker import Worker

KEPT_SECONDS = 1.0
"""How long a count of tasks is reused: frequent requests do not make the store count often."""

SLOW_SECONDS = 5.0
"""How long one waits for the rest of a request."""

MOST_ASKING = 32
"""How many are answered at a time."""

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


class _Server(ThreadingHTTPServer):
    """Answers so many at a time; others are turned away. A client that hangs up is not logged."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._places = threading.BoundedSemaphore(MOST_ASKING)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


HOST = "127.0.0.1"
"""Health is served to this machine alone."""


class Health:
    """`/healthz` and `/metrics` of a worker, on 127.0.0.1."""

    def __init__(self, worker: Worker, depths: Callable[[], list[QueueDepth]], port: int = 0) -> None:
        health = self

        class Handler(BaseHTTPRequestHandler):
            timeout = SLOW_SECONDS

            def do_GET(self) -> None:
                status, kind, body = health.answer(self.path.partition("?")[0])
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body if self.command == "GET" else b"")

            do_HEAD = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                """Requests are not logged."""

        self._worker = worker
        self._depths = depths
        self._known: list[QueueDepth] = []
        self._fresh_until = 0.0
        self._lock = threading.Lock()
        self._server = _Server((HOST, port), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="holdfast-health", daemon=True).start()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Answer a request: status, content type, body."""
        if path == "/healthz":
            try:
                depths = self._seen()
            except HoldfastError as error:
                return 503, "application/json", codec.dump({"status": "no store", "why": error.message})
            clogged = self._worker.clogged
            status = "stopping" if self._worker.stopping else "clogged" if clogged else "ok"
            facts: dict[str, Any] = {"status": status, "worker": self._worker.name, "busy": self._worker.busy}
            facts["queues"] = [{"namespace": one.namespace, "queue": one.queue, "ready": one.ready} for one in depths]
            facts |= {"why": clogged} if clogged else {}
            return 503 if clogged else 200, "application/json", codec.dump(facts)
        if path == "/metrics":
            return 200, "text/plain; version=0.0.4; charset=utf-8", self._metrics().encode()
        return 404, "text/plain; charset=utf-8", b"/healthz or /metrics\n"

    def _seen(self) -> list[QueueDepth]:
        """Return the depth of the queues; the last known one at once, while the worker can't reach its store."""
        if self._worker.trouble:
            raise StoreUnreachable(self._worker.trouble, hint="see the worker's log")
        with self._lock:
            now = time.monotonic()
            if now >= self._fresh_until:
                self._known = self._depths()
                self._fresh_until = time.monotonic() + KEPT_SECONDS
            return self._known

    def _metrics(self) -> str:
        """The text that Prometheus reads."""
        lines: list[str] = []
        for name, count in self._worker.counts.all().items():
            lines += [f"# HELP holdfast_{name}_total {COUNTED[name]}", f"# TYPE holdfast_{name}_total counter"]
            lines.append(f"holdfast_{name}_total {count}")
        lines += ["# HELP holdfast_busy tasks worked on now", "# TYPE holdfast_busy gauge"]
        lines.append(f"holdfast_busy {self._worker.busy}")
        lines += ["# HELP holdfast_abandoned_threads abandoned threads that still run"]
        lines += ["# TYPE holdfast_abandoned_threads gauge", f"holdfast_abandoned_threads {len(ABANDONED)}"]
        lines += ["# HELP holdfast_store_up whether the store can be reached", "# TYPE holdfast_store_up gauge"]
        try:
            depths = self._seen()
        except HoldfastError:
            return "\n".join([*lines, "holdfast_store_up 0", ""])
        lines.append("holdfast_store_up 1")
        lines += ["# HELP holdfast_tasks tasks of a queue by what they do", "# TYPE holdfast_tasks gauge"]
        for one in depths:
            place = f'namespace="{_escaped(one.namespace)}",queue="{_escaped(one.queue)}"'
            for state in ("ready", "running", "timed"):
                lines.append(f'holdfast_tasks{{{place},state="{state}"}} {getattr(one, state)}')
        return "\n".join([*lines, ""])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

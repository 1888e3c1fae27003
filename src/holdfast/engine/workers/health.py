"""The health of a worker: whether it works, for probes; its counters, for this machine alone.

`/livez`: whether a restart would help. `/readyz`: whether it takes tasks. `/healthz` and `/metrics`: everything, with
names of queues and texts of errors. An address that other machines reach serves the first two only.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from holdfast.core import codec
from holdfast.core.errors import HoldfastError, StoreUnreachable
from holdfast.engine.drivers.abandonable import ABANDONED
from holdfast.engine.telemetry import exposition, instruments
from holdfast.engine.telemetry.gauges import StoreGauges
from holdfast.engine.telemetry.instruments import Metric
from holdfast.engine.workers.counts import COUNTED

if TYPE_CHECKING:
    from holdfast.engine.workers.worker import Worker

SLOW_SECONDS = 5.0
"""How long one waits for the rest of a request."""

_READY = ("ok",)
_LIVE = ("ok", "starting", "stopping", "no store")
"""A restart helps a worker whose threads hang. It brings no store back, and would cut off what is being finished."""

MOST_ASKING = 32
"""How many are answered at a time."""


class _Server(ThreadingHTTPServer):
    """Answers so many at a time; others are turned away. A client that hangs up is not logged."""

    request_queue_size = 128  # with Python's 5, clients that come together wait seconds for the kernel to try again
    daemon_threads = True

    def __init__(self, family: socket.AddressFamily, address: Any, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = family
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


class HealthAddress(Struct, frozen=True):
    """Where health is served. 127.0.0.1: to this machine alone."""

    host: str = "127.0.0.1"
    port: int = 0

    def at(self, port: int) -> HealthAddress:
        """Return the same host with another port."""
        return HealthAddress(self.host, port)

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def is_public(self) -> bool:
        """True if other machines may reach it. A name counts as one that they can, except localhost."""
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"

    def resolved(self) -> tuple[socket.AddressFamily, Any]:
        """Return the address to listen on; raises OSError if the host has none."""
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return found[0][0], found[0][4]


class Health:
    """What a worker tells about itself over HTTP."""

    def __init__(
        self,
        worker: Worker,
        gauges: StoreGauges,
        address: HealthAddress = HealthAddress(),  # noqa: B008 — frozen
        measured: Callable[[], Sequence[Metric]] = tuple,
    ) -> None:
        """`gauges` ask the store, at most so often; `measured` is what the app has measured of its steps."""
        health = self

        class Handler(BaseHTTPRequestHandler):
            timeout = SLOW_SECONDS

            def do_GET(self) -> None:
                status, kind, body = health.answer(self.path.partition("?")[0], self.headers.get("Accept", ""))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body if self.command == "GET" else b"")

            do_HEAD = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                """Requests are not logged."""

        self._worker = worker
        self._gauges, self._measured = gauges, measured
        family, where = address.resolved()
        self.is_public = address.is_public
        self._server = _Server(family, where, Handler)
        self.port: int = self._server.server_address[1]
        self.url = address.at(self.port).url
        threading.Thread(target=self._server.serve_forever, name="holdfast-health", daemon=True).start()

    def answer(self, path: str, accept: str = "") -> tuple[int, str, bytes]:
        """Answer a request: status, content type, body. Prometheus accepts OpenMetrics if it wants exemplars."""
        if path in ("/livez", "/readyz"):
            status = self._status()
            fine = _LIVE if path == "/livez" else _READY
            return 200 if status in fine else 503, "application/json", codec.dump({"status": status})
        if self.is_public:
            return 404, "text/plain; charset=utf-8", b"/livez or /readyz\n"
        if path == "/healthz":
            try:
                self._refuse_without_store()
                depths = self._gauges.depths()
            except HoldfastError as error:
                return 503, "application/json", codec.dump({"status": "no store", "why": error.message})
            clogged = self._worker.clogged
            status = "stopping" if self._worker.stopping else "clogged" if clogged else "ok"
            facts: dict[str, Any] = {"status": status, "worker": self._worker.name, "busy": self._worker.busy}
            facts["queues"] = [{"namespace": one.namespace, "queue": one.queue, "ready": one.ready} for one in depths]
            facts |= {"why": clogged} if clogged else {}
            return 503 if clogged else 200, "application/json", codec.dump(facts)
        if path == "/metrics":
            is_open = "application/openmetrics-text" in accept
            text = exposition.exposition(self._metrics(), openmetrics=is_open)
            return 200, exposition.OPENMETRICS if is_open else exposition.TEXT, text.encode()
        return 404, "text/plain; charset=utf-8", b"/livez, /readyz, /healthz or /metrics\n"

    def _status(self) -> str:
        """Return one word of ours. It has no text of the store or of a task, because anyone may ask."""
        if self._worker.stopping:
            return "stopping"
        if self._worker.clogged:
            return "clogged"
        if self._worker.trouble:
            return "no store"
        return "ok" if self._worker.is_ready else "starting"

    def _refuse_without_store(self) -> None:
        """Answer at once while the worker can't reach its store."""
        if self._worker.trouble:
            raise StoreUnreachable(self._worker.trouble, hint="see the worker's log")

    def _metrics(self) -> list[Metric]:
        """Return what the worker counts, what the app measures, and what the store has."""
        found: list[Metric] = []
        for name, count in self._worker.counts.all().items():
            counter = instruments.Counter(f"holdfast.{name}", "{task}", COUNTED[name])
            counter.add(count)
            found.append(counter)
        found += self._measured()
        try:
            self._refuse_without_store()
            gauges = self._gauges.read()
        except HoldfastError:
            gauges = None
        for name, value, about in (
            ("busy", self._worker.busy, "tasks worked on now"),
            ("abandoned_threads", len(ABANDONED), "abandoned threads that still run"),
            ("store_up", int(gauges is not None), "whether the store can be reached"),
        ):
            gauge = instruments.Gauge(f"holdfast.{name}", "1", about)
            gauge.set(value)
            found.append(gauge)
        return [*found, *(gauges or ())]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

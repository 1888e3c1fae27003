"""Collectors for tests: one that takes everything, and ones that hang, refuse, or answer with an error."""

import contextlib
import http.server
import socket
import threading

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """A server that keeps what it is sent, read by OpenTelemetry's own classes."""

    def __init__(self, status=200, wait=None):
        self.requests, self.status, self.wait = [], status, wait
        self.headers = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if collector.wait is not None:
                    collector.wait.wait(60)
                collector.headers.append(dict(self.headers))
                if collector.status == 200:
                    collector.requests.append((self.path, body))
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                with contextlib.suppress(OSError):
                    self.end_headers()

            def log_message(self, *args):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def spans(self):
        """Every span that came, as often as it came."""
        return [
            span
            for path, body in self.requests
            if path == "/v1/traces"
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metrics(self):
        """The last point of every metric, by its name."""
        return {
            metric.name: metric
            for path, body in self.requests
            if path == "/v1/metrics"
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def close(self):
        if self.wait is not None:
            self.wait.set()
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def collecting(**options):
    collector = Collector(**options)
    try:
        yield collector
    finally:
        collector.close()


def refusing_endpoint():
    """An address at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"

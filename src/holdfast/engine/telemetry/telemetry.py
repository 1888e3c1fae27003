"""What an app tells of its work: one thread takes what was written and hands it to traces, measures and log lines.

A task only puts what it wrote on a list. When the list is full, because a collector hangs, the names of the logs are
kept instead, and their events are read from the store again. So only a collector can lose spans, and that is counted.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from holdfast.core import limits
from holdfast.core.errors import HoldfastError, InvalidValue
from holdfast.core.names import NAMESPACE_END
from holdfast.core.traces.span import Span
from holdfast.engine.logs.committer import PlacedEvent
from holdfast.engine.logs.logs import Logs
from holdfast.engine.telemetry import encoding
from holdfast.engine.telemetry.collector import Otlp, Outbox, as_otlp
from holdfast.engine.telemetry.event_lines import EventLines
from holdfast.engine.telemetry.exposition import exposition
from holdfast.engine.telemetry.gauges import StoreGauges
from holdfast.engine.telemetry.instruments import Metric
from holdfast.engine.telemetry.measures import Measures
from holdfast.engine.telemetry.tracer import Tracer


class Telemetry:
    """Hears of every event that an app writes, until it is closed."""

    def __init__(self, logs: Logs, *, traces: Otlp | None, metrics: Otlp | None, measured: bool, lines: bool) -> None:
        self._logs = logs
        self._tracer = Tracer(logs, content=traces is not None and traces.content)
        self.measures = Measures() if measured else None
        self.gauges = StoreGauges(logs)
        self._lines = EventLines() if lines else None
        self._spans = None if traces is None else Outbox(traces, "traces")
        self._metrics = None if metrics is None else Outbox(metrics, "metrics")
        self._every = _interval() if metrics is not None else limits.METRICS_SECONDS
        self._began_us, self._due = logs.clock.now_us(), time.monotonic() + self._every
        self._seen: deque[tuple[str, Sequence[PlacedEvent]]] = deque()
        self._missed: dict[str, None] = {}
        self._waiters: deque[threading.Event] = deque()
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._trouble = ""
        if self.measures is not None:
            logs.committer.time_commits(self.measures.committed.append)
        logs.committer.observers.append(self._observe)
        self._thread = threading.Thread(target=self._run, name="holdfast-telemetry", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def dropped(self) -> int:
        """The number of spans that were lost on the way to the collector."""
        return 0 if self._spans is None else self._spans.dropped

    def text(self, *, openmetrics: bool = False) -> str:
        """Return what was measured, and what the store counts, as Prometheus reads it."""
        if self._thread.is_alive():
            self._flush(limits.TELEMETRY_SECONDS)
        return exposition([*self.metrics(), *self.gauges.read()], openmetrics=openmetrics)

    def metrics(self) -> list[Metric]:
        """Return what was measured in this process."""
        return [] if self.measures is None else self.measures.all()

    def _observe(self, log: str, events: Sequence[PlacedEvent]) -> None:
        """Take note. This is all that a task waits for."""
        kept = len(self._seen)
        if kept < limits.TELEMETRY_KEPT:
            self._seen.append((log, events))
            if kept == limits.TELEMETRY_WAKE:
                self._wake.set()
        elif _is_task(log):
            self._missed[log] = None

    # The thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(limits.TELEMETRY_SECONDS)
            self._wake.clear()
            try:
                self._take()
                self._send()
            except HoldfastError as error:  # the store can't be read for now
                self._warn(f"traces and metrics lag behind: {error.message}")
            except Exception:  # a bug of ours must not end the thread, and must not reach the agent
                logging.getLogger("holdfast").exception("telemetry failed; it keeps trying")

    def _take(self) -> None:
        """Fold, measure and log what was written since."""
        waiters = [self._waiters.popleft() for _ in range(len(self._waiters))]
        while self._seen:
            self._take_seen([self._seen.popleft() for _ in range(min(len(self._seen), limits.TELEMETRY_WAKE))])
        while self._missed:
            log = next(iter(self._missed))
            self._give(self._tracer.catch_up(log), ())
            self._missed.pop(log, None)
        if self.measures is not None:
            self.measures.count_commits()
        for one in waiters:
            one.set()

    def _take_seen(self, seen: Sequence[tuple[str, Sequence[PlacedEvent]]]) -> None:
        """Take what was written, a log's events together. If the store can't be read, only what needs it waits."""
        trouble: HoldfastError | None = None
        for log, events in _runs(seen):
            try:
                self._give(self._tracer.take(log, events), events)
            except HoldfastError as error:
                self._missed[log], trouble = None, error
        for log, events in seen if self._lines is not None else ():
            if _is_task(log):
                self._log(log, events)
        if trouble is not None:
            raise trouble

    def _log(self, log: str, events: Sequence[PlacedEvent]) -> None:
        assert self._lines is not None
        tenant, _, task = log.rpartition(NAMESPACE_END)
        self._lines.take(tenant or self._logs.namespace, task, events, self._tracer.trace_id(log))

    def _give(self, spans: Sequence[Span], events: Sequence[PlacedEvent]) -> None:
        if self._spans is not None:
            self._spans.put(map(encoding.encode_span, spans))
        if self.measures is not None:
            self.measures.take(events, spans)

    def _send(self, seconds: float | None = None) -> None:
        if self._spans is not None:
            self._spans.send(self._is_closing if seconds is None else _never, seconds)
            if self.measures is not None:
                self.measures.spans_sent.points[()] = self._spans.sent
                self.measures.spans_dropped.points[()] = self._spans.dropped
        if self._metrics is not None and (seconds is not None or time.monotonic() >= self._due):
            self._due = time.monotonic() + self._every
            self._metrics.clear()
            for metric in [*self.metrics(), *self.gauges.read()]:
                self._metrics.put((encoding.encode_metric(metric, self._began_us, self._logs.clock.now_us()),))
            self._metrics.send(_never if seconds is not None else self._is_closing, seconds)
        box = next((one for one in (self._spans, self._metrics) if one is not None and one.trouble), None)
        if box is not None:
            self._warn(f"the collector at {box.shown} does not take what is sent: {box.trouble}; it keeps trying")
        elif self._trouble:
            self._trouble = ""

    def _flush(self, seconds: float) -> None:
        """Wait until what was written so far is measured. Waits no longer than this for a collector that hangs."""
        done = threading.Event()
        self._waiters.append(done)
        self._wake.set()
        done.wait(seconds)

    def _is_closing(self) -> bool:
        return self._stopping.is_set()

    def _warn(self, text: str) -> None:
        """Say it once, until it is another."""
        if text != self._trouble:
            self._trouble = text
            logging.getLogger("holdfast").warning(text)

    def close(self) -> None:
        """Send what there is, for two seconds at the most; what is left is counted as lost, and logged."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._wake.set()
        atexit.unregister(self.close)
        until = time.monotonic() + limits.TELEMETRY_CLOSE_SECONDS
        self._thread.join(limits.TELEMETRY_CLOSE_SECONDS)
        if self._thread.is_alive():  # it waits for the collector: what it has is not ours to touch
            self._say_lost("the collector does not answer")
            return
        try:
            self._take()
            self._send(max(0.0, until - time.monotonic()))
        except HoldfastError as error:
            self._warn(f"traces and metrics are not complete: {error.message}")
        if self._spans is not None and len(self._spans):
            self._spans.give_up()
            self._say_lost(self._spans.trouble)

    def _say_lost(self, why: str) -> None:
        lost = self.dropped + (len(self._spans) if self._spans is not None else 0)
        logging.getLogger("holdfast").warning(
            "%d spans were not exported: %s; send them with: holdfast traces export", lost, why
        )


def _runs(seen: Iterable[tuple[str, Sequence[PlacedEvent]]]) -> list[tuple[str, list[PlacedEvent]]]:
    """Put together what follows on each other in the log of a task, whatever others wrote in between."""
    runs: list[tuple[str, list[PlacedEvent]]] = []
    open: dict[str, list[PlacedEvent]] = {}
    for log, events in seen:
        run = open.get(log)
        if run is not None and run[-1].seq + 1 == events[0].seq:
            run += events
        elif run is not None or _is_task(log):
            run = open[log] = [*events]
            runs.append((log, run))
    return runs


@lru_cache(4_096)
def _is_task(log: str) -> bool:
    """True of a task's log; threads, users and others begin with @."""
    return log.rpartition(NAMESPACE_END)[2][0] != "@"


def _never() -> bool:
    return False


def _interval() -> float:
    """How often metrics are sent: OTEL_METRIC_EXPORT_INTERVAL, in milliseconds."""
    given = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")
    if not given:
        return limits.METRICS_SECONDS
    if not given.isdigit() or int(given) < 100:
        raise InvalidValue(
            f"OTEL_METRIC_EXPORT_INTERVAL={given!r} is not a number of milliseconds", hint="give 100 or more"
        )
    return int(given) / 1_000


def planned(traces: bool | Otlp, metrics: bool | Otlp, logs: bool) -> Callable[[Logs], Telemetry]:
    """Read what `open` was given, and refuse odd values before anything is opened."""
    if type(logs) is not bool:
        raise InvalidValue(f"logs={logs!r} is neither True nor False", hint="give logs=True, or leave it out")
    to = as_otlp(traces, "traces")
    pushed = None if metrics is True else as_otlp(metrics, "metrics")
    if to is not None:
        to.url("traces")
    if pushed is not None:
        pushed.url("metrics")
        _interval()
    return lambda opened: Telemetry(opened, traces=to, metrics=pushed, measured=metrics is not False, lines=logs)


def metrics_text(logs: Logs, telemetry: Telemetry | None, *, openmetrics: bool) -> str:
    """What `app.metrics()` gives: of an app that measures nothing, what the store counts."""
    if type(openmetrics) is not bool:
        raise InvalidValue(
            f"openmetrics={openmetrics!r} is neither True nor False", hint="give openmetrics=True, or leave it out"
        )
    if telemetry is not None:
        return telemetry.text(openmetrics=openmetrics)
    return exposition(StoreGauges(logs).read(), openmetrics=openmetrics)

"""Sending the spans of tasks that are in a store: once, or as they come. Any process can do it, also after the fact."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable

from msgspec import Struct

from holdfast.core import durations, limits
from holdfast.core.durations import Duration
from holdfast.core.errors import ExportFailed, InvalidValue, TaskCollected, TaskNotFound
from holdfast.core.traces.fold import TraceFold
from holdfast.engine.app import App
from holdfast.engine.telemetry.collector import Otlp, Outbox
from holdfast.engine.telemetry.encoding import encode_span
from holdfast.engine.telemetry.tracer import begin_fold, placed_events
from holdfast.tracing.readable import task_spans


class Exported(Struct, frozen=True):
    """What came of an export: tasks read, spans that the collector took, and spans that were lost on the way."""

    tasks: int
    spans: int
    dropped: int
    why: str = ""


def export(app: App, ids: Iterable[str] | None = None, *, to: Otlp | None = None) -> Exported:
    """Send the spans of tasks to an OTLP collector, those of all tasks without `ids`. Sending twice changes nothing.

    `to`: the collector. Default: the one that the environment names, else localhost. Raises ExportFailed if it takes
    none.
    """
    if isinstance(ids, str):
        raise InvalidValue(f"ids={ids!r} is one text", hint="give a list: [id]")
    to = _checked(to)
    box = Outbox(to, "traces")
    tasks = 0
    for id in (row.id for row in app.list(limit=None, order="oldest")) if ids is None else ids:
        tasks += 1
        for span in task_spans(app, id, content=to.content):
            box.put((encode_span(span),))
            if len(box) >= limits.OTLP_BATCH:
                _sent(box, to)
    _sent(box, to)
    return Exported(tasks, box.sent, box.dropped, box.trouble)


def tail(
    app: App, *, to: Otlp | None = None, seconds: Duration | None = None, told: Callable[[Exported], None] | None = None
) -> Exported:
    """Send spans as they come, from whatever process, until the app is closed or for `seconds`.

    It begins with the tasks that change from now on, and sends all their spans. Nothing is lost when workers are
    killed: spans come from their logs. A collector that is away for long loses the oldest, which is counted.
    """
    to = _checked(to)
    until = None if seconds is None else time.monotonic() + durations.seconds(seconds, "seconds")
    tailing = _Tail(app, to)
    cursor: str | None = app.watch().cursor
    while until is None or time.monotonic() < until:
        rest = limits.TELEMETRY_SECONDS if until is None else max(0.0, min(1.0, until - time.monotonic()))
        watch = app.watch(after=cursor, seconds=rest)
        moved = {change.id: change.status for change in watch}
        cursor = watch.cursor
        if app.feed.is_closed:
            break
        before = tailing.box.sent, tailing.box.dropped
        tailing.look(moved)
        if told is not None and (tailing.box.sent, tailing.box.dropped) != before:
            told(tailing.exported())
    tailing.finish()
    return tailing.exported()


class _Tail:
    """Folds of the tasks that move, and what they have given so far."""

    def __init__(self, app: App, to: Otlp) -> None:
        self._app, self._to = app, to
        self.box = Outbox(to, "traces")
        self._folds: dict[str, TraceFold] = {}
        self._running: set[str] = set()
        self._tasks = 0

    def look(self, moved: dict[str, str]) -> None:
        """Read what is new of tasks that changed, and of those that run: their steps change no row."""
        self._running |= {id for id, status in moved.items() if status == "running"}
        self._running -= {id for id, status in moved.items() if status != "running"}
        for id in {**moved, **dict.fromkeys(self._running)}:
            with contextlib.suppress(TaskNotFound, TaskCollected):
                self._read(id)
        self.box.send(lambda: False)

    def _read(self, id: str) -> None:
        fold = self._folds.pop(id, None)
        if fold is None:
            fold, self._tasks = begin_fold(self._app.logs, id, content=self._to.content), self._tasks + 1
        self._folds[id] = fold
        while len(self._folds) > limits.TELEMETRY_TASKS:
            self._folds.pop(next(iter(self._folds)))
        for one in placed_events(self._app.logs, id, fold.seq):
            self.box.put(map(encode_span, fold.add(one.seq, one.at_us, one.event)))

    def finish(self) -> None:
        """Send the rest, and count what could not be sent."""
        self.box.send(lambda: False, self._to.timeout)
        self.box.give_up()

    def exported(self) -> Exported:
        return Exported(self._tasks, self.box.sent, self.box.dropped, self.box.trouble)


def _checked(to: Otlp | None) -> Otlp:
    if to is not None and not isinstance(to, Otlp):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"to={to!r} is not a collector", hint='give Otlp(endpoint="http://host:4318")')
    return to or Otlp()


def _sent(box: Outbox, to: Otlp) -> None:
    """Send what is in the box now; refuse a collector that takes nothing."""
    box.send(lambda: False, max(to.timeout, 1.0))
    if box.trouble:
        raise ExportFailed(
            f"the collector at {box.shown} did not take the spans: {box.trouble}",
            hint="check its address: --endpoint URL, or OTEL_EXPORTER_OTLP_ENDPOINT",
            sent=box.sent,
        )

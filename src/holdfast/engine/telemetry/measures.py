"""What is measured of the events and spans of this process. The names are those of OpenTelemetry's conventions."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import cast

from holdfast.core import events as ev
from holdfast.core.traces import attributes as at
from holdfast.core.traces.span import Span, StepSpan
from holdfast.engine.logs.committer import PlacedEvent
from holdfast.engine.telemetry.instruments import SHORT_SECONDS, Counter, Histogram, HistogramPoint, Metric

MAX_COMMITS = 100_000
"""How many commits are kept until they are counted."""


class Measures:
    """The instruments of a process. Fed by the background thread."""

    def __init__(self) -> None:
        self.claims = Counter("holdfast.task.claims", "{claim}", "tasks taken, and how from another worker")
        self.retries = Counter("holdfast.step.retries", "{retry}", "attempts that failed and are made again")
        self.doubts = Counter("holdfast.call.doubts", "{call}", "calls whose outcome became unknown")
        self.tokens = Counter("holdfast.budget.tokens", "{token}", "tokens that steps used")
        self.cost = Counter("holdfast.budget.cost", "{USD}", "money that steps used, where prices are known")
        self.ends = Counter("holdfast.task.ends", "{task}", "tasks that ended")
        self.steps = Histogram("holdfast.step.duration", "s", "how long steps and calls took")
        self.commits = Histogram("holdfast.commit.duration", "s", "how long the store took to commit", SHORT_SECONDS)
        self.spans_sent = Counter("holdfast.otlp.spans.sent", "{span}", "spans that a collector took")
        self.spans_dropped = Counter("holdfast.otlp.spans.dropped", "{span}", "spans that were lost on the way")
        self.committed: deque[float] = deque(maxlen=MAX_COMMITS)
        """How long commits took that are not counted yet; from any thread."""

    def all(self) -> list[Metric]:
        """Every instrument."""
        return [one for one in vars(self).values() if isinstance(one, Counter | Histogram)]

    def take(self, events: Sequence[PlacedEvent], spans: Sequence[Span]) -> None:
        """Count what this process wrote, and the spans that ended with it."""
        for one in events:
            event = one.event
            kind = type(event)
            if kind is ev.StepCompleted:
                if cast("ev.StepCompleted", event).usage is not None:
                    self._spend(event)
            elif kind in _COUNTED:
                self._count(event)
        for span in spans:
            if type(span) is StepSpan:
                series = cast("HistogramPoint | None", span.kind.series) or self._series(span)
                self.steps.take(series, (span.end_us - span.start_us) / 1_000_000, span)
            else:
                self._measure(span)

    def _count(self, event: ev.Event) -> None:
        match event:
            case ev.TaskClaimed():
                self.claims.add(taken=event.taken or "no")
            case ev.AttemptFailed():
                self.retries.add(step=event.tool or event.name)
            case ev.TaskCompleted() | ev.TaskFailed() | ev.TaskCancelled():
                self.ends.add(status=_STATUS[type(event)])
            case _:
                pass
        self._spend(event)

    def _series(self, span: StepSpan) -> HistogramPoint:
        """Find under which labels a step is measured, once for all that are like it."""
        found = span.kind.series = self.steps.point(**_labels(span))
        return found

    def _measure(self, span: Span) -> None:
        if span.name.startswith("holdfast.in_doubt"):
            return
        if span.attributes.get(at.IN_DOUBT):
            self.doubts.add()
        if span.name.partition(" ")[0] in ("holdfast.step", "execute_tool", "chat"):
            self.steps.take(self.steps.point(**_labels(span)), (span.end_us - span.start_us) / 1_000_000, span)

    def _spend(self, event: ev.Event) -> None:
        usage = event.usage if isinstance(event, _SPENDING) else None
        if usage is None:
            return
        model = usage.model or "unknown"
        if usage.input_tokens:
            self.tokens.add(usage.input_tokens, type="input", model=model)
        if usage.output_tokens:
            self.tokens.add(usage.output_tokens, type="output", model=model)
        if usage.cost:
            self.cost.add(usage.cost, model=model)

    def count_commits(self) -> None:
        """Put what was committed since into the histogram."""
        taken = self.committed
        if taken:
            self.commits.record_all([taken.popleft() for _ in range(len(taken))])


def _labels(span: Span) -> dict[str, str]:
    step, _, name = span.name.partition(" ")
    told = span.attributes
    return {"step": name or step, "kind": str(told.get(at.KIND)).lower(), "outcome": str(told[at.OUTCOME])}


_SPENDING = (ev.StepCompleted, ev.StepFailed, ev.AttemptFailed, ev.StepDoubted)
_STATUS = {ev.TaskCompleted: "completed", ev.TaskFailed: "failed", ev.TaskCancelled: "cancelled"}

_COUNTED = frozenset((*_SPENDING, *_STATUS, ev.TaskClaimed))
"""Events that are counted; of the others only the spans are measured."""

"""What is measured of the events and spans of this process. The names are those of OpenTelemetry's conventions."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from holdfast.core import events as ev
from holdfast.core.traces import attributes as at
from holdfast.core.traces.span import TraceSpan
from holdfast.engine.logs.committer import PlacedEvent
from holdfast.engine.telemetry.instruments import SHORT_SECONDS, Counter, Exemplar, Histogram, Metric

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

    def take(self, events: Sequence[PlacedEvent], spans: Sequence[TraceSpan]) -> None:
        """Count what this process wrote, and the spans that ended with it."""
        for one in events:
            event = one.event
            match event:
                case ev.TaskClaimed():
                    self.claims.add(taken=event.taken or "no")
                case ev.AttemptFailed():
                    self.retries.add(step=event.tool or event.name)
                case ev.TaskCompleted() | ev.TaskFailed() | ev.TaskCancelled():
                    self.ends.add(status=_STATUS[type(event)])
                case ev.StepCompleted() if event.usage is None:
                    continue
                case _:
                    pass
            if isinstance(event, _SPENDING) and event.usage is not None:
                self._spend(event.usage)
        for span in spans:
            self._measure(span)

    def _measure(self, span: TraceSpan) -> None:
        kind = span.attributes.get(at.KIND)
        if span.name.startswith("holdfast.in_doubt"):
            return
        if span.attributes.get(at.IN_DOUBT):
            self.doubts.add()
        step, _, rest = span.name.partition(" ")
        if step not in ("holdfast.step", "execute_tool", "chat"):
            return
        seconds = (span.end_us - span.start_us) / 1_000_000
        seen = Exemplar(seconds, span.end_us, span.trace_id, span.span_id)
        outcome = str(span.attributes[at.OUTCOME])
        self.steps.record(seconds, seen, step=rest or step, kind=str(kind).lower(), outcome=outcome)

    def _spend(self, usage: ev.Usage) -> None:
        model = usage.model or "unknown"
        if usage.input_tokens:
            self.tokens.add(usage.input_tokens, type="input", model=model)
        if usage.output_tokens:
            self.tokens.add(usage.output_tokens, type="output", model=model)
        if usage.cost:
            self.cost.add(usage.cost, model=model)

    def count_commits(self) -> None:
        """Put what was committed since into the histogram."""
        while self.committed:
            self.commits.record(self.committed.popleft())


_SPENDING = (ev.StepCompleted, ev.StepFailed, ev.AttemptFailed, ev.StepDoubted)
_STATUS = {ev.TaskCompleted: "completed", ev.TaskFailed: "failed", ev.TaskCancelled: "cancelled"}

"""The text that Prometheus reads, made of instruments. OpenMetrics has exemplars too: they lead to traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.engine.telemetry.instruments import Counter, Exemplar, Gauge, Histogram, Labels, Metric

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_UNITS = {"s": "_seconds", "By": "_bytes"}


def name_of(metric: Metric) -> str:
    """The name of an instrument as Prometheus has it: its unit behind it, `_total` behind a counter's.

    >>> name_of(Counter("holdfast.task.claims", "{claim}", "")), name_of(Histogram("holdfast.step.duration", "s", ""))
    ('holdfast_task_claims_total', 'holdfast_step_duration_seconds')
    """
    name = metric.name.replace(".", "_") + _UNITS.get(metric.unit, "")
    return f"{name}_total" if isinstance(metric, Counter) else name


def exposition(metrics: Iterable[Metric], *, openmetrics: bool = False) -> str:
    """Write instruments as text, each with its help and its type."""
    lines: list[str] = []
    for metric in metrics:
        name = name_of(metric)
        family = name.removesuffix("_total") if openmetrics else name
        kind = "counter" if isinstance(metric, Counter) else "gauge" if isinstance(metric, Gauge) else "histogram"
        lines += [f"# HELP {family} {metric.about}", f"# TYPE {family} {kind}"]
        if isinstance(metric, Histogram):
            lines += _histogram(metric, name, openmetrics=openmetrics)
        else:
            lines += [f"{name}{_labels(labels)} {_number(value)}" for labels, value in metric.points.copy().items()]
    return "\n".join([*lines, "# EOF" if openmetrics else "", ""] if openmetrics else [*lines, ""])


def _histogram(metric: Histogram, name: str, *, openmetrics: bool) -> Iterator[str]:
    for labels, point in metric.points.copy().items():
        count = 0
        for bucket, bound in enumerate((*metric.bounds, None)):
            count += point.buckets[bucket]
            upto = "+Inf" if bound is None else _number(bound)
            seen = point.exemplars[bucket] if openmetrics else None
            yield f"{name}_bucket{_labels((*labels, ('le', upto)))} {count}{_exemplar(seen)}"
        yield f"{name}_sum{_labels(labels)} {_number(point.sum)}"
        yield f"{name}_count{_labels(labels)} {count}"


def _exemplar(seen: Exemplar | None) -> str:
    if seen is None:
        return ""
    ids = f'trace_id="{seen.trace_id.hex()}",span_id="{seen.span_id.hex()}"'
    return f" # {{{ids}}} {_number(seen.value)} {seen.at_us / 1_000_000:.3f}"


def _labels(labels: Labels) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else f"{value:.9g}"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

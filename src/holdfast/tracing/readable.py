"""Spans of a task as OpenTelemetry's own objects, for its exporters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from holdfast.core import names
from holdfast.core.errors import InvalidValue, MissingExtra
from holdfast.core.traces.span import Span, TraceIds
from holdfast.engine.app import App
from holdfast.engine.telemetry.encoding import SCOPE
from holdfast.engine.telemetry.tracer import begin_fold, placed_events

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


def spans(app: App, id: str, *, content: bool = False) -> list[ReadableSpan]:
    """Return the spans of a task that have ended, as OpenTelemetry's exporters take them. Needs the extra `otel`.

    The same log gives the same spans with the same ids. What is under way has no span yet. `content`: whether spans
    have arguments, results, prompts and texts of errors. Default False.

        InMemorySpanExporter().export(spans(app, "trip-7"))
    """
    return readable(task_spans(app, id, content=content))


def task_spans(app: App, id: str, *, content: bool = False) -> Iterator[Span]:
    """Give the spans of a task as plain data, read and folded as they are asked for."""
    if type(content) is not bool:
        raise InvalidValue(f"content={content!r} is neither True nor False", hint="give content=True, or leave it out")
    log = names.task_log(id)
    fold = begin_fold(app.logs, log, content=content)
    for one in placed_events(app.logs, log, 0):
        yield from fold.add(one.seq, one.at_us, one.event)


def trace_id(app: App, id: str) -> str:
    """Return the id of a task's trace, as other programs write it: 32 hexadecimal digits. The task need not exist."""
    return TraceIds(app.logs.identity.id, app.logs.full_name(names.task_log(id))).trace_id.hex()


def readable(found: Iterable[Span]) -> list[ReadableSpan]:
    """Make OpenTelemetry's spans of ours."""
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
    except ImportError as error:
        raise MissingExtra(
            f"opentelemetry-sdk is not installed: {error}", hint="from a checkout: pip install 'path/to/holdfast[otel]'"
        ) from error
    scope, resource = InstrumentationScope(SCOPE), Resource.create({"service.name": "holdfast"})
    codes = {"": StatusCode.UNSET, "ok": StatusCode.OK, "error": StatusCode.ERROR}

    def context(trace: bytes, span: bytes) -> SpanContext:
        sampled = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(int.from_bytes(trace), int.from_bytes(span), is_remote=False, trace_flags=sampled)

    def one(span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=context(span.trace_id, span.span_id),
            parent=context(span.trace_id, span.parent_id) if span.parent_id else None,
            kind=SpanKind.CLIENT if span.client else SpanKind.INTERNAL,
            start_time=span.start_us * 1_000,
            end_time=span.end_us * 1_000,
            attributes=span.attributes,
            events=[Event(at.name, at.attributes, at.at_us * 1_000) for at in span.events],
            links=[Link(context(to.trace_id, to.span_id), to.attributes) for to in span.links],
            status=Status(codes[span.status], (span.message or None) if span.status == "error" else None),
            resource=resource,
            instrumentation_scope=scope,
        )

    return [one(span) for span in found]

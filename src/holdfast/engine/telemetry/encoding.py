"""OTLP as bytes: spans and metrics in the protobuf form that every collector reads.

It is written by hand because of what it costs: the official encoder takes several times the CPU of the step that a span
is about. A test decodes what is written here with the official classes and compares.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain

from holdfast.core.traces.span import (
    Attributes,
    AttributeValue,
    Span,
    SpanEvent,
    SpanLink,
    StepKind,
    StepSpan,
)
from holdfast.engine.telemetry.instruments import Counter, Exemplar, Gauge, Histogram, Metric

SCOPE = "holdfast"

_DOUBLE, _FIXED, _SIGNED = struct.Struct("<d").pack, struct.Struct("<Q").pack, struct.Struct("<q").pack
_TIMES = struct.Struct("<BQBQ").pack
_CUMULATIVE = b"\x10\x02"


def _varint(number: int) -> bytes:
    """A number, seven bits a byte, the lowest first."""
    if 0 <= number < 128:
        return _SMALL[number]
    if 0 <= number < 16_384:  # the length of a span, and most seqs
        return bytes((number & 127 | 128, number >> 7))
    number &= 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


_SMALL = [bytes((number,)) for number in range(128)]


def _field(number: int, body: bytes) -> bytes:
    """A text, some bytes or a message, with its length before it. Numbers of fields are below 16, most bodies short."""
    size = len(body)
    return _SMALL[number << 3 | 2] + (_SMALL[size] if size < 128 else _varint(size)) + body


def _value(value: AttributeValue) -> bytes:
    if isinstance(value, str):
        return _field(1, value.encode("utf-8", "replace"))
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        return b"\x18" + _varint(min(max(value, -(2**63)), 2**63 - 1))
    if isinstance(value, float):
        return b"\x21" + _DOUBLE(value)
    return _field(5, b"".join(_field(1, _value(one)) for one in value))


@lru_cache(1_024)
def _name(number: int, name: str) -> bytes:
    """Names come again and again."""
    return _field(number, name.encode("utf-8", "replace"))


def _pair(name: str, value: AttributeValue) -> bytes:
    pair = _name(1, name) + _field(2, _value(value))
    size = len(pair)
    return (_SMALL[size] if size < 128 else _varint(size)) + pair


_known: dict[tuple[str, AttributeValue], bytes] = {}
"""Attributes that come again and again: kinds, names of tools, the task, numbers of attempts."""

_KNOWN = 4_096
_OWN = frozenset(
    ("holdfast.step.key", "holdfast.idempotency_key", "gen_ai.tool.call.id", "gen_ai.response.id", "holdfast.seq")
)
"""Attributes whose values do not come again."""


def _learnt(name: str, value: AttributeValue) -> bytes:
    pair = _pair(name, value)
    if name not in _OWN and len(pair) < 200 and type(value) in (str, int):
        if len(_known) >= _KNOWN:
            _known.clear()
        _known[name, value] = pair
    return pair


def _attributes(number: int, given: Attributes) -> bytes:
    head, known = _SMALL[number << 3 | 2], _known
    return b"".join([head + (known.get(one) or _learnt(*one)) for one in given.items()])


# Spans


def encode_span(span: Span) -> bytes:
    """One span, as it stands in a request."""
    if type(span) is StepSpan:
        return _encode_step(span)
    parts = [
        b"\x0a\x10" + span.trace_id + b"\x12\x08" + span.span_id,
        b"\x22\x08" + span.parent_id if span.parent_id else b"",
        _name(5, span.name),
        b"\x30\x03" if span.client else b"\x30\x01",
        _TIMES(0x39, max(span.start_us, 0) * 1_000, 0x41, max(span.end_us, 0) * 1_000),
        _attributes(9, span.attributes),
    ]
    if span.events:
        parts += [_field(11, _event(one)) for one in span.events]
        parts += [b"\x60" + _varint(span.dropped_events)] if span.dropped_events else []
    if span.links:
        parts += [_field(13, _link(one)) for one in span.links]
    if span.status == "ok":
        parts.append(b"\x7a\x02\x18\x01")
    elif span.status:
        told = _field(2, span.message.encode("utf-8", "replace")) if span.message else b""
        parts.append(_field(15, told + b"\x18\x02"))
    return _field(2, b"".join(parts))


def _encode_step(span: StepSpan) -> bytes:
    """A step: what its kind has in common is encoded already; its own values follow it."""
    kind, key, seq = span.kind, span.key.encode("utf-8", "replace"), _varint(span.seq)
    start_us, end_us = span.start_us, span.end_us
    body = b"%b%b%b%b%b%b" % (
        kind.encoded or _encode_kind(kind),
        _STEP(
            0x12,
            8,
            span.number,
            0x39,
            start_us * 1_000 if start_us > 0 else 0,
            0x41,
            end_us * 1_000 if end_us > 0 else 0,
        ),
        _SEQ[len(seq)],
        seq,
        _KEY[len(key)] if len(key) <= _SHORT else _before_key(len(key)),
        key,
    )
    if span.idempotency_key:
        own: Attributes = dict.fromkeys(("gen_ai.tool.call.id", "holdfast.idempotency_key"), span.idempotency_key)
        body += _attributes(9, own)
    return b"\x12" + _varint(len(body)) + body


_STEP = struct.Struct("<BBQBQBQ").pack
_SHORT = 96


def _before_key(size: int) -> bytes:
    """The attribute of a step's key, up to the key itself."""
    name, value = _field(1, b"holdfast.step.key"), b"\x0a" + _varint(size)
    told = name + b"\x12" + _varint(len(value) + size) + value
    return b"\x4a" + _varint(len(told) + size) + told


def _before_seq(size: int) -> bytes:
    """The attribute of a seq that takes so many bytes, up to the seq itself."""
    name = _field(1, b"holdfast.seq")
    return b"\x4a" + _varint(len(name) + size + 3) + name + b"\x12" + _varint(size + 1) + b"\x18"


_KEY = [_before_key(size) for size in range(_SHORT + 1)]
_SEQ = [_before_seq(size) for size in range(11)]


def _encode_kind(kind: StepKind) -> bytes:
    """What all steps of a kind have in common. The order of fields in a message is free."""
    kind.encoded = b"".join(
        (
            b"\x0a\x10" + kind.trace_id,
            b"\x22\x08" + kind.parent_id if kind.parent_id else b"",
            _name(5, kind.name),
            b"\x30\x01\x7a\x02\x18\x01",
            _attributes(9, kind.attributes),
        )
    )
    return kind.encoded


def _time(at_us: int) -> bytes:
    return _FIXED(max(at_us, 0) * 1_000)


def _event(event: SpanEvent) -> bytes:
    return b"\x09" + _time(event.at_us) + _field(2, event.name.encode()) + _attributes(3, event.attributes)


def _link(link: SpanLink) -> bytes:
    return b"\x0a\x10" + link.trace_id + b"\x12\x08" + link.span_id + _attributes(4, link.attributes)


def request(resource: Attributes, items: Iterable[bytes]) -> bytes:
    """A request of spans or metrics that were encoded one by one."""
    scope = _field(1, _field(1, SCOPE.encode()))
    about = _field(1, _attributes(1, resource))
    return _field(1, about + _field(2, b"".join(chain((scope,), items))))


# Metrics


def encode_metric(metric: Metric, start_us: int, at_us: int) -> bytes:
    """One instrument with all its points."""
    told = _field(1, metric.name.encode()) + _field(2, metric.about.encode()) + _field(3, metric.unit.encode())
    if isinstance(metric, Histogram):
        points = b"".join(
            _field(1, _histogram_point(metric, labels, start_us, at_us)) for labels in list(metric.points)
        )
        return _field(2, told + _field(9, points + _CUMULATIVE))
    points = b"".join(
        _field(1, _number(dict(labels), value, start_us if isinstance(metric, Counter) else 0, at_us))
        for labels, value in metric.points.copy().items()
    )
    if isinstance(metric, Gauge):
        return _field(2, told + _field(5, points))
    return _field(2, told + _field(7, points + _CUMULATIVE + b"\x18\x01"))


def _number(labels: Attributes, value: float, start_us: int, at_us: int) -> bytes:
    began = b"\x11" + _time(start_us) if start_us else b""
    as_number = b"\x31" + _SIGNED(value) if isinstance(value, int) else b"\x21" + _DOUBLE(value)
    return began + b"\x19" + _time(at_us) + as_number + _attributes(7, labels)


def _histogram_point(metric: Histogram, labels: tuple[tuple[str, str], ...], start_us: int, at_us: int) -> bytes:
    point = metric.points[labels]
    return b"".join(
        (
            b"\x11" + _time(start_us) + b"\x19" + _time(at_us),
            b"\x21" + _FIXED(point.count) + b"\x29" + _DOUBLE(point.sum),
            _field(6, b"".join(map(_FIXED, point.buckets))),
            _field(7, b"".join(map(_DOUBLE, metric.bounds))),
            *(_field(8, _exemplar(one)) for one in _some(point.exemplars)),
            _attributes(9, dict(labels)),
        )
    )


def _some(exemplars: Sequence[Exemplar | None]) -> list[Exemplar]:
    return [one for one in exemplars if one is not None]


def _exemplar(one: Exemplar) -> bytes:
    seen = b"\x11" + _time(one.at_us) + b"\x19" + _DOUBLE(one.value)
    return seen + b"\x22\x08" + one.span_id + b"\x2a\x10" + one.trace_id

"""A span as plain data, and its ids, which follow from the store, the task and the place in its log."""

from __future__ import annotations

from hashlib import sha256
from typing import Literal

from msgspec import Struct

AttributeValue = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, AttributeValue]

ROOT = "root"
"""The place of a task's first root span: other tasks can link to it without reading the log."""


class SpanEvent(Struct, frozen=True):
    """Something that happened at one moment of a span."""

    name: str
    at_us: int
    attributes: Attributes = {}


class SpanLink(Struct, frozen=True):
    """A span that has to do with another one, perhaps of another trace."""

    trace_id: bytes
    span_id: bytes
    attributes: Attributes = {}


class TraceSpan(Struct, kw_only=True):
    """A stretch of a task's time that is over. It is never changed after it was given out."""

    trace_id: bytes
    span_id: bytes
    parent_id: bytes = b""
    name: str
    client: bool = False
    start_us: int
    end_us: int
    attributes: Attributes
    events: list[SpanEvent] = []
    dropped_events: int = 0
    links: list[SpanLink] = []
    status: Literal["", "ok", "error"] = ""
    message: str = ""


class TraceIds:
    """Ids of one task: 16 bytes for its trace, 8 for each span. `task` is its full name, with its tenant's."""

    __slots__ = ("_begun", "trace_id")

    def __init__(self, store: str, task: str) -> None:
        self._begun = sha256(f"{store}\0{task}\0".encode())
        self.trace_id = self._begun.digest()[:16]

    def span_id(self, place: str) -> bytes:
        """Return the id of a span: of `root`, of a life, or of a step by its key and where in the log it began."""
        found = self._begun.copy()
        found.update(place.encode())
        return found.digest()[16:24]


def root_link(store: str, task: str, attributes: Attributes) -> SpanLink:
    """Link to the first root span of another task."""
    ids = TraceIds(store, task)
    return SpanLink(ids.trace_id, ids.span_id(ROOT), attributes)

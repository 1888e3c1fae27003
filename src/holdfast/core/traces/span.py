"""A span as plain data, and its ids, which follow from the store, the task and the place in its log."""

from __future__ import annotations

from collections.abc import Sequence
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


MAX_SPAN_EVENTS = 128
"""How many events one span has at the most; further ones are counted."""


class OpenSpan(Struct, kw_only=True):
    """A span that has begun."""

    what: Literal["root", "life", "step", "wait", "approval", "doubt", "suspended"]
    id: bytes
    parent: bytes
    name: str
    start_us: int
    attributes: Attributes
    client: bool = False
    running: bool = False
    """Whether an attempt is under way, that was announced."""
    effect: str = ""
    events: list[SpanEvent] = []
    dropped: int = 0
    links: list[SpanLink] = []

    def note(self, event: SpanEvent) -> None:
        if len(self.events) < MAX_SPAN_EVENTS:
            self.events.append(event)
        else:
            self.dropped += 1


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


class StepKind(Struct, eq=False):
    """What the spans of a step that is made again and again have in common during one life.

    It is made and encoded once for all of them: most spans of a log are such steps.
    """

    trace_id: bytes
    parent_id: bytes
    name: str
    attributes: Attributes
    encoded: bytes = b""
    """Kept here by the encoder."""
    series: object = None
    """Kept here by what measures durations."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StepKind) and _common(self) == _common(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType] — it holds dicts


def _common(kind: StepKind) -> tuple[bytes, bytes, str, Attributes]:
    return kind.trace_id, kind.parent_id, kind.name, kind.attributes


class StepSpan(Struct):
    """A step that began and ended without anything in between; it reads like a TraceSpan."""

    kind: StepKind
    number: int
    """Its span id, as a number."""
    start_us: int
    end_us: int
    seq: int
    key: str
    idempotency_key: str

    @property
    def trace_id(self) -> bytes:
        return self.kind.trace_id

    @property
    def span_id(self) -> bytes:
        return self.number.to_bytes(8, "little")

    @property
    def parent_id(self) -> bytes:
        return self.kind.parent_id

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def attributes(self) -> Attributes:
        """The attributes of its kind, and its own."""
        told: Attributes = {**self.kind.attributes, "holdfast.seq": self.seq, "holdfast.step.key": self.key}
        if self.idempotency_key:
            told["gen_ai.tool.call.id"] = told["holdfast.idempotency_key"] = self.idempotency_key
        return told

    @property
    def client(self) -> bool:
        return False

    @property
    def events(self) -> Sequence[SpanEvent]:
        return ()

    @property
    def dropped_events(self) -> int:
        return 0

    @property
    def links(self) -> Sequence[SpanLink]:
        return ()

    @property
    def status(self) -> Literal["ok"]:
        return "ok"

    @property
    def message(self) -> str:
        return ""


Span = TraceSpan | StepSpan


class TraceIds:
    """Ids of one task: 16 bytes for its trace, 8 for each span. `task` is its full name, with its tenant's."""

    __slots__ = ("_begun", "_first_step", "trace_id")

    def __init__(self, store: str, task: str) -> None:
        self._begun = sha256(f"{store}\0{task}\0".encode())
        self.trace_id = self._begun.digest()[:16]
        self._first_step = int.from_bytes(self.span_id("steps"), "little")

    def span_id(self, place: str) -> bytes:
        """Return the id of a span that is not a step's: of `root`, of a life, or of a wait and where it began."""
        found = self._begun.copy()
        found.update(place.encode())
        return found.digest()[16:24]

    def step_number(self, seq: int) -> int:
        """Return the id of a step's span, as a number: it follows from the event with which the step began.

        No event begins two steps, so a hash of each place, which takes longer than the rest, is not needed.
        """
        return (self._first_step + seq * _SPREAD) & _EIGHT_BYTES

    def step_id(self, seq: int) -> bytes:
        """Return the id of a step's span."""
        return self.step_number(seq).to_bytes(8, "little")


_SPREAD = 0x9E37_79B9_7F4A_7C15
"""An odd number: its multiples are all different, and don't look alike."""

_EIGHT_BYTES = (1 << 64) - 1


def root_link(store: str, task: str, attributes: Attributes) -> SpanLink:
    """Link to the first root span of another task."""
    ids = TraceIds(store, task)
    return SpanLink(ids.trace_id, ids.span_id(ROOT), attributes)

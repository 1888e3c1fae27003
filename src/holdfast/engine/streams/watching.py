"""Watching a task while its steps stream: its events, and between them the chunks that are on their way.

The log decides what a chunk is worth. It comes after the events that were there when its step began to stream, and
before the end of that step. Once the log shows that the attempt came to nothing, its chunks are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from holdfast.core import codec, events as ev, names
from holdfast.core.codec import LoggedEvent
from holdfast.core.events import Event
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading import timeline
from holdfast.engine.reading.timeline import Follow, Polling
from holdfast.engine.streams.batch import Payload
from holdfast.store.chunks import ChunkBatch

_REMEMBERED = 100
"""How many streams that are over a watcher remembers. One that it forgets is looked up in the log again."""


class Chunk(Struct, frozen=True):
    """Something that a step streamed. It is provisional until the step has completed.

    `number` counts the chunks of an attempt from 1.
    """

    task: str
    step: str
    attempt: int
    number: int
    data: Any

    def to_json(self) -> str:
        """Return it as a line of JSON, for instance as the data of a server-sent event."""
        return _line("chunk", self)


class ChunksDropped(Struct, frozen=True):
    """The chunks of an attempt that were seen count for nothing: it failed, or another process took over."""

    task: str
    step: str
    attempt: int
    why: str

    def to_json(self) -> str:
        """Return it as a line of JSON, for instance as the data of a server-sent event."""
        return _line("chunks_dropped", self)


class ChunksCut(Struct, frozen=True):
    """From `number` on, the chunks of an attempt are left out: there are too many, or the call has secrets.

    The step isn't affected: its record has the whole result.
    """

    task: str
    step: str
    attempt: int
    number: int

    def to_json(self) -> str:
        """Return it as a line of JSON, for instance as the data of a server-sent event."""
        return _line("chunks_cut", self)


Watched = LoggedEvent | Chunk | ChunksDropped | ChunksCut
"""What a watcher is given."""


def _line(kind: str, one: Chunk | ChunksDropped | ChunksCut) -> str:
    return codec.dump({"kind": kind, **{name: getattr(one, name) for name in one.__struct_fields__}}).decode()


class _Stream(Struct):
    """What a watcher knows of one attempt."""

    step: str
    attempt: int
    after: int
    part: int = 0
    is_over: bool = False
    is_shown: bool = False


class ChunkFollow(Polling[Watched]):
    """Gives each event and each chunk once, and ends with the task, or when the time is up."""

    def __init__(self, logs: Logs, id: str, after: int, seconds: float | None) -> None:
        self._logs = logs
        self._id = id
        self._after = names.whole(after, "after")
        self._events = Follow(logs, id, after, seconds)
        self._streams: dict[str, _Stream] = {}

    def look(self) -> tuple[list[Watched], bool]:
        # Events first: a step's last chunks are written before its end, so who sees the end finds them too. Chunks
        # that follow an event which was not seen yet wait for the next look.
        found, over = self._events.look()
        last = found[-1].seq if found else self._after
        seen = {id: stream.part for id, stream in self._streams.items()}
        batches = [one for one in self._logs.store.chunks.read(self._id, seen) if one.after <= last]
        told = list(self._merged([one for one in batches if self._is_new(one, found)], found))
        self._after = last
        self._forget()
        return told, over

    def _is_new(self, batch: ChunkBatch, found: Sequence[LoggedEvent]) -> bool:
        """Return whether to show a batch. What came to nothing before it was seen is not shown at all."""
        stream = self._streams.get(batch.stream)
        if stream is None:
            stream = _Stream(batch.step, batch.attempt, batch.after)
            self._streams[batch.stream] = stream
            stream.is_over = self._came_to_an_end(stream) or _is_void(stream, found)
        stream.part = batch.part
        return not stream.is_over

    def _came_to_an_end(self, stream: _Stream) -> bool:
        """Return whether one that began before the events this watcher has seen is over by them."""
        between = timeline.records(self._logs, self._id, after=stream.after)
        for one in between if stream.after < self._after else ():
            if one.seq > self._after:
                break
            if _void(stream, one) or _kept(stream, one):
                return True
        return False

    def _merged(self, batches: Sequence[ChunkBatch], found: Sequence[LoggedEvent]) -> Iterator[Watched]:
        """Put chunks after the events that they follow, and say after an event what it makes void."""
        left = sorted(batches, key=lambda one: (one.after, one.stream, one.part))
        for event in found:
            while left and left[0].after < event.seq:
                yield from self._shown(left.pop(0))
            yield event
            for stream in self._open():
                if _kept(stream, event):
                    stream.is_over = True
                elif why := _void(stream, event):
                    yield from self._dropped(stream, why)
        for batch in left:
            yield from self._shown(batch)

    def _shown(self, batch: ChunkBatch) -> Iterator[Watched]:
        stream = self._streams[batch.stream]
        if stream.is_over:
            return
        for other in self._open():
            if other is not stream and other.step == stream.step:
                yield from self._dropped(other, "another attempt began")
        place = (self._id, batch.step, batch.attempt)
        payload: Payload = codec.load(batch.data, Payload)
        for number, raw in enumerate(payload.chunks, start=payload.first):
            stream.is_shown = True
            yield Chunk(*place, number, codec.unpack(raw, self._logs.blob))
        if payload.end == "cut":
            yield ChunksCut(*place, payload.first + len(payload.chunks))
        elif payload.end == "failed":
            yield from self._dropped(stream, "the attempt failed")

    def _open(self) -> list[_Stream]:
        return [stream for stream in self._streams.values() if not stream.is_over]

    def _dropped(self, stream: _Stream, why: str) -> Iterable[ChunksDropped]:
        stream.is_over = True
        return [ChunksDropped(self._id, stream.step, stream.attempt, why)] if stream.is_shown else []

    def _forget(self) -> None:
        over = [id for id, stream in self._streams.items() if stream.is_over]
        for id in over[:-_REMEMBERED]:
            del self._streams[id]


_TAKEN = (ev.TaskClaimed, ev.TaskReopened, ev.RolledBack, ev.TaskDiverged)
_ENDED = (ev.TaskCompleted, ev.TaskFailed, ev.TaskCancelled)
_CAME_TO_NOTHING = (ev.AttemptFailed, ev.StepFailed, ev.StepDoubted, ev.StepVoided)


def _void(stream: _Stream, one: LoggedEvent) -> str:
    """Say why the chunks of an attempt are void after an event; nothing if they are not."""
    event = one.event
    if one.seq <= stream.after:
        return ""
    if isinstance(event, _TAKEN):
        return "another process took the task over" if isinstance(event, ev.TaskClaimed) else "the task began again"
    if isinstance(event, _ENDED):
        return "the task ended"
    return "the attempt failed" if isinstance(event, _CAME_TO_NOTHING) and _is_of(stream, event) else ""


def _is_void(stream: _Stream, events: Iterable[LoggedEvent]) -> bool:
    """Return whether an attempt came to nothing by these events. The first one that says what became of it decides."""
    ends = (bool(_void(stream, one)) for one in events if _void(stream, one) or _kept(stream, one))
    return next(ends, False)


def _kept(stream: _Stream, one: LoggedEvent) -> bool:
    """Return whether an event is the result that an attempt streamed."""
    event = one.event
    return one.seq > stream.after and isinstance(event, ev.StepCompleted) and event.key == stream.step


def _is_of(stream: _Stream, event: Event) -> bool:
    """Return whether an event is about this attempt of a step, or a later one."""
    attempt = getattr(event, "attempt", stream.attempt)
    return getattr(event, "key", None) == stream.step and attempt >= stream.attempt

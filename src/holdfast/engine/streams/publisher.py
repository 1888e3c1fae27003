"""Publishing chunks: what steps stream is written by one thread, in batches, and never in the way of a step.

A step only puts its chunks down. The thread writes what has gathered, for all streams of the process in one
transaction. If the store does not take it, the step does not fail: chunks are not recorded.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from holdfast.core import codec, limits
from holdfast.engine.logs.logs import Logs
from holdfast.engine.streams.batch import End, Payload
from holdfast.engine.system.entropy import random_hex
from holdfast.store.chunks import ChunkBatch


class ChunkStream:
    """What one attempt of a step streams. `holdfast.streaming()` returns it."""

    def __init__(self, publisher: Publisher, log: str, step: str, attempt: int, after: int, *, hidden: bool) -> None:
        """A stream that is `hidden` says that there is one, and nothing of what is in it."""
        self._publisher = publisher
        self._place = (log, step, attempt, after)
        self.id = random_hex(8)
        self.log = log
        self._is_cut = hidden
        self._number = 1
        self._bytes = 0
        self._pending: list[Raw] = []
        self._sent: list[Raw] = []
        self._tell: End = "cut" if hidden else ""
        self._part = 0
        self._unsent: ChunkBatch | None = None
        self.due = 0.0
        self.is_whole = False
        self.is_over = False
        self.written = threading.Event()

    def send(self, data: Any) -> None:
        """Publish a chunk: text, or anything that JSON can hold. Returns at once; watchers see it within moments.

        A chunk that doesn't fit the limit of its step is left out, and so are all after it: watchers see that.
        """
        raw = codec.pack(data, "the chunk")
        with self._publisher.changed:
            if self.is_over or self._is_cut:
                return
            self._bytes += len(bytes(raw))
            if self._bytes > limits.MAX_STREAM_BYTES or self._number + len(self._pending) > limits.MAX_STREAM_CHUNKS:
                self._is_cut, self._tell = True, "cut"
            else:
                self._pending.append(raw)
                self._sent.append(raw)
            self._publisher.put_down(self)

    def so_far(self) -> Raw | UnsetType:
        """Return the last part of what was sent, for the record of a failure: texts joined, or a list of chunks."""
        room, kept = limits.FAILED_OUTPUT_BYTES, list[Any]()
        for raw in reversed(self._sent):
            room -= len(bytes(raw))
            if room < 0 and kept:
                break
            kept.insert(0, codec.unpack(raw, lambda hash: b""))
        if not kept:
            return UNSET
        whole = "".join(kept) if all(isinstance(one, str) for one in kept) else kept
        return codec.pack(whole[-limits.FAILED_OUTPUT_BYTES :], "what was streamed")

    def end(self) -> None:
        """End the stream. Its chunks are void unless it `is_whole`: the attempt failed."""
        with self._publisher.changed:
            if self.is_over:
                return
            self.is_over, self.due = True, 0.0
            if not self.is_whole:
                self._tell, self._pending = "failed" if self._part else "", []
            if not self._is_dirty:
                self.written.set()
            if self._is_dirty or self._part:
                self._publisher.let_go(self)

    def flush(self) -> None:
        """Wait a moment until watchers can see the end: it should come before the step's record."""
        self.written.wait(limits.CHUNK_FLUSH_SECONDS)

    @property
    def _is_dirty(self) -> bool:
        return bool(self._pending or self._tell or self._unsent)

    def batch(self, at_us: int) -> ChunkBatch | None:
        """Return what is to be written next: what could not be written before, as it was, comes first."""
        if self._unsent is None and self._is_dirty:
            log, step, attempt, after = self._place
            data = codec.dump(Payload(self._number, tuple(self._pending), self._tell))
            self._part += 1
            self._number += len(self._pending)
            self._pending, self._tell = [], ""
            self._unsent = ChunkBatch(log, self.id, self._part, step, attempt, after, at_us, data)
        return self._unsent

    def accept(self, is_written: bool) -> bool:
        """Take note of whether the batch was written; returns whether there is another."""
        if is_written:
            self._unsent = None
        if self.is_over and not (is_written and self._is_dirty):
            self.written.set()
            return False
        self.due = 0.0 if self.is_over else time.monotonic() + limits.CHUNK_SECONDS
        return self._is_dirty


class Publisher:
    """The thread, and what it has to do. It runs only while there is something."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self.changed = threading.Condition()
        self._dirty: dict[ChunkStream, None] = {}
        self._ended: list[tuple[float, ChunkStream]] = []
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def open(self, log: str, step: str, attempt: int, after: int, *, hidden: bool) -> ChunkStream:
        """Begin to stream. If it is `hidden`, that alone is published."""
        stream = ChunkStream(self, log, step, attempt, after, hidden=hidden)
        if hidden:
            with self.changed:
                self.put_down(stream)
        return stream

    def put_down(self, stream: ChunkStream) -> None:
        """Write a stream's chunks when they are due. Called with `changed` held."""
        self._dirty[stream] = None
        self._wake()

    def let_go(self, stream: ChunkStream) -> None:
        """Delete a stream that is over, when watchers have had time to see its end. Called with `changed` held."""
        self._ended.append((time.monotonic() + limits.CHUNKS_KEPT_SECONDS, stream))
        if not stream.written.is_set():
            self._dirty[stream] = None
        self._wake()

    def _wake(self) -> None:
        if self._is_closed:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="holdfast-chunks", daemon=True)
            self._thread.start()
        self.changed.notify_all()

    def _work(self) -> None:
        while True:
            with self.changed:
                while (pause := self._pause()) is None or pause > 0:
                    if pause is None:
                        self._thread = None  # the next chunk starts another
                        return
                    self.changed.wait(pause)
                now = time.monotonic()
                due = [stream for stream in self._dirty if stream.due <= now or self._is_closed]
                over = [stream for at, stream in self._ended if at <= now]
                self._ended = [one for one in self._ended if one[1] not in over]
                batches = [one for stream in due if (one := stream.batch(self._logs.clock.now_us())) is not None]
            is_written = self._put(batches)
            with self.changed:
                for stream in due:
                    if not stream.accept(is_written) or self._is_closed:
                        self._dirty.pop(stream, None)
            self._delete(over)

    def _pause(self) -> float | None:
        """Return how long there is nothing to do; None if for ever."""
        if self._is_closed and self._dirty:
            return 0.0
        times = [*(stream.due for stream in self._dirty), *(at for at, _ in self._ended)]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _put(self, batches: list[ChunkBatch]) -> bool:
        try:
            if batches:
                self._logs.store.chunks.put(batches)
        except Exception:  # noqa: BLE001 — whatever the store has: chunks are tried again, and no step fails for them
            return False
        return True

    def _delete(self, over: list[ChunkStream]) -> None:
        by_log: dict[str, list[str]] = {}
        for stream in over:
            by_log.setdefault(stream.log, []).append(stream.id)
        for log, streams in by_log.items():
            with contextlib.suppress(Exception):  # the log shows what is left over, and `gc` removes it
                self._logs.store.chunks.drop(log, streams)

    def close(self) -> None:
        """Write what is left, and delete it when watchers have had a moment to see it."""
        sooner = limits.CHUNKS_KEPT_SECONDS - limits.CHUNK_FLUSH_SECONDS
        with self.changed:
            self._is_closed = True
            self._ended = [(at - sooner, stream) for at, stream in self._ended]
            self.changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(2 * limits.CHUNK_FLUSH_SECONDS)

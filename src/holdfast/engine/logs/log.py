"""One log and its state: draft, append, fold what was written, claim the task, take snapshots when they are due."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.core import codec, limits
from holdfast.core.codec import (
    Blob,
    Draft,
    Group,
    Head,
    Origin,
    Snapshot,
    Stored,
    Summary,
    UniqueKey,
    Write,
    merge_writes,
)
from holdfast.core.errors import LeaseLost, LogCorrupt, TaskBusy, UnknownEvent, ValueDamaged
from holdfast.core.events import Event, StepCompleted, TaskClaimed
from holdfast.core.state import paths, rules
from holdfast.core.state.fold import evolve
from holdfast.core.state.shapes import FOLD_VERSION, State
from holdfast.core.state.summary import DOUBTING, SUMMARISED, summarise
from holdfast.engine.logs.cache import Ground, Kept, Sizes
from holdfast.engine.logs.committer import PlacedEvent
from holdfast.engine.logs.heads import KnownHead
from holdfast.engine.system.entropy import random_hex
from holdfast.failpoints import failpoint
from holdfast.store.protocol import Placed, place

if TYPE_CHECKING:
    from holdfast.engine.logs.logs import Logs

assert StepCompleted not in SUMMARISED, "results are drafted the short way, which leaves the row of the list alone"


class Log:
    """One log and its state, as far as it has been read or written here. Not shared between threads."""

    def __init__(self, logs: Logs, name: str) -> None:
        self._logs = logs
        self.name = name
        self.head = Head(0, codec.genesis(name))
        self.folded: State | None = None
        self.tail: list[PlacedEvent] | None = None
        self.ground: Ground | None = Ground()
        self._claimed: tuple[Head, Head] | None = None
        self._size = self._sized_at = 0
        self.promised: KnownHead | None = None
        self.lost = False
        self._weight = 0
        self._snapshot_at = limits.SNAPSHOT_MIN_BYTES
        self._weight_at_snapshot = 0
        self._next_snapshot_at = 0

    @property
    def state(self) -> State:
        """The state; a log that was loaded or created has one."""
        assert self.folded is not None
        return self.folded

    @property
    def head_before_claim(self) -> Head | None:
        """The head before the claim that was read last, if nothing has come after it.

        Workers' claims don't wait for the disk: a server that goes down may lose one, until something else is written.
        """
        return None if self._claimed is None or self._claimed[0] is not self.head else self._claimed[1]

    def append(
        self,
        events: Sequence[Event],
        *,
        origin: Origin | None = None,
        unique_keys: tuple[UniqueKey, ...] = (),
        freed_keys: tuple[str, ...] = (),
        also: tuple[Write, ...] = (),
    ) -> None:
        """Write events after the head, and `also` to other logs. Durable when it returns; Conflict if a head moved."""
        beside = origin or unique_keys or freed_keys or also
        if not beside and len(events) == 1 and self._append_event(events[0], self._logs.committer.commit_event):
            return
        write = self.draft(events, origin)
        placed = self._logs.committer.commit(Group((write, *merge_writes(also)), unique_keys, freed_keys))
        self.accept(write, placed[0])

    def append_at_once(self, event: Event) -> bool:
        """Write an event that brings nothing else along, if no wait is needed; else False, and nothing is done."""
        return self._append_event(event, self._logs.committer.commit_event_at_once)

    def _append_event(self, event: Event, commit: Callable[[str, Head, Draft], bytes | None]) -> bool:
        """The short way, for an event that brings nothing else along; False if it does."""
        state, logs = self.folded, self._logs
        if state is None or state.salt or self._weight > self._snapshot_at or state.summary.doubts:
            return False
        at_us = logs.clock.now_us()
        if type(event) is StepCompleted:
            draft = codec.draft_result(event, at_us)
        else:
            draft = None if type(event) in SUMMARISED else codec.small_draft(event, at_us)
        if draft is None:
            return False
        digest = commit(self.name, self.head, draft)
        if digest is None:
            return False
        written, body, seq = draft.event, draft.body, self.head.seq + 1
        assert written is not None and body is not None
        self.folded, self.head = evolve(state, self.name, seq, at_us, written), Head(seq, digest)
        if self.tail is not None:
            self.tail.append(PlacedEvent(seq, at_us, written))
        self._weight += len(body)
        return True

    def check(self, events: Sequence[Event]) -> None:
        """Refuse events that may not follow, and any if the log has lost what was acknowledged here."""
        promised, self.promised = self.promised, None
        if promised is not None:
            self._logs.on_lost.confirm(self._logs, self, promised)
        state = self.folded
        for index, event in enumerate(events):
            is_inside = state is not None and type(event) in paths.NESTING
            rules.check(
                paths.opened(state, event, self._logs.blob) if state is not None and is_inside else state, event
            )
            if index < len(events) - 1:
                state = evolve(state.copy() if index == 0 and state is not None else state, self.name, 0, 0, event)
                state.seq = self.head.seq

    def draft(self, events: Sequence[Event], origin: Origin | None = None, *, ours: bool = False) -> Write:
        """Return the drafts of these events; `ours` are built by the engine, so their fields have their types."""
        at_us = self._logs.clock.now_us()
        before = summary = None if self.folded is None else self.folded.summary
        salt: str = getattr(events[0], "salt", "") if self.folded is None else self.folded.salt
        drafts: list[Draft] = []
        blobs: tuple[Blob, ...] = ()
        for event in events:
            quick = codec.draft_result(event, at_us) if ours and not salt and type(event) is StepCompleted else None
            if quick is not None:
                drafts.append(quick)
                continue
            drafted, beside = self._drafted(event, at_us, salt)
            drafts.append(drafted)
            blobs += beside
            if summary is None or type(event) in SUMMARISED:
                summary = summarise(summary, self.name, event, at_us)
        if before is not None and summary is not None:
            summary = self._with_doubts(before, summary, drafts)
        snapshot = self._snapshot(at_us) if self._weight > self._snapshot_at else None
        changed = None if summary is before or self.name[0] == "@" else summary
        return Write(self.name, tuple(drafts), self.head, origin, changed, blobs, snapshot)

    def begin(self, events: Sequence[Event]) -> tuple[Write, State]:
        """Check the first events of a new task; return what writes them, and the state they make.

        Each is folded once, as it will be read back: the next one is checked against that, and `accept` takes it over.
        """
        at_us, salt = self._logs.clock.now_us(), getattr(events[0], "salt", "")
        state: State | None = None
        drafts: list[Draft] = []
        blobs: tuple[Blob, ...] = ()
        for seq, event in enumerate(events, 1):
            inside = state if type(event) in paths.NESTING else None
            rules.check(state if inside is None else paths.opened(inside, event, self._logs.blob), event)
            drafted, beside = self._drafted(event, at_us, salt)
            assert drafted.event is not None
            drafts.append(drafted)
            blobs += beside
            state = evolve(state, self.name, seq, at_us, drafted.event)
        assert state is not None
        return Write(self.name, tuple(drafts), self.head, Origin(), state.summary, blobs), state

    def _drafted(self, event: Event, at_us: int, salt: str) -> tuple[Draft, tuple[Blob, ...]]:
        """Return an event encoded, and the large values it refers to, which are kept in memory for a while."""
        drafted, blobs = codec.draft(replace(event, nonce=random_hex(8)) if salt else event, at_us, salt)
        for blob in blobs:
            self._logs.keep(blob.hash, blob.data)
        return drafted, blobs

    def _with_doubts(self, before: Summary, summary: Summary, drafts: Sequence[Draft]) -> Summary:
        """Name the calls in doubt, which an event alone does not tell: for that, these events are folded."""
        if not before.doubts and not any(type(draft.event) in DOUBTING for draft in drafts):
            return summary
        state = self.state.copy()
        for seq, draft in enumerate(drafts, self.head.seq + 1):
            assert draft.event is not None
            state = evolve(state, self.name, seq, draft.at_us, draft.event)
        return summary if state.summary == before else state.summary

    def accept(self, write: Write, placed: Placed, folded: State | None = None) -> None:
        """Take in what has been written; `folded` is the state after it, if that is known."""
        self._take(write, placed, folded)
        self.remember()
        tier = self._logs.cache.tier
        if tier is not None and write.summary is not None and write.summary.status == "pending":
            tier.wake(write.summary.queue)
        if write.snapshot is not None:
            failpoint("snapshot.after")

    def foresee(self, write: Write) -> None:
        """Take in what is about to be written. If it is refused, this log is of no more use."""
        self._take(write, place(self.head, write.drafts))

    def _take(self, write: Write, placed: Placed, folded: State | None = None) -> None:
        seq, state = placed.first - 1, folded or self.folded
        for draft in write.drafts:
            seq += 1
            assert draft.event is not None and draft.body is not None
            if folded is None:
                state = evolve(state, self.name, seq, draft.at_us, draft.event)
            if self.tail is not None:
                self.tail.append(PlacedEvent(seq, draft.at_us, draft.event))
            self._weight += len(draft.body)
        self.folded, self.head = state, Head(seq, placed.digests[-1])
        if write.snapshot is not None:
            self._weight -= self._weight_at_snapshot
            self._size = self._snapshot_at = self._next_snapshot_at
            self._sized_at = 0

    def remember(self) -> None:
        """Keep in mind, for as long as the process lives, that the log has come so far."""
        if not self.lost and self.head_before_claim is None:
            self._logs.heads.remember(self.name, self.head, 0 if self.folded is None else self.folded.turn)

    def refresh(self) -> list[Stored]:
        """Read what others have appended since; Diverged if what is known of it is gone."""
        try:
            rows = self._logs.news(self)
        except LeaseLost:  # nothing but a claim is gone
            vars(self).update(vars(self._logs.load(self.name)))
            return []
        self.follow(rows, self.name)
        return rows

    def claim(self) -> None:
        """Take the task, if no living worker has it.

        The lease is the store's, whatever agent or queue the task is of. It says how long a worker may be silent before
        others presume it dead, which only PostgreSQL asks; it is also the wait for an open call that has no time limit.
        Workers write it in `claiming.py`, and a task that is begun and worked on at once in `dispatcher.py`.
        """
        store, summary = self._logs.store, self.state.summary
        own, taken = store.holder(), ""
        if summary.holder is not None and summary.holder != own:
            loss = store.loss(summary.holder, summary.lease_seconds)
            if loss is None:
                raise TaskBusy(self.name, summary.holder, is_cancelled=self.state.cancel is not None)
            taken = loss
        pins = None if self.state.begun else self._logs.pins(summary.user, summary.thread)
        event = TaskClaimed(holder=own, lease_seconds=store.lease_seconds, pins=pins, taken=taken)
        self.check([event])
        failpoint("claim.before")
        self.append([event])
        failpoint("claim.after")

    def follow(self, rows: Sequence[Stored], log: str) -> None:
        """Fold rows that come next; `log` is the one they were written to."""
        state, seq, weight = self.folded, self.head.seq, 0
        for row in rows:
            if row.seq != seq + 1:
                raise LogCorrupt(log, seq + 1, f"the next event is {row.seq}")
            seq = row.seq
            event = decoded(log, row)
            try:
                state = evolve(state, log, seq, row.at_us, event)
            except codec.MALFORMED as error:
                raise LogCorrupt(log, seq, f"it cannot follow what came before: {error}") from error
            if self.tail is not None:
                self.tail.append(PlacedEvent(seq, row.at_us, event))
            weight += len(row.body or b"")
        if rows:
            before = self.head if len(rows) == 1 else Head(rows[-2].seq, rows[-2].digest)
            self.folded, self.head = state, Head(seq, rows[-1].digest)
            self._claimed = (self.head, before) if rows[-1].kind == "task_claimed" else None
            self._weight += weight

    def restore(self, snapshot: Snapshot) -> None:
        """Begin from a snapshot."""
        body = codec.inflate(snapshot.body)
        self.folded = codec.load(body, State)
        self.head = Head(snapshot.seq, snapshot.digest)
        self._size, self._snapshot_at = len(body), max(limits.SNAPSHOT_MIN_BYTES, len(body))

    def kept(self) -> Kept | None:
        """A copy of the state for a cache; None if it is not known what it stands on."""
        if (
            self.folded is None
            or self.ground is None
            or self.folded.seq != self.head.seq
            or self.head_before_claim is not None
        ):
            return None
        if self._weight - self._sized_at > max(limits.CACHE_SIZED_BYTES, self._size):
            self._size, self._sized_at = len(codec.dump(self.folded)), self._weight
        sizes = Sizes(self._size, self._sized_at, self._weight, self._snapshot_at)
        return Kept(self.head, self.folded.copy(), sizes, self.ground)

    def resume(self, kept: Kept) -> None:
        """Begin from a copy of a state that was kept."""
        self.head, self.folded, self.ground = kept.head, kept.state.copy(), kept.ground
        sizes = kept.sizes
        self._size, self._sized_at, self._weight, self._snapshot_at = sizes.size, sizes.sized_at, sizes.since, sizes.due

    def _snapshot(self, at_us: int) -> Snapshot | None:
        """A snapshot of the present head; None if it is too large. It is due when the log since outweighs the last."""
        failpoint("snapshot.before")
        body = codec.dump(self.folded)
        if len(body) > limits.MAX_STATE_BYTES:
            self._snapshot_at = self._weight + len(body)
            return None
        self._weight_at_snapshot, self._next_snapshot_at = self._weight, max(limits.SNAPSHOT_MIN_BYTES, len(body))
        return Snapshot(self.head.seq, self.head.digest, FOLD_VERSION, at_us, codec.deflate(body))


DAMAGED = (LogCorrupt, UnknownEvent, ValueDamaged)
"""What is raised for a task that cannot be read. A reader of many tasks continues with the others, and names it."""


def decoded(log: str, row: Stored) -> Event:
    """A stored event, or why it cannot be read."""
    try:
        return codec.decode(row.kind, row.body)
    except KeyError:
        raise UnknownEvent(log, row.seq, row.kind) from None
    except codec.MALFORMED as error:
        raise LogCorrupt(log, row.seq, f"its body cannot be read: {error}") from error

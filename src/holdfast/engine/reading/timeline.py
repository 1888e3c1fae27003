"""The read side: events, steps of any turn, differences, verification."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import codec, limits
from holdfast.core.codec import Head, Record, Stored, Summary
from holdfast.core.errors import (
    InvalidEvent,
    InvalidValue,
    LogCorrupt,
    SeqOutOfRange,
    StepNotFound,
    TaskCollected,
    TaskNotFound,
    UnknownEvent,
    ValueDamaged,
)
from holdfast.core.state.fold import address, evolve
from holdfast.core.state.shapes import Hot, Step
from holdfast.engine.logs.log import Log, Logs, decoded
from holdfast.engine.reading.task_state import StepState, TaskState


class Problem(Struct, frozen=True):
    """Something that is not as it was written, and where."""

    task: str
    seq: int
    why: str


class Verification(Struct, frozen=True):
    """What a walk over the chains found."""

    tasks: int
    events: int
    erased: int
    problems: list[Problem]

    @property
    def ok(self) -> bool:
        """Everything is as it was written."""
        return not self.problems


def records(logs: Logs, id: str, *, after: int = 0, limit: int | None = None) -> Iterator[Record]:
    """A task's events in order, a fork's inherited ones included."""
    rows = logs.rows(id, after=min(after, limits.MAX_SEQ))
    for count, (log, row) in enumerate(rows):
        if limit is not None and count >= limit:
            return
        yield Record(log, row.seq, row.kind, row.at_us, decoded(log, row), row.digest)


def state_at(logs: Logs, id: str, seq: int | None = None) -> TaskState:
    """A task as it was just after an event."""
    if seq is not None and not isinstance(seq, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"seq={seq!r} is not a number", hint="seqs are whole numbers from 1 on")
    if seq is not None and seq < 1:
        raise SeqOutOfRange(id, seq, logs.head(id).seq)
    return TaskState(logs.load(id, upto=seq), logs)


def diff(logs: Logs, id: str, a: int, b: int) -> list[dict[str, Any]]:
    """What changed between two moments, as a JSON Patch (RFC 6902) that turns the first into the second."""
    return difference(state_at(logs, id, a).to_dict(), state_at(logs, id, b).to_dict())


def difference(before: Any, after: Any) -> list[dict[str, Any]]:
    """A JSON Patch from one document to another."""
    import jsonpatch  # takes 15 ms to import, and few programs compare

    return list(jsonpatch.make_patch(before, after))


def steps(logs: Logs, id: str, turn: int | None = None, upto: int | None = None) -> list[StepState]:
    """The steps of one turn, or of all of them in order. Costs what the turn weighs, not what the log does."""
    starts = [(0, 0), *((_turn(id, row), row.seq) for row in logs.rows_of_kind(id, "turn_started", upto=upto))]
    if turn is not None and not 0 <= turn <= starts[-1][0]:
        raise StepNotFound(id, f"{turn}/…")
    ends = [seq - 1 for _, seq in starts[1:]] + [upto]
    return [
        StepState(step, logs, number)
        for (number, start), end in zip(starts, ends, strict=True)
        if turn in (None, number)
        for step in _steps_between(logs, id, number, start, end, upto)
    ]


def step_by_key(logs: Logs, id: str, key: str) -> StepState:
    """One step by its key: the last `draft#1` there is, or `3/draft#1`, that of turn 3."""
    head, _, rest = key.partition("/")
    in_turn = int(head) if head.isascii() and head.isdigit() and rest else None
    for step in reversed(steps(logs, id, in_turn)):
        if step.key == (key if in_turn is None else rest):
            return step
    raise StepNotFound(id, key)


def raw_step(logs: Logs, id: str, key: str) -> Step:
    """One step by its key, with its values as they are stored."""
    return step_by_key(logs, id, key).raw


def calls_after(logs: Logs, id: str, seq: int) -> list[Step]:
    """Calls of tools whose last word came after a seq, in every turn since."""
    hot = logs.load(id, upto=seq).state
    found: dict[str, Step] = {}
    for log, row in logs.rows(id, after=seq):
        event = decoded(log, row)
        hot = evolve(hot, log, row.seq, row.at_us, event)
        step = hot.steps.get(getattr(event, "key", ""))
        if step is not None and step.tool:
            found[step.idempotency_key or f"{hot.turn}/{step.key}"] = step
    return list(found.values())


_MAKING_STEPS = (
    *("step_started", "step_completed", "step_failed", "attempt_failed", "wait_started", "checkpoint_made"),
    *("approval_asked", "approval_given", "approval_refused"),
)
_CHANGING_STEPS = ("step_doubted", "step_settled", "wait_ended")


def _turn(id: str, row: Stored) -> int:
    return getattr(decoded(id, row), "turn", 0)


def _steps_between(
    logs: Logs, id: str, turn: int, after: int, upto: int | None, last: int | None = None
) -> Iterable[Step]:
    """Fold only what concerns the steps of one turn; what it left open may have ended in a later one."""
    hot = Hot(summary=Summary(id=id, agent=""))
    for log, row in logs.live_rows(id, after=after, upto=upto):
        if row.kind in _MAKING_STEPS or row.kind in _CHANGING_STEPS:
            event = decoded(log, row)
            if not getattr(event, "key", "").split("/", 1)[0].isdigit():
                evolve(hot, log, row.seq, row.at_us, event)
    left = {address(turn, key): key for key, step in hot.steps.items() if step.open} | {key: key for key in hot.waits}
    if upto is not None and left:
        for log, row in logs.live_rows(id, after=upto, upto=last):
            event = decoded(log, row)
            key = left.get(getattr(event, "key", ""))
            if key is not None:
                evolve(hot, log, row.seq, row.at_us, replace(cast("Any", event), key=key))
    return hot.steps.values()


# Verification


def verify(logs: Logs, id: str | None = None, progress: Callable[[int], object] | None = None) -> Verification:
    """Walk the chain of one task, or of every log there is, and name the first thing wrong with each.

    `progress` is told how many logs were walked.
    """
    problems: list[Problem] = []
    tasks = events = erased = 0
    # A fork's past is its parents': what is wrong there is wrong with it.
    for name in all_names(logs) if id is None else [segment.log for segment in logs.segments(id)]:
        try:
            seen, gone = _verify(logs, name)
            tasks, events, erased = tasks + 1, events + seen, erased + gone
        except (LogCorrupt, UnknownEvent) as error:
            tasks += 1
            problems.append(Problem(name, error.details["seq"], error.message))
        except (TaskNotFound, TaskCollected):
            if id is not None:
                raise  # else it was removed while we walked
        if progress is not None:
            progress(tasks)
    if id is None:
        problems += [Problem("", 0, found) for found in logs.store.check()]
    return Verification(tasks, events, erased, problems)


def all_names(logs: Logs) -> Iterator[str]:
    """The name of every log there is."""
    after: str | None = None
    while page := logs.store.logs(after=after, limit=limits.READ_CHUNK):
        yield from page
        after = page[-1]


def _verify(logs: Logs, name: str) -> tuple[int, int]:
    """Check one log's own rows; gives how many there are and how many of them are erased."""
    origin = logs.store.origin(name)
    if origin is None:
        raise logs.missing(name)
    head = Head(0, codec.genesis(name))
    if origin.parent is not None:
        parent = [row for _, row in logs.rows(origin.parent, after=origin.at - 1, upto=origin.at)]
        if not parent:
            raise LogCorrupt(name, origin.at, f"its past in {origin.parent!r} is missing")
        head = Head(origin.at, parent[0].digest)
    anchor = logs.store.anchor(name)  # before the rows: what is written meanwhile must not look like a loss
    rows = logs.store.rows(name)
    allowed = {one.seq for one in logs.store.erasures(name)}
    for row in rows:
        head = _verify_row(logs, name, head, row, allowed)
    if anchor is not None and any(row.seq == anchor.seq and row.digest != anchor.digest for row in rows):
        raise LogCorrupt(name, anchor.seq, "the chain is not the one that was there")
    if anchor is not None and anchor.seq > head.seq:
        raise LogCorrupt(name, head.seq + 1, f"the log had reached {anchor.seq}, and now ends at {head.seq}")
    if not rows:
        raise LogCorrupt(name, head.seq + 1, "the log has no events")
    return len(rows), sum(row.body is None for row in rows)


def _verify_row(logs: Logs, name: str, head: Head, row: Stored, erased: set[int]) -> Head:
    seq = head.seq + 1
    if row.seq != seq:
        raise LogCorrupt(name, seq, f"the next event is {row.seq}")
    if row.body is None and seq not in erased:
        raise LogCorrupt(name, seq, "its body is gone, and nobody erased it")
    if row.body is not None and codec.body_hash(row.body) != row.body_hash:
        raise LogCorrupt(name, seq, "its body does not have the hash it was written with")
    digest = codec.chain(head.digest, seq, row.kind, row.at_us, row.body_hash)
    if digest != row.digest:
        raise LogCorrupt(name, seq, "its digest does not follow from what came before")
    for ref in codec.blob_refs(decoded(name, row)):
        stored = logs.store.blob(ref.hash)
        if stored is None:
            raise LogCorrupt(name, seq, "a value it refers to is missing")
        try:
            codec.open_blob(ref.hash, stored, ref.salt)
        except ValueDamaged as error:
            raise LogCorrupt(name, seq, error.message) from error
    return Head(seq, digest)


def rollback_target(logs: Logs, log: Log, back: int, to: int | str | None) -> int:
    """The seq to go back to: before so many steps, or at a seq, or at a checkpoint."""
    if isinstance(to, str):
        if to not in log.state.checkpoints:
            raise InvalidValue(
                f"there is no checkpoint {to!r}",
                hint=f"checkpoints: {', '.join(sorted(log.state.checkpoints)) or 'none'}",
            )
        return log.state.checkpoints[to]
    if to is not None:
        return to
    done = sorted((step.after, step.before) for step in steps(logs, log.name) if step.status in ("completed", "failed"))
    if not 1 <= back <= len(done):
        raise InvalidEvent(f"cannot roll back {back} steps of {log.name!r}", hint=f"it has done {len(done)}")
    return done[-back][1]

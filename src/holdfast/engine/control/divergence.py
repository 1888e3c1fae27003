"""Logs that have lost acknowledged events: a fail-over to a server that lagged behind, a backup that was restored.

A process that has read a task, or written to it, knows a head: its seq and its digest. If the store's log does not
have that event any more, what came after the last common one is gone. Then nothing is built upon what is left. The task
is frozen by an event at the head that is left, until a person lets it continue from there. Calls that can be done
once only and whose records are gone may have happened all the same, so they are written again, as calls in doubt; where
they can't be named, every such call of the lost turns is in doubt before it is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.core import codec, events as ev, limits
from holdfast.core.codec import Head, Origin, Stored, UniqueKey
from holdfast.core.errors import Conflict, Diverged, KeyTaken, LeaseLost, TaskNotFound, ValueDamaged
from holdfast.core.events import ANNOUNCED, Event, Fields
from holdfast.core.state.fold import address, evolve
from holdfast.core.state.shapes import State, Step
from holdfast.engine.logs.heads import KnownHead
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading import steps


class Memory(NamedTuple):
    """What a process knows of a task: its head and turn for sure, perhaps its state, or how it began."""

    head: Head
    turn: int
    state: State | None = None
    first: ev.TaskCreated | None = None


def head_missing(logs: Logs, log: Log) -> list[Stored]:
    """The head of a log in memory is not in the store: freeze the task, unless its log was removed as a whole."""
    if logs.store.tombstone(log.name) is not None:
        return []
    if log.head_before_claim is not None and _has(logs, log.name, log.head_before_claim):
        raise LeaseLost(f"task {log.name!r}: its claim at seq {log.head.seq} went down with the server")
    if log.name[0] == "@":
        raise Diverged(log.name, log.head.seq, logs.head(log.name).seq, frozen=False)
    error = freeze(logs, log.name, Memory(log.head, log.state.turn, log.state))
    log.lost = True
    raise error


def confirm(logs: Logs, log: Log, known: KnownHead) -> None:
    """Before anything is written to a log that was just read: what was acknowledged here must be in it."""
    if not _has(logs, log.name, known.head):
        raise freeze(logs, log.name, Memory(known.head, known.turn))


def _has(logs: Logs, name: str, head: Head) -> bool:
    """Return whether a log has that event."""
    row = logs.store.read(name, after=head.seq - 1, upto=head.seq)
    return bool(row) and row[0].digest == head.digest


def refuse_lost(logs: Logs, name: str, first: Event) -> None:
    """A task that this process has worked on, and of which there is no trace, does not begin anew."""
    known = logs.heads.get(name)
    if known is None or logs.store.origin(name) is not None or logs.store.tombstone(name) is not None:
        return
    raise freeze(logs, name, Memory(*known, first=first if isinstance(first, ev.TaskCreated) else None))


# Freezing


def freeze(logs: Logs, name: str, memory: Memory) -> Diverged:
    """Make a task wait for a person's decision, and return the error that says so."""
    logs.heads.forget(name)
    try:
        for _ in range(limits.MAX_APPEND_TRIES):
            try:
                return _freeze(logs, name, memory)
            except (Conflict, KeyTaken):
                continue  # others write meanwhile: look again
        raise Conflict(name, memory.head.seq, None)
    except BaseException:  # also Ctrl-C: the loss is not on record, and the next process has to record it
        logs.heads.remember(name, memory.head, memory.turn)
        raise


def _freeze(logs: Logs, name: str, memory: Memory) -> Diverged:
    try:
        left = logs.load(name)
    except TaskNotFound:
        return _frozen_anew(logs, name, memory)
    head, state = left.head.seq, left.state
    lost = _lost(logs, state, memory)
    if not _told(state, memory, lost):
        left.append([_mark(logs, memory, lost, head), *lost.restored], unique_keys=lost.unique_keys)
    return Diverged(name, memory.head.seq, head, [call.key for call in lost.calls], block=state.block)


def _frozen_anew(logs: Logs, name: str, memory: Memory) -> Diverged:
    """Nothing is left. If it is known how the task began, its id is taken again, so that it is not started unawares."""
    first = memory.first or (None if memory.state is None else _beginning(logs, memory.state))
    if first is None:
        return Diverged(name, memory.head.seq, 0, frozen=False)
    lost = _lost(logs, evolve(None, name, 1, logs.clock.now_us(), first), memory)
    events = [first, _mark(logs, memory, lost, 0), *lost.restored]
    Log(logs, name).append(events, origin=Origin(), unique_keys=lost.unique_keys)
    return Diverged(name, memory.head.seq, 0, [call.key for call in lost.calls], block=first.block)


def _beginning(logs: Logs, state: State) -> ev.TaskCreated | None:
    """The first event of a task again, from its state; a fork's past is another's, so it has none."""
    if state.forked_from:
        return None
    own = ("seed", "salt", "version", "stages", "goal", "block", "budget", "payers", "phases", "constraints")
    kept = {name: getattr(state, name) for name in (*own, "risks", "contract", "state_version")}
    listed = ("agent", "user", "thread", "parent", "deadline_us", "queue", "priority", "mock")
    kept |= {name: getattr(state.summary, name) for name in listed}
    return ev.TaskCreated(**kept, queue_key=state.summary.key, input=_whole(logs, state.input) or {})


def _mark(logs: Logs, memory: Memory, lost: _Lost, head_seq: int) -> ev.TaskDiverged:
    return ev.TaskDiverged(
        known_seq=memory.head.seq,
        known_digest=memory.head.digest.hex(),
        head_seq=head_seq,
        calls=tuple(lost.calls),
        unsure_upto=lost.unsure_upto,
        by=logs.store.holder(),
    )


def _told(left: State, memory: Memory, lost: _Lost) -> bool:
    """Return whether the log says all of it already."""
    known = left.divergence
    if known is None or left.summary.waiting != "diverged" or known.known_seq < memory.head.seq:
        return False
    return known.unsure_upto >= lost.unsure_upto and {call.key for call in lost.calls} <= {*known.calls}


# What is lost


class _Lost(NamedTuple):
    """Calls that may have happened, what is written about them, and the last turn in which there may be more."""

    calls: list[ev.LostCall]
    restored: list[Event]
    unique_keys: tuple[UniqueKey, ...]
    unsure_upto: int


def _lost(logs: Logs, left: State, memory: Memory) -> _Lost:
    state = memory.state
    if state is None:
        return _Lost([], [], (), memory.turn)
    unnamed = left.turn < state.turn or bool(state.kept.keys() - left.kept.keys())
    calls: list[ev.LostCall] = []
    restored: list[Event] = []
    keys: list[UniqueKey] = []
    for key, step, theirs in _unknown_to(logs, left, state):
        calls.append(ev.LostCall(key, step.tool, step.idempotency_key, step.status))
        input = _whole(logs, step.input)
        unnamed |= input is None
        if (
            input is None
            or unnamed
            or left.ended
            or (theirs is not None and theirs.open and theirs.status != "retrying")
        ):
            continue  # it is in doubt in another way
        restored += _again(key, step, input)
        if step.unique and logs.store.owner_of_key(step.unique) is None:
            place = address(state.turn, step.key) if state.turn else step.key
            keys.append(UniqueKey(step.unique, left.summary.id, place, codec.fingerprint(input)))
    return _Lost(calls, restored, tuple(keys), state.turn if unnamed else -1)


def _unknown_to(logs: Logs, left: State, state: State) -> Iterator[tuple[str, Step, Step | None]]:
    """The calls of a state whose outcome a log does not know: under their keys there, and as they are known there."""
    for step in state.steps.values():
        key = step.key if left.turn == state.turn else address(state.turn, step.key)
        theirs = left.steps.get(key)
        if theirs is None and left.turn > state.turn:
            theirs = steps.step_of(logs, left.summary.id, key)  # another process has continued, unaware of the loss
        if _may_have_happened(state, step) and (theirs is None or not theirs.done):
            yield key, step, theirs


def _may_have_happened(state: State, step: Step) -> bool:
    """Return whether the world may have seen a call that it must not see again."""
    surely_not = step.status in ("void", "retrying") or (step.status == "failed" and (step.safe or not step.attempts))
    return step.effect in ANNOUNCED and bool(step.tool) and not state.mock and not surely_not


def _again(key: str, step: Step, input: Fields) -> tuple[Event, Event]:
    """A call as it was announced, in doubt."""
    same = {
        name: getattr(step, name) for name in ("name", "tool", "effect", "idempotency_key", "unique", "risk", "undo")
    }
    announced = ev.StepStarted(key=key, input=input, attempt=max(1, step.attempts), **same)
    return announced, ev.StepDoubted(key=key, why=f"its record was lost; it was {step.status}")


def _whole(logs: Logs, input: Fields) -> Fields | None:
    """An input with its large values in place, since the store may have lost those too; None if they are gone here."""
    try:
        return {
            name: codec.pack(codec.unpack(raw, logs.blob)) if bytes(raw).startswith(b'{"$blob"') else raw
            for name, raw in input.items()
        }
    except ValueDamaged:
        return None

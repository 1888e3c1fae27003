"""A log that others wrote, folded event by event: each must be one that could have been written here.

For what is imported, copied or verified. `rules.check` judges an event by the state before it. Here is what only a
whole log shows: which ending was reopened, what a rollback may restore, what can't be known once a body was erased.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from msgspec import UNSET, Struct

from holdfast.core import codec, names
from holdfast.core.codec import Stored
from holdfast.core.errors import HoldfastError, InvalidEvent, LogCorrupt
from holdfast.core.events import (
    Event,
    FlagCleared,
    PlanStepDone,
    QuestionClosed,
    RolledBack,
    StateAppended,
    StateDeleted,
    StateIncremented,
    StatePatched,
    StateSet,
)
from holdfast.core.state import rules
from holdfast.core.state.fold import evolve
from holdfast.core.state.shapes import State, Step

_OTHER_LOGS = {
    "@user/": {"user_created", "state_patched", "state_migrated", "expiry_set"},
    "@thread/": {
        *("thread_created", "message_added", "messages_removed", "state_patched", "metadata_set", "expiry_set"),
        "task_joined",
    },
}
"""What is written to logs of users and threads."""

_ONLY_BESIDE = {"user_created", "thread_created", "messages_removed", "metadata_set", "expiry_set", "task_joined"}

_ENDINGS = {"task_completed", "task_failed", "task_cancelled"}
_REOPENING = {"task_reopened", "rolled_back", "task_forked"}


class History:
    """The fold of a log as far as it was taken in."""

    def __init__(self, state: State | None = None, *, keep: Collection[int] = ()) -> None:
        """`state` is what a fork stands on, unless its past is taken in first. `keep` names seqs: see `kept`."""
        self.state = None if state is None else state.copy()
        self.kept: dict[int, State] = {}
        """States as they were just after the seqs to keep: a rollback goes back to one, a fork begins with one."""
        self._keep = {*keep}
        self._calls: list[tuple[int, str, Step]] = []
        self._ended = state is not None and state.ended
        self._erased = False
        if state is not None and state.seq in self._keep:
            self.kept[state.seq] = state.copy()

    def take(self, log: str, row: Stored, event: Event) -> None:
        """Fold the next event, which was written to `log`; LogCorrupt if it could not have been written there."""
        own = log.rpartition(names.NAMESPACE_END)[2]  # what a tenant's log says of itself is without the tenant
        try:
            _check_place(own, row.kind)
            self._check_ending(row.kind)
            if row.body is None:
                self._erased = True
            else:
                codec.check_event(event)
                self._check_rules(own, event)
            self.state = evolve(self.state, own, row.seq, row.at_us, event)
        except HoldfastError as error:
            raise LogCorrupt(log, row.seq, f"no such event can be there: {error.message}") from error
        except codec.MALFORMED as error:
            raise LogCorrupt(log, row.seq, f"no such event is ever written: {error}") from error
        step = self.state.steps.get(getattr(event, "key", ""))
        if step is not None and step.tool:
            self._calls.append((row.seq, step.idempotency_key or f"{self.state.turn}/{step.key}", step))
        if row.seq in self._keep:
            self.kept[row.seq] = self.state.copy()

    def _check_ending(self, kind: str) -> None:
        """After its end a task continues only if it is reopened. Kinds alone show it, so this holds for erased logs."""
        if self._ended and kind not in rules.KINDS_AFTER_THE_END:
            raise InvalidEvent(f"the task has ended, and {kind} comes after that")
        if kind in _ENDINGS:
            self._ended = True
        elif kind in _REOPENING:
            self._ended = False

    def _check_rules(self, log: str, event: Event) -> None:
        if self.state is not None and _is_of_a_view(log, event):
            return rules.check_text(event)
        try:
            rules.check(self.state, event)
            if isinstance(event, RolledBack):
                self._check_rollback(event)
        except HoldfastError:
            if not self._erased:  # else what would allow it may have been erased, and the fold passes over it
                raise
            if isinstance(event, RolledBack):
                _check_restored(log, codec.load(event.hot, State))

    def _check_rollback(self, event: RolledBack) -> None:
        """Check that a rollback restores a state that this log had: no approval or outcome may come in that way."""
        past = self.kept.get(event.to)
        assert self.state is not None and past is not None, "the seqs that rollbacks name are kept"
        later = {key: step for seq, key, step in self._calls if seq > event.to}
        wanted = rules.restored(self.state, past, later.values())
        if _judged(wanted) != _judged(codec.load(event.hot, State)):
            raise InvalidEvent(f"the rollback to {event.to} restores what was not there")


def _is_of_a_view(log: str, event: Event) -> bool:
    """Return whether an event was decided by a branch's view that other writers may have changed before it was written.

    A number may be a text by then, and a flag cleared. The fold takes such events as they are.
    """
    said = bool(event.branch) or (log.startswith(("@user/", "@thread/")) and isinstance(event, StatePatched))
    return said and type(event) in _SHARED


_SHARED = {
    *(StateSet, StateIncremented, StateAppended, StateDeleted, StatePatched),
    *(PlanStepDone, QuestionClosed, FlagCleared),
}


def _check_place(log: str, kind: str) -> None:
    """Tasks, people and threads have logs of their own, and what is written to one is never written to another."""
    kinds = next((kinds for start, kinds in _OTHER_LOGS.items() if log.startswith(start)), None)
    beside = kind in _ONLY_BESIDE or log.startswith("@")
    if beside if kinds is None else kind not in kinds:
        raise InvalidEvent(f"{kind} does not belong into such a log")


_KNOWLEDGE = (
    *("input", "seed", "salt", "version", "stages", "goal", "phase", "constraints", "risks", "contract", "turn"),
    *("plan", "facts", "questions", "artifacts", "notes", "flags", "bag", "messages", "checkpoints", "signals"),
    *("waits", "approvals", "effects", "result", "undoing", "block", "budget", "payers", "forked_from", "forked_at"),
)
_ROW = ("id", "agent", "status", "stage", "user", "thread", "parent", "holder", "queue", "priority", "mock")
_STEPS = ("steps", "kept", "prelude", "maybe_done")
_STEP = ("key", "name", "status", "tool", "effect", "idempotency_key", "input", "result")
_UNDO = ("name", "step", "tool", "idempotency_key", "input", "result")


def _judged(state: State) -> bytes:
    """Return the fields that a rollback may neither invent nor forget. Later fields stay out: old events lack them."""
    told: dict[str, Any] = dict(zip(_KNOWLEDGE, _parts(state, _KNOWLEDGE), strict=True))
    told["summary"] = _parts(state.summary, _ROW)
    for name in _STEPS:
        steps: dict[str, Step] = getattr(state, name)
        told[name] = {key: _parts(step, _STEP) for key, step in steps.items()}
    return codec.dump({**told, "undo": [_parts(one, _UNDO) for one in state.undo]})


def _parts(whole: Struct, names: Sequence[str]) -> list[Any]:
    return [None if (part := getattr(whole, name)) is UNSET else part for name in names]


def _check_restored(log: str, hot: State) -> None:
    """Check the rules of every rollback that hold even if the earlier state can't be computed any more."""
    at_rest = hot.summary.id == log and hot.summary.status == "pending" and hot.summary.holder is None
    if not at_rest or hot.approvals or hot.waits or hot.result is not UNSET:
        raise InvalidEvent("the rollback restores what no rollback does")

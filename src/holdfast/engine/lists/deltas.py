"""What each event changes in a task's document (`to_dict`), as JSON Patch, in the cost of what it changes.

Only `evolve` knows what state is. Here it is only known where an event of a kind can change it; a kind that is not in
the table can change it anywhere, and then every section is compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from copy import copy
from itertools import islice
from typing import Any

from holdfast.core import codec, events as ev, names
from holdfast.core.codec import Stored
from holdfast.core.errors import InvalidValue, SeqOutOfRange
from holdfast.core.events import Event
from holdfast.engine.logs.log import Log, decoded
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading.steps import message_added
from holdfast.engine.reading.task_state import (
    ELEMENTS,
    INTERRUPTED,
    Subject,
    TaskState,
    checked_sections,
    decision_made,
    document,
)

Op = dict[str, Any]

KEYFRAME = (
    *("state", "facts", "plan", "questions", "flags", "notes", "artifacts", "checkpoints", "phase", "stage", "budget"),
)
"""The sections that show what a task knows at a moment."""


class Delta(codec.JsonStruct, frozen=True):
    """What one event changes: a JSON Patch (RFC 6902) from the document before it to the one after it."""

    seq: int
    ops: list[Op]


_ALWAYS = (
    *("status", "stage", "phase", "turn", "seq", "waiting", "updated_at", "budget", "goal"),
    *("failed_at", "holder", "state_version", "digest"),
)
"""Small sections, compared after each event."""

_LISTS = ("messages", "decisions")
"""Sections that only grow, and are read from the log: an event adds to them, unless it goes back."""

_ENDINGS = ("result", "failure")
_KEYED = ("steps", "calls")

_TOUCHED: dict[type[Event], tuple[str, ...]] = {
    ev.StepStarted: _KEYED,
    ev.StepCompleted: _KEYED,
    ev.StepFailed: _KEYED,
    ev.AttemptFailed: _KEYED,
    ev.StepDoubted: _KEYED,
    ev.StepSettled: _KEYED,
    ev.StepObserved: _KEYED,
    ev.StepVoided: _KEYED,
    ev.WaitStarted: (),
    ev.WaitEnded: _KEYED,
    ev.ApprovalAsked: (),
    ev.ApprovalGiven: _KEYED,
    ev.ApprovalRefused: _KEYED,
    ev.CheckpointMade: (*_KEYED, "checkpoints"),
    ev.StateUpdated: (*_KEYED, "state"),
    ev.StateSet: ("state",),
    ev.StateIncremented: ("state",),
    ev.StateAppended: ("state",),
    ev.StateDeleted: ("state",),
    ev.FactLearned: ("facts",),
    ev.NoteSet: ("notes",),
    ev.PlanSet: ("plan",),
    ev.PlanStepDone: ("plan",),
    ev.QuestionOpened: ("questions",),
    ev.QuestionClosed: ("questions",),
    ev.FlagRaised: ("flags",),
    ev.FlagCleared: ("flags",),
    ev.ArtifactAdded: ("artifacts",),
    ev.MessageAdded: (),
    ev.DecisionMade: (),
    ev.LogWritten: (),
    ev.StageSet: (),
    ev.PhaseSet: (),
    ev.SignalReceived: (),
    ev.CancelRequested: (),
    ev.TaskClaimed: (),
    ev.TaskReleased: (),
    ev.TaskSuspended: (),
    ev.TaskCompleted: _ENDINGS,
    ev.TaskFailed: _ENDINGS,
    ev.TaskCancelled: _ENDINGS,
}
"""Which sections an event can change, by its kind; of `steps` and `calls` only the one with the event's key."""

_REWRITING = (ev.RolledBack, ev.TaskForked)
"""Events after which also lists that only grow may be others."""


def deltas(
    logs: Logs,
    id: str,
    *,
    after: int = 0,
    upto: int | None = None,
    sections: Collection[str] | None = None,
    limit: int | None = None,
) -> Iterator[Delta]:
    """The deltas of the events after one seq up to another, in order. Those that change nothing are left out.

    After 0 the first one makes the document out of `{}`.
    """
    if limit is not None and limit < 1:
        raise InvalidValue(f"limit={limit} is not a number of deltas", hint="give 1 or more, or None for all")
    wanted = _changing(sections)
    _refuse_beyond(logs, id, after, upto)
    return islice(_deltas(logs, id, after, upto, wanted), limit)


def _deltas(logs: Logs, id: str, after: int, upto: int | None, wanted: Collection[str]) -> Iterator[Delta]:
    log = Log(logs, id) if after == 0 else logs.load(id, upto=after)
    for name, row in logs.rows(id, after=after, upto=upto):
        touched = _TOUCHED.get(type(decoded(name, row)))
        ops = _patch_over(logs, log, [(name, row)], wanted, touched)
        if ops:
            yield Delta(row.seq, ops)


def diff(logs: Logs, id: str, a: int, b: int) -> list[Op]:
    """Return the differences between two moments, from the parts that the events between them touched."""
    first, last = sorted((names.whole(a, "seq"), names.whole(b, "seq")))
    _refuse_beyond(logs, id, first - 1, last)
    log = logs.load(id, upto=first)
    return _patch_over(logs, log, logs.rows(id, after=first, upto=last), _changing(None), None, back=b < a)


def _changing(sections: Collection[str] | None) -> list[str]:
    """Those sections that events change, in the order of the document. A section that no event changes is refused."""
    if sections is not None and INTERRUPTED in sections:
        raise InvalidValue(
            "whether a task is interrupted is not in its log, so no event changes it", hint="ask app.get"
        )
    return checked_sections(sections)


def _refuse_beyond(logs: Logs, id: str, after: int, upto: int | None) -> None:
    last = logs.head(id).seq
    for seq, least in ((after, 0), (last if upto is None else upto, 1)):
        names.seq(seq)
        if not least <= seq <= last:
            raise SeqOutOfRange(id, seq, last)


def _patch_over(
    logs: Logs,
    log: Log,
    rows: Iterable[tuple[str, Stored]],
    wanted: Collection[str],
    touched: tuple[str, ...] | None,
    *,
    back: bool = False,
) -> list[Op]:
    """Fold events, and compare what they can have touched before and after. None is everything.

    Lists that only grow are not compared, unless one of the events went back, or the difference is asked for backwards.
    """
    parts = [one for one in wanted if one not in _LISTS and (touched is None or one in touched or one in _ALWAYS)]
    events = [(name, row, decoded(name, row)) for name, row in rows]
    key: str | None = None if touched is None else getattr(events[0][2], "key", "")
    if back or any(isinstance(event, _REWRITING) for _, _, event in events):
        parts += [one for one in wanted if one in _LISTS]
    before = _Moment(_subject(log, logs), parts, key) if log.folded is not None else None
    for name, row, _ in events:
        log.follow([row], name)
    after = _subject(log, logs)
    if before is None:
        return _difference({}, document(after, wanted))
    ops = before.patch(after, back=back)
    if not {*_LISTS} & {*parts}:
        for _, row, event in events:
            ops += _added(logs, log.name, row, event, wanted)
    return ops


def _subject(log: Log, logs: Logs) -> Subject:
    return Subject(TaskState(log, logs), log.state, logs)


class _Moment:
    """What a task's sections were before something was folded that may change them."""

    def __init__(self, task: Subject, parts: Collection[str], key: str | None) -> None:
        self._task, self._parts, self._key = task._replace(state=copy(task.state)), parts, key
        self._held = self._taken(task)
        self._whole = document(task, [one for one in parts if one not in ELEMENTS])

    def patch(self, after: Subject, *, back: bool) -> list[Op]:
        """The patch from then to now, or back from now to then."""
        old, new = self._whole, document(after, [one for one in self._parts if one not in ELEMENTS])
        for name, held in self._taken(after).items():
            shown, were = ELEMENTS[name].shown, self._held[name]
            changed = [key for key in {**were, **held} if were.get(key) is not held.get(key)]
            old[name] = {key: shown(self._task, were[key]) for key in changed if key in were}
            new[name] = {key: shown(after, held[key]) for key in changed if key in held}
        return _difference(new, old) if back else _difference(old, new)

    def _taken(self, task: Subject) -> dict[str, dict[str, Any]]:
        """The elements of each section, as they are in the state: shared, and never changed."""
        found: dict[str, dict[str, Any]] = {}
        for name in self._parts:
            if name in ELEMENTS:
                held, key = ELEMENTS[name].held(task.state), self._key
                if key is None or name not in _KEYED:
                    found[name] = dict(held)
                else:
                    found[name] = {key: held[key]} if key in held else {}
        return found


def _difference(before: Any, after: Any) -> list[Op]:
    if before == after and codec.text(before) == codec.text(after):
        return []
    import jsonpatch  # takes 15 ms to import, and few programs compare

    return list(jsonpatch.make_patch(before, after))


def _added(logs: Logs, id: str, row: Stored, event: Event, wanted: Collection[str]) -> list[Op]:
    """Return the additions of an event to a list that only grows."""
    if isinstance(event, ev.MessageAdded) and "messages" in wanted:
        return [{"op": "add", "path": "/messages/-", "value": message_added(logs, id, row.seq, event)}]
    if isinstance(event, ev.DecisionMade) and "decisions" in wanted:
        return [{"op": "add", "path": "/decisions/-", "value": decision_made(logs, event, row)}]
    return []

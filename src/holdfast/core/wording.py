"""Events in words: the verb that says one, for errors; its kind and values, for people who print it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from msgspec import UNSET, Raw, Struct
from msgspec.structs import fields

_TASK = {
    "stage": "StageSet",
    "phase": "PhaseSet",
    "decide": "DecisionMade",
    "fact": "FactLearned",
    "plan": "PlanSet",
    "done": "PlanStepDone",
    "question": "QuestionOpened",
    "artifact": "ArtifactAdded",
    "note": "NoteSet",
    "flag": "FlagRaised",
    "message": "MessageAdded",
    "compensate": "CompensationAdded",
    "patch": "StatePatched",
    "log": "LogWritten",
    "state": "StateSet StateIncremented StateAppended StateDeleted StateUpdated",
    "user": "UserPatched",
    "thread": "ThreadPatched",
}
_APP = {
    "signal": "SignalReceived",
    "answer": "WaitEnded",
    "approve": "ApprovalGiven",
    "reject": "ApprovalRefused",
    "settle": "StepSettled",
    "cancel": "CancelRequested TaskCancelled",
    "patch": "StatePatched",
    "resume": "TaskReopened DivergenceAccepted",
}
_SAID = {kind: f"task.{verb}" for verb, kinds in _TASK.items() for kind in kinds.split()}
_ASKED = {kind: f"app.{verb}" for verb, kinds in _APP.items() for kind in kinds.split()}
_LENGTH = 60


def verb_of(event: Any, *, said: bool = False) -> str:
    """The verb that people used, whatever its event is called; what an agent `said` is a task's verb.

    >>> from holdfast.core import events
    >>> verb_of(events.StageSet(stage="done")), verb_of(events.CancelRequested()), verb_of(events.TaskReleased())
    ('task.stage', 'app.cancel', 'a TaskReleased')
    """
    kind = type(event).__name__
    first, second = (_SAID, _ASKED) if said or event.branch else (_ASKED, _SAID)
    return first.get(kind) or second.get(kind) or f"a {kind}"


def shown(event: Struct, kind: str) -> str:
    """An event as one line: its kind, and what differs from what it would be anyway, shortened.

    >>> from holdfast.core import events
    >>> events.NoteSet(key="city", value=Raw(b'"Oslo"'))
    <note_set key='city' value="Oslo">
    """
    said = [
        f"{field.name}={_short(getattr(event, field.name))}"
        for field in fields(event)
        if field.name != "nonce"
        if field.required or getattr(event, field.name) not in (field.default, None, UNSET)
        if getattr(event, field.name) not in ({}, ())
    ]
    return f"<{' '.join([kind, *said])}>"


def _short(value: Any) -> str:
    if isinstance(value, Raw):
        text = bytes(value).decode(errors="replace")
    elif isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        text = "{" + ", ".join(f"{name}: {_short(one)}" for name, one in pairs) + "}"
    elif isinstance(value, Struct):
        text = shown(value, type(value).__name__)[1:-1]
        text = f"({text})"
    else:
        text = repr(value)
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH]}…"

"""An event as people read it: what was done, about what, how long it took, what it cost. The same for every face."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from msgspec import UNSET, Raw

from holdfast.core import codec, events as ev
from holdfast.core.codec import Fetch, LoggedEvent
from holdfast.core.errors import InvalidValue, LogCorrupt, ValueDamaged
from holdfast.engine.reading.steps import iso

Tone = Literal["plain", "good", "bad", "warn", "dim"]


class EventLine(codec.JsonStruct, frozen=True, kw_only=True):
    """A line of a timeline. One that is `dull` is left out unless everything is wanted."""

    verb: str
    about: str = ""
    value: Any = None
    tone: Tone = "plain"
    by: str = ""
    source: str = ""
    took_us: int = 0
    attempt: int = 0
    tokens: int = 0
    cost: float | None = None
    dull: bool = False


def describe(record: LoggedEvent, fetch: Fetch) -> EventLine:
    """Describe an event. `fetch` reads large values."""
    event = record.event
    try:
        for tell in (_of_tasks, _of_steps, _of_waits, _of_knowledge):
            found = tell(event, record.at_us, fetch)
            if found is not None:
                return found
        return _anything(record, fetch)
    except ValueDamaged as error:
        raise LogCorrupt(record.log, record.seq, error.message) from error


def as_json(record: LoggedEvent, fetch: Fetch) -> dict[str, Any]:
    """An event for programs: what people read of it, and the event itself."""
    line = describe(record, fetch)
    return {
        "task": record.log,
        "seq": record.seq,
        "at": iso(record.at_us),
        "kind": record.kind,
        "verb": line.verb,
        "about": line.about,
        "value": line.value,
        "by": line.by,
        "source": line.source,
        "took_ms": line.took_us / 1000 if line.took_us else None,
        "attempt": line.attempt or None,
        "tokens": line.tokens or None,
        "cost": None if line.cost is None else f"{line.cost:.6f}",
        "event": codec.as_json(record.event),
    }


def value_in(record: LoggedEvent, pointer: str, fetch: Fetch) -> Any:
    """Return a value of an event by its place in it, such as `result`, `input/batch` or `message/content`."""
    found: Any = record.event
    for part in pointer.split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        match found:
            case Mapping():
                found = cast("Mapping[str, Any]", found).get(name, UNSET)
            case list() | tuple():
                items = cast("Sequence[Any]", found)
                found = items[int(name)] if name.isascii() and name.isdigit() and int(name) < len(items) else UNSET
            case ev.Event():
                found = getattr(found, name) if name in found.__struct_fields__ else UNSET
            case _:
                found = UNSET
        found = codec.unpack(found, fetch) if isinstance(found, Raw) else found
    if found is UNSET:
        hint = "give the name of a field of that event, such as result"
        raise InvalidValue(f"event {record.seq} of {record.log!r} has no value at {pointer!r}", hint=hint)
    return codec.as_json(found)


def _value(raw: Any, fetch: Fetch) -> Any:
    if not isinstance(raw, Raw):
        return None
    return codec.unpack(raw, fetch)


def _values(fields: Mapping[str, Raw], fetch: Fetch) -> dict[str, Any]:
    return {name: codec.unpack(raw, fetch) for name, raw in fields.items()}


def _failed(failure: ev.Failure | None) -> str:
    return "" if failure is None else f"{failure.type}: {failure.message}"


def _of_tasks(event: ev.Event, at_us: int, fetch: Fetch) -> EventLine | None:
    match event:
        case ev.TaskCreated():
            return EventLine(verb="created", about=event.agent, value=_values(event.input, fetch))
        case ev.TaskForked():
            return EventLine(
                verb="forked", about=f"from {event.parent} at {event.at}", value=event.effects, by=event.by
            )
        case ev.TaskClaimed():
            return EventLine(verb="claimed", about=f"process {process_name(event.holder)}", tone="dim")
        case ev.TaskReleased():
            return EventLine(verb="released", value=event.why or None, tone="dim")
        case ev.TaskSuspended():
            until = None if event.wake_us is None else f"until {iso(event.wake_us)}"
            return EventLine(verb="waits", about=event.why, value=until, tone="warn")
        case ev.TaskCompleted():
            return EventLine(verb="completed", value=_value(event.result, fetch), tone="good")
        case ev.TaskFailed():
            return EventLine(verb="failed", about=event.step, value=_failed(event.failure), tone="bad")
        case ev.CancelRequested():
            return EventLine(verb="cancelling", value=event.why or None, by=event.by, tone="warn")
        case ev.TaskCancelled():
            return EventLine(verb="cancelled", value=event.why or None, by=event.by, tone="bad")
        case ev.TaskReopened():
            return EventLine(verb="reopened", about=event.void, value=event.why or None, by=event.by)
        case ev.TaskDiverged():
            lost = f"{event.head_seq + 1} to {event.known_seq}"
            calls = ", ".join(call.key for call in event.calls)
            value = f"calls that may have happened: {calls}" if calls else None
            return EventLine(verb="diverged", about=f"lost {lost}", value=value, tone="bad")
        case ev.DivergenceAccepted():
            return EventLine(verb="resumed", about="from what is left", value=event.why or None, by=event.by)
        case ev.UndoStarted():
            return EventLine(verb="undoing", value=_failed(event.failure) or None, tone="warn")
        case ev.TurnStarted():
            return EventLine(verb="turn", about=str(event.turn), tone="dim")
        case ev.StageSet():
            return EventLine(verb="stage", about=event.stage)
        case ev.PhaseSet():
            return EventLine(verb="phase", about=event.phase)
        case ev.CheckpointMade():
            return EventLine(verb="checkpoint", about=event.label, tone="dim")
        case ev.RolledBack():
            return EventLine(
                verb="rolled back", about=f"to {event.to}", value=event.why or None, by=event.by, tone="warn"
            )
        case _:
            return None


def _of_steps(event: ev.Event, at_us: int, fetch: Fetch) -> EventLine | None:
    match event:
        case ev.StepStarted():
            verb = "announced" if event.effect in ev.ANNOUNCED else "started"
            given = _values(event.input, fetch)
            return EventLine(verb=verb, about=event.key, value=given or None, attempt=event.attempt, tone="dim")
        case ev.AttemptFailed():
            spent = _spent(event.usage)
            wait_s = max(0, event.retry_us - at_us) / 1_000_000
            why = f"attempt {event.attempt} failed, again in {round(wait_s, 2):g} s: {_failed(event.failure)}"
            return EventLine(verb="retry", about=event.key, value=why, attempt=event.attempt, tone="warn", **spent)
        case ev.StepCompleted():
            found = {"value": _value(event.result, fetch), "attempt": event.attempts, "tone": "good"}
            found |= {"verb": "answered" if event.task else "done", "source": _answered_by(event)}
            return EventLine(about=event.key, **found, **_took(event, at_us), **_spent(event.usage))
        case ev.StepFailed():
            found = {"value": _failed(event.failure), "attempt": event.attempts, "tone": "bad"}
            found |= {"verb": "step failed", "source": _answered_by(event)}
            return EventLine(about=event.key, **found, **_took(event, at_us), **_spent(event.usage))
        case ev.StepDoubted():
            return EventLine(verb="in doubt", about=event.key, value=event.why or None, tone="warn")
        case ev.StepSettled():
            happened = "it happened" if event.happened else "it did not happen"
            result = _value(event.result, fetch)
            value = f"{happened}: {codec.text(result)}" if event.happened and result is not None else happened
            return EventLine(verb="settled", about=event.key, value=value, by=event.by, tone="good")
        case ev.StepVoided():
            return EventLine(verb="voided", about=event.key, value=event.why or None, tone="warn")
        case ev.StepObserved():
            late = _value(event.result, fetch) if event.failure is None else _failed(event.failure)
            return EventLine(verb="came late", about=event.key, value=late, tone="warn")
        case ev.BudgetRaised():
            return EventLine(verb="budget", about="raised", value=codec.as_json(event.limits), by=event.by)
        case ev.ChildSpent():
            return EventLine(verb="child spent", about=event.child, tone="dim", **_spent(event.usage))
        case _:
            return None


def _answered_by(event: ev.StepCompleted | ev.StepFailed) -> str:
    """Say whose call answered for one that was not made; empty if it was made."""
    if event.task:
        return f"task {event.task}, call {event.source.removeprefix(f'{event.task}/')}"
    return "its mock" if event.source == "mock" else event.source


def _took(event: ev.StepCompleted | ev.StepFailed, at_us: int) -> dict[str, Any]:
    return {"took_us": max(0, at_us - event.started_us)} if event.started_us else {}


def _spent(usage: ev.Usage | None) -> dict[str, Any]:
    return {} if usage is None else {"tokens": usage.input_tokens + usage.output_tokens, "cost": usage.cost}


def _of_waits(event: ev.Event, at_us: int, fetch: Fetch) -> EventLine | None:
    match event:
        case ev.WaitStarted():
            verb = {"person": "asks", "timer": "sleeps", "child": "spawns"}.get(event.wait, "waits for")
            until = None if event.wake_us is None else f"until {iso(event.wake_us)}"
            prompt = _value(event.prompt, fetch)
            about = event.key if event.wait == "timer" else event.name or event.key
            return EventLine(verb=verb, about=about, value=until if prompt is None else prompt, tone="warn")
        case ev.WaitEnded():
            verb = "expired" if event.expired else "answered" if event.by else "came"
            value = _failed(event.failure) if event.failure is not None else _value(event.value, fetch)
            return EventLine(verb=verb, about=event.key, value=value, by=event.by)
        case ev.ApprovalAsked():
            return EventLine(verb="approval?", about=event.key, value=_values(event.input, fetch) or None, tone="warn")
        case ev.ApprovalGiven():
            return EventLine(verb="approved", about=event.key, value=event.why or None, by=event.by, tone="good")
        case ev.ApprovalRefused():
            verb = "expired" if event.expired else "rejected"
            return EventLine(verb=verb, about=event.key, value=event.why or None, by=event.by, tone="bad")
        case ev.SignalReceived():
            return EventLine(verb="signal", about=event.name, value=_value(event.value, fetch), by=event.by)
        case _:
            return None


def _of_knowledge(event: ev.Event, at_us: int, fetch: Fetch) -> EventLine | None:
    match event:
        case ev.DecisionMade():
            chosen = _value(event.choice, fetch)
            choice = chosen if isinstance(chosen, str) else codec.text(chosen)
            return EventLine(
                verb="decided", about=event.question, value=f"{choice}, {event.why}" if event.why else choice
            )
        case ev.FactLearned():
            return EventLine(verb="fact", about=event.key, value=_value(event.value, fetch), source=event.source)
        case ev.PlanSet():
            return EventLine(verb="plan", value=list(event.steps))
        case ev.QuestionOpened() | ev.QuestionClosed():
            return EventLine(verb="wonders" if isinstance(event, ev.QuestionOpened) else "knows", about=event.question)
        case ev.ArtifactAdded():
            return EventLine(verb="artifact", about=event.artifact_id, value=event.summary or event.type)
        case ev.FlagRaised() | ev.FlagCleared():
            return EventLine(
                verb="flag" if isinstance(event, ev.FlagRaised) else "flag off", about=event.flag, tone="warn"
            )
        case ev.LogWritten():
            told = [event.text, *(f"{name}={codec.text(one)}" for name, one in _values(event.fields, fetch).items())]
            return EventLine(verb="says", value=" ".join(told))
        case ev.StatePatched():
            patch = {name: value for name, value in codec.as_json(event.patch).items() if name != "nested"}
            return EventLine(verb="patched", value=patch, by=event.by)
        case ev.StateUpdated():
            return EventLine(verb="updated", about=event.name, value=_value(event.value, fetch), tone="dim", dull=True)
        case ev.PatchRefused():
            whose = "the user's " if event.user else ""
            told = "requires" if event.required else "wanted to"
            value = f"{told} {event.mine}; {'it is' if event.required else 'others meanwhile:'} {event.theirs}"
            return EventLine(verb="refused", about=f"{whose}{event.path}", value=value, by=event.by, tone="warn")
        case ev.Erased():
            return EventLine(verb="erased", tone="dim")
        case _:
            return None


def _anything(record: LoggedEvent, fetch: Fetch) -> EventLine:
    """Small writes of an agent's own: shown when everything is wanted."""
    event: Any = record.event
    about = next((getattr(event, name) for name in ("key", "name", "step") if hasattr(event, name)), "")
    value = next((getattr(event, name) for name in ("value", "message") if hasattr(event, name)), None)
    told = event.by if isinstance(event, ev.StateIncremented) else _value(value, fetch)
    verb = _SMALL.get(record.kind) or record.kind.replace("_", " ")
    return EventLine(verb=verb, about=str(about), value=told, tone="dim", dull=True)


_SMALL = {
    "compensation_added": "can undo",
    "goal_set": "goal",
    "message_added": "message",
    "messages_removed": "removed",
    "messages_summarised": "summarised",
    "metadata_set": "metadata",
    "note_set": "note",
    "plan_step_done": "plan done",
    "state_appended": "append",
    "state_deleted": "delete",
    "state_incremented": "increment",
    "state_migrated": "migrated",
    "thread_created": "thread",
    "thread_patched": "patched",
    "user_created": "user",
    "user_patched": "user patch",
}
"""Short words for kinds that no case above describes: a timeline has eleven characters for them."""


def process_name(holder: str) -> str:
    """Return what people call a worker's process: its pid; on a server, which knows no pids, the start of its name.

    >>> process_name("4711-15650762a8c5529b"), process_name("pg-6365beb28be30922")
    ('4711', '6365beb2')
    """
    pid, _, rest = holder.partition("-")
    return pid if pid.isdigit() else rest[:8]

"""Events → state. Only `evolve` changes state; `fold` is the loop around it.

`summarise` folds the few events that a list or a queue cares about into a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from holdfast.core import codec
from holdfast.core import events as ev
from holdfast.core.events import Event
from holdfast.core.hot import Artifact, Fact, Hot, Messages, PlanStep, Signal, Step, Wait
from holdfast.core.records import Stored, Summary


def fold(hot: Hot | None, log: str, rows: Iterable[Stored]) -> Hot | None:
    """The state after `rows`, which follow what `hot` has seen. Neither argument is changed."""
    grown = None if hot is None else hot.copy()
    for row in rows:
        grown = evolve(grown, log, row.seq, row.at_us, codec.decode(row.kind, row.body))
    return grown


def evolve(hot: Hot | None, log: str, seq: int, at_us: int, event: Event) -> Hot:
    """Apply one event in place. The first event makes the state; a rollback gives another one."""
    cls = type(event)
    if hot is None or cls in _REPLACING:
        hot = _begin(hot, log, event, at_us)
    else:
        change = _CHANGES.get(cls)
        if change is not None:
            change(hot, event, seq, at_us)
        if cls in _SUMMARISED:
            hot.summary = summarise(hot.summary, log, event, at_us)
        if event.said:
            identity = saying(event.said, event)
            hot.said[identity] = hot.said.get(identity, 0) + 1
    hot.seq = seq
    hot.updated_us = at_us
    return hot


def saying(branch: str, event: Event) -> str:
    """What an agent says, apart from how often: which branch, what kind of thing, about what.

    >>> saying(".", ev.FactLearned(key="city", value=codec.JSON_NULL))
    '. FactLearned city'
    """
    return f"{branch} {type(event).__name__} {getattr(event, _SUBJECTS.get(type(event), ''), '')}"


_SUBJECTS: dict[type[Event], str] = {
    **dict.fromkeys((ev.FactLearned, ev.NoteSet), "key"),
    **dict.fromkeys((ev.StateSet, ev.StateIncremented, ev.StateAppended, ev.StateDeleted), "name"),
    **dict.fromkeys((ev.QuestionOpened, ev.QuestionClosed, ev.DecisionMade), "question"),
    **dict.fromkeys((ev.FlagRaised, ev.FlagCleared), "flag"),
    ev.PlanStepDone: "step",
    ev.ArtifactAdded: "type",
}


def summarise(summary: Summary | None, log: str, event: Event, at_us: int) -> Summary:
    """What a list shows after this event. Gives back the same object where nothing changes."""
    if summary is None:
        return _first_summary(log, event, at_us)
    if isinstance(event, ev.TaskForked):
        return _forked_summary(summary, log, event, at_us)
    if isinstance(event, ev.RolledBack):
        return replace(codec.load(event.hot, Hot).summary, changed_us=at_us)
    changed = _summary_change(summary, event)
    return replace(summary, changed_us=at_us, **changed) if changed else summary


def changes_summary(event: Event) -> bool:
    """Whether a list may show something else after this event."""
    return type(event) in _SUMMARISED


# The first event, and those that start over


def _begin(hot: Hot | None, log: str, event: Event, at_us: int) -> Hot:
    match event:
        case ev.TaskForked() if hot is not None:
            return _forked(hot, log, event, at_us)
        case ev.RolledBack() if hot is not None:
            restored: Hot = codec.load(event.hot, Hot)
            restored.summary = replace(restored.summary, changed_us=at_us)
            return restored
        case ev.TaskCreated():
            return Hot(
                summary=_first_summary(log, event, at_us),
                log_created_us=at_us,
                **{name: getattr(event, name) for name in ("input", "seed", "salt", "version", "stages", "goal")},
            )
        case _:
            return Hot(summary=_first_summary(log, event, at_us), log_created_us=at_us)


def _first_summary(log: str, event: Event, at_us: int) -> Summary:
    same = ("agent", "user", "thread", "parent", "queue", "priority", "deadline_us")
    given: dict[str, Any] = (
        {name: getattr(event, name) for name in same} if isinstance(event, ev.TaskCreated) else {"agent": ""}
    )
    return Summary(id=log, created_us=at_us, changed_us=at_us, **given)


def _forked(hot: Hot, log: str, event: ev.TaskForked, at_us: int) -> Hot:
    """A fork inherits what is known and what was done; not the claim, the end, the waits or the deadline."""
    fork = hot.copy()
    fork.summary = _forked_summary(hot.summary, log, event, at_us)
    fork.seed = event.seed or hot.seed
    fork.effects = event.effects
    fork.log_created_us = at_us
    fork.result, fork.failure, fork.cancel = UNSET, None, None
    fork.waits.clear()
    fork.signals.clear()
    return fork


def _forked_summary(parent: Summary, log: str, event: ev.TaskForked, at_us: int) -> Summary:
    """What a list shows of a fresh fork."""
    return Summary(
        id=log,
        **{name: getattr(parent, name) for name in ("agent", "stage", "user", "thread", "queue", "priority")},
        deadline_us=event.deadline_us,
        created_us=at_us,
        changed_us=at_us,
    )


# The summary


def _summary_change(summary: Summary, event: Event) -> dict[str, Any]:
    match event:
        case ev.TaskClaimed():
            held = {"holder": event.holder, "lease_seconds": event.lease_seconds}
            return {"status": "running", "waiting": None, "wake_us": None, **held}
        case ev.TaskReleased():
            return {"status": "pending", "holder": None}
        case ev.TaskSuspended():
            return {"status": "waiting", "waiting": event.why, "wake_us": event.wake_us, "holder": None}
        case ev.SignalReceived() | ev.WaitEnded() | ev.StepSettled() | ev.CancelRequested():
            return {"status": "pending", "waiting": None, "wake_us": None} if summary.status == "waiting" else {}
        case ev.TaskCompleted():
            return {"status": "completed", **_AT_REST}
        case ev.TaskFailed():
            return {"status": "failed", **_AT_REST}
        case ev.TaskCancelled():
            return {"status": "cancelled", **_AT_REST}
        case ev.TaskReopened():
            return {"status": "pending", **_AT_REST}
        case ev.StageSet():
            return {"stage": event.stage} if event.stage != summary.stage else {}
        case _:
            return {}


_AT_REST: dict[str, Any] = {"waiting": None, "wake_us": None, "holder": None}
_REPLACING = {ev.TaskForked, ev.RolledBack}
_SUMMARISED: set[type[Event]] = {
    *(ev.TaskCreated, ev.TaskForked, ev.TaskClaimed, ev.TaskReleased, ev.TaskSuspended, ev.SignalReceived),
    *(ev.WaitEnded, ev.StepSettled, ev.CancelRequested, ev.TaskCompleted, ev.TaskFailed, ev.TaskCancelled),
    *(ev.TaskReopened, ev.StageSet, ev.RolledBack),
}


# What each event changes, hot kinds first


def _step_completed(hot: Hot, event: ev.StepCompleted, seq: int, at_us: int) -> None:
    begun = hot.steps.get(event.key)
    if begun is None:
        hot.steps[event.key] = Step(
            event.key,
            event.name,
            "completed",
            seq,
            seq,
            event.started_us or at_us,
            at_us,
            event.attempts,
            event.input,
            event.result,
            None,
            event.tool,
            event.effect,
            event.idempotency_key,
        )
    else:
        done: dict[str, Any] = {"attempts": event.attempts, "result": event.result, "failure": None}
        hot.steps[event.key] = replace(begun, status="completed", last_seq=seq, ended_us=at_us, **done)
    hot.steps_done += 1


def _step_started(hot: Hot, event: ev.StepStarted, seq: int, at_us: int) -> None:
    earlier = hot.steps.get(event.key)
    copied = ("key", "name", "input", "tool", "effect", "idempotency_key", "unique", "risk")
    hot.steps[event.key] = Step(
        **{name: getattr(event, name) for name in copied},
        status="running",
        first_seq=seq if earlier is None else earlier.first_seq,
        last_seq=seq,
        started_us=at_us if earlier is None else earlier.started_us,
        attempts=event.attempt,
        failures=() if earlier is None else earlier.failures,
    )


def _attempt_failed(hot: Hot, event: ev.AttemptFailed, seq: int, at_us: int) -> None:
    begun = hot.steps.get(event.key) or Step(event.key, event.name, "retrying", seq, seq, at_us)
    failed = {"failure": event.failure, "failures": (*begun.failures, event.failure)}
    retry = {"attempts": event.attempt, "retry_us": event.retry_us}
    hot.steps[event.key] = replace(begun, status="retrying", last_seq=seq, **failed, **retry)


def _step_failed(hot: Hot, event: ev.StepFailed, seq: int, at_us: int) -> None:
    begun = hot.steps.get(event.key)
    outcome: dict[str, Any] = {
        "status": "failed",
        "last_seq": seq,
        "ended_us": at_us,
        "failure": event.failure,
    }
    if begun is None:
        copied = ("key", "name", "input", "tool", "effect", "idempotency_key", "attempts")
        given = {name: getattr(event, name) for name in copied}
        hot.steps[event.key] = Step(**given, first_seq=seq, started_us=event.started_us or at_us, **outcome)
    else:
        hot.steps[event.key] = replace(begun, attempts=event.attempts, **outcome)


def _step_doubted(hot: Hot, event: ev.StepDoubted, seq: int, at_us: int) -> None:
    if event.key in hot.steps:
        hot.steps[event.key] = replace(hot.steps[event.key], status="doubt", last_seq=seq)


def _step_settled(hot: Hot, event: ev.StepSettled, seq: int, at_us: int) -> None:
    settled = hot.steps.get(event.key)
    if settled is None:
        return  # its announcement was erased
    if event.happened:
        result = codec.JSON_NULL if event.result is UNSET else event.result
        hot.steps[event.key] = replace(settled, status="completed", last_seq=seq, ended_us=at_us, result=result)
        hot.steps_done += 1
    else:
        hot.steps[event.key] = replace(settled, status="void", last_seq=seq, ended_us=at_us)


def _turn_started(hot: Hot, event: ev.TurnStarted, seq: int, at_us: int) -> None:
    """A new turn starts with no steps of its own; what is still open keeps its address (`3/pay#1`)."""
    still_open = [step for step in hot.steps.values() if step.open]
    addressed = [replace(step, key=address(hot.turn, step.key)) for step in still_open]
    hot.steps = {step.key: step for step in addressed}
    hot.said = {}
    hot.turn = event.turn
    hot.turn_seq = seq


def address(turn: int, key: str) -> str:
    """A step's key as seen from other turns.

    >>> address(3, "pay#1"), address(0, "pay#1"), address(9, "3/pay#1")
    ('3/pay#1', '0/pay#1', '3/pay#1')
    """
    return key if key.split("/", 1)[0].isdigit() else f"{turn}/{key}"


def _message_added(hot: Hot, event: ev.MessageAdded, seq: int, at_us: int) -> None:
    step = hot.steps.get(event.step)
    raw = event.message if event.message is not UNSET else step.result if step is not None else codec.JSON_NULL
    hot.messages = Messages(hot.messages.count + 1, codec.running(hot.messages.digest, raw))


def _wait_started(hot: Hot, event: ev.WaitStarted, seq: int, at_us: int) -> None:
    prompt = codec.JSON_NULL if event.prompt is UNSET else event.prompt
    hot.waits[event.key] = Wait(event.key, event.wait, event.name, prompt, at_us, event.wake_us)


def _wait_ended(hot: Hot, event: ev.WaitEnded, seq: int, at_us: int) -> None:
    """A wait is a step too: what ended it is its result."""
    wait = hot.waits.pop(event.key, None)
    if wait is None:
        return  # its beginning was erased
    if wait.kind == "signal" and not event.expired:
        taken = next((one for one in hot.signals if one.name == wait.name), None)
        hot.signals = [one for one in hot.signals if one is not taken]
    value = codec.JSON_NULL if event.value is UNSET else event.value
    hot.steps[event.key] = Step(
        event.key, wait.name, "completed", seq, seq, wait.since_us, at_us, result=value, effect="read"
    )


def _signal_received(hot: Hot, event: ev.SignalReceived, seq: int, at_us: int) -> None:
    hot.signals.append(Signal(event.name, event.value, event.by, seq))


def _task_reopened(hot: Hot, event: ev.TaskReopened, seq: int, at_us: int) -> None:
    hot.result, hot.failure, hot.cancel = UNSET, None, None
    if event.void:
        hot.steps.pop(event.void, None)


def _plan_step_done(hot: Hot, step: str) -> None:
    hot.plan = [replace(one, done=True) if one.text == step else one for one in hot.plan]


def _artifact_added(hot: Hot, event: ev.ArtifactAdded, seq: int, at_us: int) -> None:
    hot.artifacts[event.artifact_id] = Artifact(event.type, event.summary, event.bytes, event.step, seq, event.data)


def _raise_flag(hot: Hot, flag: str) -> None:
    if flag not in hot.flags:
        hot.flags.append(flag)


def _without(items: list[str], gone: str) -> list[str]:
    return [item for item in items if item != gone]


def _state_patched(hot: Hot, event: ev.StatePatched, seq: int, at_us: int) -> None:
    patch = event.patch
    for fact in patch.append_facts:
        hot.facts[fact.key] = Fact(fact.value, fact.source, at_us)
    if patch.replace_plan is not None:
        hot.plan = [PlanStep(text) for text in patch.replace_plan]
    if patch.complete_plan_step is not None:
        _plan_step_done(hot, patch.complete_plan_step)
    hot.questions += [question for question in patch.add_questions if question not in hot.questions]
    if patch.close_question is not None:
        hot.questions = _without(hot.questions, patch.close_question)
    for one in patch.add_artifacts:
        hot.artifacts[one.artifact_id] = Artifact(one.type, one.summary, one.bytes, one.step, seq)
    for flag in patch.raise_flags:
        _raise_flag(hot, flag)
    for flag in patch.clear_flags:
        hot.flags = _without(hot.flags, flag)
    hot.bag.update(patch.set)
    for name, by in patch.increment.items():
        hot.bag[name] = codec.increased(hot.bag.get(name), by)
    for name, item in patch.append.items():
        hot.bag[name] = codec.appended(hot.bag.get(name), item)


def _question_opened(hot: Hot, event: ev.QuestionOpened, seq: int, at_us: int) -> None:
    if event.question not in hot.questions:
        hot.questions.append(event.question)


def _drop(items: dict[str, Any], key: str) -> None:
    items.pop(key, None)


def _set(name: str, source: str) -> Callable[[Hot, Any, int, int], None]:
    """A change that only remembers one field of the event."""

    def change(hot: Hot, event: Any, seq: int, at_us: int) -> None:
        setattr(hot, name, getattr(event, source))

    return change


_CHANGES: dict[type[Event], Callable[[Hot, Any, int, int], None]] = {
    ev.StepCompleted: _step_completed,
    ev.StepStarted: _step_started,
    ev.MessageAdded: _message_added,
    ev.TurnStarted: _turn_started,
    ev.AttemptFailed: _attempt_failed,
    ev.StepFailed: _step_failed,
    ev.StepDoubted: _step_doubted,
    ev.StepSettled: _step_settled,
    ev.StepVoided: lambda hot, e, seq, at: _drop(hot.steps, e.key),
    ev.StateSet: lambda hot, e, seq, at: hot.bag.__setitem__(e.name, e.value),
    ev.StateIncremented: lambda hot, e, seq, at: hot.bag.__setitem__(
        e.name, codec.increased(hot.bag.get(e.name), e.by)
    ),
    ev.StateAppended: lambda hot, e, seq, at: hot.bag.__setitem__(e.name, codec.appended(hot.bag.get(e.name), e.value)),
    ev.StateDeleted: lambda hot, e, seq, at: _drop(hot.bag, e.name),
    ev.StatePatched: _state_patched,
    ev.WaitStarted: _wait_started,
    ev.WaitEnded: _wait_ended,
    ev.SignalReceived: _signal_received,
    ev.FactLearned: lambda hot, e, seq, at: hot.facts.__setitem__(e.key, Fact(e.value, e.source, at)),
    ev.PlanSet: lambda hot, e, seq, at: setattr(hot, "plan", [PlanStep(text) for text in e.steps]),
    ev.PlanStepDone: lambda hot, e, seq, at: _plan_step_done(hot, e.step),
    ev.QuestionOpened: _question_opened,
    ev.QuestionClosed: lambda hot, e, seq, at: setattr(hot, "questions", _without(hot.questions, e.question)),
    ev.ArtifactAdded: _artifact_added,
    ev.NoteSet: lambda hot, e, seq, at: hot.notes.__setitem__(e.key, e.value),
    ev.FlagRaised: lambda hot, e, seq, at: _raise_flag(hot, e.flag),
    ev.FlagCleared: lambda hot, e, seq, at: setattr(hot, "flags", _without(hot.flags, e.flag)),
    ev.DecisionMade: lambda hot, e, seq, at: setattr(hot, "decisions", hot.decisions + 1),
    ev.CheckpointMade: lambda hot, e, seq, at: hot.checkpoints.__setitem__(e.label, seq),
    ev.GoalSet: _set("goal", "goal"),
    ev.PhaseSet: _set("phase", "phase"),
    ev.TaskCompleted: _set("result", "result"),
    ev.TaskFailed: _set("failure", "failure"),
    ev.CancelRequested: lambda hot, e, seq, at: setattr(hot, "cancel", (e.by, e.why)),
    ev.TaskReopened: _task_reopened,
}

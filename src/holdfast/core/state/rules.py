"""What may follow what. Every rule stands here; stores and engine only carry out.

`check` refuses an event that may not follow a state, and says why. `restored` builds the state a rollback returns to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from holdfast.core import codec, events as ev, names, phases
from holdfast.core.errors import Diverged, InvalidEvent, InvalidTransition, TaskFinished
from holdfast.core.events import KIND, Event
from holdfast.core.state import budget
from holdfast.core.state.shapes import Hot, Step
from holdfast.core.wording import verb_of

_AFTER_THE_END = (
    *(ev.StepObserved, ev.TaskReopened, ev.RolledBack, ev.TaskForked, ev.BudgetRaised, ev.ChildSpent),
    ev.TaskDiverged,
)


def check(hot: Hot | None, event: Event) -> None:
    """Refuse an event that may not follow this state: InvalidEvent, TaskFinished or Diverged."""
    if hot is None:
        if isinstance(event, ev.UserCreated | ev.ThreadCreated):
            return
        if not isinstance(event, ev.TaskCreated):
            raise InvalidEvent(f"a log cannot begin with {_name(event)}", hint="start the task first")
        names.short_name(event.agent, "agent's name")
        return
    if hot.ended and not isinstance(event, _AFTER_THE_END):
        raise TaskFinished(hot.summary.id, hot.summary.status, verb_of(event))
    rule = _RULES.get(type(event))
    if rule is not None:
        rule(hot, event)


def restored(now: Hot, past: Hot, later: Iterable[Step]) -> Hot:
    """The state after rolling back to `past`.

    Later steps are void, but a call that touched the world keeps its outcome under its key: it is not made again.
    """
    doubt = next((step for step in now.steps.values() if step.unsettled), None)
    if doubt is not None:
        under_way = doubt.status == "running"
        raise InvalidEvent(
            f"task {now.summary.id!r} cannot be rolled back while call {doubt.key!r} is "
            f"{'under way' if under_way else 'in doubt'}",
            hint="let it end, or cancel the task; if its process is dead, resume it first"
            if under_way
            else "settle the call first",
            id=now.summary.id,
        )
    back = past.copy()
    at_rest = {"status": "pending", "waiting": None, "wake_us": None, "holder": None}
    back.summary = replace(now.summary, stage=past.summary.stage, **at_rest)
    back.effects, back.divergence = now.effects, now.divergence
    back.result, back.failure, back.cancel = UNSET, None, None
    back.waits, back.approvals = {}, {}
    back.undo = list(now.undo)
    budget.carried(back, now, now.updated_us)
    back.kept = dict(now.kept)
    for step in later:
        if step.tool and step.effect != "read" and step.idempotency_key and step.status in ("completed", "failed"):
            back.kept[step.idempotency_key] = step
    return back


# The rules


def _refuse(condition: bool, message: str, hint: str = "nothing was written") -> None:
    if condition:
        raise InvalidEvent(message, hint=hint)


def _created_twice(hot: Hot, event: Event) -> None:
    _refuse(True, f"task {hot.summary.id!r} was created already")


def refuse_diverged(hot: Hot) -> None:
    """Refuse to work on a task that has lost events, until somebody says that it may go on."""
    if hot.summary.waiting == "diverged":
        lost = hot.divergence
        assert lost is not None, "only a divergence has a task wait for one"
        raise Diverged(hot.summary.id, lost.known_seq, lost.head_seq, lost.calls, block=hot.block)


def _claimed(hot: Hot, event: Event) -> None:
    refuse_diverged(hot)


def _accepted(hot: Hot, event: Event) -> None:
    _refuse(hot.summary.waiting != "diverged", "the task has lost nothing that somebody would have to accept")


def _step_started(hot: Hot, event: ev.StepStarted) -> None:
    step = hot.steps.get(event.key)
    _refuse(
        step is not None and step.status in ("completed", "failed", "doubt"),
        f"step {event.key!r} is {step.status if step else ''} and cannot start again",
    )
    same = step is None or not step.open or _identity(step) == _identity(event)
    _refuse(not same, f"step {event.key!r} is open as another call", "record or settle that one first")
    _refuse(event.key in hot.waits, f"{event.key!r} is taken by a wait")


def _identity(step: Step | ev.StepStarted) -> tuple[str, str, str]:
    return step.tool, step.effect, step.idempotency_key


def _step_ended(hot: Hot, event: ev.StepCompleted | ev.StepFailed) -> None:
    step = hot.steps.get(event.key)
    open_to = ("running", "retrying", "void", *(("doubt",) if isinstance(event, ev.StepFailed) else ()))
    _refuse(
        step is not None and step.status not in open_to,
        f"step {event.key!r} is {step.status if step else ''} and has no further outcome",
    )
    _refuse(
        event.effect == "once" and step is None and not event.source,
        f"call {event.key!r} can be done once only and was not announced",
        "append a StepStarted before the call is made",
    )
    _refuse(event.key in hot.waits, f"{event.key!r} is taken by a wait")


def _attempt_failed(hot: Hot, event: ev.AttemptFailed) -> None:
    step = hot.steps.get(event.key)
    _refuse(step is not None and not step.open, f"step {event.key!r} has its outcome already")


def _step_doubted(hot: Hot, event: ev.StepDoubted) -> None:
    step = hot.steps.get(event.key)
    _refuse(step is None or not step.open, f"step {event.key!r} is not under way")


def _step_settled(hot: Hot, event: ev.StepSettled) -> None:
    step = hot.steps.get(event.key)
    _refuse(
        step is None or not step.open,
        f"step {event.key!r} is not in doubt",
        "only a call in doubt is settled",
    )


def _step_voided(hot: Hot, event: ev.StepVoided) -> None:
    step = hot.steps.get(event.key)
    _refuse(step is None or step.open, f"step {event.key!r} has no outcome that could be void")


def _turn_started(hot: Hot, event: ev.TurnStarted) -> None:
    _refuse(event.turn != hot.turn + 1, f"turn {event.turn} cannot follow turn {hot.turn}")


def _stage_set(hot: Hot, event: ev.StageSet) -> None:
    names.short_name(event.stage, "stage")
    if hot.stages and event.stage not in hot.stages:
        raise InvalidTransition(
            f"{event.stage!r} is not a stage of {hot.summary.agent!r}",
            hint=f"its stages are {list(hot.stages)}",
        )


def _phase_set(hot: Hot, event: ev.PhaseSet) -> None:
    phases.check_move(hot.phases, hot.phase, event.phase, event.on)


def _message_added(hot: Hot, event: ev.MessageAdded) -> None:
    _refuse((event.message is UNSET) == (not event.step), "a message is either given or the result of a step")
    step = hot.steps.get(event.step)
    _refuse(
        bool(event.step) and (step is None or step.status != "completed"),
        f"step {event.step!r} has no result that could be a message",
    )


def _messages_summarised(hot: Hot, event: ev.MessagesSummarised) -> None:
    _refuse((event.summary is UNSET) == (not event.step), "a summary is either given or the result of a step")
    step = hot.steps.get(event.step)
    done = not event.step or (step is not None and step.status == "completed")
    _refuse(not done, f"step {event.step!r} has no result that could be a summary")
    edges = [edge for span in event.covers for edge in span]
    _refuse(not edges, "a summary of no messages")
    known = hot.messages.count if hot.summary.thread is None else edges[-1] if edges else 0
    inside = bool(edges) and edges[0] >= 0 and edges[-1] <= known
    _refuse(not inside or edges != sorted(set(edges)), f"{event.covers} are no ranges of {hot.messages.count} messages")


def _wait_started(hot: Hot, event: ev.WaitStarted) -> None:
    _refuse(event.key in hot.waits or event.key in hot.steps, f"{event.key!r} is taken by another wait or step")


def _wait_ended(hot: Hot, event: ev.WaitEnded) -> None:
    _refuse(event.key not in hot.waits, f"the task does not wait for {event.key!r}")
    here = not event.signal or any(one.seq == event.signal for one in hot.signals)
    _refuse(not here, f"the signal at {event.signal} was taken by another wait")


def _approval_asked(hot: Hot, event: ev.ApprovalAsked) -> None:
    asked = hot.approvals.get(event.key)
    again = asked is not None and asked.status in ("asked", "refused") and asked.bound == event.bound
    _refuse(again, f"approval of {event.key!r} was asked for already")
    _refuse(event.key in hot.waits, f"{event.key!r} is taken by a wait")


def _approval_answered(hot: Hot, event: ev.ApprovalGiven | ev.ApprovalRefused) -> None:
    asked = hot.approvals.get(event.key)
    if asked is None:
        pending = [one.key for one in hot.approvals.values() if one.status == "asked"]
        raise InvalidEvent(
            f"nobody asked for approval of {event.key!r}", hint=f"asked for: {', '.join(pending) or 'none'}"
        )
    answered = {"given": "approved", "used": "approved", "refused": "refused"}.get(asked.status, "")
    whom = f" by {asked.by!r}" if asked.by else ""
    _refuse(bool(answered), f"{event.key!r} was {answered}{whom} already", "the first answer counts")
    other = event.bound and event.bound != asked.bound
    _refuse(bool(other), f"{event.key!r} is another call by now", "look at its arguments again")


def _undo_started(hot: Hot, event: Event) -> None:
    _held(hot, event)
    _ending(hot, event)
    _refuse(hot.undoing, "what was done is being undone already")


def _held(hot: Hot, event: Event) -> None:
    _refuse(hot.summary.status != "running", f"{_name(event)} needs a claim, and the task is {hot.summary.status}")


def _ending(hot: Hot, event: Event) -> None:
    held_open = [step.key for step in hot.steps.values() if step.unsettled]
    _refuse(
        bool(held_open),
        f"{_name(event)} while {held_open} had no outcome",
        "record or settle the calls first: no task ends with an open call",
    )


def _reopened(hot: Hot, event: Event) -> None:
    _refuse(hot.undoing, "what the task did was undone", "start it anew under another id")
    _refuse(hot.summary.status != "failed", f"the task is {hot.summary.status}; only a failed one is reopened")


def _plan_step_done(hot: Hot, event: ev.PlanStepDone) -> None:
    _known_plan_step(hot.plan, event.step)


def _known_plan_step(plan: list[Any], step: str) -> None:
    texts = [one.text for one in plan]
    _refuse(step not in texts, f"the plan has no step {step!r}", f"its steps are {texts}")


def _question_closed(hot: Hot, event: ev.QuestionClosed) -> None:
    _refuse(event.question not in hot.questions, f"{event.question!r} is not an open question")


def _flag_cleared(hot: Hot, event: ev.FlagCleared) -> None:
    _refuse(event.flag not in hot.flags, f"the flag {event.flag!r} is not raised", f"raised are {hot.flags}")


def _has_name(field: str, what: str) -> Callable[[Hot, Any], None]:
    def rule(hot: Hot, event: Any) -> None:
        names.short_name(getattr(event, field), what)

    return rule


def _incremented(hot: Hot, event: ev.StateIncremented) -> None:
    _can_grow(hot, event.name, "number", "increment")
    _stays_finite(hot, event.name, event.by if event.name in hot.bag else event.start + event.by)


def _state_migrated(hot: Hot, event: ev.StateMigrated) -> None:
    _refuse(event.version <= hot.state_version, f"the state is of version {hot.state_version} already")


def _stays_finite(hot: Hot, name: str, by: float) -> None:
    grown = codec.increased(hot.bag.get(name), by)
    _refuse(codec.shape(grown) != "number", f"state {name!r} plus {by!r} is no number that JSON can hold")


def _appended(hot: Hot, event: ev.StateAppended) -> None:
    _can_grow(hot, event.name, "list", "append")


def _can_grow(hot: Hot, name: str, wanted: str, verb: str) -> None:
    names.short_name(name, "name in the state")
    raw = hot.bag.get(name)
    if raw is not None and (found := codec.shape(raw)) != wanted:
        raise InvalidEvent(f"cannot {verb} state {name!r}: it is a {found}, not a {wanted}", hint="set it instead")


def _deleted(hot: Hot, event: ev.StateDeleted) -> None:
    _refuse(event.name not in hot.bag, f"the state has no {event.name!r}", f"it has {sorted(hot.bag)[:20]}")


def _patched(hot: Hot, event: ev.StatePatched) -> None:
    patch = event.patch
    for name in (*(fact.key for fact in patch.append_facts), *patch.raise_flags, *patch.set):
        names.short_name(name, "name in a patch")
    if patch.complete_plan_step is not None:
        known = hot.plan if patch.replace_plan is None else [_Text(text) for text in patch.replace_plan]
        _known_plan_step(known, patch.complete_plan_step)
    if patch.close_question is not None and patch.close_question not in patch.add_questions:
        _refuse(patch.close_question not in hot.questions, f"{patch.close_question!r} is not an open question")
    twice = (set(patch.set) & set(patch.increment)) | (set(patch.set) & set(patch.append))
    twice |= set(patch.increment) & set(patch.append)
    _refuse(bool(twice), f"the patch changes {sorted(twice)} in two ways at once")
    for name, by in patch.increment.items():
        _can_grow(hot, name, "number", "increment")
        _stays_finite(hot, name, by)
    for name in patch.append:
        _can_grow(hot, name, "list", "append")


class _Text:
    def __init__(self, text: str) -> None:
        self.text = text


def _forked(hot: Hot, event: ev.TaskForked) -> None:
    _refuse(event.at != hot.seq, f"a fork at {event.at} needs the state there, not at {hot.seq}")


def _rolled_back(hot: Hot, event: ev.RolledBack) -> None:
    _refuse(not 1 <= event.to < hot.seq, f"cannot roll back from {hot.seq} to {event.to}")


def _name(event: Event) -> str:
    return KIND.get(type(event), type(event).__name__)


_RULES: dict[type[Event], Callable[[Hot, Any], None]] = {
    ev.TaskCreated: _created_twice,
    ev.TaskForked: _forked,
    ev.TaskClaimed: _claimed,
    ev.DivergenceAccepted: _accepted,
    ev.RolledBack: _rolled_back,
    ev.StepStarted: _step_started,
    ev.StepCompleted: _step_ended,
    ev.StepFailed: _step_ended,
    ev.AttemptFailed: _attempt_failed,
    ev.StepDoubted: _step_doubted,
    ev.StepSettled: _step_settled,
    ev.StepVoided: _step_voided,
    ev.TurnStarted: _turn_started,
    ev.StageSet: _stage_set,
    ev.PhaseSet: _phase_set,
    ev.MessageAdded: _message_added,
    ev.MessagesSummarised: _messages_summarised,
    ev.WaitStarted: _wait_started,
    ev.WaitEnded: _wait_ended,
    ev.ApprovalAsked: _approval_asked,
    ev.ApprovalGiven: _approval_answered,
    ev.ApprovalRefused: _approval_answered,
    ev.CompensationAdded: _has_name("name", "compensation's name"),
    ev.UndoStarted: _undo_started,
    ev.TaskReleased: _held,
    ev.TaskSuspended: _held,
    ev.TaskCompleted: _ending,
    ev.TaskFailed: _ending,
    ev.TaskCancelled: _ending,
    ev.TaskReopened: _reopened,
    ev.PlanStepDone: _plan_step_done,
    ev.QuestionClosed: _question_closed,
    ev.FlagCleared: _flag_cleared,
    ev.FlagRaised: _has_name("flag", "flag"),
    ev.FactLearned: _has_name("key", "fact's key"),
    ev.NoteSet: _has_name("key", "note's key"),
    ev.CheckpointMade: _has_name("label", "checkpoint's label"),
    ev.SignalReceived: _has_name("name", "signal's name"),
    ev.StateSet: _has_name("name", "name in the state"),
    ev.StateIncremented: _incremented,
    ev.StateAppended: _appended,
    ev.StateDeleted: _deleted,
    ev.StatePatched: _patched,
    ev.StateMigrated: _state_migrated,
}

"""What may follow what. Every rule stands here; stores and engine only carry out.

`check` refuses an event that may not follow a state, and says why. `restored` builds the state a rollback returns to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, cast

from msgspec import UNSET, Raw, Struct
from msgspec.structs import fields, replace

from holdfast.core import codec, events as ev, limits, names, phases
from holdfast.core.errors import Diverged, InvalidEvent, InvalidTransition, InvalidValue, TaskFinished
from holdfast.core.events import ANNOUNCED, CHANGING, KIND, Event
from holdfast.core.state import budget, paths
from holdfast.core.state.shapes import Approval, State, Step
from holdfast.core.state.summary import ROLLED_BACK
from holdfast.core.wording import verb_of

_AFTER_THE_END = (
    *(ev.StepObserved, ev.TaskReopened, ev.RolledBack, ev.TaskForked, ev.BudgetRaised, ev.ChildSpent),
    ev.TaskDiverged,
)
KINDS_AFTER_THE_END = frozenset(KIND[kind] for kind in _AFTER_THE_END)
"""What may follow an ending, by the names in the log."""


def check(state: State | None, event: Event) -> None:
    """Refuse an event that may not follow this state: InvalidEvent, TaskFinished, Diverged or InvalidValue."""
    check_text(event)
    if state is None:
        if isinstance(event, ev.UserCreated | ev.ThreadCreated):
            return
        if not isinstance(event, ev.TaskCreated):
            raise InvalidEvent(f"a log cannot begin with {_name(event)}", hint="start the task first")
        names.column_name(event.agent, "agent's name")
        return
    if state.ended and not isinstance(event, _AFTER_THE_END):
        raise TaskFinished(state.summary.id, state.summary.status, verb_of(event))
    rule = _RULES.get(type(event))
    if rule is not None:
        rule(state, event)


def check_text(event: Event) -> None:
    """Refuse text that could not be written, before anything else is: an immediate verb's event waits in memory."""
    known = _fields_of(type(event))
    for name, default, is_text, value in zip(
        known.names, known.defaults, known.texts, known.values(event), strict=True
    ):
        if value is default:
            continue
        if is_text and not isinstance(value, str):
            raise InvalidValue(f"{name}={value!r} is not text; nothing was written", hint="give a str")
        _check_text(name, value)


class _Fields(NamedTuple):
    """The fields of a kind of event."""

    names: tuple[str, ...]
    defaults: tuple[Any, ...]
    texts: tuple[bool, ...]
    """Whether a field holds text and nothing else."""
    values: Callable[[Event], tuple[Any, ...]]


def _fields_of(kind: type[Event]) -> _Fields:
    """The fields of a kind of event, looked up once."""
    found = _FIELDS.get(kind)
    if found is None:
        every = fields(kind)
        found = _FIELDS[kind] = _Fields(
            tuple(one.name for one in every),
            tuple(one.default for one in every),
            tuple(one.type is str for one in every),
            attrgetter(*(one.name for one in every)),
        )
    return found


_FIELDS: dict[type[Event], _Fields] = {}


_TEXTLESS = frozenset((type(None), bool, int, float, bytes, Raw, type(UNSET)))
"""Types of values that hold no text; asked first, because most fields are of one."""


def _check_text(name: str, value: object) -> None:
    if type(value) is str:
        if not value.isascii():
            names.encodable(value, name)
    elif type(value) in _TEXTLESS:
        return
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, object]", value).items():
            _check_text(f"key in {name}", key)
            _check_text(name, item)
    elif isinstance(value, tuple):
        for item in cast("tuple[object, ...]", value):
            _check_text(name, item)
    elif isinstance(value, Struct):
        for inner in value.__struct_fields__:
            _check_text(inner, getattr(value, inner))


def restored(now: State, past: State, later: Iterable[Step]) -> State:
    """The state after rolling back to `past`.

    Later steps are void, but a call that touched the world keeps its outcome under its key: it is not made again.
    """
    refuse_rollback(now)
    back = past.copy()
    at_rest = {"status": "pending", "waiting": None, "wake_us": None, "holder": None}
    rolled_back = {name: getattr(past.summary, name) for name in ROLLED_BACK}
    back.summary = replace(now.summary, **rolled_back, **at_rest)
    back.effects, back.divergence = now.effects, now.divergence
    back.result, back.failure, back.cancel = UNSET, None, None
    back.waits, back.approvals = {}, {}
    back.phase, back.phase_below = back.own_phase, ""
    back.undo = list(now.undo)
    budget.carried(back, now, now.updated_us)
    back.kept = dict(now.kept)
    for step in later:
        if step.tool and step.effect in CHANGING and step.idempotency_key and step.status in ("completed", "failed"):
            back.kept[step.idempotency_key] = step
    return back


def refuse_rollback(now: State) -> None:
    """Refuse to roll a task back that was compensated, or while a call of it is under way or in doubt."""
    refuse_undone(now, "rolled back")
    doubt = next((step for step in now.steps.values() if step.unsettled), None)
    if doubt is not None:
        under_way = doubt.status == "running"
        raise InvalidEvent(
            f"task {now.summary.id!r} cannot be rolled back while call {doubt.key!r} is "
            f"{'under way' if under_way else 'in doubt'}",
            hint="let it end, or cancel the task; if its process is dead, resume it first: app.resume(id, agent)"
            if under_way
            else f"settle the call first: app.settle(id, {doubt.key!r}, happened=…)",
            id=now.summary.id,
        )


def is_answered(state: State) -> bool:
    """Return whether a suspended task may have its answer already: it came before the task was suspended.

    The present version looks before it suspends a task. Tasks that an older one suspended wake by this rule.
    """
    waits = state.summary.status == "waiting" and state.summary.waiting not in ("diverged", "quarantined")
    return waits and not state.looked and state.answered_seq > state.claimed_seq


def refuse_undone(now: State, what: str, hint: str = "start it again under another id") -> None:
    """Refuse to build on results that were undone since."""
    if now.undoing:
        message = f"task {now.summary.id!r} was compensated and can't be {what}"
        raise InvalidEvent(message, hint=hint, id=now.summary.id)


# The rules


def _refuse(condition: bool, message: str, hint: str = "nothing was written") -> None:
    if condition:
        raise InvalidEvent(message, hint=hint)


def _created_twice(state: State, event: Event) -> None:
    _refuse(True, f"task {state.summary.id!r} was created already")


def refuse_diverged(state: State) -> None:
    """Refuse to work on a task that has lost events, until a person says that it may continue."""
    if state.summary.waiting == "diverged":
        lost = state.divergence
        assert lost is not None, "only a divergence has a task wait for one"
        raise Diverged(state.summary.id, lost.known_seq, lost.head_seq, lost.calls, block=state.block)


def _claimed(state: State, event: Event) -> None:
    refuse_diverged(state)


def _accepted(state: State, event: Event) -> None:
    _refuse(state.summary.waiting != "diverged", "the task has lost nothing that a person would have to accept")


def _step_started(state: State, event: ev.StepStarted) -> None:
    step = state.steps.get(event.key)
    _refuse(
        step is not None and step.status in ("completed", "failed", "doubt"),
        f"step {event.key!r} is {step.status if step else ''} and cannot start again",
    )
    same = step is None or not step.open or _identity(step) == _identity(event)
    _refuse(not same, f"step {event.key!r} is open as another call", "record or settle that one first")
    _refuse(event.key in state.waits, f"{event.key!r} is taken by a wait")


def _identity(step: Step | ev.StepStarted) -> tuple[str, str, str]:
    return step.tool, step.effect, step.idempotency_key


def _step_ended(state: State, event: ev.StepCompleted | ev.StepFailed) -> None:
    step = state.steps.get(event.key)
    open_to = ("running", "retrying", "void", *(("doubt",) if isinstance(event, ev.StepFailed) else ()))
    _refuse(
        step is not None and step.status not in open_to,
        f"step {event.key!r} is {step.status if step else ''} and has no further outcome",
    )
    made = event.attempts > 0  # a call that a person rejected was not made, so it was not announced either
    _refuse(
        event.effect in ANNOUNCED and step is None and made and not event.source,
        f"call {event.key!r} can be done once only and was not announced",
        "append a StepStarted before the call is made",
    )
    _refuse(event.key in state.waits, f"{event.key!r} is taken by a wait")


def _attempt_failed(state: State, event: ev.AttemptFailed) -> None:
    step = state.steps.get(event.key)
    known = step is None or step.open or (step.status == "void" and step.raised is not None)
    _refuse(not known, f"step {event.key!r} has its outcome already")


def _step_doubted(state: State, event: ev.StepDoubted) -> None:
    step = state.steps.get(event.key)
    again = step is not None and step.settled and step.status == "completed"
    _refuse(step is None or not (step.open or again), f"step {event.key!r} is not under way")


def _step_settled(state: State, event: ev.StepSettled) -> None:
    step = state.steps.get(event.key)
    failed = state.maybe_done.get(event.key)
    if failed is not None and failed.status == "failed":
        return
    _refuse(
        step is None or not (step.open or may_correct(state, step)),
        f"step {event.key!r} is not in doubt",
        "only a call in doubt is settled; a settlement can be corrected until the task is resumed",
    )


def may_correct(state: State, step: Step) -> bool:
    """Return whether a settlement can be corrected: the task has not resumed since, so nothing was built on it."""
    return step.settled and state.claimed_seq < step.last_seq and state.summary.status in ("pending", "waiting")


def _step_voided(state: State, event: ev.StepVoided) -> None:
    step = state.steps.get(event.key)
    _refuse(step is None or step.open, f"step {event.key!r} has no outcome that could be void")


def _turn_started(state: State, event: ev.TurnStarted) -> None:
    _refuse(event.turn != state.turn + 1, f"turn {event.turn} cannot follow turn {state.turn}")


def _stage_set(state: State, event: ev.StageSet) -> None:
    names.column_name(event.stage, "stage")
    if state.stages and event.stage not in state.stages:
        raise InvalidTransition(
            f"{event.stage!r} is not a stage of {state.summary.agent!r}",
            hint=f"its stages are {list(state.stages)}",
        )


def _phase_set(state: State, event: ev.PhaseSet) -> None:
    phases.check_move(state.phases, state.own_phase, event.phase, event.on)


def _message_added(state: State, event: ev.MessageAdded) -> None:
    _refuse((event.message is UNSET) == (not event.step), "a message is either given or the result of a step")
    step = state.steps.get(event.step)
    _refuse(
        bool(event.step) and (step is None or step.status != "completed"),
        f"step {event.step!r} has no result that could be a message",
    )


def _messages_removed(state: State, event: ev.MessagesRemoved) -> None:
    last = max((event.upto, *event.seqs))
    _refuse(min((0, *event.seqs)) < 0 or event.upto < 0 or last > state.seq, f"there is no message {last} to remove")


def _expiry_set(state: State, event: ev.ExpirySet) -> None:
    _refuse(event.expire_us < 0, f"{event.expire_us} is not a length of time")


def _messages_summarised(state: State, event: ev.MessagesSummarised) -> None:
    _refuse((event.summary is UNSET) == (not event.step), "a summary is either given or the result of a step")
    step = state.steps.get(event.step)
    done = not event.step or (step is not None and step.status == "completed")
    _refuse(not done, f"step {event.step!r} has no result that could be a summary")
    edges = [edge for span in event.covers for edge in span]
    _refuse(not edges, "a summary of no messages")
    known = state.messages.count if state.summary.thread is None else edges[-1] if edges else 0
    inside = bool(edges) and edges[0] >= 0 and edges[-1] <= known
    _refuse(
        not inside or edges != sorted(set(edges)), f"{event.covers} are not ranges of {state.messages.count} messages"
    )


def _wait_started(state: State, event: ev.WaitStarted) -> None:
    _refuse(event.key in state.waits or event.key in state.steps, f"{event.key!r} is taken by another wait or step")


def _wait_ended(state: State, event: ev.WaitEnded) -> None:
    _refuse(event.key not in state.waits, f"the task does not wait for {event.key!r}")
    here = not event.signal or any(one.seq == event.signal for one in state.signals)
    _refuse(not here, f"the signal at {event.signal} was taken by another wait")


def _approval_asked(state: State, event: ev.ApprovalAsked) -> None:
    asked = state.approvals.get(event.key)
    again = asked is not None and asked.status in ("asked", "refused") and asked.bound == event.bound
    _refuse(again, f"approval of {event.key!r} was asked for already")
    _refuse(event.key in state.waits, f"{event.key!r} is taken by a wait")


def bound_digest(asked: Approval) -> str:
    """Return what a person says who approves: it stands for the call and the arguments they were shown."""
    told = [asked.bound, asked.key, bytes(asked.prompt).decode()]
    return codec.fingerprint(told)[: limits.BOUND_LENGTH]


def _approval_answered(state: State, event: ev.ApprovalGiven | ev.ApprovalRefused) -> None:
    asked = state.approvals.get(event.key)
    if asked is None:
        pending = [one.key for one in state.approvals.values() if one.status == "asked"]
        raise InvalidEvent(
            f"no approval was requested for {event.key!r}", hint=f"approvals requested: {', '.join(pending) or 'none'}"
        )
    answered = {"given": "approved", "used": "approved", "refused": "refused"}.get(asked.status, "")
    whom = f" by {asked.by!r}" if asked.by else ""
    _refuse(bool(answered), f"{event.key!r} was {answered}{whom} already", "the first answer counts")
    other = event.bound and event.bound != asked.bound
    _refuse(bool(other), f"{event.key!r} is another call by now", "look at its arguments again")


def _undo_started(state: State, event: Event) -> None:
    _held(state, event)
    _ending(state, event)
    _refuse(state.undoing, "the task is already being compensated")


def _held(state: State, event: Event) -> None:
    _refuse(state.summary.status != "running", f"{_name(event)} needs a claim, and the task is {state.summary.status}")


def _released(state: State, event: Event) -> None:
    if not is_answered(state):
        _held(state, event)


def _ending(state: State, event: Event) -> None:
    held_open = [step.key for step in state.steps.values() if step.unsettled]
    _refuse(
        bool(held_open),
        f"{_name(event)} while {held_open} had no outcome",
        "record or settle the calls first: no task ends with an open call",
    )


def _reopened(state: State, event: Event) -> None:
    _refuse(state.undoing, "the task was compensated", "start it again under another id")
    can_be = state.summary.status == "failed" or state.summary.waiting == "quarantined"
    id, status = state.summary.id, state.summary.status
    told = f"task {id!r} is {status}; only a failed or quarantined task can be reopened"
    resume, fork = "to resume it: app.resume(id, agent)", "to start a new task from any event of it: app.fork(id, at=…)"
    _refuse(not can_be, told, resume if status == "pending" else fork)


def _plan_step_done(state: State, event: ev.PlanStepDone) -> None:
    _known_plan_step(state.plan, event.step)


def _known_plan_step(plan: list[Any], step: str) -> None:
    texts = [one.text for one in plan]
    _refuse(step not in texts, f"the plan has no step {step!r}", f"its steps are {texts}")


def _question_closed(state: State, event: ev.QuestionClosed) -> None:
    _refuse(event.question not in state.questions, f"{event.question!r} is not an open question")


def _flag_cleared(state: State, event: ev.FlagCleared) -> None:
    _refuse(event.flag not in state.flags, f"the flag {event.flag!r} is not raised", f"raised are {state.flags}")


def _has_name(field: str, what: str) -> Callable[[State, Any], None]:
    def rule(state: State, event: Any) -> None:
        names.short_name(getattr(event, field), what)

    return rule


def _state_set(state: State, event: ev.StateSet) -> None:
    names.short_name(event.name, "name in the state")
    if event.nested:
        paths.check(state.bag, event.name, event.value)


def _state_updated(state: State, event: ev.StateUpdated) -> None:
    _refuse(event.key in state.waits or event.key in state.steps, f"{event.key!r} is taken by another wait or step")
    _state_set(state, ev.StateSet(name=event.name, value=event.value, nested=event.nested))


def _incremented(state: State, event: ev.StateIncremented) -> None:
    found = _can_grow(state, event.name, "number", "increment", event.nested)
    _stays_finite(event.name, found, event.by if found is not None else event.start + event.by)


def _state_migrated(state: State, event: ev.StateMigrated) -> None:
    _refuse(event.version <= state.state_version, f"the state is of version {state.state_version} already")


def _stays_finite(name: str, found: Raw | None, by: float) -> None:
    is_out = isinstance(by, int) and abs(by) > limits.MAX_SEQ
    _refuse(is_out, f"state {name!r} can't grow by {by!r}: that is out of range")
    grown = codec.increased(found, by)
    _refuse(codec.shape(grown) != "number", f"state {name!r} plus {by!r} is not a number that JSON can hold")


def _appended(state: State, event: ev.StateAppended) -> None:
    _can_grow(state, event.name, "list", "append", event.nested)


def _can_grow(state: State, name: str, wanted: str, verb: str, nested: bool) -> Raw | None:
    """Refuse to grow what is neither a number nor a list; gives what is there."""
    names.short_name(name, "name in the state")
    raw = paths.check(state.bag, name) if nested else state.bag.get(name)
    if raw is not None and (found := codec.shape(raw)) != wanted:
        raise InvalidEvent(
            f"cannot {verb} state {name!r}: it is {names.a(found)}, not a {wanted}", hint="set it instead"
        )
    return raw


def _deleted(state: State, event: ev.StateDeleted) -> None:
    found = paths.check(state.bag, event.name) if event.nested else state.bag.get(event.name)
    inside = event.nested and event.name not in state.bag and codec.is_apart(state.bag.get(_top(event.name), _NULL))
    _refuse(found is None and not inside, f"the state has no {event.name!r}", f"it has {sorted(state.bag)[:20]}")


def _top(name: str) -> str:
    return name.partition(".")[0]


def _patched(state: State, event: ev.StatePatched) -> None:
    patch = event.patch
    for name in (*(fact.key for fact in patch.append_facts), *patch.raise_flags, *patch.set, *patch.require):
        names.short_name(name, "name in a patch")
    if patch.complete_plan_step is not None:
        known = state.plan if patch.replace_plan is None else [_Text(text) for text in patch.replace_plan]
        _known_plan_step(known, patch.complete_plan_step)
    if patch.close_question is not None and patch.close_question not in patch.add_questions:
        _refuse(patch.close_question not in state.questions, f"{patch.close_question!r} is not an open question")
    _refuse_twice(patch)
    for name, by in patch.increment.items():
        _stays_finite(name, _can_grow(state, name, "number", "increment", name in patch.nested), by)
    for name in patch.append:
        _can_grow(state, name, "list", "append", name in patch.nested)
    changed = {*patch.set, *patch.increment, *patch.append, *patch.delete}
    for name in patch.nested:
        if name in changed:
            paths.check(state.bag, name, patch.set.get(name))
        elif name not in state.bag:
            paths.split(name)


def _refuse_twice(patch: ev.Changes) -> None:
    """Refuse a patch whose changes depend on which of them comes first."""
    twice = (set(patch.set) & set(patch.increment)) | (set(patch.set) & set(patch.append))
    twice |= set(patch.increment) & set(patch.append)
    twice |= set(patch.delete) & {*patch.set, *patch.increment, *patch.append}
    changed = {*patch.set, *patch.increment, *patch.append, *patch.delete}
    parts = ""
    for inner in changed.intersection(patch.nested):
        above = [outer for outer in changed if inner.startswith(f"{outer}.")]
        twice.update([inner, *above] if above else ())
        parts = min(above, key=len) if above else parts
    hint = f"nothing was written: set {parts!r} as a whole, or only its parts" if parts else "nothing was written"
    _refuse(bool(twice), f"the patch changes {sorted(twice)} in two ways at once", hint)


_NULL = codec.JSON_NULL


class _Text:
    def __init__(self, text: str) -> None:
        self.text = text


def _forked(state: State, event: ev.TaskForked) -> None:
    _refuse(event.at != state.seq, f"a fork at {event.at} needs the state there, not at {state.seq}")


def _rolled_back(state: State, event: ev.RolledBack) -> None:
    _refuse(not 1 <= event.to < state.seq, f"cannot roll back from {state.seq} to {event.to}")


def _name(event: Event) -> str:
    return KIND.get(type(event), type(event).__name__)


_RULES: dict[type[Event], Callable[[State, Any], None]] = {
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
    ev.MessagesRemoved: _messages_removed,
    ev.ExpirySet: _expiry_set,
    ev.WaitStarted: _wait_started,
    ev.WaitEnded: _wait_ended,
    ev.ApprovalAsked: _approval_asked,
    ev.ApprovalGiven: _approval_answered,
    ev.ApprovalRefused: _approval_answered,
    ev.CompensationAdded: _has_name("name", "compensation's name"),
    ev.UndoStarted: _undo_started,
    ev.TaskReleased: _released,
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
    ev.StateSet: _state_set,
    ev.StateUpdated: _state_updated,
    ev.StateIncremented: _incremented,
    ev.StateAppended: _appended,
    ev.StateDeleted: _deleted,
    ev.StatePatched: _patched,
    ev.StateMigrated: _state_migrated,
}

"""Events → state. Only `evolve` changes state; `fold` is the loop around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast.core import codec, events as ev
from holdfast.core.codec import Stored
from holdfast.core.events import ANNOUNCED, Event
from holdfast.core.phases import DEFAULT
from holdfast.core.state import budget, fold_knowledge
from holdfast.core.state.fold_knowledge import identity_of, with_actor
from holdfast.core.state.shapes import Approval, Divergence, Signal, State, Step, Undo, Wait
from holdfast.core.state.summary import ANSWERING, DOUBTING, SUMMARISED, first_summary, forked_summary, summarise

POLICY = "policy"
"""Who settles a call that the tool's own policy has made again."""


def fold(state: State | None, log: str, rows: Iterable[Stored]) -> State | None:
    """The state after `rows`, which follow what `state` has seen. Neither argument is changed."""
    grown = None if state is None else state.copy()
    for row in rows:
        grown = evolve(grown, log, row.seq, row.at_us, codec.decode(row.kind, row.body))
    return grown


def evolve(state: State | None, log: str, seq: int, at_us: int, event: Event) -> State:
    """Apply one event in place. The first event makes the state; a rollback gives another one."""
    cls = type(event)
    is_summarised = cls in SUMMARISED
    if state is None or cls in _REPLACING:
        state = _begin(state, log, event, at_us)
    else:
        change = _CHANGES.get(cls)
        if change is not None:
            change(state, event, seq, at_us)
        if is_summarised:
            if cls in budget.HOLDING:
                budget.hold(state, event, at_us)
            if cls in ANSWERING:
                state.answered_seq = seq
            state.summary = summarise(state.summary, log, event, at_us)
        if event.branch:
            identity = identity_of(event.branch, event)
            state.immediates[identity] = state.immediates.get(identity, 0) + 1
        if state.budget is not None and state.begun:
            budget.press(state, at_us)
    if state.summary.doubts or (is_summarised and cls in DOUBTING):
        _name_doubts(state, at_us)
    state.seq = seq
    state.updated_us = at_us
    return state


def _name_doubts(state: State, at_us: int) -> None:
    """Have the summary name the calls that are in doubt now. Few tasks have any, so it is not done for others."""
    doubts = tuple(step.key for step in state.steps.values() if step.status == "doubt")
    if doubts != state.summary.doubts:
        state.summary = replace(state.summary, doubts=doubts, changed_us=at_us)


# The first event, and those that start over


def _begin(state: State | None, log: str, event: Event, at_us: int) -> State:
    match event:
        case ev.TaskForked() if state is not None:
            return _forked(state, log, event, at_us)
        case ev.RolledBack() if state is not None:
            restored: State = codec.load(event.hot, State)
            restored.summary = replace(restored.summary, changed_us=at_us)
            return restored
        case ev.TaskCreated():
            return State(
                summary=first_summary(log, event, at_us),
                log_created_us=at_us,
                phase=(event.phases or DEFAULT).start,
                actors=with_actor((), event.by),
                **{name: getattr(event, name) for name in _FROM_CREATION},
            )
        case _:
            salt: str = getattr(event, "salt", "")
            return State(summary=first_summary(log, event, at_us), log_created_us=at_us, salt=salt)


_FROM_CREATION = (
    *("input", "seed", "salt", "version", "stages", "goal", "block", "budget", "payers"),
    *("phases", "constraints", "risks", "contract", "state_version", "key_space"),
)


def _forked(state: State, log: str, event: ev.TaskForked, at_us: int) -> State:
    """A fork inherits what is known and what was done; not the claim, the end, the waits or the deadline."""
    fork = state.copy()
    fork.summary = forked_summary(state.summary, log, event, at_us)
    fork.seed = event.seed or state.seed
    fork.effects = event.effects
    fork.actors = with_actor(state.actors, event.by)
    fork.log_created_us = at_us
    fork.result, fork.failure, fork.cancel = UNSET, None, None
    fork.forked_from, fork.forked_at = event.parent, event.at
    fork.joint = (_last_done(state), event.at + 1)
    fork.undoing = False
    fork.phase, fork.phase_below = fork.own_phase, ""
    fork.payers, fork.held_since_us = (), 0
    for inherited_no_more in (fork.waits, fork.signals, fork.approvals, fork.undo):
        inherited_no_more.clear()
    return fork


def _last_done(state: State) -> int:
    """The seq of the last step that is done; where the turn or the task began, if there is none."""
    return max((step.last_seq for step in state.steps.values() if step.done), default=state.turn_seq or state.begun)


_REPLACING = {ev.TaskForked, ev.RolledBack}


# What each event changes, frequent kinds first


def _step_completed(state: State, event: ev.StepCompleted, seq: int, at_us: int) -> None:
    begun = state.steps.get(event.key)
    if begun is None:
        state.steps[event.key] = Step(
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
            deferred=event.behind,
        )
    else:
        done: dict[str, Any] = {"attempts": event.attempts, "result": event.result, "failure": None}
        done["deferred"] = event.behind
        state.steps[event.key] = replace(begun, status="completed", last_seq=seq, ended_us=at_us, **done)
    state.steps_done += 1
    if event.tool:
        state.calls_done += 1
    if event.usage is not None:
        budget.spend(state, event.usage)
    undo = event.undo or (begun.undo if begun is not None else "")
    if undo:
        _to_undo(state, event, undo, event.result, unique=begun.unique if begun is not None else "")
    if event.source and state.maybe_done:
        state.maybe_done.pop(event.source, None)  # it has been handed over
    if state.approvals:
        _use_approval(state, event.key)


def _step_started(state: State, event: ev.StepStarted, seq: int, at_us: int) -> None:
    earlier = state.steps.get(event.key)
    budget.announced_again(state, earlier, at_us)
    copied = ("key", "name", "input", "tool", "effect", "idempotency_key", "unique", "risk", "undo", "estimate")
    state.steps[event.key] = Step(
        **{name: getattr(event, name) for name in copied},
        status="running",
        first_seq=seq if earlier is None else earlier.first_seq,
        last_seq=seq,
        started_us=(event.started_us or at_us) if earlier is None else earlier.started_us,
        attempts=event.attempt,
        failures=() if earlier is None else earlier.failures,
        announced_us=at_us,
    )
    _use_approval(state, event.key)


def _to_undo(
    state: State,
    step: Step | ev.StepCompleted,
    name: str,
    result: Raw,
    *,
    maybe_done: bool = False,
    unique: str = "",
) -> None:
    """Something was done, or may have been, that can be undone. The list outlives the turn, and a rollback too."""
    place = _address(state, step.key)
    state.undo.append(Undo(name, place, step.tool, step.idempotency_key, step.input, result, maybe_done, unique))


def _address(state: State, key: str) -> str:
    return address(state.turn, key) if state.turn else key


def _use_approval(state: State, key: str) -> None:
    approval = state.approvals.get(key)
    if approval is not None and approval.status == "given":
        state.approvals[key] = replace(approval, status="used")


def _give_approval_back(state: State, key: str) -> None:
    """The attempt that used an approval had no effect: it covers the next one."""
    approval = state.approvals.get(key)
    if approval is not None and approval.status == "used":
        state.approvals[key] = replace(approval, status="given")


def _attempt_failed(state: State, event: ev.AttemptFailed, seq: int, at_us: int) -> None:
    if state.approvals and not event.maybe_done:
        _give_approval_back(state, event.key)
    begun = state.steps.get(event.key)
    budget.failed(state, begun, event, at_us)
    if begun is None:
        copied = ("key", "name", "input", "tool", "effect", "idempotency_key")
        given = {name: getattr(event, name) for name in copied}
        begun = Step(**given, status="retrying", first_seq=seq, last_seq=seq, started_us=at_us)
    failed: dict[str, Any] = {"failure": event.failure, "failures": (*begun.failures, event.failure), "raised": None}
    retry = {"attempts": event.attempt, "retry_us": event.retry_us}
    state.steps[event.key] = replace(begun, status="retrying", last_seq=seq, **failed, **retry)


def _step_failed(state: State, event: ev.StepFailed, seq: int, at_us: int) -> None:
    begun = state.steps.get(event.key)
    budget.failed(state, begun, event, at_us)
    if event.tool and event.attempts:
        state.calls_done += 1
    outcome: dict[str, Any] = {
        "status": "failed",
        "last_seq": seq,
        "ended_us": at_us,
        "failure": event.failure,
        "safe": event.safe,
        "maybe_done": event.maybe_done,
        "raised": None,
    }
    if begun is None:
        copied = ("key", "name", "input", "tool", "effect", "idempotency_key", "attempts")
        given = {name: getattr(event, name) for name in copied}
        state.steps[event.key] = Step(**given, first_seq=seq, started_us=event.started_us or at_us, **outcome)
    else:
        state.steps[event.key] = replace(begun, attempts=event.attempts, **outcome)
    failed = state.steps[event.key]
    if event.maybe_done and not event.source:
        if failed.effect in ANNOUNCED:
            place = _address(state, failed.key)
            state.maybe_done[place] = replace(failed, key=place)
        elif event.undo:
            _to_undo(state, failed, event.undo, codec.JSON_NULL, maybe_done=True, unique=failed.unique)


def _step_doubted(state: State, event: ev.StepDoubted, seq: int, at_us: int) -> None:
    step = state.steps.get(event.key)
    if step is not None:
        _unsettle(state, step)
        doubt: dict[str, Any] = {"raised": event.failure or step.raised, "until_us": max(event.until_us, step.until_us)}
        state.steps[event.key] = replace(step, status="doubt", last_seq=seq, settled=False, **doubt)
    if event.usage is not None:
        budget.spend(state, event.usage)


def _step_settled(state: State, event: ev.StepSettled, seq: int, at_us: int) -> None:
    settled = state.steps.get(event.key)
    if event.key in state.maybe_done and (settled is None or not settled.open):
        _settle_failed(state, state.maybe_done.pop(event.key), event, seq, at_us)
        return
    if settled is None:
        return  # its announcement was erased
    _unsettle(state, settled)
    if event.happened:
        result = codec.JSON_NULL if event.result is UNSET else event.result
        done: dict[str, Any] = {"last_seq": seq, "ended_us": at_us, "result": result, "settled": True}
        done["maybe_done"] = False
        state.steps[event.key] = replace(settled, status="completed", **done)
        state.steps_done += 1
        state.calls_done += 1
        if settled.undo:
            _to_undo(state, settled, settled.undo, result, unique=settled.unique)
    else:
        raised = None if event.by == POLICY else settled.raised
        void: dict[str, Any] = {"last_seq": seq, "ended_us": at_us, "raised": raised, "settled": True}
        state.steps[event.key] = replace(settled, status="void", **void)
        if event.by != POLICY:
            _give_approval_back(state, event.key)


def _unsettle(state: State, step: Step) -> None:
    """A settlement is corrected: what followed from the first one is taken back."""
    if step.settled and step.status == "completed":
        state.steps_done -= 1
        state.calls_done -= 1
        place = _address(state, step.key)
        state.undo = [one for one in state.undo if one.step != place]


def _step_observed(state: State, event: ev.StepObserved, seq: int, at_us: int) -> None:
    step = state.steps.get(event.key)
    if event.ended and step is not None and step.until_us:
        state.steps[event.key] = replace(step, until_us=0)


def _step_voided(state: State, event: ev.StepVoided, seq: int, at_us: int) -> None:
    """A recorded step counts no more. One that a fork leaves out as it begins: what it was patched with is seen now."""
    _drop(state.steps, event.key)
    if state.forked_from and state.joint[1] == seq - 1:
        state.joint = (_last_done(state), seq)


def _settle_failed(state: State, failed: Step, event: ev.StepSettled, seq: int, at_us: int) -> None:
    """A call that failed and may have happened is settled: one that did answers for the next call like it."""
    if event.happened:
        result = codec.JSON_NULL if event.result is UNSET else event.result
        done = replace(failed, status="completed", last_seq=seq, ended_us=at_us, result=result, failure=None)
        state.maybe_done[failed.key] = done
        if failed.undo:
            _to_undo(state, failed, failed.undo, result, unique=failed.unique)


def _turn_started(state: State, event: ev.TurnStarted, seq: int, at_us: int) -> None:
    """A new turn starts with no steps of its own; what is still open keeps its address (`3/pay#1`)."""
    if state.turn == 0:
        state.prelude = {key: step for key, step in state.steps.items() if step.done}
        state.prelude_immediates = state.immediates
    still_open = [step for step in state.steps.values() if step.open]
    addressed = [replace(step, key=address(state.turn, step.key)) for step in still_open]
    state.steps = {step.key: step for step in addressed}
    state.immediates = {}
    if state.refused:
        state.refused = {key: one for key, one in state.refused.items() if key.startswith("0 ")}  # a block's prelude
    state.approvals = {}
    state.turn = event.turn
    state.turn_seq = seq
    _pin(state, event.pins)


def _task_claimed(state: State, event: ev.TaskClaimed, seq: int, at_us: int) -> None:
    """Set the first view of the agent: the state when a worker first claimed the task."""
    state.claimed_seq = seq
    if state.summary.status == "running":
        state.blockers = ()  # the worker that was lost may have used what was reserved
    if not state.begun:
        state.begun = seq
        _pin(state, event.pins)
    state.attempts += 1
    if event.taken in ("presumed", "lease"):
        state.silent_seq = seq
    _count_deaths(state, event.holder)


def _task_suspended(state: State, event: ev.TaskSuspended, seq: int, at_us: int) -> None:
    state.wait_note, state.looked, state.blockers = event.note, event.looked, event.blockers


def _count_deaths(state: State, holder: str) -> None:
    """Count the workers in a row that died without a step done in between. Releasing a task is not a step."""
    if state.summary.status == "running" and state.summary.holder not in (None, holder):
        state.deaths = state.deaths + 1 if state.died_at == state.steps_done else 1
        state.died_at = state.steps_done
    elif state.summary.status != "pending" or state.died_at != state.steps_done:
        state.deaths = 0


def _pin(state: State, pins: ev.Pins | None) -> None:
    """From here on more is seen of what the user and the thread have come to."""
    if pins is not None:
        state.pins = pins
        if not state.forked_from and not state.mock:  # else they are in no log but its own
            state.user_changes = state.thread_changes = ()


def address(turn: int, key: str) -> str:
    """A step's key as seen from other turns.

    >>> address(3, "pay#1"), address(0, "pay#1"), address(9, "3/pay#1")
    ('3/pay#1', '0/pay#1', '3/pay#1')
    """
    return key if key.split("/", 1)[0].isdigit() else f"{turn}/{key}"


def _wait_started(state: State, event: ev.WaitStarted, seq: int, at_us: int) -> None:
    prompt = codec.JSON_NULL if event.prompt is UNSET else event.prompt
    state.waits[event.key] = Wait(event.key, event.wait, event.name, prompt, at_us, event.wake_us, event.answer)
    if event.phase:
        _cover_phase(state, event.phase)


def _cover_phase(state: State, phase: str) -> None:
    """Set the phase by what became of the task; the one that the agent moved to lies below."""
    state.phase_below, state.phase = state.own_phase, phase


def _uncover_phase(state: State) -> None:
    """Return to the phase that the agent moved to. Tasks of older logs are never in another."""
    state.phase, state.phase_below = state.own_phase, ""


def _phase_set(state: State, event: ev.PhaseSet, seq: int, at_us: int) -> None:
    state.phase, state.phase_below = event.phase, ""


def _wait_ended(state: State, event: ev.WaitEnded, seq: int, at_us: int) -> None:
    """A wait is a step too: what ended it is its result."""
    wait = state.waits.pop(event.key, None)
    if wait is None:
        return  # its beginning was erased
    if wait.kind == "signal" and not event.expired:
        named = (one for one in state.signals if one.name == wait.name)
        taken = next((one for one in named if event.signal in (0, one.seq)), None)
        state.signals = [one for one in state.signals if one is not taken]
    value = codec.JSON_NULL if event.value is UNSET else event.value
    status = "completed" if event.failure is None else "failed"
    ended: dict[str, Any] = {"result": value, "failure": event.failure, "effect": "read"}
    state.steps[event.key] = Step(event.key, wait.name, status, seq, seq, wait.since_us, at_us, **ended)
    if state.phase_below and not any(one.kind == "person" for one in state.waits.values()):
        _uncover_phase(state)


def _approval_asked(state: State, event: ev.ApprovalAsked, seq: int, at_us: int) -> None:
    copied = ("key", "name", "bound", "tool", "risk", "input", "wake_us")
    prompt = codec.JSON_NULL if event.prompt is UNSET else event.prompt
    given = {name: getattr(event, name) for name in copied}
    before = state.approvals.get(event.key)
    changed = before is not None and (before.changed or before.bound != event.bound)
    asked: dict[str, Any] = {"prompt": prompt, "status": "asked", "seq": seq, "asked_us": at_us, "changed": changed}
    state.approvals[event.key] = Approval(**given, **asked)


def _approval_given(state: State, event: ev.ApprovalGiven, seq: int, at_us: int) -> None:
    asked = state.approvals.get(event.key)
    if asked is not None:
        told: dict[str, Any] = {"by": event.by, "why": event.why, "until_us": event.until_us}
        state.approvals[event.key] = replace(asked, status="given", seq=seq, **told)
        _approval_answered(state, asked, Raw(b"true"), seq, at_us)


def _approval_refused(state: State, event: ev.ApprovalRefused, seq: int, at_us: int) -> None:
    asked = state.approvals.get(event.key)
    if asked is not None:
        state.approvals[event.key] = replace(asked, status="refused", seq=seq, by=event.by, why=event.why)
        _approval_answered(state, asked, Raw(b"false"), seq, at_us)


def _approval_answered(state: State, asked: Approval, answer: Raw, seq: int, at_us: int) -> None:
    """Record an answer. If the agent itself asked, the request is a step, and the answer its result."""
    if not asked.tool:
        times = (seq, seq, asked.asked_us, at_us)
        state.steps[asked.key] = Step(asked.key, asked.name, "completed", *times, result=answer, effect="read")


def _task_completed(state: State, event: ev.TaskCompleted, seq: int, at_us: int) -> None:
    state.result = event.result
    _end_in(state, event.phase)


def _end_in(state: State, phase: str) -> None:
    """End in a phase, or in the agent's own: a task that has ended asks no person any more."""
    if phase:
        _cover_phase(state, phase)
    else:
        _uncover_phase(state)


def _task_failed(state: State, event: ev.TaskFailed, seq: int, at_us: int) -> None:
    _end_in(state, event.phase)
    state.failure = event.failure
    state.failed_at, state.failed_step = event.state_seq or seq - 1, event.step


def _cancel_requested(state: State, event: ev.CancelRequested, seq: int, at_us: int) -> None:
    state.cancel = event.by, event.why
    state.expired = event.expired
    if not state.undoing:
        state.failure = event.failure


def _undo_started(state: State, event: ev.UndoStarted, seq: int, at_us: int) -> None:
    state.undoing = True
    state.failure = event.failure


def _signal_received(state: State, event: ev.SignalReceived, seq: int, at_us: int) -> None:
    state.signals.append(Signal(event.name, event.value, event.by, seq))


def _task_reopened(state: State, event: ev.TaskReopened, seq: int, at_us: int) -> None:
    if state.summary.waiting == "quarantined":  # it has not ended: it is tried again with as many lives as at first
        state.deaths, state.wait_note, state.blockers = 0, "", ()
        return
    state.result, state.failure, state.cancel, state.blockers = UNSET, None, None, ()
    if event.phase:
        state.phase, state.phase_below = event.phase, ""
    ended_it = state.steps.pop(event.void, None)
    approval = state.approvals.get(event.void)
    if approval is not None and approval.status == "used":
        safe = ended_it is not None and ended_it.safe
        state.approvals[event.void] = replace(approval, status="given" if safe else "expired")
    if ended_it is not None and ended_it.effect in ANNOUNCED and ended_it.attempts and not ended_it.safe:
        state.maybe_done.pop(_address(state, event.void), None)
        state.steps[event.void] = replace(ended_it, status="doubt")  # it raised, and may have happened all the same


def _task_diverged(state: State, event: ev.TaskDiverged, seq: int, at_us: int) -> None:
    """Several may notice, each with what it knows: all of it counts."""
    known = state.divergence or Divergence(event.known_seq, event.head_seq)
    calls = dict.fromkeys((*known.calls, *(call.key for call in event.calls)))
    state.divergence = Divergence(
        max(known.known_seq, event.known_seq),
        min(known.head_seq, event.head_seq),
        tuple(calls),
        max(known.unsure_upto, event.unsure_upto),
    )


def _child_spent(state: State, event: ev.ChildSpent, seq: int, at_us: int) -> None:
    if event.lost:
        budget.lose(state, event.child, "a child does not know what became of it", event.usage, at_us)
    else:
        budget.spend(state, event.usage, event.calls)


def _checkpoint_made(state: State, event: ev.CheckpointMade, seq: int, at_us: int) -> None:
    """A place to come back to; one an agent made is a step too, so that a replay passes it."""
    state.checkpoints[event.label] = seq
    if event.key:
        state.steps[event.key] = Step(event.key, "checkpoint", "completed", seq, seq, at_us, at_us, effect="read")


def _drop(items: dict[str, Any], key: str) -> None:
    items.pop(key, None)


def _set(name: str, source: str) -> Callable[[State, Any, int, int], None]:
    """A change that only remembers one field of the event."""

    def change(state: State, event: Any, seq: int, at_us: int) -> None:
        setattr(state, name, getattr(event, source))

    return change


_CHANGES: dict[type[Event], Callable[[State, Any, int, int], None]] = {
    ev.StepCompleted: _step_completed,
    ev.StepStarted: _step_started,
    ev.TurnStarted: _turn_started,
    **fold_knowledge.CHANGES,
    ev.TaskClaimed: _task_claimed,
    ev.TaskSuspended: _task_suspended,
    ev.AttemptFailed: _attempt_failed,
    ev.StepFailed: _step_failed,
    ev.StepDoubted: _step_doubted,
    ev.StepSettled: _step_settled,
    ev.StepObserved: _step_observed,
    ev.StepVoided: _step_voided,
    ev.WaitStarted: _wait_started,
    ev.WaitEnded: _wait_ended,
    ev.ApprovalAsked: _approval_asked,
    ev.ApprovalGiven: _approval_given,
    ev.ApprovalRefused: _approval_refused,
    ev.CompensationAdded: lambda state, e, seq, at: state.undo.append(Undo(e.name, input=e.input)),
    ev.UndoStarted: _undo_started,
    ev.BudgetRaised: lambda state, e, seq, at: budget.raised(state, e),
    ev.ChildSpent: _child_spent,
    ev.UserCreated: _set("salt", "salt"),
    ev.ThreadCreated: _set("salt", "salt"),
    ev.SignalReceived: _signal_received,
    ev.CheckpointMade: _checkpoint_made,
    ev.PhaseSet: _phase_set,
    ev.TaskCompleted: _task_completed,
    ev.TaskFailed: _task_failed,
    ev.TaskCancelled: lambda state, e, seq, at: _uncover_phase(state),
    ev.CancelRequested: _cancel_requested,
    ev.TaskReopened: _task_reopened,
    ev.TaskDiverged: _task_diverged,
}

"""What may follow what, and what each refusal says."""

import pytest
from hypothesis import given, strategies as st

from holdfast.core import codec, events as ev, names
from holdfast.core.errors import (
    Diverged,
    HoldfastError,
    InvalidEvent,
    InvalidId,
    InvalidTransition,
    InvalidValue,
    TaskFinished,
)
from holdfast.core.phases import PHASES
from holdfast.core.state import rules
from holdfast.core.state.fold import fold
from tests.legal import LOG, any_event, endings, histories, rows_of

START = ev.TaskCreated(agent="a", stages=("one", "two"))
ONCE = ev.StepStarted(key="pay#1", name="pay", tool="pay", effect="once", idempotency_key="k")
DONE = ev.StepCompleted(key="a#1", name="a", result=codec.pack(1))
VALUE = codec.pack(1)


def after(*events):
    return fold(None, LOG, rows_of([START, *events]))


def test_a_log_begins_with_its_creation_and_is_created_once(texts):
    with texts.raises(InvalidEvent):
        rules.check(None, DONE)
    with texts.raises(InvalidEvent):
        rules.check(after(), START)


@pytest.mark.parametrize(
    ("history", "event"),
    [
        ((DONE,), DONE),
        ((DONE,), ev.StepStarted(key="a#1", name="a")),
        ((), ev.StepCompleted(key="p#1", name="p", result=VALUE, effect="once")),
        ((DONE,), ev.AttemptFailed(key="a#1", name="a", attempt=1, failure=ev.Failure("E", ""), retry_us=1)),
        ((), ev.StepDoubted(key="a#1")),
        ((DONE,), ev.StepSettled(key="a#1", happened=True)),
        ((ONCE, ev.StepDoubted(key="pay#1")), ev.StepCompleted(key="pay#1", name="pay", result=VALUE)),
        ((ONCE,), ev.TaskCompleted(result=VALUE)),
        ((ONCE,), ev.TaskFailed(failure=ev.Failure("E", ""))),
        ((), ev.TurnStarted(turn=2)),
        ((), ev.StageSet(stage="three")),
        ((), ev.PhaseSet(phase="done")),
        ((), ev.MessageAdded()),
        ((), ev.MessageAdded(step="a#1")),
        ((), ev.WaitEnded(key="w#1")),
        ((DONE,), ev.WaitStarted(key="a#1", wait="person")),
        ((), ev.TaskReleased()),
        ((), ev.TaskReopened()),
        ((), ev.DivergenceAccepted()),
        ((), ev.PlanStepDone(step="x")),
        ((), ev.QuestionClosed(question="why")),
        ((), ev.FlagCleared(flag="hot")),
        ((), ev.StateDeleted(name="x")),
        ((ev.StateSet(name="x", value=codec.pack("s")),), ev.StateIncremented(name="x")),
        ((ev.StateSet(name="x", value=VALUE),), ev.StateAppended(name="x", value=VALUE)),
        ((), ev.FactLearned(key="", value=VALUE)),
        ((), ev.FlagRaised(flag="x" * 201)),
        ((), ev.RolledBack(to=5, hot=VALUE)),
    ],
)
def test_what_may_not_follow_is_refused_with_its_reason(history, event, texts):
    with texts.raises((InvalidEvent, InvalidValue)) as refused:
        rules.check(after(*history), event)
    assert refused.value.hint


LOST = ev.TaskDiverged(known_seq=9, known_digest="00", head_seq=4)


def test_a_task_that_lost_events_is_claimed_by_nobody_until_that_is_accepted(texts):
    with texts.raises(Diverged) as refused:
        rules.check(after(LOST), ev.TaskClaimed(holder="h"))
    assert "anyway=True" in refused.value.hint
    rules.check(after(LOST, ev.DivergenceAccepted()), ev.TaskClaimed(holder="h"))


@pytest.mark.parametrize(
    "event",
    [
        ev.SignalReceived(name="s", value=VALUE),
        ev.CancelRequested(),
        ev.BudgetRaised(),
        ev.StageSet(stage="one"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_nothing_from_outside_wakes_a_task_that_lost_events(event):
    assert after(LOST, event).summary.waiting == "diverged"


def test_what_several_know_to_be_lost_adds_up():
    more = ev.TaskDiverged(
        known_seq=7, known_digest="00", head_seq=3, calls=(ev.LostCall("pay#1", "pay"),), unsure_upto=2
    )
    lost = after(LOST, more).divergence
    assert (lost.known_seq, lost.head_seq, lost.calls, lost.unsure_upto) == (9, 3, ("pay#1",), 2)


def test_a_call_in_doubt_is_settled_and_then_the_task_can_end():
    doubt = after(ONCE, ev.StepDoubted(key="pay#1"))
    settled = ev.StepSettled(key="pay#1", happened=True, result=codec.pack("r"))
    rules.check(doubt, settled)
    rules.check(after(ONCE, ev.StepDoubted(key="pay#1"), settled), ev.TaskCompleted(result=VALUE))


@given(histories(), any_event | endings, endings)
def test_nothing_follows_the_end_but_observations_and_reopening(events, later, ending):
    state = fold(None, LOG, rows_of(events))
    if not state.ended:
        try:
            rules.check(state, ending)
        except HoldfastError:
            return
        state = fold(state, LOG, rows_of([*events, ending])[len(events) :])
    if isinstance(later, ev.StepObserved | ev.TaskDiverged):
        rules.check(state, later)
    elif not isinstance(later, ev.TaskReopened):
        with pytest.raises(TaskFinished):
            rules.check(state, later)


@given(st.lists(st.sampled_from(sorted(PHASES)), max_size=8))
def test_a_phase_moves_only_along_the_table(wanted):
    phase, moves = "idle", []
    for target in wanted:
        event = ev.PhaseSet(phase=target)
        if target in PHASES[phase]:
            rules.check(after(*moves), event)
            moves.append(event)
            phase = target
        else:
            with pytest.raises(InvalidTransition):
                rules.check(after(*moves), event)


@pytest.mark.parametrize("id", ["", "-a", "@last", "a b", "a\n", "../etc", "ä", "a" * 513, "a'b", "a\0b", None, 7])
def test_an_id_that_cannot_be_typed_or_linked_is_refused(id):
    with pytest.raises(InvalidId) as refused:
        names.task_log(id)
    assert refused.value.code == "invalid-id"


@pytest.mark.parametrize("id", ["a", "recap-42", "parent/spawn#1", "x~2/pay#1", "7", "a" * 512])
def test_ordinary_ids_and_those_of_children_are_allowed(id):
    assert names.task_log(id) == id

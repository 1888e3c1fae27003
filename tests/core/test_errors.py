"""Errors: text, hint, code, details, the signature of every constructor, and copies for other processes."""

import copy
import inspect
import json
import pickle

import pytest

import holdfast
from holdfast.core import errors

SAMPLES = [
    errors.HoldfastError("it failed", hint="try again", size=3),
    errors.HoldfastError("it failed"),
    errors.TaskNotFound("t"),
    errors.TaskNotFound("@thread/t"),
    errors.TaskNotFound("@user/ana"),
    errors.TaskExists("t"),
    errors.TaskExists("t", other_history=True),
    errors.TaskCollected("t"),
    *(
        errors.TaskFailed("t", status, why)
        for status in ("failed", "cancelled", "waiting", "running")
        for why in ("", "it broke")
    ),
    *(
        errors.TaskFinished("t", status, what)
        for status in ("completed", "failed", "cancelled")
        for what in ("app.cancel", "app.answer")
    ),
    errors.TaskBusy("t", "77-ab"),
    errors.TaskBusy("t", "77-ab", is_cancelled=True),
    errors.QueueFull("mail", 1),
    errors.QueueFull("mail", 20),
    *(errors.ThreadBusy("th", "t", "waiting", waits_for=waits_for) for waits_for in ("", "person", "timer")),
    errors.ThreadNotFound("th"),
    errors.InputConflict("t", {"city": "Oslo"}, {"city": "Rome"}),
    errors.InputConflict("t", {"city": "Oslo"}, {}),
    errors.StepFailed("pay#1", 1, "ValueError", "no money"),
    errors.StepFailed("pay#1", 3, "ValueError", "no {money}", maybe_done=True),
    errors.ApprovalDenied("pay#1", "too much"),
    errors.StepChanged("draft#1", {"notes": "{Q3}"}, {"notes": "Q4"}),
    errors.ReplayDiverged("a#2", "a#1"),
    errors.SelfApproval("approve", "t", "an agent asked for it"),
    errors.NestedStep("step", "pay#1"),
    errors.NestedStep("app.run", "pay#1"),
    errors.EffectConflict("order-7", "task 't'", "which has other arguments"),
    errors.UnnamedThread("step", "without a name"),
    errors.UnnamedThread("step", "", hint="await it"),
    errors.NotRecorded("pay#1", "t"),
    errors.NoMock("pay", "pay#1"),
    errors.NotDone(),
    errors.NotDone("refused", retry_after="Wed, 21 Oct 2026 07:28:00 GMT", permanent=True),
    errors.NotDone("refused", retry_after=0),
    errors.RetriesExhausted("fetch", 1, "OSError", "down"),
    errors.RetriesExhausted("fetch", 3, "OSError", "down"),
    errors.SeqOutOfRange("t", 9, 3),
    errors.SeqOutOfRange("@user/ana", 2, 9, first=5),
    errors.StepNotFound("t", "pay#1"),
    errors.Conflict("t", 1, 2),
    errors.Conflict("t", 1, None),
    errors.Conflict("t", None, 2),
    errors.Conflict.of_records("shop/t", 1, 2),
    errors.Conflict.of_records("shop/t", 1, None),
    errors.PatchConflict("t", "state.x", base=1, mine="set 2", theirs="set 3"),
    errors.PatchConflict("t", "x", base=1, mine="set 2", theirs="set 3", by="ana", user="bo"),
    errors.PatchConflict("t", "x", base=None, mine="None", theirs="3", thread="th", required=True),
    errors.StateMutated("state.items", "was appended to", hint="use task.state.append"),
    errors.KeyTaken("order-7", "t", "pay#1"),
    errors.UnknownEvent("t", 4, "telepathy"),
    errors.LogCorrupt("t", 4, "its digest differs"),
    errors.LogCorrupt("t", 0, "it has no head", hint="restore it"),
    errors.ValueDamaged("0123456789abcdef", "is missing"),
    errors.ValueDamaged("", "is missing"),
    errors.NotSerializable("input['x']", "is a set"),
    errors.NotSerializable("input['x']", "is a set", hint="give a list"),
    errors.InvalidState("state.n", "is not a number", hint="give an int", given="x"),
    errors.StateNotMigrated("is of version 1", hint="declare an upcast"),
    errors.StateNotMigrated("is of version 1", hint="declare an upcast", path="state.n", version=1),
    errors.UnknownName("state.nmae", "leads nowhere", hint="did you mean 'name'?", names=["name"]),
    errors.BudgetExceeded("t", "tokens", 1200, 2000, ahead=900),
    errors.BudgetExceeded("t", "wall_time", 0.3, 0.3),
    errors.UnknownPrice("gpt-9"),
    errors.Diverged("t", 7, 4, ["pay#1"]),
    errors.Diverged("t", 5, 4, block=True),
    errors.Diverged("t", 5, 0, frozen=False),
    errors.Diverged("t", 5, 5),
    errors.Diverged.of_records("shop/t", 7, 4),
]
"""A sample of every text that an error builds by itself."""

TREE = {one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.HoldfastError)}


def facts(error):
    """Return everything that a program may ask of an error."""
    return type(error), str(error), error.args, error.code, error.message, error.hint, error.details


def test_every_error_keeps_its_text_its_hint_and_its_details(texts):
    for error in SAMPLES:
        assert error.args == (error.message,)
        details = json.dumps(error.details, ensure_ascii=False)
        texts.check("\n".join([f"{type(error).__name__} {error.code}", error.message, error.hint, details]))


def test_every_error_that_builds_a_text_has_a_sample():
    own = {one for one in TREE if "__init__" in vars(one)}
    assert own <= {type(one) for one in SAMPLES}


@pytest.mark.parametrize("n", range(len(SAMPLES)))
def test_an_error_is_the_same_in_another_process_and_as_a_copy(n):
    error = SAMPLES[n]
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert again is not error and facts(again) == facts(error)


def test_constructors_keep_their_signatures(texts):
    names = {one: one.__name__ for one in TREE}
    texts.check("\n".join(sorted(f"{name}{inspect.signature(one)}" for one, name in names.items())))


def test_every_error_of_the_tree_is_public():
    assert {one.__name__ for one in TREE} <= set(holdfast.__all__)

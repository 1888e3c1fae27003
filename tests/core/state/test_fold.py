"""The fold: pure at its border, the same however it is cut."""

from typing import get_origin

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import fields, replace

from holdfast.core import codec, events as ev, wording
from holdfast.core.codec import Summary
from holdfast.core.errors import HoldfastError
from holdfast.core.state import rules
from holdfast.core.state.fold import evolve, fold
from holdfast.core.state.shapes import State
from holdfast.core.state.summary import DOUBTING, summarise
from tests.legal import IMMEDIATE, LOG, histories, rows_of


@given(histories())
def test_any_legal_history_encodes_decodes_and_folds_to_itself(events):
    state = None
    for seq, event in enumerate(events, start=1):
        state = evolve(state, LOG, seq, seq - 1, event)
    assert [codec.decode(row.kind, row.body) for row in rows_of(events)] == events
    assert fold(None, LOG, rows_of(events)) == state


@given(histories(), st.integers(0, 2**60))
def test_the_short_ways_to_write_give_what_would_be_read_back(events, at_us):
    for event in events:
        drafts = [codec.small_draft(event, at_us)]
        if isinstance(event, ev.StepCompleted):
            drafts.append(codec.draft_result(event, at_us))
        whole, _ = codec.draft(event, at_us)
        for draft in drafts:
            if draft is not None:
                assert (draft.body, draft.body_hash, draft.kind) == (whole.body, whole.body_hash, whole.kind)
                assert draft.event == codec.decode(draft.kind, draft.body) == event


@given(histories(), st.data())
def test_a_prefix_and_its_tail_fold_to_the_whole(events, data):
    rows = rows_of(events)
    cut = data.draw(st.integers(1, len(rows)))
    prefix = fold(None, LOG, rows[:cut])
    before = codec.dump(prefix)
    assert fold(prefix, LOG, rows[cut:]) == fold(None, LOG, rows)
    assert codec.dump(prefix) == before, "the fold does not change what it is given"


@given(histories(), st.data())
def test_a_snapshot_at_any_point_changes_nothing(events, data):
    rows = rows_of(events)
    cut = data.draw(st.integers(1, len(rows)))
    snapshot = codec.inflate(codec.deflate(codec.dump(fold(None, LOG, rows[:cut]))))
    restored = codec.load(snapshot, State)
    assert fold(restored, LOG, rows[cut:]) == fold(None, LOG, rows)


@given(histories())
def test_the_summary_is_a_fold_of_its_own_and_agrees_with_the_state(events):
    summary = None
    for at, event in enumerate(events):
        summary = summarise(summary, LOG, event, at)
    found = fold(None, LOG, rows_of(events)).summary
    if any(type(event) in DOUBTING for event in events):  # only the state knows which calls are in doubt
        summary, found = (replace(one, doubts=(), changed_us=0) for one in (summary, found))
    assert summary == found


@given(histories())
def test_steps_are_those_of_this_turn_and_what_is_still_open(events):
    state = fold(None, LOG, rows_of(events))
    for step in state.steps.values():
        assert step.open or step.first_seq > state.turn_seq or step.last_seq > state.turn_seq


# States of their own


def containers(state):
    """Every list and dict of a state, by its field, however its type is written."""
    kinds = {one.name: one.type for one in fields(State)}
    return {name: getattr(state, name) for name, kind in kinds.items() if get_origin(kind) in (list, dict)}


SHARED = {"input"}
"""What a task was given never changes, so copies share it."""


def test_a_copy_of_a_state_has_lists_and_dicts_of_its_own():
    state = State(summary=Summary(id="t", agent="a"))
    found, copied = containers(state), containers(state.copy())
    shared = {name for name in found if copied[name] is found[name]}
    assert len(found) > 15 and shared == SHARED, f"{sorted(shared)}: CONTAINERS of core/state/shapes.py lacks it"


def known():
    """A state that every immediate verb can change."""
    first = [
        ev.TaskCreated(agent="a"),
        ev.PlanSet(steps=("a", "b", "c", "ü")),
        *(ev.QuestionOpened(question=one) for one in "abc"),
        *(ev.FlagRaised(flag=one) for one in "abc"),
        ev.FactLearned(key="a", value=codec.pack(1)),
        ev.NoteSet(key="a", value=codec.pack(1)),
        ev.StateSet(name="a", value=codec.pack(1)),
        ev.StateSet(name="b", value=codec.pack([])),
    ]
    return fold(None, LOG, rows_of(first))


@pytest.mark.parametrize("kind", sorted(IMMEDIATE, key=lambda one: one.__name__))
@given(st.data())
def test_what_an_immediate_verb_records_changes_a_sketch_and_not_the_state_it_was_made_of(kind, data):
    state, said = known(), data.draw(IMMEDIATE[kind])
    try:
        rules.check(state, said)
    except HoldfastError:
        return
    before = {name: codec.dump(one) for name, one in containers(state).items()}
    evolve(state.sketch(), LOG, state.seq, state.updated_us, replace(said, branch="."))
    changed = [name for name, one in containers(state).items() if codec.dump(one) != before[name]]
    assert not changed, f"{changed}: name it in _SAID of core/state/shapes.py, or a sketch shares it with its state"


def test_every_event_that_an_immediate_verb_records_is_tried():
    waited_for = {"StateUpdated"}  # its verb returns when it is written
    missing = {*wording._SAID} - waited_for - {one.__name__ for one in IMMEDIATE}
    assert not missing, "add it to IMMEDIATE of tests/legal.py"

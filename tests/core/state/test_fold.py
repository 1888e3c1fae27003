"""The fold: pure at its border, the same however it is cut."""

from hypothesis import given, strategies as st

from holdfast.core import codec
from holdfast.core.state.fold import evolve, fold
from holdfast.core.state.shapes import State
from holdfast.core.state.summary import summarise
from tests.legal import LOG, histories, rows_of


@given(histories())
def test_any_legal_history_encodes_decodes_and_folds_to_itself(events):
    state = None
    for seq, event in enumerate(events, start=1):
        state = evolve(state, LOG, seq, seq - 1, event)
    assert [codec.decode(row.kind, row.body) for row in rows_of(events)] == events
    assert fold(None, LOG, rows_of(events)) == state


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
    assert summary == fold(None, LOG, rows_of(events)).summary


@given(histories())
def test_steps_are_those_of_this_turn_and_what_is_still_open(events):
    state = fold(None, LOG, rows_of(events))
    for step in state.steps.values():
        assert step.open or step.first_seq > state.turn_seq or step.last_seq > state.turn_seq

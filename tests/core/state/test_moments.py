"""A moment of the past is the fold at every seq, in whichever order it is asked for."""

from collections.abc import Mapping

from hypothesis import given, settings, strategies as st
from msgspec.structs import fields, replace

from holdfast.core import codec, events as ev
from holdfast.core.errors import HoldfastError
from holdfast.core.state import rules
from holdfast.core.state.fold import evolve, fold
from holdfast.core.state.moments import Moments
from holdfast.core.state.shapes import State
from tests.legal import IMMEDIATE, LOG, histories, rows_of


def plain(state):
    """A state's fields; dicts as pairs, for their order counts."""
    found = {one.name: getattr(state, one.name) for one in fields(State)}
    return {name: list(one.items()) if isinstance(one, Mapping) else one for name, one in found.items()}


def grown(events, first):
    """A past that begins at `first`, and the rows after it."""
    rows = rows_of(events)
    past = Moments(fold(None, LOG, rows[:first]))
    for row, event in zip(rows[first:], events[first:], strict=True):
        past.grow(LOG, row.seq, row.at_us, event)
    return past, rows


@settings(max_examples=300)
@given(histories(max_size=40), st.data())
def test_any_moment_of_a_past_is_the_fold_up_to_there(events, data):
    first = data.draw(st.integers(1, len(events)))
    past, rows = grown(events, first)
    for seq in data.draw(st.permutations(range(first, len(events) + 1))):
        expected = fold(None, LOG, rows[:seq])
        found = past.at(seq)
        assert plain(found) == plain(expected)
        for name in ("bag", "facts", "steps", "notes"):
            then, there = getattr(found, name), getattr(expected, name)
            assert (len(then), bool(then), "missing" in then) == (len(there), bool(there), False)
            assert all(then[key] == there[key] == then.get(key) and key in then for key in there)


@settings(max_examples=300)
@given(histories(max_size=30), st.data())
def test_what_is_recorded_on_a_moment_changes_nothing_but_its_own_sketch(events, data):
    past, rows = grown(events, 1)
    seq = data.draw(st.integers(1, len(events)))
    ours, plainly = past.at(seq).sketch(), fold(None, LOG, rows[:seq]).sketch()
    kinds = st.sampled_from(sorted(IMMEDIATE, key=lambda one: one.__name__))
    for kind in data.draw(st.lists(kinds, max_size=8)):
        said = replace(data.draw(IMMEDIATE[kind]), branch=".")
        try:
            rules.check(plainly, said)
        except HoldfastError:
            continue
        ours = evolve(ours, LOG, seq, 0, said)
        plainly = evolve(plainly, LOG, seq, 0, said)
        assert plain(ours) == plain(plainly)
    for at in range(1, len(events) + 1):
        assert plain(past.at(at)) == plain(fold(None, LOG, rows[:at]))


def test_a_moment_before_the_past_begins_is_its_start():
    past, rows = grown([ev.TaskCreated(agent="a"), ev.StateSet(name="a", value=codec.pack(1))], 2)
    assert plain(past.at(1)) == plain(fold(None, LOG, rows))


def test_a_key_that_comes_back_is_the_last_of_all():
    """The order of facts is the order in which they were learned, and learned anew."""
    learned = [ev.FactLearned(key=key, value=codec.pack(key)) for key in "abab"]
    past, _ = grown([ev.TaskCreated(agent="a"), *learned], 3)
    assert [list(past.at(seq).facts) for seq in (3, 4, 5)] == [["a", "b"], ["b", "a"], ["a", "b"]]
    assert [list(past.at(seq).facts) for seq in (5, 3, 4)] == [["a", "b"], ["a", "b"], ["b", "a"]]

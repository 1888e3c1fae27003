"""Branches: whatever order they finish in, whatever lands in between, wherever it crashes, replay is right."""

import os
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core import limits
from tests.engine.programs import ID, STRATEGIES, FlyingPlace, Story, programs, walk

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # a crash awaits nothing any more
]
MANY = int(os.environ.get("MANY", "1"))


@pytest.fixture(autouse=True)
def _many_snapshots(monkeypatch):
    monkeypatch.setattr(limits, "SNAPSHOT_MIN_BYTES", 700)


def lived(program, crashes, waits, **options):
    """Live a program once without a crash, then again with some; gives both stories."""
    whole = Story(program, **options, place=FlyingPlace(waits))
    life = whole.live()
    check_end(whole)
    story = Story(program, **options, place=FlyingPlace(waits))
    for crash in crashes:
        spot = _spot(life.hits, crash)
        story.live(spot)
    story.live()
    check_end(story)
    return whole, story


def _spot(hits, share):
    """The failpoint passed after that share of a life, and which of its hits it is."""
    index = min(int(share * len(hits)), len(hits) - 1)
    return hits[index], hits[: index + 1].count(hits[index])


def check_end(story):
    assert not story.problems, "\n".join(map(str, story.problems))
    with story.look() as app:
        end = app.get(ID)
        assert end.status == "completed", (end.status, end.failure, end.waiting)
        check_said(story.program, end)
        folded = end.to_dict()
        app.store.drop_snapshots()
        assert app.get(ID).to_dict() == folded
        assert app.verify(ID).ok
        assert app.run(story.agent, id=ID).to_dict() == folded
    calls = [place for place, operation in walk(story.program) if operation[:2] == ("call", "once")]
    assert sorted(story.sent) == sorted(calls)


def check_said(program, end):
    """Everything was said once, however often it was replayed."""
    said = {}
    for place, operation in walk(program):
        if operation[0] in ("say", "reply"):
            said.setdefault("message" if operation[0] == "reply" else operation[1], []).append(place)
    assert end.state.get("n", 0) == len(said.get("increment", ()))
    assert Counter(end.state.get("list", ())) == Counter(said.get("append", ()))
    assert Counter(one["content"] for one in end.messages) == Counter(said.get("message", ()))
    assert Counter(one["choice"] for one in end.decisions) == Counter(said.get("decide", ()))
    assert set(end.flags) == set(said.get("flag", ()))


CRASHES = st.lists(st.floats(0, 1), min_size=1, max_size=3)


@pytest.mark.parametrize("checkpoint", STRATEGIES)
@settings(max_examples=30 * MANY, print_blob=True)
@given(program=programs("async"), crashes=CRASHES, waits=st.booleans())
def test_branches_replay_what_they_read_and_find_every_step(checkpoint, program, crashes, waits):
    lived(program, crashes, waits, checkpoint=checkpoint)


@pytest.mark.parametrize("checkpoint", STRATEGIES)
@settings(max_examples=30 * MANY, print_blob=True)
@given(program=programs("def"), crashes=CRASHES)
def test_a_plain_agent_with_threads_replays_what_it_read_and_finds_every_step(checkpoint, program, crashes):
    lived(program, crashes, True, kind="def", checkpoint=checkpoint)

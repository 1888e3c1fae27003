"""How far a rollback goes: by steps, by versions of the state, and never further than there is."""

import pytest

import holdfast
from holdfast import InvalidEvent, InvalidValue, StatePatch, agent

STORES = ("memory", "sqlite", "postgres")


@agent
def counts(task):
    for n in range(3):
        task.state.n = task.step(lambda n=n: n, name="count")
    task.wait("go")


def test_a_rollback_goes_back_by_versions_of_the_state(app):
    app.start(counts, id="t")
    for n in range(1, 4):
        app.patch("t", StatePatch(set={"n": n}), by="ana")
    assert app.rollback("t", versions=1).state["n"] == 2
    app.patch("t", {"increment": {"n": 10}})
    assert app.rollback("t", versions=2).state["n"] == 1
    assert app.rollback("t", versions=99).state == {}
    assert app.verify().ok


def test_a_rollback_by_more_steps_than_there_are_goes_back_to_before_the_first(app):
    app.run(counts, id="t")
    assert app.rollback("t", 99).state == {}
    app.run(counts, id="t")
    assert app.get("t").state["n"] == 2
    assert app.rollback("t", versions=99, by="ana", why="again").state == {}


def test_by_versions_an_agents_own_writes_count_too(app):
    app.run(counts, id="t")
    assert app.rollback("t", versions=1).state["n"] == 1
    app.run(counts, id="t")
    assert app.get("t").state["n"] == 2


def test_what_is_no_way_back_is_refused(app, texts):
    app.start(counts, id="t")
    with texts.raises(InvalidEvent):
        app.rollback("t")
    with texts.raises(InvalidEvent):
        app.rollback("t", versions=1)
    for odd in ({"steps": 0}, {"steps": True}, {"versions": 0}, {"versions": "1"}, {"steps": 2, "versions": 1}):
        with texts.raises(InvalidValue):
            app.rollback("t", **odd)
    with texts.raises(InvalidValue):
        app.rollback("t", versions=1, to=1)
    assert app.get("t").seq == 1


def test_a_fork_goes_back_by_versions_into_what_it_inherits(app):
    app.run(counts, id="t")
    fork = app.fork("t", id="f")
    assert fork.state["n"] == 2
    assert app.rollback("f", versions=1).state["n"] == 1
    with pytest.raises(holdfast.HoldfastError):
        app.rollback("f", to=fork.seq + 50)

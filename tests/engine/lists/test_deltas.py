"""Sections and deltas: a task's document in parts, and what each event changes in it."""

import contextlib

import jsonpatch
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import holdfast
from holdfast import StatePatch, events as ev
from holdfast.core import codec
from holdfast.engine.lists.deltas import KEYFRAME
from holdfast.engine.reading.task_state import SECTIONS
from tests.engine.reading.test_reading import write
from tests.legal import histories

STORES = ("memory", "sqlite", "postgres")


def steps(count, tool=""):
    return [
        ev.StepCompleted(key=f"s#{n}", name="s", result=codec.pack({"n": n}), input={"n": codec.pack(n)}, tool=tool)
        for n in range(1, count + 1)
    ]


def folded(app, id, sections=None, after=0):
    """The document after each event, made of deltas alone."""
    document = {} if after == 0 else app.at(id, after).to_dict(sections=sections)
    found = {one.seq: one.ops for one in app.deltas(id, after=after, sections=sections)}
    for seq in range(after + 1, app.head(id) + 1):
        document = jsonpatch.JsonPatch(found.get(seq, [])).apply(document)
        yield seq, document


def check(app, id):
    """Folding deltas gives what `app.at` gives, at every seq, for the whole document and for the keyframe's part."""
    for sections in (None, KEYFRAME):
        for seq, document in folded(app, id, sections):
            assert document == app.at(id, seq).to_dict(sections=sections), (id, seq)


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories(stored=False), st.data())
def test_folding_deltas_gives_the_state_at_every_seq(events, data):
    """Histories of every kind of event, patched and migrated; then forked with a patch, and both rolled back."""
    with holdfast.open("memory:") as app:
        write(app, "t", events)
        at = data.draw(st.integers(1, len(events)), label="fork at")
        with contextlib.suppress(holdfast.HoldfastError):
            app.fork("t", id="f", at=at, patch=data.draw(st.sampled_from((None, StatePatch(set={"a": {"b": 1}})))))
        for id in ("t", "f"):
            if not app.head(id):
                continue
            with contextlib.suppress(holdfast.HoldfastError):
                app.rollback(id, to=data.draw(st.integers(1, app.head(id)), label="back to"))
                app.append(id, ev.TaskClaimed(holder="h"), ev.FactLearned(key="k", value=codec.pack(1), source="s"))
            check(app, id)
        last = app.head("t")
        a, b = (data.draw(st.integers(1, last)) for _ in range(2))
        before, after = app.at("t", a).to_dict(), app.at("t", b).to_dict()
        assert jsonpatch.JsonPatch(app.diff("t", a, b)).apply(before) == after


def test_deltas_go_on_after_any_seq_and_stop_at_any(app):
    app.start("a", {"x": 1}, id="t")
    app.append(
        "t", ev.TaskClaimed(holder="h"), *steps(3), ev.StageSet(stage="late"), ev.NoteSet(key="n", value=codec.pack(1))
    )
    every = list(app.deltas("t"))
    assert [one.seq for one in every] == [1, 2, 3, 4, 5, 6, 7]
    assert list(app.deltas("t", after=3)) == every[3:] and list(app.deltas("t", upto=3)) == every[:3]
    assert list(app.deltas("t", after=2, limit=2)) == every[2:4]
    assert [(seq, document["seq"]) for seq, document in folded(app, "t", after=4)] == [(5, 5), (6, 6), (7, 7)]
    touching = list(app.deltas("t", after=1, sections=("stage", "notes")))
    assert touching == [
        type(touching[0])(6, [{"op": "replace", "path": "/stage", "value": "late"}]),
        type(touching[0])(7, [{"op": "add", "path": "/notes/n", "value": 1}]),
    ]


def test_a_delta_of_a_step_holds_that_step_alone(app):
    app.start("a", id="t")
    app.append("t", ev.TaskClaimed(holder="h"), *steps(50))
    last = list(app.deltas("t", after=51))
    assert len(last) == 1 and {op["path"] for op in last[0].ops} == {
        "/steps/s#50",
        "/seq",
        "/digest",
        "/updated_at",
    } - ({"/updated_at"} if app.at("t", 51).updated_at == app.at("t", 52).updated_at else set())


def test_the_difference_of_neighbours_is_their_delta(app):
    app.start("a", id="t")
    app.append("t", ev.TaskClaimed(holder="h"), *steps(9), ev.TurnStarted(turn=1), *steps(2))
    for one in app.deltas("t", after=1):
        assert app.diff("t", one.seq - 1, one.seq) == one.ops


def test_a_document_is_had_in_parts_and_its_steps_in_pages(app):
    app.start("a", {"x": 1}, id="t")
    app.append("t", ev.TaskClaimed(holder="h"), *steps(7), ev.FactLearned(key="k", value=codec.pack([1]), source="s"))
    task = app.get("t")
    whole = task.to_dict()
    for name in whole:
        assert task.to_dict(sections=(name,)) == {name: whole[name]}
    assert {*whole} <= {*SECTIONS} and task.to_dict(sections=()) == {}
    assert task.to_dict(sections=("seq", "facts", "mock")) == {
        "seq": 10,
        "facts": {"k": {"value": [1], "source": "s"}},
    }
    page = task.to_dict(sections=("steps",), steps_limit=3)["steps"]
    assert [*page] == ["s#1", "s#2", "s#3"]
    assert [*task.to_dict(sections=("steps",), steps_after="s#3", steps_limit=3)["steps"]] == ["s#4", "s#5", "s#6"]
    assert [*task.to_dict(sections=("steps",), steps_after="s#6")["steps"]] == ["s#7"]


@pytest.mark.parametrize(
    "odd",
    [
        lambda app: app.deltas("t", after=-1),
        lambda app: app.deltas("t", after=99),
        lambda app: app.deltas("t", upto=99),
        lambda app: app.deltas("t", upto=0),
        lambda app: app.deltas("t", after="1"),
        lambda app: app.deltas("t", limit=0),
        lambda app: app.deltas("t", sections=("everything",)),
        lambda app: app.deltas("t", sections="facts"),
        lambda app: app.deltas("t", sections=("interrupted",)),
        lambda app: app.get("t").to_dict(sections=("everything",)),
        lambda app: app.get("t").to_dict(steps_limit=0),
        lambda app: app.get("t").to_dict(steps_after="nothing#1"),
        lambda app: app.deltas("nobody"),
    ],
)
def test_what_cannot_be_is_refused(app, odd, texts):
    app.start("a", id="t")
    with texts.raises(holdfast.HoldfastError):
        odd(app)

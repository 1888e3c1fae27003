"""Patches from several writers: all or nothing, merged where they commute, refused with both sides where they clash."""

import itertools
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import PatchConflict, StatePatch, agent
from holdfast import events as ev

NAMES = st.sampled_from("abc")
GROWING = st.fixed_dictionaries(
    {},
    optional={
        "increment": st.dictionaries(st.sampled_from("xyz"), st.integers(-5, 5), max_size=2),
        "append": st.dictionaries(st.sampled_from("lmn"), st.integers(), max_size=2),
        "raise_flags": st.lists(NAMES, max_size=2),
        "add_questions": st.lists(NAMES, max_size=2),
    },
)


def fact(key, value):
    return StatePatch(append_facts=[{"key": key, "value": value}])


@pytest.fixture(params=["memory", "sqlite"])
def app(request, tmp_path):
    with holdfast.open("memory:" if request.param == "memory" else tmp_path / "a.db") as app:
        yield app


def known(app, id):
    state = app.get(id)
    lists = {name: sorted(value) for name, value in state.state.items() if isinstance(value, list)}
    return {**state.state, **lists}, sorted(state.flags), sorted(state.questions)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(patches=st.lists(GROWING, min_size=2, max_size=3))
def test_what_commutes_gives_the_same_in_every_order(patches):
    with holdfast.open("memory:") as app:
        ends = []
        for number, order in enumerate(itertools.permutations(patches)):
            app.start("a", id=f"t{number}")
            for fields in order:
                app.patch(f"t{number}", StatePatch(**fields), expect=1)
            ends.append(known(app, f"t{number}"))
        assert all(end == ends[0] for end in ends)


@pytest.mark.parametrize(
    ("theirs", "mine", "path"),
    [
        (StatePatch(set={"n": 2}), StatePatch(set={"n": 3}), "state.n"),
        (StatePatch(set={"n": 2}), StatePatch(increment={"n": 1}), "state.n"),
        (StatePatch(increment={"n": 2}), StatePatch(set={"n": 3}), "state.n"),
        (StatePatch(replace_plan=["x"]), StatePatch(replace_plan=["y"]), "plan"),
        (StatePatch(complete_plan_step="one"), StatePatch(replace_plan=["y"]), "plan"),
        (
            StatePatch(append_facts=[{"key": "k", "value": 2}]),
            StatePatch(append_facts=[{"key": "k", "value": 3}]),
            "facts.k",
        ),
        (StatePatch(raise_flags=["f"]), StatePatch(clear_flags=["g"], raise_flags=["h"], set={"m": 1}), None),
    ],
)
def test_what_clashes_is_refused_and_shows_both_sides(app, theirs, mine, path):
    app.start("a", id="t")
    app.patch("t", StatePatch(set={"n": 1}, replace_plan=["one", "two"], raise_flags=["g"]))
    seen = app.get("t").seq
    app.patch("t", theirs, expect=seen, by="ben", why="first")
    before = app.get("t").to_dict()
    if path is None:
        app.patch("t", mine, expect=seen)
        return
    with pytest.raises(PatchConflict) as refused:
        app.patch("t", mine, expect=seen, by="ana")
    assert refused.value.details["path"] == path and refused.value.hint
    assert refused.value.details["mine"] and refused.value.details["theirs"]
    assert app.get("t").to_dict() == before
    assert app.patch("t", mine).seq == seen + 2, "without expect the newest state is the one that counts"


def test_a_bad_patch_changes_nothing_and_says_why(app):
    app.start("a", id="t")
    for patch in (
        StatePatch(complete_plan_step="nowhere"),
        StatePatch(close_question="unasked"),
        StatePatch(set={"n": float("nan")}),
        StatePatch(set={"": 1}),
        StatePatch(set={"n": 1}, increment={"n": 1}),
        StatePatch(append_facts=[{"value": 1}]),
        {"set": {"n": 1}},
    ):
        with pytest.raises(holdfast.HoldfastError) as refused:
            app.patch("t", patch)
        assert refused.value.hint
    with pytest.raises(holdfast.SeqOutOfRange):
        app.patch("t", StatePatch(set={"n": 1}), expect=99)
    assert app.get("t").seq == 1


def test_writers_in_threads_lose_nothing(app):
    app.start("a", id="t")

    def write(number):
        for _ in range(10):
            app.patch("t", StatePatch(increment={"n": 1}, append={"who": number}), expect=1)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = app.get("t").state
    assert state["n"] == 40 and sorted(state["who"]) == sorted([0, 1, 2, 3] * 10)


def test_a_running_agent_sees_a_patch_after_its_next_waiting_verb_and_on_replay_too(app):
    seen = []

    @agent
    def worker(task):
        task.step(lambda: app.patch("t", StatePatch(set={"tone": "bold"}), by="ana") and None, name="one")
        seen.append(task.state.get("tone"))
        task.patch(StatePatch(increment={"n": 1}, raise_flags=["seen"]), why="counting")
        task.step(lambda: 2, name="two")
        seen.append((task.state.get("tone"), task.state.n))
        task.wait("go")

    app.run(worker, id="t")
    app.signal("t", "go")
    done = app.run(worker, id="t")
    assert seen[:2] == seen[2:] == ["bold", ("bold", 1)]
    assert done.state == {"tone": "bold", "n": 1} and done.flags == ["seen"]
    by = [record.event.by for record in app.events("t") if isinstance(record.event, ev.StatePatched)]
    assert by == ["ana", "worker"]


def test_a_patch_of_an_unknown_section_is_refused_with_the_sections_there_are():
    for wrong in (lambda: StatePatch(colour="red"), lambda: StatePatch.from_json('{"colour": "red"}')):
        with pytest.raises(holdfast.InvalidValue, match=r"no section 'colour'.*append_facts, replace_plan"):
            wrong()
    for odd in ("nonsense", "[1]", b"\xff", 7):
        with pytest.raises(holdfast.InvalidValue, match="JSON"):
            StatePatch.from_json(odd)


def test_a_patch_goes_to_json_and_back():
    patch = StatePatch(
        append_facts=[{"key": "a", "value": [1, None], "source": "s"}],
        replace_plan=["x"],
        set={"n": 1.5},
        increment={"k": 2},
        delete=["old"],
    )
    assert StatePatch.from_json(patch.to_json()) == patch
    assert StatePatch.from_json(StatePatch().to_json()) == StatePatch()
    assert StatePatch.from_json(StatePatch(replace_plan=[]).to_json()) == StatePatch(replace_plan=[])

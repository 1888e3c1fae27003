"""Patches from several writers: all or nothing, merged where they commute, refused with both sides where they clash."""

import itertools
import threading

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import holdfast
from holdfast import InvalidEvent, InvalidValue, PatchConflict, StatePatch, agent, events as ev

STORES = ("memory", "sqlite", "postgres")
NAMES = st.sampled_from("abc")
ANY = st.fixed_dictionaries(
    {},
    optional={
        "set": st.dictionaries(NAMES, st.integers(0, 2), max_size=2),
        "increment": st.dictionaries(NAMES, st.integers(-2, 2), max_size=2),
        "delete": st.lists(NAMES, max_size=2, unique=True),
        "append": st.dictionaries(st.sampled_from("lm"), st.integers(0, 2), max_size=1),
        "raise_flags": st.lists(NAMES, max_size=1),
        "clear_flags": st.lists(NAMES, max_size=1),
        "replace_plan": st.lists(NAMES, min_size=1, max_size=2, unique=True),
        "append_facts": st.lists(st.fixed_dictionaries({"key": NAMES, "value": st.integers(0, 1)}), max_size=1),
    },
).filter(lambda patch: _clashes_with_itself(patch) is False)
"""Patches of any kind, by writers who have all seen the same: some go together, some do not."""


def _clashes_with_itself(patch):
    named = [*patch.get("set", ()), *patch.get("increment", ()), *patch.get("delete", ())]
    flags = [*patch.get("raise_flags", ()), *patch.get("clear_flags", ())]
    return len(set(named)) < len(named) or len(set(flags)) < len(flags)


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


def _known(state):
    lists = {name: sorted(value) for name, value in state.state.items() if isinstance(value, list)}
    facts = {key: fact.value for key, fact in state.facts.items()}
    return {**state.state, **lists}, sorted(state.flags), [step.text for step in state.plan], facts


def _begin(app, id):
    app.start("a", id=id)
    first = StatePatch(set={"a": 1, "b": 1, "l": []}, raise_flags=["c"], replace_plan=["one"])
    return app.patch(id, first).seq


def _write_all(app, id, order, seen):
    """Each writer has seen the same state; gives whether one of them was refused."""
    for fields in order:
        before = app.get(id).to_dict()
        try:
            app.patch(id, StatePatch(**fields), expect=seen)
        except PatchConflict as error:
            refused = error
        else:
            continue
        assert app.get(id).to_dict() == before, "nothing is written of what is refused"
        assert refused.details["mine"] and refused.details["theirs"] and refused.hint
        return True
    return False


def _refolded(app, id):
    """The state as it is, and as it is when nothing is remembered but the log."""
    state = app.get(id).to_dict()
    app.store.drop_snapshots(log=id)
    assert app.get(id).to_dict() == state
    return _known(app.get(id))


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    path = tmp_path_factory.mktemp("patches") / "a.db"
    with holdfast.open("memory:") as one, holdfast.open(path, durability="process") as two:
        yield one, two


NUMBERS = itertools.count()


@settings(max_examples=min(300, settings().max_examples))
@given(patches=st.lists(ANY, min_size=2, max_size=3))
def test_what_goes_together_is_merged_in_any_order_and_a_clash_is_told_in_any_order_on_every_store(stores, patches):
    """What others set, deleted, learned or replaced clashes, whatever the value; growing the same twice does not."""
    ends, refused = [], []
    for order in itertools.permutations(patches):
        id = f"t{next(NUMBERS)}"
        both = []
        for app in stores:
            seen = _begin(app, id)
            refused.append(_write_all(app, id, order, seen))
            both.append(_refolded(app, id))
        assert both[0] == both[1], "the same on every store"
        ends.append(both[0])
    assert len(set(refused)) == 1, f"whether they clash depends on their order: {refused}"
    assert refused[0] or all(end == ends[0] for end in ends), "what goes together gives the same in any order"


@pytest.mark.parametrize(
    ("theirs", "mine", "path"),
    [
        (StatePatch(set={"n": 2}), StatePatch(set={"n": 3}), "state.n"),
        (StatePatch(set={"n": 2}), StatePatch(increment={"n": 1}), "state.n"),
        (StatePatch(increment={"n": 2}), StatePatch(set={"n": 3}), "state.n"),
        (StatePatch(delete=["n"]), StatePatch(set={"n": 3}), "state.n"),
        (StatePatch(set={"n": 2}), StatePatch(delete=["n"]), "state.n"),
        (StatePatch(delete=["n"]), StatePatch(increment={"n": 1}), "state.n"),
        (StatePatch(append={"l": 2}), StatePatch(delete=["l"]), "state.l"),
        (StatePatch(set={"n": 2}), StatePatch(set={"n": 2}), "state.n"),
        (StatePatch(delete=["n"]), StatePatch(delete=["n"], set={"m": 1}), "state.n"),
        (StatePatch(set={"p.a": 2}), StatePatch(set={"p.a": 2}), "state.p.a"),
        (StatePatch(set={"p.a": 2}), StatePatch(set={"p": {}}), "state.p"),
        (StatePatch(set={"p": {}}), StatePatch(increment={"p.a": 2}), "state.p.a"),
        (StatePatch(delete=["p.a"]), StatePatch(set={"p.a.b": 2}), "state.p.a.b"),
        (StatePatch(increment={"p.c": 2}), StatePatch(set={"p.c": 2}), "state.p.c"),
        (StatePatch(set={"p.a": 2}), StatePatch(set={"p.b": 2}), None),
        (
            StatePatch(increment={"p.c": 2}, append={"p.l": 1}),
            StatePatch(increment={"p.c": 3}, append={"p.l": 1}),
            None,
        ),
        (StatePatch(replace_plan=["x"]), StatePatch(replace_plan=["x"]), "plan"),
        (
            StatePatch(add_artifacts=[{"artifact_id": "a", "type": "text"}]),
            StatePatch(add_artifacts=[{"artifact_id": "a", "type": "text"}]),
            "artifacts.a",
        ),
        (fact("k", 2), fact("k", 2), "facts.k"),
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
    app.patch("t", StatePatch(set={"n": 1, "p": {"a": {}, "c": 0}}, replace_plan=["one", "two"], raise_flags=["g"]))
    seen = app.get("t").seq
    app.patch("t", theirs, expect=seen, by="ben", why="first")
    before = app.get("t").to_dict()
    if path is None:
        app.patch("t", mine, expect=seen)
        return
    with pytest.raises(PatchConflict) as refused:
        app.patch("t", mine, expect=seen, by="ana")
    assert refused.value.details["path"] == path and refused.value.hint
    assert refused.value.details["mine"] and refused.value.details["theirs"] and refused.value.details["by"] == "ben"
    assert app.get("t").to_dict() == before
    assert app.patch("t", mine).seq == seen + 2, "without expect the newest state is the one that counts"


@pytest.mark.parametrize(
    ("verb", "clashing", "fitting"),
    [
        (lambda task: setattr(task.state, "n", 2), {"set": {"n": 2}}, {"set": {"m": 2}}),
        (lambda task: delattr(task.state, "n"), {"delete": ["n"]}, {"delete": ["l"]}),
        (lambda task: delattr(task.state, "n"), {"increment": {"n": 1}}, {"increment": {"m": 1}}),
        (lambda task: task.state.set("p.a", 2), {"set": {"p.a": 2}}, {"set": {"p.b": 2}}),
        (lambda task: task.state.update("n", lambda n: n + 1), {"set": {"n": 2}}, {"set": {"m": 2}}),
        (lambda task: task.artifact("x"), {"add_artifacts": [{"artifact_id": "text-01e2e2e1d2f6", "type": "a"}]}, {}),
        (lambda task: task.state.increment("n"), {"set": {"n": 3}}, {"increment": {"n": 4}}),
        (lambda task: task.state.append("l", 1), {"delete": ["l"]}, {"append": {"l": 2}}),
        (
            lambda task: task.fact("k", 1),
            {"append_facts": [{"key": "k", "value": 1}]},
            {"append_facts": [{"key": "other", "value": 1}]},
        ),
        (lambda task: task.plan(["x"]), {"replace_plan": ["x"]}, {"raise_flags": ["x"]}),
        (lambda task: task.done("one"), {"replace_plan": ["x"]}, {"complete_plan_step": "two"}),
        (lambda task: task.question("why"), {"close_question": "why"}, {"add_questions": ["why"]}),
        (lambda task: task.flag("f"), {"clear_flags": ["f"]}, {"raise_flags": ["f"]}),
        (lambda task: task.stage("later"), None, {"set": {"n": 3}}),
    ],
)
def test_what_an_agent_did_itself_clashes_with_whoever_has_not_seen_it(app, verb, clashing, fitting):
    @agent
    def busy(task):
        made = verb(task)
        if isinstance(made, str) and made.startswith("text-"):
            clashing["add_artifacts"][0]["artifact_id"] = made
        task.ask("go on?")

    app.start(busy, id="t")
    app.patch("t", StatePatch(set={"n": 1, "l": []}, replace_plan=["one", "two"]))
    seen = app.get("t").seq
    before = app.run(busy, id="t")
    assert before.status == "waiting"
    if clashing is not None:
        with pytest.raises(PatchConflict) as refused:
            app.patch("t", StatePatch(**clashing), expect=seen)
        assert refused.value.details["mine"] and refused.value.details["theirs"]
    assert app.get("t").to_dict() == before.to_dict()
    assert app.patch("t", StatePatch(**fitting), expect=seen).seq == before.seq + 1


@pytest.mark.parametrize(
    ("event", "mine"),
    [
        (ev.QuestionClosed(question="why"), {"add_questions": ["why"]}),
        (ev.FlagCleared(flag="f"), {"raise_flags": ["f"]}),
    ],
)
def test_what_is_appended_by_hand_clashes_with_whoever_has_not_seen_it(app, event, mine):
    app.start("a", id="t")
    seen = app.patch("t", StatePatch(add_questions=["why"], raise_flags=["f"])).seq
    app.append("t", event)
    with pytest.raises(PatchConflict):
        app.patch("t", StatePatch(**mine), expect=seen)
    assert app.get("t").seq == seen + 1


def test_a_rollback_clashes_with_whoever_has_not_seen_it(app):
    app.start("a", id="t")
    for number in (1, 2):
        app.patch("t", StatePatch(set={"n": number}))
    seen = app.get("t").seq
    back = app.rollback("t", to=2)
    for mine in (StatePatch(set={"n": 3}), StatePatch(increment={"m": 1}), fact("k", 1)):
        with pytest.raises(PatchConflict) as refused:
            app.patch("t", mine, expect=seen)
        assert refused.value.details["theirs"] == "roll back"
    assert app.patch("t", StatePatch(set={"n": 3}), expect=back.seq).state["n"] == 3


def test_a_bad_patch_changes_nothing_and_says_why(app):
    app.start("a", id="t")
    for patch in (
        StatePatch(complete_plan_step="nowhere"),
        StatePatch(close_question="unasked"),
        StatePatch(set={"n": float("nan")}),
        StatePatch(set={"": 1}),
        StatePatch(set={"n": 1}, increment={"n": 1}),
        StatePatch(append_facts=[{"value": 1}]),
        {"set": {"n": 1}, "increment": {"n": 1}},
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


def test_of_two_writers_who_expect_the_same_one_wins_whatever_they_set(url):
    """On every store, from two apps at once."""
    with holdfast.open(url) as app:
        app.start("a", id="t")
        seen = app.patch("t", StatePatch(set={"n": 1})).seq
        start, won, lost = threading.Barrier(8), [], []

        def write():
            start.wait()
            try:
                won.append(app.patch("t", StatePatch(set={"n": 2}), expect=seen).seq)
            except PatchConflict as refused:
                lost.append(refused.details)

        threads = [threading.Thread(target=write) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [seen + 1] and len(lost) == 7 and app.get("t").seq == seen + 1
        assert all(one["base"] == 1 and one["mine"] == one["theirs"] == "set 2" for one in lost)


@pytest.mark.parametrize("expect", ["1", 1.0, True, -1, [1]], ids=str)
def test_what_is_expected_must_be_a_seq(app, expect):
    app.start("a", id="t")
    for patch in (
        lambda: app.patch("t", StatePatch(set={"n": 1}), expect=expect),
        lambda: app.user("ana").patch(StatePatch(set={"n": 1}), expect=expect),
    ):
        with pytest.raises(holdfast.InvalidValue, match="is not a seq") as refused:
            patch()
        assert ".seq" in refused.value.hint
    assert app.get("t").seq == 1 and app.user("ana").get().seq == 0


@pytest.mark.parametrize(
    ("found", "required", "met"),
    [
        ({}, {"sent": None}, True),
        ({"sent": None}, {"sent": None}, True),
        ({"sent": True}, {"sent": None}, False),
        ({}, {"sent": False}, False),
        ({"n": 1}, {"n": 1.0}, True),
        ({"n": 1}, {"n": True}, False),
        ({"n": 0}, {"n": False}, False),
        ({"l": [1, {"a": 2}]}, {"l": [1, {"a": 2}]}, True),
        ({"l": [1]}, {"l": [1, 2]}, False),
        ({"p": {"a": 1, "b": 2}}, {"p.a": 1}, True),
        ({"p": {"a": 1}}, {"p.a.b": None}, True),
        ({"p": {"a": 1}}, {"p": {"a": 1, "b": 2}}, False),
        ({"big": "z" * 9_000}, {"big": "z" * 9_000}, True),
        ({"big": "z" * 9_000}, {"big": "z" * 8_999}, False),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
    ],
)
def test_what_a_patch_requires_must_be_so(app, found, required, met):
    app.start("a", id="t")
    app.patch("t", StatePatch(set=found))
    app.user("ana").patch(StatePatch(set=found))
    for read, patch in (
        (lambda: app.get("t").state, lambda one: app.patch("t", one)),
        (lambda: app.user("ana").get().state, lambda one: app.user("ana").patch(one)),
        (lambda: app.get("f").state, lambda one: app.fork("t", id="f", patch=one)),
    ):
        if met:
            patch(StatePatch(require=required, set={"done": 1}))
            assert read() == {**found, "done": 1}
            continue
        with pytest.raises(PatchConflict, match="requires") as refused:
            patch(StatePatch(require=required, set={"done": 1}, append_facts=[{"key": "k", "value": 1}]))
        assert refused.value.details["path"].startswith("state.") and refused.value.hint
    assert app.get("t").state == ({**found, "done": 1} if met else found)


def test_a_patch_that_requires_something_else_says_what_is_there(app, texts):
    app.start("a", id="t")
    app.patch("t", StatePatch(set={"sent": {"to": "ana"}}))
    app.user("ana").state.sent = "z" * 500
    for patch in (app.patch, lambda id, one: app.user("ana").patch(one)):
        with texts.raises(PatchConflict):
            patch("t", StatePatch(require={"sent": None}, set={"sent": True}))


@pytest.mark.parametrize("required", [3, ["sent"], {"sent": object()}, {"": None}, {1: None}, {"a..b": None}])
def test_what_cannot_be_required_is_refused(app, required):
    app.start("a", id="t")
    with pytest.raises(holdfast.HoldfastError) as refused:
        app.patch("t", StatePatch(require=required, set={"n": 1}))
    assert refused.value.hint and not isinstance(refused.value, PatchConflict)
    assert app.get("t").seq == 1


def test_of_many_who_require_that_nothing_was_sent_one_sends(url):
    with holdfast.open(url) as app:
        app.start("a", id="t")
        sent, refused = [], []

        def send(number):
            try:
                app.patch("t", StatePatch(require={"sent": None}, set={"sent": number}))
                sent.append(number)
            except PatchConflict:
                refused.append(number)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(sent) == 1 and len(refused) == 7 and app.get("t").state == {"sent": sent[0]}


@pytest.mark.parametrize(
    ("verb", "theirs"),
    [
        (lambda task: task.state.increment("n"), {"set": {"n": "text"}}),
        (lambda task: task.state.append("l", 1), {"set": {"l": "text"}}),
        (lambda task: task.state.__delitem__("n"), {"delete": ["n"]}),
        (lambda task: task.state.set("p.a", 1), {"set": {"p": "text"}}),
        (lambda task: task.done("one"), {"replace_plan": ["other"]}),
        (lambda task: task.patch(StatePatch(close_question="why")), {"close_question": "why"}),
        (lambda task: task.user.state.increment("n"), None),
        (lambda task: task.user.state.set("p.a", 1), None),
    ],
)
def test_what_was_said_and_does_not_fit_any_more_is_no_damage(app, verb, theirs):
    """An agent decides on what it sees; what others wrote before its own write is seen after it."""
    came = []

    @agent
    def worker(task):
        task.step(lambda: 1, name="one")
        verb(task)
        if not came:
            came.append(1)
            if theirs is None:
                app.user("ana").patch(StatePatch(set={"n": "text", "p": "text"}))
            else:
                app.patch("t", StatePatch(**theirs))
        task.step(lambda: 2, name="two")

    app.start(worker, id="t", user="ana")
    app.user("ana").patch(StatePatch(set={"n": 1, "p": {}}))
    first = {"n": 1, "l": [], "p": {}}
    app.patch("t", StatePatch(set=first, replace_plan=["one"], add_questions=["why"]))
    assert app.run(worker, id="t").status == "completed"
    assert app.verify().problems == []
    with holdfast.open("memory:") as other:
        other.import_(app.export_lines("t"))
        assert other.get("t").state == app.get("t").state


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


def test_a_patch_of_an_unknown_section_is_refused_with_the_sections_there_are(texts):
    for wrong in (lambda: StatePatch(colour="red"), lambda: StatePatch.from_json('{"colour": "red"}')):
        with texts.raises(holdfast.InvalidValue):
            wrong()
    for odd in ("nonsense", "[1]", b"\xff", 7):
        with texts.raises(holdfast.InvalidValue):
            StatePatch.from_json(odd)


def test_a_patch_goes_to_json_and_back():
    patch = StatePatch(
        append_facts=[{"key": "a", "value": [1, None], "source": "s"}],
        replace_plan=["x"],
        set={"n": 1.5, "a.b": 1},
        increment={"k": 2},
        delete=["old"],
        require={"sent": None, "n": [1]},
    )
    assert StatePatch.from_json(patch.to_json()) == patch
    assert StatePatch.from_json(StatePatch().to_json()) == StatePatch()
    assert StatePatch.from_json(StatePatch(replace_plan=[]).to_json()) == StatePatch(replace_plan=[])


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda: [{"set": {"city": "Oslo"}}], "is not a StatePatch"),
        (lambda: {"sets": {"city": "Oslo"}}, "a patch has no section 'sets'"),
        (lambda: None, "is not a StatePatch"),
        (lambda: StatePatch(require={"": 1}, set={"city": "Oslo"}), "the name in require= '' has 0 characters"),
        (lambda: StatePatch(set={5: 1}), "the name in set= 5 is not text"),
        (lambda: StatePatch(increment={"n": "x"}), "increment={'n': 'x'} is not valid.*give a number"),
        (lambda: StatePatch(increment={"n": True}), "increment={'n': True} is not valid.*give a number"),
        (lambda: StatePatch(set={"city": 1}, delete=["city"]), "'city'. in two ways at once"),
        (lambda: StatePatch(set={"p.q": 1}, delete=["p.q"]), "'p.q'. in two ways at once"),
        (lambda: StatePatch(set={"p": {}, "p.q": 1}), "in two ways at once.*set 'p' as a whole, or only its parts"),
    ],
)
@pytest.mark.parametrize("where", ["app", "app.user", "task", "task.user"])
def test_a_patch_that_is_none_is_refused_by_name_wherever_it_is_given(app, where, wrong, why):
    @agent
    def worker(task):
        patched = task if where == "task" else task.user
        if where.startswith("task"):
            with pytest.raises((InvalidValue, InvalidEvent), match=why):
                patched.patch(wrong())
        return task.ask("who?")

    assert app.run(worker, id="t", user="ana").waiting, app.get("t").failure
    outside = app.patch if where == "app" else lambda id, patch: app.user("ana").patch(patch)
    if where.startswith("app"):
        with pytest.raises((InvalidValue, InvalidEvent), match=why):
            outside("t", wrong())
    assert app.get("t").state == {} and not app.user("ana").state.all()


@pytest.mark.parametrize("verb", ["cancel", "signal", "patch", "answer", "raise_budget"])
@pytest.mark.parametrize("name", ["by", "why"])
def test_a_name_or_a_reason_that_is_no_text_is_refused_by_name(app, verb, name):
    @agent
    def asker(task):
        return task.ask("who?")

    app.run(asker, id="t")
    rest = {"signal": ("go",), "patch": (StatePatch(set={"a": 1}),), "answer": ("ask", 1)}
    rest["raise_budget"] = (holdfast.Budget(steps=5),)
    if name == "why" and verb in ("signal", "answer"):
        pytest.skip("it takes no reason")
    seq = app.get("t").seq
    with pytest.raises(InvalidValue, match=f"{name}=5 is not text"):
        getattr(app, verb)("t", *rest.get(verb, ()), **{name: 5})
    assert app.get("t").seq == seq


def test_a_task_that_is_cancelled_twice_is_cancelled_already(app):
    app.start("a", id="t")
    app.cancel("t")
    with pytest.raises(holdfast.TaskFinished, match="task 't' is already cancelled"):
        app.cancel("t")

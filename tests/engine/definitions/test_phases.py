"""Phases: explicit moves by name or by event, machines of one's own, and errors that name the way."""

import enum

import pytest
from hypothesis import given, strategies as st

import holdfast
from holdfast import InvalidTransition, InvalidValue, Machine, agent, events as ev
from holdfast.core import phases
from holdfast.core.phases import PHASES
from holdfast.testing import crash_everywhere
from tests.engine.both import Crash, events

REVIEW = Machine(
    {"draft": ["review"], "review": ["draft", "published"], "published": []},
    events={"submit": {"draft": "review"}, "reject": {"review": "draft"}, "accept": {"review": "published"}},
)
USUAL = {
    "new_task": ("idle", "planning"),
    "plan_ready": ("planning", "executing"),
    "step_complete": ("executing", "reflecting"),
    "needs_input": ("executing", "waiting_feedback"),
    "input_received": ("waiting_feedback", "executing"),
}


def test_named_events_go_through_the_usual_phases(app, either):
    @either()
    def worker(task):
        for on in ("new_task", "plan_ready", "needs_input", "input_received"):
            task.phase(on=on)
        yield task.step(lambda: 1, name="work")
        task.phase(on="step_complete")
        task.phase("planning")
        task.phase(on="plan_ready")
        task.phase("reflecting")
        task.phase(on="task_complete")

    done = app.run(worker, id="t")
    assert (done.status, done.phase) == ("completed", "done")
    moves = [(one.phase, one.on) for one in events(app, "phase_set")]
    assert moves[:2] == [("planning", "new_task"), ("executing", "plan_ready")]
    assert moves[-3:] == [("executing", "plan_ready"), ("reflecting", ""), ("done", "task_complete")]
    created = next(app.events("t")).event
    assert created.phases is None, "the usual machine needs no bytes"


@pytest.mark.parametrize(("on", "way"), USUAL.items())
def test_every_usual_event_moves_from_one_phase_only(on, way):
    before, after = way
    for phase in PHASES:
        if phase == before:
            assert phases.moved(None, phase, "", on) == after
            phases.check_move(None, phase, after, on)
        else:
            with pytest.raises(InvalidTransition) as refused:
                phases.moved(None, phase, "", on)
            assert repr(on) in str(refused.value) and repr(phase) in str(refused.value)


def test_every_phase_but_error_may_go_to_error(texts):
    for phase in PHASES:
        if phase != "error":
            phases.check_move(None, phase, "error", "")
    with texts.raises(InvalidTransition):
        phases.check_move(None, "error", "error", "")


def test_an_impossible_move_names_the_allowed_moves_and_events_and_writes_nothing(app, either, texts):
    @either()
    def worker(task):
        task.phase("planning")
        task.phase(on="plan_ready")
        caught = []
        for wrong in (
            lambda: task.phase("planning"),
            lambda: task.phase(on="new_task"),
            lambda: task.phase(on="nonsense"),
            lambda: task.phase(),
            lambda: task.phase("reflecting", on="step_complete"),
        ):
            try:
                wrong()
            except holdfast.HoldfastError as error:
                caught.append([error.code, str(error)])
        yield task.step(lambda: 1, name="one")
        return caught

    done = app.run(worker, id="t")
    assert app.at("t", done.seq - 1).phase == "executing" and len(events(app, "phase_set")) == 2
    by_name, by_event, unknown, nothing, both = done.result
    assert by_name[0] == by_event[0] == unknown[0] == "invalid-transition"
    assert "['reflecting', 'waiting_feedback', 'done', 'error']" in by_name[1]
    assert nothing[0] == both[0] == "invalid-value"
    for _, said in done.result:
        texts.check(said)


def test_a_machine_of_ones_own_starts_where_it_says_and_moves_as_it_says(app, either, texts):
    @either(phases=REVIEW)
    def writer(task):
        task.phase(on="submit")
        task.phase(on="reject")
        yield task.step(lambda: 1, name="write")
        task.phase("review")
        try:
            task.phase("planning")
        except InvalidTransition as error:
            task.note("refused", str(error))
        task.phase(on="accept")

    app.start(writer, id="t")
    assert app.get("t").phase == "draft"
    done = app.run(writer, id="t")
    assert done.phase == "published" and done.phases.events["submit"] == {"draft": "review"}
    texts.check(done.notes["refused"])


def test_outsiders_are_judged_by_the_machine_in_the_log(url, clock, texts):
    with holdfast.open(url, clock=clock) as app:
        app.start(agent(name="writer", phases=REVIEW)(lambda task: None), id="t")
        before = app.get("t").seq
        for wrong in [
            ev.PhaseSet(phase="published"),
            ev.PhaseSet(phase="planning"),
            ev.PhaseSet(phase="review", on="accept"),
            ev.PhaseSet(phase="review", on="plan_ready"),
        ]:
            with texts.raises(InvalidTransition):
                app.append("t", wrong)
        app.append("t", ev.PhaseSet(phase="review", on="submit"))
        with texts.raises(InvalidTransition):
            app.append("t", ev.PhaseSet(phase="published", on="reject"))
        assert (app.get("t").phase, app.get("t").seq) == ("review", before + 1)


def test_the_log_s_machine_counts_when_the_code_has_another_by_now(app):
    def body(task):
        task.wait("go")
        task.phase(on="submit")
        return "moved"

    app.run(agent(name="writer", phases=REVIEW)(body), id="t")
    app.signal("t", "go")
    done = app.run(agent(name="writer", phases=Machine({"a": ["b"], "b": []}))(body), id="t")
    assert (done.result, done.phase) == ("moved", "review")


def test_forks_and_rollbacks_keep_the_phase_and_the_machine(app):
    @agent(phases=REVIEW)
    def writer(task):
        task.phase(on="submit")
        task.step(lambda: 1, name="one")
        task.phase(on="accept")
        task.step(lambda: 2, name="two")

    app.run(writer, id="t")
    after_one = app.step("t", "one#1").after
    fork = app.fork("t", at=after_one, id="f")
    assert (fork.phase, fork.phases.start) == ("review", "draft")
    with pytest.raises(InvalidTransition, match="'draft', 'published'"):
        app.append("f", ev.PhaseSet(phase="planning"))
    assert app.run(writer, id="f").phase == "published"
    back = app.rollback("t", to=after_one)
    assert (back.phase, back.phases.start) == ("review", "draft")
    with pytest.raises(InvalidTransition):
        app.append("t", ev.PhaseSet(phase="planning"))
    assert app.run(writer, id="t").phase == "published"


def test_a_replay_moves_no_phase_twice_and_sees_the_same(app, either):
    seen, dead = [], [True]

    @either(phases=REVIEW)
    def writer(task):
        task.phase(on="submit")
        yield task.step(lambda: 1, name="one")
        try:
            task.phase(on="submit")
        except InvalidTransition as error:
            seen.append(str(error))
        task.phase(on="accept")
        yield task.step(lambda: 2, name="two")
        if dead:
            dead.clear()
            raise Crash
        return task.id

    with pytest.raises(Crash):
        app.run(writer, id="t")
    assert app.run(writer, id="t").phase == "published"
    assert [one.on for one in events(app, "phase_set")] == ["submit", "accept"]
    assert seen[0] == seen[1]


def test_a_crash_anywhere_leaves_the_phases_right():
    @agent(phases=REVIEW)
    def writer(task):
        task.phase(on="submit")
        task.step(lambda: 1, name="one")
        task.phase(on="reject")
        task.phase("review")
        task.step(lambda: 2, name="two")
        task.phase(on="accept")

    def published(state, *_):
        assert state.phase == "published"

    report = crash_everywhere(writer, {}, check=published)
    assert report.survived == report.tried > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Machine({}),
        lambda: Machine(["a", "b"]),
        lambda: Machine({"a": ["b"]}),
        lambda: Machine({"a": "b", "b": []}),
        lambda: Machine({"a": 3}),
        lambda: Machine({"a": [["b"]], "b": []}),
        lambda: Machine({"a": ["b", "b"], "b": []}),
        lambda: Machine({"a": [], "b": ["a"]}),
        lambda: Machine({"a": []}, start="x"),
        lambda: Machine({"a": []}, start=["a"]),
        lambda: Machine({"": []}),
        lambda: Machine({str(n): [] for n in range(201)}),
        lambda: Machine({"a": ["b"], "b": []}, events={"go": {"a": "a"}}),
        lambda: Machine({"a": ["b"], "b": []}, events={"go": {"x": "a"}}),
        lambda: Machine({"a": ["b"], "b": []}, events={"go": {}}),
        lambda: Machine({"a": ["b"], "b": []}, events={"go": "b"}),
        lambda: Machine({"a": ["b"], "b": []}, events=["go"]),
        lambda: agent(name="x", phases={"a": []})(lambda task: None),
    ],
)
def test_a_machine_that_cannot_work_is_refused_where_it_is_declared(make, texts):
    with texts.raises(InvalidValue):
        make()


def test_a_machine_is_frozen_and_does_not_follow_what_it_was_made_of():
    moves = {"a": ["b"], "b": []}
    machine = Machine(moves)
    moves["a"].append("a")
    moves["c"] = []
    assert machine.moves == {"a": ("b",), "b": ()}
    with pytest.raises(AttributeError):
        machine.start = "b"


names = st.sampled_from("abcd")


@given(st.dictionaries(names, st.lists(names, max_size=3, unique=True), min_size=1), st.lists(names, max_size=6))
def test_any_machine_is_either_refused_or_followed_to_the_letter(table, wanted):
    try:
        machine = Machine(table)
    except InvalidValue:
        return
    with holdfast.open("memory:") as app:
        app.start(agent(name="x", phases=machine)(lambda task: None), id="t")
        phase = next(iter(table))
        for target in wanted:
            if target in table[phase]:
                app.append("t", ev.PhaseSet(phase=target))
                phase = target
            else:
                with pytest.raises(InvalidTransition):
                    app.append("t", ev.PhaseSet(phase=target))
            assert app.get("t").phase == phase


# What becomes of a task, and its phase


def test_a_task_is_done_or_in_error_by_what_becomes_of_it_and_stands_so_in_the_log(app, either):
    @either()
    def works(task, fails: bool):
        task.phase("planning")
        yield task.step(lambda: 1 / (not fails), name="work")

    assert app.run(works, {"fails": False}, id="good").phase == "done"
    assert app.run(works, {"fails": True}, id="bad").phase == "error"
    assert [one.phase for one in events(app, "phase_set", id="good")] == ["planning"], "no move of the agent"
    assert app.verify().ok


def test_a_machine_without_these_phases_is_left_alone(app, either):
    @either(phases=REVIEW)
    def writer(task):
        task.phase(on="submit")
        yield task.ask("good?")
        raise ValueError("no")

    assert app.run(writer, id="t").phase == "review"
    app.answer("t", "ask", "yes")
    assert app.run(writer, id="t").phase == "review"
    assert app.reopen("t").phase == "review"


def test_a_task_waits_for_feedback_while_it_asks_and_then_is_where_it_was(app, either):
    seen = []

    @either()
    def asks(task):
        task.phase("planning")
        task.phase("executing")
        yield task.ask("who?")
        seen.append(task.current.phase)
        task.phase("reflecting")
        yield task.ask("and now?", timeout=5)
        return task.current.phase

    assert app.run(asks, id="t").phase == "waiting_feedback"
    assert app.answer("t", "ask", "ana").phase == "executing"
    assert app.run(asks, id="t").phase == "waiting_feedback"
    done = app.answer("t", "ask", "bob")
    assert done.phase == "reflecting"
    done = app.run(asks, id="t")
    assert (done.result, done.phase, set(seen)) == ("reflecting", "done", {"executing"})


def test_an_agent_that_moves_to_feedback_itself_leaves_it_itself(app, either):
    @either()
    def asks(task):
        for phase in ("planning", "executing"):
            task.phase(phase)
        task.phase(on="needs_input")
        yield task.ask("who?")
        task.phase(on="input_received")
        return task.current.phase

    app.run(asks, id="t")
    assert app.answer("t", "ask", "ana").phase == "waiting_feedback"
    assert app.run(asks, id="t").result == "executing"


def test_a_branch_that_asks_does_not_keep_others_from_moving(app):
    import asyncio

    @agent
    async def two(task):
        task.phase("planning")

        async def moves():
            await task.wait("go")
            task.phase("executing")
            await task.step(lambda: 1, name="work")
            return task.current.phase

        return await asyncio.gather(task.ask("who?"), moves())

    assert app.run(two, id="t").phase == "waiting_feedback"
    app.signal("t", "go")
    assert app.run(two, id="t").phase == "executing", "what the agent says counts"
    app.answer("t", "ask", "ana")
    assert app.run(two, id="t").result == ["ana", "executing"]


def test_what_is_cancelled_forked_or_rolled_back_asks_no_more(app, either):
    @either()
    def asks(task):
        task.phase("planning")
        yield task.step(lambda: 1, name="one")
        yield task.ask("who?")

    for id in ("a", "b"):
        assert app.run(asks, id=id).phase == "waiting_feedback"
    assert app.fork("a", id="c").phase == "planning"
    assert app.cancel("a").phase == "planning"
    assert app.rollback("b", to=app.get("b").seq - 1).phase == "planning"


def test_a_table_of_phases_and_events_is_a_machine(app, texts):
    class Life(enum.Enum):
        IDLE, PLANNING, EXECUTING, WAITING, DONE = "idle", "planning", "executing", "waiting_feedback", "done"

    table = {
        (Life.IDLE, "new_task"): Life.PLANNING,
        (Life.PLANNING, "plan_ready"): Life.EXECUTING,
        (Life.EXECUTING, "step_complete"): Life.EXECUTING,
        (Life.EXECUTING, "needs_input"): Life.WAITING,
        (Life.WAITING, "input_received"): Life.EXECUTING,
        (Life.EXECUTING, "task_complete"): Life.DONE,
    }
    machine = Machine(table)
    assert machine.start == "idle" and machine.moves["done"] == ()
    assert machine.events["step_complete"] == {"executing": "executing"}

    @agent(phases=machine)
    def lives(task):
        for on in ("new_task", "plan_ready", "step_complete", "step_complete", "needs_input", "input_received"):
            task.phase(on=on)
        task.phase(on="task_complete")
        return task.current.phase

    assert app.run(lives).result == "done"
    allowed = {(phase.value, event) for phase, event in table}
    for phase in Life:
        for event in machine.events:
            if (phase.value, event) not in allowed:
                with pytest.raises(InvalidTransition):
                    phases.moved(machine, phase.value, "", event)
    for wrong in (
        lambda: Machine(table, events={"x": {"idle": "planning"}}),
        lambda: Machine({**table, "done": []}),
        lambda: Machine({("idle",): "done"}),
        lambda: Machine({("idle", 5): "done"}),
        lambda: Machine({("idle", "go"): ["done"]}),
    ):
        with texts.raises(InvalidValue):
            wrong()


def test_a_phase_that_follows_survives_a_crash_anywhere(either):
    @either()
    def asks(task):
        task.phase("planning")
        yield task.ask("who?")
        yield task.step(lambda: 1, name="one")

    def finish(app, state):
        assert state.phase == "waiting_feedback"
        app.answer(state.id, "ask", "ana")

    def check(state, world):
        assert state.phase == "done"

    assert crash_everywhere(asks, finish=finish, check=check, sample=8).survived

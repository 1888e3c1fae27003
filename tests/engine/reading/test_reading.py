"""What a program can ask of a log: now, then, the difference, a fork, a way back."""

import asyncio
import copy
import json
from itertools import pairwise

import jsonpatch
import pytest
from hypothesis import given, strategies as st

import holdfast
from holdfast import StatePatch, events as ev
from holdfast.core import codec, limits
from holdfast.core.state.shapes import FOLD_VERSION
from tests.legal import histories

P = codec.pack


def step(key, result=1, **fields):
    return ev.StepCompleted(key=key, name=key.split("#")[0], result=P(result), **fields)


def worked(app, id="t", **start):
    """A task with two steps, a call and some knowledge."""
    app.start("worker", {"n": 1}, id=id, **start)
    app.append(id, ev.StageSet(stage="drafting"), step("draft#1", {"subject": "hi"}))
    app.append(id, ev.StateSet(name="mood", value=P("good")), ev.FactLearned(key="city", value=P("Oslo"), source="ana"))
    app.append(id, ev.StepStarted(key="send#1", name="send", tool="send", effect="once", idempotency_key="k1"))
    app.append(id, step("send#1", "msg-1", tool="send", effect="once", idempotency_key="k1"))
    return app.get(id)


def test_a_task_has_what_it_was_started_with(app):
    state = app.start("recap", {"notes": "…", "n": 3}, id="r", user="ana", thread="th", goal="tell", queue="q")
    assert (state.id, state.agent, state.status, state.seq, state.turn) == ("r", "recap", "pending", 1, 0)
    assert dict(state.input) == {"notes": "…", "n": 3}
    assert (state.user, state.thread, state.goal) == ("ana", "th", "tell")
    assert state.created_at == state.updated_at
    assert app.get("r").to_dict() == state.to_dict()


def test_an_id_is_made_up_when_none_is_given_and_sorts_by_time(app, clock):
    first = app.start("a")
    clock.advance(1)
    assert first.id < app.start("a").id


def test_everything_an_agent_knows_is_read_back(app):
    app.start("a", id="t")
    app.append(
        "t",
        ev.GoalSet(goal="ship"),
        ev.PlanSet(steps=("one", "two")),
        ev.PlanStepDone(step="one"),
        ev.QuestionOpened(question="why?"),
        ev.QuestionOpened(question="how?"),
        ev.QuestionClosed(question="why?"),
        ev.ArtifactAdded(artifact_id="a1", type="report", data=P("x" * 9000), summary="long", bytes=9000),
        ev.NoteSet(key="n", value=P([1])),
        ev.FlagRaised(flag="risky"),
        ev.DecisionMade(question="which?", choice=P("b"), why="cheaper", options=P(["a", "b"])),
        ev.MessageAdded(message=P({"role": "user", "content": "hi"})),
        ev.StateIncremented(name="count", by=2),
        ev.StateAppended(name="seen", value=P("x")),
        ev.CheckpointMade(label="half"),
    )
    state = app.get("t")
    assert state.goal == "ship"
    assert [(one.text, one.done) for one in state.plan] == [("one", True), ("two", False)]
    assert state.questions == ["how?"]
    assert state.artifacts["a1"].data == "x" * 9000 and state.artifacts["a1"].summary == "long"
    assert dict(state.notes) == {"n": [1]} and state.flags == ["risky"]
    (made,) = state.decisions
    assert (made["question"], made["choice"], made["why"]) == ("which?", "b", "cheaper")
    assert made["options"] == ["a", "b"] and made["seq"] <= state.seq and made["step"] == ""
    assert state.messages == [{"role": "user", "content": "hi"}]
    assert dict(state.state) == {"count": 2, "seen": ["x"]}
    assert dict(state.checkpoints) == {"half": 15}


def test_events_come_in_order_and_in_part(app):
    worked(app)
    records = list(app.events("t"))
    assert [record.seq for record in records] == list(range(1, 8))
    assert [record.kind for record in records][:3] == ["task_created", "stage_set", "step_completed"]
    assert [record.seq for record in app.events("t", after=2, limit=3)] == [3, 4, 5]
    assert all(a.at <= b.at for a, b in pairwise(records))


def test_the_state_before_and_after_each_step_is_there(app):
    worked(app)
    for one in app.steps("t"):
        assert one.key not in app.at("t", one.before).steps
        assert app.at("t", one.after).steps[one.key].status == "completed"
    sent = app.step("t", "send#1")
    assert sent.tool == "send" and sent.result == "msg-1" and sent.started_at <= sent.ended_at
    assert list(app.get("t").calls) == ["send#1"]


def test_steps_of_every_turn_can_be_asked_for(app):
    app.start("a", id="t")
    for turn in (1, 2, 3):
        app.append("t", ev.TurnStarted(turn=turn), step("think#1", f"thought {turn}"))
    assert app.get("t").steps["think#1"].result == "thought 3"
    assert [one.result for one in app.steps("t")] == ["thought 1", "thought 2", "thought 3"]
    assert [one.result for one in app.steps("t", turn=2)] == ["thought 2"]
    assert app.step("t", "2/think#1").result == "thought 2"
    assert app.step("t", "think#1").turn == 3
    for bad in ("7/think#1", "nope#1"):
        with pytest.raises(holdfast.StepNotFound):
            app.step("t", bad)


def test_a_message_made_of_a_steps_result_refers_to_it_and_is_stored_once(app):
    app.start("a", id="t")
    for turn in range(1, 4):
        app.append("t", ev.TurnStarted(turn=turn), ev.MessageAdded(message=P(f"question {turn}")))
        app.append("t", step("model#1", f"answer {turn}"))
        app.append("t", *[ev.LogWritten(text="noise")] * 40)
        app.append("t", ev.MessageAdded(step="model#1"))
    expected = [f"{what} {turn}" for turn in (1, 2, 3) for what in ("question", "answer")]
    assert app.get("t").messages == expected
    assert app.at("t", 90).messages == expected[:4]


@given(histories(stored=False), st.data())
def test_a_diff_applied_to_the_first_state_gives_the_second(events, data):
    with holdfast.open("memory:") as app:
        write(app, "t", events)
        last = len(events)
        a, b = (data.draw(st.integers(1, last)) for _ in range(2))
        before, after = app.at("t", a).to_dict(), app.at("t", b).to_dict()
        assert jsonpatch.JsonPatch(app.diff("t", a, b)).apply(before) == after


def write(app, id, events):
    """A whole history under one id."""
    log = app.logs.create(id, events[:1])
    for event in events[1:]:
        log.append([event])
    return log


@given(histories(stored=False), st.data())
def test_a_fork_leaves_its_parent_as_it_was_and_sees_its_past(events, data):
    with holdfast.open("memory:") as app:
        write(app, "p", events)
        before = app.get("p").to_dict()
        at = data.draw(st.integers(1, len(events)))
        fork = app.fork("p", at=at, id="f", patch=StatePatch(set={"forked": True}))
        app.append("f", ev.LogWritten(text="goes its own way"))
        assert app.get("p").to_dict() == before
        assert [r.digest for r in app.events("f")][:at] == [r.digest for r in app.events("p")][:at]
        assert fork.state["forked"] is True and fork.status == "pending"
        past = app.at("p", at)
        assert {k: s.to_dict() for k, s in fork.steps.items()} == {k: s.to_dict() for k, s in past.steps.items()}
        assert fork.messages == past.messages
        assert app.verify().ok


def test_a_fork_of_a_fork_works_and_the_parent_may_go_on(app):
    worked(app)
    app.fork("t", at=3, id="f")
    app.append("f", step("own#1"))
    app.fork("f", id="g")
    app.append("t", step("later#1"))
    app.append("g", step("deep#1"), ev.TaskCompleted(result=P("g")))
    assert set(app.get("g").steps) == {"draft#1", "own#1", "deep#1"}
    assert set(app.get("t").steps) == {"draft#1", "send#1", "later#1"}
    assert [record.log for record in app.events("g")] == ["t", "t", "t", "f", "f", "g", "g", "g"]
    assert app.at("g", 2).stage == "drafting" and app.at("g", 2).id == "g"
    assert app.verify().ok


def test_the_forks_of_a_task_are_its_own_and_those_of_its_namespace(url, app):
    app.start("recap", id="first")
    assert app.forks("first") == [] == app.forks("nobody")
    app.fork("first", id="one")
    app.fork("first", id="two")
    app.fork("one", id="of-one")
    assert app.forks("first") == ["one", "two"] and app.forks("one") == ["of-one"]
    assert asyncio.run(app.aio.forks("first")) == ["one", "two"]
    if not url.startswith("memory"):
        with holdfast.open(url, namespace="theirs") as tenant:
            assert tenant.forks("first") == [] and tenant.start("recap", id="first").seq == 1
            tenant.fork("first", id="one")
            assert tenant.forks("first") == ["one"]


def test_a_fork_copies_nothing(app):
    worked(app)
    before = app.stats().events
    app.fork("t", id="f")
    assert app.stats().events == before + 1


def test_a_fork_inherits_neither_the_end_nor_the_claim_nor_the_waits(app):
    worked(app)
    app.append("t", ev.TaskClaimed(holder="1-1"), ev.WaitStarted(key="w#1", wait="person", name="ask"))
    app.append("t", ev.TaskSuspended(why="person"))
    fork = app.fork("t")
    assert (fork.status, fork.holder, fork.waiting.kind) == ("pending", None, "no_worker")
    assert app.get("t").waiting.kind == "person" and app.get("t").waiting.on[0]["name"] == "ask"


def test_a_rollback_is_an_event_and_history_is_kept(app):
    worked(app)
    app.append("t", ev.StateSet(name="mood", value=P("bad")), step("extra#1"))
    back = app.rollback("t", 1, by="ana", why="wrong turn")
    assert set(back.steps) == {"draft#1", "send#1"} and back.state["mood"] == "bad"
    back = app.rollback("t", 2)
    assert "send#1" not in back.steps and len(list(app.events("t"))) == 11
    assert app.at("t", 9).steps["extra#1"].result == 1, "what was rolled back can still be seen"
    assert app.get("t").to_dict() == back.to_dict()
    assert app.verify("t").ok


def test_a_rollback_keeps_the_outcome_of_calls_so_that_they_are_not_made_again(app):
    worked(app)
    back = app.rollback("t", to=2)
    assert back._state.kept["k1"].result == P("msg-1")
    assert dict(back.steps) == {}


def test_a_rollback_to_a_label_and_to_a_seq(app, texts):
    worked(app)
    app.append("t", ev.CheckpointMade(label="good"))
    app.append("t", ev.StateSet(name="mood", value=P("bad")))
    assert app.rollback("t", to="good").state["mood"] == "good"
    assert dict(app.rollback("t", to=1).state) == {}
    with texts.raises(holdfast.InvalidValue):
        app.rollback("t", to="bad")


def test_a_rollback_is_refused_while_a_call_is_in_doubt_and_beyond_the_last_event(app, texts):
    worked(app)
    with pytest.raises(holdfast.HoldfastError):
        app.rollback("t", to=99)
    app.append("t", ev.StepStarted(key="pay#1", name="pay", tool="pay", effect="once"))
    with texts.raises(holdfast.InvalidEvent):
        app.rollback("t", 1)


def test_a_completed_task_can_be_rolled_back_and_goes_on(app):
    worked(app)
    app.append("t", ev.TaskCompleted(result=P("done")))
    back = app.rollback("t", 1)
    assert (back.status, back.result) == ("pending", None)
    app.append("t", step("again#1"))


@given(histories(max_size=40, stored=False), st.data())
def test_snapshots_anywhere_change_no_answer(events, data):
    with holdfast.open("memory:") as app:
        log = app.logs.create("t", events[:1])
        for event in events[1:]:
            log._snapshot_at = -1 if data.draw(st.booleans()) else 1 << 30
            log.append([event])
        with_snapshots = [app.at("t", seq).to_dict() for seq in range(1, len(events) + 1)]
        app.store.drop_snapshots()
        assert [app.at("t", seq).to_dict() for seq in range(1, len(events) + 1)] == with_snapshots


def test_snapshots_are_taken_by_weight_and_rotate(app):
    app.start("a", id="t")
    log = app.logs.load("t")
    for n in range(400):
        log.append([ev.StateSet(name=f"k{n % 5}", value=P("x" * 1000))])
    assert 1 <= app.stats().snapshots <= limits.SNAPSHOTS_KEPT
    newest = app.store.snapshot("t", version=FOLD_VERSION)
    assert newest.seq > 250, "the tail stays short"


def test_a_snapshot_the_log_does_not_confirm_is_ignored(app, caplog, texts):
    app.start("a", id="t")
    log = app.logs.load("t")
    log._snapshot_at = -1
    log.append([step("a#1")])
    snapshot = app.store.snapshot("t", version=FOLD_VERSION)
    from holdfast.core.codec import Group, Snapshot, Write

    lie = Snapshot(2, b"\0" * 32, FOLD_VERSION, 0, snapshot.body)
    app.store.append([Group((Write("t", (codec.draft(step("b#1"), 1)[0],), snapshot=lie),))])
    app.logs.cache.states.clear()
    assert set(app.get("t").steps) == {"a#1", "b#1"}
    for said in caplog.messages:
        texts.check(said)


def test_lists_page_through_everything(app):
    for n in range(25):
        app.start("a" if n % 2 else "b", id=f"t{n:02}", user="ana" if n == 7 else None)
    seen, after = [], None
    while page := app.list(limit=10, after=after):
        seen += [row.id for row in page]
        after = page[-1].id
    assert seen == [f"t{n:02}" for n in reversed(range(25))]
    assert len(app.list(agent="a")) == 12 and [row.id for row in app.list(user="ana")] == ["t07"]


def test_a_running_task_whose_holder_is_dead_is_interrupted(app):
    app.start("a", id="t")
    app.append("t", ev.TaskClaimed(holder="1-dead"))
    assert app.get("t").interrupted
    log = app.logs.load("t")
    log.claim()
    assert not app.get("t").interrupted and app.get("t").holder == app.store.holder()


def test_a_living_holder_keeps_others_out(tmp_path):
    path = str(tmp_path / "a.db")
    with holdfast.open(path) as one, holdfast.open(path) as two:
        one.start("a", id="t")
        one.logs.load("t").claim()
        with pytest.raises(holdfast.TaskBusy):
            two.logs.load("t").claim()
        one.close()
        two.logs.load("t").claim()
        assert two.get("t").holder == two.store.holder()


def test_a_log_that_others_appended_to_is_refreshed(app):
    app.start("a", id="t")
    log = app.logs.load("t")
    app.append("t", step("other#1"))
    with pytest.raises(holdfast.Conflict):
        log.append([step("mine#1")])
    assert len(log.refresh()) == 1
    log.append([step("mine#1")])
    assert set(app.get("t").steps) == {"other#1", "mine#1"}


@pytest.mark.parametrize(
    ("change", "patch"),
    [
        (lambda state: setattr(state, "city", "Bergen"), "set={'city': 'Bergen'}"),
        (lambda state: state.__setitem__("city", "Bergen"), "set={'city': 'Bergen'}"),
        (lambda state: state.__delitem__("city"), "delete=['city']"),
        (lambda state: state["likes"].append("trains"), "append={'likes': 'trains'}"),
        (lambda state: state["seats"]["old"].append("12A"), "append={'seats.old': '12A'}"),
        (lambda state: state["seats"].update(now="12B"), "set={'seats': …}"),
    ],
)
def test_a_state_that_is_read_from_outside_cannot_be_changed_and_names_the_patch(app, change, patch):
    app.start("a", id="t")
    app.patch("t", holdfast.StatePatch(set={"city": "Oslo", "likes": [], "seats": {"old": []}}))
    for state in (app.get("t").state, app.at("t", 2).state):
        with pytest.raises(holdfast.StateMutated) as refused:
            change(state)
        assert refused.value.hint == f"write: app.patch('t', StatePatch({patch}))"
        assert state == app.get("t").state == {"city": "Oslo", "likes": [], "seats": {"old": []}}
        copied = copy.deepcopy(dict(state))
        copied["likes"].append("trains")
        assert json.dumps(dict(state)) == '{"city": "Oslo", "likes": [], "seats": {"old": []}}'

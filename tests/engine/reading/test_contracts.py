"""Contracts at work: tasks that begin with one, hand theirs on, and keep to its constraints."""

import asyncio
import json

import pytest

import holdfast
from holdfast import (
    InputConflict,
    InvalidTransition,
    InvalidValue,
    Machine,
    StatePatch,
    Suspended,
    TaskState,
    agent,
    events as ev,
    tool,
)
from holdfast.testing import crash_everywhere
from holdfast.testing.crash.everywhere import MovableClock
from tests.engine.both import Crash, events, kinds

CLOCK = MovableClock

CAREFUL = {"human_in_the_loop": {"required_for_risk_levels": ["external_action"]}, "regions": ["eu"]}
CONTRACT = {
    "goal": "tell the customers",
    "constraints": CAREFUL,
    "budget": {"max_steps": 40, "max_llm_tokens": 1_000},
    "plan": ["write", "send"],
    "known_facts": [{"key": "customers", "value": 3, "source": "crm"}],
    "open_questions": ["which tone?"],
    "artifacts": [{"artifact_id": "a-1", "type": "text", "summary": "a draft", "bytes": 12, "data": "hello all"}],
    "risk_flags": ["public"],
    "plan_done": ["write"],
    "notes": {"tone": "calm"},
    "stage": "sending",
    "decisions": [{"question": "when?", "choice": "now", "why": "urgent", "options": ["later"]}],
    "messages": [{"role": "user", "content": "go"}],
    "state": {"sent": 0},
}


@tool(effect="once", risk="external_action")
def post(text: str) -> str:
    return f"posted {text}"


@tool(effect="read", risk="read_local")
def look(at: str) -> str:
    return f"saw {at}"


def test_a_task_begins_with_all_that_its_contract_has_in_one_write(app, either):
    seen = []

    @either()
    def teller(task):
        seen.append((task.state.sent, task.messages[0]["content"] if len(task.messages) else None))
        task.state.increment("sent")
        yield task.step(lambda: 1, name="one")
        task.done("send")
        return task.state.sent

    done = app.run(teller, {}, id="t", contract=CONTRACT)
    assert (done.result, seen[0]) == (1, (0, "go"))
    assert kinds(app)[-1] == "task_completed" and kinds(app).index("task_claimed") == 12
    assert app.at("t", 12).contract() == CONTRACT
    assert [step.done for step in done.plan] == [True, True] and done.artifacts["a-1"].data == "hello all"
    assert done.constraints == CAREFUL and done.to_dict()["constraints"] == CAREFUL


def test_every_way_to_begin_a_task_takes_a_contract(app):
    @agent
    async def idler(task):
        return task.id

    app.start("somebody", id="started", contract=json.dumps(CONTRACT))
    app.start(idler, id="known", contract=CONTRACT)
    asyncio.run(app.arun(idler, id="awaited", contract=CONTRACT))
    with app.task("block", id="block", contract=CONTRACT) as task:
        task.state.sent = 1
        task.finish("ok")
    assert app.get("started").contract() == app.get("known").contract() == CONTRACT
    assert app.get("awaited").contract() == {**CONTRACT, "final_answer": "awaited"}
    assert app.get("block").contract() == {**CONTRACT, "final_answer": "ok", "state": {"sent": 1}}


def test_the_same_id_with_another_contract_is_another_task(app, texts):
    @agent
    def idler(task):
        return task.wait("go")

    app.run(idler, id="t", contract=CONTRACT)
    app.patch("t", StatePatch(set={"sent": 5}))
    before = app.get("t").seq
    other = {**CONTRACT, "plan": ["send"], "plan_done": []}
    with texts.raises(InputConflict):
        app.run(idler, id="t", contract=other)
    with texts.raises(InputConflict):
        app.run(idler, id="t", contract={**CONTRACT, "messages": []})
    assert app.get("t").seq == before
    reordered = json.dumps(dict(reversed(CONTRACT.items())))
    assert app.run(idler, id="t", contract=reordered).status == "waiting", "the same contract is the same task"
    app.signal("t", "go", 7)
    assert app.run(idler, id="t").result == 7, "going on needs none"

    app.run(idler, id="plain")
    with pytest.raises(InputConflict):
        app.run(idler, id="plain", contract=CONTRACT)
    with pytest.raises(Suspended), app.task("block", id="b", contract=CONTRACT) as task:
        task.wait("go")
    with pytest.raises(InputConflict), app.task("block", id="b", contract=other):
        pass


def test_calls_of_the_constraint_s_risks_wait_for_an_approval(app, either):
    @either()
    def teller(task):
        seen = yield task.call(look, at="mail")
        return [seen, (yield task.call(post, text="hello"))]

    waiting = app.run(teller, id="t", contract={"constraints": CAREFUL})
    assert (waiting.status, waiting.waiting.kind, waiting.waiting.on[0]["key"]) == ("waiting", "person", "post#1")
    assert waiting.waiting.on[0]["risk"] == "external_action"
    app.approve("t", "post#1", by="ana")
    assert app.run(teller, id="t").result == ["saw mail", "posted hello"]
    assert app.run(teller, id="u").result == ["saw mail", "posted hello"], "without the constraint nobody is asked"


def test_the_constraint_is_added_to_what_the_agent_asks_for(app):
    @agent(required_for_risk_levels=["read_local"])
    def teller(task):
        return [task.call(look, at="mail"), task.call(post, text="hello")]

    for key in ("look#1", "post#1"):
        waiting = app.run(teller, id="t", contract={"constraints": CAREFUL})
        assert [one["key"] for one in waiting.waiting.on] == [key]
        app.approve("t", key)
    assert app.run(teller, id="t").status == "completed"


def test_a_refused_call_stays_refused_and_is_not_made(app):
    made = []

    @tool(effect="idempotent", risk="write_local")
    def write(text: str) -> None:
        made.append(text)

    @agent
    def writer(task):
        try:
            task.call(write, text="x")
        except holdfast.ApprovalDenied as denied:
            return str(denied)

    contract = {"constraints": {"human_in_the_loop": {"required_for_risk_levels": ["write_local"]}}}
    app.run(writer, id="t", contract=contract)
    app.reject("t", "write#1", by="ana", why="not now")
    assert "ana refused: not now" in app.run(writer, id="t").result and not made


def test_children_forks_and_rollbacks_keep_to_the_constraint(app):
    @agent
    def child(task):
        return task.call(post, text="hello")

    @agent
    def parent(task):
        task.step(lambda: 1, name="one")
        return task.spawn(child)

    contract = {"constraints": {**CAREFUL, "long": "x" * 9_000}}
    waiting = app.run(parent, id="t", contract=contract)
    assert (waiting.waiting.kind, app.get("t/child#1").waiting.kind) == ("child", "person")
    assert app.get("t/child#1").constraints == contract["constraints"]
    fork = app.fork("t", at=app.step("t", "one#1").after, id="f", effects="live")
    assert fork.constraints == contract["constraints"] and fork.contract()["constraints"] == contract["constraints"]
    assert app.run(parent, id="f").status == "waiting" and app.get("f/child#1").waiting.kind == "person"
    app.cancel("t")
    app.run(parent, id="t")
    with app.task("b", id="b", contract=contract) as task:
        task.step(lambda: 1, name="one")
    assert app.rollback("b", 1).constraints == contract["constraints"]
    assert app.verify().ok


def test_a_replay_keeps_to_the_constraint_the_task_began_with(app, either, texts):
    dead = [True]

    @either()
    def teller(task):
        first = yield task.call(post, text="one")
        if dead:
            dead.clear()
            raise Crash
        return [first, (yield task.call(post, text="two"))]

    app.run(teller, id="t", contract={"constraints": CAREFUL})
    app.approve("t", "post#1")
    with pytest.raises(Crash):
        app.run(teller, id="t")
    with texts.raises(InputConflict):
        app.run(teller, id="t", contract={})
    waiting = app.run(teller, id="t")
    assert [one["key"] for one in waiting.waiting.on] == ["post#2"], "the first is not asked for again"
    assert len(events(app, "approval_asked")) == 2


def test_a_crash_anywhere_leaves_the_contract_whole_and_asks_for_each_approval_once():
    @agent
    def teller(task):
        task.state.increment("sent")
        sent = task.call(post, text="hello")
        task.done("send")
        task.state.increment("sent")
        task.step(lambda: 2, name="two")
        return sent

    def drive(app):
        return app.run(teller, id="crash-test", contract=CONTRACT)

    def agree(app, state):
        waits = [one["kind"] for one in state.waiting.on]
        if waits == ["approval"]:
            app.approve(state.id, "post#1", by="ana")
        else:
            app.settle(state.id, "post#1", happened=True, result="posted hello")

    def whole(state, *_):
        told = state.contract()
        assert len(told.pop("tool_calls")) == 1
        further = {"plan_done": ["write", "send"], "state": {"sent": 2}, "final_answer": "posted hello"}
        assert told == {**CONTRACT, **further}

    report = crash_everywhere(drive=drive, finish=agree, check=whole, agents=[teller])
    assert report.survived == report.tried > 10


def test_what_a_task_has_become_can_be_handed_to_another(app, either):
    @either(loop=True)
    def worker(task):
        if task.turn == 1:
            task.phase(on="new_task")
            task.plan(["look", "post"])
        task.fact("seen", (yield task.call(look, at=f"{task.turn}")), source="look")
        if task.turn == 2:
            task.done("look")
            return "done"

    app.run(worker, id="first")
    told = json.loads(json.dumps(app.get("first").contract()))
    assert told["phase"] == "planning" and told["turn"] == 2 and told["final_answer"] == "done"
    assert [(call["turn"], call["key"], call["result"]) for call in told["tool_calls"]] == [
        (1, "look#1", "saw 1"),
        (2, "look#1", "saw 2"),
    ]
    assert TaskState.from_contract(told).contract() == told
    second = app.start(worker, id="second", contract=told)
    life = ("phase", "turn", "tool_calls", "final_answer")
    assert second.contract() == {name: section for name, section in told.items() if name not in life}
    assert app.run(worker, id="second").result == "done", "it has a life of its own"


def test_the_contract_at_any_moment_is_what_was_known_then(app):
    @agent(loop=True)
    def worker(task):
        task.call(look, at=f"{task.turn}")
        return "done" if task.turn == 3 else None

    app.run(worker, id="t")
    turns = [record.seq for record in app.events("t") if record.kind == "turn_started"]
    for turn, seq in enumerate(turns, start=1):
        then = app.at("t", seq).contract()
        assert (then["turn"], len(then.get("tool_calls", []))) == (turn, turn - 1)
    back = app.rollback("t", 1).contract()
    assert [call["turn"] for call in back["tool_calls"]] == [1, 2] and "final_answer" not in back
    fork = app.fork("t", at=turns[1], id="f").contract()
    assert [call["turn"] for call in fork["tool_calls"]] == [1]


def test_calls_in_every_state_are_told_and_read_back(app):
    app.start("a", id="t")
    app.append("t", ev.StepStarted(key="pay#1", name="pay", tool="pay", effect="once"))
    app.append("t", ev.TurnStarted(turn=1), ev.StepStarted(key="pay#1", name="pay", tool="pay", effect="once"))
    app.append("t", ev.StepDoubted(key="pay#1"))
    failure = ev.Failure("OSError", "no")
    app.append("t", ev.AttemptFailed(key="b#1", name="b", tool="b", attempt=2, failure=failure, retry_us=5))
    told = app.get("t").contract()["tool_calls"]
    assert [(call["key"], call["status"], call["turn"]) for call in told] == [
        ("0/pay#1", "running", 1),
        ("pay#1", "doubt", 1),
        ("b#1", "retrying", 1),
    ]
    assert TaskState.from_contract(app.get("t").contract()).contract()["tool_calls"] == told


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"contract": {"goal": "a"}, "goal": "b"}, InvalidValue),
        ({"contract": {"stage": "x"}, "stages": ["a"]}, InvalidTransition),
        ({"contract": {"messages": ["hi"]}}, InvalidValue),
        ({"contract": {"messages": [{"content": "hi"}]}}, InvalidValue),
        ({"contract": {"nothing": 1}}, InvalidValue),
        ({"contract": 7}, InvalidValue),
        ({"contract": {}, "phases": {"a": []}}, InvalidValue),
    ],
)
def test_a_contract_that_does_not_fit_begins_nothing(app, given, error, texts):
    for begin in (
        lambda: app.start("a", id="t", **given),
        lambda: app.run(agent(name="a")(lambda task: None), id="t", **given),
        lambda: app.task("a", id="t", **given).__enter__(),
    ):
        with texts.raises(error):
            begin()
    assert app.stats().events == 0


def test_a_task_s_goal_may_be_given_beside_a_contract_that_has_none(app):
    assert app.start("a", id="t", goal="b", contract={"plan": ["x"]}).goal == "b"
    assert app.start("a", id="u", goal="b", contract={"goal": "b"}).goal == "b"


def test_a_block_may_have_phases_of_its_own(app):
    machine = Machine({"draft": ["final"], "final": []}, events={"publish": {"draft": "final"}})
    with app.task("block", id="t", phases=machine, contract=CONTRACT) as task:
        task.phase(on="publish")
    told = app.get("t").contract()
    assert told["phase"] == "final" and TaskState.from_contract(told).phase == "final"
    assert TaskState.from_contract(told).contract() == told


def test_a_state_that_stands_alone_reads_like_any_other():
    state = TaskState.from_contract(json.dumps(CONTRACT))
    assert (state.id, state.agent, state.status, state.turn) == ("contract", "nobody", "pending", 0)
    told = [{name: made[name] for name in CONTRACT["decisions"][0]} for made in state.decisions]
    assert state.messages == CONTRACT["messages"] and told == CONTRACT["decisions"]
    assert state.artifacts["a-1"].data == "hello all" and not state.interrupted
    assert state.to_dict()["plan"] == [{"step": "write", "done": True}, {"step": "send", "done": False}]


def test_large_values_of_a_contract_are_kept_beside_the_log(app):
    big = "z" * 50_000
    contract = {
        "known_facts": [{"key": "k", "value": big, "source": ""}],
        "state": {"s": [big]},
        "notes": {"n": big},
        "constraints": {"why": big},
    }
    begun = app.start("a", id="t", contract=contract)
    assert {name: begun.contract()[name] for name in contract} == contract
    assert sum(len(row.body) for row in app.store.read("t")) < 5_000
    assert TaskState.from_contract(begun.contract()).contract() == begun.contract()


def test_a_contract_survives_export_and_import(app, tmp_path):
    app.start("a", id="t", contract=CONTRACT)
    app.export("t", tmp_path / "t.jsonl")
    with holdfast.open("memory:") as other:
        other.import_(tmp_path / "t.jsonl")
        assert other.get("t").contract() == CONTRACT

"""The contract: JSON to state and back without a loss, and a named refusal for what is none."""

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import holdfast
from holdfast import InvalidValue, TaskState
from holdfast.core import limits
from holdfast.core.codec import Group, Origin
from holdfast.core.phases import PHASES
from holdfast.core.state import contract
from holdfast.engine.logs.log import Log
from tests.legal import histories, json_values

DOCS = Path(__file__).parents[3] / "docs"
KNOWN = {
    "goal": "restart the checkout service",
    "constraints": {
        "human_in_the_loop": {"required_for_risk_levels": ["write_local", "external_action"], "who": "on call"},
        "regions": ["eu"],
        "$blob": {"never": None},
    },
    "budget": {
        "max_steps": 40,
        "max_wall_time_ms": 60_000,
        "max_llm_tokens": 200_000,
        "max_artifact_bytes_in_context": 8_192,
    },
    "plan": ["look", "restart", "look"],
    "known_facts": [{"key": "service", "value": {"name": "checkout"}, "source": "pager"}],
    "open_questions": ["since when?"],
    "artifacts": [{"artifact_id": "log-1", "type": "log", "summary": "last hour", "bytes": 812}],
    "risk_flags": ["production"],
}
FURTHER = {
    "plan_done": ["look"],
    "notes": {"tone": "calm"},
    "stage": "repairing",
    "phase": "executing",
    "turn": 2,
    "decisions": [{"question": "restart?", "choice": True, "why": "it hangs", "options": [False]}],
    "messages": [{"role": "user", "content": "help"}],
    "tool_calls": [
        {
            "key": "probe#1",
            "tool": "probe",
            "status": "completed",
            "effect": "read",
            "arguments": {"n": 1},
            "result": None,
            "turn": 1,
        },
        {
            "key": "restart#1",
            "tool": "restart",
            "status": "failed",
            "effect": "once",
            "arguments": {},
            "error": {"type": "OSError", "message": "no"},
            "turn": 2,
            "attempts": 3,
            "idempotency_key": "t:restart",
        },
    ],
    "state": {"tries": 3},
    "error": {"type": "StepFailed", "message": "no", "cause": {"type": "OSError", "message": "no"}},
}

names = st.text(min_size=1, max_size=8)
texts = st.text(max_size=8)
counts = st.integers(0, 2**53)
failures = st.fixed_dictionaries({"type": texts, "message": texts}, optional={"notes": st.lists(names, min_size=1)})


def up_to(strategy, key=None, most=3):
    return st.lists(strategy, max_size=most, unique_by=key or (lambda one: one))


def calls(turn):
    """Calls of one turn, each in a state that a call can be in."""

    def call(status):
        fields = {
            "key": names,
            "tool": names,
            "status": st.just(status),
            "arguments": st.dictionaries(texts, json_values),
            "effect": st.sampled_from(["read", "idempotent", "once", "transaction"]),
        }
        optional = {"attempts": st.integers(2, 5), "idempotency_key": names}
        if status == "completed":
            fields["result"] = json_values
        if status in ("failed", "retrying"):
            fields["error"] = failures
        elif status != "running":
            optional["error"] = failures
        if turn:
            fields["turn"] = st.just(turn)
        return st.fixed_dictionaries(fields, optional=optional)

    statuses = ["completed", "failed", "void", "running", "retrying", "doubt"]
    return st.sampled_from(statuses).flatmap(call)


@st.composite
def contracts(draw):
    """Any contract, as `TaskState.contract` would write it."""
    plan = draw(st.lists(texts, max_size=4))
    turn = draw(st.integers(0, 3))
    made = [
        one
        for number in range(turn + 1)
        for one in draw(up_to(calls(number), lambda call: call["key"]))
        if number == turn or one["status"] in ("completed", "failed", "void")
    ]
    known = {
        "goal": draw(texts),
        "constraints": draw(
            st.dictionaries(texts, json_values, max_size=2).map(
                lambda one: {name: value for name, value in one.items() if name != "human_in_the_loop"}
            )
            | st.just({"human_in_the_loop": {"required_for_risk_levels": ["a"], "by": None}, "x": [1.0]})
        ),
        "budget": draw(
            st.fixed_dictionaries(
                {},
                optional={
                    **dict.fromkeys(KNOWN["budget"], counts),
                    "max_turns": counts,
                    "max_calls": counts,
                    "max_cost": st.floats(0, 1e9),
                    "on_exceed": st.just("ask"),
                },
            )
        ),
        "plan": plan,
        "known_facts": draw(
            up_to(st.fixed_dictionaries({"key": names, "value": json_values, "source": texts}), lambda one: one["key"])
        ),
        "open_questions": draw(up_to(texts)),
        "artifacts": draw(
            up_to(
                st.fixed_dictionaries(
                    {"artifact_id": texts, "type": texts, "summary": texts, "bytes": counts},
                    optional={"step": names, "data": json_values.filter(lambda one: one is not None)},
                ),
                lambda one: one["artifact_id"],
            )
        ),
        "risk_flags": draw(up_to(names)),
    }
    said = st.fixed_dictionaries({"question": texts, "choice": json_values, "why": texts, "options": st.lists(texts)})
    further = {
        "plan_done": [step for step in dict.fromkeys(plan) if draw(st.booleans())],
        "notes": draw(st.dictionaries(names, json_values, max_size=2)),
        "stage": draw(st.none() | names.filter(lambda one: "\0" not in one)),  # a column holds no NUL
        "phase": draw(st.sampled_from(sorted(PHASES)) | names),
        "turn": turn,
        "decisions": draw(st.lists(said, max_size=2)),
        "messages": draw(st.lists(json_values, max_size=3)),
        "tool_calls": made,
        "state": draw(st.dictionaries(names, json_values, max_size=3)),
    }
    ended = draw(
        st.just({}) | st.builds(lambda one: {"final_answer": one}, json_values) | st.builds(dict, error=failures)
    )
    empty = ([], {}, None, 0, "idle")
    return known | {name: one for name, one in further.items() if one not in empty} | ended


@given(contracts())
def test_any_contract_comes_back_from_a_state_as_it_was(document):
    text = json.dumps(document)
    state = TaskState.from_contract(text)
    again = json.dumps(state.contract())
    assert json.loads(again) == json.loads(text)
    assert TaskState.from_contract(again).contract() == state.contract()


@given(histories(stored=False))
def test_the_contract_of_any_task_goes_through_json_and_back(events):
    with holdfast.open("memory:") as app:
        log = Log(app.logs, "task-1")
        write = log.draft(events, Origin())
        log.accept(write, app.logs.committer.commit(Group((write,)))[0])
        told = app.get("task-1").contract()
    alone = TaskState.from_contract(json.dumps(told))
    assert alone.contract() == json.loads(json.dumps(told))


@given(contracts())
def test_a_task_begun_with_a_contract_knows_all_that_is_in_it(document):
    life = ("phase", "turn", "tool_calls", "final_answer", "error")
    document = {name: section for name, section in document.items() if name not in life}
    document.pop("messages", None)
    with holdfast.open("memory:") as app:
        begun = app.start("a", {"n": 1}, id="t", contract=json.dumps(document))
        assert begun.contract() == json.loads(json.dumps(document))
        again = app.start("b", id="u", contract=begun.contract())
        assert again.contract() == begun.contract() and again.seq == begun.seq
        assert app.verify().ok


def test_every_section_is_read_and_shown_as_what_it_is():
    state = TaskState.from_contract(KNOWN | FURTHER)
    assert (state.goal, state.stage, state.phase, state.turn) == (KNOWN["goal"], "repairing", "executing", 2)
    assert state.constraints == KNOWN["constraints"]
    assert [(step.text, step.done) for step in state.plan] == [("look", True), ("restart", False), ("look", True)]
    assert state.facts["service"].value == {"name": "checkout"} and state.facts["service"].source == "pager"
    assert (state.questions, state.flags) == (["since when?"], ["production"])
    assert state.artifacts["log-1"].summary == "last hour" and state.notes["tone"] == "calm"
    told = [{name: made[name] for name in FURTHER["decisions"][0]} for made in state.decisions]
    assert told == FURTHER["decisions"] and state.messages == FURTHER["messages"]
    assert state.calls["restart#1"].attempts == 3 and state.calls["restart#1"].failure.type == "OSError"
    assert (state.status, state.failure.cause.type, state.state["tries"]) == ("failed", "OSError", 3)
    assert state.contract() == KNOWN | FURTHER


def test_what_people_know_as_a_contract_comes_back_word_for_word():
    assert TaskState.from_contract(json.dumps(KNOWN).encode()).contract() == KNOWN
    empty = TaskState.from_contract({}).contract()
    assert list(empty) == list(KNOWN) and not any(empty.values())


def test_an_answer_of_nothing_is_an_answer():
    assert TaskState.from_contract({"final_answer": None}).contract()["final_answer"] is None
    assert TaskState.from_contract({"final_answer": None}).status == "completed"
    assert "final_answer" not in TaskState.from_contract({}).contract()


def test_the_schema_in_the_docs_is_that_of_the_code():
    assert json.loads((DOCS / "contract.schema.json").read_text("utf-8")) == json.loads(json.dumps(contract.schema()))


def test_the_schema_names_every_section_and_refuses_others():
    found = contract.schema()["$defs"]
    assert {*KNOWN, *FURTHER, "final_answer"} == set(found["Contract"]["properties"])
    assert found["Contract"]["additionalProperties"] is False
    assert "additionalProperties" not in found["Constraints"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"gaol": "x"},
        {"goal": 3},
        {"budget": {"max_stps": 3}},
        {"budget": {"max_steps": -1}},
        {"budget": {"max_steps": True}},
        {"budget": {"on_exceed": "explode"}},
        {"plan": "look"},
        {"plan": [{"step": "look"}]},
        {"known_facts": [{"key": "a"}]},
        {"known_facts": [{"key": "a", "value": 1, "sure": 2}]},
        {"known_facts": [{"key": "a", "value": 1}, {"key": "a", "value": 2}]},
        {"known_facts": [{"key": "", "value": 1}]},
        {"artifacts": [{"artifact_id": "a", "type": "t"}] * 2},
        {"artifacts": [{"artifact_id": "a", "type": "t", "bytes": -1}]},
        {"open_questions": ["a", "a"]},
        {"risk_flags": ["a", "a"]},
        {"risk_flags": ["x" * 201]},
        {"plan_done": ["a"]},
        {"constraints": []},
        {"constraints": {"human_in_the_loop": {"required_for_risk_levels": "all"}}},
        {"constraints": {"human_in_the_loop": True}},
        {"final_answer": 1, "error": {"type": "E", "message": ""}},
        {"error": {"type": "E", "message": "", "stack": "x"}},
        {"turn": limits.MAX_CONTRACT_ITEMS + 1},
        {"tool_calls": [{"key": "a#1", "tool": "a", "status": "lost"}]},
        {"tool_calls": [{"key": "a#1", "tool": "a", "status": "completed"}]},
        {"tool_calls": [{"key": "a#1", "tool": "a", "status": "running", "result": 1}]},
        {"tool_calls": [{"key": "a#1", "tool": "a", "status": "failed"}]},
        {"tool_calls": [{"key": "a#1", "tool": "a", "status": "void", "turn": 1}]},
        {"tool_calls": [{"key": "a#1", "tool": "a", "status": "doubt"}], "turn": 1},
        "{",
        b"\xff",
        '{"state": {"a": NaN}}',
        "[1]",
        7,
    ],
)
def test_what_is_no_contract_is_refused_with_its_place_and_nothing_is_written(wrong, texts):
    with texts.raises(InvalidValue) as refused:
        TaskState.from_contract(wrong)
    assert refused.value.hint
    with holdfast.open("memory:") as app:
        with texts.raises(InvalidValue):
            app.start("a", id="t", contract=wrong)
        assert app.stats().events == 0


def test_a_value_that_is_not_json_is_refused_with_its_place(texts):
    with texts.raises(holdfast.NotSerializable):
        TaskState.from_contract({"state": {"a": float("nan")}})

"""Context slices of any state: of a task now, as it was, of a contract."""

import pytest

import holdfast
from holdfast import Budget, InvalidValue, WindowTooSmall, agent

STORES = ("memory", "sqlite", "postgres")


@agent(budget=Budget(artifact_bytes=4_000))
def deploys(task, goal: str):
    shown = []
    for n in range(3):
        task.fact(f"fact {n}", n, source="log")
        task.artifact("x" * (n + 1) * 100, summary=f"output {n}", step="deploy")
        task.step(lambda: 1, name="deploy")
        shown.append(task.context("deploy", max_bytes=2_000).text)
    return shown


def test_a_slice_of_a_past_state_is_what_the_model_was_shown(app):
    done = app.run(deploys, {"goal": "ship it"}, id="t")
    ends = [step.after for step in done.steps.values()]
    shown = [app.at("t", seq).context("deploy", max_bytes=2_000) for seq in ends]
    assert [one.text for one in shown] == done.result
    assert shown[-1].goal == "ship it" and [one.key for one in shown[0].facts] == ["fact 0"]
    assert app.get("t").context("deploy", max_bytes=2_000) == shown[-1]


def test_a_slice_takes_its_limit_from_the_budget(app, texts):
    done = app.run(deploys, {"goal": "ship it"}, id="t")
    assert done.context("deploy").size <= 4_000
    assert done.context("deploy", max_tokens=200).unit == "tokens"
    app.start("nothing", id="bare")
    with texts.raises(InvalidValue):
        app.get("bare").context("deploy")
    for odd in ({"max_bytes": 0}, {"max_bytes": "9"}, {"max_tokens": 1, "max_bytes": 1}):
        with pytest.raises(InvalidValue):
            done.context("deploy", **odd)
    with pytest.raises(InvalidValue):
        done.context("")
    with pytest.raises(WindowTooSmall):
        done.context("deploy", max_bytes=10)


def test_a_contract_that_stands_alone_has_slices_too():
    alone = holdfast.TaskState.from_contract(
        {"goal": "ship it", "budget": {"max_artifact_bytes_in_context": 500}, "known_facts": [{"key": "a", "value": 1}]}
    )
    assert "- a: 1" in alone.context("deploy").text

"""Budgets: they hold across crashes, forks and children, and nothing that was spent is hidden."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest

import holdfast
from holdfast import (
    AsyncTask,
    Budget,
    BudgetExceeded,
    InvalidValue,
    Price,
    Retry,
    StepFailed,
    Task,
    UnknownPrice,
    Usage,
    agent,
    events,
    tool,
)
from holdfast.core import limits
from holdfast.engine.app import App
from holdfast.llm import loop_agent
from holdfast.testing.clock import FakeClock

STORES = ("memory", "sqlite", "postgres")


def model(prompt: str, tokens: int = 100) -> dict[str, Any]:
    return {"content": prompt, "model": "m", "usage": {"prompt_tokens": tokens, "completion_tokens": tokens // 2}}


def silent(prompt: str) -> str:
    return prompt


@tool(effect="idempotent")
def search(query: str) -> str:
    return query


@pytest.fixture(params=["memory:", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Any):
    url = request.param if request.param == "memory:" else tmp_path / "a.db"
    with holdfast.open(url, prices={"m": Price(input=10, output=20)}) as app:
        yield app


@agent(budget=Budget(tokens=400))
def talker(task: Task, times: int) -> int:
    for number in range(times):
        task.step(model, f"say {number}")
    return times


def test_recorded_usage_counts_once_with_its_step(app: App):
    done = app.run(talker, {"times": 2}, id="t")
    assert done.status == "completed"
    assert done.budget.usage == Usage(200, 100, cost=200 * 10 / 1e6 + 100 * 20 / 1e6)
    assert done.budget.used["tokens"] == 300 and done.budget.left["tokens"] == 100
    assert app.run(talker, {"times": 2}, id="t").budget.used["tokens"] == 300


def test_a_task_that_reaches_a_limit_fails_before_the_next_step(app: App, texts):
    done = app.run(talker, {"times": 9}, id="t")
    assert done.status == "failed" and done.failure is not None
    assert done.failure.code == "budget-exceeded"
    texts.check(done.failure.message)
    assert len(done.steps) == 3


def test_eighty_percent_raise_a_flag_once_and_a_raise_takes_it_back(app: App):
    done = app.run(talker, {"times": 9}, id="t")
    assert done.flags == ["budget_pressure"] and done.budget.pressure
    assert app.at("t", done.steps["model#2"].after).flags == []
    assert app.at("t", done.steps["model#3"].after).flags == ["budget_pressure"]
    assert app.raise_budget("t", Budget(tokens=10_000), by="ana").flags == []
    again = app.resume("t", talker)
    assert again.status == "completed" and again.budget.used["tokens"] == 9 * 150


def test_a_task_may_ask_for_more_and_goes_on_when_somebody_allows_it(app: App):
    done = app.run(talker, {"times": 4}, id="t", budget=Budget(tokens=300, on_exceed="ask"))
    assert done.status == "waiting" and done.waiting is not None and done.waiting.kind == "budget"
    asked = done.waiting.on[0]
    assert (asked["kind"], asked["key"], asked["used"], asked["of"]) == ("budget", "tokens", 300, 300)
    assert app.run(talker, {"times": 4}, id="t").status == "waiting"
    app.raise_budget("t", Budget(tokens=1_000), by="ana", why="it is worth it")
    assert app.get("t").status == "pending"
    assert app.resume("t", talker).status == "completed"


def test_steps_calls_and_turns_have_limits_of_their_own(app: App, texts):
    @agent
    def busy(task: Task) -> str:
        task.step(silent, "a")
        task.call(search, query="b")
        task.step(silent, "c")
        task.call(search, query="d")
        return "done"

    assert app.run(busy, id="free").status == "completed"
    for id, budget in {"t-steps": Budget(steps=3), "t-calls": Budget(calls=1)}.items():
        done = app.run(busy, id=id, budget=budget)
        assert done.failure is not None
        texts.check(done.failure.message)

    @agent(loop=True, budget=Budget(turns=2))
    def looping(task: Task) -> None:
        task.step(silent, "x")

    done = app.run(looping, id="loop")
    assert done.failure is not None and done.turn == 2
    texts.check(done.failure.message)


def test_wall_time_counts_time_held_and_not_time_waited(texts):
    clock = FakeClock()

    def slow() -> None:
        clock.advance(40)

    @agent(budget=Budget(wall_time="1m"))
    def patient(task: Task) -> None:
        task.step(slow, name="one")
        task.wait("go")
        task.step(silent, "between")
        task.step(slow, name="two")
        task.step(silent, "late")

    with holdfast.open("memory:", clock=clock) as app:
        assert app.run(patient, id="p").status == "waiting"
        clock.advance(3_600)
        app.signal("p", "go", None)
        done = app.resume("p", patient)
        assert done.status == "failed" and done.failure is not None
        texts.check(done.failure.message)
        assert "two#1" in done.steps and "silent#2" not in done.steps
        clock.advance(1_000)
        assert app.get("p").budget.used["wall_time"] == pytest.approx(80, abs=0.001)


def test_usage_can_be_reported_from_inside_a_step_also_when_it_fails(app: App, texts):
    def streams() -> str:
        holdfast.report_usage(input_tokens=5, output_tokens=6, model="m")
        holdfast.report_usage(output_tokens=1)
        return "x"

    def breaks() -> None:
        holdfast.report_usage(input_tokens=70)
        raise RuntimeError("cut off")

    @agent
    def reporting(task: Task) -> None:
        task.step(streams)
        task.step(breaks, retry=2)

    done = app.run(reporting, id="r")
    assert done.status == "failed"
    usage = done.budget.usage
    assert (usage.input_tokens, usage.output_tokens) == (5 + 70 + 70, 7)
    assert usage.cost == pytest.approx(5 * 10 / 1e6 + 7 * 20 / 1e6)
    with texts.raises(InvalidValue):
        holdfast.report_usage(input_tokens=1)


class Killed(BaseException):
    pass


def test_a_call_that_went_out_without_a_record_is_listed_as_unknown_spend(app: App):
    died: list[int] = []

    def costly(prompt: str) -> dict[str, Any]:
        if not died:
            died.append(1)
            raise Killed
        return model(prompt)

    @agent
    def spender(task: Task) -> str:
        return task.step(costly, "hi", estimate=Usage(80, 40, model="m"))["content"]

    with pytest.raises(Killed):
        app.run(spender, id="s")
    assert app.get("s").budget.unknown == []
    done = app.resume("s", spender)
    assert done.status == "completed" and done.budget.usage == Usage(100, 50, cost=0.002)
    lost = done.budget.unknown
    assert [(one["step"], one["tokens"]) for one in lost] == [("costly#1", 120)] and "lost" in lost[0]["why"]
    assert done.budget.used["tokens"] == 150 + 120


@pytest.mark.parametrize("end", ["cancel", "other code", "out of budget"])
def test_a_lost_call_that_is_not_made_again_is_listed_when_its_task_ends(app: App, end: str):
    def dies() -> None:
        raise Killed

    @agent(name="child")
    def child(task: Task) -> None:
        task.step(dies, estimate=Usage(80, 40))

    @agent(name="child")
    def other(task: Task) -> None:
        task.step(silent, "something else")

    @agent(budget=Budget(tokens=1_000))
    def parent(task: Task) -> None:
        task.spawn(child)

    with pytest.raises(Killed):
        app.run(parent, id="p")
    assert app.get("p").budget.unknown == []
    if end == "cancel":
        app.cancel("p/child#1")
    elif end == "out of budget":
        app.append("p", events.ChildSpent(child="another", usage=Usage(999)))
        assert app.resume("p/child#1", child).failure.code == BudgetExceeded.code  # pyright: ignore[reportOptionalMemberAccess]
    else:
        app.resume("p/child#1", other)
    for id in ("p/child#1", "p"):
        assert [one["tokens"] for one in app.get(id).budget.unknown] == [120], id


def test_what_a_person_settles_counts_for_those_who_pay(app: App):
    @tool(effect="once")
    def pay() -> str:
        raise Killed

    @agent
    def child(task: Task) -> str:
        return task.call(pay)

    @agent(budget=Budget(calls=5))
    def parent(task: Task) -> str:
        return task.spawn(child)

    with pytest.raises(Killed):
        app.run(parent, id="p")
    assert app.run(parent, id="p").status == "waiting"
    app.settle("p/child#1", "pay#1", happened=True, result="paid", by="ana")
    assert app.run(parent, id="p").result == "paid" and app.get("p").budget.used["calls"] == 1


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_call_that_takes_long_is_not_taken_for_a_lost_one(app: App, kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "ANNOUNCE_SECONDS", 0.02)

    def slow() -> dict[str, Any]:
        time.sleep(0.1)
        return model("slow")

    @agent
    def plain(task: Task) -> None:
        task.step(slow, estimate=70)
        task.step(slow, name="unannounced")

    @agent
    async def looping(task: AsyncTask) -> None:
        await task.step(slow, estimate=70)
        await task.step(slow, name="unannounced")

    done = app.run(plain if kind == "def" else looping, id="t")
    assert done.status == "completed" and done.budget.unknown == [] and done.budget.used["tokens"] == 300
    assert [record.kind for record in app.events("t")].count("step_started") == 2


def test_an_estimate_that_cannot_fit_is_refused_before_the_call(app: App, texts):
    called: list[int] = []

    def costly() -> None:
        called.append(1)

    @agent(budget=Budget(tokens=100))
    def spender(task: Task) -> None:
        task.step(costly, estimate=101)

    done = app.run(spender, id="s")
    assert done.status == "failed" and not called and done.failure is not None
    texts.check(done.failure.message)


def test_money_needs_prices_and_says_so_before_the_call(app: App, texts):
    @agent(budget=Budget(cost=0.0045))
    def payer(task: Task, name: str) -> None:
        for _ in range(5):
            task.step(model, "x", estimate=Usage(10, model=name))

    unknown = app.run(payer, {"name": "nobody-knows"}, id="u")
    assert unknown.failure is not None and unknown.failure.code == UnknownPrice.code
    assert "model#1" not in unknown.steps
    done = app.run(payer, {"name": "m"}, id="k")
    assert done.failure is not None and done.failure.code == BudgetExceeded.code
    texts.check(done.failure.message)
    assert len(done.steps) == 3


@pytest.mark.parametrize("asks", [False, True])
def test_a_tree_of_tasks_shares_the_budget_of_its_root(app: App, asks: bool, texts):
    @agent
    def child(task: Task, number: int) -> int:
        task.step(model, f"child {number}", estimate=10)
        return number

    @agent(budget=Budget(tokens=400, on_exceed="ask" if asks else "fail"))
    def parent(task: Task) -> list[int]:
        return task.map(child, [{"number": number} for number in range(4)], limit=1)

    done = app.run(parent, id="p")
    if asks:
        assert done.status == "waiting" and done.waiting is not None and done.waiting.kind == "budget"
        app.raise_budget("p", Budget(tokens=4_000), by="ana")
        done = app.run(parent, id="p")
        assert done.result == [0, 1, 2, 3] and done.budget.used["tokens"] == 600
    else:
        assert done.status == "failed" and done.failure is not None
        texts.check(done.failure.message)
        assert done.budget.used["tokens"] == 450


def test_what_a_child_spends_in_vain_counts_for_those_who_pay(app: App):
    """Attempts that failed and calls that failed for good count; of one that said nothing, what it was estimated at."""

    @tool(effect="idempotent", retry=Retry(2, first=0.01))
    def breaks() -> None:
        holdfast.report_usage(input_tokens=7)
        raise RuntimeError("cut off")

    def says_nothing() -> None:
        raise RuntimeError("gone")

    @agent
    def child(task: Task) -> None:
        for attempt in (
            lambda: task.call(breaks),
            lambda: task.step(says_nothing, estimate=30, retry=Retry(2, first=0.01)),
        ):
            with contextlib.suppress(StepFailed):
                attempt()

    @agent(budget=Budget(tokens=1_000, calls=5))
    def parent(task: Task) -> None:
        task.spawn(child)

    done = app.run(parent, id="p")
    own = app.get("p/child#1").budget
    assert done.status == "completed" and done.budget.used["tokens"] == own.used["tokens"] == 2 * 7 + 2 * 30
    assert done.budget.used["calls"] == own.used["calls"] == 1
    assert done.budget.usage.input_tokens == 14 and [one["tokens"] for one in done.budget.unknown] == [30, 30]


def test_a_grandchild_that_waits_for_more_goes_on_when_its_root_is_allowed_it(app: App):
    @agent
    def grandchild(task: Task) -> str:
        for number in range(3):
            task.step(model, f"say {number}", estimate=10)
        return "all"

    @agent
    def child(task: Task) -> str:
        return task.spawn(grandchild)

    @agent(budget=Budget(tokens=200, on_exceed="ask"))
    def parent(task: Task) -> str:
        return task.spawn(child)

    assert app.run(parent, id="p").status == "waiting"
    waiting = app.get("p/child#1/grandchild#1").waiting
    assert waiting is not None and waiting.kind == "budget"
    app.raise_budget("p", Budget(tokens=4_000), by="ana")
    assert app.get("p/child#1/grandchild#1").status == "pending"
    done = app.run(parent, id="p")
    assert done.result == "all" and done.budget.used["tokens"] == 450


def test_a_budget_shows_what_it_limits():
    assert repr(Budget(tokens=5, wall_time="2m")) == "Budget(wall_time='2m', tokens=5)"
    assert repr(Budget(calls=1, on_exceed="ask")) == "Budget(calls=1, on_exceed='ask')"


def test_async_children_count_too(app: App):
    @tool(effect="read")
    async def look(where: str) -> str:
        return where

    @agent
    async def child(task: AsyncTask, number: int) -> None:
        await task.step(model, f"child {number}")
        await task.call(look, where="there")

    @agent(budget=Budget(tokens=100_000))
    async def parent(task: AsyncTask) -> None:
        await asyncio.gather(*(task.spawn(child, {"number": number}) for number in range(6)))

    done = app.run(parent, id="p")
    assert done.status == "completed", done.failure
    assert done.budget.used["tokens"] == 900 and done.budget.used["calls"] == 6


@pytest.mark.parametrize("checkpoint", ["every_step", "every_iteration", "on_state_change", "before_effects"])
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_what_a_child_spent_and_its_end_may_be_written_together(app: App, checkpoint: Any, kind: str):
    @agent(checkpoint=checkpoint)
    def child(task: Task) -> str:
        return task.step(model, "child")["content"]

    @agent(checkpoint=checkpoint)
    async def achild(task: AsyncTask) -> str:
        return (await task.step(model, "child"))["content"]

    @agent(budget=Budget(tokens=400))
    def parent(task: Task) -> str:
        return task.spawn(child if kind == "def" else achild)

    done = app.run(parent, id="p")
    assert done.result == "child" and done.budget.used["tokens"] == 150
    assert app.verify().problems == []


@pytest.mark.parametrize("checkpoint", ["every_step", "every_iteration", "on_state_change", "before_effects"])
def test_an_answer_that_was_announced_can_be_a_message_whenever_it_is_written(app: App, checkpoint: Any):
    def answer() -> dict[str, Any]:
        return {"role": "assistant", "content": "hello", "usage": {"prompt_tokens": 7, "completion_tokens": 2}}

    @agent(checkpoint=checkpoint)
    def talking(task: Task) -> list[str]:
        task.message(task.step(answer, estimate=5))
        task.wait("go")
        return [one["content"] for one in task.messages]

    app.run(talking, id="t")
    app.signal("t", "go", None)
    done = app.run(talking, id="t")
    assert done.result == ["hello"] and done.budget.used["tokens"] == 9, done.failure


def test_a_loop_lists_what_its_model_was_asked_in_vain_and_pays_for_its_summaries(app: App):
    died: list[int] = []

    async def talkative(messages: list[Any], tools: list[Any], **options: Any) -> dict[str, Any]:
        if not died and len(messages) > 1:
            died.append(1)
            raise Killed
        usage = {"prompt_tokens": 7, "completion_tokens": 2}
        return {"role": "assistant", "content": "An answer.", "usage": usage}

    loop = loop_agent("talkative", talkative, [], "Be brief.")
    with pytest.raises(Killed):
        app.run(loop, {"goal": "Answer."}, id="t")
    done = app.run(loop, {"goal": "Answer."}, id="t")
    assert done.status == "completed" and [one["step"] for one in done.budget.unknown] == ["model#1"]
    assert done.budget.used["tokens"] == 9 + done.budget.unknown[0]["tokens"] > 9

    @agent
    def long(task: Task) -> None:
        for number in range(40):
            task.message({"role": "user", "content": f"question {number} " + "word " * 20})
            task.message({"role": "assistant", "content": f"answer {number}"})
        task.summarise(lambda messages: model("They talked."), max_tokens=600)

    done = app.run(long, id="long")
    made = len([one for one in app.steps("long") if one.name == "summary"])
    assert done.status == "completed" and done.budget.used["tokens"] == 150 * made > 0
    assert done.budget.unknown == []


def test_a_fork_and_a_rollback_keep_what_was_spent(app: App):
    app.run(talker, {"times": 2}, id="t")
    fork = app.fork("t", at=app.get("t").steps["model#2"].after, id="f")
    assert fork.budget.used["tokens"] == 300 and fork.budget.limits["tokens"] == 400
    app.run(talker, {"times": 9}, id="r")
    back = app.rollback("r", steps=2)
    assert len(back.steps) == 1 and back.budget.used["tokens"] == 450


@pytest.mark.parametrize(
    "wrong",
    [{"tokens": 0}, {"steps": -1}, {"cost": float("nan")}, {"tokens": 1.5}, {"calls": True}, {"wall_time": 0}]
    + [{"on_exceed": "beg"}, {"wall_time": "soon"}],
)
def test_budgets_that_are_none_are_refused(wrong: dict[str, Any]):
    with pytest.raises(InvalidValue):
        Budget(**wrong)


def test_a_raise_must_raise_something(app: App, texts):
    app.run(talker, {"times": 1}, id="t", budget=Budget(tokens=500, on_exceed="ask"))
    app.start(talker, {"times": 1}, id="u")
    for wrong in (Budget(tokens=400), Budget(tokens=300), Budget()):
        with texts.raises(InvalidValue):
            app.raise_budget("u", wrong)
    with texts.raises(InvalidValue):
        app.raise_budget("u", {"tokens": 9})  # pyright: ignore[reportArgumentType]
    assert app.get("u").seq == 1


def test_a_loop_agent_keeps_to_its_budget_and_says_what_it_asked_for(app: App):
    from holdfast.llm import ScriptedModel, loop_agent, say, use

    @tool(effect="read")
    def look(where: str) -> str:
        return where

    def costly(reply: dict[str, Any]) -> dict[str, Any]:
        return {**reply, "model": "m", "usage": {"prompt_tokens": 300, "completion_tokens": 10}}

    replies = [costly(use("look", where=str(number))) for number in range(9)]
    looking = loop_agent("looking", ScriptedModel([*replies, say("done")]), [look], budget=Budget(tokens=1_000))
    done = app.run(looking, {"goal": "look around"}, id="l")
    assert done.failure is not None and done.failure.code == BudgetExceeded.code
    assert done.budget.usage.input_tokens == 3 * 300 and done.budget.unknown == []
    started = [record.event for record in app.events("l") if record.kind == "step_started"]
    assert len(started) == 3 and all(one.estimate is not None and one.estimate.input_tokens for one in started)


def test_a_context_shows_no_more_of_artifacts_than_the_budget_allows(app: App):
    @agent(budget=Budget(artifact_bytes=1_000))
    def reading(task: Task) -> list[bool]:
        for number in range(4):
            task.artifact(f"{number}" * 400, type="page", summary=f"page {number}", step="read")
        shown = str(task.context("read", max_bytes=20_000))
        return [f"{number}" * 400 in shown for number in range(4)]

    done = app.run(reading, id="r")
    assert done.result == [True, True, False, False]
    assert done.flags == ["budget_pressure"]


def test_prices_come_from_the_price_list_where_the_table_has_none():
    from holdfast.engine.definitions.prices import Prices

    priced = Prices({"m": Price(input=1, output=2)}).priced
    assert priced(Usage(1_000_000, 500_000, model="m")).cost == 2
    listed = priced(Usage(1_000_000, model="gpt-4o-mini")).cost
    assert listed is not None and 0 < listed < 10
    assert priced(Usage(10, model="nobody-knows")).cost is None and priced(Usage(10)).cost is None
    assert priced(Usage(10, cost=7.0, model="m")).cost == 7
    for wrong in (Price, lambda **given: Prices({"m": given})):  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidValue):
            wrong(input=-1, output=1)

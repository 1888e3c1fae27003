"""Budgets: they hold across crashes, forks and children, and nothing that was spent is hidden."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast import AsyncTask, Budget, BudgetExceeded, InvalidValue, Price, Task, UnknownPrice, Usage, agent, tool
from holdfast.engine.app import App
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


def test_a_task_that_reaches_a_limit_fails_before_the_next_step(app: App):
    done = app.run(talker, {"times": 9}, id="t")
    assert done.status == "failed" and done.failure is not None
    assert done.failure.code == "budget-exceeded" and "450 of 400 tokens" in done.failure.message
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


def test_steps_calls_and_turns_have_limits_of_their_own(app: App):
    @agent
    def busy(task: Task) -> str:
        task.step(silent, "a")
        task.call(search, query="b")
        task.step(silent, "c")
        task.call(search, query="d")
        return "done"

    assert app.run(busy, id="free").status == "completed"
    for budget, reached in ((Budget(steps=3), "3 of 3 steps"), (Budget(calls=1), "1 of 1 calls")):
        done = app.run(busy, id=f"t-{reached[-5:]}", budget=budget)
        assert done.failure is not None and reached in done.failure.message

    @agent(loop=True, budget=Budget(turns=2))
    def looping(task: Task) -> None:
        task.step(silent, "x")

    done = app.run(looping, id="loop")
    assert done.failure is not None and "2 of 2 turns" in done.failure.message and done.turn == 2


def test_wall_time_counts_time_held_and_not_time_waited():
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
        assert done.status == "failed" and done.failure is not None and "80 of 60 wall_time" in done.failure.message
        assert "two#1" in done.steps and "silent#2" not in done.steps
        clock.advance(1_000)
        assert app.get("p").budget.used["wall_time"] == pytest.approx(80, abs=0.001)


def test_usage_can_be_reported_from_inside_a_step_also_when_it_fails(app: App):
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
    with pytest.raises(InvalidValue, match="outside a step"):
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


def test_an_estimate_that_cannot_fit_is_refused_before_the_call(app: App):
    called: list[int] = []

    def costly() -> None:
        called.append(1)

    @agent(budget=Budget(tokens=100))
    def spender(task: Task) -> None:
        task.step(costly, estimate=101)

    done = app.run(spender, id="s")
    assert done.status == "failed" and not called and done.failure is not None
    assert "0 of 100 tokens, and the next step takes 101" in done.failure.message


def test_money_needs_prices_and_says_so_before_the_call(app: App):
    @agent(budget=Budget(cost=0.0045))
    def payer(task: Task, name: str) -> None:
        for _ in range(5):
            task.step(model, "x", estimate=Usage(10, model=name))

    unknown = app.run(payer, {"name": "nobody-knows"}, id="u")
    assert unknown.failure is not None and unknown.failure.code == UnknownPrice.code
    assert "model#1" not in unknown.steps
    done = app.run(payer, {"name": "m"}, id="k")
    assert done.failure is not None and done.failure.code == BudgetExceeded.code and "cost" in done.failure.message
    assert len(done.steps) == 3


@pytest.mark.parametrize("asks", [False, True])
def test_a_tree_of_tasks_shares_the_budget_of_its_root(app: App, asks: bool):
    @agent
    def child(task: Task, number: int) -> int:
        task.step(model, f"child {number}", estimate=10)
        return number

    @agent(budget=Budget(tokens=400, on_exceed="ask" if asks else "fail"))
    def parent(task: Task) -> list[int]:
        return task.map(child, [{"number": number} for number in range(4)], limit=1)

    done = app.run(parent, id="p")
    if asks:
        assert done.status == "waiting" and app.get("p/~4/child#1").waiting.kind == "budget"  # pyright: ignore[reportOptionalMemberAccess]
        app.raise_budget("p", Budget(tokens=4_000), by="ana")
        done = app.run(parent, id="p")
        assert done.result == [0, 1, 2, 3] and done.budget.used["tokens"] == 600
    else:
        assert done.status == "failed" and "450 of 400 tokens" in str(done.failure)
        assert done.budget.used["tokens"] == 450


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


def test_a_raise_must_raise_something(app: App):
    app.run(talker, {"times": 1}, id="t", budget=Budget(tokens=500, on_exceed="ask"))
    app.start(talker, {"times": 1}, id="u")
    for wrong in (Budget(tokens=400), Budget(tokens=300), Budget()):
        with pytest.raises(InvalidValue, match="raises nothing"):
            app.raise_budget("u", wrong)
    with pytest.raises(InvalidValue, match="not a budget"):
        app.raise_budget("u", {"tokens": 9})  # pyright: ignore[reportArgumentType]
    assert app.get("u").seq == 1

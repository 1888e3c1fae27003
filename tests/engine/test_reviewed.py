"""What reviewers broke once: budgets of trees and branches, users in loops, forks and mocks, erasure, parents."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import AsyncTask, Budget, InvalidEvent, InvalidValue, Price, Retry, Task, UnknownPrice, Usage, agent
from holdfast.engine.app import App


@pytest.fixture(params=["memory:", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path):
    url = request.param if request.param == "memory:" else tmp_path / "a.db"
    with holdfast.open(url, prices={"small": Price(1, 1), "dear": Price(1_000, 1_000)}) as app:
        yield app


def one() -> int:
    return 1


def counted(tokens: int = 100) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": tokens}}


@pytest.mark.parametrize("checkpoint", ["every_step", "every_iteration", "before_effects", "on_state_change"])
def test_a_loop_sees_its_own_changes_of_the_user_in_the_next_turn(app: App, checkpoint: Any):
    @agent(loop=True, checkpoint=checkpoint)
    def visits(task: Task) -> int | None:
        task.step(one)
        task.user.state.n = task.user.state.get("n", 0) + 1
        task.user.state.append("log", task.turn)
        return task.user.state.n if task.turn == 6 else None

    assert app.run(visits, id="v", user="ana").result == 6
    assert app.user("ana").state.all() == {"n": 6, "log": [1, 2, 3, 4, 5, 6]}


def test_a_task_cannot_change_its_users_values_into_something_else(app: App):
    ana = app.user("ana")
    ana.state.name, ana.state.likes = "Ana", ["trains"]

    @agent
    def careless(task: Task, how: str) -> None:
        match how:
            case "append":
                task.user.state.append("name", "x")
            case "increment":
                task.user.state.increment("likes")
            case _:
                task.user.state[""] = 1

    for how in ("append", "increment", "unnamed"):
        done = app.run(careless, {"how": how}, id=how, user="ana")
        assert done.failure is not None and done.failure.type in (InvalidEvent.__name__, InvalidValue.__name__)
    assert ana.state.all() == {"name": "Ana", "likes": ["trains"]}


def test_an_erased_task_stays_what_it_was_in_a_copy_and_an_export(app: App, tmp_path: Path):
    @agent
    def job(task: Task) -> int:
        return 1

    app.run(job, id="j", user="ana")
    app.user("ana").erase()
    app.copy_to(f"sqlite:///{tmp_path}/b.db")
    app.export("j", tmp_path / "j.jsonl")
    with holdfast.open(tmp_path / "b.db") as copy, holdfast.open("memory:") as other:
        other.import_(tmp_path / "j.jsonl")
        for there in (copy, other):
            assert [(one.id, one.status, one.user, one.agent) for one in there.list()] == [
                ("j", "completed", "ana", "job")
            ]
            assert there.get("j").status == "completed" and there.verify().ok


@pytest.mark.parametrize("wrong", [{"input_tokens": 1.5}, {"input_tokens": True}, {"cost": "much"}, {"model": 5}])
def test_usage_that_cannot_be_is_refused_before_it_is_written(app: App, wrong: dict[str, Any]):
    def work() -> None:
        holdfast.report_usage(**wrong)

    @agent
    def reporting(task: Task) -> None:
        task.step(work)

    done = app.run(reporting, id="r")
    assert done.failure is not None and "InvalidValue" in done.failure.message
    assert app.get("r").status == "failed"


def test_erasing_does_not_disturb_tasks_under_way(tmp_path: Path):
    with holdfast.open(tmp_path / "a.db", durability="process") as app:
        for number in range(40):
            app.user(f"u{number}").state.x = number
        wrong: list[Exception] = []

        @agent
        def busy(task: Task) -> None:
            task.step(one)

        def work() -> None:
            for number in range(60):
                try:
                    assert app.run(busy, id=f"t{number}").status == "completed"
                except Exception as error:
                    wrong.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        for number in range(40):
            app.user(f"u{number}").erase()
        thread.join()
        assert wrong == []


def test_mock_tasks_and_forks_leave_users_and_threads_alone(app: App):
    app.user("ana").state.name = "Ana"

    @agent(loop=True)
    def trying(task: Task) -> str | None:
        task.message({"role": "user", "content": "TEST"})
        task.user.state.name = f"{task.user.state.name}!"
        task.step(one)
        return task.user.state.name if task.turn == 2 else None

    assert app.run(trying, id="m", user="ana", thread="T", mock=True).result == "Ana!!"
    assert app.user("ana").state.name == "Ana" and app.thread("T").messages == []
    app.run(trying, id="real", user="ana", thread="T")
    app.fork("real", at=2, id="f", effects="recorded")
    assert app.resume("f", trying).result == "Ana!!!!", "its turns begin now, and see the user as they are"
    assert app.user("ana").state.name == "Ana!!" and len(app.thread("T")) == 2


def test_erasing_one_user_leaves_others_in_a_shared_thread(app: App):
    @agent
    def saying(task: Task, text: str) -> None:
        task.message({"role": "user", "content": text})

    app.run(saying, {"text": "from ana"}, id="a", user="ana", thread="T")
    app.run(saying, {"text": "from ben"}, id="b", user="ben", thread="T")
    app.run(saying, {"text": "ana again " * 1_000}, id="c", user="ana", thread="T")
    app.thread("T").message({"role": "user", "content": "by hand"}, by="ana")
    app.gc(older_than=0, keep=0)
    app.user("ana").erase()
    assert [one["content"] for one in app.thread("T").messages] == ["from ben"]
    assert app.verify().ok


@pytest.mark.parametrize("how", ["spawn", "map", "gather"])
def test_a_budget_holds_for_every_step_of_the_tree(app: App, how: str):
    @agent
    def kid(task: Task, n: int) -> None:
        for _ in range(5):
            task.step(counted)

    @agent(budget=Budget(tokens=1_000))
    async def root(task: AsyncTask) -> None:
        items = [{"n": number} for number in range(6)]
        if how == "spawn":
            for item in items:
                await task.spawn(kid, item)
        elif how == "map":
            await task.map(kid, items, limit=2)
        else:
            await asyncio.gather(*(task.spawn(kid, item) for item in items))

    done = app.run(root, id="r")
    assert done.status == "failed"
    assert 1_000 <= done.budget.used["tokens"] <= (1_000 if how == "spawn" else 1_600)


def test_a_parent_resumed_after_its_child_failed_lets_the_child_go_on(app: App):
    fail = [1]

    @agent
    def kid(task: Task) -> int:
        if fail:
            raise ValueError("no")
        return 5

    @agent
    def parent(task: Task) -> int:
        return task.spawn(kid)

    assert app.run(parent, id="q").status == "failed"
    fail.clear()
    assert app.resume("q", parent).result == 5
    assert app.get("q/kid#1").status == "completed"


@pytest.mark.parametrize("limit", [{"tokens": 300}, {"steps": 3}])
def test_limits_hold_for_branches_at_once(app: App, limit: dict[str, Any]):
    async def look(number: int) -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return counted()

    @agent(budget=Budget(**limit))
    async def parallel(task: AsyncTask) -> None:
        steps = [task.step(look, number, estimate=100) for number in range(10)]
        await asyncio.gather(*steps, return_exceptions=True)
        await task.step(one)

    done = app.run(parallel, id="p")
    assert done.status == "failed" and done.failure is not None and done.failure.code == "budget-exceeded"
    assert done.budget.used["tokens"] == 300


def test_unknown_spend_costs_what_it_was_estimated_to(app: App):
    def slow() -> None:
        time.sleep(0.3)

    @agent(budget=Budget(cost=0.25))
    def costly(task: Task) -> None:
        task.step(slow, estimate=Usage(100_000, model="small"), timeout=0.02, retry=Retry(10, first=0))

    done = app.run(costly, id="c")
    assert done.failure is not None and done.failure.code == "budget-exceeded"
    assert done.budget.used["cost"] == pytest.approx(0.2) and len(done.budget.unknown) == 2


def test_money_that_cannot_be_counted_stops_the_task_after_the_first_answer(app: App):
    def nobody(number: int) -> dict[str, Any]:
        return {"model": "nobody-knows", **counted(10**8)}

    @agent(budget=Budget(cost=0.01))
    def blind(task: Task) -> None:
        for number in range(3):
            task.step(nobody, number)

    done = app.run(blind, id="b")
    assert done.failure is not None and done.failure.code == UnknownPrice.code and len(done.steps) == 1


def test_usage_is_read_off_models_of_any_kind_and_priced_report_by_report(app: App):
    @dataclass
    class Reply:
        content: str
        usage: dict[str, int]

    def typed() -> Reply:
        return Reply(
            "x", {"input_tokens": 11, "cache_read_input_tokens": 100_000, "cache_creation_input_tokens": 5_000}
        )

    def mixed() -> None:
        holdfast.report_usage(input_tokens=1_000, model="dear")
        holdfast.report_usage(input_tokens=1_000, model="small")

    @agent
    def reading(task: Task) -> None:
        task.step(typed)
        task.step(mixed)

    usage = app.run(reading, id="r").budget.usage
    assert usage.input_tokens == 105_011 + 2_000 and usage.cost == pytest.approx(1.001)


def test_a_failed_task_is_resumed_with_a_new_deadline(app: App):
    @agent
    def late(task: Task) -> str:
        task.step(one)
        time.sleep(0.05)
        task.step(one, name="two")
        return "done"

    assert app.run(late, id="l", deadline=0.02).status == "failed"
    assert app.resume("l", late).status == "failed"
    assert app.resume("l", late, deadline="1h").result == "done"


def test_a_child_goes_on_when_the_task_that_paid_for_it_is_gone(app: App):
    @agent
    def kid(task: Task) -> dict[str, Any]:
        task.wait("go")
        return task.step(counted)

    @agent(budget=Budget(tokens=1_000))
    async def parent(task: AsyncTask) -> None:
        left = asyncio.ensure_future(task.spawn(kid))
        while not app.head("p/~1/kid#1") or app.get("p/~1/kid#1").status != "waiting":
            await task.step(asyncio.sleep, 0.01, name="nap")
        left.cancel()

    assert app.run(parent, id="p").status == "completed"
    app.gc(older_than=0, keep=0)
    app.signal("p/~1/kid#1", "go", None)
    assert app.run(kid, id="p/~1/kid#1").status == "completed"


def test_names_that_could_not_be_read_again_are_refused(app: App, texts):
    with pytest.raises(InvalidValue, match=r"state\['all'\]"):
        app.user("ana").state.all = 5

    @agent
    def naming(task: Task) -> int:
        task.state["get"] = 1
        del task.state["get"]
        task.state.get = 5
        return 1

    done = app.run(naming, id="n")
    assert done.failure is not None and dict(done.state) == {}
    texts.check(done.failure.message)


def test_a_task_is_not_given_to_somebody_else(app: App, texts):
    @agent
    def job(task: Task) -> int:
        return 1

    app.run(job, id="j", user="ana")
    assert app.run(job, id="j").result == 1
    for other in ({"user": "ben"}, {"thread": "T"}):
        with texts.raises(InvalidValue):
            app.run(job, id="j", **other)


def test_a_large_message_that_two_users_said_stays_with_the_one_who_stays(app: App, monkeypatch: pytest.MonkeyPatch):
    from holdfast.core import limits

    monkeypatch.setattr(limits, "READ_CHUNK", 2)
    large = "the same words " * 1_000

    @agent
    def saying(task: Task) -> None:
        task.message({"role": "user", "content": large})

    for id, user in (("a", "ana"), ("b", "zoe"), ("c", "cem"), ("d", "ben")):
        app.run(saying, id=id, user=user, thread="T")
    app.user("ana").erase()
    assert [one["content"] for one in app.thread("T").messages] == [large] * 3

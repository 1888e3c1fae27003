"""Verbs of the app around a task's life: start that finds, resume that returns, reopen, call, unwrap."""

import asyncio
import threading

import pytest

import holdfast
from holdfast import InputConflict, InvalidValue, StepChanged, StepFailed, Suspended, TaskFailed, agent, tool
from holdfast.engine.workers.worker import set_aside


@agent
def count(task, upto: int) -> int:
    return task.step(lambda: upto, name="count")


def test_start_with_the_same_input_finds_the_task(app):
    first = app.start(count, {"upto": 3}, id="t", user="ana")
    again = app.start(count, {"upto": 3}, id="t")
    assert (again.status, again.seq) == ("pending", first.seq)
    app.run(count, {"upto": 3}, id="t")
    assert app.start(count, {"upto": 3}, id="t").result == 3
    assert app.start("count", {"upto": 3}, id="t").status == "completed"


def test_start_with_other_input_user_or_agent_is_refused_and_writes_nothing(app):
    app.start(count, {"upto": 3}, id="t", user="ana")
    with pytest.raises(InputConflict):
        app.start(count, {"upto": 4}, id="t")
    with pytest.raises(InvalidValue):
        app.start(count, {"upto": 3}, id="t", user="ben")
    with pytest.raises(InvalidValue):
        app.start("other", {"upto": 3}, id="t")
    assert app.head("t") == 1


def test_of_many_starts_at_once_one_writes_and_all_find_it(app):
    found, barrier = [], threading.Barrier(6)

    def begin():
        barrier.wait()
        found.append(app.start(count, {"upto": 3}, id="t").id)

    threads = [threading.Thread(target=begin) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == ["t"] * 6 and app.head("t") == 1


def test_unwrap_gives_the_result_or_says_why_there_is_none(app, texts):
    @agent
    def picky(task, mood: str) -> str:
        if mood == "bad":
            raise ValueError("no")
        return task.ask("really?") if mood == "unsure" else mood

    assert app.run(picky, {"mood": "good"}, id="good").unwrap() == "good"
    app.run(picky, {"mood": "bad"}, id="bad")
    app.run(picky, {"mood": "unsure"}, id="unsure")
    app.start(picky, {"mood": "good"}, id="new")
    app.start(picky, {"mood": "good"}, id="gone")
    app.cancel("gone")
    for id in ("bad", "unsure", "new", "gone"):
        with texts.raises(TaskFailed) as refused:
            app.get(id).unwrap()
        assert refused.value.details["status"] == app.get(id).status


# reopen


def test_a_failed_task_is_reopened_for_workers_and_not_run_here(app):
    broken = [True]

    @agent
    def worker(task):
        def flaky():
            if broken[0]:
                raise ValueError("no")
            return "mended"

        return task.step(flaky)

    app.run(worker, id="t")
    broken[0] = False
    again = app.reopen("t", by="ana", why="it is mended")
    assert (again.status, again.failure) == ("pending", None)
    assert app.run(worker, id="t").result == "mended"
    reopened = next(one.event for one in app.events("t") if one.kind == "task_reopened")
    assert (reopened.by, reopened.why) == ("ana", "it is mended")


def test_a_task_that_was_set_aside_is_reopened_with_all_its_lives(app):
    app.start(count, {"upto": 3}, id="t")
    set_aside(app.logs.load("t"), "3 workers in a row died")
    assert app.get("t").waiting.kind == "quarantined"
    again = app.reopen("t", by="ana", deadline="1h")
    assert again.status == "pending"
    assert again.deadline is not None
    assert app.run(count, {"upto": 3}, id="t").result == 3
    assert app.verify("t").ok


@pytest.mark.parametrize("state", ["pending", "completed", "cancelled", "missing"])
def test_nothing_else_is_reopened(app, state, texts):
    if state == "missing":
        with texts.raises(holdfast.TaskNotFound):
            app.reopen("t")
        return
    app.start(count, {"upto": 3}, id="t")
    if state == "completed":
        app.run(count, {"upto": 3}, id="t")
    elif state == "cancelled":
        app.cancel("t")
    before = app.head("t")
    with texts.raises(holdfast.HoldfastError):
        app.reopen("t")
    assert app.head("t") == before


# call


def test_a_call_outside_of_tasks_is_made_once_for_each_key(app):
    paid = []

    @tool(effect="once")
    def pay(order: str, euros: int = 1) -> dict:
        paid.append(order)
        return {"receipt": len(paid)}

    assert app.call(pay, order="a", key="a") == {"receipt": 1}
    assert app.call(pay, {"order": "a"}, key="a") == {"receipt": 1}
    assert app.call(pay, order="b", euros=2, key="b") == {"receipt": 2}
    assert paid == ["a", "b"]
    with pytest.raises(StepChanged):
        app.call(pay, order="other", key="a")
    assert app.get("call.pay.a").result == {"receipt": 1}
    assert asyncio.run(app.aio.call(pay, order="c", key="c")) == {"receipt": 3}


def test_a_call_whose_answer_is_lost_is_in_doubt_and_not_made_again(app):
    tries = []

    @tool(effect="once")
    def pay(order: str) -> str:
        tries.append(order)
        raise ConnectionResetError("lost")

    for _ in range(2):
        with pytest.raises(Suspended):
            app.call(pay, order="a", key="a")
    assert tries == ["a"] and [one.kind for one in app.inbox()] == ["doubt"]
    app.settle("call.pay.a", "pay#1", happened=True, result="receipt", by="ana")
    assert app.call(pay, order="a", key="a") == "receipt"


def test_a_call_that_failed_is_tried_again_when_it_is_made_again(app):
    tries = []

    @tool(effect="read")
    def look(city: str) -> str:
        tries.append(city)
        if len(tries) == 1:
            raise ValueError("no")
        return "sunny"

    with pytest.raises(StepFailed):
        app.call(look, city="Oslo", key="k")
    assert app.call(look, city="Oslo", key="k") == "sunny"


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda app, pay: app.call(print, key="k"), InvalidValue),
        (lambda app, pay: app.call(pay, order="a", key=""), holdfast.HoldfastError),
        (lambda app, pay: app.call(pay, order="a", key=5), holdfast.HoldfastError),
        (lambda app, pay: app.call(pay, other="a", key="k"), holdfast.InvalidInput),
    ],
)
def test_a_wrong_call_is_refused_by_name(app, wrong, error, texts):
    @tool
    def pay(order: str) -> str:
        raise AssertionError("never called")

    with texts.raises(error):
        wrong(app, pay)

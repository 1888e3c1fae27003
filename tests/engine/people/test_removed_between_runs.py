"""A task whose user or thread was removed while it had ended, or at the moment it began: it is resumed without them."""

import asyncio
import contextlib
import threading

import pytest

import holdfast
from holdfast import agent

STORES = ("memory", "sqlite", "postgres")
CLOCK = None  # the real one: something must expire


def failing(fails):
    @agent(name="visit")
    def visit(task):
        task.user.state.increment("visits")
        task.thread.state.increment("visits")
        task.message({"role": "user", "content": "hello"})
        task.step(lambda: 1, name="look")
        if fails:
            raise ValueError("no")
        task.message({"role": "assistant", "content": "x" * 5_000})
        task.user.state.note = "y" * 5_000
        task.thread.state.topic = "lamps"
        return [task.user.state.visits, task.thread.state.visits, [one["content"][0] for one in task.messages]]

    return visit


def remove(app):
    app.user("ana").update(expire=0.000001)
    app.thread("t").update(expire=0.000001)
    gone = app.gc()
    assert (gone.expired_users, gone.expired_threads) == (1, 1)


@pytest.mark.parametrize("begun_again", [False, True])
def test_a_failed_task_is_resumed_after_its_user_and_thread_were_removed(app, begun_again):
    assert app.run(failing(True), id="v", user="ana", thread="t").status == "failed"
    remove(app)
    if begun_again:
        app.user("ana").state.city = "Oslo"
        app.thread("t").message({"role": "user", "content": "new"})
    done = app.resume("v", failing(False))
    assert done.status == "completed", done.failure
    assert done.result == [1, 1, ["h", "x"]], "what the task itself said and changed is in its own log"
    assert app.user("ana").state.note == "y" * 5_000 and app.thread("t").state.topic == "lamps"
    assert app.verify().problems == []


def test_a_failed_task_is_forked_after_its_user_and_thread_were_removed(app):
    app.run(failing(True), id="v", user="ana", thread="t")
    remove(app)
    app.fork("v", id="f")
    assert app.resume("f", failing(False)).result == [1, 1, ["h", "x"]]
    assert not app.thread("t").exists, "what a fork says stays with itself"
    assert app.verify().problems == []


def test_a_task_of_a_user_is_resumed_on_an_event_loop_after_they_were_removed(app):
    def agents(fails):
        @agent(name="visit")
        async def visit(task):
            task.user.state.increment("visits")
            await task.step(lambda: 1, name="look")
            if fails:
                raise ValueError("no")
            task.message({"role": "user", "content": "hello"})
            return task.user.state.visits

        return visit

    app.run(agents(True), id="v", user="ana", thread="t")
    remove(app)
    done = asyncio.run(app.aresume("v", agents(False)))
    assert done.result == 1 and len(app.thread("t")) == 1 and app.verify().problems == []


def test_a_thread_that_is_deleted_while_tasks_begin_on_it_costs_no_task(app):
    @agent
    def says(task):
        task.message({"role": "user", "content": "hello"})
        return len(task.messages)

    over = threading.Event()

    def delete():
        while not over.is_set():
            with contextlib.suppress(holdfast.InvalidEvent):  # a task is under way
                app.thread("t").delete()

    deleting = threading.Thread(target=delete)
    deleting.start()
    try:
        done = [app.run(says, id=f"s{number}", thread="t") for number in range(40)]
    finally:
        over.set()
        deleting.join()
    assert [one.status for one in done] == ["completed"] * 40 and app.verify().problems == []


def test_a_thread_gets_its_salt_once_with_its_first_user(app):
    @agent
    def says(task):
        task.message({"role": "user", "content": "x" * 5_000})

    app.thread("t").create()
    for number in range(3):
        app.run(says, id=f"s{number}", thread="t", user="ana")
    kinds = [one.kind for one in app.thread("t").events()]
    assert kinds == ["thread_created"] * 2 + ["message_added"] * 3
    app.user("ana").erase()
    assert app.verify().problems == []

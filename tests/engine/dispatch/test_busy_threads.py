"""A second task on a thread while one has not ended: both work, it is refused, or it waits for its turn."""

import asyncio
import threading
import time

import pytest

import holdfast
from holdfast import InvalidValue, Queue, ThreadBusy, agent

STORES = ("memory", "sqlite", "postgres")


@agent
def waiting(task):
    task.message({"role": "assistant", "content": "hello"})
    return task.wait("go")


@agent
def quick(task):
    return len(task.messages)


def test_both_work_unless_something_else_is_asked(app):
    app.run(waiting, id="w", thread="t")
    assert app.run(quick, id="q", thread="t").result == 1


def test_a_second_task_is_refused_while_the_first_has_not_ended(app):
    app.run(waiting, id="w", thread="t", when_busy="refuse")
    for start in (app.start, app.run):
        with pytest.raises(ThreadBusy) as busy:
            start(quick, id="q", thread="t", when_busy="refuse")
        assert (busy.value.details["thread"], busy.value.details["id"]) == ("t", "w")
    with pytest.raises(ThreadBusy), app.task("block", id="q", thread="t", when_busy="refuse"):
        pass
    assert app.find("q") is None and app.verify().ok
    assert app.run(quick, id="other", thread="other", when_busy="refuse").status == "completed"
    again = app.run(waiting, id="w", thread="t", when_busy="refuse")
    assert again.status == "waiting", "the same task is not in its own way"
    app.signal("w", "go", 1)
    assert app.resume("w", waiting).status == "completed"
    assert app.run(quick, id="q", thread="t", when_busy="refuse").result == 1


def test_of_many_that_begin_at_once_one_does(app):
    begun, refused = [], []

    def begin(number):
        try:
            begun.append(app.start(quick, id=f"q{number}", thread="t", when_busy="refuse").id)
        except ThreadBusy as busy:
            refused.append(busy.details["id"])

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(begun) == 1 and refused == begun * 7 and len(app.list(thread="t")) == 1
    joined = [event.event.task for event in app.thread("t").events() if event.kind == "task_joined"]
    assert joined == begun and app.verify().ok


def test_run_waits_for_its_turn_as_long_as_it_may(url):
    with holdfast.open(url) as app:
        app.run(waiting, id="w", thread="t")
        began = time.monotonic()
        with pytest.raises(ThreadBusy):
            app.run(quick, id="q", thread="t", when_busy="refuse", wait=0.2)
        assert time.monotonic() - began >= 0.2

        def end():
            app.signal("w", "go", 1)
            app.resume("w", waiting)

        thread = threading.Timer(0.2, end)
        thread.start()
        assert asyncio.run(app.arun(quick, id="q", thread="t", when_busy="queue")).result == 1
        thread.join()


def test_workers_take_queued_tasks_of_a_thread_one_at_a_time(url):
    at_work, most = set(), []

    @agent
    def working(task):
        at_work.add(task.id)
        most.append(len(at_work))
        time.sleep(0.02)
        at_work.discard(task.id)

    with holdfast.open(url, queues=[Queue("chats", per_key=1)]) as app:
        for number in range(5):
            app.start(working, id=f"q{number}", thread="t", queue="chats", when_busy="queue")
        worker = app.worker([working], concurrency=4)
        thread = threading.Thread(target=worker.run)
        thread.start()
        done = [app.wait(f"q{number}", timeout=20) for number in range(5)]
        worker.stop()
        thread.join()
        assert [one.status for one in done] == ["completed"] * 5 and set(most) == {1}


def test_what_cannot_be_is_refused(app):
    for wrong in ({"when_busy": "maybe", "thread": "t"}, {"when_busy": "refuse"}, {"when_busy": "queue"}):
        with pytest.raises(InvalidValue):
            app.start(quick, **wrong)
    with pytest.raises(InvalidValue) as needed:
        app.start(quick, thread="t", when_busy="queue")
    assert "per_key=1" in needed.value.hint
    assert app.list() == [] and app.threads() == []


@agent
def asking(task):
    return task.ask("which?", name="which")


def test_run_does_not_queue_for_ever_behind_a_task_that_needs_a_person(url):
    with holdfast.open(url) as app:
        app.run(asking, id="a", thread="t")
        for wait in ({}, {"wait": 0.1}):
            with pytest.raises(ThreadBusy, match="waiting for a person's answer") as busy:
                app.run(quick, id="q", thread="t", when_busy="queue", **wait)
            assert "app.inbox()" in busy.value.hint and "queue" not in busy.value.hint
        with pytest.raises(ThreadBusy):
            asyncio.run(app.arun(quick, id="q", thread="t", when_busy="queue"))
        app.answer("a", "which", "this")
        app.resume("a", asking)
        assert app.run(quick, id="q", thread="t", when_busy="queue").result == 0

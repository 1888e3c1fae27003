"""Threads, users and plans at their edges: the same twice, numbers out of range, fields of the same name, odd pages."""

from dataclasses import dataclass, field

import pytest

import holdfast
from holdfast import agent
from holdfast.threads import Threads

STORES = ("memory", "sqlite", "postgres")


@agent
def asks(task):
    return task.ask("which?", name="which")


def test_a_task_is_not_refused_because_of_itself(app):
    for _ in range(2):
        assert app.start(asks, id="m1", thread="t", when_busy="refuse").id == "m1"
    with pytest.raises(holdfast.ThreadBusy, match="m1"):
        app.start(asks, id="m2", thread="t", when_busy="refuse")


def test_a_number_that_no_event_may_hold_is_refused_before_it_is_written(app):
    app.start(asks, id="t")
    for grow in (
        lambda: app.thread("a").state.increment("n", 2**63),
        lambda: app.user("a").state.increment("n", -(2**63)),
        lambda: app.patch("t", {"increment": {"n": 2**63}}),
    ):
        with pytest.raises(holdfast.HoldfastError, match="out of range"):
            grow()
    assert app.verify().problems == []


@pytest.mark.parametrize("steps", [[1], [None], 5, None, "look", b"look", ["a", ["b"]]])
def test_an_odd_plan_fails_the_task_and_says_why(app, steps):
    @agent
    def plans(task):
        task.plan(steps)
        return task.step(lambda: 1, name="s")

    failed = app.run(plans, id="p")
    assert failed.status == "failed" and failed.failure.type == "InvalidValue"


@dataclass
class Likes:
    likes: list[str] = field(default_factory=list)


def test_a_field_of_the_thread_hides_no_mutated_field_of_the_user(url):
    with holdfast.open(url, users=Likes) as app:
        app.user("ana").state.likes = ["a"]

        @agent
        def mutates(task):
            task.user.state.likes.append("lost")
            task.thread.state.likes = 1
            return task.step(lambda: 1, name="s")

        failed = app.run(mutates, id="x", user="ana", thread="q")
        assert failed.status == "failed" and failed.failure.type == "StateMutated"


@pytest.mark.parametrize("limit", [0, -1, True, "x", None])
def test_an_odd_page_is_refused(app, limit, texts):
    threads = Threads(app, [asks])
    thread = threads.create()
    for list in (threads.list, lambda limit: threads.messages.list(thread.id, limit=limit)):
        with pytest.raises(holdfast.InvalidValue):
            list(limit=limit)

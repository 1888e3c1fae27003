"""`task.current`: what a body knows of its own task, the same on every replay. It is not read through the app."""

import asyncio

import pytest

import holdfast
from holdfast import Budget, InvalidValue, Task, agent
from tests.engine.both import declarer


@pytest.mark.parametrize("kind", ["def", "async"])
def test_it_has_the_shape_of_a_tasks_state_and_is_the_same_on_replay(app, kind):
    seen = []

    @declarer(kind)(stages=["asking", "done"], budget=Budget(steps=9))
    def worker(task, city: str):
        task.stage("asking")
        task.fact("service", {"name": "post"}, source="ana")
        task.plan(["ask", "send"])
        task.done("ask")
        task.flag("late")
        task.decide("how?", "by post", why="cheap", options=["by hand"])
        made = task.artifact({"text": "hi"}, type="draft")
        task.message({"role": "user", "content": "hello"})
        yield task.step(lambda: 1, name="one")
        task.decide("when?", "now")
        current = task.current
        seen.append(
            [
                current.facts["service"].value,
                current.plan[0].done,
                current.pending,
                current.flags,
                current.budget.used["steps"],
                (current.phase, current.stage, current.goal, current.status, current.id),
                current.artifacts[made].data,
                [one["choice"] for one in current.decisions],
                [one["content"] for one in current.messages],
                dict(current.input),
                current.steps["one#1"].result,
            ]
        )
        yield task.wait("go")

    app.run(worker, {"city": "Oslo"}, id="t", goal="to send it")
    app.signal("t", "go")
    app.run(worker, {"city": "Oslo"}, id="t")
    assert len(seen) == 2 and seen[0] == seen[1]
    assert seen[0] == [
        {"name": "post"},
        True,
        ["send"],
        ["late"],
        1,
        (seen[0][5][0], "asking", "to send it", "running", "t"),
        {"text": "hi"},
        ["by post", "now"],
        ["hello"],
        {"city": "Oslo"},
        1,
    ]


def test_what_was_said_is_seen_at_once_and_what_others_write_with_the_next_waiting_verb(app):
    seen = []

    @agent
    def worker(task):
        task.state.n = 1
        seen.append(dict(task.current.state))
        app.patch("t", holdfast.StatePatch(set={"m": 2}), by="ana")
        seen.append(dict(task.current.state))
        task.step(lambda: 1, name="one")
        seen.append(dict(task.current.state))

    app.run(worker, id="t")
    assert seen == [{"n": 1}, {"n": 1}, {"n": 1, "m": 2}]


@pytest.mark.parametrize("kind", ["def", "async"])
def test_a_goal_can_be_said_anew(app, kind):
    seen = []

    @declarer(kind)()
    def worker(task):
        seen.append(task.current.goal)
        task.goal("a better one")
        seen.append(task.current.goal)
        yield task.wait("go")

    assert app.run(worker, id="t", goal="the first").goal == "a better one"
    app.signal("t", "go")
    app.run(worker, id="t", goal="the first")
    assert seen == ["the first", "a better one"] * 2


@pytest.mark.parametrize("wrong", [5, None, "\ud800"])
def test_a_goal_that_is_no_text_is_refused(app, wrong, texts):
    @agent
    def worker(task):
        with texts.raises(holdfast.HoldfastError):
            task.goal(wrong)

    assert app.run(worker, id="t").status == "completed"


READS = {
    "get": lambda app: app.get("t"),
    "find": lambda app: app.find("t"),
    "at": lambda app: app.at("t", 1),
    "wait": lambda app: app.wait("t", timeout=1),
    "events": lambda app: list(app.events("t")),
    "describe": lambda app: list(app.describe("t")),
    "resume": lambda app: app.resume("t"),
    "run": lambda app: app.run(holdfast.Agent(lambda task: 1, name="worker"), id="t"),
}


@pytest.mark.parametrize("verb", READS)
def test_a_body_that_reads_its_own_task_through_the_app_is_told_of_task_current(app, verb, texts):
    @agent
    def worker(task):
        with texts.raises(InvalidValue) as refused:
            READS[verb](app)
        return [f"app.{verb}(" in refused.value.message, "task.current" in refused.value.hint]

    assert app.run(worker, id="t").result == [True, True]


def test_the_awaited_form_refuses_too(app):
    @agent
    async def worker(task):
        with pytest.raises(InvalidValue, match=r"task\.current"):
            await app.aio.get("t")
        return 1

    assert asyncio.run(app.arun(worker, id="t")).result == 1


def test_in_a_step_and_of_other_tasks_reading_is_allowed(app):
    @agent
    def other(task):
        return 1

    @agent
    def worker(task):
        app.run(other, id="other")
        return [task.step(lambda: app.get("t").status, name="look"), app.get("other").result]

    assert app.run(worker, id="t").result == ["running", 1]


def test_a_decision_keeps_what_spoke_against_each_option(app):
    @agent
    def chooses(task: Task) -> None:
        task.decide("which flight?", "SK4035", options={"DY641": "arrives 23:10", "AF1274": ""})

    app.run(chooses, id="t")
    (made,) = app.get("t").decisions
    assert made["options"] == [{"option": "DY641", "why": "arrives 23:10"}, {"option": "AF1274", "why": ""}]

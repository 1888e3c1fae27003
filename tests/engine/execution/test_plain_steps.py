"""Functions declared with @step, called like functions: steps in an agent's body, plain functions elsewhere."""

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast
from holdfast import InvalidValue, NestedStep, Step, StepChanged, UnnamedThread, agent, step, tool


@pytest.fixture
def made():
    return []


@pytest.fixture
def draft(made):
    @step
    def draft(notes: str, loud: bool = False) -> str:
        made.append(notes)
        return notes.upper() if loud else notes

    return draft


@pytest.fixture
def adraft(made):
    @step(name="draft")
    async def draft(notes: str, loud: bool = False) -> str:
        await asyncio.sleep(0)
        made.append(notes)
        return notes.upper() if loud else notes

    return draft


# In a body


def test_a_call_in_a_body_is_made_once_ever(app, draft, made):
    @agent
    def worker(task):
        return [draft("a", loud=True), draft(notes="b"), task.step(draft, "c"), task.wait("go")]

    app.run(worker, id="t")
    app.signal("t", "go", 1)
    assert app.run(worker, id="t").result == ["A", "b", "c", 1]
    assert made == ["a", "b", "c"]
    assert [(one.key, one.input) for one in app.steps("t") if one.name == "draft"] == [
        ("draft#1", {"notes": "a", "loud": True}),
        ("draft#2", {"notes": "b"}),
        ("draft#3", {"notes": "c"}),
    ]


def test_an_async_step_is_awaited(app, adraft, made):
    @agent
    async def worker(task):
        one, two = await asyncio.gather(adraft("a"), adraft("b"))
        return [one, two, await adraft("c"), await task.wait("go")]

    asyncio.run(app.arun(worker, id="t"))
    app.signal("t", "go", 1)
    assert asyncio.run(app.arun(worker, id="t")).result == ["a", "b", "c", 1]
    assert sorted(made) == ["a", "b", "c"]


def test_what_it_declares_holds_and_yields_to_what_is_given(app):
    tries = []

    @step(name="flaky", retry=holdfast.Retry(3, first=0), retry_on=[ValueError])
    def often(n: int) -> int:
        tries.append(n)
        raise ValueError("no")

    @agent
    def worker(task):
        for use in (
            lambda: often(1),
            lambda: task.step(often, 2, retry=holdfast.Retry(2, first=0)),
            lambda: task.step(often, 3, name="other"),
        ):
            with pytest.raises(holdfast.StepFailed):
                use()

    assert app.run(worker, id="t").status == "completed"
    assert tries == [1, 1, 1, 2, 2, 3, 3, 3]
    assert [one.key for one in app.steps("t")] == ["flaky#1", "flaky#2", "other#1"]


def test_a_method_is_a_step_of_its_object(app):
    class Writer:
        def __init__(self, mood):
            self.mood = mood

        @step
        def draft(self, notes: str) -> str:
            return f"{self.mood} {notes}"

    glad, sad = Writer("glad"), Writer("sad")

    @agent
    def worker(task):
        return [glad.draft("a"), sad.draft("b")]

    assert app.run(worker, id="t").result == ["glad a", "sad b"]
    assert [(one.key, one.input) for one in app.steps("t")] == [
        ("draft#1", {"notes": "a"}),
        ("draft#2", {"notes": "b"}),
    ]
    assert glad.draft("c") == "glad c" and isinstance(Writer.draft, Step)


def test_it_can_be_mapped(app, draft):
    @agent
    def worker(task):
        return task.map(draft, ["a", "b"])

    assert app.run(worker, id="t").result == ["a", "b"]


def test_it_is_a_step_in_a_block_and_in_a_child(app, draft, made):
    @agent
    def child(task):
        return draft("child")

    with app.task("block", id="b") as block:
        assert [draft("block"), block.spawn(child, {})] == ["block", "child"]
    with app.task("block", id="b") as block:
        assert [draft("block"), block.spawn(child, {})] == ["block", "child"]
    assert made == ["block", "child"]
    assert [one.key for one in app.steps("b/child#1")] == ["draft#1"]


# Where it is a plain function


def test_outside_of_agents_it_is_the_plain_function(draft, adraft):
    assert draft("a", loud=True) == "A" == draft.fn("a", True)
    assert asyncio.run(adraft("a")) == "a"
    assert (draft.name, draft.__name__) == ("draft", "draft")


def test_in_a_step_a_tool_or_a_helper_of_them_it_is_the_plain_function(app, draft, made):
    @tool(effect="idempotent")
    def publish(notes: str) -> str:
        return draft(notes)

    @agent
    def worker(task):
        return [task.step(lambda: draft("in a step"), name="outer"), publish("in a tool")]

    assert app.run(worker, id="t").result == ["in a step", "in a tool"]
    assert [one.key for one in app.steps("t")] == ["outer#1", "publish#1"]


def test_in_steps_in_threads_of_steps_it_is_plain_too(app, draft):
    def threaded():
        with ThreadPoolExecutor() as pool:
            context = contextvars.copy_context()
            return pool.submit(context.run, draft, "a").result()

    @agent
    def worker(task):
        return task.step(threaded)

    assert app.run(worker, id="t").result == "a"


# Where it is refused


def test_a_thread_that_carries_the_context_is_told_to_name_its_step(app, draft, texts):
    @agent
    def worker(task):
        context, failed = contextvars.copy_context(), []

        def call():
            try:
                context.run(draft, "a")
            except UnnamedThread as error:
                failed.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        raise failed[0]

    failure = app.run(worker, id="t").failure
    assert failure.type == "UnnamedThread" and "task.step(draft, …, key=…)" in failure.message


def test_to_thread_in_an_async_agent_is_told_to_name_its_step(app, draft):
    @agent
    async def worker(task):
        return await asyncio.to_thread(draft, "a")

    failure = asyncio.run(app.arun(worker, id="t")).failure
    assert failure.type == "UnnamedThread" and "task.step(draft, …, key=…)" in failure.message


def test_a_def_step_called_plainly_in_an_async_agent_says_what_to_write(app, draft, made):
    @agent
    async def worker(task):
        return draft("a")

    failure = asyncio.run(app.arun(worker, id="t")).failure
    assert failure.type == "InvalidValue" and "await task.step(draft, …)" in failure.message and made == []


def test_a_task_group_calls_async_steps_plainly(app, adraft, made):
    @agent
    async def worker(task):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(wrapped(n)) for n in "ab"]
        return [one.result() for one in tasks]

    async def wrapped(notes):
        return await adraft(notes)

    assert asyncio.run(app.arun(worker, id="t")).result == ["a", "b"]
    assert asyncio.run(app.arun(worker, id="t")).result == ["a", "b"] and len(made) == 2


def test_a_tool_with_an_effect_is_refused_inside_a_plain_step(app):
    @tool
    def pay() -> str:
        raise AssertionError("never called")

    @step
    def sneaky() -> str:
        return pay()

    @agent
    def worker(task):
        return sneaky()

    failure = app.run(worker, id="t").failure
    assert failure.type == "StepFailed" and "NestedStep" in failure.message
    assert NestedStep.code == "nested-step"


def test_other_input_at_the_same_place_is_a_changed_step(app, draft):
    given = ["a"]

    @agent
    def worker(task):
        draft(given[0])
        return task.wait("go")

    app.run(worker, id="t")
    given[0] = "b"
    app.signal("t", "go")
    done = app.run(worker, id="t")
    assert done.failure.type == StepChanged.__name__


@pytest.mark.parametrize(
    "declare",
    [
        lambda: step(5),
        lambda: step(holdfast.Tool(lambda: 1, name="t")),
        lambda: step(holdfast.Agent(lambda task: 1, name="a")),
        lambda: step(lambda: 1),
        lambda: step(name="")(print),
        lambda: step(timeout="soon")(print),
        lambda: step(retry_on=["x"])(print),
    ],
)
def test_what_is_no_function_or_option_is_refused_by_name(declare, texts):
    with texts.raises(InvalidValue):
        declare()

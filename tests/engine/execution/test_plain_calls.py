"""Tools called like functions: durable in an agent's body, plain elsewhere, refused where nothing could record them."""

import asyncio
import contextvars
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast
from holdfast import Happened, NestedStep, UnnamedThread, UnrecordedCall, agent, tool
from holdfast.engine.definitions import call
from tests.engine.both import Crash, kinds

STORES = ("memory", "sqlite", "postgres")


@pytest.fixture
def sent():
    return []


@pytest.fixture
def send(sent):
    @tool(effect="once")
    def send(to: str, subject: str = "hello") -> str:
        sent.append((to, subject))
        return f"msg-{len(sent)}"

    return send


@pytest.fixture
def asend(sent):
    @tool(effect="once", name="send")
    async def send(to: str, subject: str = "hello") -> str:
        sent.append((to, subject))
        return f"msg-{len(sent)}"

    return send


@tool(effect="read")
def look(city: str) -> str:
    return f"sunny in {city}"


# In a body


def test_a_call_in_a_body_is_made_once_ever(app, send, sent):
    @agent
    def worker(task):
        first = send("ana", subject="hi")
        second = send(to="ben")
        return [first, second, task.wait("go")]

    app.run(worker, id="t")
    app.signal("t", "go", 1)
    assert app.run(worker, id="t").result == ["msg-1", "msg-2", 1]
    assert sent == [("ana", "hi"), ("ben", "hello")]
    assert [step.key for step in app.steps("t") if step.tool] == ["send#1", "send#2"]
    assert "step_started" in kinds(app)


def test_plain_calls_are_numbered_like_task_call(app, send):
    @agent
    def worker(task):
        return [send("a"), task.call(send, to="b"), send("c")]

    app.run(worker, id="t")
    assert [(step.key, step.input["to"]) for step in app.steps("t")] == [
        ("send#1", "a"),
        ("send#2", "b"),
        ("send#3", "c"),
    ]


def test_a_crash_after_a_plain_call_leaves_it_in_doubt(app, sent):
    @tool(effect="once")
    def send(to: str) -> str:
        sent.append(to)
        raise Crash

    @agent
    def worker(task):
        return send("ana")

    with pytest.raises(Crash):
        app.run(worker, id="t")
    assert app.run(worker, id="t").waiting.kind == "doubt" and sent == ["ana"]


def test_an_async_tool_is_awaited_in_an_async_body(app, asend, sent):
    @agent
    async def worker(task):
        return [await asend("ana"), await asyncio.gather(asend("ben"), asend("eve"))]

    done = app.run(worker, id="t")
    assert done.result[0] == "msg-1" and sorted(done.result[1]) == ["msg-2", "msg-3"] and len(sent) == 3


def test_an_async_tool_gives_its_value_in_a_def_body(app, asend, sent):
    @agent
    def worker(task):
        return asend("ana")

    assert app.run(worker, id="t").result == "msg-1" and len(sent) == 1


def test_a_def_tool_in_an_async_body_is_refused_with_what_to_write(app, send, sent, texts):
    @agent
    async def worker(task):
        return send("ana")

    failed = app.run(worker, id="t")
    assert failed.failure.code == "invalid-value"
    texts.check(failed.failure.message)
    assert not sent


def test_a_block_is_a_body(app, send, sent):
    for _ in range(2):
        with app.task("triage", id="t") as task:
            task.finish(send("ana"))
    assert app.get("t").result == "msg-1" and len(sent) == 1


def test_a_child_has_a_body_of_its_own(app, send, sent):
    @agent
    def child(task):
        return send("from the child")

    @agent
    def parent(task):
        return [send("before"), task.spawn(child), send("after")]

    app.run(parent, id="t")
    assert [to for to, _ in sent] == ["before", "from the child", "after"]
    assert [step.key for step in app.steps("t/child#1")] == ["send#1"]


def test_an_agent_started_inside_a_step_has_a_body_of_its_own(app, send, sent):
    @agent
    def inner(task):
        return send("inner")

    @agent
    def outer(task):
        return task.step(lambda: app.run(inner, id="i").result, name="start")

    assert app.run(outer, id="t").result == "msg-1"
    assert [step.key for step in app.steps("i")] == ["send#1"]


def test_a_library_that_calls_a_tool_in_a_body_makes_a_durable_call(app, send, sent):
    def library(notify):
        return [notify(to) for to in ("ana", "ben")]

    @agent
    def worker(task):
        return library(send)

    assert app.run(worker, id="t").result == ["msg-1", "msg-2"]
    assert [step.key for step in app.steps("t")] == ["send#1", "send#2"]


# Outside


def test_outside_an_agent_a_tool_is_a_plain_function(send, sent):
    assert send("ana") == "msg-1" and send.fn("ben") == "msg-2" and len(sent) == 2


def test_fn_is_the_plain_function_in_a_body_too(app, send, sent):
    @agent
    def worker(task):
        return send.fn("ana")

    assert app.run(worker, id="t").result == "msg-1" and app.steps("t") == []


# Inside a step, a tool, reconcile or an undo


@pytest.mark.parametrize("kind", ["def", "async"])
def test_inside_a_step_only_what_reads_can_be_called(app, send, sent, kind):
    def inside():
        with pytest.raises(NestedStep):
            send("ana")
        return look("Oslo")

    if kind == "def":

        @agent
        def worker(task):
            return task.step(inside, name="inside")
    else:

        @agent
        async def worker(task):
            return await task.step(inside, name="inside")

    done = app.run(worker, id="t")
    assert done.result == "sunny in Oslo" and not sent and [step.key for step in app.steps("t")] == ["inside#1"]


def test_inside_reconcile_and_an_undo_nothing_but_reading_is_allowed(app, send, sent):
    refused = []

    def tried(*given):
        try:
            send("ana")
        except NestedStep as error:
            refused.append(error)
        return look("Oslo")

    @tool(effect="once", reconcile=lambda call: Happened(tried()), reconcile_after=0, compensate=tried)
    def pay() -> str:
        raise ConnectionResetError

    @agent
    def worker(task):
        pay()
        raise ValueError("undo it")

    assert app.run(worker, id="t").status == "failed"
    assert len(refused) == 2 and not sent


# Other threads


def test_a_thread_that_carries_the_context_is_refused_with_what_to_write(app, send, sent, texts):
    @agent
    def worker(task):
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(context.run, send, "ana").result()

    failed = app.run(worker, id="t")
    assert failed.failure.code == "unnamed-thread"
    texts.check(failed.failure.message)
    assert not sent


def test_to_thread_in_an_async_body_is_refused_with_what_to_write(app, send, sent):
    @agent
    async def worker(task):
        with pytest.raises(UnnamedThread):
            await asyncio.to_thread(send, "ana")
        return 1

    assert app.run(worker, id="t").result == 1 and not sent


def test_a_bare_thread_beside_a_body_warns_once_for_each_place(app, send, sent, monkeypatch, texts):
    monkeypatch.setattr(call, "_warned", set())

    @agent
    def worker(task):
        def bare():
            for _ in range(3):
                send("ana")

        thread = threading.Thread(target=bare)
        thread.start()
        thread.join()
        return 1

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        app.run(worker, id="t")
    assert [one.category for one in told] == [UnrecordedCall]
    texts.check(told[0].message)
    assert len(sent) == 3, "it is a warning, not an error"


def test_a_tool_that_reads_never_warns(app):
    @agent
    def worker(task):
        found = []
        thread = threading.Thread(target=lambda: found.append(look("Oslo")))
        thread.start()
        thread.join()
        return found

    assert app.run(worker, id="t").result == ["sunny in Oslo"]


# Arguments


def test_arguments_that_do_not_fit_are_refused_before_anything_is_written(app, send, sent):
    @agent
    def worker(task, how: str):
        return {"many": lambda: send(1, 2, 3), "unknown": lambda: send("a", nope=1), "none": lambda: send()}[how]()

    for how in ("many", "unknown", "none"):
        failed = app.run(worker, {"how": how}, id=how)
        assert failed.failure.code == "invalid-input" and app.steps(how) == []
    assert not sent


def test_a_tool_with_a_parameter_called_key_gets_it(app):
    @tool(effect="idempotent")
    def store(key: str, value: int) -> str:
        return f"{key}={value}"

    @agent
    def worker(task):
        return [
            store("a", 1),
            task.call(store, key="b", value=2),
            task.call(store, {"key": "c", "value": 3}, key="mine"),
        ]

    assert app.run(worker, id="t").result == ["a=1", "b=2", "c=3"]
    assert [step.key for step in app.steps("t")] == ["store#1", "store#2", "mine"]


def test_holdfast_itself_is_not_changed_by_a_plain_call_that_fails(app):
    @tool(effect="once", definite=[ValueError])
    def pay(cents: int) -> str:
        raise ValueError("no such card")

    @agent
    def worker(task):
        with pytest.raises(holdfast.StepFailed):
            pay(5)
        return "told"

    assert app.run(worker, id="t").result == "told"

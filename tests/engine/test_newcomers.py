"""What people get wrong in their first hour: refused at once, with the remedy, and never silently unsafe."""

import gc

import pytest

import holdfast
from holdfast import Happened, InvalidValue, NotDone, agent, tool


@pytest.fixture
def app():
    with holdfast.open("memory:") as app:
        yield app


@pytest.mark.parametrize("reconciled", [True, False])
def test_a_once_call_that_raised_is_in_doubt_at_once(app, reconciled):
    made = []

    @tool(effect="once", reconcile=(lambda call: Happened("bank")) if reconciled else None, reconcile_after=0)
    def pay(x: int) -> str:
        made.append(x)
        raise ConnectionError("reset after it was sent")

    @agent
    def shop(task):
        return task.call(pay, x=1)

    again = app.run(shop, id="t")
    assert made == [1], "it may have happened"
    if reconciled:
        assert (again.status, again.result) == ("completed", "bank")
    else:
        assert (again.status, again.waiting.kind) == ("waiting", "doubt")
        app.settle("t", "pay#1", happened=True, result="seen", by="ana")
        assert app.run(shop, id="t").result == "seen"


def test_a_once_call_that_is_known_not_to_have_happened_is_made_again(app):
    made = []

    @tool(effect="once")
    def pay() -> int:
        made.append(1)
        if len(made) == 1:
            raise NotDone("the bank was closed")
        return len(made)

    @agent
    def shop(task):
        return task.call(pay)

    assert app.run(shop, id="t").status == "failed"
    assert app.resume("t", shop).result == 2


def test_a_tool_or_an_agent_is_no_plain_step(app):
    @tool(effect="once", risk="external_action")
    def post(text: str) -> str:
        return "posted"

    @agent
    def other(task):
        return 1

    @agent
    def worker(task, which: int):
        return task.step(post, "hi") if which == 1 else task.step(other)

    for which, verb in ((1, "task.call"), (2, "task.spawn")):
        failed = app.run(worker, {"which": which}, id=f"t{which}")
        assert failed.status == "failed" and verb in failed.failure.message


@pytest.mark.parametrize("verb", ["approve", "call", "step", "map"])
def test_a_verb_that_nobody_awaits_fails_the_task_and_does_nothing(app, verb, recwarn):
    made = []

    @tool(effect="once")
    def pay() -> None:
        made.append(1)

    @agent
    async def worker(task):
        uses = {
            "approve": lambda: task.approve("may I?") and made.append("approved"),
            "call": lambda: task.call(pay),
            "step": lambda: task.step(made.append, 1),
            "map": lambda: task.map(made.append, [1]),
        }
        uses[verb]()
        return "done"

    failed = app.run(worker, id="t")
    gc.collect()
    assert (failed.status, made) == ("failed", [])
    assert f"await task.{verb}(…)" in failed.failure.message
    assert not recwarn.list


def test_declarations_that_cannot_be_meant_are_refused():
    def plain(token: str): ...

    async def late(x: int, *, connection): ...

    for declare in (
        lambda: tool(redact=["tokn"])(plain),
        lambda: tool(unique="order-{ordr}")(plain),
        lambda: tool(reconcile="x")(plain),
        lambda: tool(compensate=3)(plain),
        lambda: tool(effect="transaction")(late),
        lambda: tool("once"),
        lambda: agent(stages="drafting")(lambda task: 1),
        lambda: agent(loop=True, max_turns=-3, name="x")(lambda task: 1),
        lambda: agent(name="x")(_without_a_task),
    ):
        with pytest.raises(InvalidValue) as refused:
            declare()
        assert refused.value.hint


def _without_a_task(city: str, n: int): ...


def test_input_that_is_no_dict_and_options_that_are_none_are_named(app, texts):
    @agent
    def worker(task, n: int = 0):
        task.message("hi")

    for input in (5, "hello"):
        with texts.raises(InvalidValue):
            app.run(worker, input)
    with pytest.raises(TypeError, match="'n'"):
        app.run(worker, n=3)
    texts.check(app.run(worker, id="t").failure.message)
    assert [one.id for one in app.list()] == ["t"]


def test_a_finished_task_belongs_to_its_agent(app, texts):
    @agent
    def one(task):
        return 1

    @agent
    def two(task):
        return 2

    app.run(one, id="t")
    with texts.raises(InvalidValue):
        app.run(two, id="t")

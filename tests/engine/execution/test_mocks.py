"""Mock tasks: every call of a tool is answered by its mock, and nothing outside is touched."""

import asyncio

import pytest

import holdfast
from holdfast import DidNotHappen, InvalidValue, NoMock, NotDone, Retry, agent, tool
from holdfast.testing.crash.everywhere import crash_everywhere

CLOCK = None  # the real one


@pytest.fixture
def outside():
    """What the real functions touched."""
    return []


def paying(outside, **options):
    @tool(effect="once", **options)
    def pay(amount: int, *, idempotency_key: str) -> dict:
        outside.append(idempotency_key)
        return {"receipt": "real"}

    @agent(required_for_risk_levels=["payment"])
    def shop(task, amount: int) -> str:
        return task.call(pay, amount=amount)["receipt"]

    return shop, pay


@pytest.mark.parametrize("effect", ["read", "idempotent", "once"])
def test_a_mock_answers_for_the_tool_whatever_its_effect(app, outside, effect):
    @tool(effect=effect, mock={"receipt": "pretended"})
    def pay(amount: int) -> dict:
        outside.append(amount)
        return {}

    @agent
    def shop(task):
        return task.call(pay, amount=3)

    done = app.run(shop, id="shop", mock=True)
    assert (done.result, done.mock, outside) == ({"receipt": "pretended"}, True, [])
    assert done.calls["pay#1"].input == {"amount": 3}
    assert repr(done).startswith("<mock task shop")


def test_a_mock_may_be_a_function_and_is_given_what_it_takes(app, outside):
    seen = []

    def pretend(amount, idempotency_key):
        seen.append((amount, idempotency_key))
        return {"receipt": f"for {amount}"}

    shop, _ = paying(outside, mock=pretend)
    assert app.run(shop, {"amount": 3}, id="a", mock=True).result == "for 3"
    assert seen[0][0] == 3 and seen[0][1].startswith("a:pay#1:pay:")
    bare, _ = paying(outside, mock=lambda amount: {"receipt": "bare"})
    assert app.run(bare, {"amount": 3}, id="b", mock=True).result == "bare"
    assert outside == []


def test_mocks_given_for_one_task_win_over_the_declared_ones(app, outside):
    shop, pay = paying(outside, mock={"receipt": "declared"})
    by_name = app.run(shop, {"amount": 1}, id="a", mock={"pay": {"receipt": "by name"}})
    by_tool = app.run(shop, {"amount": 1}, id="b", mock={pay: lambda amount: {"receipt": f"by tool {amount}"}})
    neither = app.run(shop, {"amount": 1}, id="c", mock={})
    assert [by_name.result, by_tool.result, neither.result] == ["by name", "by tool 1", "declared"]
    assert by_name.mock and neither.mock and outside == []


def test_a_tool_that_gives_none_is_mocked_by_none(app):
    @tool(mock=None)
    def ping() -> None:
        raise AssertionError("touched")

    @agent
    def pinger(task):
        return [task.call(ping)]

    assert app.run(pinger, mock=True).result == [None]


def test_a_tool_without_a_mock_is_refused_before_anything_is_called(app, outside, texts):
    @tool(effect="read")
    def look() -> str:
        outside.append("looked")
        return "real"

    @agent
    def looker(task):
        return task.call(look)

    failed = app.run(looker, id="look", mock=True)
    assert failed.failure.type == "NoMock"
    texts.check(failed.failure.message)
    assert outside == [] and not failed.steps
    assert not [one for one in app.events("look") if one.kind.startswith("step_")]
    again = app.run(looker, id="again", mock={"loook": 1})
    assert again.failure.code == NoMock.code


def test_no_call_of_a_reply_is_made_for_real_when_one_lacks_a_mock(app, outside):
    @tool(effect="read")
    def look() -> str:
        outside.append("looked")
        return "real"

    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    reply = {"role": "assistant", "content": None, "tool_calls": [call]}

    @agent
    def looker(task):
        task.message(reply)
        return task.call_tools(reply, [look])

    assert app.run(looker, mock=True).failure.type == "NoMock" and outside == []


def test_a_mock_task_stays_one_whoever_goes_on_with_it(tmp_path, outside):
    shop, _ = paying(outside, mock={"receipt": "pretended"}, risk="payment")
    with holdfast.open(tmp_path / "a.db") as app:
        assert app.run(shop, {"amount": 1}, id="a", mock=True).waiting.kind == "person"
    with holdfast.open(tmp_path / "a.db") as app:
        app.approve("a", "pay#1", by="ana")
        assert app.resume("a", shop).result == "pretended" and outside == []
        app.start(shop, {"amount": 2}, id="b", mock=True)
        app.run(shop, {"amount": 2}, id="b")
        app.approve("b", "pay#1")
        assert app.run(shop, {"amount": 2}, id="b").result == "pretended" and outside == []


def test_lists_tell_mock_tasks_from_real_ones(app, outside):
    shop, _ = paying(outside, mock={"receipt": "pretended"})
    app.run(shop, {"amount": 1}, id="real")
    app.run(shop, {"amount": 1}, id="mock", mock=True)
    assert {one.id: one.mock for one in app.list()} == {"real": False, "mock": True}
    assert app.get("mock").to_dict()["mock"] is True and "mock" not in app.get("real").to_dict()


def test_a_real_task_cannot_become_a_mock_one(app, outside, texts):
    shop, _ = paying(outside, mock={"receipt": "pretended"})
    app.run(shop, {"amount": 1}, id="real")
    head = app.get("real").seq
    with texts.raises(InvalidValue):
        app.run(shop, {"amount": 1}, id="real", mock=True)
    with app.task("block", id="block"):
        pass
    with texts.raises(InvalidValue), app.task("block", id="block", mock=True):
        pass
    assert app.get("real").seq == head and len(outside) == 1


def test_a_mocked_call_does_not_take_the_real_unique_key(app, outside):
    shop, _ = paying(outside, mock={"receipt": "pretended"}, unique="order-17")
    assert app.run(shop, {"amount": 1}, id="m1", mock=True).result == "pretended"
    assert app.run(shop, {"amount": 1}, id="real").result == "real"
    assert app.run(shop, {"amount": 1}, id="m2", mock=True).result == "pretended"
    assert app.run(shop, {"amount": 2}, id="m3", mock=True).failure.type == "EffectConflict"
    assert len(outside) == 1


def test_nobody_can_choose_a_unique_key_of_the_mock_tasks(app, outside, texts):
    shop, _ = paying(outside, unique="@mock/order-{amount}")
    texts.check(app.run(shop, {"amount": 1}).failure.message)
    assert outside == []


def test_a_mock_that_raises_is_a_tool_that_raised(app, outside):
    tries = []

    def refuse(amount):
        tries.append(amount)
        raise NotDone("the bank is closed") if len(tries) < 3 else ValueError("no such card")

    shop, _ = paying(outside, mock=refuse, retry=Retry(5, first=0))
    failed = app.run(shop, {"amount": 1}, id="shop", mock=True)
    assert failed.waiting.kind == "doubt" and failed.steps["pay#1"].attempts == 3, "as it would be outside"
    assert len(tries) == 3 and outside == []


def test_approvals_are_asked_for_in_mock_tasks_too(app, outside, texts):
    shop, _ = paying(outside, mock={"receipt": "pretended"}, risk="payment")
    assert app.run(shop, {"amount": 1}, id="a", mock=True).waiting.on[0]["arguments"] == {"amount": 1}
    app.reject("a", "pay#1", by="ana", why="too much")
    texts.check(app.run(shop, {"amount": 1}, id="a", mock=True).failure.message)


def test_a_transaction_tool_is_mocked_without_a_connection(app):
    seen = []

    def pretend(text, connection):
        seen.append((text, connection))
        return 7

    @tool(effect="transaction", mock=pretend)
    def add_row(text: str, *, connection) -> int:
        raise AssertionError("touched")

    @agent
    def writer(task):
        return task.call(add_row, text="hello")

    assert app.run(writer, mock=True).result == 7 and seen == [("hello", None)]


def test_async_tools_and_mocks_go_together_in_every_way(app):
    async def slow_mock(n):
        await asyncio.sleep(0)
        return n + 1

    @tool(mock=slow_mock)
    async def both(n: int) -> int:
        raise AssertionError("touched")

    @tool(mock=lambda n: n + 2)
    async def plain_mock(n: int) -> int:
        raise AssertionError("touched")

    @tool(mock=slow_mock)
    def plain_tool(n: int) -> int:
        raise AssertionError("touched")

    @agent
    async def on_a_loop(task):
        return [await task.call(one, n=1) for one in (both, plain_mock, plain_tool)]

    @agent
    def in_a_thread(task):
        return [task.call(one, n=1) for one in (both, plain_mock, plain_tool)]

    assert app.run(on_a_loop, mock=True).result == app.run(in_a_thread, mock=True).result == [2, 3, 2]
    assert asyncio.run(app.arun(on_a_loop, mock=True)).mock


def test_children_of_a_mock_task_are_mock_tasks(app, outside):
    shop, _ = paying(outside)

    @agent
    def boss(task):
        return [task.spawn(shop, {"amount": 1}), *task.map(shop, [{"amount": 2}])]

    done = app.run(boss, id="boss", mock={"pay": {"receipt": "pretended"}})
    assert done.result == ["pretended", "pretended"] and outside == []
    assert app.get("boss/shop#1").mock and app.get("boss/~1/shop#1").mock


def test_nothing_is_undone_for_real(app, outside):
    def refund(call):
        outside.append("refunded")

    def release(seat):
        outside.append("released")

    @tool(effect="idempotent", mock=lambda call: f"recalled {call.result['receipt']}")
    def recall(call):
        outside.append("recalled")

    @tool(effect="once", mock={"receipt": "1"}, compensate=refund)
    def pay() -> dict:
        return {}

    @tool(effect="once", mock={"receipt": "2"}, compensate=recall)
    def send() -> dict:
        return {}

    @agent
    def order(task):
        task.call(pay)
        task.call(send)
        task.compensate(release, seat=4)
        raise RuntimeError("sold out")

    failed = app.run(order, id="order", mock={release: lambda seat: f"seat {seat}"})
    assert failed.status == "failed" and not failed.failure.notes and outside == []
    undone = {key: step.result for key, step in failed.steps.items() if key.startswith("~undo")}
    assert undone == {"~undo/release#1": "seat 4", "~undo/recall#1": "recalled 2", "~undo/refund#1": None}


def test_a_block_can_be_a_mock_task(app, outside):
    _, pay = paying(outside)
    with app.task("order", id="order", mock={pay: {"receipt": "pretended"}}) as task:
        task.finish(task.call(pay, amount=1))
    assert app.get("order").mock and app.get("order").result == {"receipt": "pretended"} and outside == []


def test_a_fork_of_a_mock_task_is_one_and_asks_nobody(app, outside):
    shop, _ = paying(outside, mock={"receipt": "pretended"})
    app.run(shop, {"amount": 1}, id="a", mock=True)
    fork = app.fork("a", at=2, id="b")
    assert fork.mock and app.run(shop, {"amount": 1}, id="b").result == "pretended" and outside == []


def test_a_recorded_fork_may_be_given_mocks(app, outside):
    shop, _ = paying(outside)
    app.start(shop, {"amount": 1}, id="a")
    app.fork("a", id="b", effects="recorded")
    done = app.run(shop, {"amount": 1}, id="b", mock={"pay": {"receipt": "pretended"}})
    assert done.result == "pretended" and not done.mock and outside == []


def test_a_mock_task_survives_a_crash_anywhere_and_asks_nobody_about_it(tmp_path):
    def find(call):
        raise AssertionError("reconcile was asked")

    @tool(effect="once", mock={"receipt": "pretended"}, reconcile=find, unique="order")
    def pay() -> dict:
        raise AssertionError("touched")

    @agent
    def shop(task):
        return [task.step(lambda: 1, name="price"), task.call(pay)["receipt"]]

    def paid(state, world):
        assert state.status == "completed" and state.mock

    def drive(app):
        return app.run(shop, id="shop", mock=True)

    report = crash_everywhere(drive=drive, id="shop", agents=[shop], check=paid, directory=tmp_path)
    assert report.survived == report.points > 10


def test_a_mock_that_takes_too_long_is_in_doubt_and_nobody_outside_is_asked(app):
    @tool(effect="once", mock=lambda: asyncio.sleep(5), timeout=0.05, reconcile=lambda call: DidNotHappen())
    async def slow() -> str:
        return "real"

    @agent
    async def waiter(task):
        return await task.call(slow)

    assert app.run(waiter, id="slow", mock=True).waiting.kind == "doubt"
    app.settle("slow", "slow#1", happened=True, result="settled")
    assert app.run(waiter, id="slow").result == "settled"


@pytest.mark.parametrize("given", ["yes", {3: 1}, {"": 1}])
def test_a_mock_that_makes_no_sense_is_refused_and_nothing_is_written(app, outside, given, texts):
    shop, _ = paying(outside)
    with texts.raises(InvalidValue):
        app.run(shop, {"amount": 1}, id="a", mock=given)
    assert app.list() == []


def test_export_and_import_keep_a_mock_task_one(app, outside, tmp_path):
    shop, _ = paying(outside, mock={"receipt": "pretended"}, risk="payment")
    app.run(shop, {"amount": 1}, id="a", mock=True)
    app.export("a", tmp_path / "a.jsonl")
    with holdfast.open("memory:") as other:
        other.import_(tmp_path / "a.jsonl")
        assert other.get("a").mock and other.list()[0].mock
        other.approve("a", "pay#1")
        assert other.run(shop, {"amount": 1}, id="a").result == "pretended" and outside == []


def test_a_rolled_back_mock_task_is_still_one(app, outside):
    shop, _ = paying(outside, mock={"receipt": "pretended"})
    app.run(shop, {"amount": 1}, id="a", mock=True)
    assert app.rollback("a", 1).mock and app.run(shop, {"amount": 1}, id="a").result == "pretended"
    assert outside == []


def test_a_replay_needs_no_mock_for_what_is_recorded(tmp_path, outside):
    _, pay = paying(outside)

    @agent
    def shop(task):
        receipt = task.call(pay, amount=1)["receipt"]
        task.wait("go")
        return receipt

    with holdfast.open(tmp_path / "a.db") as app:
        app.run(shop, id="a", mock={pay: {"receipt": "pretended"}})
    with holdfast.open(tmp_path / "a.db") as app:
        app.signal("a", "go")
        assert app.resume("a", shop).result == "pretended" and outside == []

"""Settling fits the tool, and can be corrected while nothing was built on it."""

import pytest

import holdfast
from holdfast import InvalidEvent, InvalidValue, tool
from tests.engine.both import kinds

STORES = ("memory", "sqlite", "postgres")


@pytest.fixture
def sent():
    return []


@pytest.fixture
def worker(either, sent):
    @tool(effect="once", compensate=_recall)
    def send(to: str) -> str:
        sent.append(to)
        raise ConnectionResetError

    @either()
    def worker(task):
        message = yield task.call(send, to="ana")
        return message.upper()

    return worker


def _recall(call):
    raise AssertionError("nothing is to be undone")


@pytest.mark.parametrize("result", [None, 7, {"id": "msg-1"}, ["msg-1"]])
def test_a_result_that_the_tool_cannot_have_is_refused(app, worker, sent, result):
    app.run(worker, id="t")
    before = app.get("t").seq
    with pytest.raises(InvalidValue) as refused:
        app.settle("t", "send#1", happened=True, result=result, by="ana")
    assert "'send'" in refused.value.message and refused.value.hint
    assert app.get("t").seq == before
    app.settle("t", "send#1", happened=True, result="msg-1", by="ana")
    assert app.run(worker, id="t").result == "MSG-1" and sent == ["ana"]


def test_a_settlement_by_one_who_does_not_know_the_tool_is_asked_for_again(url, clock, worker, sent):
    if url == "memory:":
        pytest.skip("another process is needed")
    with holdfast.open(url, clock=clock) as app:
        app.run(worker, id="t")
    with holdfast.open(url, clock=clock) as other:
        other.settle("t", "send#1", happened=True, by="ana")
    with holdfast.open(url, clock=clock) as app:
        waiting = app.run(worker, id="t")
        assert waiting.status == "waiting" and waiting.waiting.kind == "doubt" and sent == ["ana"]
        (item,) = app.inbox()
        assert item.key == "send#1"
        assert (
            "settled as happened, but" in [one.event.why for one in app.events("t") if one.kind == "step_doubted"][-1]
        )
        app.settle("t", "send#1", happened=True, result="msg-1", by="ana")
        done = app.run(worker, id="t")
        assert (done.result, sent) == ("MSG-1", ["ana"])


def test_a_settlement_is_corrected_while_the_task_has_not_gone_on(app, worker, sent):
    app.run(worker, id="t")
    app.settle("t", "send#1", happened=True, result="msg-wrong", by="ana")
    app.settle("t", "send#1", happened=True, result="msg-1", by="ben")
    assert app.run(worker, id="t").result == "MSG-1"
    assert kinds(app).count("step_settled") == 2
    with pytest.raises(holdfast.HoldfastError):
        app.settle("t", "send#1", happened=False)


def test_a_settlement_that_was_built_upon_stays(app, either, sent, texts):
    @tool(effect="once")
    def send(to: str) -> str:
        sent.append(to)
        raise ConnectionResetError

    @either()
    def worker(task):
        message = yield task.call(send, to="ana")
        yield task.wait("go")
        return message

    app.run(worker, id="t")
    app.settle("t", "send#1", happened=True, result="msg-1", by="ana")
    app.run(worker, id="t")
    with pytest.raises(InvalidEvent) as refused:
        app.settle("t", "send#1", happened=False, by="ben")
    texts.check(refused.value)


def test_a_corrected_settlement_counts_once(app, either, sent):
    undone = []

    def recall(call):
        undone.append(call.result)

    @tool(effect="once", compensate=recall)
    def send(to: str) -> str:
        sent.append(to)
        raise ConnectionResetError

    @either()
    def worker(task):
        yield task.call(send, to="ana")
        raise ValueError("undo it")

    app.run(worker, id="t")
    for result in ("a", "b", "c"):
        app.settle("t", "send#1", happened=True, result=result, by="ana")
    assert app.run(worker, id="t").status == "failed"
    assert undone == ["c"]


def test_corrected_to_not_happened_it_fails_with_its_own_error(app, worker, sent):
    app.run(worker, id="t")
    app.settle("t", "send#1", happened=True, result="msg-1", by="ana")
    app.settle("t", "send#1", happened=False, by="ben")
    failed = app.run(worker, id="t")
    assert failed.status == "failed" and "ConnectionResetError" in failed.failure.message and sent == ["ana"]

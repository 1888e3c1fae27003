"""Unique keys follow what became of their call: undone, settled, reconciled, failed."""

import pytest

from holdfast import Happened, InvalidEvent, Retry, StepFailed, agent, tool
from holdfast.engine.execution import step_request

STORES = ("memory", "sqlite", "postgres")
pytestmark = pytest.mark.usefixtures("impatient")


class Stock:
    """A shop that reserves and releases, and knows what is reserved."""

    def __init__(self):
        self.reserved, self.log = {}, []

    def tool(self, effect):
        def release(call):
            self.reserved.pop(call.result)
            self.log.append(f"release {call.result}")

        @tool(effect=effect, unique="order-{order}", compensate=release)
        def reserve(order: int) -> str:
            number = f"r{len(self.log)}"
            self.reserved[number] = order
            self.log.append(f"reserve {number}")
            return number

        return reserve


@pytest.mark.parametrize("effect", ["once", "idempotent"])
def test_a_released_reservation_is_never_handed_out_again(app, either, effect):
    stock = Stock()
    reserve = stock.tool(effect)

    @either()
    def worker(task, fails: bool):
        number = yield task.call(reserve, order=1)
        if fails:
            raise ValueError("no truck")
        return number

    assert app.run(worker, {"fails": True}, id="one").status == "failed"
    done = app.run(worker, {"fails": False}, id="two")
    assert done.result in stock.reserved, stock.log
    assert stock.log == ["reserve r0", "release r0", "reserve r2"]
    assert app.store.owner_of_key("order-1").log == "two"


def test_a_key_stays_taken_if_its_call_could_not_be_undone(app, either, monkeypatch):
    stock = Stock()
    reserve = stock.tool("once")
    tries = []

    def stubborn(call):
        tries.append(1)
        raise ConnectionError

    reserve.compensate = stubborn

    @either()
    def worker(task):
        yield task.call(reserve, order=1)
        raise ValueError

    monkeypatch.setattr(step_request, "UNDO_RETRY", Retry(attempts=2, first=0))
    failed = app.run(worker, id="one")
    assert failed.status == "failed" and len(tries) == 2
    assert app.store.owner_of_key("order-1").log == "one", "what could not be undone is not free"


def test_a_call_that_was_reconciled_in_a_resumed_task_gives_its_result_to_others(app, either):
    sent = []

    @tool(effect="once", unique="mail-{number}", on_doubt="fail")
    def send(number: int) -> str:
        sent.append(number)
        raise ConnectionResetError

    @either()
    def worker(task):
        return (yield task.call(send, number=1))

    assert app.run(worker, id="one").failure.code == "step-failed"
    send.reconcile, send.reconcile_after = (lambda call: Happened("msg-1")), 0
    assert app.resume("one", worker).result == "msg-1"
    assert app.run(worker, id="two").result == "msg-1" and sent == [1]


def test_a_call_settled_while_its_task_waits_gives_its_result_to_others(app, either):
    sent = []

    @tool(effect="once", unique="mail-{number}", on_doubt="fail")
    def send(number: int) -> str:
        sent.append(number)
        raise ConnectionResetError

    @either(name="first")
    def first(task):
        try:
            yield task.call(send, number=1)
        except StepFailed:
            yield task.wait("go")

    @agent
    def second(task):
        return task.call(send, number=1)

    app.run(first, id="one")
    app.settle("one", "send#1", happened=True, result="msg-1", by="ana")
    assert app.run(second, id="two").result == "msg-1" and sent == [1]


def test_a_key_whose_call_did_not_happen_is_free(app, either):
    sent = []

    @tool(effect="once", unique="mail-{number}")
    def send(number: int) -> str:
        sent.append(number)
        if len(sent) == 1:
            raise ConnectionResetError
        return "msg-2"

    @either()
    def worker(task):
        return (yield task.call(send, number=1))

    app.run(worker, id="one")
    waiting = app.run(worker, id="two")
    assert waiting.waiting.kind == "doubt" and "task 'one'" in waiting.waiting.why
    app.settle("one", "send#1", happened=False, by="ana")
    app.clock.advance(1)
    assert app.run(worker, id="two").result == "msg-2" and sent == [1, 1]


def test_a_settlement_that_is_corrected_takes_its_key_again(app, either):
    @tool(effect="once", unique="mail-{number}")
    def send(number: int) -> str:
        raise ConnectionResetError

    @either()
    def worker(task):
        return (yield task.call(send, number=1))

    app.run(worker, id="one")
    app.settle("one", "send#1", happened=False, by="ana")
    assert app.store.owner_of_key("mail-1") is None
    app.settle("one", "send#1", happened=True, result="msg-1", by="ben")
    assert app.store.owner_of_key("mail-1").log == "one"
    assert app.run(worker, id="one").result == "msg-1"


# What was undone is not built upon


def compensated(app):
    reserve = Stock().tool("once")

    @agent
    def worker(task):
        task.step(int, "1", name="before")
        task.call(reserve, order=1)
        raise ValueError

    app.run(worker, id="t")


def test_a_compensated_task_cannot_be_rolled_back(app, texts):
    compensated(app)
    with pytest.raises(InvalidEvent) as refused:
        app.rollback("t")
    assert refused.value.hint
    texts.check(refused.value)


def test_a_compensated_task_is_forked_only_before_what_was_undone(app, texts):
    compensated(app)
    head = app.get("t").seq
    with pytest.raises(InvalidEvent) as refused:
        app.fork("t", at=head, id="f")
    texts.check(refused.value)
    before = app.step("t", "before#1").after
    assert app.fork("t", at=before, id="early").status == "pending"
    replay = app.fork("t", at=app.step("t", "reserve#1").after, id="replay", effects="recorded")
    assert replay.status == "pending"

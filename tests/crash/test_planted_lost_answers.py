"""Bugs about answers that get lost without a crash, planted one by one; each is caught by a check."""

import asyncio
import threading
import time

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import StepFailed, agent, tool
from holdfast.core import limits
from holdfast.core.flows import doubt, step as flows
from holdfast.engine.control import answers
from holdfast.engine.execution import execution as executions, step_request
from holdfast.engine.execution.branches import Deliveries
from holdfast.engine.logs.logs import Logs
from holdfast.store.sqlite.store import SqliteStore
from tests.crash.test_planted_bugs import Bench, Bug


class Sent(list):
    """What a mail server was sent."""

    def tool(self, **declared):
        @tool(**{"effect": "once", "name": "send", **declared})
        def send(to: str) -> str:
            self.append(to)
            if len(self) == 1:
                raise ConnectionResetError
            return f"msg-{len(self)}"

        return send


def an_exception_is_not_sent_again(bench):
    sent = Sent()
    send = sent.tool(on_doubt="fail")

    @agent
    def worker(task):
        for _ in range(3):
            try:
                return task.call(send, to="ana")
            except StepFailed:
                continue
        return "gave up"

    with holdfast.open("memory:") as app:
        app.run(worker, id="t")
    assert sent == ["ana"], "it was sent again"


def exceptions_are_failures(patch):
    """An exception is taken for the word that nothing happened."""
    patch.setattr(flows, "is_definite", lambda outcome, request: True)


def a_released_key_is_free(bench):
    reserved = []

    def release(call):
        reserved.remove(call.result)

    @tool(effect="once", unique="order-{order}", compensate=release)
    def reserve(order: int) -> str:
        reserved.append(f"r{time.monotonic_ns()}")
        return reserved[-1]

    @agent
    def worker(task, fails: bool):
        number = task.call(reserve, order=1)
        if fails:
            raise ValueError
        return number

    with holdfast.open("memory:") as app:
        app.run(worker, {"fails": True}, id="one")
        assert app.run(worker, {"fails": False}, id="two").result in reserved, "a released one was handed out"


def undone_keys_stay_taken(patch):
    """What undoes a call leaves its unique key with it."""
    right = step_request.undo_request
    patch.setattr(executions, "undo_request", lambda *given: replace(right(*given), frees=""))


def a_stale_screen_approves_nothing(bench):
    cents, paid = [44], []

    @tool(effect="once", risk="money")
    def refund(cents: int) -> None:
        paid.append(cents)

    @agent(required_for_risk_levels=["money"], on_change="rerun")
    def worker(task):
        task.call(refund, cents=cents[-1])

    with holdfast.open("memory:") as app:
        app.run(worker, id="t")
        screen = next(app.inbox())
        app.approve("t", screen.key, bound=screen.bound, by="ana")
        cents.append(440)
        app.run(worker, id="t")
        try:
            app.approve("t", screen.key, bound=screen.bound, by="ben")
        except holdfast.InvalidEvent:
            return
        app.run(worker, id="t")
    assert paid == [], "ben saw 44"


def anything_shown_will_do(patch):
    """What a person saw is not compared with what they approve."""
    patch.setattr(answers, "_refuse_unseen", lambda asked, shown: None)


def a_call_is_found_under_its_old_key(bench):
    paid, lives = [], []

    @tool(effect="once")
    async def pay(order: int) -> int:
        paid.append(order)
        return order

    async def call(task):
        return await task.call(pay, order=1)

    @agent
    async def worker(task):
        lives.append(1)
        for _ in range(len(lives) - 1):
            await asyncio.create_task(asyncio.sleep(0))
        await asyncio.create_task(call(task))
        await task.wait("go")

    with holdfast.open("memory:") as app:
        app.run(worker, id="t")
        app.signal("t", "go")
        app.run(worker, id="t")
    assert paid == [1], "paid twice"


def new_calls_wait_for_nobody(patch):
    """A new call is made while recorded ones of its name are before other branches."""

    def after_others(surroundings, key, on_change):
        return
        yield

    patch.setattr(flows, "after_others", after_others)


def a_living_thread_is_waited_for(bench):
    go, sent = threading.Event(), []

    @tool(effect="once", timeout="50ms", on_doubt="retry", abandoned_after="30s")
    def send(to: str) -> str:
        sent.append(to)
        if len(sent) == 1:
            go.wait(20)
        return "msg"

    @agent
    def worker(task):
        return task.call(send, to="ana")

    with holdfast.open("memory:") as app:
        app.run(worker, id="t", hold=0)
        made = len(sent)
        go.set()
    assert made <= 1, "its thread was alive"


def threads_are_forgotten(patch):
    """A call that timed out is made again at once, whatever its thread is doing."""

    def never(known):
        return False
        yield

    patch.setattr(doubt, "_may_still_be_sent", never)


def a_rotated_token_is_the_same_call(bench):
    tokens, keys = ["old-token", "new-token"], []

    @tool(effect="idempotent", redact=["token"])
    def charge(token: str, *, idempotency_key: str) -> None:
        keys.append(idempotency_key)
        if len(keys) == 1:
            raise KeyboardInterrupt

    @agent
    def worker(task):
        task.call(charge, token=tokens.pop(0))

    with holdfast.open("memory:") as app:
        with pytest.raises(KeyboardInterrupt):
            app.run(worker, id="t")
        app.run(worker, id="t")
    assert len(set(keys)) == 1, "two keys for one charge"


def secrets_are_part_of_the_call(patch):
    """A fingerprint of a secret is recorded with the arguments, and covered by the key."""
    right = step_request._input
    patch.setattr(step_request, "_input", lambda tool, arguments, secret, is_old: right(tool, arguments, secret, True))


def two_stores_share_no_key(bench):
    keys = set()

    @tool(effect="idempotent")
    def charge(order: int, *, idempotency_key: str) -> None:
        keys.add(idempotency_key)

    @agent
    def worker(task):
        task.call(charge, order=1)

    for _ in range(2):
        with holdfast.open("memory:") as app:
            app.run(worker, id="order-1")
    assert len(keys) == 2, "one key in two stores"


def every_store_is_the_same(patch):
    """Idempotency keys do not cover where a task began."""
    patch.setattr(Logs, "key_space", "")


def a_process_lives_while_its_call_does(bench):
    go, begun = threading.Event(), threading.Event()

    @tool(effect="once")
    def pay(order: int) -> None:
        begun.set()
        go.wait(20)

    @agent
    def worker(task):
        task.call(pay, order=1)

    path = f"{bench.directory}/closing-{time.monotonic_ns()}.db"
    app = holdfast.open(path)

    def work():
        with pytest.raises(holdfast.StoreClosed):
            app.run(worker, id="t")

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(20)
    holder = app.row("t").holder
    app.close(grace=0)
    with holdfast.open(path) as other:
        lives = other.store.alive(holder)
        go.set()
        thread.join(20)
        assert lives, "it counts as dead while its call runs"
        assert not other.store.alive(holder)


def closing_drops_the_sign_of_life(patch):
    """An app that is closed lets go of its presence at once."""
    right = SqliteStore.close
    patch.setattr(SqliteStore, "close", lambda self, *, present=False: right(self))


def a_race_has_the_same_winner_on_a_replay(bench):
    bought = []

    async def look(seconds, shop):
        await asyncio.sleep(seconds)
        return shop

    @tool(effect="once")
    def buy(shop: str) -> None:
        bought.append(shop)

    @agent
    async def worker(task):
        steps = {asyncio.ensure_future(task.step(look, *one, name=one[1])) for one in ((0.1, "slow"), (0.0, "quick"))}
        done, _ = await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
        await task.call(buy, shop=next(iter(done)).result())
        await asyncio.wait(steps)
        await task.wait("go")

    with holdfast.open("memory:") as app:
        app.run(worker, id="t")
        app.signal("t", "go")
        ended = app.run(worker, id="t")
        assert (ended.status, bought) == ("completed", ["quick"]), f"the replay went another way: {bought}"


def results_come_as_they_are_asked_for(patch):
    """A replay gives recorded results in the order in which the program asks for them."""
    right = Deliveries.in_turn
    patch.setattr(Deliveries, "in_turn", lambda self, seq: right(self, 0))


BUGS = [
    Bug(results_come_as_they_are_asked_for, a_race_has_the_same_winner_on_a_replay, "went another way"),
    Bug(exceptions_are_failures, an_exception_is_not_sent_again, "sent again"),
    Bug(undone_keys_stay_taken, a_released_key_is_free, "released one was handed out"),
    Bug(anything_shown_will_do, a_stale_screen_approves_nothing, "ben saw 44"),
    Bug(new_calls_wait_for_nobody, a_call_is_found_under_its_old_key, "paid twice"),
    Bug(threads_are_forgotten, a_living_thread_is_waited_for, "its thread was alive"),
    Bug(secrets_are_part_of_the_call, a_rotated_token_is_the_same_call, "two keys for one charge"),
    Bug(every_store_is_the_same, two_stores_share_no_key, "one key in two stores"),
    Bug(closing_drops_the_sign_of_life, a_process_lives_while_its_call_does, "counts as dead"),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_caught(bug, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "REPLAY_PATIENCE_SECONDS", 0.2)
    bug.assert_caught(Bench(None, tmp_path))

"""A thread that is still running, a call that is not over: neither is sent again meanwhile."""

import asyncio
import threading
import time

import pytest

import holdfast
from holdfast import DidNotHappen, Happened, agent, tool
from holdfast.engine.drivers.abandonable import ABANDONED
from tests.engine.both import KINDS, events
from tests.waiting import until

STORES = ("memory", "sqlite", "postgres")
CLOCK = None  # the real one: threads do not wait for another


def slow_mailer(sent, late, **declared):
    @tool(effect="once", name="send", timeout="100ms", **declared)
    def send(to: str) -> str:
        sent.append((to, threading.get_ident()))
        if len(sent) == 1:
            late.wait(20)
        return f"msg-{len(sent)}"

    return send


def in_thread(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    return thread, found


@pytest.mark.parametrize("how", ["did not happen", "retry"])
def test_a_call_is_not_made_again_while_its_thread_may_be_sending(app, either, late, how):
    sent = []
    declared = {"on_doubt": "retry"} if how == "retry" else {"reconcile": lambda call: DidNotHappen()}
    send = slow_mailer(sent, late, reconcile_after=0, abandoned_after="10s", **declared)

    @either()
    def worker(task):
        return (yield task.call(send, to="ana"))

    thread, found = in_thread(lambda: app.run(worker, id="t"))
    until(lambda: app.head("t") and "step_doubted" in [one.kind for one in app.events("t")])
    time.sleep(0.3)
    assert len(sent) == 1, "its thread is alive"
    late.set()
    thread.join(20)
    assert found[0].result == "msg-2" and len(sent) == 2, "it was made again when the thread had ended"
    assert events(app, "step_doubted")[0].until_us > 0 and events(app, "step_observed")[0].ended


def test_the_word_that_it_happened_is_taken_at_once(app, either, late):
    sent = []
    send = slow_mailer(sent, late, reconcile=lambda call: Happened("msg-1"), reconcile_after=0)

    @either()
    def worker(task):
        return (yield task.call(send, to="ana"))

    assert app.run(worker, id="t").result == "msg-1" and len(sent) <= 1 and not late.is_set()


def test_a_persons_settlement_is_taken_at_once(app, either, late):
    sent = []
    send = slow_mailer(sent, late)

    @either()
    def worker(task):
        return (yield task.call(send, to="ana"))

    assert app.run(worker, id="t").waiting.kind == "doubt"
    app.settle("t", "send#1", happened=True, result="msg-1", by="ana")
    assert app.run(worker, id="t").result == "msg-1" and len(sent) == 1


def test_after_the_declared_time_the_thread_is_given_up(app, either, late):
    sent = []
    send = slow_mailer(sent, late, on_doubt="retry", abandoned_after="200ms")

    @either()
    def worker(task):
        return (yield task.call(send, to="ana"))

    began = time.monotonic()
    assert app.run(worker, id="t").result == "msg-2" and time.monotonic() - began >= 0.2


def test_another_process_obeys_the_time_too(url, late, tmp_path, texts):
    """The time is recorded with the doubt. Another app stands for another process."""
    if url == "memory:":
        pytest.skip("one process only")
    sent = []
    send = slow_mailer(sent, late, on_doubt="retry", abandoned_after="30s")

    @agent
    def worker(task):
        return task.call(send, to="ana")

    with holdfast.open(url) as app:
        thread, _ = in_thread(lambda: app.run(worker, id="t", hold=0))
        thread.join(20)
    with holdfast.open(url) as other:
        waiting = other.run(worker, id="t", hold=0)
        assert waiting.status == "waiting" and len(sent) == 1
        texts.check(waiting.waiting.why)
        late.set()
        until(lambda: not len(ABANDONED))
        assert other.run(worker, id="t", hold=0).status == "waiting", "nobody here can know that it has ended"


def test_a_task_that_waits_for_a_thread_wakes_when_it_ends(app, either, late):
    sent = []
    send = slow_mailer(sent, late, on_doubt="retry")

    @either()
    def worker(task):
        return (yield task.call(send, to="ana"))

    assert app.run(worker, id="t", hold=0).waiting.kind == "doubt"
    late.set()
    until(lambda: app.get("t").status == "pending")
    assert app.run(worker, id="t").result == "msg-2"


# wait_for in a retry loop


@pytest.mark.parametrize("tool_kind", KINDS)
def test_a_call_that_was_given_up_answers_for_the_next_one_like_it(app, late, tool_kind):
    """`asyncio.wait_for` in a retry loop sent again while the first call was open."""
    sent = []
    options = {"effect": "once", "name": "send", "reconcile": lambda call: Happened("msg-1"), "reconcile_after": 0}
    if tool_kind == "def":

        @tool(**options)
        def send(to: str) -> str:
            sent.append(to)
            late.wait(5)
            return "late"
    else:

        @tool(**options)
        async def send(to: str) -> str:
            sent.append(to)
            await asyncio.sleep(5)
            return "late"

    @agent
    async def worker(task):
        for _ in range(3):
            try:
                return await asyncio.wait_for(task.call(send, to="ana"), 0.05)
            except TimeoutError:
                continue
        return "gave up"

    done = app.run(worker, id="t")
    assert (done.result, sent) == ("msg-1", ["ana"])
    assert app.run(worker, id="t").result == "msg-1"


def test_a_call_that_was_given_up_and_cannot_be_asked_about_is_asked_of_a_person(app):
    sent = []

    @tool(effect="once")
    async def send(to: str) -> str:
        sent.append(to)
        await asyncio.sleep(5)
        return "late"

    @agent
    async def worker(task):
        while True:
            try:
                return await asyncio.wait_for(task.call(send, to="ana"), 0.05 if len(sent) < 1 else 60)
            except TimeoutError:
                continue

    waiting = app.run(worker, id="t")
    assert waiting.waiting.kind == "doubt" and sent == ["ana"]
    app.settle("t", "send#1", happened=True, result="msg-1", by="ana")
    assert app.run(worker, id="t").result == "msg-1" and sent == ["ana"]


def test_branches_that_want_the_same_call_each_make_theirs_one_after_the_other(app):
    sent, under_way, most = [], [0], [0]

    @tool(effect="once")
    async def send(to: str) -> int:
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        sent.append(to)
        await asyncio.sleep(0.02)
        under_way[0] -= 1
        return len(sent)

    @agent
    async def worker(task):
        return sorted(await asyncio.gather(*(task.call(send, to="ana") for _ in range(3))))

    assert app.run(worker, id="t").result == [1, 2, 3] and most == [1]


def test_threads_that_want_the_same_call_each_make_theirs_one_after_the_other(app):
    sent, under_way, most = [], [0], [0]

    @tool(effect="once")
    def send(to: str) -> int:
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        time.sleep(0.02)
        sent.append(to)
        under_way[0] -= 1
        return len(sent)

    @agent
    def worker(task):
        return sorted(task.map(send, [{"to": "ana"}] * 3))

    assert app.run(worker, id="t").result == [1, 2, 3] and most == [1]


@pytest.mark.parametrize("wrong", [-1, "soon", "x"])
def test_a_time_that_is_none_is_refused(wrong):
    with pytest.raises(holdfast.InvalidValue):
        tool(effect="once", abandoned_after=wrong)(lambda: 1)

"""Wake-ups: one branch waits, another works, and the answer comes meanwhile. No task hangs."""

import asyncio
import contextlib
import json
import os
import random
import threading
import time

import pytest

import holdfast
from holdfast import Retry, agent, tool
from holdfast.core import codec, events as ev
from holdfast.core.codec import Group, Write
from holdfast.core.state import rules
from tests.waiting import until

STORES = ("memory", "sqlite", "postgres")
CLOCK = None  # the real one
ALL = os.environ.get("HOLDFAST_TEST_ALL") == "1"
MOMENTS = 50 if ALL else 1
WORK_SECONDS = 0.15


@tool(effect="once", risk="money")
def refund(cents: int) -> str:
    return f"refunded {cents}"


@tool(effect="once")
def lost(order: int) -> str:
    raise ConnectionResetError


@tool(effect="read")
def slow(n: int) -> int:
    time.sleep(WORK_SECONDS / 3)
    return n


@agent
def child(task):
    return task.wait("child may end")


async def waiter(task, kind):
    match kind:
        case "signal":
            return await task.wait("go")
        case "question":
            return await task.ask("who?", name="who")
        case "approval":
            return await task.approve("sure?", name="sure")
        case "approval of a call":
            return await task.call(refund, cents=4)
        case "child":
            return await task.spawn(child, name="child")
        case "settlement":
            return await task.call(lost, order=1)


def def_waiter(task, kind):
    match kind:
        case "signal":
            return task.wait("go")
        case "question":
            return task.ask("who?", name="who")
        case "approval":
            return task.approve("sure?", name="sure")
        case "child":
            return task.spawn(child, name="child")


def wait_key(kind, prefix=""):
    names = {"approval of a call": "refund", "settlement": "lost", "question": "who", "approval": "sure"}
    return f"{prefix}{names.get(kind, '')}#1"


def answer(app, kind, prefix):
    """Give a task what one of its branches waits for, as soon as it can be given."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with contextlib.suppress(holdfast.HoldfastError):  # not yet
            return _answer(app, kind, prefix)
        time.sleep(0.002)
    return _answer(app, kind, prefix)


def _answer(app, kind, prefix):
    match kind:
        case "signal":
            app.signal("t", "go", 1)
        case "question":
            app.answer("t", wait_key(kind, prefix), 1)
        case "approval" | "approval of a call":
            app.approve("t", wait_key(kind, prefix), by="ana")
        case "child":
            app.signal(f"t/{prefix}child#1", "child may end", 1)
        case "settlement":
            app.settle("t", wait_key(kind, prefix), happened=True, result="found", by="ana")
        case "cancel":
            app.get("t")
            app.cancel("t")


KINDS = ("signal", "question", "approval", "approval of a call", "child", "settlement", "cancel")


def asynchronous(kind):
    @agent(name="both", required_for_risk_levels=["money"], retries=Retry(attempts=1))
    async def both(task):
        async def works():
            for n in range(3):
                await task.step(slow.fn, n, name="slow")
            return "worked"

        return await asyncio.gather(waiter(task, "signal" if kind == "cancel" else kind), works())

    return both, "~1/"


def in_a_thread(kind):
    """A def agent: what waits is a thread of its own, and the agent works meanwhile."""

    @agent(name="both")
    def both(task):
        found = []

        def wait():
            found.append(def_waiter(task, kind))

        thread = threading.Thread(target=lambda: _quietly(wait))
        thread.start()
        for n in range(3):
            task.step(slow.fn, n, name="slow")
        thread.join()
        return found

    return both, {"signal": "~go/", "question": "~who/", "approval": "~sure/", "child": "~child/"}[kind]


def _quietly(wait):
    with contextlib.suppress(holdfast.Suspended):
        wait()


def of_tools(kind):
    """A def agent whose tool calls are made in parallel: one needs an approval, or is in doubt, the other is slow."""
    risky = refund if kind == "approval of a call" else lost

    @agent(name="both", required_for_risk_levels=["money"])
    def both(task):
        calls = [
            {
                "id": "1",
                "function": {"name": risky.name, "arguments": {"cents": 4} if risky is refund else {"order": 1}},
            },
            {"id": "2", "function": {"name": "slow", "arguments": {"n": 1}}},
        ]
        reply = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", **one} for one in calls]}
        for call in reply["tool_calls"]:
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
        task.message({"role": "user", "content": "go"})
        task.message(reply)
        return [one["content"] for one in task.call_tools(reply, [risky, slow])]

    return both, "~1/"


AGENTS = (
    *(pytest.param(asynchronous, kind, id=f"async-{kind}") for kind in KINDS),
    *(pytest.param(in_a_thread, kind, id=f"def-{kind}") for kind in ("signal", "question", "approval", "child")),
    *(pytest.param(of_tools, kind, id=f"tools-{kind}") for kind in ("approval of a call", "settlement")),
)


def by_run(app, both):
    return app.run(both, id="t")


def by_arun(app, both):
    return asyncio.run(app.arun(both, id="t"))


@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize("how", ["run", "arun", "worker"])
@pytest.mark.parametrize(("made", "kind"), AGENTS)
def test_an_answer_that_comes_while_others_work_is_not_lost(app, made, kind, how, moment):
    both, prefix = made(kind)
    pause = random.Random(f"{kind} {how} {moment}").random() * WORK_SECONDS * 1.3
    answered = []

    def later():
        until(lambda: app.head("t") != 0)
        time.sleep(pause)
        answer(app, kind, prefix)
        answered.append(True)

    answering = threading.Thread(target=later)
    answering.start()
    if how == "worker":
        served = app.worker([both, child])
        app.start(both, id="t")
        working = threading.Thread(target=served.run)
        working.start()
        until(lambda: app.get("t").status in ("completed", "failed", "cancelled"), 30)
        served.stop()
        working.join(20)
    else:
        go = {"run": by_run, "arun": by_arun}[how]
        end = time.monotonic() + 30
        go(app, both)
        while app.get("t").status in ("pending", "running") or not answered:
            assert time.monotonic() < end
            if app.get("t").status in ("pending", "running"):
                go(app, both)
            time.sleep(0.002)
        while app.get("t").status in ("pending", "running"):
            go(app, both)
        if kind == "child" and app.get("t").status == "waiting":
            go(app, both)
    answering.join(20)
    done = app.get("t")
    assert done.status == ("cancelled" if kind == "cancel" else "completed"), (done.status, done.waiting, done.failure)


def test_a_parked_branch_is_told_at_once_while_others_work(app):
    """A signal comes to a branch, although another branch is in the middle of a step."""
    told = threading.Event()

    @agent
    async def both(task):
        async def quick():
            value = await task.wait("go")
            told.set()
            return value

        return await asyncio.gather(quick(), task.step(told.wait, 20, name="slow"))

    def later():
        until(lambda: app.head("t") and "wait_started" in [one.kind for one in app.events("t")])
        app.signal("t", "go", 7)

    answering = threading.Thread(target=later)
    answering.start()
    done = app.run(both, id="t")
    answering.join(20)
    assert done.result == [7, True]


def test_a_wait_ends_at_its_time_while_others_work(app):
    told = threading.Event()

    @agent
    async def both(task):
        async def quick():
            value = await task.wait("go", timeout="100ms")
            told.set()
            return value

        return await asyncio.gather(quick(), task.step(told.wait, 20, name="slow"))

    assert app.run(both, id="t").result == [None, True]


# Tasks that an older version suspended too soon


def forgotten(app):
    """A task as an older version left it: the signal came, then another branch's record, then it was suspended."""

    @agent
    def worker(task):
        return [task.wait("go"), task.wait("again")]

    app.run(worker, id="t")
    app.signal("t", "go", 1)
    app.append("t", ev.TaskClaimed(holder="old"), ev.SignalReceived(name="again", value=holdfast.pack(2)))
    app.append("t", ev.TaskSuspended(why="signal"))
    assert app.get("t").status == "waiting" and rules.is_answered(app.logs.load("t").state)
    return worker


def test_a_task_that_an_older_version_forgot_is_run(app):
    worker = forgotten(app)
    assert app.run(worker, id="t").result == [1, 2]


def test_a_task_that_an_older_version_forgot_is_woken_by_a_worker(app):
    worker = forgotten(app)
    served = app.worker([worker])
    working = threading.Thread(target=served.run)
    working.start()
    until(lambda: app.get("t").status == "completed", 20)
    served.stop()
    working.join(20)
    assert app.get("t").result == [1, 2]


def test_a_task_of_today_is_not_woken_for_nothing(app):
    @agent
    async def both(task):
        return await asyncio.gather(task.wait("a"), task.wait("b"))

    app.run(both, id="t")
    app.signal("t", "a")
    waiting = app.run(both, id="t")
    seq = waiting.seq
    assert waiting.status == "waiting" and app.run(both, id="t").seq == seq


def test_a_waiting_task_that_a_newer_version_wrote_to_keeps_no_worker_from_the_others(app):
    @agent
    def waits(task):
        return task.wait("go")

    app.run(waits, id="newer")
    draft = codec.draft(ev.LogWritten(text="x"), 1)[0]
    future = type(draft)("telepathy_used", 1, b'{"who":"ana"}', codec.body_hash(b'{"who":"ana"}'))
    app.store.append([Group((Write("newer", (future,)),))])
    app.run(waits, id="other")
    served = app.worker([waits])
    working = threading.Thread(target=served.run)
    working.start()
    until(lambda: app.workers())
    app.signal("other", "go", 1)
    assert app.wait("other", timeout=60).result == 1
    served.stop()
    working.join(20)
    assert app.list(status="waiting")[0].id == "newer"

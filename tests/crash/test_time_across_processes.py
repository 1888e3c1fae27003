"""Deadlines and cancels where several processes work on a task, and some of them are killed."""

import os
import signal
import subprocess
import sys
import time

import pytest

import holdfast
from holdfast import agent
from tests.waiting import until, until_past

STORES = ("sqlite", "postgres")
LONG = 60

PROGRAM = """
import asyncio, os, sys, time
import holdfast
from holdfast import agent, tool

url, how, told = sys.argv[1:]

def hang():
    with open(told, "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(600)

async def hang_async():
    with open(told, "a") as file:
        file.write(f"{os.getpid()}\\n")
    await asyncio.sleep(600)

@agent
def plain(task):
    task.step(lambda: "kept", name="first")
    task.step(hang, name="hang")

@agent
async def looping(task):
    await task.step(lambda: "kept", name="first")
    await task.step(hang_async, name="hang")

pay = tool(hang, name="pay", effect="once")

@agent
def paying(task):
    task.call(pay)

known = {one.name: one for one in (plain, looping, paying)}
with holdfast.open(url) as app:
    if how == "worker":
        app.worker(list(known.values())).run()
    else:
        app.run(known[how], id="t", deadline="1h")
"""


@pytest.fixture
def begin(url, tmp_path):
    """Start a process that works on tasks; gives it when a step hangs there."""
    begun, told = [], tmp_path / "told"

    def start(how, before=lambda: None):
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, url, how, str(told)], env=env)
        begun.append(process)
        before()
        until(lambda: told.exists() and str(process.pid) in told.read_text().split())
        return process

    yield start
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.wait(LONG)


def declared(name, calls):
    """The agents of the program, as this process has them: they end at once."""

    def act():
        calls.append(1)
        return "done"

    @agent(name=name)
    def plain(task):
        task.step(lambda: "kept", name="first")
        return task.step(act, name="hang")

    @agent(name=name)
    async def looping(task):
        await task.step(lambda: "kept", name="first")
        return await task.step(act, name="hang")

    return plain if name == "plain" else looping


@pytest.mark.parametrize("name", ["plain", "looping"])
def test_a_deadline_outlives_the_process_and_ends_the_task_in_the_next_one(url, begin, name):
    calls = []
    with holdfast.open(url) as app:
        worker = begin("worker", lambda: app.start(name, id="t", deadline=3))
        deadline = app.get("t").deadline
        worker.kill()
        worker.wait(LONG)
        assert app.get("t").deadline == deadline
        until_past(deadline)
        done = app.run(declared(name, calls), id="t", wait=LONG)
        assert (done.status, done.failure.type, calls) == ("failed", "TimeLimit", [])
        assert done.deadline == deadline and done.steps["first#1"].result == "kept"


def test_a_worker_that_takes_over_ends_what_hangs_at_the_same_deadline(url, begin):
    with holdfast.open(url) as app:
        first = begin("worker", lambda: app.start("plain", id="t", deadline=8))
        deadline = app.get("t").deadline
        first.kill()
        first.wait(LONG)
        second = begin("worker")
        until(lambda: app.get("t").status == "failed")
        late = time.time() - deadline.timestamp()
        assert app.get("t").failure.type == "TimeLimit" and -0.1 < late < LONG / 3, late
        assert second.poll() is None, "the worker goes on"


@pytest.mark.parametrize("name", ["plain", "looping"])
@pytest.mark.parametrize("how", ["worker", "run"])
def test_a_cancel_reaches_a_step_in_another_process(url, begin, name, how):
    with holdfast.open(url) as app:
        if how == "worker":
            process = begin("worker", lambda: app.start(name, id="t"))
        else:
            process = begin(name)
        began = time.monotonic()
        app.cancel("t", by="ana")
        until(lambda: app.get("t").status == "cancelled")
        assert time.monotonic() - began < LONG / 3
        if how == "worker":
            assert process.poll() is None, "the worker goes on"
        else:
            assert process.wait(LONG) == 0, "app.run has returned"


def test_a_call_that_was_cancelled_in_another_process_is_in_doubt_and_settled_first(url, begin):
    with holdfast.open(url) as app:
        begin("worker", lambda: app.start("paying", id="t"))
        app.cancel("t")
        until(lambda: app.get("t").status == "waiting")
        assert app.get("t").waiting.kind == "doubt"
        app.settle("t", "pay#1", happened=False, by="ana")
        until(lambda: app.get("t").status == "cancelled")


def test_ctrl_c_twice_releases_a_task_that_runs_in_a_thread_of_its_own(url, begin):
    process = begin("plain")
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None, "once: it stops after its step"
    process.send_signal(signal.SIGINT)
    assert process.wait(LONG) != 0
    with holdfast.open(url) as app:
        assert app.get("t").status == "pending"
        assert app.run(declared("plain", []), id="t").result == "done"

"""A program that ends while daemon threads of it work on tasks: what these raise then is no failure of the tasks."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, thread
from pathlib import Path

import holdfast
from holdfast import Happened, Task, agent, events as ev, tool
from tests.waiting import until

ROOT = Path(__file__).parents[3]
STORES = ("sqlite", "postgres")
ENDS = False
"""Whether this process is the program that ends."""


def executors_are_closed():
    """Python has begun to end. It is not over before what runs in executors is."""
    return thread._shutdown or not ENDS


def in_an_executor():
    until(executors_are_closed)
    with ThreadPoolExecutor() as pool:
        return pool.submit(lambda: "seen").result()


async def in_the_executor_of_the_loop():
    while not executors_are_closed():
        await asyncio.sleep(0.01)
    return await asyncio.to_thread(lambda: "seen")


async def hold():
    """Keep Python from ending at once, as any call does that is under way in an executor."""
    await asyncio.to_thread(time.sleep, 3)
    return "seen"


@tool(effect="once", reconcile=lambda call: Happened(in_an_executor()), reconcile_after=0)
def pay() -> str:
    os._exit(9)


@agent
async def busy(task: Task) -> str:
    return await task.step(hold)


@agent
async def async_step(task: Task) -> str:
    return await task.step(in_the_executor_of_the_loop)


@agent
async def async_body(task: Task) -> str:
    return await in_the_executor_of_the_loop()


@agent
async def async_doubt(task: Task) -> str:
    return await task.call(pay)


@agent
def plain_step(task: Task) -> str:
    return task.step(in_an_executor)


@agent
def plain_body(task: Task) -> str:
    return in_an_executor()


@agent
def plain_doubt(task: Task) -> str:
    return task.call(pay)


AGENTS = [busy, async_step, async_body, async_doubt, plain_step, plain_body, plain_doubt]
DOUBTS = [async_doubt, plain_doubt]


def die(url, name):
    """Die in the middle of a call."""
    with holdfast.open(url, agents=AGENTS) as app:
        app.work(name)


def serve(url):
    """Work in a daemon thread, and end once every task is under way."""
    global ENDS
    ENDS = True
    app = holdfast.open(url)
    threading.Thread(target=app.worker(AGENTS).run, daemon=True).start()
    until(lambda: all(app.get(one.name).status == "running" for one in AGENTS))
    until(lambda: any(isinstance(one.event, ev.StepStarted) for one in app.events("busy")))


def program(call):
    """Run a function of this module in a process of its own."""
    command = [sys.executable, "-c", f"from tests.engine.workers.test_process_end import *; {call}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_tasks_of_a_program_that_ends_are_continued_by_another(url):
    with holdfast.open(url) as app:
        for one in AGENTS:
            app.start(one, id=one.name)
        for one in DOUBTS:
            assert program(f"die({url!r}, {one.name!r})").returncode == 9
        ended = program(f"serve({url!r})")
        assert ended.returncode == 0, ended.stderr
        wrong = (ev.AttemptFailed, ev.StepFailed, ev.TaskFailed, ev.TaskSuspended, ev.TaskReleased)
        found = [(one.name, record.event) for one in AGENTS for record in app.events(one.name)]
        assert [each for each in found if isinstance(each[1], wrong)] == []
        assert "this process ends" in ended.stderr
        worker = app.worker(AGENTS)
        running = threading.Thread(target=worker.run)
        running.start()
        results = {one.name: app.wait(one.name, timeout=60).result for one in AGENTS}
        worker.stop()
        running.join()
    assert results == {one.name: "seen" for one in AGENTS}

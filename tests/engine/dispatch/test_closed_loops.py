"""Event loops that are closed with tasks on them: the tasks are let go of, and can be resumed here and elsewhere."""

import asyncio
import contextlib
import gc
import logging
import time

import pytest

import holdfast
from holdfast import agent, tool
from tests.waiting import auntil, until

STORES = ("memory", "sqlite", "postgres")
did: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done(caplog):
    did.clear()
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it tells of the task that is destroyed
    yield
    logging.getLogger("asyncio").setLevel(logging.NOTSET)


async def nap():
    did.append("nap")
    await asyncio.sleep(30 if did == ["nap"] else 0)
    return "rested"


@tool(effect="idempotent")
def in_a_thread() -> str:
    did.append("thread")
    time.sleep(0.4)
    return "done"


@tool(effect="once")
async def pay() -> str:
    did.append("pay")
    await asyncio.sleep(30)
    return "paid"


@agent
async def worker(task, how):
    await task.step(str.upper, "begun", name="begin")
    if how == "nap":
        return await task.step(nap)
    if how == "asks":
        return await task.ask("?")
    return await task.call(in_a_thread if how == "thread" else pay)


def left_on_a_closed_loop(app, how):
    loop = asyncio.new_event_loop()
    task = loop.create_task(app.arun(worker, {"how": how}, id="t"))
    loop.run_until_complete(auntil(lambda: how in did or task.done()))
    loop.close()
    return task


def released(app):
    until(lambda: app.get("t").status != "running" and not app._dispatcher.busy.has("t"), why="it is not released")
    return app.get("t")


@pytest.mark.parametrize("kept", [True, False], ids=["somebody has the asyncio task", "nobody has"])
@pytest.mark.parametrize("how", ["nap", "thread"])
def test_the_task_is_let_go_of_and_resumed(app, how, kept):
    task = left_on_a_closed_loop(app, how)
    assert app.get("t").status in ("running", "pending"), "it may have been let go of already"
    if not kept:
        del task
        gc.collect()
    assert released(app).status == "pending"
    done = app.run(worker, {"how": how}, id="t")
    assert (done.status, did) == ("completed", [how, how])
    assert list(app.events("t"))[-1].kind == "task_completed" and app.verify().ok
    assert len(app._dispatcher.busy) == 0


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_another_process_can_take_it_over(app, url):
    task = left_on_a_closed_loop(app, "nap")
    with holdfast.open(url) as other:
        with contextlib.suppress(holdfast.TaskBusy):  # unless it has been let go of already
            other.run(worker, {"how": "nap"}, id="t")
        assert other.run(worker, {"how": "nap"}, id="t", wait=10).result == "rested"
    assert not task.done()


def test_a_call_that_was_under_way_is_in_doubt(app):
    task = left_on_a_closed_loop(app, "pay")
    released(app)
    waiting = app.run(worker, {"how": "pay"}, id="t")
    assert (waiting.waiting.kind, did) == ("doubt", ["pay"])
    assert not task.done()


def test_one_that_had_suspended_is_left_as_it_is(app):
    task = left_on_a_closed_loop(app, "asks")
    time.sleep(1)
    assert app.get("t").status == "waiting" and not app._dispatcher.busy.has("t")
    del task


def test_the_app_can_be_closed(url):
    app = holdfast.open(url)
    task = left_on_a_closed_loop(app, "nap")
    began = time.monotonic()
    app.close()
    assert time.monotonic() - began < 10 and not task.done()


def test_a_loop_that_runs_on_is_left_alone(app):
    async def main():
        working = asyncio.create_task(app.arun(worker, {"how": "thread"}, id="t"))
        await asyncio.sleep(0.1)
        return await working

    assert asyncio.run(main()).status == "completed"
    assert [record.kind for record in app.events("t")].count("task_claimed") == 1

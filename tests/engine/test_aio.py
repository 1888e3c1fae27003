"""app.aio: every verb of an app can be awaited, and the event loop goes on meanwhile."""

import asyncio
import inspect
import threading
import time

import pytest

import holdfast
from holdfast import StatePatch, TaskNotFound, TimeLimit, agent
from holdfast.engine.aio import AsyncApp
from holdfast.engine.app import App

STORES = ("memory", "sqlite", "postgres")
CLOCK = None  # the real one
NOT_AWAITED = {"aio", "task"}
"""`task` is a `with` block: the code in it is not async."""


@agent
async def double(task, n: int) -> int:
    return await task.step(lambda: 2 * n, name="double")


@agent
def sign(task) -> str:
    return task.ask("who?", name="who")


def test_every_public_name_of_an_app_has_its_awaited_form():
    names = {name for name, _ in inspect.getmembers(App, callable) if not name.startswith("_")}
    assert names - NOT_AWAITED <= set(dir(AsyncApp)), "add it to engine/aio.py"
    for name in names - NOT_AWAITED:
        ours, awaited = getattr(App, name), getattr(AsyncApp, name)
        if name not in ("run", "resume"):
            assert inspect.signature(ours).parameters == inspect.signature(awaited).parameters, name


def test_users_threads_and_records_are_awaited_too(app):
    for plain, awaited in ((app.user("ana"), app.aio.user("ana")), (app.records("space"), app.aio.records("space"))):
        names = {name for name, _ in inspect.getmembers(type(plain), callable) if not name.startswith("_")}
        assert names <= set(dir(awaited)), "add it to engine/aio.py"

    async def program():
        records, user, thread = app.aio.records("space"), app.aio.user("ana"), app.aio.thread("talk")
        assert await records.append("k", b"one") == 1
        assert [one.data for one in await records.read("k")] == [b"one"]
        assert len([line async for line in records.export_lines("k")]) > 0
        await user.patch(StatePatch(set={"seat": "aisle"}))
        assert dict((await user.get()).state) == {"seat": "aisle"}
        await thread.message({"role": "user", "content": "hello"})
        assert [one["content"] for one in await thread.messages()] == ["hello"] and await thread.seq() > 0

    asyncio.run(program())


def test_a_program_that_is_async_starts_answers_reads_and_follows(app):
    async def program():
        aio = app.aio
        done = await aio.run(double, {"n": 4}, id="d")
        assert done.result == 8
        assert (await aio.run(sign, id="s")).status == "waiting"
        assert [one.name async for one in aio.inbox()] == ["who"]
        await aio.answer("s", "who#1", "ana", by="ana")
        assert (await aio.resume("s", sign)).result == "ana"
        assert [one.kind async for one in aio.events("d")][-1] == "task_completed"
        assert [one.kind async for one in aio.follow("d")][-1] == "task_completed"
        assert [one.id for one in await aio.list()] == ["s", "d"]
        assert (await aio.get("d")).result == 8
        assert await aio.find("nothing") is None
        with pytest.raises(TaskNotFound):
            await aio.get("nothing")

    asyncio.run(program())


def test_an_async_agent_that_is_resumed_works_on_the_loop_of_its_caller(app):
    seen = []

    @agent
    async def where(task):
        await task.wait("go")
        seen.append(asyncio.get_running_loop())

    async def program():
        await app.aio.run(where, id="w")
        await app.aio.signal("w", "go")
        assert (await app.aio.resume("w", where)).status == "completed"
        return asyncio.get_running_loop()

    assert seen == [] and asyncio.run(program()) is seen[0]


def test_many_events_come_in_batches(app):
    app.start("clerk", id="t")
    for number in range(250):
        app.append("t", holdfast.events.LogWritten(text=str(number)))

    async def program():
        return [one.seq async for one in app.aio.events("t")]

    assert asyncio.run(program()) == list(range(1, 252))


def test_a_slow_store_does_not_hold_up_the_event_loop(app, monkeypatch):
    app.start("clerk", id="t")
    right = App.get

    def slow(self, id):
        time.sleep(0.3)
        return right(self, id)

    monkeypatch.setattr(App, "get", slow)
    ticks = []

    async def tick():
        while True:
            ticks.append(1)
            await asyncio.sleep(0.01)

    async def program():
        ticking = asyncio.create_task(tick())
        await app.aio.find("t")
        ticking.cancel()

    asyncio.run(program())
    assert len(ticks) > 5


def test_closing_is_awaited_too(url):
    async def program():
        async with holdfast.open(url).aio as aio:
            await aio.start("clerk", id="t")
        with pytest.raises(holdfast.StoreClosed):
            await aio.start("clerk", id="u")

    asyncio.run(program())


# Waiting for an end, finding


def test_a_task_is_waited_for_wherever_it_is_worked_on(app, texts):
    go = threading.Event()

    @agent
    def slow(task):
        task.step(go.wait, 20, name="wait")
        return "done"

    worker = app.worker([slow])
    thread = threading.Thread(target=worker.run)
    app.start(slow, id="t")
    with texts.raises(TimeLimit):
        app.wait("t", timeout=0.01)
    thread.start()
    threading.Timer(0.2, go.set).start()
    assert app.wait("t", timeout="20s").result == "done"
    assert app.wait("t").result == "done"
    worker.stop()
    thread.join(20)


def test_what_is_not_there_is_not_waited_for(app):
    with pytest.raises(TaskNotFound):
        app.wait("nothing", timeout=5)
    assert app.find("nothing") is None
    app.start("clerk", id="t")
    assert app.find("t").id == "t"
    with pytest.raises(holdfast.InvalidValue):
        app.wait("t", timeout=-1)

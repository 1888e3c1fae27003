"""expire=: tasks that wait too long are cancelled by gc; threads, users and records that are not used are removed."""

import asyncio

import pytest

import holdfast
from holdfast import InvalidValue, agent, tool

STORES = ("memory", "sqlite", "postgres")


@agent
def asking(task):
    return task.ask("who?", name="who")


@agent
def sleeping(task):
    task.sleep("30d")


def release(call):
    return None


@tool(effect="once", compensate=release)
def reserve() -> str:
    return "reserved"


@agent(tools=[reserve])
def reserving(task):
    task.call(reserve)
    return task.ask("who?", name="who")


def test_a_task_that_waits_too_long_is_cancelled(app, clock):
    app.run(asking, id="w", expire="1h")
    app.start(asking, id="p", expire="2h")
    app.run(asking, id="free")
    app.run(sleeping, id="s", expire="1h", hold=0)
    app.start(asking, id="later", after="3d", expire="1h")
    assert app.get("w").expires_at == app.row("w").expires_at and app.get("free").expires_at is None
    clock.advance(3599)
    assert app.expired().total == 0 and app.gc().expired_tasks == 0
    clock.advance(2)
    assert app.expired().tasks == ["w"] and app.get("w").status == "waiting", "looking writes nothing"
    assert app.gc().expired_tasks == 1
    gone = app.get("w")
    assert (gone.status, gone.expired, gone.expires_at) == ("cancelled", True, None)
    clock.advance(3600)
    assert app.gc().expired_tasks == 1 and app.get("p").status == "cancelled"
    assert app.get("s").status == "waiting", "a task that sleeps knows when it goes on"
    assert app.get("later").status == "pending" and app.get("free").status == "waiting"
    assert app.expired().total == 0 and app.verify().ok


def test_what_happens_to_a_task_begins_its_time_anew(app, clock):
    app.run(asking, id="w", expire="1h")
    clock.advance(3000)
    app.answer("w", "who", "ana")
    clock.advance(3000)
    assert app.gc().expired_tasks == 0 and app.resume("w", asking).result == "ana"
    clock.advance(99_999)
    assert app.gc().expired_tasks == 0 and app.get("w").status == "completed"


def test_what_an_expired_task_did_is_undone(app, clock):
    app.run(reserving, id="r", expire="1h")
    clock.advance(3601)
    assert app.gc().expired_tasks == 1
    assert app.get("r").cancelling and app.get("r").status == "pending"
    assert app.resume("r", reserving).status == "cancelled" and app.get("r").expired


def test_a_thread_that_is_not_used_is_removed(app, clock):
    thread = app.thread("t").create(expire="1h")
    app.thread("kept").create()
    clock.advance(3000)
    thread.message({"role": "user", "content": "hello"})
    clock.advance(3000)
    assert app.gc().expired_threads == 0 and thread.expires_at is not None
    clock.advance(700)
    assert app.expired().threads == ["t"] and app.gc().expired_threads == 1
    assert [one.id for one in app.threads()] == ["kept"] and not thread.exists
    thread.create()
    assert thread.expires_at is None and thread.messages == [] and app.verify().ok
    thread.update(expire="1m").update(expire=0)
    clock.advance(99)
    assert app.gc().expired_threads == 0


def test_a_thread_or_user_with_a_task_under_way_stays(app, clock):
    app.thread("t").create(expire="1h")
    app.user("ana").update(expire="1h")
    app.run(asking, id="w", thread="t", user="ana")
    clock.advance(9999)
    assert app.gc().expired_threads == 0 and app.user("ana").get().expires_at is not None
    app.cancel("w")
    clock.advance(9999)
    found = app.gc()
    assert (found.expired_threads, found.expired_users) == (1, 1)
    assert app.user("ana").get().seq == 0
    app.user("ana").state.city = "Oslo"
    assert app.user("ana").state.city == "Oslo" and app.verify().ok


def test_records_that_are_not_used_are_dropped(app, clock):
    records = app.records("sessions")
    records.append("a", b"1", expire="1h")
    records.append("b", b"1")
    records.append("c", [b"1", b"2"], expire="1h")
    records.write([holdfast.RecordWrite(key="d", data=b"1", expire="3h")])
    clock.advance(3000)
    records.append("c", b"3", expire="1h")
    assert records.read("a")[0].expires_at > records.read("a")[0].at and records.read("b")[0].expires_at is None
    clock.advance(1000)
    assert app.expired().records == [("sessions", "a")] and app.gc().expired_records == 1
    assert records.keys() == ["b", "c", "d"]
    clock.advance(9999)
    assert app.gc().expired_records == 2 and records.keys() == ["b"]
    assert records.append("a", b"again") > 1 and app.verify().ok


def test_expiry_is_kept_by_copies_and_exports(app, clock, tmp_path):
    app.run(asking, id="w", expire="1h")
    app.thread("t").create(expire="1h")
    app.user("ana").update(expire="1h")
    app.records("s").append("k", b"1", expire="1h")
    app.copy_to(tmp_path / "copy.db")
    app.export("w", tmp_path / "w.jsonl")
    clock.advance(3601)
    with holdfast.open(tmp_path / "copy.db", clock=clock) as copy:
        assert copy.expired().total == 4
        found = copy.gc()
        assert (found.expired_tasks, found.expired_threads, found.expired_users, found.expired_records) == (1, 1, 1, 1)
        assert copy.verify().ok
    with holdfast.open(tmp_path / "other.db", clock=clock) as other:
        other.import_(tmp_path / "w.jsonl")
        assert other.expired().tasks == ["w"]


def test_a_tenant_expires_only_its_own(url, clock):
    if url == "memory:":
        pytest.skip("each memory store is one tenant's")
    with holdfast.open(url, clock=clock, namespace="a") as a, holdfast.open(url, clock=clock, namespace="b") as b:
        for app in (a, b):
            app.run(asking, id="w", expire="1h")
            app.thread("t").create(expire="1h")
        clock.advance(3601)
        found = a.gc()
        assert (found.expired_tasks, found.expired_threads) == (1, 1)
        assert b.get("w").status == "waiting" and b.thread("t").exists and b.expired().total == 2


def test_it_can_be_awaited(app, clock):
    async def program():
        await app.aio.run(asking, id="w", expire="1h")
        clock.advance(3601)
        assert (await app.aio.expired()).tasks == ["w"]
        assert (await app.aio.gc()).expired_tasks == 1

    asyncio.run(program())


def test_what_is_not_a_length_of_time_is_refused(app):
    for wrong in ("soon", -1, float("nan"), 0):
        with pytest.raises(InvalidValue):
            app.start(asking, expire=wrong)
        with pytest.raises(InvalidValue):
            app.records("s").append("k", b"", expire=wrong)
    for wrong in ("soon", -1):
        with pytest.raises(InvalidValue):
            app.user("ana").update(expire=wrong)
        with pytest.raises(InvalidValue):
            app.thread("t").create(expire=wrong)
    assert app.list() == [] and app.threads() == []

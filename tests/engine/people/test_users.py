"""Users: state that outlives tasks, seen the same on every replay, and forgotten when asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import AsyncTask, InvalidEvent, InvalidId, InvalidValue, PatchConflict, StatePatch, Task, agent
from holdfast.engine.app import App

STORES = ("memory", "sqlite", "postgres")


@pytest.fixture(params=["memory:", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path):
    with holdfast.open(request.param if request.param == "memory:" else tmp_path / "a.db") as app:
        yield app


def look(value: Any) -> Any:
    return value


def test_a_users_state_reads_like_attributes_and_has_a_history(app: App, texts):
    ana = app.user("ana")
    assert ana.get().seq == 0 and "city" not in ana.state and ana.state.all() == {} and list(ana.events()) == []
    ana.state.city = "Oslo"
    ana.state["seats"] = ["aisle"]
    ana.state.append("seats", "window")
    assert ana.state.increment("visits") == 1 and ana.state.increment("visits", 2) == 3
    before = ana.get().seq
    ana.state.city = "Rome"
    assert ana.state.city == "Rome" and ana.at(before).state["city"] == "Oslo"
    assert app.user("ana").state.all() == {"city": "Rome", "seats": ["aisle", "window"], "visits": 3}
    del ana.state.city
    assert "city" not in ana.state and ana.state.get("city", "nowhere") == "nowhere"
    with texts.raises(AttributeError):
        _ = ana.state.city


def test_changes_of_several_writers_merge_or_clash(app: App):
    ana = app.user("ana")
    seen = ana.patch(StatePatch(set={"city": "Oslo"}), by="ana").seq
    ana.patch(StatePatch(increment={"n": 1}, set={"city": "Rome"}), by="bo", why="moved")
    assert ana.patch(StatePatch(increment={"n": 2}), expect=seen).state["n"] == 3
    with pytest.raises(PatchConflict, match=r"state\.city"):
        ana.patch(StatePatch(set={"city": "Paris"}), expect=seen)
    assert [record.event.by for record in ana.events() if hasattr(record.event, "by")] == ["ana", "bo", ""]


def test_users_are_no_tasks(app: App):
    app.user("ana").state.city = "Oslo"
    assert app.list() == [] and app.stats().tasks == 0
    assert app.verify().problems == []


def test_a_task_sees_its_users_state_as_it_was_and_changes_it_for_good(app: App, texts):
    ana = app.user("ana")
    ana.state.city = "Oslo"
    seen: list[Any] = []

    @agent
    def booking(task: Task) -> str:
        seen.append((task.user.id, task.user.state.city, task.user.state.get("seat")))
        task.user.state.seat = "aisle"
        task.user.state.increment("bookings")
        seen.append((task.user.state.seat, task.user.state.bookings))
        task.step(look, 1)
        task.wait("go")
        seen.append((task.user.state.city, task.user.state.seat))
        return task.user.state.city

    app.run(booking, id="b", user="ana")
    assert ana.state.all() == {"city": "Oslo", "seat": "aisle", "bookings": 1}
    ana.state.city = "Rome"
    app.signal("b", "go", None)
    first, seen[:] = list(seen), []
    done = app.resume("b", booking)
    assert seen[:2] == first[:2] and done.result == "Oslo" and seen[2] == ("Oslo", "aisle")
    assert ana.state.all() == {"city": "Rome", "seat": "aisle", "bookings": 1}
    assert [one.id for one in ana.tasks()] == ["b"] and ana.tasks(status="failed") == []
    told = [record.event.by for record in ana.events() if getattr(record.event, "by", "")]
    assert len(told) == 2
    for by in told:
        texts.check(by)


def test_a_new_turn_sees_what_the_user_has_come_to(app: App):
    ana = app.user("ana")
    ana.state.city = "Oslo"
    seen: list[str] = []

    @agent(loop=True)
    async def looping(task: AsyncTask) -> str | None:
        seen.append(task.user.state.city)
        task.user.state.turns = task.turn
        await task.step(look, task.turn)
        if task.turn == 1:
            await asyncio.to_thread(lambda: setattr(ana.state, "city", "Rome"))
        seen.append(task.user.state.city)
        return "done" if task.turn == 2 else None

    assert app.run(looping, id="l", user="ana").status == "completed"
    assert seen == ["Oslo", "Oslo", "Rome", "Rome"] and ana.state.turns == 2


def test_a_task_of_nobody_has_no_user(app: App, texts):
    @agent
    def lonely(task: Task) -> str:
        return task.user.state.city

    done = app.run(lonely, id="x")
    assert done.failure is not None
    texts.check(done.failure.message)


def test_erasing_a_user_forgets_values_and_keeps_the_chain(tmp_path: Path):
    secret, large = "sesame-street-42", "large-secret " * 2_000
    path = tmp_path / "a.db"

    @agent
    def knows(task: Task, name: str) -> str:
        task.fact("name", name)
        task.artifact(large, type="letter")
        task.message({"role": "user", "content": name})
        task.user.state.letter = large
        return task.step(look, name)

    with holdfast.open(path) as app:
        app.user("ana").state.street = secret
        app.run(knows, {"name": secret}, id="k", user="ana", thread="talk")
        app.run(knows, {"name": "someone else"}, id="other", user="bo")
        assert app.user("ana").erase(by="dpo", why="asked to") > 5
        assert app.user("ana").state.all() == {}
        assert app.verify().problems == []
        assert app.get("k").result is None and app.get("k").status == "completed"
        assert app.get("other").result == "someone else"
        assert app.user("bo").state.letter == large
        app.user("ana").state.street = "Elm Street"
        assert app.user("ana").state.all() == {"street": "Elm Street"}
        assert app.run(knows, {"name": "again"}, id="k2", user="ana", thread="talk").status == "completed"
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert secret.encode() not in stored


def test_a_user_with_open_tasks_is_not_erased(app: App, texts):
    @agent
    def waits(task: Task) -> None:
        task.wait("never")

    app.run(waits, id="w", user="ana")
    with texts.raises(InvalidEvent):
        app.user("ana").erase()
    app.cancel("w")
    assert app.user("ana").erase() >= 3


@pytest.mark.parametrize("odd", ["", "a b", "@x", "ü", "a" * 3_000, "-x"])
def test_odd_ids_are_refused(app: App, odd: str):
    with pytest.raises(InvalidId):
        app.user(odd)


def test_what_is_no_patch_is_refused_and_nothing_is_written(app: App, texts):
    ana = app.user("ana")
    with texts.raises(InvalidValue):
        ana.patch(5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(holdfast.NotSerializable):
        ana.state.bad = float("nan")
    assert ana.get().seq == 0


def test_users_travel_with_a_copied_store(app: App, tmp_path: Path):
    app.user("ana").state.city = "Oslo"
    app.copy_to(f"sqlite:///{tmp_path}/copy.db")
    with holdfast.open(tmp_path / "copy.db") as copy:
        assert copy.user("ana").state.city == "Oslo"


def test_templates_may_name_the_user(app: App):
    app.user("ana").state.name = "Ana"

    @agent
    def greeting(task: Task) -> str:
        return task.render("Hello {user.name}")

    assert app.run(greeting, id="g", user="ana").result == "Hello Ana"
    assert app.run(greeting, id="n").failure.type == "UnknownName"  # pyright: ignore[reportOptionalMemberAccess]

"""Migrating the typed state of many tasks at once, and finding those that need it."""

import asyncio
import dataclasses

import pytest

import holdfast
from holdfast import InvalidValue, agent
from tests.engine.both import events

STORES = ("memory", "sqlite", "postgres")


@dataclasses.dataclass
class Old:
    name: str = ""


@dataclasses.dataclass
class New:
    first: str = ""


@agent(state=Old, name="greeter")
def old(task, name: str):
    task.state.name = name
    return task.wait("go")


@agent(state=New, state_version=2, name="greeter")
def new(task, name: str):
    task.state.first = name
    task.wait("go")
    return task.state.first


@new.upcast(1, 2)
def first_name(state):
    if state.get("name") == "bad":
        raise ValueError("no first name")
    return {"first": state["name"].split()[0]} if "name" in state else state


@agent
def untyped(task):
    task.state.n = 1
    task.wait("go")


def test_tasks_with_an_older_state_are_found_and_migrated_at_once(app):
    for id in ("a", "b", "bad"):
        app.run(old, {"name": f"{id} smith" if id != "bad" else id}, id=id)
    app.run(old, {"name": "done smith"}, id="ended")
    app.signal("ended", "go")
    app.run(old, {"name": "done smith"}, id="ended")
    app.start(new, {"name": "new"}, id="fresh")
    app.run(untyped, id="other")
    older = [one.id for one in app.list(agent="greeter", state_version_below=2, order="oldest")]
    assert older == ["a", "b", "bad", "ended"]
    assert [one.id for one in app.list(state_version_below=2, status="completed", limit=None)] == ["ended"]

    done = app.migrate_states(new)
    assert (done.version, sorted(done.migrated), done.busy) == (2, ["a", "b"], ())
    assert list(done.failed) == ["bad"] and "no first name" in done.failed["bad"]
    assert (app.get("a").state_version, app.get("a").state) == (2, {"first": "a"})
    assert len(events(app, "state_migrated", id="a")) == 1
    assert app.get("bad").state == {"name": "bad"} and app.get("ended").state_version < 2
    assert app.migrate_states(new).migrated == (), "again it finds nothing to do"
    app.signal("a", "go")
    assert app.run(new, {"name": "a smith"}, id="a").result == "a smith"
    assert app.verify().ok


def test_a_task_that_a_worker_has_is_left_to_it(app):
    told = []

    @agent(state=Old, name="greeter")
    def working(task, name: str):
        task.state.name = name
        task.step(lambda: 1, name="one")
        task.step(lambda: told.append(app.migrate_states(new)), name="two")

    app.run(working, {"name": "ana"}, id="t")
    assert (told[0].migrated, told[0].busy) == ((), ("t",))


def test_it_can_be_awaited(app):
    app.run(old, {"name": "a smith"}, id="a")
    done = asyncio.run(app.aio.migrate_states(new))
    assert done.migrated == ("a",)


def test_an_agent_without_a_state_and_odd_versions_are_refused(app, texts):
    with texts.raises(InvalidValue):
        app.migrate_states(untyped)
    with texts.raises(InvalidValue):
        app.migrate_states("greeter")
    for odd in (0, -1, "2", True, 1.5):
        with pytest.raises(InvalidValue, match="state_version_below"):
            app.list(state_version_below=odd)


def test_a_damaged_task_is_listed_and_named(tmp_path):
    with holdfast.open(tmp_path / "x.db") as app:
        app.run(old, {"name": "a smith"}, id="a")
    import apsw

    connection = apsw.Connection(str(tmp_path / "x.db"))
    names = [row[0] for row in connection.execute("select name from sqlite_master where type = 'trigger'")]
    for name in names:
        connection.execute(f"drop trigger {name}")
    connection.execute("update events set body = x'00' where kind = 'state_set'")
    connection.execute("delete from snapshots")
    connection.close()
    with holdfast.open(tmp_path / "x.db") as app:
        assert [one.id for one in app.list(state_version_below=2)] == ["a"]
        assert list(app.migrate_states(new).failed) == ["a"]

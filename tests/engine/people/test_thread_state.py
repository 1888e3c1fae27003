"""The state of a thread, as its tasks see and change it: like a user's, the same on every replay."""

import threading
from typing import Any

import pytest

from holdfast import AsyncTask, InvalidValue, PatchConflict, StateMutated, StatePatch, Task, agent
from holdfast.testing import crash_everywhere
from tests.engine.both import kinds

STORES = ("memory", "sqlite", "postgres")


def nothing():
    return None


def test_tasks_of_a_thread_share_its_state(app, either):
    @either()
    def booking(task, city):
        before = task.thread.state.get("cities", [])
        task.thread.state.append("cities", city)
        task.thread.state.increment("visits")
        task.thread.state.set("preferences.seat", "aisle")
        yield task.step(nothing)
        return [list(before), list(task.thread.state.cities), task.thread.id]

    assert app.run(booking, {"city": "Oslo"}, id="a", thread="t").result == [[], ["Oslo"], "t"]
    assert app.run(booking, {"city": "Rome"}, id="b", thread="t").result == [["Oslo"], ["Oslo", "Rome"], "t"]
    state = app.thread("t").state
    assert state.all() == {"cities": ["Oslo", "Rome"], "visits": 2, "preferences": {"seat": "aisle"}}
    assert kinds(app, "a").count("thread_patched") == 3 and app.verify().ok
    changed = [event.event for event in app.thread("t").events() if event.kind == "state_patched"]
    assert {one.task for one in changed} == {"a", "b"} and "in task a" in changed[0].by


def test_a_replay_reads_the_state_as_it_was(app, either):
    seen = []

    @either()
    def looking(task):
        seen.append(task.thread.state.get("city"))
        yield task.step(nothing)
        seen.append(task.thread.state.get("city"))
        yield task.wait("go")
        return task.thread.state.get("city")

    app.thread("t").state.city = "Oslo"
    app.run(looking, id="l", thread="t")
    app.thread("t").state.city = "Rome"
    app.signal("l", "go")
    assert app.resume("l", looking).result == "Oslo"
    assert seen == ["Oslo"] * 4


def test_a_task_that_read_what_others_changed_is_told(app, either):
    others = []

    @either()
    def greedy(task):
        points = task.thread.state.points
        if not others:
            others.append(40)
            app.thread("t").state.points = 40
        task.thread.state.points = points - 10
        try:
            yield task.step(nothing, name="first")
        except PatchConflict as conflict:
            task.log(f"{conflict.details['mine']} | {conflict.details['theirs']} | {conflict.details['thread']}")
        task.thread.state.points = task.thread.state.points - 10
        yield task.step(nothing, name="second")
        yield task.wait("go")
        return task.thread.state.points

    app.thread("t").state.points = 100
    app.run(greedy, id="g", thread="t")
    assert app.thread("t").state.points == 30
    assert [one.event.text for one in app.events("g") if one.kind == "log_written"] == ["set 90 | set 40 | t"]
    app.signal("g", "go")
    done = app.resume("g", greedy)
    assert (done.result, app.thread("t").state.points) == (30, 30), done.failure
    assert kinds(app, "g").count("patch_refused") == 1 and app.verify().ok


def test_update_calls_its_function_with_the_newest_value(app, either):
    @either()
    def visit(task):
        first = yield task.thread.state.update("visits", lambda visits: (visits or 0) + 1)
        yield task.wait("go")
        return first

    for number in range(3):
        app.run(visit, id=f"v{number}", thread="t")
    assert app.thread("t").state.visits == 3
    app.signal("v1", "go")
    assert app.resume("v1", visit).result == 2 and app.thread("t").state.visits == 3


def test_user_and_thread_are_changed_in_one_write(app, either):
    @either()
    def both(task):
        task.user.state.points = task.user.state.get("points", 0) + 1
        task.thread.state.points = task.thread.state.get("points", 0) + 10
        task.thread.patch(StatePatch(set={"open": True}, require={"closed": None}))
        yield task.step(nothing)
        return [task.user.state.points, task.thread.state.points]

    for number in range(2):
        done = app.run(both, id=f"b{number}", user="ana", thread="t")
        assert done.result == [number + 1, 10 * (number + 1)], done.failure
    assert app.thread("t").state.all() == {"points": 20, "open": True} and app.user("ana").state.points == 2


def test_forks_and_mocks_keep_what_they_change_to_themselves(app, either):
    @either()
    def counting(task):
        yield task.step(nothing)
        task.thread.state.increment("n")
        yield task.step(nothing, name="more")
        return task.thread.state.n

    done = app.run(counting, id="c", thread="t")
    fork = app.fork("c", at=done.steps["nothing#1"].after, id="f")
    assert app.resume(fork.id, counting).result == 1
    assert app.run(counting, id="m", thread="t", mock=True).result == 2
    assert app.thread("t").state.n == 1


def test_what_is_changed_in_place_is_refused(app, either):
    app.thread("t").state.items = ["tea"]

    @either()
    def shopping(task):
        with pytest.raises(StateMutated) as refused:
            task.thread.state.items.append("milk")
        assert 'task.thread.state.append("items"' in refused.value.hint
        task.thread.state.append("items", "milk")
        yield task.step(nothing)

    assert app.run(shopping, id="s", thread="t").status == "completed"
    assert app.thread("t").state.items == ["tea", "milk"]


def test_a_task_without_a_thread_is_told(app):
    @agent
    def alone(task):
        with pytest.raises(InvalidValue) as refused:
            _ = task.thread
        return refused.value.hint

    assert app.run(alone, id="a").result == "start it with one: app.run(…, thread=…)"


def test_what_many_tasks_count_is_counted(app):
    @agent
    def counting(task):
        task.thread.state.increment("n")
        task.step(nothing)
        task.thread.state.update("m", lambda m: (m or 0) + 1)

    def run(name):
        for number in range(4):
            assert app.run(counting, id=f"{name}{number}", thread="t").status == "completed"

    workers = [threading.Thread(target=run, args=(name,)) for name in "abc"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert app.thread("t").state.all() == {"n": 12, "m": 12}


@agent(loop=True)
async def looped(task: AsyncTask) -> int | None:
    task.message({"role": "user", "content": f"turn {task.turn}"})
    turns = task.thread.state.get("turns", 0)
    task.thread.state.turns = turns + 1
    await task.step(nothing, name="look")
    await task.thread.state.update("made", lambda made: (made or 0) + 1)
    return task.thread.state.made if task.turn == 2 else None


@agent
def plain(task: Task) -> int:
    task.thread.state.increment("turns")
    task.step(nothing, name="look")
    task.thread.state.update("made", lambda made: (made or 0) + 2)
    task.thread.state.increment("turns")
    return task.thread.state.made


@pytest.mark.parametrize("which", [looped, plain])
def test_a_crash_anywhere_changes_the_state_once(which: Any):
    def drive(app: Any) -> Any:
        done = app.run(which, id="t", thread="talk")
        assert app.thread("talk").state.all() == {"turns": 2, "made": 2}
        return done

    report = crash_everywhere(drive=drive, agents=[which], id="t", store="memory:", crashes=2)
    assert report.survived == report.points > 10

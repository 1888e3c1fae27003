"""Children that end together: each end follows the one before, and none is drafted twice."""

import asyncio
import contextlib
import threading

import pytest

import holdfast
from holdfast import AsyncTask, Task, agent, events as ev
from holdfast.core import codec
from holdfast.engine.execution.execution import Execution


@agent
async def echo(task: AsyncTask, n: int) -> int:
    if n < 0:
        raise ValueError(n)
    return n


@agent
async def parent(task: AsyncTask, many: int) -> list[int]:
    return list(await asyncio.gather(*(task.spawn(echo, {"n": n}) for n in range(many))))


@agent
async def tolerant(task: AsyncTask, many: int) -> list[str]:
    spawned = (task.spawn(echo, {"n": n if n % 3 else -1}) for n in range(many))
    return [type(one).__name__ for one in await asyncio.gather(*spawned, return_exceptions=True)]


@agent
def echo_here(task: Task, n: int) -> int:
    return n


@agent
def parent_here(task: Task, many: int) -> list[int]:
    return [task.spawn(echo_here, {"n": n}) for n in range(many)]


@pytest.fixture
def conflicts(monkeypatch):
    found, forgive = [], Execution._forgive
    monkeypatch.setattr(Execution, "_forgive", lambda self, conflict: found.append(conflict) or forgive(self, conflict))
    return found


@pytest.mark.parametrize("durability", ["process", "full"])
def test_children_that_end_together_do_not_get_in_each_others_way(tmp_path, conflicts, durability):
    """Each end used to follow the committed head, so that all but one were refused, read again and refused again."""
    with holdfast.open(tmp_path / "a.db", durability=durability) as app:
        done = asyncio.run(app.arun(parent, {"many": 60}, id="t"))
        assert done.result == list(range(60))
        assert len(conflicts) < 60, "fewer than one a child; each used to meet all others, some 900 in all"
        assert [row.kind for row in app.events("t")].count("wait_ended") == 60
        assert app.verify().ok


def test_failed_children_tell_their_parent_too(url):
    with holdfast.open(url) as app:
        done = asyncio.run(app.arun(tolerant, {"many": 12}, id="t"))
        assert done.status == "completed" and done.result.count("int") == 8
        assert app.verify().ok


def test_children_one_after_the_other_read_only_what_is_new_of_their_parent(app, monkeypatch):
    loaded, load = [], app.logs.load
    monkeypatch.setattr(app._dispatcher.services.foreseen, "_load", lambda name: loaded.append(name) or load(name))
    assert app.run(parent_here, {"many": 20}, id="t").result == list(range(20))
    assert loaded == ["t"]


def test_a_parent_that_others_write_to_meanwhile_loses_no_child(url):
    """Signals move the parent's head between the draft of a child's end and its commit."""
    if url == "memory:":
        pytest.skip("two apps have two stores in memory")
    with holdfast.open(url) as app, holdfast.open(url) as other:
        ended = threading.Event()

        def disturb():
            with contextlib.suppress(holdfast.TaskFinished):
                while not ended.is_set():
                    if other.find("t") is not None:
                        other.signal("t", "noise", 1)

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            done = asyncio.run(app.arun(parent, {"many": 25}, id="t"))
        finally:
            ended.set()
            thread.join()
        assert done.result == list(range(25))
        assert app.verify().ok


def test_a_wait_that_only_the_log_has_is_ended_although_other_drafts_are_under_way(app):
    """A draft under way hid what the parent wrote after it: as long as both were at the same seq."""
    log = app.logs.load(app.start("a", id="t").id)
    foreseen = app._dispatcher.services.foreseen
    hidden = foreseen.draft("t", lambda state: (ev.LogWritten(text="will be refused"),))
    log.append([ev.NoteSet(key="waits", value=codec.pack(1))])
    drafted = foreseen.draft("t", lambda state: (ev.LogWritten(text="found"),) if "waits" in state.notes else ())
    assert drafted is not None and drafted[0].expect == app.store.head("t")
    foreseen.settle(hidden[1], committed=False)
    assert foreseen.draft("t", lambda state: ()) is None
    foreseen.settle(drafted[1], committed=True)

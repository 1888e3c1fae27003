"""Removing ended tasks while others go on with them, in every order that can be provoked."""

import pytest

import holdfast
from holdfast import events as ev
from holdfast.core import codec
from holdfast.failpoints import armed
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.auditor import audit
from tests.crash.writer import note


class Interrupted(SqliteStore):
    """A store in which somebody else does something just before a log is removed."""

    def meanwhile(self):
        """Nothing, unless a test says what."""

    def remove(self, tombstones):
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return super().remove(tombstones)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


@pytest.fixture
def collector(path):
    with holdfast.App(Interrupted(path, durability="process")) as app:
        yield app


@pytest.fixture
def other(path):
    with holdfast.open(path, durability="process") as app:
        yield app


def failed(app, *ids):
    for id in ids:
        app.start("tester", id=id)
        app.append(id, note("work"), ev.TaskFailed(failure=holdfast.Failure("Error", "no")))


def test_a_task_that_is_reopened_meanwhile_is_not_removed(collector, other, path):
    failed(other, "task")
    collector.store.meanwhile = lambda: other.append("task", ev.TaskReopened(), note("going on"))
    collector.gc(keep=0)
    assert other.get("task").seq == 5
    assert other.get("task").status == "pending"
    assert audit(path) == []


def test_a_task_that_is_forked_meanwhile_is_not_removed(collector, other, path):
    failed(other, "task", "next")
    collector.store.meanwhile = lambda: other.fork("next", id="fork")
    collected = collector.gc(keep=0)
    assert (collected.tasks, collected.kept_for_forks) == (1, 1)
    assert len(list(other.events("fork"))) == 4
    assert audit(path) == []


def test_a_task_that_is_removed_meanwhile_cannot_be_forked(collector, other, path):
    failed(other, "task")

    def collect(failpoint):
        if failpoint == "append.before":
            collector.gc(keep=0)

    with armed(collect), pytest.raises(holdfast.TaskCollected):
        other.fork("task", id="fork")
    assert audit(path) == []
    assert other.verify().ok
    assert other.start("tester", id="fork").seq == 1, "the name is free"


def test_two_who_remove_at_once_do_not_disturb_each_other(collector, other, path):
    failed(other, "one", "two", "three")
    collector.store.meanwhile = lambda: other.gc(keep=0)
    collector.gc(keep=0)
    assert other.list() == []
    assert sorted(stone.log for stone in other.store.tombstones()) == ["one", "three", "two"]
    assert audit(path) == []


def test_an_append_to_a_task_that_is_removed_meanwhile_is_refused(collector, other, path):
    other.start("tester", id="task")
    other.append("task", ev.TaskCompleted(result=codec.pack(1)))

    def collect(failpoint):
        if failpoint == "append.before":
            collector.gc(keep=0)

    late = ev.StepObserved(key="late#1", result=codec.pack(1))
    with armed(collect), pytest.raises((holdfast.TaskCollected, holdfast.Conflict)):
        other.append("task", late)
    assert audit(path) == []

"""Removing ended tasks while others go on with them, in every order that can be provoked."""

import pytest

import holdfast
from holdfast import events as ev
from holdfast.core import codec
from holdfast.failpoints import armed
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.auditor import audit
from tests.crash.writer import note

VERBS = ("finished", "head", "origin", "summary", "forks", "snapshot", "read", "remove")


class Interrupted(SqliteStore):
    """A store in which somebody else does something just before one of its verbs, once."""

    def __init__(self, path):
        super().__init__(path, durability="process")
        self.meanwhile = {}


def interrupted(verb):
    def method(self, *args, **options):
        action = self.meanwhile.pop(verb, None)
        if action is not None:
            action()
        return getattr(SqliteStore, verb)(self, *args, **options)

    return method


for _verb in VERBS:
    setattr(Interrupted, _verb, interrupted(_verb))


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


@pytest.fixture
def collector(path):
    with holdfast.App(Interrupted(path)) as app:
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
    asked = 0
    for verb in VERBS:
        failed(other, verb)
        collector.store.meanwhile = {verb: lambda id=verb: other.append(id, ev.TaskReopened(), note("going on"))}
        collector.gc(keep=0)
        if not collector.store.meanwhile:
            asked += 1
            assert (other.get(verb).seq, other.get(verb).status) == (5, "pending")
    assert asked >= 3, "gc asks the store several things, and between any two others can go on"
    assert audit(path) == []


READS = {"get": lambda app, id: app.get(id).seq, "events": lambda app, id: len(list(app.events(id)))}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("parent", [None, "parent"], ids=["task", "fork"])
def test_a_task_that_is_removed_while_it_is_read_is_read_whole_or_not_at_all(collector, other, parent, read):
    other.start("tester", id="parent")
    removed = 0
    for verb in VERBS:
        other.start("tester", id=verb) if parent is None else other.fork(parent, id=verb)
        missing = 4 - other.get(verb).seq
        other.append(verb, *map(note, "abc"[1:missing]), ev.TaskFailed(failure=holdfast.Failure("Error", "no")))
        collector.store.meanwhile = {verb: lambda: other.gc(keep=0)}
        try:
            assert read(collector, verb) == 4
        except holdfast.TaskCollected:
            removed += 1
    assert removed >= 1, "some were removed before they were read"


def test_a_task_that_is_forked_meanwhile_is_not_removed(collector, other, path):
    failed(other, "task", "next")
    collector.store.meanwhile["remove"] = lambda: other.fork("next", id="fork")
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
    collector.store.meanwhile["remove"] = lambda: other.gc(keep=0)
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

"""What it costs to begin a task, as counts."""

import asyncio
from collections import Counter

import pytest

import holdfast
from holdfast import AsyncTask, Task, agent
from holdfast.engine.definitions.signature import Parameters
from holdfast.engine.logs import log as logs


@agent
def plain(task: Task, n: int) -> int:
    return n


@agent
async def looped(task: AsyncTask, n: int) -> int:
    return n


@pytest.fixture
def counts(monkeypatch):
    found = Counter()

    def counted(place, name, label):
        does = getattr(place, name)

        def and_count(*given, **named):
            found[label(*given)] += 1
            return does(*given, **named)

        monkeypatch.setattr(place, name, and_count)

    counted(logs.Log, "__init__", lambda *_: "logs")
    counted(logs, "evolve", lambda *given: type(given[4]).__name__)
    counted(Parameters, "check", lambda *_: "checks")
    return found


def test_a_started_task_builds_one_log_folds_once_and_checks_its_input_once(counts):
    with holdfast.open("memory:") as app:
        app.start(plain, {"n": 1})
        assert counts == {"logs": 1, "TaskCreated": 1, "checks": 1}


ONCE = {"logs": 1, "TaskCreated": 1, "TaskClaimed": 1, "TaskCompleted": 1}


def test_a_task_that_is_worked_on_at_once_does_so_too_and_reads_its_input_from_the_log(counts):
    """The agent is given what a replay will give it. So the input is checked as given, and once as recorded."""
    with holdfast.open("memory:") as app:
        assert app.run(plain, {"n": 1}).result == 1
        assert counts == {**ONCE, "checks": 2}
        counts.clear()
        assert asyncio.run(app.arun(looped, {"n": 1})).result == 1
        assert counts == {**ONCE, "checks": 2}

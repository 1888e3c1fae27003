"""Schedules given to real workers: tasks that begin by the clock, each time once."""

import contextlib
import threading
import time
from datetime import UTC, datetime

import pytest

import holdfast
from holdfast import InvalidValue, Queue, Schedule, TaskCollected, agent
from holdfast.testing.clock import FakeClock
from tests.waiting import until

LONG = 20
MONDAY = datetime(2026, 11, 16, 6, 59, tzinfo=UTC)  # a minute before eight in Oslo


@agent
def report(task, kind: str = "daily"):
    return task.step(lambda: f"a {kind} report", name="write")


@agent
def slow(task):
    task.step(gate.wait, LONG, name="wait")


gate = threading.Event()


@pytest.fixture
def clock():
    return FakeClock(int(MONDAY.timestamp()) * 1_000_000, tick_us=0)


@pytest.fixture
def another(url, clock, app):
    """Another process's way to the same store; a store in memory has one alone."""
    with contextlib.nullcontext(app) if url == "memory:" else holdfast.open(url, clock=clock) as opened:
        yield opened


@contextlib.contextmanager
def working(app, *schedules, agents=(report,), **given):
    worker = app.worker(list(agents), schedules=schedules, **given)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(LONG)
        assert not thread.is_alive()


def probe(name="probe"):
    """An agent that one worker alone serves."""

    @agent(name=name)
    def probed(task):
        return name

    return probed


def looks(app, probed=None):
    """Wait until a worker has looked at its schedules, as it does before it takes a task; one look may be under way."""
    for _ in range(2):
        id = f"probe-{time.monotonic_ns()}"
        app.start(probed or report, id=id)
        until(lambda id=id: app.get(id).status == "completed")


def ids(app):
    return sorted(one.id for one in app.list() if not one.id.startswith("probe-"))


def test_a_time_of_a_place_comes_when_its_clocks_show_it_and_not_before(app, clock):
    with working(app, Schedule("report", report, "0 8 * * 1-5", zone="Europe/Oslo", late="1h")) as worker:
        looks(app)
        assert ids(app) == []
        clock.advance(60)
        until(lambda: ids(app) and app.get(ids(app)[0]).status == "completed")
        assert ids(app) == ["report/2026-11-16T07:00:00Z"] and worker.counts["scheduled"] == 1
        clock.advance(3600 * 23)
        looks(app)
        assert len(ids(app)) == 1
        clock.advance(3600)
        until(lambda: ids(app) == ["report/2026-11-16T07:00:00Z", "report/2026-11-17T07:00:00Z"])


@pytest.mark.parametrize("when", ["every 15m", "*/15 * * * *"])
def test_each_time_begins_once_however_many_workers_declare_it(app, another, clock, when):
    one, two = (Schedule("sync", report, when, {"kind": "quick"}, late="15m", priority=3) for _ in range(2))
    probes = probe("one"), probe("two")
    with (
        working(app, one, agents=(report, probes[0])) as first,
        working(another, two, agents=(report, probes[1])) as second,
    ):
        for n in range(1, 6):
            for probed in probes:
                looks(app, probed)
            assert len(ids(app)) == n
            clock.advance(15 * 60)
        until(lambda: len(ids(app)) == 6 and all(one.status == "completed" for one in app.list()))
        assert first.counts["scheduled"] + second.counts["scheduled"] == 6
    assert {app.get(id).result for id in ids(app)} == {"a quick report"}


def test_what_was_missed_begins_late_or_not_at_all(app, clock):
    clock.advance(60 + 300)  # it was due five minutes ago, and no worker was there
    for late, begun in (("4m", []), ("6m", ["report/2026-11-16T07:00:00Z"])):
        with working(app, Schedule("report", report, "0 7 * * *", late=late)):
            looks(app)
            assert ids(app) == begun


def test_a_worker_that_is_started_anew_begins_nothing_twice_not_even_what_was_collected(app, clock):
    id = "report/2026-11-16T06:00:00Z"
    for scheduled in (1, 0):
        with working(app, Schedule("report", report, "@hourly", late="1h")) as worker:
            until(lambda: app.get(id).status == "completed" if ids(app) else False)
            looks(app)
            assert worker.counts["scheduled"] == scheduled
    clock.advance(10)
    assert app.gc(older_than=1).tasks >= 1
    with working(app, Schedule("report", report, "@hourly", {"kind": "other"}, late="1h")) as worker:
        looks(app)
        assert worker.counts["scheduled"] == 0 and ids(app) == []
        with pytest.raises(TaskCollected):
            app.get(id)


def test_a_worker_without_room_begins_tasks_for_others(app, clock):
    gate.clear()
    app.start(slow, id="slow")
    with working(app, Schedule("tick", report, "every 1m", late="1s"), agents=(report, slow), concurrency=1) as worker:
        until(lambda: app.get("slow").status == "running")
        for n in range(3):
            clock.advance(60)
            until(lambda n=n: worker.counts["scheduled"] >= n + 1)
        assert [app.get(id).status for id in ids(app)] == ["running", *["pending"] * (len(ids(app)) - 1)]
        gate.set()


def test_a_full_queue_is_tried_again_and_said_once(url, clock, caplog, texts):
    with holdfast.open(url, clock=clock, queues=[Queue("few", max_ready=1)]) as app:
        app.start(report, id="before", queue="few")
        schedule = Schedule("tick", report, "every 1h", late="1h", queue="few")
        with working(app, schedule, queues=["default"]) as worker:
            looks(app)
            looks(app)
            assert ids(app) == ["before"] and worker.counts["scheduled"] == 0
            [said] = [one.getMessage() for one in caplog.records if "schedule tick" in one.getMessage()]
            texts.check(said)
            assert app.run(report, id="before").status == "completed"
            until(lambda: worker.counts["scheduled"] == 1)
        assert ids(app) == ["before", "tick/2026-11-16T06:00:00Z"]


@pytest.mark.parametrize(
    "given",
    [
        {"agent": slow},
        {"input": {"sort": 1}},
        {"input": {"kind": 7}},
        {"deadline": "soon"},
    ],
)
def test_a_schedule_that_could_begin_nothing_is_refused_with_its_worker(app, given, texts):
    schedule = Schedule(**{"name": "tick", "agent": report, "when": "every 1m", **given})
    with texts.raises(InvalidValue):
        app.worker([report], schedules=[schedule])
    assert ids(app) == [] and repr(schedule) == "<schedule tick: every 1m>"


@pytest.mark.parametrize(
    "given",
    [
        {"agent": report.fn},
        {"name": "a b"},
        {"when": "every 0s"},
        {"when": "at noon"},
        {"zone": "Oslo"},
        {"late": "a while"},
    ],
)
def test_a_schedule_that_means_nothing_is_refused_at_once(given, texts):
    with texts.raises(InvalidValue):
        Schedule(**{"name": "tick", "agent": report, "when": "every 1m", **given})

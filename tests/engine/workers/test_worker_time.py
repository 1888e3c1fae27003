"""Workers and tasks whose time is over: places are free again, and too many abandoned threads are said aloud."""

import gc
import json
import logging
import threading
import time
import weakref

import pytest

import holdfast
from holdfast import agent, tool
from holdfast.core import limits
from holdfast.engine.drivers.abandonable import ABANDONED
from holdfast.engine.execution.execution import Execution
from holdfast.engine.telemetry.gauges import StoreGauges
from holdfast.engine.workers.health import Health
from tests.clocks import HeldClock
from tests.engine.both import KINDS, declarer
from tests.engine.workers.test_worker import LONG, double, ended, working
from tests.waiting import until, until_past

STORES = ("memory", "sqlite", "postgres")
CLOCK = HeldClock  # as good as the real one: workers wait for real
SOON = 0.2


class Late(threading.Event):
    """What hangs waits for this. It knows how often."""

    def __init__(self):
        super().__init__()
        self._guard = threading.Lock()
        self.waits = 0

    def wait(self, timeout=None):
        with self._guard:
            self.waits += 1
        return super().wait(timeout)


@pytest.fixture
def late():
    """It ends with the test, and so do all threads that were abandoned."""
    said = Late()
    yield said
    said.set()
    until(lambda: not len(ABANDONED))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["deadline", "cancel"])
def test_a_place_is_free_again_when_a_task_is_cut(app, clock, late, kind, end):
    begun = threading.Event()
    clock.hold()

    @declarer(kind)()
    def hanging(task):
        yield task.step(lambda: begun.set() or late.wait(LONG), name="hang")

    with working(app, hanging, double, concurrency=1) as worker:
        app.start(hanging, id="t", deadline=SOON if end == "deadline" else None)
        assert begun.wait(LONG)
        app.start(double, id="next")
        clock.go()
        if end == "cancel":
            app.cancel("t")
        until(ended(app, "next"), LONG / 3)
        assert app.get("t").status == ("failed" if end == "deadline" else "cancelled")
        until(lambda: worker.busy == 0)
        assert worker.counts[app.get("t").status] == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("child_kind", KINDS)
def test_a_place_is_free_again_when_a_task_is_cancelled_with_its_child(app, late, kind, child_kind):
    begun = threading.Event()

    @declarer(child_kind)()
    def child(task):
        yield task.step(lambda: begun.set() or late.wait(LONG), name="hang")

    @declarer(kind)()
    def parent(task):
        yield task.spawn(child, name="child")

    with working(app, parent) as worker:
        app.start(parent, id="t")
        assert begun.wait(LONG)
        app.cancel("t")
        until(lambda: worker.busy == 0, LONG / 3)
        assert app.get("t").status == "cancelled"
        until(lambda: app.get("t/child#1").status == "cancelled", LONG / 3)  # a thread of its own ends it


def test_a_task_that_came_too_late_is_ended_by_the_worker_that_claims_it(app):
    done = []

    @agent
    def act(task):
        task.step(lambda: done.append(1), name="act")

    app.start(act, id="t", deadline=0.01)
    until_past(app.get("t").deadline)
    with working(app, act):
        until(ended(app, "t"))
    assert app.get("t").failure.type == "TimeLimit" and not done


def test_a_task_that_waits_is_ended_at_its_deadline_by_a_worker(app):
    @agent(deadline=0.5)
    def asking(task):
        task.ask("who?", name="who")

    with working(app, asking):
        app.start(asking, id="t")
        until(ended(app, "t"))
    assert app.get("t").failure.type == "TimeLimit"


def test_a_call_that_a_worker_left_behind_is_in_the_inbox(app, clock, late):
    clock.hold()

    @tool(effect="once")
    def pay() -> None:
        clock.go()
        late.wait(LONG)

    @agent(deadline=SOON)
    def paying(task):
        task.call(pay)

    with working(app, paying):
        app.start(paying, id="t")
        until(lambda: app.get("t").status == "waiting")
        assert [one.key for one in app.inbox("t")] == ["pay#1"]
        app.settle("t", "pay#1", happened=False, by="ana")
        until(ended(app, "t"))
    assert app.get("t").failure.type == "TimeLimit"


# Abandoned threads


@pytest.fixture
def hanging(late):
    """An agent that hangs."""

    @agent(deadline=10)
    def hanging(task):
        task.step(late.wait, 6 * LONG, name="hang")

    return hanging


def leave_behind(app, clock, late, hanging, ids):
    """Have a worker begin tasks that hang, a few at a time, and let their time pass when all of them do."""
    ids = list(ids)
    for first in range(0, len(ids), 8):
        batch = ids[first : first + 8]
        clock.hold()
        due = late.waits + len(batch)
        for id in batch:
            app.start(hanging, id=id)
        until(lambda due=due: late.waits == due)
        clock.advance(10)


def ask(health):
    code, _, body = health.answer("/healthz")
    return code, json.loads(body)


def threads(app):
    return next(one for one in app.doctor() if one.what == "threads")


def test_with_64_hung_bodies_a_worker_says_so_and_claims_no_more_until_they_end(app, clock, late, hanging, caplog):
    caplog.set_level(logging.WARNING, "holdfast")
    most = limits.MAX_ABANDONED_THREADS
    assert most == 64 and threads(app).level == "ok"
    with working(app, hanging, double) as worker:
        health = Health(worker, StoreGauges(app.logs))
        try:
            leave_behind(app, clock, late, hanging, (f"h{n}" for n in range(most)))
            until(lambda: len(ABANDONED) == most)
            until(lambda: worker.clogged and worker.busy == 0)
            assert {app.get(f"h{n}").status for n in range(most)} == {"failed"}
            app.start(double, id="waits")
            time.sleep(1.5)  # it would have looked for tasks by now
            waiting = app.get("waits").waiting
            assert (app.get("waits").status, waiting.kind) == ("pending", "no_worker")
            assert "too many abandoned threads" in waiting.why and worker.name in waiting.why
            assert [one.kind for one in app.inbox("waits")] == ["no_worker"]
            assert [one.serving.clogged for one in app.workers()] == [True]
            told = [record.getMessage() for record in caplog.records if "abandoned" in record.getMessage()]
            assert len(told) == 1 and "64 abandoned threads" in told[0] and worker.name in told[0]
            code, facts = ask(health)
            assert (code, facts["status"]) == (503, "clogged") and "64" in facts["why"]
            assert "holdfast_abandoned_threads 64" in health.answer("/metrics")[2].decode()
            assert health.answer("/livez") == (503, "application/json", b'{"status":"clogged"}'), "a restart helps"
            late.set()
            until(ended(app, "waits"))
            assert [one.serving.clogged for one in app.workers()] == [False]
            assert ask(health)[0] == 200 and "claims tasks again" in caplog.records[-1].getMessage()
        finally:
            health.close()


def test_the_doctor_names_the_tasks_of_abandoned_threads(url, clock, late, hanging):
    """From another app, as another process would: what it knows is what the worker tells."""
    if url == "memory:":
        pytest.skip("one process only")
    with holdfast.open(url, clock=clock) as app, holdfast.open(url) as other, working(app, hanging) as worker:
        leave_behind(app, clock, late, hanging, (f"h{n}" for n in range(3)))
        until(lambda: threads(other).level == "warn" and threads(other).said.count("h") > 3)
        until(lambda: all(f"h{n}" in threads(other).said for n in range(3)))
        found = threads(other)
        assert worker.name in found.said and "3 in worker" in found.said and found.remedy
        leave_behind(app, clock, late, hanging, (f"h{n}" for n in range(3, limits.MAX_ABANDONED_THREADS)))
        until(lambda: threads(other).level == "fail")
        assert all(f"h{n}" in threads(other).said for n in range(limits.MAX_ABANDONED_THREADS))
        assert "claims no more tasks" in threads(other).said
        late.set()
        until(lambda: threads(other).level == "ok")


def test_a_tenant_is_told_of_its_own_tasks_alone(url, clock, late, hanging):
    if url == "memory:":
        pytest.skip("one process only")
    tenants = {name: holdfast.open(url, namespace=name, clock=clock) for name in ("acme", "zeta")}
    try:
        with holdfast.open(url, clock=clock) as root, working(root, hanging, namespaces="*"):
            for name, tenant in tenants.items():
                leave_behind(tenant, clock, late, hanging, [f"of-{name}"])
            until(lambda: "acme!of-acme" in threads(root).said and "zeta!of-zeta" in threads(root).said)
            assert "of-acme" in threads(tenants["acme"]).said
            assert "zeta" not in threads(tenants["acme"]).said
            late.set()
    finally:
        for tenant in tenants.values():
            tenant.close()


def test_nothing_is_kept_of_what_was_abandoned(app, clock, late, hanging, monkeypatch):
    """When the threads have ended, neither they nor what they worked on is kept."""
    made = []
    first = Execution.__init__

    def noted(self, *args, **given):
        first(self, *args, **given)
        made.append(weakref.ref(self.lock))  # executions have slots, and no place for a weak reference

    asked = 24
    before = threading.active_count()
    with working(app, hanging, double):
        monkeypatch.setattr(Execution, "__init__", noted)
        leave_behind(app, clock, late, hanging, (f"h{n}" for n in range(asked)))
        until(lambda: len(ABANDONED) == asked and len(made) == 2 * asked)
        monkeypatch.undo()
        late.set()
        until(lambda: not len(ABANDONED))
    until(lambda: threading.active_count() <= before + 16 + 2, LONG)
    until(lambda: gc.collect() >= 0 and all(one() is None for one in made))


def test_steps_with_a_time_limit_count_too(app, late):
    @agent
    async def several(task):
        for _ in range(3):
            try:
                await task.step(late.wait, LONG, name="hang", timeout=0.05)
            except holdfast.StepFailed:
                continue

    with working(app, several) as worker:
        app.start(several, id="t")
        until(ended(app, "t"))
        until(lambda: threads(app).said.count("t hang#") == 3)
        assert "t hang#1" in threads(app).said and not worker.clogged

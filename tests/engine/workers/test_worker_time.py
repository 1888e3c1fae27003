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
from tests.engine.both import KINDS, declarer
from tests.engine.workers.test_worker import LONG, double, ended, working
from tests.waiting import until, until_past

STORES = ("memory", "sqlite", "postgres")
CLOCK = None  # the real one
SOON = 0.2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["deadline", "cancel"])
def test_a_place_is_free_again_when_a_task_is_cut(app, late, kind, end):
    begun = threading.Event()

    @declarer(kind)()
    def hanging(task):
        yield task.step(lambda: begun.set() or late.wait(LONG), name="hang")

    with working(app, hanging, double, concurrency=1) as worker:
        app.start(hanging, id="t", deadline=SOON if end == "deadline" else None)
        assert begun.wait(LONG)
        app.start(double, id="next")
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


def test_a_call_that_a_worker_left_behind_is_in_the_inbox(app, late):
    @tool(effect="once")
    def pay() -> None:
        late.wait(LONG)

    @agent(deadline=10 * SOON)  # time enough for the call to begin
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


def hang(late):
    """An agent that hangs; it has time enough to begin, however many others do."""

    @agent(deadline=2)
    def hanging(task):
        task.step(late.wait, 6 * LONG, name="hang")

    return hanging


def ask(health):
    code, _, body = health.answer("/healthz")
    return code, json.loads(body)


def threads(app):
    return next(one for one in app.doctor() if one.what == "threads")


def test_with_64_hung_bodies_a_worker_says_so_and_claims_no_more_until_they_end(app, late, caplog):
    caplog.set_level(logging.WARNING, "holdfast")
    hanging, most = hang(late), limits.MAX_ABANDONED_THREADS
    assert most == 64 and threads(app).level == "ok"
    with working(app, hanging, double) as worker:
        health = Health(worker, StoreGauges(app.logs))
        try:
            for n in range(most):
                app.start(hanging, id=f"h{n}")
            until(lambda: len(ABANDONED) == most, 3 * LONG)
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


def test_the_doctor_names_the_tasks_of_abandoned_threads(url, late):
    """From another app, as another process would: what it knows is what the worker tells."""
    if url == "memory:":
        pytest.skip("one process only")
    hanging = hang(late)
    with holdfast.open(url) as app, holdfast.open(url) as other, working(app, hanging) as worker:
        for n in range(3):
            app.start(hanging, id=f"h{n}")
        until(lambda: threads(other).level == "warn" and threads(other).said.count("h") > 3)
        until(lambda: all(f"h{n}" in threads(other).said for n in range(3)))
        found = threads(other)
        assert worker.name in found.said and "3 in worker" in found.said and found.remedy
        for n in range(3, limits.MAX_ABANDONED_THREADS):
            app.start(hanging, id=f"h{n}")
        until(lambda: threads(other).level == "fail", 3 * LONG)
        assert all(f"h{n}" in threads(other).said for n in range(limits.MAX_ABANDONED_THREADS))
        assert "claims no more tasks" in threads(other).said
        late.set()
        until(lambda: threads(other).level == "ok")


def test_a_tenant_is_told_of_its_own_tasks_alone(url, late):
    if url == "memory:":
        pytest.skip("one process only")
    hanging = hang(late)
    tenants = {name: holdfast.open(url, namespace=name) for name in ("acme", "zeta")}
    try:
        with holdfast.open(url) as root, working(root, hanging, namespaces="*"):
            for name, tenant in tenants.items():
                tenant.start(hanging, id=f"of-{name}")
            until(lambda: "acme!of-acme" in threads(root).said and "zeta!of-zeta" in threads(root).said)
            assert "of-acme" in threads(tenants["acme"]).said
            assert "zeta" not in threads(tenants["acme"]).said
            late.set()
    finally:
        for tenant in tenants.values():
            tenant.close()


def test_nothing_is_kept_of_what_was_abandoned(app, late, monkeypatch):
    """When the threads have ended, neither they nor what they worked on is kept."""
    made = []
    first = Execution.__init__

    def noted(self, *args, **given):
        first(self, *args, **given)
        made.append(weakref.ref(self.lock))  # executions have slots, and no place for a weak reference

    hanging, asked = hang(late), 24
    before = threading.active_count()
    with working(app, hanging, double):
        monkeypatch.setattr(Execution, "__init__", noted)
        for n in range(asked):
            app.start(hanging, id=f"h{n}")
        until(lambda: len(ABANDONED) == asked and len(made) == 2 * asked, 2 * LONG)
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

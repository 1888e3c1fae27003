"""Workers where things are not as they should be: many tenants, what nobody serves, code that misbehaves."""

import threading
import time

import holdfast
from holdfast import agent
from holdfast.engine.draining import is_idle
from holdfast.engine.health import Health
from tests.engine.test_worker import LONG, double, ended, until, working

STORES = ("sqlite", "postgres")


# Tenants


def test_a_worker_of_all_tenants_takes_what_a_new_one_starts_at_once(url):
    with holdfast.open(url) as root, working(root, double, namespaces="*", concurrency=4) as worker:
        with holdfast.open(url, namespace="old") as old:
            old.start(double, id="t")
            until(ended(old, "t"))
        waited = []
        for n in range(4):
            with holdfast.open(url, namespace=f"new-{n}") as new:
                began = time.monotonic()
                new.start(double, id="t")
                until(ended(new, "t"))
                waited.append(time.monotonic() - began)
        assert min(waited) < 0.5, waited
        assert worker.counts["completed"] == 5


def test_a_worker_of_all_tenants_does_not_count_their_tasks(url, monkeypatch):
    with holdfast.open(url) as root, holdfast.open(url, namespace="a") as tenant:
        monkeypatch.setattr(type(root.store.queues), "depths", lambda *given: (_ for _ in ()).throw(AssertionError))
        with working(root, double, namespaces="*"):
            tenant.start(double, id="now")
            tenant.start(double, id="soon", after=0.3)
            until(ended(tenant, "now", "soon"), 5)


def test_a_worker_is_idle_when_only_others_could_take_what_is_left(url):
    other = agent(lambda task: None, name="other")
    newer = agent(lambda task: None, name="double", version="9")
    with holdfast.open(url) as root, holdfast.open(url, namespace="b") as b, holdfast.open(url, namespace="a") as a:
        worker = root.worker([double], namespaces=["a", "c"])
        now_us = root.clock.now_us
        a.start(other, id="other")
        a.start(newer, id="newer")
        a.start(double, id="later", after="1h")
        b.start(double, id="of-b")
        assert is_idle(root.store, worker, now_us())
        assert not is_idle(root.store, root.worker([double], namespaces="*"), now_us())
        a.start(double, id="mine")
        assert not is_idle(root.store, worker, now_us())
        assert a.run(double, id="mine").result == 2
        assert is_idle(root.store, worker, now_us())
        begun, go = threading.Event(), threading.Event()
        long = agent(lambda task: task.step(lambda: (begun.set(), go.wait(LONG))[1], name="long"), name="long")
        thread = threading.Thread(target=a.run, args=(long,), kwargs={"id": "under-way"})
        thread.start()
        assert begun.wait(LONG) and not is_idle(root.store, worker, now_us())
        go.set()
        thread.join(LONG)


def test_who_asks_a_worker_often_how_it_is_does_not_make_it_count_often(url):
    with holdfast.open(url) as app:
        counted = []
        health = Health(app.worker([double]), lambda: counted.append(1) or app.store.queues.depths())
        try:
            for _ in range(50):
                assert health.answer("/healthz")[0] == health.answer("/metrics")[0] == 200
            assert len(counted) <= 3
        finally:
            health.close()

"""Workers where things are not as they should be: many tenants, what nobody serves, code that misbehaves."""

import asyncio
import contextlib
import socket
import struct
import threading
import time

import pytest

import holdfast
from holdfast import Queue, agent, events as ev
from holdfast.engine.telemetry.gauges import StoreGauges
from holdfast.engine.workers import claiming, health as health_module, worker as worker_module
from holdfast.engine.workers.health import Health
from tests.engine.workers.test_worker import LONG, died, double, ended, working
from tests.waiting import until

STORES = ("sqlite", "postgres")


@pytest.fixture
def looks_seldom(monkeypatch):
    """What a worker is not woken for, it finds after so many seconds: many more than a busy machine takes."""
    for module in (claiming, worker_module):
        monkeypatch.setattr(module, "IDLE_SECONDS", LONG / 2)
    return LONG / 2


# Tenants


def test_a_worker_of_all_tenants_takes_what_a_new_one_starts_at_once(url, looks_seldom):
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
        assert min(waited) < looks_seldom / 2, waited
        until(lambda: worker.counts["completed"] == 5)


def test_a_worker_of_all_tenants_does_not_count_their_tasks(url, monkeypatch):
    with holdfast.open(url) as root, holdfast.open(url, namespace="a") as tenant:
        monkeypatch.setattr(type(root.store.queues), "depths", lambda *given: (_ for _ in ()).throw(AssertionError))
        with working(root, double, namespaces="*"):
            tenant.start(double, id="now")
            tenant.start(double, id="soon", after=0.3)
            until(ended(tenant, "now", "soon"))


def test_a_worker_is_idle_when_only_others_could_take_what_is_left(url):
    other = agent(lambda task: None, name="other")
    newer = agent(lambda task: None, name="double", version="9")
    with holdfast.open(url) as root, holdfast.open(url, namespace="b") as b, holdfast.open(url, namespace="a") as a:
        worker = root.worker([double], namespaces=["a", "c"])
        a.start(other, id="other")
        a.start(newer, id="newer")
        a.start(double, id="later", after="1h")
        b.start(double, id="of-b")
        assert worker.is_idle
        assert not root.worker([double], namespaces="*").is_idle
        a.start(double, id="mine")
        assert not worker.is_idle
        assert a.run(double, id="mine").result == 2
        assert worker.is_idle
        begun, go = threading.Event(), threading.Event()
        long = agent(lambda task: task.step(lambda: (begun.set(), go.wait(LONG))[1], name="long"), name="long")
        thread = threading.Thread(target=a.run, args=(long,), kwargs={"id": "under-way"})
        thread.start()
        assert begun.wait(LONG) and not worker.is_idle
        go.set()
        thread.join(LONG)


def test_who_asks_a_worker_often_how_it_is_does_not_make_it_count_often(url, monkeypatch):
    with holdfast.open(url) as app:
        counted, depths = [], app.store.queues.depths
        monkeypatch.setattr(app.store.queues, "depths", lambda *given: counted.append(1) or depths(*given))
        health = Health(app.worker([double]), StoreGauges(app.logs))
        try:
            for _ in range(50):
                assert health.answer("/healthz")[0] == health.answer("/metrics")[0] == 200
            assert len(counted) <= 3
        finally:
            health.close()


# What a worker holds and does not work on


def test_what_a_worker_holds_and_forgot_is_found_behind_what_it_works_on(url, monkeypatch, looks_seldom):
    monkeypatch.setattr(claiming, "SWEEP_SECONDS", 0.2)
    go = threading.Event()

    @agent
    def long(task):
        return task.step(go.wait, LONG, name="long")

    with holdfast.open(url) as app:
        for n in range(4):
            app.start(long, id=f"long-{n}")
        with working(app, long, double, concurrency=6) as worker:
            until(lambda: worker.busy == 4)
            app.start(double, id="orphan", after="1h")
            app.append("orphan", ev.TaskClaimed(holder=app.store.holder(), lease_seconds=30.0))
            until(ended(app, "orphan"), LONG)
            waited = []
            for n in range(25):
                began = time.monotonic()
                app.start(double, id=f"d{n}")
                until(ended(app, f"d{n}"))
                waited.append(time.monotonic() - began)
            assert max(waited) < looks_seldom / 2, "looking for what was forgotten keeps nobody else waiting"
            go.set()
        claims = [one for n in range(4) for one in app.events(f"long-{n}") if isinstance(one.event, ev.TaskClaimed)]
        assert len(claims) == 4, "what it works on is not taken again"


def test_limits_of_a_queue_hold_while_a_worker_looks_for_what_it_forgot(url, monkeypatch):
    monkeypatch.setattr(claiming, "SWEEP_SECONDS", 0.01)
    now, most, guard = [0], [0], threading.Lock()

    @agent
    def counted(task):
        with guard:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.05)
        with guard:
            now[0] -= 1

    with holdfast.open(url, queues=[Queue("few", concurrency=3, per_key=2)]) as app:
        for n in range(24):
            app.start(counted, id=f"t{n}", queue="few", key=f"k{n % 2}")
        with working(app, counted, queues=["few"], concurrency=10):
            until(ended(app, *(f"t{n}" for n in range(24))))
    assert most == [3]


def test_nothing_else_of_the_process_is_at_work_beside_a_task_that_may_kill_it(url, monkeypatch):
    """Whoever works beside it dies with it, in another worker of the process too."""
    monkeypatch.setattr(claiming, "IDLE_SECONDS", 0.1)
    beside, alone = [], threading.Event()

    @agent
    def killer(task):
        alone.set()
        until_seconds = time.monotonic() + 0.5
        while time.monotonic() < until_seconds:
            beside.append(second.busy)
            time.sleep(0.01)

    with holdfast.open(url) as app, working(app, double, name="second") as second:
        app.start(killer, id="killer")
        died(app, "killer", 4)
        with working(app, killer, name="first"):
            assert alone.wait(LONG)
            app.start(double, id="t")
            until(ended(app, "killer", "t"))
    assert set(beside) == {0}


# Agents that misbehave


class Odd(BaseException):
    """No Exception, and nothing that anybody expects."""


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), Odd("odd")], ids=repr)
@pytest.mark.parametrize("how", ["def", "async", "branch"])
def test_an_agent_that_raises_what_ends_a_process_ends_nothing_but_its_task(tmp_path, error, how):
    @agent
    def plain(task):
        raise error

    @agent
    async def awaited(task):
        raise error

    async def inner():
        await asyncio.sleep(0)
        raise error

    @agent
    async def branched(task):
        await asyncio.create_task(inner())

    bad = {"def": plain, "async": awaited, "branch": branched}[how]
    go = asyncio.Event()

    @agent
    async def beside(task):
        await go.wait()
        return await task.step(lambda: 7, name="seven")

    with holdfast.open(str(tmp_path / "x.db")) as app, working(app, bad, beside, double) as worker:
        app.start(beside, id="beside")
        until(lambda: worker.busy == 1)
        app.start(bad, id="bad")
        until(lambda: worker.counts["quarantined"] == 1)
        app.start(double, id="after")
        until(ended(app, "after"))
        worker._loop.call_soon_threadsafe(go.set)
        until(ended(app, "beside"))
        assert f"{type(error).__name__}: {error}" in app.get("bad").waiting.why
        assert app.get("beside").result == 7
        claims = [one for one in app.events("bad") if isinstance(one.event, ev.TaskClaimed)]
        assert len(claims) <= 2, "it is not tried again and again"


def test_a_program_that_runs_an_agent_which_exits_is_told(tmp_path):
    @agent
    async def leaver(task):
        raise SystemExit(4)

    with holdfast.open(str(tmp_path / "x.db")) as app:
        with pytest.raises(SystemExit, match="4"):
            app.run(leaver, id="t")
        assert app.get("t").status == "pending"


def test_a_task_that_can_go_on_before_its_worker_is_done_with_it_is_taken_after_that(url):
    """The answer comes while the worker still tells that the task waits."""

    @agent
    def asks(task):
        return task.ask("which?", name="which")

    def answer(state):
        app.answer(state.id, "which", 7)
        time.sleep(0.3)

    with holdfast.open(url, on_wait=answer) as app:
        with working(app, asks) as worker:
            app.start(asks, id="t")
            until(ended(app, "t"))
            until(lambda: not worker.busy)
            assert (worker.counts["waiting"], worker.counts["completed"], worker.counts["errors"]) == (1, 1, 0)
        assert app.get("t").result == 7


def test_the_next_task_of_a_limited_queue_begins_when_one_ends(url, looks_seldom):
    with holdfast.open(url, queues=[Queue("one", concurrency=1), Queue("keyed", per_key=1)]) as app:
        for n in range(8):
            app.start(double, id=f"one-{n}", queue="one")
            app.start(double, id=f"keyed-{n}", queue="keyed", key="k")
        with working(app, double, concurrency=50):
            began = time.monotonic()
            until(ended(app, *(f"{queue}-{n}" for n in range(8) for queue in ("one", "keyed"))))
            assert time.monotonic() - began < 2 * looks_seldom, (
                "nobody has to wait until the worker looks again by itself"
            )


# Those who ask how a worker is


def ask(health, request, seconds=5):
    with socket.create_connection(("127.0.0.1", health.port), seconds) as link:
        link.sendall(request)
        return link.makefile("rb").read()


def test_who_asks_badly_or_slowly_keeps_nobody_from_asking(monkeypatch, capfd):
    monkeypatch.setattr(health_module, "SLOW_SECONDS", 0.3)
    with holdfast.open("memory:") as app, contextlib.ExitStack() as stack:
        health = stack.enter_context(contextlib.closing(Health(app.worker([double]), StoreGauges(app.logs))))
        assert ask(health, b"GET /healthz?from=probe HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 200 ")
        told = ask(health, b"HEAD /healthz HTTP/1.0\r\n\r\n")
        assert told.startswith(b"HTTP/1.0 200 ") and told.endswith(b"\r\n\r\n")
        assert b" 501 " in ask(health, b"POST /healthz HTTP/1.0\r\n\r\n")
        assert b" 431 " in ask(health, b"GET /healthz HTTP/1.0\r\nX: " + b"x" * 70_000 + b"\r\n\r\n")
        assert b" 404 " in ask(health, b"GET /../../etc/passwd HTTP/1.0\r\n\r\n")
        before = threading.active_count()
        slow = [socket.create_connection(("127.0.0.1", health.port)) for _ in range(100)]
        for link in slow:
            link.sendall(b"GET /hea")
        assert threading.active_count() <= before + health_module.MOST_ASKING
        slow[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for link in slow:
            link.close() if link is slow[0] else stack.callback(link.close)
        until(lambda: answers(health))
    assert capfd.readouterr().err == ""


def answers(health):
    with contextlib.suppress(OSError):
        return ask(health, b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 200 ")

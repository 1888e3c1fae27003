"""Many tasks at once, queues that are full, and tasks that kill whoever works on them."""

import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

import holdfast
from holdfast import Queue, QueueFull, TaskNotFound, agent, events as ev
from holdfast.engine.workers import claiming
from holdfast.failpoints import armed
from tests.conftest import ALL
from tests.waiting import auntil, until

STORES = ("sqlite", "postgres")
CONCURRENCY = 20


@contextmanager
def working(*workers):
    """Let workers work in threads, and stop them."""
    threads = [threading.Thread(target=one.run) for one in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for one in workers:
            one.stop()
        for thread in threads:
            thread.join(30)
    assert not any(thread.is_alive() for thread in threads), "a worker does not stop"


def all_completed(app, count):
    return lambda: app.stats().by_status == {"completed": count}


class Places:
    """How many tasks are worked on at a time, and at the most."""

    def __init__(self):
        self._lock = threading.Lock()
        self._now = self.most = 0

    def __enter__(self):
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)

    def __exit__(self, *_):
        with self._lock:
            self._now -= 1


def counting(places, until_open=None):
    """An agent that takes up a place for a moment, or until a gate is open."""

    @agent
    async def visit(task, n: int):
        with places:
            if until_open is not None:
                await auntil(until_open)
            return await task.step(lambda: n, name="look")

    return visit


def test_thousands_of_tasks_that_are_due_at_the_same_moment_do_not_stampede(url, clock):
    """A worker with free places asks for as many tasks as fit, and for no more until a place is free.

    One that is full leaves the rest to the others: no visit ends before two workers have some.
    """
    count = 3_000 if ALL else 1_000
    claims = Counter()
    with ExitStack() as stack:
        apps = [stack.enter_context(holdfast.open(url, durability="process", clock=clock)) for _ in range(3)]
        places = [Places() for _ in apps]
        visits = [counting(one, lambda: sum(one.most > 0 for one in places) > 1) for one in places]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: apps[0].start(visits[0], {"n": n}, id=f"t{n}", after="1h"), range(count)))
        crew = [app.worker([visit], concurrency=CONCURRENCY) for app, visit in zip(apps, visits, strict=True)]
        stack.enter_context(armed(lambda name: claims.update([name])))
        with working(*crew):
            time.sleep(0.3)
            assert claims["act.before"] == 0 and apps[0].stats().by_status == {"pending": count}, "nothing is due yet"
            claims.clear()
            clock.advance(3601)
            until(all_completed(apps[0], count))
        assert [one.most <= CONCURRENCY for one in places] == [True] * 3
        assert sum(one.counts["claimed"] for one in crew) == count, "every task was taken once"
        assert claims["claim.before"] <= count + 300, "nobody asks for tasks that there is no place for"
        assert sum(one.counts["lease_lost"] + one.counts["errors"] for one in crew) == 0


def test_a_full_queue_pushes_back_and_nothing_is_written(url, texts):
    queues = [Queue("small", max_ready=3), Queue("large")]
    visit = counting(Places())
    with holdfast.open(url, queues=queues) as app:
        for n in range(3):
            app.start(visit, {"n": n}, id=f"t{n}", queue="small")
        before = app.stats().events
        with texts.raises(QueueFull):
            app.start(visit, {"n": 3}, id="t3", queue="small", user="ana", thread="talk")
        assert app.stats().events == before and len(app.list()) == 3
        with pytest.raises(TaskNotFound):
            app.get("t3")
        app.start(visit, {"n": 4}, id="t4", queue="large")
        with working(app.worker([visit], queues=["small"])):
            until(lambda: app.get("t2").status == "completed")
        assert app.start(visit, {"n": 3}, id="t3", queue="small").status == "pending", "there is room again"
        assert app.get("t4").status == "pending", "other queues are others' business"


def test_many_who_fill_a_queue_at_once_overshoot_by_no_more_than_they_are(url):
    visit = counting(Places())

    def put(n):
        try:
            app.start(visit, {"n": n}, queue="small")
        except QueueFull:
            return 0
        return 1

    with holdfast.open(url, durability="process", queues=[Queue("small", max_ready=10)]) as app:
        with ThreadPoolExecutor(4) as pool:
            admitted = sum(pool.map(put, range(60)))
        assert 10 <= admitted <= 13 and len(app.list()) == admitted


def test_two_workers_of_one_app_do_not_take_what_the_other_is_at(url, monkeypatch):
    """They are one holder to others; what a holder does not work on is looked for all the time here."""
    monkeypatch.setattr(claiming, "SWEEP_SECONDS", 0.02)

    @agent
    def slow(task):
        for _ in range(4):
            task.step(lambda: time.sleep(0.1), name="sit")

    with holdfast.open(url, durability="process") as root, ExitStack() as stack:
        tenants = [stack.enter_context(holdfast.open(url, namespace=name)) for name in ("a", "b")]
        for app in tenants:
            for n in range(8):
                app.start(slow, id=f"t{n}")
        crew = [root.worker([slow], namespaces=["a", "b"], concurrency=8) for _ in range(2)]
        with working(*crew):
            until(lambda: all(app.stats().by_status == {"completed": 8} for app in tenants))
        counts = sum((Counter(one.counts.all()) for one in crew), Counter())
        assert (counts["claimed"], counts["completed"], counts["lease_lost"]) == (16, 16, 0), counts
        kinds = Counter(record.kind for app in tenants for n in range(8) for record in app.events(f"t{n}"))
        assert kinds["task_claimed"] == 16 and kinds["step_observed"] == 0


POISON = textwrap.dedent(
    """
    import os, pathlib, signal, sys, holdfast
    from holdfast import agent

    url, cure = sys.argv[1], pathlib.Path(sys.argv[2])

    def swallow():
        if not cure.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return "well"

    @agent
    def poison(task):
        task.step(lambda: 1, name="sniff")
        return task.step(swallow)

    @agent
    def food(task, n: int):
        return [task.step(lambda i=i: i, name="bite") for i in range(n)]

    if __name__ == "__main__":
        holdfast.open(url).worker([poison, food], concurrency=4, max_deaths=3).run()
    """
)


def is_set_aside(app, id):
    waiting = app.get(id).waiting
    return waiting is not None and waiting.kind == "quarantined"


@contextmanager
def process(*command):
    """A program that is gone afterwards, whatever happens."""
    with subprocess.Popen([sys.executable, *command]) as started:
        try:
            yield started
        finally:
            started.kill()


def test_a_task_that_kills_its_workers_is_set_aside_and_the_others_finish(url, tmp_path, monkeypatch, texts):
    program, cure = tmp_path / "poison_program.py", tmp_path / "cure"
    program.write_text(POISON)
    names = {"__name__": "poison_program"}
    monkeypatch.setattr(sys, "argv", ["", url, str(cure)])
    exec(compile(POISON, "poison_program", "exec"), names)
    with holdfast.open(url) as app:
        app.start(names["poison"], id="bad", priority=9)
        for n in range(12):
            app.start(names["food"], {"n": 5}, id=f"good-{n}")
        for _ in range(3):
            with process(str(program), url, str(cure)) as worker:
                assert worker.wait(30) == -signal.SIGKILL
            assert not is_set_aside(app, "bad")
        with process(str(program), url, str(cure)) as worker:
            until(lambda: is_set_aside(app, "bad"), 30)
            until(lambda: all(app.get(f"good-{n}").status == "completed" for n in range(12)), 30)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(20) == 0, "it lives on, and ends as it should"
        assert app.get("bad").status == "waiting"
        told = [record.event for record in app.events("bad")]
        [note] = [one.note for one in told if isinstance(one, ev.TaskSuspended)]
        texts.check(note)
        assert [one.taken for one in told if isinstance(one, ev.TaskClaimed) and one.taken] == ["proven"] * 3
        cure.touch()
        done = app.resume("bad", names["poison"], by="ana")
        assert (done.status, done.result) == ("completed", "well") and app.verify().ok

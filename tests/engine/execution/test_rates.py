"""Rates of tools: how often they are called by all workers of a store, and how a call waits for its moment."""

import json
import subprocess
import sys
import threading
import time

import pytest

import holdfast
from holdfast import Budget, InvalidValue, Retry, agent, tool
from holdfast.failpoints import armed
from tests.engine.both import events, kinds
from tests.waiting import PATIENCE_SECONDS, until

STORES = ("memory", "sqlite", "postgres")
LONG = PATIENCE_SECONDS


def most_in_a_second(moments):
    """How many of these begin in any one second, at the most."""
    ordered = sorted(moments)
    return max(sum(one <= later < one + 1.0 for later in ordered) for one in ordered)


def ringing(rate="10/s", **options):
    """A tool that notes when it is called."""
    rung = []

    @tool(**{"effect": "idempotent", "rate": rate, **options})
    def ring(number: int = 0) -> int:
        rung.append(time.monotonic())
        return number

    return ring, rung


def bells(either, ring, count, **options):
    """An agent that rings so often, one after the other."""

    @either(**options)
    def bell(task):
        rung = []
        for number in range(count):
            answer = yield task.call(ring, number=number)
            rung.append(answer)
        return rung

    return bell


# How often


def test_no_second_has_more_calls_than_the_rate_says(url, either, monkeypatch):
    (ring, rung), waits = ringing(), []

    @either()
    def bell(task):
        return (yield task.map(ring, [{"number": number} for number in range(25)], limit=25))

    with holdfast.open(url) as app:
        reserve = app.store.queues.reserve

        def noted(*given):
            slot = reserve(*given)
            waits.append(slot.wait_us)
            return slot

        monkeypatch.setattr(app.store.queues, "reserve", noted)
        begun = time.monotonic()
        assert app.run(bell, id="t").result == list(range(25))
    assert most_in_a_second(rung) <= 10 and len(rung) == 25
    assert waits.count(0) >= 10, "as many as it says begin at once; more if the first of them are over"
    assert 2.0 <= rung[-1] - begun < 20, "one each second would take longer"


@pytest.mark.parametrize(
    ("effect", "unique"), [("once", ""), ("once", "ring-{number}"), ("idempotent", ""), ("read", "")]
)
def test_a_call_that_misses_its_moment_at_the_last_instant_gets_another(url, either, effect, unique):
    """Its announcement took long, or its thread came late: the next call's moment is not moved by that."""
    (ring, rung), delays = ringing("1/s", effect=effect, unique=unique), [0.6]

    def delay(name):
        if name == "act.before" and delays:
            time.sleep(delays.pop())

    with holdfast.open(url) as app, armed(delay):
        assert app.run(bells(either, ring, 2), id="t").result == [0, 1]
        assert len(rung) == 2 and rung[1] - rung[0] >= 1.0
        settled = [one.happened for one in events(app, "step_settled")]
        assert settled == ([False] if effect == "once" else []), "one that was announced was not made"
        assert [one.attempts for one in app.get("t").steps.values()] == [1, 1]


RINGER = """
import os, sys, time
import holdfast
from holdfast import agent, tool

url, path, count = sys.argv[1:]

@tool(effect="once", rate="10/s")
def ring(number: int) -> int:
    with open(path, "a") as file:
        file.write(f"{time.time()} {os.getpid()}\\n")
    return number

@agent
def bell(task, number: int):
    return task.call(ring, number=number)

@agent
async def abell(task, number: int):
    return await task.call(ring, number=number)

if count != "0":
    with holdfast.open(url) as app:
        for number in range(int(count)):
            app.start((bell, abell)[number % 2], {"number": number}, id=f"t{number}")
else:
    holdfast.open(url).worker([bell, abell], concurrency=8).run()
"""


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_the_rate_holds_over_all_workers_of_a_store(url, tmp_path):
    path = tmp_path / "rung"
    given = [sys.executable, "-c", RINGER, url, str(path)]
    workers = [subprocess.Popen([*given, "0"]) for _ in range(3)]
    try:
        with holdfast.open(url) as app:
            until(lambda: len(app.workers()) == 3)  # so that no worker has made all calls before the next one is there
            subprocess.run([*given, "40"], check=True, timeout=LONG)
            until(lambda: all(row.status == "completed" for row in app.list(limit=100)))
    finally:
        for one in workers:
            one.terminate()
        for one in workers:
            assert one.wait(LONG) == 0
    rung = [line.split() for line in path.read_text().splitlines()]
    moments = [float(at) for at, _ in rung]
    assert len(moments) == 40 and len({pid for _, pid in rung}) > 1, "several processes called it"
    assert most_in_a_second(moments) <= 10
    assert 3.0 <= max(moments) - min(moments) < 30, "one each second would take longer"


def test_tenants_of_a_store_share_the_rate_of_a_tool(url):
    ring, rung = ringing("2/s")

    @agent
    def bell(task):
        return task.call(ring)

    if url == "memory:":
        pytest.skip("two apps have two stores in memory")
    begun = time.monotonic()
    for tenant in ("acme", "zeta", "acme"):
        with holdfast.open(url, namespace=tenant) as app:
            app.run(bell)
    assert len(rung) == 3 and rung[2] - begun >= 1.0


def test_what_touches_nothing_does_not_count(app, either):
    ring, rung = ringing("1/h", mock=lambda number=0: number)

    assert app.run(bells(either, ring, 3), id="mock", mock=True).result == [0, 1, 2] and rung == []

    @either()
    def once(task):
        yield task.call(ring)
        yield task.wait("go")

    app.run(once, id="t")
    app.signal("t", "go")
    assert app.run(once, id="t").status == "completed" and len(rung) == 1, "a replay calls nothing"


# How a call waits


@pytest.mark.parametrize("effect", ["once", "idempotent", "read"])
def test_a_long_wait_is_the_tasks_timer_and_its_moment_is_kept(app, clock, either, effect):
    ring, rung = ringing("2/m", effect=effect)

    bell = bells(either, ring, 3)

    waiting = app.run(bell, id="t", hold=0)
    assert (waiting.status, waiting.waiting.kind, len(rung)) == ("waiting", "timer", 2)
    assert "'ring' is 2/m" in waiting.waiting.why and list(app.inbox()) == []
    left = waiting.waiting.wake_at.timestamp() - clock.now_us() / 1_000_000
    assert 55 < left <= 61
    assert [one.key for one in events(app, "step_started")] == (["ring#1", "ring#2"] if effect == "once" else [])
    clock.advance(30)
    assert app.run(bell, id="t", hold=0).status == "waiting" and len(rung) == 2
    clock.advance(31)
    assert app.run(bell, id="t", hold=0).result == [0, 1, 2] and len(rung) == 3
    assert kinds(app).count("task_suspended") == 1, "it did not have to wait again"


def test_a_task_woken_for_another_reason_keeps_its_moment(app, clock):
    ring, rung = ringing("1/m")

    @agent
    async def bell(task):
        import asyncio

        await task.call(ring)
        async with asyncio.TaskGroup() as group:
            group.create_task(task.wait("go"))
            group.create_task(task.call(ring, number=1))
        return "done"

    first = app.run(bell, id="t", hold=0)
    wake = first.waiting.wake_at
    app.signal("t", "go")
    clock.advance(1)
    second = app.run(bell, id="t", hold=0)
    assert (second.status, second.waiting.kind, len(rung)) == ("waiting", "timer", 1)
    assert second.waiting.wake_at == wake, "the same moment, and not another place behind it"
    clock.advance(60)
    assert app.run(bell, id="t", hold=0).result == "done" and len(rung) == 2


def test_a_moment_is_for_one_attempt(app, clock):
    rung = []

    @tool(effect="idempotent", rate="1/m", name="flaky", retry=Retry(2, first=0))
    def flaky() -> int:
        rung.append(time.monotonic())
        raise ConnectionError("no")

    @agent
    def bell(task):
        return task.call(flaky)

    app.run(bell, id="t", hold=0)
    assert len(rung) == 1 and app.get("t").waiting.kind == "timer", "another attempt is another call"
    clock.advance(61)
    assert app.run(bell, id="t", hold=0).status == "failed" and len(rung) == 2


def test_calls_that_come_too_late_for_their_moment_do_not_come_all_at_once(app, clock, either):
    """All workers were away while the moments of several tasks went by."""
    ring, rung = ringing("1/m")

    @either()
    def bell(task):
        yield task.call(ring)

    for number in range(3):
        app.run(bell, id=f"t{number}", hold=0)
    assert len(rung) == 1 and [app.get(f"t{number}").status for number in range(3)].count("waiting") == 2
    clock.advance(600)
    for number in range(3):
        app.run(bell, id=f"t{number}", hold=0)
    assert len(rung) <= 2, "one of them, or by a server's clock none"


DYING = """
import os, signal, sys, time
import holdfast
from holdfast import agent, tool

url, path, dies = sys.argv[1:]

@tool(effect="idempotent", rate="1/s")
def ring(number: int) -> int:
    with open(path, "a") as file:
        file.write(f"{time.time()}\\n")
    if number == 1 and dies == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return number

@agent
def bell(task):
    return [task.call(ring, number=number) for number in range(2)]

with holdfast.open(url) as app:
    while app.run(bell, id="t", hold=0).status != "completed":
        time.sleep(0.01)
"""


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_a_task_that_is_taken_over_reserves_anew(url, tmp_path):
    """The worker that was killed had used the moment that was kept with its suspension."""
    path = tmp_path / "rung"
    for dies in ("dies", "lives"):
        subprocess.run([sys.executable, "-c", DYING, url, str(path), dies], timeout=LONG, check=dies == "lives")
    first, second, third = map(float, path.read_text().split())
    assert second - first >= 1.0 and third - second >= 1.0


def test_other_processes_write_while_a_call_waits(url):
    ring, rung = ringing("1/m")

    @agent
    def bell(task):
        return [task.call(ring, number=number) for number in range(3)]

    @agent
    def quick(task):
        return task.step(lambda: 1, name="one")

    with holdfast.open(url) as app:
        thread = threading.Thread(target=app.run, args=(bell,), kwargs={"id": "t", "hold": LONG})
        thread.start()
        until(lambda: rung)
        for number in range(5):
            assert app.run(quick, id=f"q{number}").result == 1
        assert len(rung) == 1 and thread.is_alive(), "nothing is locked until the next call's moment"
        app.cancel("t")
        thread.join(LONG)
        assert app.get("t").status == "cancelled" and len(rung) == 1


def test_a_deadline_ends_a_wait_for_the_rate(app, clock, either):
    ring, rung = ringing("1/m")

    bell = bells(either, ring, 2, deadline="30s")

    waiting = app.run(bell, id="t", hold=0)
    assert waiting.waiting.wake_at == waiting.deadline, "it does not sleep past it"
    clock.advance(31)
    done = app.run(bell, id="t", hold=0)
    assert (done.status, done.failure.type, len(rung)) == ("failed", "TimeLimit", 1)


def test_a_cancelled_task_does_not_call_at_its_moment(app, clock, either):
    ring, rung = ringing("1/m")

    bell = bells(either, ring, 2)

    app.run(bell, id="t", hold=0)
    app.cancel("t")
    clock.advance(61)
    assert app.run(bell, id="t", hold=0).status == "cancelled" and len(rung) == 1


def test_a_worker_that_stops_releases_a_task_that_waits_for_its_moment(url):
    ring, rung = ringing("2/m")

    @agent
    def bell(task):
        return [task.call(ring, number=number) for number in range(3)]

    with holdfast.open(url) as app:
        app.start(bell, id="t")
        worker = app.worker([bell])
        thread = threading.Thread(target=worker.run)
        thread.start()
        until(lambda: app.get("t").status == "waiting")
        worker.stop()
        thread.join(LONG)
        assert not thread.is_alive() and app.get("t").waiting.kind == "timer" and len(rung) == 2


def test_an_approval_comes_before_the_moment_is_reserved(app, clock):
    ring, rung = ringing("1/m", effect="once", risk="loud")

    @agent(required_for_risk_levels=["loud"])
    def bell(task):
        return task.call(ring)

    app.run(bell, id="a", hold=0)
    app.run(bell, id="b", hold=0)
    app.approve("b", "ring#1", by="ana")
    assert app.run(bell, id="b", hold=0).status == "completed", "nobody waits for one that was not approved"
    app.approve("a", "ring#1", by="ana", expires="30s")
    assert app.run(bell, id="a", hold=0).waiting.kind == "timer"
    clock.advance(61)
    assert app.run(bell, id="a", hold=0).waiting.kind == "person", "the approval expired while it waited"
    assert len(rung) == 1


@pytest.mark.parametrize("delay", [0, 0.6])
def test_a_transaction_tool_waits_outside_of_its_transaction(url, delay):
    """One that has waited so long for the store that its moment is over is rolled back, and gets another."""
    noted, delays = [], [delay]

    def late(name):
        if name == "act.before" and delays:
            time.sleep(delays.pop())

    @tool(effect="transaction", rate="1/s")
    def note(number: int, *, connection) -> int:
        noted.append(time.monotonic())
        return number

    @agent(budget=Budget(calls=5))
    def notes(task):
        return [task.call(note, number=number) for number in range(2)]

    if url == "memory:":
        pytest.skip("a store in memory has no connection")
    with holdfast.open(url) as app, armed(late):
        assert app.run(notes, id="t").result == [0, 1]
    assert len(noted) == 2 and noted[1] - noted[0] >= 1.0


def test_what_undoes_keeps_to_its_rate(app, clock):
    released = []

    @tool(effect="idempotent", rate="1/m")
    def release(call) -> None:
        released.append(call.step)

    @tool(effect="idempotent", compensate=release)
    def reserve(number: int) -> int:
        return number

    @agent
    def trip(task):
        for number in range(2):
            task.call(reserve, number=number)
        raise ValueError("no")

    assert app.run(trip, id="t", hold=0).waiting.kind == "timer" and released == ["reserve#2"]
    clock.advance(61)
    assert app.run(trip, id="t", hold=0).status == "failed" and released == ["reserve#2", "reserve#1"]


@pytest.mark.parametrize(
    "wrong", ["10", "0/s", "-1/s", "0.5/s", "10/w", "ten/s", "1e3/s", "10 / s / s", None, 10, [], "9999999999/s"]
)
def test_what_is_no_rate_is_refused(wrong, texts):
    with texts.raises(InvalidValue):
        tool(effect="read", rate=wrong)(lambda: 1)


def test_a_rate_is_part_of_a_tool(app):
    ring, _ = ringing(" 90 / h ")
    assert ring.rate == " 90 / h "
    assert json.loads(json.dumps(ring.input_schema))["type"] == "object"

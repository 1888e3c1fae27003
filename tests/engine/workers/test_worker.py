"""Workers through the public face: what they take, in which order, how many at a time, and what they leave alone."""

import asyncio
import contextlib
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

import holdfast
from holdfast import InvalidValue, Queue, QueueFull, agent, events as ev
from holdfast.core import codec
from holdfast.engine.telemetry.gauges import StoreGauges
from holdfast.engine.workers import claiming
from holdfast.engine.workers.counts import COUNTED
from holdfast.engine.workers.health import Health
from tests.postgres_server import Server, binaries
from tests.waiting import until

STORES = ("memory", "sqlite", "postgres")
CLOCK = None  # the real one: workers wait for real
LONG = 20


@contextlib.contextmanager
def working(app, *agents, **given):
    """A worker at work in a thread of its own, until the block ends."""
    worker = app.worker(list(agents), **given)
    failed = []

    def run():
        try:
            worker.run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(LONG)
        assert not thread.is_alive() and not failed, failed


def ended(app, *ids):
    return lambda: all(app.get(id).status in ("completed", "failed") for id in ids)


@agent
def double(task, x: int = 1):
    return task.step(lambda: 2 * x, name="double")


@agent
async def treble(task, x: int = 1):
    return await task.step(lambda: 3 * x, name="treble")


# Taking and ending


def test_one_worker_serves_agents_of_both_kinds(app):
    for n in range(10):
        app.start(double if n % 2 else treble, {"x": n}, id=f"t{n}")
    with working(app, double, treble) as worker:
        until(ended(app, *(f"t{n}" for n in range(10))))
        app.start(double, {"x": 21}, id="later")
        until(ended(app, "later"))
    assert [app.get(f"t{n}").result for n in range(10)] == [(2 if n % 2 else 3) * n for n in range(10)]
    assert app.get("later").result == 42
    assert worker.counts["claimed"] == worker.counts["completed"] == 11 and worker.busy == 0


def test_no_more_tasks_are_worked_on_at_a_time_than_it_was_told(app):
    now, most, guard = [0], [0], threading.Lock()

    @agent
    def one(task):
        with guard:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.03)
        with guard:
            now[0] -= 1

    for n in range(9):
        app.start(one, id=f"t{n}")
    with working(app, one, concurrency=3):
        until(ended(app, *(f"t{n}" for n in range(9))))
    assert most[0] == 3


def test_async_tasks_share_one_event_loop(app):
    loops = set()

    @agent
    async def nap(task):
        loops.add(id(asyncio.get_running_loop()))
        await asyncio.sleep(0.3)

    for n in range(20):
        app.start(nap, id=f"t{n}")
    with working(app, nap) as worker:
        until(lambda: worker.busy == 20)
        until(ended(app, *(f"t{n}" for n in range(20))))
    assert len(loops) == 1


def test_the_highest_priority_goes_first_then_the_oldest(app):
    order = []

    @agent
    def note(task):
        order.append(task.id)

    for id, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 9), ("e", 5)):
        app.start(note, id=id, priority=priority)
    with working(app, note, concurrency=1):
        until(ended(app, *"abcde"))
    assert order == ["d", "b", "e", "a", "c"]


def test_a_task_for_later_begins_when_its_time_has_come_and_says_so_before(app):
    assert app.list() == []  # so that connecting does not take from its time
    began = time.time()
    state = app.start(double, {"x": 2}, id="later", after="1s")
    assert state.waiting.kind == "timer"
    app.start(double, id="now")
    with working(app, double):
        until(ended(app, "now"))
        early = app.get("later").status == "pending"
        assert early or time.time() >= began + 1, "it began before its time"
        until(ended(app, "later"))
    first = next(one for one in app.events("later") if isinstance(one.event, ev.TaskClaimed))
    assert 1 <= first.at.timestamp() - began < 20


def test_a_timed_wait_ends_in_a_worker_without_anybody_asking(app):
    @agent
    def sleeper(task):
        task.sleep(3)
        return "woken"

    app.start(sleeper, id="s")
    with working(app, sleeper) as worker:
        until(lambda: app.get("s").status == "waiting")
        until(lambda: worker.busy == 0 and worker.counts["waiting"] == 1)
        until(ended(app, "s"))
    assert app.get("s").result == "woken"


def test_what_a_person_answers_lets_a_worker_go_on(app):
    @agent
    def asker(task):
        return task.ask("Which?", name="which")

    app.start(asker, id="a")
    with working(app, asker):
        until(lambda: app.get("a").status == "waiting")
        app.answer("a", "which", "this")
        until(ended(app, "a"))
    assert app.get("a").result == "this"


def test_an_agent_that_fails_is_failed_and_the_worker_goes_on(app):
    @agent
    def failer(task):
        raise ValueError("no such city")

    told = []
    app.start(failer, id="f")
    worker = app.worker([failer, double])
    worker.tell = told.append
    thread = threading.Thread(target=worker.run)
    thread.start()
    until(lambda: told)  # before the next task: two that end at about the same time may be told of in any order
    app.start(double, id="d")
    until(ended(app, "d"))
    worker.stop()
    thread.join(LONG)
    assert app.get("f").failure.type == "ValueError" and worker.counts["failed"] == 1
    assert [(one.id, one.agent, one.outcome, one.why) for one in told] == [
        ("f", "failer", "failed", "ValueError: no such city"),
        ("d", "double", "completed", ""),
    ]


def test_a_worker_takes_tasks_of_users_and_threads_that_nobody_has_met_before(app):
    @agent
    def greet(task, name: str):
        task.message({"role": "user", "content": f"I am {name}"})
        return task.step(lambda: f"hello {name}", name="greet")

    app.start(greet, {"name": "ana"}, id="both", user="ana", thread="talk")
    app.start(greet, {"name": "ben"}, id="user", user="ben")
    app.start(greet, {"name": "cy"}, id="thread", thread="other")
    with working(app, greet):
        until(ended(app, "both", "user", "thread"))
        app.start(greet, {"name": "ana"}, id="again", user="ana", thread="talk")
        until(ended(app, "again"))
    assert [app.get(id).result for id in ("both", "user", "thread", "again")] == [
        "hello ana",
        "hello ben",
        "hello cy",
        "hello ana",
    ]
    assert (app.get("both").user, app.get("both").thread) == ("ana", "talk")
    assert app.verify().ok


def test_a_task_that_may_go_on_at_once_is_taken_again_before_its_last_turn_is_booked(url, caplog):
    """Whoever is asked answers while the worker still puts its books in order: each claim has its outcome."""

    def answered(state, *_):
        app.answer(state.id, "ask", 1)

    @agent
    def asker(task):
        return sum(task.ask(f"{n}?") for n in range(10))

    with holdfast.open(url, on_wait=answered) as app:
        ids = [f"t{n}" for n in range(5)]
        for id in ids:
            app.start(asker, id=id)
        with working(app, asker) as worker:
            until(ended(app, *ids))
        counts = worker.counts
        assert counts["claimed"] == counts["waiting"] + counts["completed"] + counts["released"]
        assert [app.get(id).result for id in ids] == [10] * 5
    assert not [one for one in caplog.records if one.name == "asyncio"]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_agent_that_leaves_by_the_back_door_does_not_take_the_worker_along(app, error):
    @agent
    def leaves(task):
        task.step(lambda: 1, name="one")
        raise error("bye")

    app.start(leaves, id="leaves")
    with working(app, leaves, double) as worker:
        until(lambda: worker.counts["failed"] + worker.counts["quarantined"])
        app.start(double, id="next")
        until(ended(app, "next"))
    state = app.get("leaves")
    told = state.failure.message if state.status == "failed" else state.waiting.why
    assert error.__name__ in told or "bye" in told


# Queues


def test_a_worker_serves_the_queues_it_names_and_no_others(app, texts):
    app.start(double, id="mail", queue="mail")
    app.start(double, id="other", queue="other")
    with working(app, double, queues=["mail"]):
        until(ended(app, "mail"))
        waiting = app.get("other").waiting
        assert waiting.kind == "no_worker"
        texts.check(waiting.why)
    assert app.get("other").status == "pending"


def test_a_worker_of_no_queue_in_particular_serves_those_declared_and_the_default_one(url):
    with holdfast.open(url, queues=[Queue("mail")]) as app:
        app.start(double, id="mail", queue="mail")
        app.start(double, id="default")
        with working(app, double):
            until(ended(app, "mail", "default"))


def test_a_full_queue_refuses_more_until_somebody_takes_some(url, texts):
    with holdfast.open(url, queues=[Queue("mail", max_ready=2)]) as app:
        app.start(double, id="a", queue="mail")
        app.start(double, id="b", queue="mail")
        with texts.raises(QueueFull) as full:
            app.start(double, id="c", queue="mail")
        assert full.value.details == {"queue": "mail", "most": 2} and len(app.list()) == 2
        app.start(double, id="elsewhere")
        with working(app, double):
            until(ended(app, "a", "b"))
        app.start(double, id="c", queue="mail")


def test_limits_of_a_queue_hold_for_each_key_and_across_workers(url):
    now, most, guard = {}, {}, threading.Lock()

    @agent
    def one(task, key: str):
        with guard:
            now[key] = now.get(key, 0) + 1
            most[key] = max(most.get(key, 0), now[key])
            most["all"] = max(most.get("all", 0), sum(now.values()))
        time.sleep(0.03)
        with guard:
            now[key] -= 1

    with holdfast.open(url, queues=[Queue("api", concurrency=3, per_key=1)]) as app:
        ids = [f"{key}{n}" for n in range(4) for key in "xyzw"]
        for id in ids:
            app.start(one, {"key": id[0]}, id=id, queue="api", key=id[0])
        with working(app, one), working(app, one, name="second"):
            until(ended(app, *ids))
    assert most == {"x": 1, "y": 1, "z": 1, "w": 1, "all": most["all"]} and most["all"] <= 3


def test_a_rate_lets_no_more_begin_than_it_says(url):
    with holdfast.open(url, queues=[Queue("api", rate="2/h")]) as app:
        ids = [f"t{n}" for n in range(4)]
        for id in ids:
            app.start(double, id=id, queue="api")
        app.start(double, id="free")
        with working(app, double) as worker:
            until(ended(app, "t0", "t1", "free"))
            app.start(double, id="later")  # heard of, and looked for, as the others are not
            until(ended(app, "later"))
            until(lambda: worker.counts["completed"] == 4)
        assert [app.get(id).status for id in ids] == ["completed", "completed", "pending", "pending"]


@pytest.mark.parametrize(
    "given",
    [
        {"name": "@block"},
        {"name": ""},
        {"concurrency": 0},
        {"per_key": 1.5},
        {"max_ready": -1},
        {"rate": "fast"},
        {"rate": "0/m"},
    ],
)
def test_a_queue_that_lets_nothing_happen_is_refused(given, texts):
    with texts.raises(InvalidValue):
        Queue(**{"name": "q", **given})


@pytest.mark.parametrize("queues", [["mail"], [Queue("a")] * 2])
def test_queues_are_declared_once_and_as_queues(queues, texts):
    with texts.raises(InvalidValue):
        holdfast.open("memory:", queues=queues)


# What nobody takes


def test_a_task_begun_by_another_version_waits_and_says_for_which(app, texts):
    @agent(name="writer", version="1")
    def first(task):
        return "by the first"

    @agent(name="writer", version="2")
    def second(task):
        return "by the second"

    @agent(name="writer", version="3", accepts=["1"])
    def third(task):
        return "by the third"

    app.start(first, id="old")
    app.start(second, id="new")
    with working(app, second):
        until(ended(app, "new"))
        waiting = app.get("old").waiting
        assert waiting.kind == "no_worker"
        texts.check(waiting.why)
    with working(app, third):
        until(ended(app, "old"))
    assert app.get("old").result == "by the third" and app.get("new").result == "by the second"


def test_a_pending_task_says_who_is_missing(app, texts):
    texts.check(app.start(double, id="d").waiting.why)
    with working(app, treble):
        until(app.workers)
        texts.check(app.get("d").waiting.why)
    with working(app, double):
        until(ended(app, "d"))
    assert app.get("d").waiting is None


def died(app, id, times):
    """As if so many holders had died over it."""
    for n in range(times):
        app.append(id, ev.TaskClaimed(holder=f"nobody-{n}", lease_seconds=30.0, taken="dead"))


def test_a_task_that_kills_its_holders_is_set_aside_visibly_and_can_be_resumed(app, texts):
    app.start(double, {"x": 4}, id="killer")
    died(app, "killer", 3)
    with working(app, double, max_deaths=3) as worker:
        until(lambda: worker.counts["quarantined"] == 1)
        app.start(double, id="well")
        until(ended(app, "well"))
    state = app.get("killer")
    assert (state.status, state.waiting.kind) == ("waiting", "quarantined")
    texts.check(state.waiting.why)
    with working(app, double):
        app.start(double, id="again")
        until(ended(app, "again"))
    assert app.get("killer").waiting.kind == "quarantined", "nobody but a person lets it go on"
    assert app.resume("killer", double).result == 8


def test_an_agent_that_no_longer_takes_what_a_task_was_given_has_it_set_aside(app, texts):
    @agent(name="mailer")
    def before(task, to: str):
        return to

    @agent(name="mailer")
    def after(task, to: str, subject: str):
        return subject

    app.start(before, {"to": "ana"}, id="old")
    with working(app, after) as worker:
        until(lambda: worker.counts["quarantined"] == 1)
        app.start(after, {"to": "ana", "subject": "hi"}, id="new")
        until(ended(app, "new"))
    waiting = app.get("old").waiting
    assert waiting.kind == "quarantined"
    texts.check(waiting.why)
    assert app.resume("old", before).result == "ana"


# Stopping


def test_a_worker_stops_after_the_step_under_way_and_leaves_nothing_held(app):
    started, did = threading.Event(), []

    def step(n):
        started.set()
        time.sleep(0.05)
        did.append(n)
        return n

    @agent
    def long(task):
        return sum(task.step(step, n) for n in range(30))

    app.start(long, id="long")
    with working(app, long) as worker:
        assert started.wait(LONG)
        worker.stop()
        worker.stop()
    state = app.get("long")
    assert state.status == "pending" and state.holder is None and worker.counts["released"] == 1
    done = len(did)
    assert 1 <= done < 30 and [step.status for step in state.steps.values()] == ["completed"] * done
    with working(app, long):
        until(ended(app, "long"))
    assert did == list(range(30)), "no step was done twice"


def test_a_worker_can_be_stopped_before_it_has_begun(app):
    worker = app.worker([double])
    worker.stop()
    worker.run()
    assert worker.counts["claimed"] == 0


EMBEDDED = """
import asyncio, os, signal, sys
import holdfast
from holdfast import agent

url, with_signals = sys.argv[1], sys.argv[2] == "signals"
app = holdfast.open(url)
seen = []

@agent
async def long(task):
    for n in range(600):
        await task.step(pause, n)

async def pause(n):
    await asyncio.sleep(0.05)

async def main():
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    worker = app.worker([long])
    working = asyncio.create_task(worker.arun(signals=True) if with_signals else worker.arun())
    while not app.get("long").steps:
        await asyncio.sleep(0.01)
    print("ours" if [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == before else "its own")
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.2)
    print("seen" if seen else "not seen", "stopping" if worker.stopping else "working")
    if not with_signals:
        working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    print("ours" if [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == before else "its own")

app.start(long, id="long")
asyncio.run(main())
state = app.get("long")
print(state.status, state.holder, len(state.steps) > 0)
"""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("alone", ["ours", "seen working", "ours", "pending None True"]),
        ("signals", ["its own", "not seen stopping", "ours", "pending None True"]),
    ],
)
def test_a_worker_inside_another_program_leaves_signal_handlers_alone_unless_asked(url, given, told):
    ran = subprocess.run(
        [sys.executable, "-c", EMBEDDED, url, given], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout.splitlines() == told, ran.stderr


@pytest.mark.parametrize("wrong", ["yes", None, 1])
def test_signals_is_true_or_false(app, wrong, texts):
    with texts.raises(InvalidValue):
        asyncio.run(app.worker([double]).arun(signals=wrong))


def test_signals_are_handled_in_the_main_thread_only(app, texts):
    refused = []

    def run():
        try:
            asyncio.run(app.worker([double]).arun(signals=True))
        except InvalidValue as error:
            refused.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(LONG)
    texts.check(str(refused[0]))


def test_living_workers_are_known_by_what_they_serve(app):
    assert app.workers() == []
    with working(app, double, queues=["mail"], concurrency=7, name="alice"):
        [one] = until(app.workers)
        assert (one.serving.name, one.serving.queues, one.serving.concurrency) == ("alice", ("mail",), 7)
        assert one.serving.agents == {"double": ("",)} and one.holder == app.store.holder()
    assert app.workers() == []


def test_a_worker_that_nothing_could_come_of_is_refused(app, texts):
    for wrong in (
        lambda: app.worker([]),
        lambda: app.worker(),
        lambda: app.worker(double),
        lambda: app.worker(["double"]),
        lambda: app.worker([double], concurrency=0),
        lambda: app.worker([double], max_deaths=0),
        lambda: app.worker([double], queues="mail"),
        lambda: app.worker([double], queues=[]),
        lambda: app.worker([double], namespaces=[]),
        lambda: app.worker([double], namespaces="acme"),
    ):
        with texts.raises(InvalidValue):
            wrong()
    assert app.list() == []


def test_a_worker_of_declared_queues_refuses_a_name_it_does_not_know(url, texts):
    with holdfast.open(url, queues=[Queue("mail")]) as app:
        with texts.raises(InvalidValue) as wrong:
            app.worker([double], queues=["mial"])
        assert "did you mean 'mail'" in wrong.value.hint


# Tenants


def test_one_worker_works_for_some_tenants_or_for_all_of_them(url, tmp_path, texts):
    if url == "memory:":
        pytest.skip("a store in memory is seen by one app alone")
    with holdfast.open(url) as whole:
        for name in ("acme", "bolt", "core"):
            with holdfast.open(url, namespace=name) as tenant:
                tenant.start(double, {"x": len(name)}, id="t")
        at = {name: holdfast.open(url, namespace=name) for name in ("acme", "bolt", "core")}
        with working(whole, double, namespaces=["acme", "bolt"]):
            until(lambda: ended(at["acme"], "t")() and ended(at["bolt"], "t")())
            assert at["core"].get("t").waiting.kind == "no_worker"
        with working(whole, double, namespaces="*"):
            until(ended(at["core"], "t"))
        for one in at.values():
            with texts.raises(InvalidValue):
                one.worker([double], namespaces="*")
            one.close()


# Health


LABELS = r'\{[a-z_]+="(?:[^"\\]|\\["\\n])*"(?:,[a-z_]+="(?:[^"\\]|\\["\\n])*")*\}'
SAMPLE = re.compile(rf"([a-z_][a-z0-9_]*)({LABELS})? (-?\d+(?:\.\d+)?)")


def parsed(text):
    """A strict reader of Prometheus' text: every sample has a type and a help before it, and none comes twice."""
    assert text.endswith("\n") and "\n\n" not in text
    helps, types, found = {}, {}, {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, told = line.split(" ", 3)
            assert name not in helps and told
            helps[name] = told
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name in helps and name not in types and kind in ("counter", "gauge")
            assert (kind == "counter") == name.endswith("_total")
            types[name] = kind
        else:
            name, labels, value = SAMPLE.fullmatch(line).groups()
            assert name in types and (name, labels) not in found
            found[name, labels] = float(value)
    return found


def asked(health, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{health.port}{path}", timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def test_health_and_counters_can_be_asked_for(app):
    worker = app.worker([double])
    with contextlib.closing(Health(worker, StoreGauges(app.logs))) as health:
        app.start(double, id="a", queue='odd"queue')
        app.start(double, id="b", after="1h")
        status, kind, text = asked(health, "/metrics")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        found = parsed(text)
        assert {name for name, _ in found} >= {f"holdfast_{name}_total" for name in COUNTED}
        assert found["holdfast_queue_depth", '{namespace="",queue="odd\\"queue",state="ready"}'] == 1
        assert found["holdfast_queue_depth", '{namespace="",queue="default",state="timed"}'] == 1
        assert found["holdfast_store_up", None] == 1 and found["holdfast_busy", None] == 0
        status, kind, text = asked(health, "/healthz")
        told = codec.load(text.encode(), dict)
        assert (status, kind, told["status"], told["busy"]) == (200, "application/json", "ok", 0)
        assert {one["queue"]: one["ready"] for one in told["queues"]} == {"default": 0, 'odd"queue': 1}
        assert asked(health, "/")[0] == asked(health, "/metricsx")[0] == 404
        assert asked(health, "/readyz")[::2] == (503, '{"status":"starting"}'), "it has taken nothing yet"
        worker.stop()
        assert codec.load(asked(health, "/healthz")[2].encode(), dict)["status"] == "stopping"
        assert health._server.server_address[0] == "127.0.0.1"
    with pytest.raises(OSError):
        asked(health, "/healthz")


def test_a_worker_outlives_its_server_and_says_so_once(caplog):
    pytest.importorskip("psycopg")
    place = binaries()
    if place is None:
        pytest.skip("there is no PostgreSQL")
    server = Server(place)
    try:
        with holdfast.open(server.url() + "?wait_seconds=1") as app:
            app.start(double, id="before")
            with working(app, double) as worker, contextlib.closing(Health(worker, StoreGauges(app.logs))) as health:
                until(ended(app, "before"))
                server.kill()
                until(lambda: worker.trouble)
                began = time.monotonic()
                status, _, text = asked(health, "/healthz")
                assert status == 503 and '"no store"' in text and time.monotonic() - began < LONG
                assert asked(health, "/readyz")[::2] == (503, '{"status":"no store"}')
                assert asked(health, "/livez")[0] == 200, "a restart brings no store back"
                found = parsed(asked(health, "/metrics")[2])
                assert found["holdfast_store_up", None] == 0 and found["holdfast_store_errors_total", None] >= 1
                errors = "holdfast_store_errors_total", None
                until(lambda: parsed(asked(health, "/metrics")[2])[errors] > found[errors])
                server.start()
                until(lambda: not worker.trouble)
                assert asked(health, "/healthz")[0] == asked(health, "/readyz")[0] == 200
                app.start(double, id="after")
                until(ended(app, "after"))
    finally:
        server.stop()
    said = [one.getMessage() for one in caplog.records if one.name == "holdfast"]
    assert len([one for one in said if "it keeps trying" in one]) == 1, said
    assert len([one for one in said if "the store is back" in one]) == 1, said


@pytest.mark.parametrize("namespaces", [None, "*"])
def test_workers_of_one_process_leave_each_others_tasks_alone(url, namespaces, monkeypatch):
    monkeypatch.setattr(claiming, "SWEEP_SECONDS", 0.02)

    @agent
    def slow(task):
        return sum(task.step(lambda: time.sleep(0.04) or 1, name="nap") for _ in range(15))

    with holdfast.open(url) as app:
        app.start(slow, id="t")
        with working(app, slow, namespaces=namespaces), working(app, slow, namespaces=namespaces, name="second"):
            until(ended(app, "t"))
        assert len([one for one in app.events("t") if isinstance(one.event, ev.TaskClaimed)]) == 1
    if url == "memory:":
        return
    with holdfast.open(url, namespace="acme") as acme, holdfast.open(url) as app:
        acme.start(slow, id="t")
        with working(app, slow, namespaces="*"), working(app, slow, namespaces="*", name="second"):
            until(ended(acme, "t"))
        assert len([one for one in acme.events("t") if isinstance(one.event, ev.TaskClaimed)]) == 1

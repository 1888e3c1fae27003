"""Dispatch: which tasks are due, told again until they are taken, and working on one because a message said so."""

import asyncio
import re
import threading
import time
import tomllib
from pathlib import Path

import pytest

import holdfast
from holdfast import (
    InvalidValue,
    Queue,
    TaskNotFound,
    agent,
    dispatch,
)
from tests.waiting import PATIENCE_SECONDS, until

STORES = ("memory", "sqlite", "postgres")


@agent
def double(task, n: int = 1) -> int:
    return task.step(lambda: 2 * n, name="double")


@agent
async def later(task, n: int = 1) -> int:
    return await task.step(lambda: 3 * n, name="triple")


@agent
def sign(task) -> str:
    return task.ask("who?", name="who")


@agent
def nap(task, seconds: float = 0.5) -> str:
    task.sleep(seconds)
    return "awake"


@agent
def broken(task) -> None:
    raise ValueError("no")


AGENTS = [double, later, sign, nap, broken]


@pytest.fixture
def app(url):
    with holdfast.open(url, agents=AGENTS) as opened:
        yield opened


# What is due


def test_new_tasks_are_due_by_priority_until_they_are_taken(app):
    app.start(double, id="a")
    app.start(double, id="b", priority=5)
    app.start(double, id="later", after="1h")
    assert app.due() == {"b": 1, "a": 1} and list(app.due()) == ["b", "a"]
    assert app.head("a") == 1, "nothing was taken"
    assert app.work("b").status == "completed"
    assert [*app.due()] == ["a"]
    assert [*app.due(limit=1)] == ["a"] and app.due([sign]) == {} and app.due(queues=["mail"]) == {}


def test_a_task_that_waits_is_due_when_its_answer_or_its_time_comes(app):
    app.start(sign, id="asks")
    app.start(nap, {"seconds": 0.3}, id="naps")
    assert app.work("asks").status == "waiting" and app.work("naps", hold=0).status == "waiting"
    assert app.due() == {}
    app.answer("asks", "who", "me")
    assert [*app.due()] == ["asks"]
    until(lambda: "naps" in app.due(), seconds=10)
    assert app.work("asks").result == "me" and app.work("naps").result == "awake"
    assert app.due() == {}


def test_ids_are_given_again_until_their_tasks_are_taken(app):
    app.start(double, id="a")
    given, began = [], time.monotonic()
    for id in dispatch.due(app, again=0.3, seconds=3):
        given.append(id)
        if len(given) == 3:
            took = time.monotonic() - began
            app.work(id)
    assert given == ["a"] * 3 and took >= 0.6


def test_a_task_that_becomes_due_again_is_given_at_once(app):
    app.start(sign, id="asks")
    found = dispatch.due(app, again="1h", seconds=PATIENCE_SECONDS)
    assert next(found) == "asks"
    app.work("asks")
    app.answer("asks", "who", "me")
    assert next(found) == "asks", "it is not given again for an hour, unless it has become due again"


def test_only_so_many_are_given_and_not_taken(app):
    for number in range(5):
        app.start(double, id=f"t{number}")
    assert [*dispatch.due(app, again="1h", limit=2, seconds=0.5)] == ["t0", "t1"]
    given = []
    for id in dispatch.due(app, again="1h", limit=2, seconds=20):
        given.append(id)
        app.work(id)
        if len(given) == 5:
            break
    assert given == [f"t{number}" for number in range(5)]


def test_the_limits_of_queues_count(url):
    with holdfast.open(url, agents=AGENTS, queues=[Queue("slow", concurrency=2)]) as app:
        for number in range(5):
            app.start(double, id=f"t{number}", queue="slow")
        assert [*app.due()] == ["t0", "t1"]


def test_tenants_share_what_may_be_given_and_their_ids_say_whose_they_are(url, tmp_path):
    if url == "memory:":
        pytest.skip("a store in memory has one app")
    with holdfast.open(url, agents=AGENTS) as whole:
        for name, many in (("acme", 5), ("beta", 1)):
            with holdfast.open(url, namespace=name) as tenant:
                for number in range(many):
                    tenant.start(double, {"n": number}, id=f"t{number}")
        assert {*whole.due(namespaces="*", limit=4)} == {"acme!t0", "acme!t1", "acme!t2", "beta!t0"}
        assert {*whole.due(namespaces=["beta"])} == {"beta!t0"} and whole.due() == {}
        done = whole.work("acme!t4")
        assert (done.id, done.status, done.result) == ("t4", "completed", 8)
        for id in dispatch.due(whole, namespaces="*", seconds=1):
            whole.work(id)
        assert whole.due(namespaces="*") == {}
        with holdfast.open(url, namespace="beta", agents=AGENTS) as beta:
            assert beta.get("t0").status == "completed" and beta.work("beta!t0").status == "completed"
            with pytest.raises(InvalidValue, match="another namespace"):
                beta.work("acme!t0")


# Working on one


def test_a_message_that_comes_twice_or_late_changes_nothing(app):
    for made, status in ((double, "completed"), (sign, "waiting"), (broken, "failed")):
        app.start(made, id=made.name)
        assert app.work(made.name).status == status
        before = app.head(made.name)
        assert app.work(made.name).status == status
        assert app.head(made.name) == before, "a failed task is not reopened"
    app.start(double, id="future", after="1h")
    assert app.work("future").status == "pending"
    app.start(double, id="stopped")
    app.cancel("stopped")
    assert app.work("stopped").status == "cancelled"
    with pytest.raises(TaskNotFound):
        app.work("never")


async def both(app):
    app.start(double, {"n": 4}, id="d")
    app.start(later, {"n": 4}, id="l")
    return (await app.awork("d")).result, (await app.aio.work("l")).result


def test_agents_of_both_kinds_are_worked_on_from_both_sides(app):
    assert asyncio.run(both(app)) == (8, 12)
    app.start(later, {"n": 5}, id="l2")
    assert app.work("l2").result == 15


@pytest.mark.parametrize("kind", ["def", "async"])
def test_a_task_whose_work_is_cancelled_is_released_after_its_step(app, kind):
    began, go_on, did = threading.Event(), threading.Event(), []

    def step(n):
        did.append(n)
        began.set()
        return go_on.wait(10)

    @agent
    def plain(task) -> None:
        for n in range(3):
            task.step(step, n)

    @agent
    async def awaited(task) -> None:
        for n in range(3):
            await task.step(step, n)

    async def cancelled():
        work = asyncio.create_task(app.awork("t"))
        await asyncio.to_thread(began.wait, 10)
        work.cancel()
        threading.Timer(0.2, go_on.set).start()
        with pytest.raises(asyncio.CancelledError):
            await work

    app.start(plain if kind == "def" else awaited, id="t")
    asyncio.run(cancelled())
    until(lambda: app.get("t").status == "pending")
    assert did == [0] and [*app.due()] == ["t"]
    until(lambda: app.work("t").status == "completed", why="its thread does not end")
    assert did[-2:] == [1, 2]


def test_one_of_many_who_are_told_works_on_it(app):
    made = []

    @agent
    def slow(task) -> int:
        return task.step(lambda: made.append(1) or time.sleep(0.3) or 7, name="slow")

    app.start(slow, id="s")
    app.due([slow])  # now the app knows the agent
    found = []
    threads = [threading.Thread(target=lambda: found.append(app.work("s").status)) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert made == [1] and found.count("completed") == 1 and {*found} <= {"completed", "running", "pending"}


def test_a_task_whose_agent_is_unknown_or_of_another_version_is_left_to_others(app):
    app.start("elsewhere", id="e")
    with pytest.raises(InvalidValue, match="not known here"):
        app.work("e")
    newer = agent(version="2")(double.fn)
    app.start(newer, id="n")
    assert app.due([double]) == {} and app.due([newer]) == {"n": 1} and app.due([double]) == {}
    assert app.work("n").status == "pending"


def test_bad_input_is_refused(app, texts):
    for odd in (0, "many"):
        with texts.raises(InvalidValue):
            app.due(limit=odd)
    with texts.raises(InvalidValue):
        next(dispatch.due(app, again=0))
    with pytest.raises(TypeError, match="agian"):
        dispatch.Pump(app, print, agian="2s")
    for made in (dispatch.due, lambda app, **which: dispatch.Pump(app, print, **which)):
        with pytest.raises(InvalidValue, match="limit=0 lets nothing happen"):
            made(app, limit=0)

    async def send(ids):
        raise AssertionError("nobody awaits it")

    for odd in (None, send):
        with pytest.raises(InvalidValue, match="can't be called to send something"):
            dispatch.Pump(app, odd)
    app.start(double, id="a")
    with texts.raises(InvalidValue):
        app.work("a", max_deaths=0)
    with texts.raises(InvalidValue):
        app.due([])


def test_a_store_that_is_closed_ends_the_tale(app):
    found = dispatch.due(app)
    app.start(double, id="a")
    assert next(found) == "a"
    app.close()
    assert [*found] == []


# Pumps


def test_a_pump_sends_again_what_could_not_be_sent_and_no_more_than_there_is_room_for(app, caplog):
    sent, down = [], threading.Event()
    down.set()

    def send(ids):
        if down.is_set():
            raise ConnectionError("the broker is away")
        sent.append(list(ids))

    for number in range(5):
        app.start(double, id=f"t{number}")
    pump = dispatch.Pump(app, send, room=lambda: 3 - sum(map(len, sent)), again="1h")
    thread = threading.Thread(target=pump.run)
    thread.start()
    until(lambda: pump.trouble, seconds=10)
    assert pump.trouble == "ConnectionError: the broker is away"
    down.clear()
    until(lambda: sent)
    time.sleep(0.5)
    pump.stop()
    thread.join(10)
    assert sent == [["t0", "t1", "t2"]] and pump.sent == 3 and pump.trouble == ""
    assert [line.message for line in caplog.records if "pump" in line.message] == [
        "pump: ConnectionError: the broker is away; it keeps trying",
        "pump: messages can be sent again",
    ]


@pytest.mark.parametrize(("extra", "package"), [("ray", "ray"), ("celery", "celery"), ("temporal", "temporalio")])
def test_the_lowest_versions_that_the_extras_allow_are_those_that_are_tested_and_told(extra, package):
    root = Path(__file__).parents[1]
    (needed,) = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"][extra]
    lowest = re.fullmatch(rf"{package}>=([0-9.]+),<\d+", needed)[1]
    tested = (root / "tests" / "places" / "places-lowest.txt").read_text()
    assert re.search(rf"^{package}(\[\w+\])?=={re.escape(lowest)}(\.0)?$", tested, re.M)
    told = (root / "docs" / "how-to" / "dispatchers.md").read_text("utf-8")
    assert re.search(rf"{package}[^,.]* from (version )?{re.escape(lowest)}\b", told, re.I)

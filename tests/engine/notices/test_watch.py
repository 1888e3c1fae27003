"""Who is told when the inbox fills, whichever process it comes from: on_wait, follow_inbox, holdfast inbox --follow."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import pytest

import holdfast
from holdfast import Budget, InvalidValue, Usage, agent, events as ev
from holdfast.core import limits
from tests.postgres_proxy import Proxy
from tests.waiting import until

STORES = ("memory", "sqlite", "postgres")
SHARED = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
LONG = 20


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(limits, "NOTICE_SECONDS", 0.05)


@agent
def asker(task, count: int = 1):
    return [task.ask(f"question {number}?", name=f"q{number}") for number in range(count)]


@agent
async def asks_at_once(task, count: int):
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(task.ask(f"question {number}?", name=f"q{number}"))


OTHER = """
import sys
import holdfast
from holdfast import Budget, Usage, agent, tool

url, *ids = sys.argv[1:]

@tool(effect="once", risk="money")
def pay(cents: int) -> str:
    return "receipt"

@agent
def question(task):
    return task.ask("which seat?", name="seat")

@agent(required_for_risk_levels=["money"])
def approval(task):
    return task.call(pay, cents=7)

@agent(budget=Budget(tokens=10, on_exceed="ask"))
def budget(task):
    return task.step(lambda: 1, name="model", estimate=Usage(100))

@agent
def signal(task):
    return task.wait("go")

with holdfast.open(url) as app:
    for id in ids:
        app.run({"q": question, "a": approval, "b": budget, "s": signal}[id[0]], id=id)
"""


def elsewhere(url, *ids):
    """Run tasks in another process, until they wait."""
    subprocess.run([sys.executable, "-c", OTHER, url, *ids], check=True, timeout=60)


# on_wait


@SHARED
def test_a_program_is_told_of_tasks_that_other_processes_work_on(url):
    told = []
    with holdfast.open(url, on_wait=lambda state: told.append((state.id, state.waiting.kind))):
        elsewhere(url, "s1", "q1", "a1", "b1")
        until(lambda: len(told) == 3)
        elsewhere(url, "q2")
        until(lambda: len(told) == 4)
    assert sorted(told) == [("a1", "person"), ("b1", "budget"), ("q1", "person"), ("q2", "person")]


def test_a_program_is_told_once_of_a_task_that_it_works_on_itself(url):
    told = []
    with holdfast.open(url, on_wait=lambda state: told.append(state.id)) as app:
        app.run(asker, id="t")
        assert told == ["t"], "before run returns"
        assert marked(app, told) == ["t"]


def marked(app, told):
    """Let something new come into the inbox, and be told: all that came before has been looked at then."""
    app.start(asker, id="mark")
    app.append("mark", ev.TaskClaimed(holder=app.store.holder()))
    app.append("mark", ev.TaskSuspended(why="quarantined", note="a mark"))
    until(lambda: "mark" in told)
    return [one for one in told if one != "mark"]


@pytest.mark.parametrize("kind", ["def", "async"])
def test_a_worker_beside_it_tells_each_wait_once(url, kind):
    told = []
    chosen = asker if kind == "def" else asks_at_once
    with holdfast.open(url, on_wait=lambda state: told.append(state.id)) as app:
        for number in range(10):
            app.start(chosen, {"count": 2}, id=f"t{number}")
        worker = app.worker([chosen])
        thread = threading.Thread(target=worker.run)
        thread.start()
        until(lambda: len(told) == 10)
        found = marked(app, told)
        worker.stop()
        thread.join(LONG)
    assert sorted(found) == [f"t{number}" for number in range(10)]


def test_each_new_question_of_a_task_is_told_and_no_old_one_again(url):
    told = []
    if url == "memory:":
        pytest.skip("two apps have two stores in memory")
    with (
        holdfast.open(url, on_wait=lambda state: told.append([one["key"] for one in state.waiting.on])),
        holdfast.open(url) as other,
    ):
        other.run(asker, {"count": 2}, id="one-by-one")
        until(lambda: len(told) == 1)
        other.answer("one-by-one", "q0", "yes")
        other.run(asker, {"count": 2}, id="one-by-one")
        until(lambda: len(told) == 2)
        other.run(asks_at_once, {"count": 2}, id="at-once")
        until(lambda: len(told) == 3)
        other.answer("at-once", "q0", "yes")
        other.run(asks_at_once, {"count": 2}, id="at-once")
        other.run(asker, id="last")
        until(lambda: len(told) == 4)
    assert told == [["q0#1"], ["q1#1"], ["~1/q0#1", "~2/q1#1"], ["q0#1"]], "what is left is not told again"


def test_what_was_in_the_inbox_before_is_not_told(url):
    if url == "memory:":
        pytest.skip("a store in memory is empty when it is opened")
    told = []
    with holdfast.open(url) as first:
        first.run(asks_at_once, {"count": 2}, id="old")
        with holdfast.open(url, on_wait=lambda state: told.append(state.id)) as app:
            assert [one.task for one in app.inbox()] == ["old", "old"], "it is here for whoever wants to begin with it"
            first.answer("old", "q0", "yes")
            first.run(asks_at_once, {"count": 2}, id="old")
            first.run(asker, id="new")
            assert marked(app, told) == ["new"]


def test_a_quarantined_task_and_one_that_lost_events_are_told(url):
    told = []
    with holdfast.open(url, on_wait=lambda state: told.append((state.id, state.waiting.kind))) as app:
        for id in ("aside", "lost"):
            app.start(asker, id=id)
        app.append("aside", ev.TaskClaimed(holder=app.store.holder()))
        app.append("aside", ev.TaskSuspended(why="quarantined", note="5 workers in a row died"))
        app.append("lost", ev.TaskDiverged(known_seq=9, known_digest="00", head_seq=1))
        until(lambda: len(told) == 2)
    assert sorted(told) == [("aside", "quarantined"), ("lost", "diverged")]


def test_a_program_that_fails_while_it_is_told_is_told_of_the_next(url, caplog):
    told = []

    def on_wait(state):
        told.append(state.id)
        raise ValueError("nobody is at the desk")

    with holdfast.open(url, on_wait=on_wait) as app:
        for id in ("one", "two"):
            app.start(asker, id=id)
            app.append(id, ev.TaskClaimed(holder=app.store.holder()))
            app.append(id, ev.TaskSuspended(why="quarantined", note="odd"))
            until(lambda id=id: id in told)
    assert told == ["one", "two"] and caplog.text.count("nobody is at the desk") == 2


def test_what_belongs_to_another_tenant_is_not_told(url):
    if url == "memory:":
        pytest.skip("two apps have two stores in memory")
    told = []
    with holdfast.open(url, namespace="acme", on_wait=lambda state: told.append(state.id)):
        for tenant, id in (("zeta", "theirs"), ("", "nobodys"), ("acme", "ours")):
            with holdfast.open(url, namespace=tenant) as other:
                other.run(asker, id=id)
        until(lambda: told)
    assert told == ["ours"]


def test_nothing_watches_unless_it_is_asked_to_nor_after_it_is_closed(url):
    def watching():
        return [one for one in threading.enumerate() if one.name == "holdfast-notices"]

    with holdfast.open(url) as app:
        app.run(asker, id="t")
        assert not watching()
    with holdfast.open(url, on_wait=lambda state: None):
        assert len(watching()) == 1
    assert not watching()


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_store_that_is_away_for_a_while_is_watched_again(url, caplog):
    told, parts = [], urlsplit(url)
    proxy = Proxy(parts.port or 5432)
    through = parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{proxy.port}")).geturl()
    try:
        with holdfast.open(f"{through}?wait_seconds=0.5", on_wait=lambda state: told.append(state.id)):
            proxy.drop(refuse=True)
            until(lambda: "can't be watched" in caplog.text)
            elsewhere(url, "q1")
            proxy.drop(refuse=False)
            until(lambda: told)
    finally:
        proxy.close()
    assert told == ["q1"]


class Desk:
    async def __call__(self, state):
        pass


@pytest.mark.parametrize("on_wait", [Desk().__call__, Desk()], ids=["function", "object"])
def test_an_async_function_is_not_called_when_a_task_waits(url, on_wait):
    with pytest.raises(InvalidValue, match="is async, and nothing would await it"):
        holdfast.open(url, on_wait=on_wait)


@pytest.mark.parametrize("wrong", [{"on_wait": "call me"}, {"webhook": "https://example.com"}], ids=str)
def test_what_can_not_be_told_is_refused_before_anything_is_opened(tmp_path, wrong, texts):
    path = tmp_path / "store.db"
    with texts.raises(InvalidValue):
        holdfast.open(path, **wrong)
    assert not path.exists()


# Following the inbox


def test_following_gives_what_is_there_and_then_what_comes(url):
    found = []
    with holdfast.open(url) as app:
        app.run(asker, id="old")

        def follow():
            for item in app.follow_inbox(seconds=LONG):
                found.append((item.task, item.kind, item.key))
                if item.task == "last":
                    return

        thread = threading.Thread(target=follow)
        thread.start()
        until(lambda: found)
        app.run(asker, {"count": 2}, id="new")
        until(lambda: len(found) == 2)
        app.answer("new", "q0", 1)
        app.run(asker, {"count": 2}, id="new")
        until(lambda: len(found) == 3)
        app.run(asker, id="last")
        thread.join(LONG)
    assert [one[::2] for one in found] == [("old", "q0#1"), ("new", "q0#1"), ("new", "q1#1"), ("last", "q0#1")]


def test_following_ends_in_time_and_can_be_awaited(url):
    with holdfast.open(url) as app:
        app.run(asker, id="t")
        begun = time.monotonic()
        assert [one.task for one in app.follow_inbox(seconds="200ms")] == ["t"]

        async def follow():
            return [one.task async for one in app.follow_inbox(seconds=0.2)]

        assert asyncio.run(follow()) == ["t"]
        assert 0.4 <= time.monotonic() - begun < LONG


def test_a_task_that_leaves_the_inbox_and_comes_back_is_new(url):
    with holdfast.open(url) as app:
        follow = iter(app.follow_inbox(seconds=LONG))
        for _ in range(3):
            app.run(budgeted, id="t")
            item = next(follow)
            assert (item.task, item.kind) == ("t", "budget")
            app.raise_budget("t", Budget(tokens=int(item.of) + 1))
            until(lambda: app.run(budgeted, id="t").waiting.kind == "budget")


@agent(budget=Budget(tokens=10, on_exceed="ask"))
def budgeted(task):
    return task.step(lambda: 1, name="model", estimate=Usage(1_000))


def test_tasks_that_no_worker_takes_are_followed_when_they_have_waited_a_while(url, monkeypatch):
    monkeypatch.setattr(limits, "UNSERVED_SECONDS", 0.5)
    with holdfast.open(url) as app:
        begun = time.monotonic()
        app.start(asker, id="t", queue="mail")
        item = next(iter(app.follow_inbox(seconds=LONG)))
        assert (item.kind, item.task) == ("no_worker", "t") and time.monotonic() - begun >= 0.5


@pytest.mark.parametrize("wrong", ["soon", -1, []])
def test_how_long_to_follow_is_a_length_of_time(app, wrong):
    with pytest.raises(InvalidValue):
        app.follow_inbox(seconds=wrong)


# At the command line


def follower(url, *options):
    command = [sys.executable, "-u", "-m", "holdfast", "inbox", "--follow", "--store", url, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@SHARED
def test_inbox_follow_prints_entries_from_any_process_as_they_come(url):
    elsewhere(url, "q1")
    process = follower(url, "--json", "--for", "30s")
    try:
        first = json.loads(process.stdout.readline())
        assert (first["task"], first["kind"], first["asks"]) == ("q1", "question", "question: seat: which seat?")
        elsewhere(url, "s1", "a1", "b1")
        later = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert sorted((one["task"], one["kind"]) for one in later) == [("a1", "approval"), ("b1", "budget")]
        assert all(one["commands"] for one in later)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LONG)


@SHARED
def test_inbox_follow_prints_for_people_and_by_kind(url):
    holdfast.open(url).close()
    process = follower(url, "--approvals", "--for", "30s")
    try:
        elsewhere(url, "q1", "a1")
        head, asked, approve, reject = (process.stdout.readline() for _ in range(4))
        assert head.startswith("a1  approval requested") and asked.strip() == "pay(cents=7)"
        assert approve.startswith("  holdfast approve a1 pay#1 --bound ") and "reject" in reject
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LONG)


def test_options_of_following_without_it_are_refused(tmp_path, texts):
    place = str(tmp_path / "store.db")
    holdfast.open(place).close()
    for line in (["--for", "1s"], ["--webhook", "https://hooks.example.com"], ["--follow", "--for", "soon"]):
        run = [sys.executable, "-m", "holdfast", "inbox", "--store", place, *line]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        texts.check(done.stderr)
    for url, secret in (
        ("https://hooks.example.com", ""),
        ("http://hooks.example.com", "s" * 16),
        ("https://e.com", "short"),
    ):
        run = [sys.executable, "-m", "holdfast", "inbox", "--store", place, "--follow", "--webhook", url]
        given = {**os.environ, "HOLDFAST_WEBHOOK_SECRET": secret}
        done = subprocess.run(run, capture_output=True, text=True, check=False, env=given)
        assert done.returncode == 2
        texts.check(done.stderr)

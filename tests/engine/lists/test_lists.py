"""Lists, counts and calls in doubt, as a program asks for them."""

import asyncio
import signal
import subprocess
import sys
from datetime import datetime, timedelta

import apsw
import pytest
from hypothesis import given

import holdfast
from holdfast import Task, agent, events as ev, tool
from holdfast.core import limits
from holdfast.engine.reading.inbox import inbox_items
from tests.engine.reading.test_reading import write
from tests.legal import histories

STORES = ("memory", "sqlite", "postgres")


@agent
def asks(task: Task, n: int = 0) -> str:
    return task.ask("who?", name="who")


@agent
def adds(task: Task, n: int) -> dict:
    if n < 0:
        raise ValueError("too small")
    return {"sum": n + 1}


@agent
def sleeps(task: Task) -> None:
    task.sleep(3600)


@tool(effect="once")
def pay(cents: int) -> str:
    raise ConnectionError("the line broke")


@agent
def shop(task: Task) -> str:
    return task.call(pay, cents=7)


def ids(rows):
    return [row.id for row in rows]


# Lists


def test_a_list_is_narrowed_by_every_filter(app):
    app.run(asks, id="order-1", thread="talk", user="ana")
    app.start("a", id="order-2", queue="mail")
    app.start("a", id="visit-3")
    app.append("visit-3", ev.TaskClaimed(holder="nobody-alive"))
    app.run(shop, id="shop")
    assert ids(app.list(thread="talk")) == ids(app.list(waiting="person")) == ["order-1"]
    assert ids(app.list(queue="mail")) == ["order-2"]
    assert ids(app.list(prefix="order-")) == ["order-2", "order-1"] and len(app.list(prefix="")) == 4
    assert ids(app.list(interrupted=True)) == ["visit-3"]
    assert ids(app.list(interrupted=False, limit=2)) == ["shop", "order-2"]
    assert ids(app.list(in_doubt=True)) == ids(app.list(waiting="doubt")) == ["shop"]
    assert ids(app.list(order="oldest", limit=2)) == ["order-1", "order-2"]
    assert app.list(interrupted=True, status="waiting") == []


def test_a_list_goes_by_what_changed_last_and_since_when(app, clock):
    app.start("a", id="first")
    clock.advance(100)
    app.start("a", id="second")
    clock.advance(100)
    app.append("first", ev.StageSet(stage="late"))
    assert ids(app.list(order="changed")) == ["first", "second"]
    assert ids(app.list(changed_since=50)) == ids(app.list(changed_since="50s")) == ["first"]
    assert ids(app.list(changed_since=timedelta(seconds=150))) == ["second", "first"]
    assert ids(app.list(changed_since=app.row("first").changed_at)) == ["first"]
    assert app.list(changed_since=app.row("first").changed_at + timedelta(seconds=1)) == []


def test_rows_carry_what_is_asked_for(app):
    app.run(adds, {"n": 1}, id="good")
    app.run(adds, {"n": -1}, id="bad")
    bad, good = app.list(include=("input", "result", "failure"))
    assert (good.input, good.result, good.failure) == ({"n": 1}, {"sum": 2}, None)
    assert (bad.input, bad.result, bad.failure.message) == ({"n": -1}, None, "too small")
    assert (good.id, good.status, good.agent) == ("good", "completed", "adds")
    (only,) = app.list(prefix="good", include=("result",))
    assert (only.input, only.result) == (None, {"sum": 2})


def test_a_list_without_a_limit_gives_everything_and_holds_little(app, monkeypatch):
    monkeypatch.setattr(limits, "LIST_CHUNK", 3)
    every = [app.start("a", id=f"t{number}").id for number in range(10)]
    for order, expected in (("newest", every[::-1]), ("oldest", every), ("changed", every[::-1])):
        assert ids(app.list(limit=None, order=order)) == expected
    rows = iter(app.list(limit=None))
    assert next(rows).id == "t9"
    app.start("a", id="late")
    assert ids(rows) == every[-2::-1], "what comes later does not disturb it"

    async def awaited():
        return [row.id async for row in await app.aio.list(limit=None, after="t3")]

    assert asyncio.run(awaited()) == ["t2", "t1", "t0"]


@pytest.mark.parametrize(
    "odd",
    [
        {"order": "random"},
        {"waiting": "godot"},
        {"waiting": "no_worker"},
        {"include": ("everything",)},
        {"include": "input"},
        {"changed_since": datetime(2026, 1, 1)},
        {"changed_since": "yesterday"},
        {"changed_since": -1},
        {"prefix": "a\0"},
        {"thread": "a\0"},
        {"in_doubt": "yes"},
        {"limit": 0},
        {"limit": limits.MAX_PAGE_SIZE + 1},
    ],
)
def test_an_odd_filter_is_refused_and_says_what_would_do(app, odd, texts):
    with texts.raises(holdfast.InvalidValue):
        app.list(**odd)


# Calls in doubt


def test_a_call_in_doubt_is_named_until_it_is_settled(app):
    assert app.run(shop, id="t").status == "waiting"
    assert app.row("t").doubts == ("pay#1",) and app.counts().in_doubt == 1
    app.settle("t", "pay#1", happened=True, result="receipt", by="ana")
    assert app.row("t").doubts == () and app.counts().in_doubt == 0 and app.list(in_doubt=True) == []


@given(histories(stored=False))
def test_a_row_names_the_calls_that_are_in_doubt_after_any_history(events):
    with holdfast.open("memory:") as app:
        write(app, "t", events)
        state = app.logs.load("t").state
        doubts = tuple(step.key for step in state.steps.values() if step.status == "doubt")
        assert app.row("t").doubts == state.summary.doubts == doubts
        assert app.row("t") == state.summary


DOWNGRADE = """
drop trigger tasks_are_counted; drop trigger tasks_are_counted_again; drop trigger tasks_are_counted_no_more;
drop index events_acts; drop index tasks_by_thread; drop index tasks_by_parent; drop index tasks_by_queue;
drop index tasks_by_wait; drop index tasks_in_doubt; drop index tasks_due; drop index tasks_by_changed;
drop index tasks_by_change; drop table task_feed; drop table task_counts;
alter table tasks drop column doubts; alter table tasks drop column change;
delete from migrations where version = 7; pragma user_version = 6
"""
DOWNGRADE_SERVER = """
drop trigger tasks_are_counted on tasks; drop trigger tasks_are_counted_again on tasks;
drop trigger changes_are_numbered on tasks; drop function count_task; drop function number_change;
drop index events_acts; drop table task_counts; drop index tasks_by_queue; drop index tasks_due;
drop index tasks_by_thread; drop index tasks_by_parent; drop index tasks_by_wait; drop index tasks_by_changed;
alter table tasks drop column doubts; alter table tasks drop column change; delete from migrations where version = 7
"""


def downgraded(url):
    """Make a store what it was before this version."""
    if url.startswith("postgres"):
        import psycopg

        with psycopg.connect(url, autocommit=True) as link:
            link.execute("set search_path = holdfast")
            link.execute(DOWNGRADE_SERVER)
    else:
        link = apsw.Connection(url.removeprefix("sqlite:///"))
        link.execute(DOWNGRADE)
        link.close()


def test_old_rows_are_right_after_the_migration(url):
    if url.startswith("memory"):
        pytest.skip("nothing in memory is old")
    call = {"name": "pay", "tool": "pay", "effect": "once", "idempotency_key": "k"}
    started, doubted = ev.StepStarted(key="pay#1", **call), ev.StepDoubted(key="pay#1")
    logs = {
        "plain": [],
        "doubted": [started, doubted],
        "two": [started, doubted, ev.StepStarted(key="~2/pay#1", **call), ev.StepDoubted(key="~2/pay#1")],
        "settled": [started, doubted, ev.StepSettled(key="pay#1", happened=True)],
        "repeated": [started, doubted, ev.StepSettled(key="pay#1", happened=False, by="policy"), started],
        "later": [ev.TurnStarted(turn=1), started, doubted, ev.TurnStarted(turn=2)],
        "later-settled": [
            *(ev.TurnStarted(turn=1), started, doubted, ev.TurnStarted(turn=2)),
            ev.StepSettled(key="1/pay#1", happened=True),
        ],
        "reopened": [
            started,
            ev.StepFailed(key="pay#1", failure=ev.Failure("E", "x"), **call),
            ev.TaskFailed(failure=ev.Failure("E", "x"), step="pay#1"),
            ev.TaskReopened(void="pay#1"),
        ],
    }
    with holdfast.open(url) as app:
        for id, events in logs.items():
            app.start("a", id=id)
            app.append(id, ev.TaskClaimed(holder="h"))
            for event in events:
                app.append(id, event)
        app.run(adds, {"n": 1}, id="done")
        rows = {row.id: row for row in app.list()}
        counts = app.counts()
        acts = list(app.audit())
    assert rows["later"].doubts == ("1/pay#1",) and rows["reopened"].doubts == ("pay#1",)
    downgraded(url)
    with holdfast.open(url) as app:
        assert {row.id: row for row in app.list()} == rows
        assert app.counts() == counts and list(app.audit()) == acts
        assert app.verify().ok
        assert app.watch(after="0.0").cursor == "0.0"


# Counts


def test_counts_are_those_of_the_rows_and_of_one_namespace(app):
    app.run(asks, id="one")
    app.start("a", id="two")
    app.run(adds, {"n": 1}, id="three")
    found = app.counts()
    assert (found.by_status, found.tasks) == ({"completed": 1, "pending": 1, "waiting": 1}, 3)
    app.gc(keep=0)
    assert app.counts().by_status == {"pending": 1, "waiting": 1} == app.stats().by_status


def test_a_count_that_is_wrong_is_named_by_verify(tmp_path, texts):
    path = str(tmp_path / "store.db")
    with holdfast.open(path) as app:
        app.start("a", id="t")
    knife = apsw.Connection(path)
    knife.execute("update task_counts set tasks = 5")
    knife.close()
    with holdfast.open(path) as app:
        (problem,) = app.verify().problems
        assert problem.why == "the kept count of pending tasks is 5, and there are 1"


KILLED = """
import os, sys, holdfast
from holdfast import agent
from holdfast.failpoints import armed

@agent
def adds(task, n):
    return n

def die(name):
    if name == sys.argv[2]:
        os.kill(os.getpid(), 9)

app = holdfast.open(sys.argv[1])
for number in range(3):
    app.run(adds, {"n": number}, id=f"{sys.argv[3]}-{number}")
with armed(die):
    app.run(adds, {"n": 9}, id=f"{sys.argv[3]}-last")
"""


@pytest.mark.parametrize("point", ["append.before", "commit.before", "commit.after", "append.after"])
def test_counts_are_exact_after_a_kill(url, point):
    if url.startswith("memory"):
        pytest.skip("nothing in memory outlives a kill")
    for name in ("a", "b"):
        killed = subprocess.run([sys.executable, "-c", KILLED, url, point, name], capture_output=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    with holdfast.open(url) as app:
        by_status = {}
        for row in app.list(limit=None):
            by_status[row.status] = by_status.get(row.status, 0) + 1
        assert app.counts().by_status == dict(sorted(by_status.items())) and by_status["completed"] >= 6
        assert app.store.check() == []


# The inbox


def test_tasks_that_only_sleep_are_not_read_for_the_inbox(app, monkeypatch):
    for number in range(5):
        app.run(sleeps, id=f"s{number}", hold=0)
    app.run(asks, id="asked")
    loaded = []
    load = app.logs.load
    monkeypatch.setattr(app.logs, "load", lambda name, **given: (loaded.append(name), load(name, **given))[1])
    assert [item.task for item in inbox_items(app.logs)] == ["asked"] and loaded == ["asked"]


def test_a_sleeper_whose_time_has_come_and_whom_no_worker_takes_is_in_the_inbox(app, clock):
    app.run(sleeps, id="s", hold=0)
    assert list(app.inbox()) == []
    clock.advance(4000)
    assert [(item.task, item.kind) for item in app.inbox()] == [("s", "no_worker")]

"""The inbox: whatever a task waits for, it is there with its reason, and the command it names helps."""

import asyncio
import contextlib
import shlex
import threading

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import Budget, Usage, agent, events as ev, tool
from holdfast.cli.main import cli
from holdfast.engine.reading.inbox import InboxItem
from tests.engine.both import Crash
from tests.waiting import until

STORES = ("memory", "sqlite", "postgres")
LONG = 20


def model(prompt):
    return {"content": prompt, "usage": {"prompt_tokens": 90, "completion_tokens": 10}}


def typed(app, command):
    """Do what a command of the inbox does, word by word."""
    verb, id, *words = shlex.split(command)[1:]
    assert "--by" not in words, "where no name is known, the command takes the login name"
    by = "ana"
    if verb == "budget":
        name, _, most = words[0].partition("=")
        return app.raise_budget(id, Budget(**{name: float(most) if name == "cost" else int(most)}), by=by)
    if verb == "settle":
        return app.settle(id, words[0], happened="--happened" in words, result="receipt-1", by=by)
    if verb == "approve":
        return app.approve(id, words[0], bound=words[words.index("--bound") + 1], by=by)
    assert verb == "answer"
    return app.answer(id, words[0], "aisle", by=by)


def only(app, id="t"):
    """The one entry of a task, which is the same however it is asked for."""
    (item,) = app.inbox(id)
    assert [one for one in app.inbox() if one.task == id] == [item]
    return item


# Budgets


def test_a_budget_that_an_estimate_is_over_is_in_the_inbox_and_its_command_helps(app, either):
    @either(budget=Budget(tokens=1_000, on_exceed="ask"))
    def writer(task):
        first = yield task.step(model, "a", name="first")
        second = yield task.step(model, "b", name="second", estimate=Usage(5_000, 200))
        return first["content"] + second["content"]

    waiting = app.run(writer, id="t")
    assert (waiting.status, waiting.waiting.kind) == ("waiting", "budget")
    item = only(app)
    assert (item.kind, item.key, item.used, item.of, item.ahead) == ("budget", "tokens", 100, 1_000, 5_200)
    assert item.owner == "" and item.command == "holdfast budget t tokens=8000"
    typed(app, item.command)
    assert app.run(writer, id="t").result == "ab"
    assert list(app.inbox()) == []


@pytest.mark.parametrize(
    ("limit", "most", "spent"), [("tokens", 100, 100), ("steps", 1, 1), ("calls", 1, 1), ("cost", 0.25, 0.5)]
)
def test_a_limit_that_is_reached_is_in_the_inbox_and_its_command_helps(app, either, limit, most, spent):
    @tool(effect="read")
    def ask(prompt: str) -> dict:
        holdfast.report_usage(input_tokens=90, output_tokens=10, cost=0.5)
        return {"content": prompt}

    @either(budget=Budget(**{limit: most}, on_exceed="ask"))
    def writer(task):
        first = yield task.call(ask, prompt="a")
        second = yield task.call(ask, prompt="b")
        return first["content"] + second["content"]

    app.run(writer, id="t")
    item = only(app)
    assert (item.kind, item.key, item.used, item.of) == ("budget", limit, spent, most)
    typed(app, item.command)
    assert app.run(writer, id="t").result == "ab"


@pytest.mark.parametrize("ahead", [None, Usage(900)], ids=["reached", "estimated"])
def test_the_budget_of_a_task_that_pays_is_named_and_raised_there(app, either, ahead):
    @either()
    def child(task):
        first = yield task.step(model, "a", name="first")
        second = yield task.step(model, "b", name="second", estimate=ahead)
        return first["content"] + second["content"]

    @either(budget=Budget(tokens=100 if ahead is None else 500, on_exceed="ask"))
    def parent(task):
        return (yield task.spawn(child))

    assert app.run(parent, id="t").waiting.kind == "child"
    (item,) = app.inbox()
    assert (item.task, item.owner, item.kind, item.key, item.used) == ("t/child#1", "t", "budget", "tokens", 100)
    assert item.command.startswith("holdfast budget t tokens=")
    typed(app, item.command)
    assert app.run(parent, id="t").result == "ab"


def test_a_task_whose_branches_wait_for_different_things_names_all_of_them(app):
    @agent(budget=Budget(tokens=100, on_exceed="ask"))
    async def both(task):
        async with asyncio.TaskGroup() as group:
            group.create_task(task.ask("which seat?", name="seat"))
            group.create_task(task.step(model, "b", name="model", estimate=Usage(500)))
        return "done"

    app.run(both, id="t")
    assert sorted(one.kind for one in app.inbox("t")) == ["budget", "question"]
    for item in list(app.inbox("t")):
        typed(app, item.command)
    assert app.run(both, id="t").result == "done"


def test_a_child_with_other_waits_hears_that_a_budget_was_raised(app):
    @agent
    async def child(task):
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(task.wait("paid", timeout="1h"))
            told = group.create_task(task.step(model, "b", name="model", estimate=Usage(500)))
        return [asked.result(), told.result()["content"]]

    @agent(budget=Budget(tokens=100, on_exceed="ask"))
    async def parent(task):
        return await task.spawn(child)

    app.run(parent, id="t")
    (item,) = app.inbox()
    typed(app, item.command)
    assert app.get("t/child#1").status == "pending", "it can do what it waited for"
    app.signal("t/child#1", "paid", 7)
    assert app.run(parent, id="t").result == [7, "b"]


def test_a_task_that_an_older_version_suspended_for_a_budget_is_in_the_inbox(app):
    for id, most, says in (("reached", 100, 100), ("estimated", 1_000, None)):
        app.start("writer", id=id, budget=Budget(tokens=most, on_exceed="ask"))
        app.append(id, ev.TaskClaimed(holder="old"))
        app.append(id, ev.StepCompleted(key="m#1", name="m", result=holdfast.core.codec.pack(1), usage=Usage(100)))
        app.append(id, ev.TaskSuspended(why="budget"))
        item = only(app, id)
        assert (item.kind, item.used) == ("budget", says)
        assert item.command.startswith(f"holdfast budget {id}")


# Calls in doubt


def paying(owner_crashes=True):
    sent = []

    @tool(effect="once", unique="order-{order}", on_doubt="ask")
    def pay(order: int) -> str:
        sent.append(order)
        if owner_crashes and len(sent) == 1:
            raise Crash
        return f"receipt-{len(sent)}"

    return pay, sent


def test_a_task_blocked_by_another_tasks_call_in_doubt_says_which_and_its_command_helps(url, either):
    pay, sent = paying()

    @either()
    def shop(task, order: int):
        return (yield task.call(pay, order=order))

    with holdfast.open(url) as app:
        with contextlib.suppress(Crash):
            app.run(shop, {"order": 17}, id="first")
        assert app.run(shop, {"order": 17}, id="first").waiting.kind == "doubt"
        blocked = app.run(shop, {"order": 17}, id="second")
        assert (blocked.status, blocked.waiting.kind) == ("waiting", "doubt")
        item = only(app, "second")
        assert (item.kind, item.owner, item.key) == ("blocked", "first", "pay#1") and "'first'" in item.prompt
        assert item.command == "holdfast settle first 'pay#1' --happened --result VALUE"
        assert only(app, "first").kind == "doubt"
        typed(app, item.command)
        assert not list(app.inbox("second")), "its command would be refused"
        assert app.run(shop, {"order": 17}, id="first").result == "receipt-1"
        assert app.run(shop, {"order": 17}, id="second").result == "receipt-1" and sent == [17]
        assert list(app.inbox()) == []


def test_a_call_that_must_be_asked_about_before_it_is_undone_is_in_the_inbox(app, either):
    undone = []

    @tool(effect="once", on_doubt="fail", compensate=lambda_free(undone))
    def reserve() -> str:
        raise ConnectionError("no answer")

    @either()
    def trip(task):
        yield task.call(reserve)

    waiting = app.run(trip, id="t")
    assert (waiting.status, waiting.waiting.kind) == ("waiting", "doubt")
    item = only(app)
    assert (item.kind, item.tool) == ("doubt", "reserve") and item.command.startswith("holdfast settle t ")
    typed(app, item.command)
    assert app.run(trip, id="t").status == "failed" and undone == ["receipt-1"]


def lambda_free(undone):
    def release(call):
        undone.append(call.result)

    return release


# Tasks that no worker takes


@contextlib.contextmanager
def working(app, *agents, **given):
    worker = app.worker(list(agents), **given)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(LONG)


@agent
def noop(task):
    return None


@agent
def other(task):
    return None


def test_a_task_that_no_worker_takes_is_in_the_inbox_with_the_reason(url):
    with holdfast.open(url) as app:
        app.start(noop, id="t", queue="mail")
        item = only(app)
        assert (item.kind, item.command) == ("no_worker", "holdfast worker FILE --queue mail")
        assert "no worker is running" in item.prompt
        with working(app, other, queues=["mail"]):
            until(app.workers)
            assert "knows agent 'noop'" in only(app).prompt
        with working(app, noop):
            until(app.workers)
            assert "serves queue 'mail'" in only(app).prompt
        with working(app, noop, queues=["mail"], concurrency=1):
            until(lambda: app.get("t").status == "completed")
        assert list(app.inbox()) == []


def test_tasks_that_wait_for_a_place_at_a_living_worker_are_not_in_the_inbox(url):
    release = threading.Event()

    @agent
    def slow(task):
        return task.step(lambda: release.wait(LONG), name="slow")

    with holdfast.open(url) as app, working(app, slow, concurrency=1):
        until(app.workers)
        for number in range(5):
            app.start(slow, id=f"t{number}")
        until(lambda: any(row.status == "running" for row in app.list()))
        assert any(row.status == "pending" for row in app.list()) and list(app.inbox()) == []
        release.set()
        until(lambda: all(row.status == "completed" for row in app.list()))


def test_a_task_whose_time_has_come_needs_a_worker(app, clock, either):
    @either()
    def sleeper(task):
        yield task.sleep("1h")
        return "rested"

    app.run(sleeper, id="t", hold=0)
    assert list(app.inbox()) == [], "it sleeps"
    clock.advance(3_601)
    assert only(app).kind == "no_worker"
    assert app.run(sleeper, id="t").result == "rested" and list(app.inbox()) == []


def test_tasks_that_need_nobody_are_not_in_the_inbox(app, either):
    @either()
    def waits(task, what: str):
        yield task.sleep("1h") if what == "timer" else task.wait("paid")

    @either()
    def parent(task):
        yield task.spawn(waits, {"what": "signal"})

    app.run(waits, {"what": "timer"}, id="a", hold=0)
    app.run(waits, {"what": "signal"}, id="b")
    app.run(parent, id="c")
    app.start(noop, id="d", after="1h")
    assert {row.status for row in app.list()} == {"waiting", "pending"} and list(app.inbox()) == []


def test_a_block_that_was_left_is_no_workers_business(app):
    with contextlib.suppress(holdfast.Suspended), app.task("triage", id="t") as task:
        task.wait("go")
    app.signal("t", "go")
    assert app.get("t").status == "pending" and list(app.inbox()) == []


# Quarantined and diverged


def test_a_quarantined_task_is_in_the_inbox_and_its_command_resumes_it(app):
    app.start(noop, id="t")
    app.append("t", ev.TaskClaimed(holder=app.store.holder()))
    app.append("t", ev.TaskSuspended(why="quarantined", note="5 workers in a row died"))
    item = only(app)
    assert (item.kind, item.prompt, item.command) == (
        "quarantined",
        "5 workers in a row died",
        "holdfast resume t FILE",
    )
    assert app.resume("t", noop).status == "completed"


def test_a_diverged_task_is_in_the_inbox_and_its_command_resumes_it(app):
    app.start(noop, id="t")
    app.append("t", ev.TaskDiverged(known_seq=9, known_digest="00", head_seq=1))
    item = only(app)
    assert (item.kind, item.command) == ("diverged", "holdfast resume t FILE --anyway")
    assert app.resume("t", noop, anyway=True).status == "completed"


# At the command line


def test_the_command_line_lists_every_kind_with_the_command_that_helps(tmp_path, texts, monkeypatch):
    monkeypatch.setenv("HOLDFAST_BY", "ana")
    monkeypatch.chdir(tmp_path)
    pay, _ = paying()

    @agent
    def shop(task, order: int):
        return task.call(pay, order=order)

    @agent(budget=Budget(tokens=1_000, on_exceed="ask"))
    def writer(task):
        task.step(model, "b", name="second", estimate=Usage(5_000, 200))

    @agent
    def asker(task):
        task.ask("which seat?", name="seat")

    with holdfast.open("holdfast.db") as app:
        app.start(noop, id="unserved", queue="mail")
        with contextlib.suppress(Crash):
            app.run(shop, {"order": 17}, id="doubt")
        app.run(shop, {"order": 17}, id="doubt")
        app.run(shop, {"order": 17}, id="blocked")
        app.run(writer, id="budget")
        app.run(asker, id="asked")
        app.start(noop, id="aside")
        app.append("aside", ev.TaskClaimed(holder=app.store.holder()))
        app.append("aside", ev.TaskSuspended(why="quarantined", note="5 workers in a row died"))
        kinds = [(one.task, one.kind) for one in app.inbox()]
    listed = CliRunner().invoke(cli, ["inbox"])
    assert listed.exit_code == 0, listed.output
    texts.check(listed.stdout)
    told = CliRunner().invoke(cli, ["inbox", "--jsonl"]).stdout
    rows = [holdfast.core.codec.parse(line) for line in told.splitlines()]
    assert [(one["task"], one["kind"]) for one in rows] == kinds
    assert all(one["commands"] and one["asks"] for one in rows)
    for option, wanted in (
        ("--no-worker", {"unserved"}),
        ("--doubts", {"doubt", "blocked"}),
        ("--budgets", {"budget"}),
    ):
        found = CliRunner().invoke(cli, ["inbox", option, "--jsonl"]).stdout
        assert {holdfast.core.codec.parse(line)["task"] for line in found.splitlines()} == wanted


def test_words_in_commands_are_quoted():
    item = InboxItem(task="a b", agent="x", kind="question", key="seat#1; rm", name="seat")
    assert shlex.split(item.command)[:4] == ["holdfast", "answer", "a b", "seat#1; rm"]


@pytest.mark.parametrize("asks", ["question", "approval", "budget"])
def test_what_comes_too_late_for_a_deadline_is_not_in_the_inbox(app, clock, either, asks):
    @tool(effect="once", risk="money")
    def pay() -> None: ...

    @either(required_for_risk_levels=["money"], budget=Budget(steps=1, on_exceed="ask"), deadline="1m")
    def worker(task):
        if asks == "question":
            yield task.ask("who?")
        elif asks == "approval":
            yield task.call(pay)
        yield task.step(len, "a")
        yield task.step(len, "b")

    app.run(worker, id="t")
    assert only(app).kind == asks
    clock.advance(120)
    assert [one.kind for one in app.inbox("t")] == ["no_worker"], "a worker would end it"
    assert app.run(worker, id="t").failure.type == "TimeLimit" and not list(app.inbox())

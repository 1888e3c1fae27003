"""What faces tell of a log: every kind of event in words, who is waited for, who did what, what gc would take."""

import re
from pathlib import Path

import pytest

import holdfast
from holdfast import Budget, Task, agent, events as ev, tool
from holdfast.core import codec
from holdfast.core.events import BY_KIND
from holdfast.core.events.kinds import KIND
from holdfast.core.names import is_record_log
from holdfast.engine.maintenance import retention
from holdfast.engine.reading import audit, inbox
from holdfast.engine.reading.describe import as_json, describe
from holdfast.store.migrations import migrations
from holdfast.store.protocol import ACT_KINDS

HISTORIES = sorted((Path(__file__).parents[2] / "histories").glob("*.jsonl"))


def records(path):
    """Every event of a history, of people's logs too. Records are no events."""
    from holdfast.engine.reading import timeline

    with holdfast.open("memory:") as app:
        app.import_(path)
        for name in (log for log in app.store.logs() if not is_record_log(log)):
            for record in timeline.records(app.logs, name):
                yield app, record


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_every_event_of_every_history_can_be_told(path):
    for app, record in records(path):
        line = describe(record, app.logs.blob)
        assert line.verb and isinstance(line.about, str) and line.took_us >= 0
        shown = codec.parse(codec.text(as_json(record, app.logs.blob)))
        assert shown["kind"] == record.kind and shown["seq"] == record.seq and shown["at"].endswith("Z")


def test_every_kind_there_is_was_told():
    seen = {record.kind for path in HISTORIES for _, record in records(path)}
    assert set(BY_KIND) <= seen


@tool(effect="once", risk="money")
def pay(cents: int) -> str:
    return "receipt"


@agent(required_for_risk_levels=["money"])
def shop(task: Task, cents: int) -> str:
    task.decide("which shop?", "the near one", why="it rains")
    return task.call(pay, cents=cents)


@agent
def asker(task: Task) -> str:
    return task.ask("Which seat?", name="seat", timeout="1h")


@agent(budget=Budget(steps=1, on_exceed="ask"))
def thrifty(task: Task) -> int:
    return sum(task.step(int, number, name="n") for number in (1, 2))


def test_everybody_who_is_waited_for_is_in_the_inbox_once(app):
    app.run(shop, {"cents": 7}, id="s")
    app.run(asker, id="a")
    app.run(thrifty, id="t")
    found = {one.task: one for one in inbox.inbox_items(app.logs)}
    assert {id: one.kind for id, one in found.items()} == {"s": "approval", "a": "question", "t": "budget"}
    assert found["s"].arguments == {"cents": 7} and found["s"].tool == "pay" and found["s"].risk == "money"
    assert found["a"].until_us - found["a"].since_us == pytest.approx(3_600_000_000, abs=1_000_000)
    assert (found["t"].used, found["t"].of) == (1, 1)
    app.answer("a", "seat", "aisle")
    assert [one.kind for one in inbox.items_of(app.logs, "a")] == ["no_worker"], "it waits for a worker now"
    assert app.run(asker, id="a").result == "aisle" and inbox.items_of(app.logs, "a") == []
    with pytest.raises(holdfast.TaskNotFound):
        inbox.items_of(app.logs, "nobody")


def test_an_audit_tells_a_forks_past_once_and_finds_what_is_asked_for(app):
    app.run(shop, {"cents": 7}, id="s")
    app.approve("s", "pay", by="ana", why="fine")
    app.run(shop, {"cents": 7}, id="s")
    app.fork("s", id="f", by="ben")
    every = list(audit.audit_rows(app.logs, audit.AuditQuery()))
    assert len({(one.task, one.seq) for one in every}) == len(every)
    assert [one.what for one in every if one.task == "f"] == ["forked"]
    assert next(audit.audit_rows(app.logs, audit.AuditQuery(task="f", tool="pay"))).what == "done"
    (consent,) = audit.audit_rows(app.logs, audit.AuditQuery(by="ana"))
    assert (consent.tool, consent.value, consent.about) == ("pay", "fine", "pay#1")
    (choice,) = audit.audit_rows(app.logs, audit.AuditQuery(decision="NEAR"))
    assert choice.about == "which shop?"
    middle = consent.at_us
    before = list(audit.audit_rows(app.logs, audit.AuditQuery(until_us=middle)))
    after = list(audit.audit_rows(app.logs, audit.AuditQuery(since_us=middle + 1)))
    assert len(before) + len(after) == len(every)


def test_an_audit_comes_newest_first_in_pages_and_goes_on_after_a_cursor(app):
    for id in ("s", "t"):
        app.run(shop, {"cents": 7}, id=id)
        app.approve(id, "pay", by="ana", why="fine")
        app.run(shop, {"cents": 7}, id=id)
    every = list(app.audit())
    assert [one.at_us for one in every] == sorted((one.at_us for one in every), reverse=True)
    assert [one.what for one in every if one.task == "t"][:2] == ["done", "announced"]
    assert {one.tool for one in every if one.kind in ("approval_given", "step_completed")} == {"pay"}
    seen = list(app.audit(limit=2))
    while page := list(app.audit(limit=2, after=seen[-1].cursor)):
        seen += page
    assert seen == every
    own = list(app.audit(task="t"))
    assert own == [one for one in every if one.task == "t"]
    assert list(app.audit(task="t", after=own[1].cursor)) == own[2:]


def test_a_call_that_is_settled_in_a_later_turn_is_told_with_its_tool(app):
    app.start("x", id="t")
    call = {"key": "pay#1", "name": "pay", "tool": "pay", "effect": "once", "idempotency_key": "k"}
    app.append("t", ev.TaskClaimed(holder="h"), ev.TurnStarted(turn=1), ev.StepStarted(**call))
    app.append("t", *(ev.LogWritten(text="x") for _ in range(40)))
    app.append("t", ev.StepDoubted(key="pay#1"), ev.TurnStarted(turn=2))
    app.append("t", ev.StepSettled(key="1/pay#1", happened=True, by="ana"))
    assert [(one.kind, one.tool) for one in app.audit()] == [
        ("step_settled", "pay"),
        ("step_doubted", "pay"),
        ("step_started", "pay"),
    ]


@pytest.mark.parametrize(
    "odd", [{"limit": 0}, {"after": "x"}, {"after": ""}, {"after": "1.x.t"}, {"task": "s", "after": "1.2.other"}]
)
def test_an_audit_refuses_what_it_cannot_read(app, odd, texts):
    app.run(shop, {"cents": 7}, id="s")
    with texts.raises(holdfast.InvalidValue):
        list(app.audit(**odd))


def test_every_kind_of_event_that_says_who_is_in_the_index_of_acts():
    """An event with `by` that is not in the index would be missing from the audit, which is of tasks."""
    of_people = {ev.MessageAdded, ev.MessagesRemoved, ev.MetadataSet, ev.ExpirySet}
    signed = {cls for cls in KIND if cls.__annotations__.get("by") == "str"} - of_people
    assert {KIND[cls] for cls in signed} <= ACT_KINDS
    assert {*audit.CALLS} <= ACT_KINDS
    for dialect in ("sqlite", "postgres"):
        index = next(one.sql for one in migrations(dialect) if one.name.endswith("reading"))
        assert {*re.findall(r"when '(\w+)' then", index)} == ACT_KINDS


def test_what_gc_says_it_would_take_is_what_it_takes(app):
    for id in ("a", "b", "c"):
        app.start("x", id=id)
        app.append(id, ev.TaskCompleted(result=holdfast.pack(None)))
    app.fork("a", id="living")
    app.fork("b", id="ended")
    app.cancel("ended")
    for keep in (9, 1, 0):
        would = retention.collectable(app.logs, older_than_us=None, keep=keep)
        before = {row.id for row in app.list()}
        app.gc(keep=keep)
        assert before - {row.id for row in app.list()} == set(would)
    assert retention.collectable(app.logs, older_than_us=None, keep=None) == []

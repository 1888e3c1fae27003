"""The second document: an agent that fails at step 6 of 9, and what its state must know for that to be harmless."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import textwrap
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

import holdfast
from holdfast import DidNotHappen, Happened, NotDone, Retry, StatePatch, StepFailed, TaskBusy, agent, tool
from tests.waiting import until

STORES = ("memory", "sqlite", "postgres")
CLOCK = None  # the real one
SHARED = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
QUICK = Retry(3, first=0.01)
LONG = 30
PLAN = [f"step {number}" for number in range(1, 10)]


STORY = """
import sys, time
import holdfast
from holdfast import Retry, agent, tool

url, world, hangs = sys.argv[1], sys.argv[2], sys.argv[3] == "hang"

def note(what):
    with open(world, "a") as file:
        file.write(what + "\\n")

def invited(call):
    with open(world) as file:
        sent = "invite" in file.read()
    return holdfast.Happened("invitation 1") if sent else holdfast.DidNotHappen()

@tool(effect="read", retry=Retry(3, first=0.01))
def find_slot(day: str) -> str:
    note("slot")
    with open(world) as file:
        if file.read().count("slot") < 3:
            raise ConnectionError("503")
    return f"{day} 10:00"

@tool(effect="once", reconcile=invited, reconcile_after=0)
def send_invite(to: str, slot: str) -> str:
    note("invite")
    if hangs:
        print("sent", flush=True)
        time.sleep(600)
    return "invitation 1"

@agent
def meeting(task, who: str):
    task.plan([f"step {number}" for number in range(1, 10)])
    for number in range(1, 10):
        if number == 4:
            slot = task.call(find_slot, day="monday")
            task.decide("slot", slot, why="the first that is free", options=["monday 10:00", "friday 9:00"])
        elif number == 6:
            sent = task.call(send_invite, to=who, slot=slot)
        else:
            task.step(note, f"model {number}", name="model")
        task.done(f"step {number}")
    return sent

with holdfast.open(url) as app:
    done = app.run(meeting, {"who": "ana"}, id="story", wait="20s")
    print(done.status, done.result, flush=True)
"""


@contextlib.contextmanager
def process(code, *arguments):
    """Another process, which is ended with the test."""
    with subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True) as one:
        try:
            yield one
        finally:
            one.kill()


@SHARED
def test_the_story_a_hang_at_step_6_and_a_kill_send_one_invitation(url, tmp_path):
    """Rows 87, 94, 95, 98, 114: nine steps, a flaky tool, a hang, kill -9, and no work twice."""
    world = tmp_path / "world"
    with process(STORY, url, world, "hang") as first:
        assert first.stdout.readline() == "sent\n"
        with holdfast.open(url) as app:
            at_six = app.get("story")
            assert [one.text for one in at_six.plan if one.done] == PLAN[:5] and at_six.pending == PLAN[5:]
        first.send_signal(signal.SIGKILL)
        first.wait(LONG)
    with process(STORY, url, world, "go") as second:
        assert second.communicate(timeout=LONG)[0] == "completed invitation 1\n"
    seen = world.read_text().splitlines()
    assert seen.count("invite") == 1 and seen.count("slot") == 3
    assert [one for one in seen if one.startswith("model")] == [f"model {n}" for n in (1, 2, 3, 5, 7, 8, 9)]


def test_without_an_answer_a_person_is_asked_and_nothing_is_repeated(app):
    """Row 88."""
    sent = []

    @tool(effect="once", timeout=0.05)
    def send_invite() -> str:
        sent.append(1)
        time.sleep(0.5)
        return "late"

    @agent
    def invites(task):
        return task.call(send_invite)

    waiting = app.run(invites, id="t")
    assert (waiting.status, waiting.waiting.kind) == ("waiting", "doubt")
    until(lambda: sent)  # on a busy machine its time may be over before its thread has begun
    app.settle("t", "send_invite#1", happened=True, result="by phone", by="ana")
    assert app.run(invites, id="t").unwrap() == "by phone" and sent == [1]


def test_the_position_says_which_steps_are_done_and_which_are_not(app):
    """Row 89."""

    @agent
    def works(task):
        task.plan(PLAN)
        for text in PLAN[:5]:
            task.step(lambda: 1, name="work")
            task.done(text)
        task.ask("step 6?", name="six")

    found = app.run(works, id="t")
    assert [one.done for one in found.plan] == [True] * 5 + [False] * 4
    assert found.pending == PLAN[5:] and [*found.steps] == [f"work#{n}" for n in range(1, 6)]


def test_outputs_of_tools_are_kept_word_for_word_with_their_step(app):
    """Row 90."""
    odd = "".join(map(chr, range(1, 0xD7FF, 7))) + "\u2028'\"\\" * 500

    @tool(effect="read")
    def fetch() -> str:
        return odd

    @agent
    def fetches(task):
        task.call(fetch)

    app.run(fetches, id="t")
    assert app.step("t", "fetch#1").result == odd


def test_a_decision_has_its_reason_its_options_its_time_its_place_and_its_step(app):
    """Row 91."""

    @agent(loop=True)
    def decides(task):
        task.step(lambda: 1, name="look")
        task.decide("slot", "monday", why="free", options=["monday", "friday"])
        assert task.current.decisions[-1]["seq"] is None, "it is not written yet, on every replay"
        task.step(lambda: 1, name="after")
        assert task.current.decisions[-1]["seq"] is not None
        return 1 if task.turn == 2 else None

    before = datetime.now(UTC)
    done = app.run(decides, id="t")
    first, second = done.decisions
    assert (first["question"], first["choice"], first["why"]) == ("slot", "monday", "free")
    assert first["options"] == ["monday", "friday"]
    assert (first["step"], second["step"]) == ("1/look#1", "2/look#1")
    assert app.step("t", second["step"]).after < second["seq"]
    assert (
        before - timedelta(seconds=1) < datetime.fromisoformat(first["at"]) < datetime.now(UTC) + timedelta(seconds=1)
    )
    (event, _) = [one for one in app.events("t") if one.kind == "decision_made"]
    assert event.seq == first["seq"] and done.to_dict()["decisions"] == [first, second]


def test_retries_know_when_the_next_one_is_due_and_every_attempt_of_every_life(app):
    """Row 92."""
    tries = []

    @agent
    def works(task):
        task.step(lambda: tries.append(1) or 1 / 0, name="flaky", retry=QUICK)

    app.run(works, id="t")
    again = app.resume("t", works)
    step = again.steps["flaky#1"]
    assert len(tries) == 6 and step.attempts == 3, "three fresh attempts"
    made = step.all_attempts
    assert [one.number for one in made] == [1, 2, 3, 4, 5, 6]
    assert {one.failure.type for one in made} == {"ZeroDivisionError"}
    assert [one.next_at is None for one in made] == [False, False, True] * 2
    assert made[0].at < made[0].next_at <= made[1].at
    assert [one.number for one in app.step("t", "flaky#1").all_attempts] == [1, 2, 3, 4, 5, 6]


def test_a_task_that_waits_for_its_next_attempt_says_when_that_is(app):
    """Row 92."""

    @agent
    def works(task):
        task.step(lambda: 1 / 0, name="flaky", retry=Retry(2, first=60))

    waiting = app.run(works, id="t", hold=0)
    step = waiting.steps["flaky#1"]
    left = step.retry_at - datetime.now(UTC)
    assert timedelta(seconds=30) < left <= timedelta(seconds=61)
    assert json.loads(waiting.to_json())["steps"]["flaky#1"]["retry_at"] is not None
    assert app.get("t").steps["flaky#1"].all_attempts[0].next_at == step.retry_at


def failing():
    @tool(effect="idempotent")
    def fetch(url: str) -> str:
        try:
            {}["session"]
        except KeyError as error:
            raise ConnectionError("503") from error

    @agent
    def fetches(task):
        task.state.n = 3
        return task.call(fetch, url="/orders")

    return fetches


def test_the_context_of_a_failure_is_one_record(app):
    """Row 93."""
    done = app.run(failing(), id="t")
    context = done.failure.context
    assert (context.task, context.step, context.tool) == ("t", "fetch#1", "fetch")
    assert context.input == {"url": "/orders"} and context.output is None
    assert [one.type for one in context.chain] == ["ConnectionError", "KeyError"]
    assert "fetch" in context.exception.traceback[-1] and len(context.attempts) == 1
    assert app.at("t", context.seq).state["n"] == 3 and context.seq == done.failed_at
    assert abs(context.at - datetime.now(UTC)) < timedelta(minutes=1)
    assert json.loads(context.to_json())["exception"]["cause"]["type"] == "KeyError"
    assert context.to_dict()["tool"] == "fetch"


def test_a_failure_names_what_it_came_of(app):
    """Row 93."""
    done = app.run(failing(), id="t")
    assert (done.failure.type, done.failure.cause.type, done.failure.cause.cause.type) == (
        "StepFailed",
        "ConnectionError",
        "KeyError",
    )

    @agent
    def spawns(task):
        task.spawn(failing())

    parent = app.run(spawns, id="p")
    assert "KeyError" in [one.type for one in parent.failure.context.chain]


def test_an_agent_that_fails_by_itself_has_a_context_too(app):
    """Row 93."""

    @agent
    def fails(task):
        task.step(lambda: 1, name="one")
        raise ValueError("not today")

    context = app.run(fails, id="t").failure.context
    assert (context.step, context.tool, context.exception.message) == ("", "", "not today")

    @agent
    def wraps(task):
        try:
            task.step(lambda: 1 / 0, name="divide")
        except StepFailed as error:
            raise RuntimeError("cannot go on") from error

    context = app.run(wraps, id="u").failure.context
    assert context.step == "divide#1" and context.exception.type == "ZeroDivisionError"


@pytest.mark.parametrize("is_async", [False, True])
def test_the_context_of_a_failure_has_what_the_step_had_streamed(app, is_async):
    """Row 93."""

    def speaks():
        yield "three "
        yield "words"
        raise ConnectionError("cut")

    async def speaks_async():
        for one in speaks():
            yield one

    @agent
    def streams(task):
        task.stream(speaks, name="speak")

    @agent
    async def streams_async(task):
        await task.stream(speaks_async, name="speak")

    done = app.run(streams_async if is_async else streams, id="t")
    assert done.failure.context.output == "three words"


def test_a_tool_that_raised_after_its_effect_is_not_called_again_when_the_model_tries(app):
    """Row 96."""
    sent = []

    def find(call):
        return Happened("sent") if sent else DidNotHappen()

    @tool(effect="once", reconcile=find, reconcile_after=0)
    def invite(to: str) -> str:
        sent.append(to)
        raise ConnectionResetError("answer lost")

    replies = [
        {"role": "assistant", "tool_calls": [_call("1", "invite", to="ana")]},
        {"role": "assistant", "content": "done"},
    ]

    @agent(loop=True)
    def asks(task):
        reply = task.step(lambda: replies[task.turn - 1], name="model")
        task.message(reply)
        if reply.get("tool_calls"):
            task.call_tools(reply, [invite])
        return reply.get("content")

    # The model is told that it happened, and has no reason to try again.
    assert app.run(asks, id="t").unwrap() == "done"
    assert sent == ["ana"] and "sent" in str(app.get("t").messages)


def test_a_tool_that_cannot_be_asked_about_is_not_called_again_either(app):
    """Row 96."""
    sent = []

    @tool
    def invite(to: str) -> str:
        sent.append(to)
        raise ConnectionResetError("answer lost")

    @agent
    def tries(task):
        for _ in range(3):
            with pytest.raises(StepFailed) as failed:
                task.call(invite, to="ana")
            assert failed.value.maybe_done
        return "gave up"

    assert app.run(tries, id="t").unwrap() == "gave up" and sent == ["ana"]


def _call(id, name, **arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def test_the_log_is_only_added_to_and_the_state_is_its_fold(app):
    """Rows 97, 98."""

    @agent
    def works(task):
        for number in range(3):
            task.state.n = task.step(lambda number=number: number, name="step")

    app.run(works, id="t")
    events = list(app.events("t"))
    assert [one.seq for one in events] == list(range(1, len(events) + 1)) and app.verify("t").ok
    with pytest.raises(holdfast.Conflict):
        app.append("t", holdfast.events.LogWritten(text="instead"), expect=3)
    assert [app.at("t", one.seq).state.get("n") for one in events][-1] == 2
    assert app.get("t").to_dict() == app.at("t", events[-1].seq).to_dict()


def bookings(world, *, broken):
    """A trip of three bookings, each of which can be undone; the last step fails."""

    def cancel(call):
        if call.arguments["what"] in broken:
            broken.remove(call.arguments["what"])
            raise ConnectionError("the hotel does not answer")
        world.append(f"cancel {call.arguments['what']}")

    @tool(effect="idempotent", compensate=cancel)
    def book(what: str) -> str:
        world.append(f"book {what}")
        return what

    @agent
    def trip(task):
        for what in ("A", "B", "C"):
            task.call(book, what=what)
        raise ValueError("no visa")

    return trip


def test_what_was_done_is_undone_in_reverse_and_tried_again_if_that_fails(app):
    """Row 99."""
    world = []
    done = app.run(bookings(world, broken=["B"]), id="t", hold="30s")
    assert done.status == "failed"
    assert world == ["book A", "book B", "book C", "cancel C", "cancel B", "cancel A"]


@pytest.mark.parametrize("happened", [True, False])
def test_a_call_that_may_have_happened_is_undone_only_if_it_did(app, happened):
    """Row 100."""
    world = []

    def find(call):
        return Happened("seat 1") if happened else DidNotHappen()

    def cancel(call):
        world.append(f"cancel {call.result}")

    @tool(effect="once", reconcile=find, reconcile_after=0, compensate=cancel)
    def book() -> str:
        world.append("book")
        raise ConnectionResetError("answer lost")

    @agent
    def trip(task):
        task.call(book)
        raise ValueError("no visa")

    assert app.run(trip, id="t").status == "failed"
    assert world == (["book", "cancel seat 1"] if happened else ["book"])


def test_a_tool_undoes_with_a_key_and_once(app):
    """Row 101."""
    keys = []

    @tool(effect="once")
    def refund(euros: int, *, idempotency_key: str) -> str:
        keys.append((euros, idempotency_key))
        return "refunded"

    @tool(effect="idempotent")
    def charge(euros: int) -> str:
        return "charged"

    @agent
    def buys(task):
        task.call(charge, euros=5)
        task.compensate(refund, euros=5)
        raise ValueError("out of stock")

    assert app.run(buys, id="t").status == "failed"
    ((euros, key),) = keys
    assert euros == 5 and key.startswith("t:")


def test_the_audit_is_asked_by_tool_person_decision_and_time_in_python(app):
    """Row 102."""

    @tool(effect="read")
    def fetch() -> int:
        return 1

    @agent
    def works(task):
        task.call(fetch)
        task.decide("slot", "monday", why="free")
        task.ask("ok?", name="ok")

    app.run(works, id="t")
    app.answer("t", "ok", "yes", by="ana")
    app.run(works, id="t")
    assert [one.tool for one in app.audit(tool="fetch")] == ["fetch"]
    assert [one.what for one in app.audit(by="ana")] == ["answered"]
    assert [one.about for one in app.audit(decision="slot")] == ["slot"]
    assert len([*app.audit(since="1h")]) == 3 and not [*app.audit(until="1h")]
    assert not [*app.audit(since=datetime.now(UTC) + timedelta(hours=1))]
    with pytest.raises(holdfast.InvalidValue):
        app.audit(since="soon")


def paying(made):
    @tool(effect="once", unique="order-{order}")
    def pay(order: int) -> str:
        made.append(order)
        return f"receipt {order}"

    @agent
    def pays(task, order: int):
        return task.call(pay, order=order)

    return pays


def test_the_audit_says_which_task_answered_for_a_call_that_was_not_made(app):
    """Row 102."""
    made = []
    pays = paying(made)
    app.run(pays, {"order": 17}, id="first")
    assert app.run(pays, {"order": 17}, id="second").unwrap() == "receipt 17" and made == [17]
    (row,) = app.audit(task="second", tool="pay")
    assert row.what == "answered by task first" and row.answered_by == "first"
    (line,) = [one for one in app.describe("second") if one.verb == "answered"]
    assert line.source == "task first, call pay#1"
    assert [one.what for one in app.audit(task="first", tool="pay")] == ["done", "announced"]


def test_logic_and_state_are_apart(url):
    """Row 103: another program with the same store knows everything, without the agent's code."""
    with holdfast.open(url) as app:
        app.run(failing(), id="t")
        with holdfast.open(url) if url != "memory:" else app as other:
            assert other.get("t").state["n"] == 3 and other.get("t").failure.context.tool == "fetch"


def test_every_call_has_a_key_that_is_the_same_on_every_attempt_and_only_there(app):
    """Rows 104, 105."""
    keys = []

    @tool(effect="idempotent", retry=QUICK)
    def send(to: str, *, idempotency_key: str) -> str:
        keys.append(idempotency_key)
        if len(keys) < 3:
            raise ConnectionError("503")
        return to

    @agent(loop=True)
    def sends(task):
        task.call(send, to="ana")
        task.call(send, to="ana" if task.turn == 1 else "bo")
        return 1 if task.turn == 2 else None

    app.run(sends, id="task_abc123")
    first, again, third, second = keys[:4]
    assert first == again == third and len({*keys}) == 4 and second != first
    task, step, name, digest = first.rsplit(":", 3)
    assert (task, name) == ("task_abc123", "send") and step.endswith("send#1") and int(digest, 16)


def test_a_repeated_call_gives_the_first_result(app):
    """Row 106."""
    made = []
    pays = paying(made)
    results = {app.run(pays, {"order": 17}, id=f"t{n}").unwrap() for n in range(3)}
    assert results == {"receipt 17"} and made == [17]


def test_a_lost_answer_is_a_state_of_its_own_also_if_it_was_an_exception(app):
    """Row 107."""
    asked = []

    def find(call):
        asked.append(call.step)
        return Happened("sent")

    @tool(effect="once", reconcile=find, reconcile_after=0)
    def send() -> str:
        raise ConnectionResetError("answer lost")

    @agent
    def sends(task):
        return task.call(send)

    assert app.run(sends, id="t").unwrap() == "sent" and asked == ["send#1"]
    kinds = [one.kind for one in app.events("t")]
    assert "step_doubted" in kinds and "step_settled" in kinds


def test_each_step_knows_the_state_before_and_after_it(app):
    """Rows 108, 109."""

    @agent
    def works(task):
        task.state.n = 1
        task.step(lambda: 1, name="one")
        task.state.n = 2
        task.step(lambda: 1 / 0, name="two")

    app.run(works, id="t")
    one, two = app.step("t", "one#1"), app.step("t", "two#1")
    assert app.at("t", one.before).state.get("n") in (None, 1) and app.at("t", two.after).state["n"] == 2
    assert (one.status, two.status) == ("completed", "failed") and one.started_at <= one.ended_at
    changed = {op["path"] for op in app.diff("t", one.after, two.after)}
    assert "/state/n" in changed and "/steps/two#1" in changed


def test_a_failure_is_replayed_in_isolation(app):
    """Row 110."""
    called = []

    @tool(effect="once")
    def pay() -> str:
        called.append(1)
        raise NotDone("the card was refused")

    @agent
    def pays(task):
        task.call(pay)

    done = app.run(pays, id="t")
    again = app.fork("t", at=done.steps["pay#1"].before, id="f", effects="recorded")
    assert app.resume(again.id, pays).failure.cause.message == done.failure.cause.message and called == [1]


@pytest.mark.parametrize("kind", ["def", "async"])
def test_a_fork_from_a_failure_leaves_the_failed_step_out(app, kind):
    """Row 111."""
    sent = []

    def send(to):
        sent.append(to)
        if "@" not in to:
            raise ValueError(f"{to} is not an address")
        return to

    @agent
    def sends(task):
        task.step(lambda: sent.append("draft"), name="draft")
        return task.step(send, task.state.get("to", "ana"), name="send")

    @agent
    async def sends_async(task):
        await task.step(lambda: sent.append("draft"), name="draft")
        return await task.step(send, task.state.get("to", "ana"), name="send")

    works = sends if kind == "def" else sends_async
    done = app.run(works, id="t")
    for name, at in (("f", done.failed_at), ("g", None)):
        given = {"at": at, "id": name, "patch": StatePatch(set={"to": "ana@example.com"})}
        app.fork("t", **given)
        assert app.fork("t", **given).id == name, "asked for again, it is found"
        assert app.resume(name, works).unwrap() == "ana@example.com"
    assert sent == ["draft", "ana", "ana@example.com", "ana@example.com"]
    assert app.get("t").status == "failed", "the parent is as it was"


def test_a_fork_does_not_repeat_a_call_that_may_have_happened(app):
    """Row 111."""
    sent = []

    @tool
    def send() -> str:
        sent.append(1)
        raise ConnectionResetError("answer lost")

    @agent
    def sends(task):
        task.call(send)

    done = app.run(sends, id="t")
    app.fork("t", at=done.failed_at, id="f", effects="live")
    assert app.resume("f", sends).status == "failed" and sent == [1]


def test_a_fork_from_an_earlier_failure_of_a_resumed_task_leaves_it_out_too(app):
    """Row 111."""
    made = []

    @agent
    def works(task):
        return task.step(lambda: made.append(1) or 1 / (len(made) - 1), name="flaky")

    failed = app.run(works, id="t")
    assert app.resume("t", works).unwrap() == 1.0
    app.fork("t", at=failed.failed_at, id="f")
    assert app.resume("f", works).unwrap() == 0.5


def test_a_caught_failure_stays_in_a_fork(app):
    """Row 111: what the agent went on from is not done again."""
    made = []

    @agent
    def works(task):
        with contextlib.suppress(StepFailed):
            task.step(lambda: made.append(1) or 1 / 0, name="first")
        task.step(lambda: 1 / task.state.get("n", 0), name="second")

    done = app.run(works, id="t")
    app.fork("t", at=done.failed_at, id="f", patch=StatePatch(set={"n": 1}))
    assert app.resume("f", works).status == "completed" and made == [1]


def test_a_task_is_cancelled_midway(app):
    """Row 112."""
    done = []

    @agent
    def works(task):
        for number in range(10):
            task.step(done.append, number, name="step")
            if number == 2:
                app.cancel("t", by="ana")

    assert app.run(works, id="t").status == "cancelled" and 3 <= len(done) <= 4


def test_twenty_users_at_once_stay_apart(app):
    """Row 113."""

    @agent
    def greets(task, name: str):
        task.state.name = task.step(str.upper, name, name="upper")
        return task.state.name

    def one(number):
        app.run(greets, {"name": f"user {number}"}, id=f"t{number}")

    threads = [threading.Thread(target=one, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert [app.get(f"t{n}").result for n in range(20)] == [f"USER {n}" for n in range(20)]


def test_a_second_caller_waits_or_is_told_that_the_task_is_taken(app):
    """Row 113."""
    going, go = threading.Event(), threading.Event()

    @agent
    def works(task):
        task.step(lambda: (going.set(), go.wait(LONG))[1], name="slow")
        return "once"

    thread = threading.Thread(target=lambda: app.run(works, id="t"))
    thread.start()
    going.wait(LONG)
    with pytest.raises(TaskBusy):
        app.run(works, id="t")
    go.set()
    assert app.run(works, id="t", wait="20s").unwrap() == "once"
    thread.join(LONG)


WORKER = textwrap.dedent("""
    import sys, time
    import holdfast
    from holdfast import agent

    @agent
    def slow(task):
        task.step(lambda: 1, name="one")
        if sys.argv[2] == "hang":
            print("in two", flush=True)
            time.sleep(600)
        return task.step(lambda: "done", name="two")

    with holdfast.open(sys.argv[1]) as app:
        app.worker([slow]).run()
""")


@SHARED
def test_another_worker_takes_over_when_one_is_killed_at_3_in_the_morning(url):
    """Row 114."""

    with holdfast.open(url) as app:
        app.start("slow", id="t")
        with process(WORKER, url, "hang") as first:
            assert first.stdout.readline() == "in two\n"
            first.send_signal(signal.SIGKILL)
            first.wait(LONG)
        with process(WORKER, url, "go") as second:
            assert app.wait("t", timeout=LONG).unwrap() == "done"
            second.terminate()
            second.wait(LONG)
        assert len(app.get("t").steps["one#1"].all_attempts) == 1


def test_a_rate_limit_and_retry_after_are_heeded(app):
    """Row 115."""
    moments = []

    class TooMany(Exception):
        status_code, headers = 429, {"retry-after": "0.3"}

    @tool(effect="read", rate="2/s", retry=Retry(2, first=0.01))
    def fetch() -> int:
        moments.append(time.monotonic())
        if len(moments) == 1:
            raise TooMany
        return len(moments)

    @agent
    def fetches(task):
        return [task.call(fetch) for _ in range(3)]

    assert app.run(fetches, id="t").unwrap() == [2, 3, 4]
    first, second, third, fourth = moments
    assert second - first >= 0.3, "as the server asked"
    assert third - first >= 0.9 and fourth - second >= 0.9, "two in any second"


def test_people_are_told_what_failed_and_why(url, tmp_path):
    """Row 116."""
    from click.testing import CliRunner

    from holdfast.cli.main import cli

    if url == "memory:":
        pytest.skip("the command opens a store of its own")

    @agent
    def works(task):
        task.plan(["fetch", "send"])
        task.step(lambda: 1, name="fetch")
        task.done("fetch")
        task.step(lambda: 1 / 0, name="send")

    with holdfast.open(url) as app:
        app.run(works, id="t")
    shown = CliRunner().invoke(cli, ["show", "t", "--store", url]).output
    assert "ZeroDivisionError" in shown and "send#1" in shown and "fetch" in shown


def test_exhausted_retries_begin_afresh_when_the_task_is_resumed(app):
    """Row 117."""
    tries = []

    @agent
    def works(task):
        return task.step(lambda: tries.append(1) or 1 / (len(tries) // 5), name="flaky", retry=QUICK)

    failed = app.run(works, id="t")
    assert failed.status == "failed" and len(tries) == 3
    assert app.resume("t", works).unwrap() == 1.0 and len(tries) == 5
    assert [one.failure is None for one in app.get("t").steps["flaky#1"].all_attempts] == [False] * 4 + [True]


def test_an_async_agent_has_the_same_context(app):
    """Rows 92, 93."""

    @agent
    async def works(task):
        async def fetch():
            raise ConnectionError("503")

        await asyncio.gather(task.step(fetch, name="a", retry=QUICK), task.step(fetch, name="b", retry=QUICK))

    done = app.run(works, id="t")
    context = done.failure.context
    assert context.step in ("~1/a#1", "~2/b#1", "a#1", "b#1") and context.exception.type == "ConnectionError"
    assert len(context.attempts) == 3

"""People in the loop: questions, approvals by risk, who is told, and what a refusal means."""

import asyncio
import threading

import pytest

import holdfast
from holdfast import agent, tool
from holdfast.testing.crash.everywhere import MovableClock
from tests.engine.both import declarer, events, kinds
from tests.engine.workers.test_worker import working
from tests.waiting import until

CLOCK = MovableClock


def risky(either, made, amounts=(3,), **options):
    """An agent whose call of `pay` needs an approval. Each run asks for the next of the amounts."""
    given = list(amounts)

    @tool(effect=options.pop("effect", "once"), risk="money")
    def pay(amount: int, *, connection=None) -> str:
        made.append(amount)
        return f"paid {amount}"

    @either(required_for_risk_levels=["money"], **options)
    def worker(task):
        amount = given.pop(0) if len(given) > 1 else given[0]
        paid = yield task.call(pay, amount=amount)
        yield task.wait("go", timeout=0)
        return paid

    return worker


# Questions


def test_a_question_times_out_with_none(app, clock, either):
    @either()
    def worker(task):
        return [(yield task.ask("who?", name="who", timeout="1h")), "went on"]

    waiting = app.run(worker, id="t")
    assert waiting.waiting.kind == "person" and waiting.waiting.wake_at is not None
    clock.advance(3601)
    assert app.run(worker, id="t").result == [None, "went on"]
    with pytest.raises(holdfast.HoldfastError):
        app.answer("t", "who", "late")


def test_a_question_is_answered_once(app, either, texts):
    @either()
    def worker(task):
        return [(yield task.ask("who?", name="who")), (yield task.ask("when?", name="when"))]

    app.run(worker, id="t")
    app.answer("t", "who", "Ana", by="bob", why="she asked")
    with texts.raises(holdfast.InvalidEvent) as refused:
        app.answer("t", "who", "Eve")
    assert refused.value.hint
    app.run(worker, id="t")
    app.answer("t", "when#1", ["now"])
    assert app.run(worker, id="t").result == ["Ana", ["now"]]
    ended = events(app, "wait_ended")[0]
    assert (ended.by, ended.why) == ("bob", "she asked")


def test_two_open_questions_of_one_name_are_told_apart_by_their_keys(app):
    @agent
    async def worker(task):
        return await asyncio.gather(task.ask("a?"), task.ask("b?"))

    waiting = app.run(worker, id="t")
    assert [one["prompt"] for one in waiting.waiting.on] == ["a?", "b?"]
    app.answer("t", "~2/ask#1", "b")
    assert app.run(worker, id="t").status == "waiting"
    app.answer("t", "~1/ask#1", "a")
    assert app.run(worker, id="t").result == ["a", "b"]


def test_an_answer_that_may_belong_to_two_questions_is_refused(app, texts):
    @agent
    async def worker(task):
        return await asyncio.gather(task.ask("a?"), task.ask("b?"))

    app.run(worker, id="t")
    with texts.raises(holdfast.InvalidEvent):
        app.answer("t", "ask", 1)


def test_an_unserialisable_answer_is_refused(app, either):
    @either()
    def worker(task):
        return (yield task.ask("who?"))

    app.run(worker, id="t")
    with pytest.raises(holdfast.NotSerializable):
        app.answer("t", "ask", object())
    assert app.get("t").status == "waiting"


def test_the_deadline_ends_a_wait_for_a_person(app, clock, either):
    @either(deadline="10m")
    def worker(task):
        yield task.ask("who?")

    assert app.run(worker, id="t").status == "waiting"
    clock.advance(601)
    failed = app.run(worker, id="t")
    assert (failed.status, failed.failure.code) == ("failed", "time-limit")


# Consent the agent asks for


@pytest.mark.parametrize(("answer", "result"), [("approve", True), ("reject", False), ("silence", False)])
def test_an_agent_asks_for_consent(app, clock, either, answer, result):
    @either()
    def worker(task):
        return (yield task.approve("delete it all?", name="delete", timeout="1h"))

    waiting = app.run(worker, id="t")
    assert (waiting.status, waiting.waiting.kind) == ("waiting", "person")
    assert [(one["key"], one["prompt"]) for one in waiting.waiting.on] == [("delete#1", "delete it all?")]
    if answer == "silence":
        clock.advance(3601)
    else:
        getattr(app, answer)("t", "delete", by="ana")
    assert app.run(worker, id="t").result is result


# Approvals by risk


def test_a_risky_call_waits_for_an_approval_that_names_who_and_why(app, either):
    made = []
    worker = risky(either, made)
    waiting = app.run(worker, id="t")
    assert (waiting.status, waiting.waiting.kind, made) == ("waiting", "person", [])
    (asked,) = waiting.waiting.on
    assert (asked["key"], asked["tool"], asked["risk"], asked["arguments"]) == ("pay#1", "pay", "money", {"amount": 3})
    assert app.run(worker, id="t").status == "waiting" and made == []
    app.approve("t", "pay#1", by="ana", why="it is due")
    done = app.run(worker, id="t")
    assert (done.result, made) == ("paid 3", [3])
    given = events(app, "approval_given")[0]
    assert (given.by, given.why) == ("ana", "it is due") and given.bound == done.calls["pay#1"].idempotency_key


@pytest.mark.parametrize("effect", ["read", "idempotent", "once", "transaction"])
def test_every_kind_of_risky_call_waits(app, either, effect):
    made = []
    worker = risky(either, made, effect=effect)
    assert app.run(worker, id="t").status == "waiting" and made == []
    app.approve("t", "pay", by="ana")
    assert app.run(worker, id="t").result == "paid 3" and made == [3]


def test_a_call_of_another_risk_does_not_wait(app, either):
    @tool(risk="small")
    def look() -> int:
        return 1

    @tool
    def plain() -> int:
        return 2

    @either(required_for_risk_levels=["money", "external_action"])
    def worker(task):
        return [(yield task.call(look)), (yield task.call(plain))]

    assert app.run(worker, id="t").result == [1, 2]


def test_a_refused_call_is_not_made_and_stays_refused(app, either, texts):
    made = []
    worker = risky(either, made)
    app.run(worker, id="t")
    app.reject("t", "pay#1", by="bob", why="too much")
    failed = app.run(worker, id="t")
    assert failed.failure.code == "approval-denied"
    texts.check(failed.failure.message)
    again = app.resume("t", worker)
    assert (again.status, again.failure.code, made) == ("failed", "approval-denied", [])
    with pytest.raises(holdfast.HoldfastError):
        app.approve("t", "pay#1", by="eve")


def test_a_refusal_can_be_caught_and_is_the_same_on_replay(app, either):
    made = []

    @tool(risk="money")
    def pay() -> None:
        made.append(1)

    @either(required_for_risk_levels="money")
    def worker(task):
        try:
            yield task.call(pay)
        except holdfast.ApprovalDenied as error:
            task.state.append("errors", str(error))
        yield task.wait("go")
        return task.state.errors

    app.run(worker, id="t")
    app.reject("t", "pay", by="bob", why="no")
    app.run(worker, id="t")
    app.signal("t", "go")
    (error,) = app.run(worker, id="t").result
    assert "bob" in error and made == []


def test_an_approval_is_given_once_and_the_second_answer_is_told_of_the_first(app, either, texts):
    worker = risky(either, [])
    app.run(worker, id="t")
    app.approve("t", "pay#1", by="ana")
    for answer in (app.approve, app.reject):
        with texts.raises(holdfast.InvalidEvent):
            answer("t", "pay#1", by="bob")
    app.run(worker, id="t")
    with pytest.raises(holdfast.HoldfastError):
        app.approve("t", "pay#1", by="bob")


def test_what_nobody_asked_for_cannot_be_approved(app, either, texts):
    worker = risky(either, [])
    app.run(worker, id="t")
    before = app.get("t").seq
    for call in ("pay#2", "other", ""):
        with texts.raises(holdfast.InvalidEvent):
            app.approve("t", call)
    assert app.get("t").seq == before


def test_approve_and_reject_at_once_the_first_one_counts(app):
    for round in range(10):
        id, made = f"t{round}", []
        worker = risky(declarer("def"), made)
        app.run(worker, id=id)
        outcomes = {}
        start = threading.Barrier(2)

        def answer(verb, id=id, outcomes=outcomes, start=start):
            start.wait()
            try:
                getattr(app, verb)(id, "pay#1", by=verb)
                outcomes[verb] = "counted"
            except holdfast.HoldfastError as error:
                outcomes[verb] = type(error).__name__

        threads = [threading.Thread(target=answer, args=(verb,)) for verb in ("approve", "reject")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes.values()) == ["InvalidEvent", "counted"], outcomes
        app.run(worker, id=id)
        assert made == ([3] if outcomes["approve"] == "counted" else [])


def test_an_approval_is_bound_to_its_arguments(app, either):
    made = []
    worker = risky(either, made, amounts=(3, 4, 4), on_change="rerun")
    app.run(worker, id="t")
    app.approve("t", "pay#1", by="ana")
    waiting = app.run(worker, id="t")
    assert (waiting.status, made) == ("waiting", []), "ana agreed to 3, not to 4"
    assert waiting.waiting.on[0]["arguments"] == {"amount": 4}
    app.approve("t", "pay#1", by="ana", bound=waiting.waiting.on[0]["bound"])
    assert app.run(worker, id="t").result == "paid 4" and made == [4]


def test_a_call_that_was_made_and_is_made_again_with_other_arguments_is_asked_for_again(app, either):
    made, amounts = [], [3]

    @tool(risk="money")
    def pay(amount: int) -> str:
        made.append(amount)
        return f"paid {amount}"

    @either(required_for_risk_levels=["money"], on_change="rerun")
    def worker(task):
        paid = yield task.call(pay, amount=amounts[-1])
        yield task.wait("go")
        return paid

    app.run(worker, id="t")
    app.approve("t", "pay#1")
    app.run(worker, id="t")
    amounts.append(4)
    app.signal("t", "go")
    assert app.run(worker, id="t").waiting.kind == "person" and made == [3]
    app.approve("t", "pay#1", bound=next(app.inbox()).bound)
    assert app.run(worker, id="t").result == "paid 4" and made == [3, 4]


def test_an_approval_counts_for_one_call_only(app, either):
    made = []

    @tool(risk="money")
    def pay(amount: int) -> int:
        made.append(amount)
        return amount

    @either(required_for_risk_levels=["money"])
    def worker(task):
        return [(yield task.call(pay, amount=3)), (yield task.call(pay, amount=3))]

    app.run(worker, id="t")
    app.approve("t", "pay#1")
    assert app.run(worker, id="t").status == "waiting" and made == [3]
    app.approve("t", "pay#2")
    assert app.run(worker, id="t").result == [3, 3]


def test_an_approval_expires(app, clock, either):
    made = []
    worker = risky(either, made)
    app.run(worker, id="t")
    app.approve("t", "pay#1", by="ana", expires="1h")
    clock.advance(3601)
    assert app.run(worker, id="t").status == "waiting" and made == []
    app.approve("t", "pay#1", by="ana", expires="1h")
    clock.advance(3500)
    assert app.run(worker, id="t").result == "paid 3"


def test_nobody_answering_within_the_time_is_a_no(app, clock, either, texts):
    made = []
    worker = risky(either, made, approve_within="1h")
    waiting = app.run(worker, id="t")
    assert waiting.waiting.wake_at is not None
    clock.advance(3601)
    failed = app.run(worker, id="t")
    assert failed.failure.code == "approval-denied" and made == []
    texts.check(failed.failure.message)
    assert events(app, "approval_refused")[0].expired


def test_several_approvals_are_asked_for_at_once(app):
    made = []

    @tool(risk="money")
    def pay(amount: int) -> int:
        made.append(amount)
        return amount

    @agent(required_for_risk_levels=["money"])
    async def gathered(task):
        return await asyncio.gather(*(task.call(pay, amount=n) for n in range(3)), return_exceptions=True)

    @agent(required_for_risk_levels=["money"])
    def mapped(task):
        return task.map(pay, [{"amount": n} for n in range(3)])

    for worker in (gathered, mapped):
        made.clear()
        waiting = app.run(worker, id=worker.name)
        keys = [f"~{n}/pay#1" for n in (1, 2, 3)]
        assert sorted(one["key"] for one in waiting.waiting.on) == keys
        with pytest.raises(holdfast.InvalidEvent):
            app.approve(worker.name, "pay")
        for key in keys:
            app.approve(worker.name, key, by="ana")
        assert app.run(worker, id=worker.name).result == [0, 1, 2] and sorted(made) == [0, 1, 2]


def test_an_approval_of_a_loop_is_named_with_its_turn_or_without(app):
    @tool(risk="money")
    def pay() -> int:
        return 1

    @agent(loop=True, required_for_risk_levels=["money"])
    def worker(task):
        task.call(pay)
        return task.turn if task.turn == 2 else None

    app.run(worker, id="t")
    app.approve("t", "pay#1")
    assert app.run(worker, id="t").turn == 2, "and the approval of turn 1 does not count in turn 2"
    app.approve("t", "2/pay#1")
    assert app.run(worker, id="t").result == 2


def test_a_cancelled_task_no_longer_waits_for_consent(app, either):
    made = []
    worker = risky(either, made)
    app.run(worker, id="t")
    assert app.cancel("t", by="ana", why="no need").status == "cancelled"
    with pytest.raises(holdfast.TaskFinished):
        app.approve("t", "pay#1")
    assert made == []


def test_a_crash_while_people_are_asked_changes_nothing(crash_everywhere):
    made = []

    @tool(effect="idempotent", risk="money")
    def pay(*, idempotency_key: str) -> str:
        made.append(idempotency_key)
        return "paid"

    @agent(required_for_risk_levels=["money"])
    def worker(task):
        who = task.ask("who?", name="who")
        return [who, task.call(pay), task.approve("sure?", name="sure")]

    def finish(app, state):
        for one in state.waiting.on:
            if one["kind"] == "person":
                app.answer(state.id, one["key"], "Ana")
            else:
                app.approve(state.id, one["key"], by="bob")

    def check(state, world):
        assert state.result == ["Ana", "paid", True] and len(set(made)) == 1

    assert crash_everywhere(worker, finish=finish, check=check, store="memory:").survived > 20


# Who is told


def test_a_program_is_told_when_a_person_is_needed(url, clock, either):
    told = []
    made = []
    with holdfast.open(url, clock=clock, on_wait=lambda state: told.append((state.id, state.waiting.kind))) as app:
        app.run(risky(either, made), id="approval")

        @either(name="asker")
        def asker(task):
            yield task.ask("who?")

        @either(name="sleeper")
        def sleeper(task):
            yield task.wait("go")

        app.run(asker, id="question")
        app.run(sleeper, id="signal")
    assert told == [("approval", "person"), ("question", "person")]


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_program_that_fails_while_it_is_told_does_not_hurt_the_task(url, clock, either, caplog, error):
    def on_wait(state):
        raise error("the desk is empty")

    @either()
    def worker(task):
        return (yield task.ask("who?"))

    with holdfast.open(url, clock=clock, on_wait=on_wait) as app:
        assert app.run(worker, id="t").status == "waiting" and "the desk is empty" in caplog.text
        app.answer("t", "ask", 1)
        assert app.run(worker, id="t").result == 1


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_program_that_fails_while_a_worker_tells_it_is_told_once_a_task(url, either, caplog, error):
    told = []

    def on_wait(state):
        told.append(state.id)
        raise error("the desk is empty")

    @either()
    def asker(task):
        return (yield task.ask("who?"))

    with holdfast.open(url, on_wait=on_wait) as app:
        ids = ["t0", "t1", "t2"]
        for id in ids:
            app.start(asker, id=id)
        with working(app, asker) as worker:
            until(lambda: worker.counts["waiting"] == 3)
        assert [app.get(id).waiting.kind for id in ids] == ["person"] * 3
    assert sorted(told) == ids and caplog.text.count("the desk is empty") == 3


# Signals and following


def test_a_signal_is_taken_by_one_wait_only(app, either):
    @either()
    def worker(task):
        return [(yield task.wait("go")), (yield task.wait("go"))]

    app.run(worker, id="t")
    app.signal("t", "go", 1)
    assert app.run(worker, id="t").status == "waiting"
    app.signal("t", "go", 2)
    assert app.run(worker, id="t").result == [1, 2]


def test_following_gives_each_event_once_and_ends_with_the_task(app, either):
    @either()
    def worker(task):
        yield task.step(lambda: 1, name="one")
        return (yield task.wait("go"))

    app.start(worker, id="t")
    seen = []
    follower = threading.Thread(target=lambda: seen.extend(record.seq for record in app.follow("t")))
    follower.start()
    app.run(worker, id="t")
    app.signal("t", "go")
    app.run(worker, id="t")
    follower.join(5)
    assert not follower.is_alive()
    assert seen == list(range(1, app.get("t").seq + 1))


def test_following_can_be_async_and_limited_in_time(app):
    @agent
    async def worker(task):
        await task.step(asyncio.sleep, 0.01, name="nap")
        await task.wait("go")

    async def both():
        seen = []

        async def follow():
            async for record in app.follow("t", after=1, seconds=2):
                seen.append(record.kind)  # noqa: PERF401

        app.start(worker, id="t")
        await asyncio.gather(follow(), app.arun(worker, id="t"))
        return seen

    seen = asyncio.run(both())
    assert seen == kinds(app)[1:] and seen[-1] == "task_suspended"
    with pytest.raises(holdfast.TaskNotFound):
        app.follow("nobody")

"""What stung people once: the text of a refusal, the shape of what is printed, what is accepted."""

import asyncio
import runpy
from datetime import timedelta
from pathlib import Path

import pytest

import holdfast
from holdfast import Happened, InvalidValue, Retry, StatePatch, agent, events, pack, tool
from holdfast.testing.clock import FakeClock

TOUR = Path(__file__).parents[2] / "docs" / "tour.md"


@pytest.fixture(params=["memory", "sqlite"])
def app(request, tmp_path):
    with holdfast.open("memory:" if request.param == "memory" else tmp_path / "edges.db") as opened:
        yield opened


@agent
def quiet(task):
    return "done"


@agent
def broken(task):
    raise ValueError("no")


# Refusals


@pytest.mark.parametrize(
    ("id", "example"),
    [
        ("order 17!", "order-17"),
        ("../etc", "etc"),
        ("@last", "last"),
        ("ä", "a"),
        ("水", "task-1"),
        ("", "task-1"),
        ("x" * 600, "x" * 40),
    ],
)
def test_a_refused_id_is_told_which_characters_are_allowed_with_an_example(app, id, example, texts):
    with texts.raises(holdfast.InvalidId) as refused:
        app.get(id)
    assert refused.value.hint.endswith(repr(example))
    app.start("a", id=example)


def test_a_number_as_an_id_is_told_to_be_text(app, texts):
    with texts.raises(holdfast.InvalidId):
        app.get(17)


def test_an_ended_task_says_which_verb_came_too_late(app, texts):
    app.run(quiet, id="t")
    for verb, use in {
        "app.signal": lambda: app.signal("t", "go"),
        "app.patch": lambda: app.patch("t", StatePatch(set={"a": 1})),
        "app.cancel": lambda: app.cancel("t"),
        "app.answer": lambda: app.answer("t", "seat", "window"),
    }.items():
        with texts.raises(holdfast.TaskFinished) as refused:
            use()
        assert verb in str(refused.value) and "app.resume" not in refused.value.hint


def test_only_a_failed_task_is_told_that_it_can_be_resumed(app, texts):
    app.run(broken, id="t")
    with texts.raises(holdfast.TaskFinished) as refused:
        app.signal("t", "go")
    assert "app.resume" in refused.value.hint


def test_a_verb_in_the_block_of_an_ended_task_is_named_as_it_is_written(app, texts):
    with app.task("block", id="t"):
        pass
    with texts.raises(holdfast.TaskFinished), app.task("block", id="t") as task:
        task.stage("later")


@pytest.mark.parametrize(
    ("verb", "use"),
    [
        ("task.stage", lambda task: task.stage("x")),
        ("task.fact", lambda task: task.fact("k", 1)),
        ("task.state", lambda task: task.state.increment("n")),
        ("task.step", lambda task: task.step(str, 1)),
        ("task.spawn", lambda task: task.spawn(quiet)),
    ],
)
def test_a_verb_inside_a_step_is_named_as_it_is_written(app, verb, use, texts):
    @agent
    def nested(task):
        return task.step(lambda: use(task), name="outer")

    failed = app.run(nested)
    assert verb in failed.failure.message
    texts.check(failed.failure.message)


def test_who_answers_what_is_no_question_is_told_the_right_verb(app, texts):
    @tool(effect="once", risk="money")
    def pay(amount: int) -> None: ...

    @agent(required_for_risk_levels=["money"])
    def payer(task):
        task.call(pay, amount=1)

    @agent
    def asker(task):
        task.approve("may I?", name="consent")

    @agent
    def waiter(task):
        task.wait("go")

    for what, names, remedy in (
        (payer, ("pay", "pay#1"), "app.reject(id, 'pay#1')"),
        (asker, ("consent", "consent#1"), "app.approve(id, 'consent#1')"),
        (waiter, ("go", "go#1"), "app.signal(id, 'go', value)"),
    ):
        app.run(what, id=what.name)
        for name in names:
            with texts.raises(holdfast.InvalidEvent) as refused:
                app.answer(what.name, name, True)
            assert remedy in refused.value.hint
    with texts.raises(holdfast.InvalidEvent):
        app.answer("waiter", "else", True)


@pytest.mark.parametrize("where", ["tool", "task"])
def test_a_lambda_cannot_undo_and_the_remedy_says_what_can(app, where, texts):
    if where == "tool":
        with texts.raises(InvalidValue):
            tool(name="pay", effect="once", compensate=lambda call: None)(lambda: None)
        return

    @agent
    def careless(task):
        task.compensate(lambda: None)

    texts.check(app.run(careless).failure.message)


def test_input_that_was_left_out_is_told_of_resume(app, texts):
    @agent
    def greet(task, name: str = "Ana"):
        task.wait("go")
        return f"hello {name}"

    app.run(greet, {"name": "Ben"}, id="t")
    with texts.raises(holdfast.InputConflict) as refused:
        app.run(greet, id="t")
    assert "app.resume(id, agent)" in refused.value.hint
    with texts.raises(holdfast.InputConflict) as refused:
        app.run(greet, {"name": "Cat"}, id="t")
    assert "app.resume" not in refused.value.hint
    app.signal("t", "go")
    assert app.resume("t", greet).result == "hello Ben"


@pytest.mark.parametrize("url", ["memory:", "x.db", "sqlite:///x.db"])
def test_an_unknown_durability_is_refused_whatever_the_store(url, tmp_path, monkeypatch, texts):
    monkeypatch.chdir(tmp_path)
    with texts.raises(holdfast.InvalidUrl):
        holdfast.open(url, durability="ful")
    assert list(tmp_path.iterdir()) == []


def test_a_transaction_tool_without_a_connection_is_refused_where_it_is_declared(texts):
    with texts.raises(InvalidValue):

        @tool(effect="transaction")
        def book(seat: int) -> None: ...


# What is accepted


def test_the_age_of_what_is_removed_may_be_written_like_every_length_of_time(texts):
    clock = FakeClock()
    with holdfast.open("memory:", clock=clock) as app:
        app.run(quiet, id="t")
        clock.advance(3 * 86_400)
        assert app.gc(older_than="7d").tasks == 0
        assert app.gc(older_than="2d", snapshots_older_than=timedelta(days=1)).tasks == 1
        for odd in ("soon", "-1d", -1, timedelta(days=-1), [7], object()):
            with texts.raises(InvalidValue):
                app.gc(older_than=odd)


def test_a_step_is_tried_again_only_for_the_errors_that_are_listed(app):
    tries = []

    def flaky(error):
        tries.append(error)
        raise {"down": ConnectionError, "bad": ValueError}[error]("no")

    @agent
    def trying(task, error: str):
        return task.step(flaky, error, retry=Retry(3, first=0), retry_on=[ConnectionError])

    @agent
    def mapping(task, error: str):
        return task.map(flaky, [error], retry=Retry(2, first=0), retry_on=ConnectionError)

    for what, error, count in ((trying, "down", 3), (trying, "bad", 1), (mapping, "down", 2), (mapping, "bad", 1)):
        tries.clear()
        assert app.run(what, {"error": error}).status == "failed" and len(tries) == count


@pytest.mark.parametrize("odd", [["ConnectionError"], [3], [ConnectionError()]])
def test_what_is_no_error_is_not_retried_on(app, odd, texts):
    @agent
    def trying(task):
        return task.step(lambda: 1, name="one", retry_on=odd)

    texts.check(app.run(trying).failure.message)
    with texts.raises(InvalidValue):
        tool(name="t", retry_on=odd)(lambda: None)


def test_the_same_fork_asked_for_twice_is_the_same_fork(app):
    app.run(quiet, id="t")
    patch = StatePatch(set={"tone": "bold", "long": "x" * 10_000})
    first = app.fork("t", at=2, id="f", patch=patch)
    app.signal("f", "heard")
    again = app.fork("t", at=2, id="f", patch=patch, by="somebody else")
    assert again.seq == first.seq + 1 and again.state["tone"] == "bold"
    for other in (
        {"at": 1, "patch": patch},
        {"at": 2},
        {"at": 2, "patch": StatePatch(set={"tone": "meek"})},
        {"at": 2, "patch": patch, "effects": "live"},
    ):
        with pytest.raises(holdfast.TaskExists):
            app.fork("t", id="f", **other)
    app.start("other", id="u")
    with pytest.raises(holdfast.TaskExists):
        app.fork("u", at=1, id="f", patch=patch)
    with pytest.raises(holdfast.TaskExists):
        app.fork("t", id="u")


def test_the_same_fork_of_a_users_task_is_found_too(app):
    app.run(quiet, id="t", user="ana")
    patch = StatePatch(set={"long": "x" * 10_000})
    app.fork("t", id="f", patch=patch)
    assert app.fork("t", id="f", patch=patch).id == "f"


def test_the_tour_can_be_taken_twice(tmp_path, monkeypatch, capsys):
    import re

    monkeypatch.chdir(tmp_path)
    tour = tmp_path / "tour.py"
    tour.write_text("".join(re.findall(r"^```python\n(.*?)^```", TOUR.read_text("utf-8"), re.S | re.M)))
    for _ in range(3):
        runpy.run_path(str(tour))["app"].close()
    assert capsys.readouterr().out.count("bold ['draft#1'] send_email#1") == 3


# What is printed


def test_a_step_of_a_turn_shows_its_turn(app):
    @agent(loop=True)
    def looping(task):
        task.step(lambda: 1, name="one")
        return task.turn if task.turn == 2 else None

    app.run(looping, id="t")
    assert [repr(step) for step in app.steps("t")] == ["<step 1/one#1 completed>", "<step 2/one#1 completed>"]
    app.run(quiet, id="q")
    with app.task("b", id="b") as task:
        task.step(lambda: 1, name="one")
    assert repr(app.step("b", "one#1")) == "<step one#1 completed>"


def test_events_are_printed_as_people_read_them(app):
    @agent
    def noting(task, city: str):
        task.note("where", {"city": city})
        task.fact("long", "x" * 500)
        return task.step(len, city)

    app.run(noting, {"city": "Oslo"}, id="t")
    printed = {one.kind: repr(one.event) for one in app.events("t")}
    assert printed["note_set"] == """<note_set key='where' value={"city":"Oslo"} branch='.'>"""
    assert printed["task_completed"] == "<task_completed result=4 phase='done'>"
    assert printed["task_created"].startswith("""<task_created agent='noting' input={city: "Oslo"} seed='""")
    assert "msgspec" not in "".join(printed.values()) and max(map(len, printed.values())) < 300
    failed = events.TaskFailed(failure=events.Failure("ValueError", "no"))
    assert repr(failed) == "<task_failed failure=(Failure type='ValueError' message='no')>"
    assert repr(events.StatePatched(patch=_changes())) == ("<state_patched patch=(Changes set={a: 1})>")


def _changes():
    from holdfast.core.state.patch import changes_of

    return changes_of(StatePatch(set={"a": 1}))


def test_a_failed_task_is_given_back_and_nothing_is_raised(app):
    failed = app.run(broken)
    assert (failed.status, failed.failure.type) == ("failed", "ValueError")


# What goes on


def test_a_signal_of_another_name_leaves_a_waiting_task_waiting(app):
    @agent
    def waiter(task):
        first = task.wait("a")
        return [first, task.wait("b")]

    app.run(waiter, id="t")
    app.signal("t", "b", 2)
    assert app.get("t").status == "waiting" and app.get("t").waiting.kind == "signal"
    assert [one.id for one in app.list(status="waiting")] == ["t"]
    assert app.run(waiter, id="t").status == "waiting"
    app.signal("t", "a", 1)
    assert app.get("t").status == "pending"
    assert app.run(waiter, id="t").result == [1, 2], "the one that came early was kept"
    assert app.verify().ok


def test_a_signal_nobody_waits_for_does_not_wake_a_task_that_waits_for_a_person(app):
    @agent
    async def both(task):
        answer, signal = await asyncio.gather(task.ask("which?", name="which"), task.wait("go"))
        return [answer, signal]

    assert app.run(both, id="t").waiting.kind == "person"
    app.signal("t", "stray")
    assert app.get("t").status == "waiting"
    app.signal("t", "go", 1)
    assert app.get("t").status == "pending"
    app.run(both, id="t")
    app.answer("t", "which", "this")
    assert app.run(both, id="t").result == ["this", 1]


@pytest.mark.parametrize("policy", ["ask", "retry", "fail"])
@pytest.mark.parametrize("result", ["text", {"n": object()}])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_reconciled_result_that_cannot_be_one_leaves_the_call_in_doubt(app, policy, result, texts, is_async):
    made = []

    @tool(effect="once", reconcile=lambda call: Happened(result), reconcile_after=0, on_doubt=policy)
    def pay() -> dict:
        made.append(1)
        raise ConnectionError("sent, and no answer")

    @agent
    def shop(task):
        return task.call(pay)

    @agent(name="shop")
    async def shop_async(task):
        return await task.call(pay)

    shop = shop_async if is_async else shop
    app.run(shop, id="t")
    waiting = app.resume("t", shop)
    assert waiting.waiting.kind == "doubt" and made == [1], "it did happen, so it is not repeated"
    reasons = [one.event.why for one in app.events("t") if one.kind == "step_doubted"]
    texts.check(reasons[-1])
    app.settle("t", "pay#1", happened=True, result={"n": 1})
    assert app.run(shop, id="t").result == {"n": 1}


def test_a_signal_appended_by_hand_wakes_a_task_as_it_always_did(app):
    @agent
    def waiter(task):
        return task.wait("a")

    app.run(waiter, id="t")
    app.append("t", events.SignalReceived(name="b", value=pack(1)))
    assert app.get("t").status == "pending"
    assert app.run(waiter, id="t").status == "waiting"

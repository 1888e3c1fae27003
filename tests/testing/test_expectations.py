"""What tests say about tasks: each expectation holds where it should, and fails with an account where it should not."""

import pytest

import holdfast
from holdfast import InvalidValue, agent, tool
from holdfast.testing import ANYTHING, expect


@tool(effect="once", mock=lambda to, subject: {"message_id": f"msg-{to}"})
def send_email(to: str, subject: str) -> dict:
    raise AssertionError("touched")


@tool(effect="read", mock="mild")
def weather(city: str) -> str:
    raise AssertionError("touched")


@tool(effect="once", mock=None)
def never() -> None:
    raise AssertionError("touched")


def draft(notes: str) -> str:
    return notes.upper()


@agent(stages=["drafting", "sending", "complete"])
def recap(task, notes: str) -> str:
    task.phase("planning")
    task.stage("drafting")
    subject = task.step(draft, notes)
    task.fact("weather", task.call(weather, city="Oslo"), source="weather")
    task.decide("whom first?", "sam", why="he asked", options=["ana"])
    task.phase("executing")
    task.stage("sending")
    task.stage("sending")
    for to in ("sam", "ana"):
        task.state.message_id = task.call(send_email, to=to, subject=subject)["message_id"]
    task.flag("sent")
    task.message({"role": "user", "content": notes})
    task.message({"role": "assistant", "content": "done"})
    task.stage("complete")
    return task.state.message_id


@pytest.fixture
def done(holdfast_app):
    return holdfast_app.run(recap, {"notes": "q3"}, id="recap", mock=True)


def account(expectation):
    with pytest.raises(AssertionError) as failed:
        expectation()
    text = str(failed.value)
    assert text.startswith("expected task ") and text.splitlines()[-1].startswith("the task is ")
    return text


def test_a_whole_task_is_described_in_one_chain(done):
    (
        expect(done)
        .completed("msg-ana")
        .stage("complete")
        .stages("drafting", "sending", "complete")
        .phases("planning", "executing")
        .turns(0)
        .state(message_id="msg-ana")
        .state({"message_id": "msg-ana"})
        .fact("weather")
        .fact("weather", "mild", source="weather")
        .flag("sent")
        .decided("whom first?")
        .decided("whom first?", "sam", why="he asked")
        .decided("whom first?", why="he asked")
        .messages("user", "assistant")
        .messages({"role": "user", "content": "q3"}, {"content": "done"})
        .called(send_email)
        .called(send_email, times=2)
        .called("send_email", times=1, to="sam")
        .called(send_email, {"to": "sam"}, subject="Q3", times=1)
        .called(send_email, to="ben", times=0)
        .called(weather, city=ANYTHING)
        .not_called(never)
        .not_called("nothing")
        .order(draft, weather, send_email, send_email)
        .order("draft", "send_email#2")
        .order()
    )


def test_an_expected_result_that_is_another_is_shown(done, texts):
    text = account(lambda: expect(done).completed("msg-sam"))
    texts.check(text)


def test_a_result_of_none_is_told_from_no_result_expected(holdfast_app, texts):
    @agent
    def nothing(task):
        return None

    expect(holdfast_app.run(nothing)).completed(None)
    texts.check(account(lambda: expect(holdfast_app.run(nothing, id="t")).completed(3)))


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "waiting"])
def test_another_status_is_shown_with_its_reason(holdfast_app, status, texts):
    @agent
    def book(task, how: str):
        if how == "failed":
            raise ValueError("sold out")
        return task.ask("which seat?", name="seat") if how in ("waiting", "cancelled") else how

    task = holdfast_app.run(book, {"how": status}, id="t")
    if status == "cancelled":
        task = holdfast_app.cancel("t")
    getattr(expect(task), status)()
    for other in ("completed", "failed", "cancelled", "waiting"):
        if other != status:
            texts.check(account(getattr(expect(task), other)))


def test_a_failure_is_known_by_its_type_its_text_and_what_it_came_from(holdfast_app, texts):
    def pay():
        raise ConnectionError("bank is down")

    @agent
    def shop(task):
        try:
            task.step(pay)
        except holdfast.StepFailed as error:
            raise LookupError("no way to pay") from error

    failed = holdfast_app.run(shop, id="t")
    for reason in ("", LookupError, "no way", holdfast.StepFailed, ConnectionError, "bank is down"):
        expect(failed).failed(reason)
    for reason in (ValueError, "bank is up"):
        texts.check(account(lambda reason=reason: expect(failed).failed(reason)))


def test_what_a_task_waits_for_is_shown(holdfast_app, texts):
    @agent
    def book(task):
        return task.ask("which seat?", name="seat")

    task = holdfast_app.run(book, id="t")
    expect(task).waiting("person").waiting("person", on="seat").waiting(on="seat#1")
    texts.check(account(lambda: expect(task).waiting("signal")))
    texts.check(account(lambda: expect(task).waiting(on="meal")))


def test_a_wait_for_approval_is_known_by_its_tool(holdfast_app):
    @tool(effect="once", risk="money", mock=1)
    def pay() -> int: ...

    @agent(required_for_risk_levels=["money"])
    def shop(task):
        return task.call(pay)

    expect(holdfast_app.run(shop, id="t", mock=True)).waiting("person", on="pay").not_called(pay)
    holdfast_app.reject("t", "pay#1", by="ana")
    expect(holdfast_app.run(shop, id="t")).failed(holdfast.ApprovalDenied).failed("ana refused").not_called(pay)


@pytest.mark.parametrize(
    ("what", "wrong"),
    [
        ("stage", ("sending",)),
        ("stages", ("drafting", "complete")),
        ("phases", ("planning",)),
        ("turns", (1,)),
        ("state", ({"message_id": "x"},)),
        ("state", ({"other": ANYTHING},)),
        ("fact", ("city",)),
        ("fact", ("weather", "wild")),
        ("flag", ("paid",)),
        ("decided", ("whom last?",)),
        ("decided", ("whom first?", "ana")),
        ("messages", ("user",)),
        ("messages", ("user", "tool")),
        ("called", (never,)),
        ("called", (send_email, {"to": "ben"})),
        ("not_called", (weather,)),
        ("order", (send_email, draft)),
        ("order", (draft, draft)),
        ("order", ("send_email#2", "send_email#1")),
    ],
)  # fmt: skip
def test_what_is_not_so_is_answered_with_what_was(done, what, wrong, texts):
    texts.check(account(lambda: getattr(expect(done), what)(*wrong)))


def test_a_wrong_number_of_calls_shows_each_of_them(done, texts):
    text = account(lambda: expect(done).called(send_email, times=3, subject="Q3"))
    texts.check(text)


def test_a_fact_from_elsewhere_and_a_decision_for_another_reason_are_not_it(done, texts):
    texts.check(account(lambda: expect(done).fact("weather", source="a guess")))
    texts.check(account(lambda: expect(done).decided("whom first?", why="he called")))


def test_nothing_at_all_is_said_to_be_nothing(holdfast_app, texts):
    @agent
    def idle(task):
        return 1

    task = holdfast_app.run(idle, id="t")
    texts.check(account(lambda: expect(task).decided("what?")))
    texts.check(account(lambda: expect(task).stage("x")))
    texts.check(account(lambda: expect(task).order("x")))
    texts.check(account(lambda: expect(task).called("x")))


def test_calls_of_every_turn_count_and_are_in_order(holdfast_app):
    @agent(loop=True)
    def looping(task):
        task.stage(f"turn {task.turn}")
        task.call(weather, city=f"city {task.turn}")
        task.step(draft, "x")
        return "over" if task.turn == 3 else None

    done = holdfast_app.run(looping, id="t", mock=True)
    expect(done).turns(3).called(weather, times=3).called(weather, city="city 2", times=1)
    expect(done).order(weather, draft, weather, draft, weather, draft).order("1/weather#1", "3/weather#1")
    expect(done).stages("turn 1", "turn 2", "turn 3")
    text = account(lambda: expect(done).called(weather, times=2))
    assert "2/weather#1(city='city 2') completed: 'mild'" in text
    early = holdfast_app.at("t", next(one.after for one in done.all_steps() if one.turn == 2))
    expect(early).turns(2).called(weather, times=2).stages("turn 1", "turn 2")
    assert [repr(one) for one in early.all_steps()] == [
        "<step 1/weather#1 completed>",
        "<step 1/draft#1 completed>",
        "<step 2/weather#1 completed>",
    ]


def test_what_was_rolled_back_does_not_count(holdfast_app, done):
    back = holdfast_app.rollback("recap", 2)
    expect(back).called(weather, times=1).not_called(send_email).stages("drafting", "sending")
    assert [one.kind for one in back.events()][:2] == ["task_created", "task_claimed"]


def test_a_call_that_another_one_answered_was_not_made(holdfast_app):
    @tool(effect="once", unique="order", mock="receipt")
    def pay() -> str: ...

    @agent
    def shop(task):
        return [task.call(pay), task.call(pay)]

    expect(holdfast_app.run(shop, mock=True)).completed(["receipt", "receipt"]).called(pay, times=1)


def test_what_undid_something_is_in_the_order_too(holdfast_app):
    def refund(call): ...

    @tool(effect="once", mock=1, compensate=refund)
    def pay() -> int: ...

    @agent
    def shop(task):
        task.call(pay)
        raise RuntimeError("sold out")

    expect(holdfast_app.run(shop, mock=True)).failed(RuntimeError).order(pay, refund)


def test_an_expectation_needs_a_state(holdfast_app, texts):
    with texts.raises(InvalidValue):
        expect("recap")

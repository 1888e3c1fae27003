"""What the page says beside a call, a budget, a fork and an error, so that a person can decide."""

import pytest

import holdfast
from holdfast import Budget, StatePatch, Task, agent, events as ev, report_usage, tool
from holdfast.core import codec
from tests.web.browser import tab
from tests.web.world import ASK, page_of

OVER = ("sqlite", "postgres")


@tool(effect="once", risk="payment")
def pay(euros: int) -> str:
    return f"paid-{euros}"


@tool(effect="once", risk="payment")
def pay_much(euros: int, more: dict, share: float) -> str:
    return "paid"


@agent
def pays_twice_more(task: Task) -> str:
    return task.call(pay_much, euros=2**53 + 1, more={"each": [2**53 + 1]}, share=2.0)


@agent
def pays_twice(task: Task) -> str:
    task.call(pay, euros=10)
    return task.call(pay, euros=20)


def thinks():
    report_usage(input_tokens=100, output_tokens=20, cost=0.25)
    return "so"


@agent(budget=Budget(cost=0.6, on_exceed="ask"))
def spender(task: Task) -> None:
    for _ in range(4):
        task.step(thinks, name="model")


def in_doubt_by_a_dead_process(app):
    """A log as a kill leaves it: announced by one process, doubted by the next."""
    app.start("treasury", id="wire-7")
    given = {"euros": codec.pack(9)}
    call = {"key": "pay#1", "name": "pay", "tool": "pay", "effect": "once", "input": given}
    app.append("wire-7", ev.TaskClaimed(holder="4711-aa"), ev.StepStarted(**call, idempotency_key="wire-7:pay#1:k"))
    doubted = ev.StepDoubted(key="pay#1", why="its process died")
    app.append("wire-7", ev.TaskClaimed(holder="4712-bb"), doubted, ev.TaskSuspended(why="doubt"))


@pytest.fixture(scope="module")
def known(shared_address):
    with holdfast.open(shared_address) as app:
        app.run(pays_twice, id="two", contract={"constraints": ASK})
        app.approve("two", next(iter(app.inbox("two"))).key, by="ana", why="due")
        app.resume("two", pays_twice)
        app.run(spender, id="dear")
        app.fork("two", at=3, id="two~b", patch=StatePatch(set={"seat": "window"}), by="ben", effects="recorded")
        with page_of(shared_address) as page:
            page.app = app
            yield page


def test_an_approval_says_what_earlier_calls_of_the_tool_gave(known):
    (asked,) = [one for one in known.get("/inbox")["entries"] if one["task"] == "two"]
    told = known.get("/inbox/two/pay%232")
    assert asked["key"] == "pay#2" and told["earlier"]["count"] == 1
    assert told["earlier"]["last"]["came"] == "paid-10"
    assert known.app.events("two", after=told["earlier"]["last"]["seq"] - 1).__next__().kind == "step_completed"


def test_a_budget_says_what_the_last_steps_used(known):
    (asked,) = [one for one in known.get("/inbox")["entries"] if one["task"] == "dear"]
    pace = known.get(f"/inbox/dear/{asked['key']}")["pace"]
    assert pace == {"steps": 3, "each": pytest.approx(0.25), "done": 3}


def test_values_of_events_read_as_on_the_command_line(known):
    from holdfast.engine.reading.values import shown

    rows = known.get("/tasks/two/rows")["rows"]
    for row in rows:
        told = known.get(f"/tasks/two/events/{row[0]}")["value"]
        assert row[5] == ("" if told is None else shown(told)), row
    assert any("=" in row[5] for row in rows)


def test_a_fork_says_where_it_began_by_whom_and_with_what(known):
    first, second = known.get("/compare?a=two&b=two~b")["tasks"]
    assert first["forked"] is None
    assert second["forked"] == {
        "parent": "two",
        "at": 3,
        "by": "ben",
        "effects": "recorded",
        "patch": "set={seat=window}",
    }


def test_a_task_says_which_forks_were_made_of_it(known):
    assert known.get("/tasks/two")["forks"] == {"count": 1, "newest": ["two~b"]}
    assert known.get("/tasks/two~b")["forks"] == {"count": 0, "newest": []}
    assert known.get("/tasks/two?at=3")["forks"]["count"] == 0, "not of a moment: forks are of now"


def test_a_number_that_a_browser_would_round_is_sent_as_its_text(known):
    known.app.run(pays_twice_more, id="much", contract={"constraints": ASK})
    (asked,) = [one for one in known.get("/inbox")["entries"] if one["task"] == "much"]
    assert asked["exact"] == {"euros": "9007199254740993", "more": '{"each":[9007199254740993]}', "share": "2.0"}
    (other,) = [one for one in known.get("/inbox")["entries"] if one["task"] == "two"]
    assert other["exact"] == {}


def test_an_error_names_commands_and_no_python(known):
    status, told = known.ask("GET", "/api/v1/tasks/two-not")
    assert (status, told["hint"]) == (404, "to list the tasks of this store: holdfast list")
    status, told = known.act("/tasks/two/approve", {"call": "pay#2", "bound": "0" * 64})
    assert status == 409 and "app." not in told["detail"] + told["hint"]


@pytest.mark.page
def test_a_person_reads_all_of_that(known, browser):
    with tab(browser, known, "/inbox") as opened:
        opened.locator(".card", has_text="earlier in this task: 1 pay, the last gave paid-10").wait_for()
        opened.locator(".card", has_text="The last 3 steps used $0.25 each; 3 steps are done.").wait_for()
        two = opened.locator(".card", has_text="paid-10")
        two.get_by_role("button", name="Approve 20 euros").wait_for()
        opened.keyboard.press("a")
        opened.get_by_role("button", name="Yes, approve pay of 20 euros once").wait_for()
        opened.keyboard.press("Escape")
        opened.get_by_role("button", name="Cancel the task …").click()
        opened.locator("dialog", has_text="Cancel dear?").wait_for()
        opened.keyboard.press("Escape")
        opened.goto(f"{known.url}/tasks/two?step=pay%231")
        opened.locator(".insp dd", has_text="by ana, after").wait_for()
        opened.locator(".crumb", has_text="forked once: two~b").wait_for()
        opened.goto(f"{known.url}/compare/two/two~b")
        opened.locator(".head", has_text="at seq 3 by ben").wait_for()
        opened.seen.expected = ("404",)
        opened.goto(f"{known.url}/tasks/two-not-there")
        opened.locator(".card.alone h1", has_text="There is no task 'two-not-there'").wait_for()
        opened.locator(".card.alone .cmd", has_text="holdfast list").wait_for()
        opened.locator(".card.alone a", has_text="two~b").wait_for()


def test_a_call_in_doubt_says_who_announced_it_and_when_that_process_died(address):
    with holdfast.open(address) as app:
        in_doubt_by_a_dead_process(app)
        with page_of(address) as page:
            told = page.get("/inbox/wire-7/pay%231")
            assert told["announced"]["holder"]["pid"] == "4711" and told["announced"]["end"] == "killed"
            assert told["announced"]["at_ms"] <= told["announced"]["ended_ms"]
            assert told["idempotency_key"].startswith("wire-7:pay#1")

"""Acts that need code or a form: start a task, ask a destination again, answer a question of any type."""

import json
import re
from pathlib import Path

import pytest

import holdfast
from tests.waiting import until
from tests.web.acts_agents import asks, greet, travels, wire
from tests.web.browser import tab
from tests.web.world import page_of

OVER = ("sqlite", "postgres")
FILE = str(Path(__file__).with_name("acts_agents.py"))


@pytest.fixture
def bank(tmp_path, monkeypatch):
    path = tmp_path / "bank"
    path.write_text("unknown")
    monkeypatch.setenv("BANK", str(path))
    return path


@pytest.fixture
def own(address, bank):
    """A page that was given a file, over a store with a call in doubt."""
    with holdfast.open(address) as app:
        app.run(wire, {"euros": 44}, id="wire-1", hold=0)
        with page_of(address, FILE) as opened:
            opened.app = app
            yield opened


def test_a_file_lets_the_page_start_tasks_of_its_agents_and_of_no_other(own):
    assert own.get("/about")["agents"] == ["asks", "greet", "travels", "wire"]
    told = {one["name"]: one for one in own.get("/agents")["agents"]}
    assert told["greet"]["about"] == "Say hello." and told["greet"]["input"]["required"] == ["name"]
    assert told["greet"]["state"] is None and "seat" in json.dumps(told["travels"]["state"])
    status, made = own.act("/tasks", {"agent": "greet", "input": {"name": "ana"}, "id": "g-1"}, key="k")
    assert (status, made["id"], made["status"]) == (200, "g-1", "pending")
    assert own.act("/tasks", {"agent": "greet", "input": {"name": "ana"}, "id": "g-1"}, key="k")[0] == 200
    created = next(own.app.events("g-1")).event
    assert created.by == "ana"
    for body, code in [
        ({"agent": "nope"}, "invalid-value"),
        ({"agent": "greet", "input": {}}, "invalid-input"),
        ({"agent": "greet", "input": {"name": 3}}, "invalid-input"),
        ({"agent": "greet", "input": {"name": "x"}, "id": "g-1"}, "input-conflict"),
    ]:
        status, refused = own.act("/tasks", body)
        assert status in (400, 409) and refused["code"] == code, refused
    assert own.app.resume("g-1", greet).result == "ana False 1 None"


@pytest.mark.page
def test_a_page_without_a_file_starts_nothing_and_says_how(tmp_path):
    with holdfast.open(tmp_path / "store.db"):
        pass
    with page_of(tmp_path / "store.db") as page:
        status, told = page.act("/tasks", {"agent": "greet", "input": {"name": "ana"}})
        assert status == 400 and "holdfast ui agents.py" in told["hint"]


def test_a_destination_is_asked_again_and_its_word_settles_the_call(own, bank):
    assert own.get("/about")["reconciles"] == ["transfer"]
    path, body = "/tasks/wire-1/reconcile", {"call": "transfer#1"}
    assert own.get("/inbox/wire-1/transfer%231")["asked"] == []
    assert own.act(path, body)[1]["waiting"]["kind"] == "doubt", "it can't tell"
    bank.write_text("down")
    status, told = own.act(path, body)
    assert (status, "504 Gateway Timeout" in told["detail"]) == (409, True)
    said = own.get("/inbox/wire-1/transfer%231")["asked"]
    wanted = [("ana", "it can't tell"), ("ana", "ConnectionError: 504 Gateway Timeout")]
    assert [(one["by"], one["told"]) for one in said] == wanted and said[0]["at_ms"] <= said[1]["at_ms"]
    bank.write_text("yes")
    assert own.act(path, body)[1]["status"] == "pending"
    settled = next(one.event for one in own.app.events("wire-1") if one.kind == "step_settled")
    assert (settled.happened, settled.by, settled.why) == (True, "reconcile", "ana asked the destination")
    assert own.app.resume("wire-1", wire).result == "t-7"


@pytest.mark.page
@pytest.mark.parametrize(
    ("kind", "good", "bad"), [("bool", True, "yes"), ("choice", "aisle", "roof"), ("struct", {"row": 3}, {"row": "x"})]
)
def test_an_answer_of_another_type_is_refused(own, kind, good, bad):
    own.app.run(asks, {"kind": kind}, id="q")
    assert own.act("/tasks/q/answer", {"question": "q", "value": bad})[1]["code"] == "invalid-value"
    assert own.act("/tasks/q/answer", {"question": "q", "value": good})[0] == 200


# In the browser


@pytest.mark.page
def test_a_fork_shows_what_the_state_may_hold(own, browser):
    own.app.run(travels, id="trip-1")
    own.app.run(greet, {"name": "ana"}, id="greet-1")
    with tab(browser, own, "/tasks/trip-1?at=2") as opened:
        opened.get_by_role("button", name="Fork from seq 2").click()
        help = opened.locator("dialog details.schema")
        help.get_by_text("The state of travels").wait_for()
        assert "seat, optional, nights (a whole number), optional" in help.locator("summary").inner_text()
        help.locator("summary").click()
        opened.locator("dialog pre", has_text='"window"').wait_for()
        opened.get_by_label(re.compile("What to change")).fill('{"set": {"seat": "window"}}')
        opened.get_by_label(re.compile("Id of the new task")).fill("trip-2")
        opened.get_by_role("button", name="Fork", exact=True).click()
        opened.locator("h1", has_text="trip-2").wait_for()
        opened.goto(f"{own.url}/tasks/greet-1?at=2")
        opened.get_by_role("button", name="Fork from seq 2").click()
        opened.locator("dialog", has_text="append_facts").wait_for()
        assert opened.locator("dialog details.schema").count() == 0, "its state is not typed"
    assert own.app.resume("trip-2", travels).result == "window"


@pytest.mark.page
def test_the_button_asks_again_and_says_what_came_of_it(own, bank, browser):
    with tab(browser, own, "/inbox") as opened:
        card = opened.locator(".card", has_text="wire-1")
        card.get_by_role("button", name="Ask again").click()
        card.get_by_text("The destination can't tell").wait_for()
        bank.write_text("down")
        opened.seen.expected = ("409",)
        card.get_by_role("button", name="Ask again").click()
        card.get_by_role("alert").get_by_text("504 Gateway Timeout").wait_for()
        card.get_by_text(
            re.compile(r"Asked from this page: [0-9:]+ by ana, it can't tell; .*504 Gateway Timeout")
        ).wait_for()
        bank.write_text("no")
        card.get_by_role("button", name="Ask again").click()
        card.locator(".outcome", has_text="The destination was asked").wait_for()
    settled = next(one.event for one in own.app.events("wire-1") if one.kind == "step_settled")
    assert settled.happened is False


ANSWERS = {
    "bool": (lambda card: card.get_by_role("button", name="No").click(), False),
    "choice": (lambda card: card.get_by_role("button", name="window").click(), "window"),
    "int": (lambda card: _filled(card, {"Answer": "42"}), 42),
    "text": (lambda card: _filled(card, {"Answer": "42"}), "42"),
    "any": (lambda card: _filled(card, {"Answer": "[1, 2]"}), [1, 2]),
    "struct": (lambda card: _filled(card, {"row": "7"}, {"side": "window"}), {"row": 7, "side": "window"}),
}


def _filled(card, texts, chosen=None):
    for label, text in texts.items():
        card.get_by_label(re.compile(f"^{label}")).fill(text)
    for label, text in (chosen or {}).items():
        card.get_by_label(re.compile(f"^{label}")).select_option(text)
    card.get_by_role("button", name="Answer", exact=True).click()


@pytest.mark.page
def test_a_question_of_each_type_has_its_form(own, browser):
    for kind in ANSWERS:
        own.app.run(asks, {"kind": kind}, id=f"q-{kind}")
    with tab(browser, own, "/inbox?kind=question") as opened:
        wrong = opened.locator(".card", has_text="q-int")
        _filled(wrong, {"Answer": "4.5"})
        wrong.get_by_text("is not a whole number").wait_for()
        for kind, (fill, _) in ANSWERS.items():
            card = opened.locator(".card", has_text=f"q-{kind}")
            fill(card)
            card.locator(".outcome", has_text="Answered").wait_for()
    for kind, (_, value) in ANSWERS.items():
        assert own.app.resume(f"q-{kind}", asks).stored_result == value, kind


@pytest.mark.page
def test_a_task_is_started_with_a_form_of_its_input(own, browser):
    with tab(browser, own) as opened:
        opened.get_by_role("button", name="Start a task").click()
        opened.get_by_label("Agent").select_option("greet")
        opened.get_by_role("button", name="Next").click()
        opened.get_by_label(re.compile("^name")).fill("ana")
        opened.get_by_label(re.compile("^loud")).select_option("Yes")
        opened.get_by_label(re.compile("^times")).fill("x")
        opened.get_by_label(re.compile("^Id of")).fill("greet-9")
        opened.get_by_role("button", name="Start", exact=True).click()
        opened.get_by_text("“times” is not a whole number").wait_for()
        opened.get_by_label(re.compile("^times")).fill("2")
        opened.get_by_label(re.compile("^tags")).fill('["a"]')
        opened.get_by_role("button", name="Start", exact=True).click()
        opened.locator("h1", has_text="greet-9").wait_for()
    assert own.app.resume("greet-9", greet).result == "ana True 2 ['a']"


@pytest.mark.page
def test_what_expires_says_when(own, browser):
    own.app.run(asks, {"kind": "any"}, id="soon", expire="2h")
    with tab(browser, own, "/inbox") as opened:
        opened.locator(".card", has_text="soon").get_by_text("the task is cancelled in 1 h 59 m").wait_for()
    assert until(lambda: own.get("/inbox")["entries"])[-1]["expires_ms"]

"""What opens where it stands: folded turns, steps of a child, the common past; columns, hints, a failure as a test."""

import re
import subprocess
import sys
from urllib.parse import quote

import pytest

import holdfast
from holdfast import StatePatch, Task, agent, tool
from holdfast.cli.demo.world import DemoWorld
from holdfast.core import events as ev
from tests.waiting import until
from tests.web.browser import tab
from tests.web.world import ASK, page_of, recap

pytestmark = pytest.mark.page


@agent(loop=True, max_turns=600)
def looping(task: Task, turns: int) -> int | None:
    task.step(len, "abc", name="ask_model")
    return task.turn if task.turn == turns else None


@agent
def cuts(task: Task) -> int:
    return task.step(len, "wood", name="saw")


@agent
def builds(task: Task) -> int:
    task.step(len, "plan", name="measure")
    return task.spawn(cuts)


def test_turns_of_a_loop_are_folded_in_the_waterfall_and_open_by_a_press(tmp_path, browser):
    with holdfast.open(tmp_path / "s.db", durability="process") as app:
        app.run(looping, {"turns": 41}, id="loops")
        app.run(looping, {"turns": 7}, id="short")
    with page_of(tmp_path / "s.db") as page:
        key = page.get("/tasks/loops/steps")["steps"][19]["key"]
        with tab(browser, page, "/tasks/loops") as opened:
            fold = opened.get_by_role("button", name=re.compile(r"turn 2 … 38 · 37 steps"))
            fold.wait_for()
            assert opened.locator(".wrow:not(.lanes)").count() == 5, "the first, the folded, the last three"
            fold.click()
            until(lambda: opened.locator(".wrow:not(.lanes)").count() == 42)
            assert opened.locator(".turn", has_text=re.compile("^turn 20$")).count() == 1
            fold.click()
            until(lambda: opened.locator(".wrow:not(.lanes)").count() == 5)
        with tab(browser, page, f"/tasks/loops?step={quote(key, safe='')}") as opened:
            opened.locator(".wrow.on").wait_for()
            assert opened.locator(".wrow:not(.lanes)").count() == 42, "the chosen step is among the folded ones"
        with tab(browser, page, "/tasks/short") as opened:
            opened.locator(".wrow:not(.lanes)").nth(6).wait_for()
            assert opened.locator(".wrow.folded").count() == 0


@pytest.mark.parametrize("size", ["wide", "phone"])
def test_the_steps_of_a_child_open_in_place(tmp_path, browser, size):
    with holdfast.open(tmp_path / "s.db") as app:
        app.run(builds, id="house")
        child = app.list(parent="house")[0].id
    with page_of(tmp_path / "s.db") as page, tab(browser, page, "/tasks/house", size=size) as opened:
        opener = opened.get_by_label(f"Steps of {child}")
        opener.click()
        inner = opened.locator(".wrow.in", has_text="saw")
        inner.wait_for()
        assert opener.get_attribute("aria-expanded") == "true" and inner.locator(".bar.done").count() == 1
        opener.click()
        until(lambda: inner.count() == 0)
        opener.click()
        inner.get_by_role("button").click()
        opened.locator("h1", has_text=child).wait_for()
        opened.locator(".wrow.on", has_text="saw").wait_for()


def test_the_common_past_of_two_tasks_is_shown_when_asked_for(tmp_path, browser):
    with holdfast.open(tmp_path / "s.db") as app:
        app.run(recap, {"n": 4}, id="one")
        app.fork("one", at=6, id="two", patch=StatePatch(set={"count": 77}), by="ben")
        past = [one.seq for one in app.events("one")][:6]
    with page_of(tmp_path / "s.db") as page, tab(browser, page, "/compare/one/two") as opened:
        opened.locator(".band", has_text="6 events in common").wait_for()
        assert opened.locator(".cmp .past").count() == 0
        opened.get_by_role("button", name="show").click()
        until(lambda: opened.locator(".cmp .past").count() == 12)
        assert [int(one.split()[0]) for one in opened.locator(".cmp .mid").all_inner_texts() if one][:6] == past
        opened.get_by_role("button", name="hide").click()
        until(lambda: opened.locator(".cmp .past").count() == 0)


def test_columns_are_hidden_and_stay_so(tmp_path, browser):
    with holdfast.open(tmp_path / "s.db") as app:
        app.run(cuts, id="t-1")
    with page_of(tmp_path / "s.db") as page, tab(browser, page) as opened:
        opened.locator("td .id").wait_for()
        opened.locator("summary", has_text="Columns").click()
        opened.get_by_label("How it went", exact=True).uncheck()
        until(lambda: not opened.locator("td.c-strip").is_visible())
        assert not opened.locator("th.c-strip").is_visible() and opened.locator("td.c-took").is_visible()
        opened.reload()
        opened.locator("td .id").wait_for()
        assert not opened.locator("td.c-strip").is_visible()
        opened.locator("summary", has_text="Columns").click()
        opened.get_by_label("How it went", exact=True).check()
        until(lambda: opened.locator("td.c-strip").is_visible())


def test_an_empty_store_says_how_to_run_the_demo_where_one_may_write(tmp_path, browser):
    holdfast.open(tmp_path / "s.db").close()
    with page_of(tmp_path / "s.db") as page, tab(browser, page) as opened:
        opened.get_by_role("button", name="Run the demo here").wait_for()
        assert opened.locator(".statebar, .filter").count() == 0, "there is nothing to count or to filter"
        opened.locator(".cmd", has_text="holdfast demo --ui").wait_for()
    with page_of(tmp_path / "s.db", "--read-only") as page, tab(browser, page) as opened:
        opened.get_by_role("heading", name="No task yet").wait_for()
        assert opened.get_by_text("Run the demo here").count() == opened.get_by_text("holdfast demo").count() == 0
        assert page.act("/demo", {})[0] == 403


def test_the_demo_is_run_in_an_empty_store_by_a_button_and_refused_in_another(tmp_path, browser):
    store = tmp_path / "s.db"
    holdfast.open(store).close()
    with page_of(store) as page, tab(browser, page) as opened:
        opened.get_by_role("button", name="Run the demo here").click()
        opened.locator("h1 + .st.running").wait_for()
        opened.locator("h1:has-text('order-7') + .st.interrupted").wait_for()
        opened.locator(".wrow", has_text="charge_card").locator(".bar.doubt").wait_for()
        opened.locator("h1:has-text('order-7') + .st.completed").wait_for()
        assert DemoWorld(f"{store}-world").count("charge") == 1
        status, told = page.act("/demo", {})
        assert (status, told["code"]) == (409, "not-empty") and "holdfast demo --ui" in told["hint"]


def test_a_page_that_ends_ends_the_demo_that_it_began(tmp_path):
    store = tmp_path / "s.db"
    holdfast.open(store).close()
    with page_of(store) as page:
        assert page.act("/demo", {}) == (200, {"task": "order-7"})
        until(lambda: page.get("/tasks/counts")["by_status"].get("running"))
    with holdfast.open(store) as app:
        assert app.get("order-7").interrupted
        head = app.head("order-7")
        assert app.verify("order-7").ok and head == app.head("order-7")


def test_the_demo_is_not_run_beside_a_file_that_is_not_its_own(tmp_path, browser):
    store = tmp_path / "s.db"
    holdfast.open(store).close()
    (tmp_path / "s.db-world").write_text("mine")
    with page_of(store) as page, tab(browser, page) as opened:
        opened.seen.expected = ("400",)
        opened.get_by_role("button", name="Run the demo here").click()
        opened.get_by_role("alert").filter(has_text="exists and is not a demo's").wait_for()
    assert (tmp_path / "s.db-world").read_text() == "mine"


AGENT = """
from holdfast import Task, agent

@agent
def imports(task: Task, rows: list[str], strict: bool, limit: int | None = None) -> str:
    return task.step(lambda: {}["email"], name="write_rows")
"""


def test_a_failure_is_copied_as_a_test_that_passes(tmp_path, browser):
    (tmp_path / "agents.py").write_text(AGENT)
    run = [sys.executable, "-m", "holdfast", "run", "agents.py", "--store", "s.db", "--id", "import-1"]
    given = ["-p", 'rows=["a \\"quoted\\" ü", "b"]', "-p", "strict=true", "-p", "limit=null"]
    subprocess.run([*run, *given], cwd=tmp_path, capture_output=True, check=False)
    allowed = ["clipboard-read", "clipboard-write"]
    address = "/tasks/import-1?tab=failures"
    with page_of(tmp_path / "s.db") as page, tab(browser, page, address, permissions=allowed) as opened:
        opened.get_by_role("button", name="Copy as pytest").click()
        opened.get_by_role("button", name="Copied").wait_for()
        text = opened.evaluate("navigator.clipboard.readText()")
    assert "None" in text and "True" in text, text
    (tmp_path / "test_copied.py").write_text(text)
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_copied.py"]
    ran = subprocess.run(test, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0 and "1 passed" in ran.stdout, ran.stdout


TOPS = "all => all.map(one => Math.round(one.getBoundingClientRect().y))"
"""All at once: what is above them may still be loading."""


def test_the_buttons_of_a_task_stand_in_pairs_on_a_phone(page, browser):
    with tab(browser, page, "/tasks/refund-A1093", size="phone") as opened:
        opened.locator(".acts0 summary").wait_for()
        tops = opened.locator(".acts0 > *").evaluate_all(TOPS)
        assert len(tops) == 4 and tops[0] == tops[1] < tops[2] == tops[3]
    with tab(browser, page, "/tasks/import-crm-771", size="phone") as opened:
        opened.locator(".acts0 summary").wait_for()
        tops = opened.locator(".acts0 > *").evaluate_all(TOPS)
        assert tops[-1] == tops[-2], "Copy as has no row of its own"


@tool(effect="read")
def look_up(order: str) -> dict[str, str]:
    return {"customer": "acme-77"}


CALL = {"id": "c1", "type": "function", "function": {"name": "pay_back", "arguments": '{"reason": "Broken screen"}'}}


@tool(effect="once", risk="payment")
def pay_back(order: str, customer: str, euros: int, reason: str, days: int) -> str:
    return "paid"


@agent
def asks_first(task: Task, order: str) -> str:
    customer = task.call(look_up, order=order)["customer"]
    euros = task.ask("How much?", name="euros")
    task.message({"role": "assistant", "content": None, "tool_calls": [CALL]})
    return task.call(pay_back, order=order, customer=customer, euros=euros, reason="Broken screen", days=14)


def test_an_approval_says_who_wrote_each_value_as_far_as_it_is_known(tmp_path, browser):
    with holdfast.open(tmp_path / "s.db") as app:
        app.run(asks_first, {"order": "A-1093"}, id="back-1", contract={"constraints": ASK})
        app.answer("back-1", "euros", 240, by="ben")
        app.resume("back-1", asks_first)
        seqs = {one.kind: one.seq for one in app.events("back-1")}
        with page_of(tmp_path / "s.db") as page:
            found = page.get("/inbox/back-1/pay_back%231")["origins"]
            said = {name: [(one["who"], one["name"]) for one in places] for name, places in found.items()}
            assert said == {
                "order": [("input", "")],
                "customer": [("tool", "look_up#1")],
                "euros": [("person", "ben")],
                "reason": [("model", "")],
            }, "nothing is said of days, which the code wrote"
            assert found["euros"][0]["seq"] == seqs["wait_ended"]
            assert page.get("/inbox/back-1/nothing%231")["origins"] == {}
            with tab(browser, page, "/inbox") as opened:
                opened.locator(".from", has_text="same as ben gave").wait_for()
                opened.locator(".from", has_text="written by the model").wait_for()
                assert opened.locator(".args .from").count() == 4


def test_a_task_that_has_lost_events_continues_from_what_is_left_when_a_person_says_so(tmp_path, browser):
    with holdfast.open(tmp_path / "s.db") as app:
        app.start("x", {}, id="lost-1")
        app.append("lost-1", ev.TaskDiverged(known_seq=9, known_digest="00", head_seq=1))
        with page_of(tmp_path / "s.db") as page, tab(browser, page, "/inbox") as opened:
            card = opened.locator(".card", has_text="lost-1")
            card.get_by_role("button", name=re.compile("^Continue from what is left")).click()
            assert app.get("lost-1").status == "waiting", "the first press does nothing"
            card.get_by_role("button", name=re.compile("^Yes, continue")).click()
            card.locator(".outcome", has_text="the task is pending").wait_for()
            accepted = next(one.event for one in app.events("lost-1") if one.kind == "divergence_accepted")
            assert accepted.by == "ana"


def test_the_address_of_a_comparison_holds_the_difference_that_is_looked_at(tmp_path, browser):
    with holdfast.open(tmp_path / "s.db") as app:
        app.run(recap, {"n": 4}, id="one")
        app.fork("one", at=6, id="two", patch=StatePatch(set={"count": 77}), by="ben")
    with page_of(tmp_path / "s.db") as page, tab(browser, page, "/compare/one/two") as opened:
        opened.locator(".band.first").wait_for()
        opened.evaluate("window.sameDocument = true")
        opened.keyboard.press("n")
        opened.locator(".cmp .on").first.wait_for()
        opened.keyboard.press("n")
        until(lambda: "at=8" in opened.url)
        assert opened.evaluate("window.sameDocument") is True
        marked = opened.locator(".cmp .on").all_inner_texts()
        opened.reload()
        until(lambda: opened.locator(".cmp .on").all_inner_texts() == marked)


def test_a_task_whose_process_died_says_what_continues_it(tmp_path, browser):
    with holdfast.open(tmp_path / "s.db") as app:
        app.start("x", {}, id="died-1")
        app.append("died-1", ev.TaskClaimed(holder="1-x"))
        with page_of(tmp_path / "s.db") as page, tab(browser, page, "/tasks/died-1") as opened:
            told = opened.locator(".orphaned")
            told.wait_for()
            assert "holdfast resume died-1 FILE" in told.inner_text() and "serves x" in told.inner_text()
            opened.get_by_role("button", name=re.compile("^Cancel …")).click()
            opened.get_by_role("button", name="Cancel the task", exact=True).click()
            until(lambda: "It is asked to stop" in told.inner_text())
            assert opened.get_by_role("button", name=re.compile("^Cancel …")).count() == 0, "it was asked once"
            app.resume("died-1", agent(name="x")(lambda task: None))
            opened.locator("h1 + .st.cancelled").wait_for()
            told.wait_for(state="detached")

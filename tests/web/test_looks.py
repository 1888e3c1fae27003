"""What must be seen on a screen for it to be read: results beside calls, what ended a worker, whole words."""

import json
import subprocess
import sys
from urllib.parse import quote

import pytest

import holdfast
from holdfast import events as ev
from tests.waiting import until
from tests.web.browser import tab
from tests.web.trip import booked
from tests.web.world import fill, page_of

pytestmark = pytest.mark.page
GONE = "gone-1"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("looks") / "store.db"
    with holdfast.open(path) as app:
        fill(app)
        booked(app)
        died_in_step(app)
    with page_of(path) as opened:
        yield opened


def died_in_step(app):
    """A log as a kill leaves it, again and again: the last step was announced and has no outcome."""
    app.start("recap", id=GONE)
    for holder in ("4711-aa", "4712-bb"):
        app.append(GONE, ev.TaskClaimed(holder=holder), ev.StepStarted(key="write#1", name="write"))


def covered(opened, selector):
    """Which of the words that a selector finds cover each other, as pairs."""
    boxes = opened.locator(selector).evaluate_all("all => all.map(one => one.getBoundingClientRect().toJSON())")
    return [
        (one["left"], two["left"])
        for index, one in enumerate(boxes)
        for two in boxes[index + 1 :]
        if one["left"] < two["right"] and two["left"] < one["right"]
    ]


def test_a_step_s_result_is_seen_beside_a_long_call(page, browser):
    with tab(browser, page, "/tasks/trip-oslo-14") as opened:
        row = opened.locator(".wrow", has_text="hold_seat(").first
        call, came = row.locator(".code1").bounding_box(), row.locator(".came").bounding_box()
        label = row.locator(".label").bounding_box()
        assert came["width"] > 70 and came["x"] + came["width"] <= label["x"] + label["width"] + 1
        assert call["x"] + call["width"] <= came["x"] + 1, "they stand beside each other"
        first = opened.locator(".wrow", has_text="turn 1").locator(".code1").bounding_box()
        inner = opened.locator(".wrow.within .code1").first.bounding_box()
        assert inner["x"] < first["x"], "the steps of a turn stand below its name"


def test_a_task_whose_worker_died_ends_there(page, browser):
    """Its timeline ends with its worker and does not grow; the words of two kills do not cover each other."""
    with tab(browser, page, f"/tasks/{GONE}") as opened:
        opened.locator("h1 + .st.interrupted").wait_for()
        opened.locator(".over > i.killed").nth(1).wait_for()
        assert opened.locator(".over > i.now").count() == 0
        before = opened.locator(".wf > header .muted").inner_text()
        opened.wait_for_timeout(2200)
        assert opened.locator(".wf > header .muted").inner_text() == before
        assert not covered(opened, ".over > i.killed > span")
    with tab(browser, page, "/?q=status:interrupted") as opened:
        row = opened.locator("tr", has_text=GONE)
        row.locator(".strip .kill").last.wait_for(state="attached")
        assert row.locator(".why").inner_text().startswith("its process died; write")


def test_the_words_of_lanes_are_whole_or_not_there(page, browser):
    with tab(browser, page, "/tasks/trip-oslo-14") as opened:
        opened.locator(".lane").first.wait_for()
        cut = opened.locator(".lane").evaluate_all(
            "all => all.filter(one => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 6).length"
        )
        assert cut == 0


def test_budgets_stand_in_the_order_in_which_people_ask(page, browser):
    with tab(browser, page, "/tasks/trip-oslo-14") as opened:
        opened.locator(".budget").wait_for()
        names = opened.locator(".budget .k span:first-child").all_inner_texts()
        assert names == ["cost", "tokens", "turns", "calls"]


def test_rolling_back_from_now_asks_to_where(page, browser):
    with tab(browser, page, "/tasks/trip-rome-02") as opened:
        opened.get_by_role("button", name="Roll back …").click()
        opened.get_by_label("Back to seq").fill("99")
        opened.get_by_role("button", name="Roll back", exact=True).click()
        opened.locator("dialog .notice.bad", has_text="must be a whole number from 1 to").wait_for()
        opened.get_by_label("Back to seq").fill("2")
        opened.get_by_role("button", name="Roll back", exact=True).click()
        opened.locator("dialog").wait_for(state="detached")
        until(lambda: any(one[2] == "rolled_back" for one in page.get("/tasks/trip-rome-02/rows")["rows"]))


@pytest.mark.parametrize("tab_name", ["conversation", "failures", "events"])
def test_on_a_phone_a_page_begins_at_its_top(page, browser, tab_name):
    """The row of tabs moves to the tab that is shown; the page does not."""
    with tab(browser, page, f"/tasks/trip-oslo-14?tab={tab_name}&at=9", size="phone") as opened:
        chosen = opened.locator(".tabs [aria-selected=true]")
        chosen.wait_for()
        opened.wait_for_timeout(400)
        assert opened.evaluate("scrollY") == 0
        box = chosen.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390


def test_a_new_screen_takes_the_focus_and_has_a_name(page, browser):
    """Who moves by keyboard or hears the page is not left on a link that is gone."""
    with tab(browser, page) as opened:
        opened.locator("td .id", has_text="wire-0098").click()
        opened.locator("h1", has_text="wire-0098").wait_for()
        until(lambda: opened.evaluate("document.activeElement.id") == "main")
        assert opened.title() == "wire-0098 · Holdfast"
        opened.get_by_role("tab", name="State").click()
        opened.get_by_role("tabpanel", name="State").wait_for()
        for key, name in (("f", "Fork from seq"), ("?", "Keys"), ("/", "Find and commands")):
            opened.keyboard.press(key)
            opened.get_by_role("dialog", name=name).wait_for()
            opened.keyboard.press("Escape")
            opened.locator("dialog").wait_for(state="detached")


ODD = ["$(touch${IFS}x)", '"it\'s;touch"', '"a b\nc\u200bd"', "~root", "#hash", "q`touch${IFS}x`\\", "plain-1/2#1~a"]


def test_a_command_that_is_copied_holds_what_was_typed_as_one_word(page, browser, tmp_path):
    """A filter may come with a link of another person: pasted into a shell it is an argument, and starts nothing."""
    for text in ODD:
        with tab(browser, page, f"/audit?q={quote(f'tool:{text}')}") as opened:
            opened.locator("summary", has_text="Copy as").click()
            ways = opened.locator(".sheet code").evaluate_all("all => all.map(one => one.textContent)")
            assert words(ways[0], tmp_path) == ["holdfast", "audit", "--tool", text, "--json"]
            assert len(words(ways[2], tmp_path)) == 4 and words(ways[2], tmp_path)[-1].startswith(page.url)
    with tab(browser, page, f"/?q={quote('id:a*' + chr(10) + 'touch x')}") as opened:
        opened.locator("summary", has_text="Copy as").click()
        assert opened.locator(".sheet code").first.evaluate("one => one.textContent.includes('\\n')") is False
    told = page.get("/inbox")["entries"]
    assert {words(one["commands"][0], tmp_path)[2] for one in told} >= {"refund-A1093", "wire-0098"}


def words(command, folder):
    """The words that bash makes of a command; it must make nothing else."""
    code = "import json, sys; json.dump(sys.argv[1:], sys.stdout)"
    ran = subprocess.run(
        ["bash", "-c", f'"$0" -c "$1" {command}', sys.executable, code],
        capture_output=True,
        check=True,
        cwd=folder,
        env={"LC_ALL": "C.UTF-8", "TOKEN": "t"},
    )
    assert not (folder / "x").exists()
    return json.loads(ran.stdout)


def test_in_forced_colours_what_is_chosen_is_outlined(page, browser):
    """Backgrounds and shadows are gone there: the chosen card, row, option and view have an outline."""
    chosen = {
        "/inbox": (".card.sel", ".kinds [aria-pressed=true]"),
        "/tasks/trip-oslo-14?step=1%2Fmodel%231": (".wrow.on", "[aria-selected=true]", ".nav [aria-current]"),
        "/?q=status%3Afailed": (".statebar [aria-pressed=true]",),
    }
    for path, selectors in chosen.items():
        with tab(browser, page, path, forced_colors="active") as opened:
            for selector in selectors:
                one = opened.locator(selector).first
                one.wait_for()
                assert one.evaluate("one => getComputedStyle(one).outlineStyle") == "solid", (path, selector)
    with tab(browser, page, forced_colors="active") as opened:
        opened.locator("td .id").first.wait_for()
        opened.keyboard.press("/")
        found = opened.locator("dialog [aria-selected=true]")
        found.wait_for()
        assert found.evaluate("one => getComputedStyle(one).outlineStyle") == "solid"


def test_what_differs_has_a_sign_and_not_only_a_colour(page, browser):
    with tab(browser, page, "/compare/recap-standup-1117/import-crm-771") as opened:
        opened.locator(".cmp .x").first.wait_for()
        signs = opened.locator(".cmp .mid", has_text="≠").count()
        assert signs > 0 and signs >= opened.locator(".cmp .x").count() / 2

"""Access for all: axe's rules on every screen, everything by keyboard, narrow screens, reduced motion."""

import importlib.util
import re
from pathlib import Path

import pytest

import holdfast
from tests.waiting import until
from tests.web.browser import tab
from tests.web.test_screens import SCREENS
from tests.web.world import page_of

pytestmark = pytest.mark.page
MORE = {
    "/compare/recap-standup-1117/import-crm-771": ".cmp",
    "/tasks/recap-standup-1117?view=events": "table.events",
    "/tasks/recap-standup-1117?time=real": ".wrow",
    "/inbox/wire-0098/doubt/bank_transfer%231": ".card",
    "/?q=status%3Afailed": "td .id",
    "/?q=cost%3E3": ".notice.bad",
    "/tasks/not-there": ".card.alone",
}
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


def axe():
    """The rules of axe-core, from a wheel that carries them."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe-playwright-python is not installed")
    return (Path(found.origin).parent / "axe.min.js").read_text("utf-8")


def findings(opened, rules):
    """What axe finds, each rule with the elements it is about."""
    opened.evaluate(rules)
    told = opened.evaluate("rules => axe.run(document, {runOnly: {type: 'tag', values: rules}})", RULES)
    return {one["id"]: [node["html"][:160] for node in one["nodes"]][:3] for one in told["violations"]}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", ["wide", "phone"])
def test_axe_finds_nothing_on_any_screen(page, browser, size, theme):
    rules, found = axe(), {}
    for path, wanted in {**SCREENS, **MORE}.items():
        with tab(browser, page, path, size=size, theme=theme) as opened:
            opened.seen.expected = ("404", "400")
            opened.locator(wanted).first.wait_for()
            opened.wait_for_timeout(150)
            found |= {f"{path} {name}": nodes for name, nodes in findings(opened, rules).items()}
    assert not found, found


def press(*keys):
    def act(opened):
        for key in keys:
            opened.keyboard.press(key)

    return act


def click(name):
    return lambda opened: opened.get_by_role("button", name=name).first.click()


OPENED = {
    "keys": ("/", press("?"), "dialog.help"),
    "finder": ("/", press("/"), "dialog.finder"),
    "fork": ("/tasks/recap-standup-1117", press("f"), "dialog"),
    "cancel": ("/tasks/trip-rome-02", click("Cancel …"), "dialog"),
    "resume": ("/tasks/import-crm-771", press("r"), "dialog"),
    "roll back": ("/tasks/trip-rome-02?at=4", click("Roll back …"), "dialog"),
    "an armed approval": ("/inbox", press("a"), ".armed"),
    "a chosen row": ("/", press("j", "x"), "tr.chosen"),
    "a past step": ("/tasks/recap-standup-1117", press("j", "ArrowLeft"), ".insp"),
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", ["wide", "phone"])
def test_axe_finds_nothing_in_what_opens_over_a_screen(page, browser, size, theme):
    rules, found = axe(), {}
    for name, (path, act, wanted) in OPENED.items():
        with tab(browser, page, path, size=size, theme=theme) as opened:
            opened.locator(".live:has-text('Live')").wait_for()
            act(opened)
            opened.locator(wanted).first.wait_for()
            found |= {f"{name} {rule}": nodes for rule, nodes in findings(opened, rules).items()}
    assert not found, found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_where_there_is_no_session_no_task_and_no_server(tmp_path, browser, theme):
    rules, store, found = axe(), tmp_path / "store.db", {}
    holdfast.open(store).close()
    with page_of(store) as empty, tab(browser, empty, theme=theme) as opened:
        opened.locator("text=No task yet").wait_for()
        found |= {f"empty {name}": nodes for name, nodes in findings(opened, rules).items()}
        stranger = browser.new_context(color_scheme=theme).new_page()
        stranger.goto(empty.url)
        stranger.locator("text=Open the link that holdfast ui printed").wait_for()
        found |= {f"entrance {name}": nodes for name, nodes in findings(stranger, rules).items()}
        stranger.context.close()
        opened.seen.expected = ("ERR_",)
        empty.process.kill()
        opened.locator(".notice.bad").wait_for()
        found |= {f"away {name}": nodes for name, nodes in findings(opened, rules).items()}
    assert not found, found


def test_in_forced_colours_every_status_and_bar_is_still_seen(page, browser):
    """Colours of the system alone: words stay, bars have outlines, and what has the focus is outlined."""
    for path, wanted in SCREENS.items():
        with tab(browser, page, path, forced_colors="active") as opened:
            opened.locator(wanted).first.wait_for()
            assert opened.evaluate("matchMedia('(forced-colors: active)').matches")
            for one in opened.locator(".st:visible").all()[:10]:
                assert one.inner_text().strip() or one.locator("svg").count(), path
    with tab(browser, page, "/tasks/import-crm-771", forced_colors="active") as opened:
        opened.locator(".bar").first.wait_for()
        for one in opened.locator(".bar:visible").all():
            line = one.evaluate(
                "one => { const is = getComputedStyle(one); return is.borderTopWidth + is.outlineWidth }"
            )
            keeps = one.evaluate("one => getComputedStyle(one).forcedColorAdjust")
            assert keeps == "none" or line != "0px0px", one.get_attribute("class")


def test_at_twice_the_size_nothing_is_cut_or_scrolls_sideways(page, browser):
    """Zoom of 200 % is half as many pixels of the style sheet."""
    for path, wanted in SCREENS.items():
        with tab(browser, page, path, device_scale_factor=2) as opened:
            opened.set_viewport_size({"width": 640, "height": 430})
            opened.locator(wanted).first.wait_for()
            assert opened.evaluate("document.documentElement.scrollWidth") <= 640, path


@pytest.mark.parametrize(("size", "least"), [("wide", 24), ("phone", 44)])
def test_what_is_pressed_is_large_enough(page, browser, size, least):
    """Buttons and tabs; links within text are exempt, as WCAG 2.5.8 has it. All of a step's row presses its button."""
    small = {}
    for path, wanted in SCREENS.items():
        with tab(browser, page, path, size=size) as opened:
            opened.locator(wanted).first.wait_for()
            for box in opened.evaluate(PRESSED):
                if box["height"] < least - 0.5 and box["width"] > 0:
                    small.setdefault(f"{path} {box['name']}", box["height"])
    assert not small, small


PRESSED = """() => [...document.querySelectorAll("button, li.wrow, [role=tab], nav a, select, .field")]
  .filter(one => !one.matches(".link, .src, .label"))
  .filter(one => one.checkVisibility()).map(one => {
    const box = one.getBoundingClientRect();
    return {height: box.height, width: box.width, name: `${one.className} ${one.textContent}`.slice(0, 60)};
  })"""


@pytest.mark.parametrize("path", ["/", "/tasks/refund-A1093", "/inbox", "/audit", "/workers"])
def test_what_has_the_focus_is_seen_and_not_under_the_bar(page, browser, path):
    with tab(browser, page, path) as opened:
        opened.locator(".live:has-text('Live')").wait_for()
        reached = set()
        for _ in range(40):
            opened.keyboard.press("Tab")
            one = opened.evaluate(FOCUSED)
            if one is None or (one["name"] in reached and one["name"].startswith("Skip")):
                break
            reached.add(one["name"])
            assert one["outlined"], one
            assert one["inBar"] or one["top"] >= one["bar"] - 1, one
        assert len(reached) >= 6


FOCUSED = """() => {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const bar = document.querySelector("header.top");
  const marked = (at) => {
    const is = getComputedStyle(at);
    return (is.outlineStyle !== "none" && parseFloat(is.outlineWidth) > 0) || is.boxShadow !== "none";
  };
  return {name: (one.textContent || one.getAttribute("aria-label") || one.tagName).slice(0, 40),
    top: one.getBoundingClientRect().top, outlined: marked(one) || marked(one.closest("form, .rng, label") || one),
    inBar: bar.contains(one), bar: bar.getBoundingClientRect().bottom};
}"""


def test_at_320_pixels_nothing_scrolls_sideways(page, browser):
    for path, wanted in SCREENS.items():
        with tab(browser, page, path, size="phone") as opened:
            opened.set_viewport_size({"width": 320, "height": 700})
            opened.locator(wanted).first.wait_for()
            assert opened.evaluate("document.documentElement.scrollWidth") <= 320, path


def test_with_reduced_motion_nothing_turns(page, browser):
    with tab(browser, page, reduced_motion="reduce") as opened:
        opened.locator("td .id").first.wait_for()
        spinning = opened.locator(".spin").first.evaluate("one => getComputedStyle(one).animationName")
        assert spinning == "none"


def test_a_tour_by_keyboard_alone(page, browser):
    """From the list to a step of a task, to its past, to the inbox, without a pointer."""
    with tab(browser, page) as opened:
        opened.locator("td .id").first.wait_for()
        opened.keyboard.press("Tab")
        assert opened.evaluate("document.activeElement.textContent") == "Skip to content"
        for _ in range(3):
            opened.keyboard.press("j")
        opened.keyboard.press("Enter")
        opened.locator(".wrow").first.wait_for()
        opened.keyboard.press("j")
        opened.locator(".insp").wait_for()
        opened.keyboard.press("ArrowLeft")
        opened.locator(".notice.past").wait_for()
        opened.keyboard.press("e")
        opened.locator("table.events").wait_for()
        opened.keyboard.press("g")
        opened.keyboard.press("i")
        opened.locator(".card.sel").wait_for()
        opened.keyboard.press("?")
        opened.locator("dialog.help").wait_for()
        opened.keyboard.press("Escape")
        opened.locator("dialog.help").wait_for(state="detached")
        opened.keyboard.press("/")
        opened.locator("dialog.finder input:focus").wait_for()
        opened.keyboard.type("wire")
        opened.locator("dialog li", has_text="wire-0098").wait_for()
        opened.keyboard.press("Enter")
        opened.locator("h1", has_text="wire-0098").wait_for()


def test_every_act_is_done_by_keyboard_alone(own, browser):
    """Approve, settle, answer, fork and cancel, without a pointer: keys, Tab, Enter and typed text."""
    with tab(browser, own, "/inbox") as opened:
        opened.locator(".card.sel", has_text="refund-A1093").wait_for()
        press("a", "Enter")(opened)
        opened.locator(".outcome", has_text="Approved").wait_for()
        press("j")(opened)
        opened.locator(".card.sel", has_text="wire-0098").wait_for()
        press("n", "Enter")(opened)
        opened.locator(".outcome", has_text="Settled").wait_for()
        opened.get_by_label("Answer").focus()
        opened.keyboard.type("by train")
        opened.keyboard.press("Enter")
        opened.locator(".outcome", has_text="Answered").wait_for()
        press("g", "t")(opened)
        opened.locator("td .id").first.wait_for()
        opened.goto(f"{own.url}/tasks/recap-standup-1117?at=6")
        opened.locator(".notice.past").wait_for()
        press("f")(opened)
        opened.locator("dialog").wait_for()
        opened.get_by_label("Id of the new task").focus()
        opened.keyboard.type("by-keys")
        opened.keyboard.press("Enter")
        opened.locator("h1", has_text="by-keys").wait_for()
    assert own.app.get("trip-rome-02").status == "pending" and own.app.head("by-keys")
    assert [one.event.by for one in own.app.events("refund-A1093") if one.kind == "approval_given"] == ["ana"]


def test_single_letters_can_be_switched_off(own, browser):
    with tab(browser, own, "/inbox") as opened:
        opened.locator(".card.sel").wait_for()
        press("?")(opened)
        opened.get_by_label("Switch single letters off").check()
        press("Escape", "a", "Enter")(opened)
        assert opened.locator(".armed").count() == 0
    assert own.app.get("refund-A1093").status == "waiting"


def test_readers_of_screens_are_told_of_the_moment_and_of_each_step(page, browser):
    with tab(browser, page, "/tasks/import-crm-771") as opened:
        opened.locator(".wrow .label").first.wait_for()
        assert "failed try" in opened.locator("li.wrow").first.inner_text()
        opened.keyboard.press("Home")
        assert re.match(r"seq 1 of \d+, created", opened.locator("#seq").get_attribute("aria-valuetext"))
        until(lambda: "seq 1 of" in opened.locator("main [role=status].vh").inner_text())

"""Access for all: axe's rules on every screen, everything by keyboard, narrow screens, reduced motion."""

import importlib.util
from pathlib import Path

import pytest

from tests.web.browser import tab
from tests.web.test_screens import SCREENS

pytestmark = pytest.mark.page
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


def axe():
    """The rules of axe-core, from a wheel that carries them."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe-playwright-python is not installed")
    return (Path(found.origin).parent / "axe.min.js").read_text("utf-8")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", ["wide", "phone"])
def test_axe_finds_nothing_on_any_screen(page, browser, size, theme):
    rules, found = axe(), {}
    for path, wanted in SCREENS.items():
        with tab(browser, page, path, size=size, theme=theme) as opened:
            opened.locator(wanted).first.wait_for()
            opened.evaluate(rules)
            told = opened.evaluate("rules => axe.run(document, {runOnly: {type: 'tag', values: rules}})", RULES)
            for one in told["violations"]:
                found[f"{path} {one['id']}"] = [node["html"][:160] for node in one["nodes"]][:3]
    assert not found, found


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

"""Access for all on the screens of a task's contents, of people, and of forms: axe's rules, 320 pixels."""

import pytest

import holdfast
from tests.web.acts_agents import asks
from tests.web.browser import tab
from tests.web.test_access import RULES, axe
from tests.web.trip import booked
from tests.web.world import fill, page_of

pytestmark = pytest.mark.page

SCREENS = {
    "/?q=status:waiting agent:refunds": ".chip",
    "/tasks/trip-oslo-14?tab=conversation": ".tool",
    "/tasks/trip-oslo-14?tab=knowledge": ".decision",
    "/tasks/trip-oslo-14?tab=artifacts": ".artifacts",
    "/tasks/trip-oslo-14?tab=events&at=9": "aside pre",
    "/tasks/import-crm-771?tab=failures": ".failure",
    "/inbox?kind=question": ".form",
    "/users": ".names a",
    "/users/ana": "td .id",
    "/threads": ".names a",
    "/threads/standup": ".chat",
    "/workers": ".tile",
    "/audit?q=since:24h": ".chip",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("access") / "store.db"
    with holdfast.open(path) as app:
        fill(app)
        booked(app)
        for kind in ("bool", "struct"):
            app.run(asks, {"kind": kind}, id=f"asks-{kind}")
    with page_of(path) as opened:
        yield opened


@pytest.mark.parametrize(
    ("size", "theme"), [("wide", "light"), ("wide", "dark"), ("phone", "light"), ("phone", "dark")]
)
def test_axe_finds_nothing_on_the_other_screens(page, browser, size, theme):
    rules, found = axe(), {}
    for path, wanted in SCREENS.items():
        with tab(browser, page, path, size=size, theme=theme) as opened:
            opened.locator(wanted).first.wait_for()
            opened.evaluate(rules)
            told = opened.evaluate("rules => axe.run(document, {runOnly: {type: 'tag', values: rules}})", RULES)
            for one in told["violations"]:
                found[f"{path} {one['id']}"] = [node["html"][:200] for node in one["nodes"]][:3]
            opened.set_viewport_size({"width": 320, "height": 700})
            beyond = opened.evaluate("document.documentElement.scrollWidth - 320")
            if beyond > 0:
                found[f"{path} at 320 px"] = beyond
    assert not found, found


def test_axe_finds_nothing_in_dialogs_and_the_palette(page, browser):
    rules = axe()
    opens = {
        "/": lambda one: one.keyboard.press("/"),
        "/inbox": lambda one: one.keyboard.press("?"),
        "/tasks/trip-oslo-14?tab=artifacts": lambda one: one.get_by_role("button", name="Open as text").first.click(),
        "/tasks/trip-oslo-14": lambda one: one.get_by_role("button", name="Fork from here").click(),
    }
    for path, press in opens.items():
        with tab(browser, page, path) as opened:
            opened.locator("h1").wait_for()
            press(opened)
            opened.locator("dialog[open]").wait_for()
            opened.evaluate(rules)
            told = opened.evaluate("rules => axe.run(document, {runOnly: {type: 'tag', values: rules}})", RULES)
            assert not told["violations"], (path, [one["nodes"][0]["html"][:200] for one in told["violations"]])

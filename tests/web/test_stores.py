"""Every screen over SQLite and over PostgreSQL, side by side: the same words in the same places."""

import re

import pytest

import holdfast
from tests.web.browser import tab
from tests.web.test_screens import SCREENS
from tests.web.world import fill, page_of, recap

pytestmark = pytest.mark.page

# Times, durations, pids, digests and random keys differ from run to run.
VARIES = re.compile(
    r"\b[0-9a-f]{7,}…?|\d+:\d\d(:\d\d)?|process [0-9a-f]+|(\d+ [dhm] )?\d+(\.\d+)? ?(ms|s|m|h|d)\b|\bnow\b|\d+\.\d+"
)


# Marks of time move on while a task waits, so they are left out of the very text in which they stand.
SAID = """() => {
  const axes = [...document.querySelectorAll("main .over")].map(one => one.innerText);
  return axes.reduce((text, one) => text.replace(one, " "), document.querySelector("main").innerText);
}"""


def words(opened):
    """What a screen says, without what differs from run to run; waits until it says no more."""
    before = ""
    for _ in range(40):
        said = opened.evaluate(SAID)
        if said == before and "Reading" not in said and "checking" not in said:
            break
        before = said
        opened.wait_for_timeout(150)
    return [one for one in re.split(r"\s+", VARIES.sub(" ", said)) if one not in ("", "\u2013")]


@pytest.fixture(scope="module")
def both(tmp_path_factory, postgres_databases):
    """Two pages over the same tasks."""
    store, url = tmp_path_factory.mktemp("both") / "store.db", postgres_databases.new()
    try:
        for one in (store, url):
            with holdfast.open(one) as app:
                fill(app)
                app.fork("recap-standup-1117", at=6, id="recap-2", by="ben")
                app.resume("recap-2", recap)
        with page_of(store) as sqlite, page_of(url) as postgres:
            yield sqlite, postgres
    finally:
        postgres_databases.drop(url)


@pytest.mark.parametrize("path", [*SCREENS, "/compare/recap-standup-1117/recap-2", "/inbox/wire-0098/doubt/x"])
def test_a_screen_says_the_same_over_both_stores(both, browser, path):
    said = []
    for page in both:
        with tab(browser, page, path) as opened:
            opened.locator(SCREENS.get(path, "main h1, main .cmp")).first.wait_for()
            opened.locator(".live:has-text('Live')").wait_for()
            said.append(words(opened))
    assert said[0] == said[1] and len(said[0]) > 8


def test_an_act_and_a_change_of_another_process_show_alike(both, browser):
    for page in both:
        with tab(browser, page, "/tasks/trip-rome-02") as opened, tab(browser, page, "/") as listed:
            listed.locator("td .id").first.wait_for()
            opened.get_by_label("Answer").fill("yes")
            opened.get_by_role("button", name="Answer").click()
            opened.locator("h1 + .st.pending").wait_for()
            listed.locator("tr", has_text="trip-rome-02").locator(".st.pending").wait_for()

"""Much of everything: tasks, events, children, turns, bytes, tabs; and nothing at all, when no one watches.

What takes time is measured by `python -m benchmarks page`; here are numbers that hold on any machine.
"""

import asyncio
import json
import re
import time

import pytest
from benchmarks.reading import fill as fill_many

import holdfast
from holdfast import Task, agent
from holdfast.web.feed import Feeds
from holdfast.web.reading.tasks import MOMENT
from holdfast.web.requests.site import Settings, Site
from tests.waiting import until
from tests.web.browser import tab
from tests.web.statements import Asking, counted, listening
from tests.web.world import fill, page_of, recap

pytestmark = pytest.mark.page


def test_the_first_screen_of_many_tasks_takes_six_statements(tmp_path):
    with counted() as sent, holdfast.open(tmp_path / "store.db", durability="process") as app:
        fill_many(app, 20_000)
        asking = Asking(app)
        sent.taken()
        _, tasks, counts, _ = asking.get("/about", "/tasks", "/tasks/counts", "/rates")
        assert len(sent.taken()) <= 6
        assert len(json.loads(tasks)["tasks"]) == 50 and json.loads(counts)["tasks"] == 20_000
        asking.get("/tasks/counts", "/rates")
        assert sent.taken() == [], "kept for a second"
        asking.close()


def reads(path, tabs):
    """The statements of some tabs that listen while ten events come; then those of ten seconds without one."""

    async def listen(app, sent):
        def events():
            sent.taken()
            for number in range(10):
                app.signal("trip-rome-02", "last" if number == 9 else "more", number)

        await listening(Feeds(Site(app, Settings(), None)), "trip-rome-02", tabs, events)
        during = sent.taken()
        await asyncio.sleep(10 if tabs > 1 else 0)
        return during, sent.taken()

    with counted() as sent, holdfast.open(path) as app:
        fill(app)
        return asyncio.run(listen(app, sent))


def test_fifty_tabs_send_the_statements_of_one_and_when_they_have_left_none_is_sent(tmp_path):
    one, _ = reads(tmp_path / "1.db", 1)
    many, after = reads(tmp_path / "50.db", 50)
    assert after == [], "no one watches, so nothing is read"

    def of(sent, word):
        return sum(word in one for one in sent)

    assert of(many, "from events where log = :log") <= 2 * of(one, "from events where log = :log"), "each event once"
    assert len(many) <= 2 * len(one), "how often it is looked depends on how long it took, and not on tabs"
    assert of(many, "task_counts") <= 3, "counts at most once a second"


def test_a_hidden_tab_falls_silent_and_a_shown_one_catches_up(own, browser):
    with tab(browser, own, "/tasks/trip-rome-02") as opened:
        opened.locator(".live:has-text('Live')").wait_for()
        opened.clock.install()
        opened.reload()
        opened.locator(".live:has-text('Live')").wait_for()
        asked = []
        opened.on("request", lambda one: asked.append(one.url))
        hide(opened, hidden=True)
        opened.clock.fast_forward(61_000)
        opened.locator(".live", has_text="Paused").wait_for()
        asked.clear()
        own.app.signal("trip-rome-02", "while-hidden", 1, by="ben")
        opened.clock.fast_forward(30_000)
        time.sleep(1)
        assert asked == []
        hide(opened, hidden=False)
        opened.clock.run_for(1_000)
        opened.locator("#seq").wait_for()
        head = own.app.head("trip-rome-02")
        until(lambda: opened.clock.run_for(100) or opened.locator("#seq").get_attribute("max") == str(head))
        assert asked, "it listens again"


def hide(opened, *, hidden):
    """As the browser does when another tab is shown."""
    opened.evaluate(
        """(hidden) => {
          Object.defineProperty(document, "hidden", {configurable: true, get: () => hidden});
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


# In the browser


@agent(loop=True, max_turns=600)
def many_turns(task: Task) -> int | None:
    task.step(lambda: task.turn, name="think")
    task.state.at = task.turn
    return task.turn if task.turn == 500 else None


@agent
def leaf(task: Task, n: int) -> int:
    return n


@agent
def parent(task: Task, n: int) -> int:
    return len([task.spawn(leaf, {"n": number}) for number in range(n)])


@agent
def large(task: Task) -> str:
    task.state.text = "x" * 2_000_000
    task.fact("page", "y" * 2_000_000, source="a crawler")
    task.message({"role": "user", "content": "z" * 2_000_000})
    return task.step(lambda: "w" * 2_000_000, name="read")


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    store = tmp_path_factory.mktemp("many") / "store.db"
    with holdfast.open(store, durability="process") as app:
        app.run(recap, {"n": 3300}, id="long")
        app.run(many_turns, id="turns")
        app.run(parent, {"n": 1000}, id="parent")
        app.run(large, id="large")
        with page_of(store) as page:
            page.app = app
            yield page


def test_the_slider_asks_at_most_once_in_five_hundred_events(many, browser):
    """Once is a document and what changed since; the event before the first of a block lies in the block before."""
    head = many.app.head("long")
    assert head > 9_900
    with tab(browser, many, "/tasks/long") as opened:
        opened.locator("li.wrow").nth(3).wait_for()
        opened.locator(".statep .kv").wait_for()
        asked = []
        opened.on("request", lambda one: asked.append(one.url.partition("/api/v1/tasks/long")[2]))
        for seq in range(5_002, 5_500, 24):
            opened.locator("#seq").fill(str(seq))
            opened.locator("h2", has_text=f"State at seq {seq}").wait_for()
        told = sorted(one.partition("?")[0] for one in asked if one)  # a browser asks for the icon with each address
        assert told == ["/deltas", "/state"], asked
        opened.get_by_role("button", name="JSON").click()
        shown = json.loads(opened.locator("pre[data-doc]").evaluate("one => one.textContent"))
        assert shown == json.loads(json.dumps(many.app.at("long", 5_482).to_dict(sections=MOMENT), default=str))


@pytest.mark.parametrize("path", ["/tasks/long", "/tasks/long?view=events", "/tasks/turns", "/tasks/parent"])
def test_few_rows_are_drawn_however_many_there_are(many, browser, path):
    with tab(browser, many, path) as opened:
        opened.locator("li.wrow, tr[data-seq]").nth(3).wait_for()
        assert opened.locator(".wrow, .wrow *").count() <= 400
        assert opened.locator("tr[data-seq]").count() <= 400


def test_five_hundred_turns_are_reached_by_scrolling(many, browser):
    with tab(browser, many, "/tasks/turns") as opened:
        opened.locator(".turn", has_text=re.compile("^turn 1$")).wait_for()
        opened.locator(".wrow.folded button").click()  # the turns between the first and the last three
        opened.locator(".wscroll").evaluate("one => { one.scrollTop = one.scrollHeight }")
        opened.locator(".turn", has_text=re.compile("^turn 500$")).wait_for()


def test_a_thousand_children_are_rows_and_the_header_stays_short(many, browser):
    with tab(browser, many, "/tasks/parent") as opened:
        opened.locator("li.wrow", has_text="parent").first.wait_for()
        assert opened.locator(".crumb a").count() <= 40
        opened.locator(".wscroll").evaluate("one => { one.scrollTop = one.scrollHeight }")
        last = many.get("/tasks/parent/steps")["steps"][-1]["child"]
        opened.locator("li.wrow", has_text=last).wait_for()


@pytest.mark.parametrize("tail", ["", "?tab=state", "?tab=conversation", "?tab=events", "?step=read%231"])
def test_values_of_two_megabytes_are_cut_with_a_count_of_what_is_hidden(many, browser, tail):
    with tab(browser, many, f"/tasks/large{tail}") as opened:
        opened.locator(".live:has-text('Live')").wait_for()
        opened.locator("h1.tid").wait_for()
        if tail in ("?tab=conversation", "?step=read%231"):
            opened.locator("main").get_by_text("1.9 MB in all").first.wait_for()
        assert until(lambda: opened.locator("main").evaluate("one => one.textContent.length")) < 40_000


@pytest.mark.parametrize("path", ["", "/steps", "/rows", "/messages", "/steps/read%231"])
def test_answers_hold_no_large_value_whole(many, path):
    body = json.dumps(many.get(f"/tasks/large{path}"))
    assert len(body) < 40_000

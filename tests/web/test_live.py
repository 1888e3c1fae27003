"""The page while things happen, in a real browser: a task is killed and another process takes over; the server dies."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import holdfast
from holdfast import Task, agent
from holdfast.cli.demo import agent as demo_agent
from holdfast.cli.demo.world import DemoWorld
from tests.waiting import until
from tests.web.browser import tab
from tests.web.world import page_of

OVER = ("sqlite", "postgres")
TASK = demo_agent.TASK


def work(store, *more):
    """A process that works on the demo's order."""
    command = [sys.executable, "-P", demo_agent.__file__, str(store), *more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)


def rows_shown(opened):
    """The events on screen: seq, verb, about."""
    found = opened.locator("table.events tr[data-seq]").evaluate_all(
        "rows => rows.map(row => [Number(row.dataset.seq), ...[...row.cells].slice(2, 4).map(one => one.textContent)])"
    )
    return [tuple(one) for one in found]


def rows_of_the_command_line(store):
    ran = subprocess.run(
        [sys.executable, "-m", "holdfast", "log", TASK, "--json", "--store", str(store)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [(one["seq"], one["verb"], one["about"]) for one in json.loads(ran.stdout)]


def test_a_killed_process_is_seen_to_die_and_another_to_take_over(tmp_path, browser):
    """Step 6 runs, its process gets SIGKILL, the lane ends; a second process settles the call in doubt. No reload."""
    store = tmp_path / "demo.db"
    holdfast.open(store).close()
    with page_of(store) as page, tab(browser, page, "/") as opened:
        opened.locator("text=No task yet").wait_for()
        first = work(store, "--crash")
        opened.locator("tr", has_text=TASK).first.wait_for()
        opened.evaluate("window.sameDocument = true")
        opened.locator("a.id", has_text=TASK).click()
        opened.locator(".wrow", has_text="charge_card").wait_for()
        opened.locator("h1:has-text('order-7') + .st.interrupted").wait_for()
        assert first.wait(10) == -signal.SIGKILL
        opened.locator(".lane.gone", has_text=f"process {first.pid}").wait_for()
        opened.locator(".over .killed").first.wait_for()
        assert opened.locator(".bar.run.open").count() == 1, "step 6 was announced, and has no outcome"
        bar, kill = opened.evaluate(
            "['.bar.run.open', '.over .killed'].map(one => document.querySelector(one).getBoundingClientRect().right)"
        )
        assert bar <= kill + 6, "what ran ends with its process"
        second = work(store)
        opened.locator(".wrow", has_text="charge_card").locator(".bar.doubt").wait_for()
        opened.locator("h1:has-text('order-7') + .st.completed").wait_for()
        assert second.wait(10) == 0
        opened.locator(".lane.freed", has_text=f"process {second.pid}").wait_for()
        assert opened.locator(".lane.gone", has_text=f"process {first.pid}").count() == 1
        assert DemoWorld(f"{store}-world").count("charge") == 1
        opened.get_by_role("tab", name=re.compile("Events")).click()
        opened.locator("label", has_text="small write").click()
        wanted = rows_of_the_command_line(store)
        until(lambda: rows_shown(opened) == wanted)
        assert "died; the next process continues" in opened.locator("tr.died").inner_text()
        doubted, settled = (opened.locator("tr[data-seq]", has_text=one) for one in ("in doubt", "settled"))
        assert [int(one.first.get_attribute("data-seq")) for one in (doubted, settled)] == sorted(
            seq for seq, verb, _ in wanted if verb in ("in doubt", "settled")
        ), "in doubt, then settled, once each"
        assert opened.evaluate("window.sameDocument") is True, "nothing was loaded anew"


PAYS = """
import os, signal
from pathlib import Path
from holdfast import Call, DidNotHappen, Happened, Task, agent, tool

world = Path(os.environ["WORLD"])

def ask(call: Call):
    return Happened("paid") if world.exists() else DidNotHappen()

@tool(effect="once", reconcile=ask, reconcile_after="500ms")
def charge(euros: int) -> str:
    with world.open("a") as file:
        file.write("charged\\n")
    if "DIES" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"

@agent
def pays(task: Task) -> str:
    task.step(len, "two", name="count")
    return task.call(charge, euros=44)
"""


@pytest.mark.page
def test_a_killed_worker_is_seen_to_die_and_another_to_take_over(address, tmp_path, browser):
    (tmp_path / "pays.py").write_text(PAYS)
    command = [sys.executable, "-m", "holdfast", "worker", str(tmp_path / "pays.py"), "--store", str(address)]
    world = tmp_path / "world"

    def worker(**more):
        told = {**os.environ, "WORLD": str(world), **more}
        return subprocess.Popen(command, env=told, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    with holdfast.open(address) as app, page_of(address) as page:
        app.start("pays", id="pays-1")
        with tab(browser, page, "/tasks/pays-1") as opened:
            opened.locator("h1 + .st.pending").wait_for()
            opened.evaluate("window.sameDocument = true")
            first = worker(DIES="1")
            assert first.wait(30) == -signal.SIGKILL
            opened.locator("h1:has-text('pays-1') + .st.interrupted").wait_for()
            opened.locator(".over .killed").first.wait_for()
            named = opened.locator(".lane.gone").inner_text()
            second = worker()
            try:
                opened.locator(".wrow", has_text="charge").locator(".bar.doubt").wait_for()
                opened.locator("h1 + .st.completed").wait_for()
            finally:
                second.terminate()
                second.wait(20)
            lanes = opened.locator(".lane")
            assert (
                lanes.count() == 2
                and lanes.first.inner_text().startswith(named)
                and named not in lanes.last.inner_text()
            )
            assert opened.evaluate("window.sameDocument") is True, "nothing was loaded anew"
            head = app.head("pays-1")
            opened.locator(f"#seq[max='{head}']").wait_for()
        assert world.read_text() == "charged\n", "once"
        assert app.get("pays-1").result == "paid" and app.verify("pays-1").ok


@agent
def ticker(task: Task, events: int, pause: float) -> int:
    for number in range(events):
        task.step(lambda at=number: at, name="tick")
        time.sleep(pause)
    return events


TOKEN = "a-token-for-this-test"
WORKER = """
import sys, holdfast
from tests.web.test_live import ticker
with holdfast.open(sys.argv[1]) as app:
    app.resume("tick", ticker)
"""


@pytest.mark.page
def test_a_server_that_is_killed_during_a_tail_is_resumed_and_nothing_is_missed_or_doubled(address, browser):
    kills, events = (20, 1000) if os.environ.get("HOLDFAST_TEST_ALL") == "1" else (3, 300)
    store = address
    with holdfast.open(store) as app:
        app.start(ticker, {"events": events, "pause": 3.0 * kills / events}, id="tick")
        with page_of(store) as page:
            options = ("--port", str(page.port))
        worker = context = None
        try:
            for life in range(kills):
                with page_of(store, *options, env={"HOLDFAST_UI_TOKEN": TOKEN}, login=False) as page:
                    if life == 0:
                        context, opened = dying_tab(browser, page)
                        worker = subprocess.Popen([sys.executable, "-c", WORKER, str(store)])
                    before = app.head("tick")
                    opened.locator(".live:not(.lost)").wait_for()
                    until(lambda before=before: app.head("tick") > before + 3)
                    page.process.kill()
                    page.process.wait()
                    opened.locator(".live.lost").wait_for()
                    opened.locator(".notice.bad", has_text="does not answer").wait_for()
            with page_of(store, *options, env={"HOLDFAST_UI_TOKEN": TOKEN}, login=False):
                assert worker.wait(60) == 0
                opened.locator("h1 + .st.completed").wait_for()
                head = app.head("tick")
                opened.locator("h2", has_text=f"{head} events").wait_for()
                until(lambda: seqs_scrolled(opened) == list(range(1, head + 1)))
        finally:
            if worker is not None:
                worker.kill()
                worker.wait()
            if context is not None:
                context.close()


def dying_tab(browser, page):
    """A tab whose server will die: errors of its console are expected."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(20_000)
    opened = context.new_page()
    opened.goto(f"{page.url}/tasks/tick?tab=events#code={TOKEN}")
    opened.locator("table.events").wait_for()
    return context, opened


def seqs_scrolled(opened):
    """The seqs of every row, seen by scrolling through all of them. Rows on screen at once have no gap."""
    return opened.evaluate(
        """async () => {
          const region = document.querySelector(".wscroll");
          const seen = [];
          for (let top = 0; ; top += 600) {
            region.scrollTop = top;
            await new Promise(done => setTimeout(done, 60));
            const here = [...region.querySelectorAll("tr[data-seq]")].map(row => Number(row.dataset.seq));
            if (here.some((seq, index) => index && seq !== here[index - 1] + 1)) return here;
            seen.push(...here);
            if (top > region.scrollHeight) break;
          }
          region.scrollTop = 0;
          return [...new Set(seen)].sort((one, two) => one - two);
        }"""
    )

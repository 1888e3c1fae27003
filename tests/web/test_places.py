"""Screens beside tasks: workers, queues, money, the audit, users and threads; acts on many tasks, find, filters."""

import json
import re
import signal
import socket
import subprocess
import sys

import pytest

import holdfast
from holdfast import StatePatch, Task, agent, report_usage
from holdfast.engine.reading.describe import process_name
from tests.waiting import until
from tests.web.browser import tab
from tests.web.world import fill, page_of

OVER = ("sqlite", "postgres")


@agent
def pays(task: Task, cost: float) -> None:
    task.step(lambda: report_usage(input_tokens=10, cost=cost), name="model")


@agent
def talks(task: Task) -> None:
    task.message({"role": "user", "content": "Is it **late**?"})


@pytest.fixture
def own(address):
    path = address
    with holdfast.open(path) as app:
        fill(app)
        app.user("ana").patch(StatePatch(set={"seat": "aisle"}), by="ben")
        app.run(talks, id="talk-1", thread="trip")
        with page_of(path) as opened:
            opened.app, opened.path = app, path
            yield opened


# Users and threads


@pytest.mark.page
def test_users_and_threads_are_listed_and_shown_with_their_tasks(own):
    assert [one["id"] for one in own.get("/users")["users"]] == [one.id for one in own.app.users()] == ["ana", "ben"]
    first = own.get("/users?limit=1")
    assert (first["next"], own.get("/users?limit=1&after=ana")["users"]) == ("ana", [{"id": "ben"}])
    ana = own.get("/users/ana")
    assert ana["state"] == {"seat": "aisle"} and [one["id"] for one in ana["tasks"]] == ["recap-standup-1117"]
    assert {one["id"] for one in own.get("/threads")["threads"]} >= {"trip"}
    trip = own.get("/threads/trip")
    assert trip["messages"][0]["content"] == "Is it **late**?" and [one["id"] for one in trip["tasks"]] == ["talk-1"]


@pytest.mark.parametrize("limit", [0, True, 10_001, "x"])
def test_a_number_of_users_that_can_not_be_is_refused(limit):
    with holdfast.open("memory:") as app, pytest.raises(holdfast.InvalidValue, match="out of range"):
        app.users(limit=limit)


# Money


@pytest.mark.page
def test_money_is_of_the_day_and_of_the_task_that_spent_it(own):
    for number, cost in enumerate((0.25, 0.5)):
        own.app.run(pays, {"cost": cost}, id=f"pays-{number}")
    own.app.fork("pays-1", at=own.app.head("pays-1") - 1, id="copy", by="ben")
    with page_of(own.path) as fresh:  # which has kept nothing
        found = fresh.get("/money")
    assert len(found["days"]) == 7 and found["days"][-1][1] == found["today"] == "0.750000", "a fork spent nothing"
    assert found["more"] is False


# Workers


@pytest.mark.page
def test_a_worker_is_named_with_its_machine_and_a_dead_one_with_the_tasks_it_held(own, tmp_path, browser):
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import time\nfrom holdfast import Task, agent\n\n@agent\ndef slow(task: Task) -> None:\n"
        "    task.step(time.sleep, 60, name='sleep')\n"
    )
    own.app.start("slow", id="slow-1", queue="bulk")
    lonely = next(one for one in own.get("/workers")["queues"] if one["queue"] == "bulk")
    assert lonely["ready"] == 1 and lonely["oldest_ms"]
    assert {one["queue"]: one["served"] for one in own.get("/queues")["queues"]}["bulk"] is False
    command = [sys.executable, "-m", "holdfast", "worker", str(slow), "--queue", "bulk", "--store", str(own.path)]
    worker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        alive = until(lambda: [one for one in own.get("/workers")["workers"] if one["busy"]], 20)
        assert alive[0]["queues"] == ["bulk"] and alive[0]["pid"] == worker.pid
        queues = own.get("/queues")["queues"]
        assert next(one for one in queues if one["queue"] == "bulk")["served"] is True
        assert [{**one, "served": None} for one in queues] == [
            {**one, "served": None} for one in own.get("/workers")["queues"]
        ]
        holder = own.get("/tasks/slow-1")["holder"]
        assert holder["machine"] == socket.gethostname()
        called = process_name(alive[0]["holder"])  # its pid; a server knows no pids of its workers
        assert holder["pid"] == called
        with tab(browser, own, "/tasks/slow-1") as opened:
            told = f"process {called} on {socket.gethostname()}"
            opened.locator(".meta", has_text=told).wait_for()
            opened.locator(".lane", has_text=told).wait_for()
        worker.send_signal(signal.SIGKILL)
        worker.wait(10)
        dead = until(lambda: own.get("/workers")["dead"], 20)
        assert [(one["pid"], one["machine"], one["tasks"]) for one in dead] == [(called, socket.gethostname(), 1)]
        assert own.get("/workers")["gone"] == [], "it is told of once"
        own.app.cancel("slow-1", by="ben")
        subprocess.run([*command, "--drain"], check=True, capture_output=True, timeout=60)
        assert own.get("/workers")["dead"] == []
        gone = own.get("/workers")["gone"]
        assert [(one["pid"], one["machine"], one["agents"], one["queues"]) for one in gone] == [
            (str(worker.pid), socket.gethostname(), ["slow"], ["bulk"])
        ]
        with tab(browser, own, "/workers") as opened:
            opened.locator("tr.dead", has_text=str(worker.pid)).locator(".st", has_text="gone").wait_for()
    finally:
        worker.kill()
        worker.wait(10)


SCHEDULED = """
import sys, holdfast
from holdfast import Queue, Schedule, Task, agent

@agent
def report(task: Task) -> str:
    return "done"

limited = [Queue("default"), Queue("mail", concurrency=3, rate="60/m")]
weekdays = Schedule("weekly/report", report, "0 8 * * 1-5", zone="Europe/Oslo", queue="mail")
with holdfast.open(sys.argv[1], queues=limited) as app:
    app.worker([report], queues=["default", "mail"], schedules=[weekdays]).run()
"""


@pytest.mark.page
def test_limits_of_queues_and_schedules_of_workers_are_shown(own, tmp_path, browser):
    own.app.start("report", id="later", queue="mail", after="1h")
    program = tmp_path / "scheduled.py"
    program.write_text(SCHEDULED)
    assert own.get("/workers")["schedules"] == []
    worker = subprocess.Popen([sys.executable, str(program), str(own.path)])
    try:
        found = until(lambda: own.get("/workers")["schedules"], 20)
        now_ms = own.get("/workers")["now_ms"]
        assert [(one["name"], one["agent"], one["zone"], one["queue"]) for one in found] == [
            ("weekly/report", "report", "Europe/Oslo", "mail")
        ]
        assert now_ms < found[0]["next_ms"] <= now_ms + 4 * 86_400_000
        with tab(browser, own, "/workers") as opened:
            mail = opened.locator("tr", has=opened.get_by_role("link", name="mail", exact=True))
            mail.get_by_text("3 at a time, 60 a minute").wait_for()
            line = opened.locator("tr", has_text="weekly/report")
            assert re.search(r"0 8 \* \* 1-5.*Europe/Oslo.*mail.*in \d", line.inner_text(), re.S)
            line.get_by_role("link").click()
            opened.get_by_label("Remove id:weekly/report/*").wait_for()
    finally:
        worker.terminate()
        worker.wait(20)


# The audit


@pytest.mark.page
def test_the_audit_is_filtered_by_time_and_exported_whole(own):
    shown = own.get("/audit?limit=500")["acts"]
    assert own.get("/audit?since=1h&limit=500")["acts"] == shown and own.get("/audit?until=1h")["acts"] == []
    status, headers, text = own.raw("GET", "/api/v1/audit/export?by=ben")
    lines = [json.loads(line) for line in text.splitlines()]
    assert status == 200 and headers["content-disposition"].startswith("attachment")
    assert lines and {one["by"] for one in lines} == {"ben"}
    assert own.ask("GET", "/api/v1/audit?since=nonsense")[0] == 400


# Many tasks


def test_an_export_of_what_is_not_there_is_refused_before_it_begins(own):
    for asked, status in (("task=nobody", 404), ("since=soon", 400)):
        assert own.ask("GET", f"/api/v1/audit/export?{asked}")[0] == status


def test_an_act_on_many_is_for_the_number_that_was_shown(own):
    for number in range(5):
        own.app.start("daily_digest", {"n": number}, id=f"d-{number}")
    body = {"verb": "cancel", "q": "agent:daily_digest", "expected": 5, "why": "plans changed"}
    status, told = own.act("/bulk", body)
    assert (status, told["code"], told["details"]["found"]) == (409, "count-changed", 6), "one more was there before"
    status, job = own.act("/bulk", {**body, "expected": 6}, key="once")
    assert status == 200 and job["total"] == 6
    done = until(lambda: (found := own.get(f"/bulk/{job['job']}"))["over"] and found)
    assert (done["done"], done["refused"]) == (6, 0)
    assert own.act("/bulk", {**body, "expected": 6}, key="once")[1]["job"] == job["job"], "the same key, the same job"
    ended = [one for one in own.app.events("d-3") if one.kind == "task_cancelled"]
    assert len(ended) == 1 and own.app.get("d-3").status == "cancelled"
    assert own.act("/bulk", {**body, "expected": 0})[0] == 400
    assert own.get("/bulk?verb=cancel&q=status:waiting")["found"] == 4
    assert own.ask("GET", "/api/v1/bulk?verb=drop")[0] == 400


@pytest.mark.page
def test_what_can_not_be_changed_is_counted_and_does_not_stop_the_others(own):
    ids = ["recap-standup-1117", "import-crm-771"]
    job = own.act("/bulk", {"verb": "resume", "q": "", "ids": ids, "expected": 2})[1]["job"]
    done = until(lambda: (found := own.get(f"/bulk/{job}"))["over"] and found)
    assert (done["done"], done["refused"], done["why"][0]["task"]) == (2, 1, "recap-standup-1117")
    assert own.app.get("import-crm-771").status == "pending"
    assert own.ask("GET", "/api/v1/bulk/nope")[0] == 404


@pytest.mark.page
def test_only_an_admin_acts_on_many(tmp_path):
    with holdfast.open(tmp_path / "s.db") as app:
        app.start("a", id="t")
    with page_of(tmp_path / "s.db", "--read-only") as page:
        assert page.act("/bulk", {"verb": "cancel", "q": "", "ids": ["t"], "expected": 1})[0] == 403


@pytest.mark.page
def test_search_finds_tasks_and_words_to_filter_by(own):
    found = own.get("/search?q=re")
    assert {one["id"] for one in found["tasks"]} == {"refund-A1093", "recap-standup-1117"}
    assert ["agent", "refunds"] in found["words"] and ["stage", "reading"] not in own.get("/search?q=zzz")["words"]
    assert ["user", "ana"] in own.get("/words")["words"]


# In the browser


@pytest.mark.page
def test_filters_are_chips_and_a_view_is_kept(own, browser):
    with tab(browser, own) as opened:
        opened.locator("td .id").first.wait_for()
        opened.get_by_label("Filter", exact=True).fill("status:waiting agent:refunds")
        opened.keyboard.press("Enter")
        until(lambda: opened.locator("td .id").all_inner_texts() == ["refund-A1093"])
        assert opened.locator(".chip").count() == 2
        opened.get_by_role("button", name="Save view").click()
        opened.get_by_label("Remove agent:refunds").click()
        until(lambda: opened.locator("td .id").count() == 4)
        opened.locator(".views button").click()
        until(lambda: opened.locator("td .id").count() == 1)
        opened.reload()
        opened.locator(".views button", has_text="status:waiting agent:refunds").wait_for()


@pytest.mark.page
def test_selected_tasks_are_cancelled_together(own, browser):
    with tab(browser, own, "/?q=status:waiting") as opened:
        for id in ("refund-A1093", "trip-rome-02"):
            opened.get_by_label(f"Select {id}").check()
        opened.get_by_role("button", name="Cancel …").click()
        opened.get_by_role("textbox", name=re.compile("Why")).fill("no longer needed")
        opened.get_by_role("button", name="Cancel 2").click()
        opened.get_by_text("Cancelled 2 of 2").wait_for()
        opened.get_by_role("button", name="Cancel all …").click()
        opened.get_by_role("heading", name="Cancel 2 tasks?").wait_for()
        opened.get_by_role("button", name="Not now").click()
    assert own.app.get("trip-rome-02").status == own.app.get("refund-A1093").status == "cancelled"
    assert own.app.get("wire-0098").status == "waiting"


@pytest.mark.page
def test_a_key_finds_tasks_steps_words_and_commands(own, browser):
    with tab(browser, own, "/tasks/refund-A1093") as opened:
        opened.locator(".wrow").first.wait_for()
        opened.keyboard.press("/")
        opened.get_by_label("Task id, step or command").fill("read_ord")
        opened.get_by_role("option", name=re.compile("read_order#1")).click()
        opened.locator(".insp", has_text="read_order#1").wait_for()
        opened.keyboard.press("/")
        opened.get_by_label("Task id, step or command").fill("treas")
        opened.get_by_role("option", name=re.compile("filter by agent")).wait_for()
        opened.keyboard.press("Enter")
        until(lambda: opened.locator("td .id").all_inner_texts() == ["wire-0098"])
        opened.locator("h1").click()
        opened.keyboard.press("/")
        opened.get_by_label("Task id, step or command").fill("threads")
        opened.keyboard.press("Enter")
        opened.get_by_role("link", name="trip").click()
        opened.locator("strong", has_text="late").wait_for()
        opened.get_by_role("link", name="talk-1").click()
        opened.get_by_role("link", name="trip").wait_for()


@pytest.mark.page
@pytest.mark.parametrize("size", ["wide", "phone"])
def test_new_screens_open_and_fit_the_width(own, browser, size):
    for path, wanted in {
        "/users": ".names a",
        "/users/ana": "td .id",
        "/threads/trip": ".msg",
        "/workers": ".tile",
        "/audit?q=by:ben": "td .id",
        "/tasks/recap-standup-1117?tab=knowledge": ".decision",
        "/tasks/recap-standup-1117?tab=artifacts": ".panel",
        "/tasks/import-crm-771?tab=failures": ".failure",
        "/tasks/recap-standup-1117?tab=events&at=5": "aside pre",
    }.items():
        with tab(browser, own, path, size=size) as opened:
            opened.locator(wanted).first.wait_for()
            beyond = opened.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert beyond <= 0, f"{path} is {beyond} px wider than the screen"

"""What people do, with and without a worker; who may look; the same facts as on the command line."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys

import click
import pytest

import holdfast
from holdfast import events as ev
from holdfast.cli import main as cli_main
from holdfast.web.asgi import API, ROUTES
from tests.waiting import until
from tests.web import world
from tests.web.browser import tab
from tests.web.test_reading import cli
from tests.web.world import fill, page_of, recap

pytestmark = pytest.mark.page


@contextlib.contextmanager
def worker(store):
    """A worker in a process of its own that knows the agents of these tests."""
    command = [sys.executable, "-m", "holdfast", "worker", world.__file__, "--store", str(store)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with holdfast.open(store) as app:
            until(app.workers, 20)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def answers(card):
    card.get_by_label("Answer").fill("one stop is fine")
    card.get_by_role("button", name="Answer").click()


def approves(card):
    card.get_by_role("button", name=re.compile("^Approve")).click()
    card.get_by_role("button", name=re.compile("^Yes, approve")).click()


def rejects(card):
    card.get_by_role("button", name=re.compile("^Reject")).click()
    card.get_by_role("button", name=re.compile("^Yes, reject")).click()


def settles(card):
    card.get_by_label("Its result").fill("tx-1")
    card.get_by_role("button", name=re.compile("^It happened")).click()
    card.get_by_role("button", name=re.compile("^Yes, it happened")).click()


def settles_not(card):
    card.get_by_role("button", name=re.compile("^It did not")).click()
    card.get_by_role("button", name=re.compile("^Yes, it did not")).click()


def allows(card):
    card.get_by_role("button", name=re.compile("^Allow up to")).click()


def resumes(card):
    card.get_by_role("button", name=re.compile("^Let workers try")).click()


ACTS = {
    "answer": ("trip-rome-02", answers, "completed"),
    "approve": ("refund-A1093", approves, "completed"),
    "reject": ("refund-A1093", rejects, "failed"),
    "settle, it happened": ("wire-0098", settles, "completed"),
    "settle, it did not": ("wire-0098", settles_not, "failed"),  # its only attempt is known to have failed
    "budget": ("triage-inc-5521", allows, "completed"),
    "quarantined": ("aside", resumes, "completed"),
}


@pytest.mark.parametrize("served", [False, True], ids=["without a worker", "with a worker"])
@pytest.mark.parametrize("name", ACTS)
def test_each_act_of_the_inbox_says_what_came_of_it(own, browser, name, served):
    id, act, status = ACTS[name]
    own.app.start(recap, {"n": 1}, id="aside")
    own.app.append("aside", ev.TaskClaimed(holder="1-x"))
    own.app.append("aside", ev.TaskSuspended(why="quarantined", note="5 workers in a row died"))
    seq = own.app.head(id)
    with contextlib.ExitStack() as stack:
        if served:
            stack.enter_context(worker(own.app.store.path))
        opened = stack.enter_context(tab(browser, own, "/inbox"))
        card = opened.locator(".card", has_text=id)
        act(card)
        card.locator(".outcome").wait_for()
        if served:
            until(lambda: own.app.get(id).status == status, 20)
            by = [getattr(one.event, "by", "") for one in own.app.events(id, after=seq)]
            assert by[0] == "ana" and "took it after" in until(lambda: told(card, "took it after")), by
        else:
            told_now = until(lambda: told(card, "no worker is running"), 20)
            assert "the task is pending" in told_now and own.app.get(id).status == "pending"


def told(card, wanted):
    """What the entry says came of it, once it says so."""
    found = card.locator(".outcome").inner_text()
    return found if wanted in found else None


# Who may look


def test_a_file_that_may_only_be_read_is_shown_and_not_acted_on(tmp_path, browser):
    if os.geteuid() == 0:
        pytest.skip("root may write every file")
    store = tmp_path / "store.db"
    with holdfast.open(store) as app:
        fill(app)
    store.chmod(0o444)
    with page_of(store) as page:
        assert page.get("/about")["read_only"] is True


def test_a_page_of_one_tenant_knows_nothing_of_another(tmp_path):
    store = tmp_path / "store.db"
    for name in ("acme", "globex"):
        with holdfast.open(store, namespace=name) as app:
            app.run(recap, {"n": 1}, id=f"of-{name}", user="ana", thread="talk")
            app.start("x", {}, id=f"open-{name}")
    file = f"{store}-page-acme"
    with page_of(store, "--namespace", "acme", login=False, file=file) as page:
        assert page.login() == 200 and page.get("/about")["namespace"] == "acme"
        assert {row["id"] for row in page.get("/tasks")["tasks"]} == {"of-acme", "open-acme"}
        assert page.get("/tasks/counts")["tasks"] == 2
        assert {one["task"] for one in page.get("/audit")["acts"]} <= {"of-acme", "open-acme"}
        unknown, told_of_none = page.ask("GET", f"{API}/tasks/not-there")
        foreign, told_of_other = page.ask("GET", f"{API}/tasks/of-globex")
        assert (unknown, foreign) == (404, 404)
        assert json.dumps(told_of_other).replace("of-globex", "not-there") == json.dumps(told_of_none)
        for path in ("rows", "steps", "state", "messages", "verify", "events/1", "export"):
            assert page.raw("GET", f"{API}/tasks/of-globex/{path}")[0] == 404, path
        assert page.act("/tasks/open-globex/cancel", {})[0] == 404
        assert page.get("/search?q=o")["tasks"] and "globex" not in json.dumps(page.get("/search?q=o"))
        assert next(page.stream("/tasks/of-globex/stream"))[0] == "gone"


# The same facts as on the command line

ADDRESSES = {
    "list": "GET /tasks",
    "show": "GET /tasks/{id}",
    "log": "GET /tasks/{id}/rows",
    "diff": "GET /tasks/{id}/deltas",
    "audit": "GET /audit",
    "workers": "GET /workers",
    "stats": "GET /tasks/counts",
    "inbox": "GET /inbox",
    "answer": "POST /tasks/{id}/answer",
    "approve": "POST /tasks/{id}/approve",
    "reject": "POST /tasks/{id}/reject",
    "settle": "POST /tasks/{id}/settle",
    "signal": "POST /tasks/{id}/signal",
    "budget": "POST /tasks/{id}/budget",
    "fork": "POST /tasks/{id}/fork",
    "rollback": "POST /tasks/{id}/rollback",
    "cancel": "POST /tasks/{id}/cancel",
    "reopen": "POST /tasks/{id}/resume",
    "verify": "GET /tasks/{id}/verify",
    "export": "GET /tasks/{id}/export",
}


NOT_HERE = {"traces": "it writes spans for other programs, and shows nothing that the log does not"}


def test_every_command_that_looks_or_answers_has_its_address():
    routes = {f"{one.method} {one.path.removeprefix(API)}" for one in ROUTES}
    assert set(ADDRESSES.values()) <= routes
    helped = click.Context(cli_main.cli).command.get_help(click.Context(cli_main.cli))
    for group in ("Look", "People", "Time"):
        part = re.search(rf"^{group}:\n((?:  .*\n)+)", helped, re.M).group(1)
        commands = set(re.findall(r"^  ([a-z-]+)", part, re.M))
        assert commands and commands <= {*ADDRESSES, *NOT_HERE}, commands - set(ADDRESSES)


def test_what_both_tell_is_the_same(page, store):
    id = "refund-A1093"

    def same(one, two, but=()):
        shared = (set(one) & set(two)) - set(but)
        assert len(shared) >= 3 and {key: one[key] for key in shared} == {key: two[key] for key in shared}

    shown = cli(store, "show", id, "--json")
    same(shown, page.get(f"/tasks/{id}"), ("steps", "waiting", "holder", "created_at", "updated_at", "deadline"))
    same(shown, page.get(f"/tasks/{id}/state")["doc"], ("waiting",))
    for line in cli(store, "log", id, "--json"):
        same(line, page.get(f"/tasks/{id}/events/{line['seq']}"))
    entries = {(one["task"], one["kind"], one["key"]): one for one in page.get("/inbox")["entries"]}
    asked = cli(store, "inbox", "--json")
    assert len(asked) == len(entries) == 5
    for one in asked:
        same(one, entries[one["task"], one["kind"], one["key"]], ("commands", "exact"))
    for one, two in zip(cli(store, "audit", "--json"), page.get("/audit")["acts"], strict=False):
        same(one, two, ("value",))
    same(cli(store, "verify", id, "--json"), page.get(f"/tasks/{id}/verify"))
    counted = page.get("/tasks/counts")
    stats = cli(store, "stats", "--json")
    assert {name: count for name, count in stats["by_status"].items() if count} == counted["by_status"]
    assert stats["tasks"] == counted["tasks"]
    patch = cli(store, "diff", id, "5", "6", "--json")["patch"]
    moved = dict(page.get(f"/tasks/{id}/deltas?after=5&limit=1")["deltas"]).get(6, [])
    assert [one for one in moved if one not in patch] == [], "what the page's sections have of it"
    budget = cli(store, "budget", id, "--json")
    same(budget, page.get(f"/tasks/{id}")["budget"])

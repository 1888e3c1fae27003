"""A page over all namespaces: one list with the namespace of each task, and a whole page for each of them."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from urllib.parse import quote

import pytest

import holdfast
from holdfast.web import namespaces
from holdfast.web.access.gate import Gate, Person
from holdfast.web.namespaces import OVERVIEW, NamespacesApp
from holdfast.web.reading import everywhere
from holdfast.web.requests.shapes import PageCall
from holdfast.web.requests.site import Settings, Site
from tests.waiting import until
from tests.web.browser import tab
from tests.web.world import page_of, recap, refunds

OVER = ("sqlite", "postgres")
ASK = {"human_in_the_loop": {"required_for_risk_levels": ["payment"]}}


@pytest.fixture(scope="module")
def many(shared_address):
    """A store in which one id stands for three tasks: of acme, of blue, and of no namespace."""
    path = shared_address
    for name in ("acme", "blue", ""):
        with holdfast.open(path, namespace=name) as app:
            app.run(recap, {"n": 1}, id="recap-1", user=f"ana-{name or 'none'}")
            if name == "blue":
                app.run(refunds, {"order": "A1", "euros": 5}, id="refund-1", contract={"constraints": ASK})
    with page_of(path, "--all-namespaces") as opened:
        opened.store = path
        yield opened


def test_the_list_has_the_tasks_of_all_and_of_which_each_is(many):
    found = many.get("/tasks")["tasks"]
    told = {(one["id"], one["namespace"], one["local"]) for one in found}
    assert told == {
        ("acme!recap-1", "acme", "recap-1"),
        ("blue!recap-1", "blue", "recap-1"),
        ("blue!refund-1", "blue", "refund-1"),
        ("recap-1", "-", "recap-1"),
    }
    strips = many.get("/strips?" + "&".join(f"id={one['id']}" for one in found))["strips"]
    assert strips.keys() == {one["id"] for one in found} and strips["acme!recap-1"]["came"] == "msg-88f2"
    assert [one["id"] for one in many.get("/tasks?q=namespace:acme")["tasks"]] == ["acme!recap-1"]
    assert [one["id"] for one in many.get("/tasks?q=status:waiting%20namespace:blue")["tasks"]] == ["blue!refund-1"]
    assert many.get("/tasks?q=namespace:acme%20status:waiting")["tasks"] == []
    left = many.get("/tasks?q=agent!=recap")
    assert ([one["id"] for one in left["tasks"]], left["next"], left["looked_at"]) == (["blue!refund-1"], None, 4)


def test_pages_of_the_list_follow_each_other_without_a_gap(many):
    whole = [one["id"] for one in many.get("/tasks")["tasks"]]
    found, after = [], ""
    while after is not None:
        part = many.get(f"/tasks?limit=1&after={quote(after, safe='')}")
        found += [one["id"] for one in part["tasks"]]
        after = part["next"]
    assert sorted(found) == sorted(whole) and len(found) == 4
    assert many.ask("GET", "/api/v1/tasks?after=nonsense")[0] == 400


def test_numbers_are_those_of_all_namespaces(many):
    counts = many.get("/tasks/counts")
    assert counts["by_status"] == {"completed": 3, "waiting": 1} and counts["inbox"] == 1
    assert counts["namespaces"] == [
        {"name": "-", "tasks": 1, "inbox": 0},
        {"name": "acme", "tasks": 1, "inbox": 0},
        {"name": "blue", "tasks": 2, "inbox": 1},
    ]
    assert sum(many.get("/rates")["completed"]) == 3
    assert ["namespace", "blue"] in many.get("/words")["words"]
    assert {one["id"] for one in many.get("/search?q=recap")["tasks"]} == {"acme!recap-1", "blue!recap-1", "recap-1"}
    assert many.get("/about")["rights"] == ["look"] and many.get("/money")["today"]


def test_the_inbox_is_that_of_all_oldest_first_and_is_decided_below(address):
    path = address
    for name in ("blue", "acme", ""):
        with holdfast.open(path, namespace=name) as app:
            app.run(refunds, {"order": name, "euros": 5}, id="refund-1", contract={"constraints": ASK})
    with page_of(path, "--all-namespaces") as page:
        told = page.get("/inbox")
        found = [(one["task"], one["namespace"], one["local"], one["commands"]) for one in told["entries"]]
        assert found == [
            ("blue!refund-1", "blue", "refund-1", []),
            ("acme!refund-1", "acme", "refund-1", []),
            ("refund-1", "-", "refund-1", []),
        ]
        assert told["more"] is False
        (own,) = page.ask("GET", "/ns/acme/api/v1/inbox")[1]["entries"]
        assert {name: own[name] for name in own if name not in ("task", "commands")} == {
            name: told["entries"][1][name] for name in own if name not in ("task", "commands")
        }


def test_the_audit_is_that_of_all_and_its_pages_follow_each_other_without_a_gap(many):
    whole = many.get("/audit?limit=500")
    assert whole["next"] is None and [one["at_ms"] for one in whole["acts"]] == sorted(
        (one["at_ms"] for one in whole["acts"]), reverse=True
    )
    assert {(one["task"], one["namespace"], one["local"]) for one in whole["acts"]} >= {
        ("acme!recap-1", "acme", "recap-1"),
        ("blue!recap-1", "blue", "recap-1"),
        ("recap-1", "-", "recap-1"),
    }
    found, after = [], ""
    while after is not None:
        part = many.get(f"/audit?limit=1&after={quote(after, safe='')}")
        found += [(one["task"], one["seq"]) for one in part["acts"]]
        after = part["next"]
    assert sorted(found) == sorted((one["task"], one["seq"]) for one in whole["acts"])
    only = many.get("/audit?namespace=acme")["acts"]
    assert only and {one["namespace"] for one in only} == {"acme"}
    _, _, lines = many.raw("GET", "/api/v1/audit/export")
    saved = [json.loads(line) for line in lines.splitlines()]
    assert [(one["task"], one["seq"]) for one in saved] == [(one["local"], one["seq"]) for one in whole["acts"]]
    assert {one["namespace"] for one in saved} == {"", "acme", "blue"}


def test_queues_and_workers_are_those_of_all(address):
    path = address
    for name in ("acme", "blue", ""):
        with holdfast.open(path, namespace=name) as app:
            app.start("recap", id="later", queue="mail")
    with page_of(path, "--all-namespaces") as page, holdfast.open(path, namespace="blue") as app:
        worker = app.worker([refunds], queues=["mail"])
        serving = threading.Thread(target=worker.run)
        serving.start()
        until(lambda: page.get("/workers")["workers"])
        told = page.get("/workers")
        assert [(one["pid"], one["namespaces"]) for one in told["workers"]] == [(os.getpid(), ["blue"])]
        queues = [(one["namespace"], one["queue"], one["ready"], one["served"]) for one in told["queues"]]
        assert queues == [("", "mail", 1, False), ("acme", "mail", 1, False), ("blue", "mail", 1, True)]
        assert all(one["oldest_ms"] for one in told["queues"]) and page.get("/queues")["queues"] == told["queues"]
        worker.stop()
        serving.join(20)


def test_namespaces_beyond_those_that_are_listed_are_counted_and_can_be_filtered_by(tmp_path, monkeypatch):
    monkeypatch.setattr(namespaces, "MOST_NAMESPACES", 2)
    path = tmp_path / "store.db"
    for name in ("acme", "blue", "red"):
        with holdfast.open(path, namespace=name) as app:
            app.start("recap", id="one")
    with contextlib.ExitStack() as stack, holdfast.open(path) as app:
        site = Site(app, Settings(store=str(path), namespace=""), None)
        opened = lambda name: stack.enter_context(holdfast.open(path, namespace=name))  # noqa: E731
        NamespacesApp(site, Gate(None, lambda scope: None, None), opened)
        ana = Person("ana", ("look",))
        ask = lambda **query: PageCall(site, ana, {}, {name: [text] for name, text in query.items()})  # noqa: E731
        told = everywhere.counts(ask()).body
        assert (told["tasks"], told["left_out"]) == (2, 1)
        assert [one["namespace"] for one in everywhere.tasks(ask()).body["tasks"]] == ["blue", "acme"]
        assert [one["id"] for one in everywhere.tasks(ask(q="namespace:red")).body["tasks"]] == ["red!one"]
        assert everywhere.tasks(ask(q="namespace:nowhere")).body["tasks"] == []


def test_below_it_lies_the_page_of_each_which_knows_nothing_of_the_others(many):
    for name, user in (("acme", "ana-acme"), ("blue", "ana-blue"), ("-", "ana-none")):
        status, told = many.ask("GET", f"/ns/{name}/api/v1/tasks/recap-1")
        assert (status, told["user"]) == (200, user)
    assert many.ask("GET", "/ns/acme/api/v1/tasks/refund-1")[0] == 404
    assert many.ask("GET", "/ns/acme/api/v1/inbox")[1]["entries"] == []
    (asked,) = many.ask("GET", "/ns/blue/api/v1/inbox")[1]["entries"]
    answer = many.ask(
        "POST",
        "/ns/blue/api/v1/tasks/refund-1/reject",
        {"call": asked["key"], "bound": asked["bound"], "why": "not due"},
        [("Idempotency-Key", "k1")],
    )
    assert answer[0] == 200
    with holdfast.open(many.store, namespace="blue") as app:
        assert [one.event.by for one in app.events("refund-1") if one.kind == "approval_refused"] == ["ana"]
    status, told = many.ask("GET", "/ns/elsewhere/api/v1/tasks")
    assert status == 404 and "elsewhere" in told["detail"]


def test_it_needs_a_session_above_and_below_and_does_nothing_above(many):
    for route in OVERVIEW:
        if route.right != "public":
            assert many.raw(route.method, route.path, token="wrong")[0] == 401, route.path
            assert many.raw("GET", f"/ns/acme{route.path}", token="wrong")[0] == 401, route.path
        assert route.method == "GET" or route.path in ("/api/v1/session", "/api/v1/link")
    assert many.ask("POST", "/api/v1/tasks/recap-1/cancel", {}, [("Idempotency-Key", "k2")])[0] == 404
    assert many.raw("GET", "/ns/acme/api/v1/tasks", headers={"Host": "elsewhere.example"})[0] == 421


def test_with_a_namespace_it_is_refused(tmp_path):
    holdfast.open(tmp_path / "s.db").close()
    words = ["ui", "--store", str(tmp_path / "s.db"), "--namespace", "acme", "--all-namespaces", "--no-open"]
    ran = subprocess.run([sys.executable, "-m", "holdfast", *words], capture_output=True, text=True)
    assert ran.returncode == 2 and "exclude each other" in ran.stderr


@pytest.mark.page
def test_in_a_browser_the_list_leads_into_the_page_of_a_namespace_and_back(many, browser):
    with tab(browser, many) as opened:
        opened.locator("td .sub", has_text="acme").wait_for()
        with holdfast.open(many.store, namespace="blue") as app:
            app.run(refunds, {"order": "A2", "euros": 7}, id="refund-2", contract={"constraints": ASK})
        waiting = len(many.get("/inbox")["entries"])  # other tests of this module may have decided one
        until(lambda: opened.locator(".nav a").all_inner_texts() == ["Tasks", f"Inbox\n{waiting}", "Workers", "Audit"])
        with holdfast.open(many.store, namespace="acme") as app:
            app.run(recap, {"n": 1}, id="recap-2")
        opened.locator("td .id", has_text="recap-2").wait_for()
        opened.get_by_label("Filter", exact=True).fill("namespace:acme")
        opened.keyboard.press("Enter")
        until(lambda: sorted(opened.locator("td .id").all_inner_texts()) == ["recap-1", "recap-2"])
        opened.locator("td .id", has_text="recap-1").click()
        opened.locator("h1", has_text="recap-1").wait_for()
        assert "/ns/acme/tasks/recap-1" in opened.url
        opened.locator(".live:has-text('Live')").wait_for()
        opened.get_by_role("link", name="Inbox").first.click()
        opened.locator("text=Inbox is empty").wait_for()
        opened.get_by_role("link", name="all namespaces").click()
        opened.locator("td .sub", has_text="blue").first.wait_for()
        opened.get_by_role("link", name="Workers").first.click()
        opened.locator("text=No worker is alive").wait_for()
        opened.get_by_role("link", name="Audit").first.click()
        opened.locator("td", has_text="refund-1").first.locator(".sub", has_text="blue").wait_for()
        opened.get_by_label("Filter", exact=True).fill("namespace:acme")
        opened.keyboard.press("Enter")
        until(lambda: set(opened.locator("td .sub").all_inner_texts()) == {"acme"})
        opened.get_by_role("link", name="Inbox").first.click()
        card = opened.locator(".card", has_text="refund-2")
        card.locator("b", has_text="blue").wait_for()
        assert card.get_by_role("button").count() == 0, "it is decided on its own page"
        card.get_by_role("link", name="Decide …").click()
        opened.get_by_role("button", name="Approve 7 euros").wait_for()
        assert "/ns/blue/inbox/refund-2/approval/" in opened.url

"""A page over all namespaces: one list with the namespace of each task, and a whole page for each of them."""

import subprocess
import sys
from urllib.parse import quote

import pytest

import holdfast
from holdfast.web.namespaces import OVERVIEW
from tests.web.browser import tab
from tests.web.world import eventually, page_of, recap, refunds

ASK = {"human_in_the_loop": {"required_for_risk_levels": ["payment"]}}


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A store in which one id stands for three tasks: of acme, of blue, and of no namespace."""
    path = tmp_path_factory.mktemp("tenants") / "store.db"
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
        assert opened.locator(".nav a").all_inner_texts() == ["Tasks"]
        with holdfast.open(many.store, namespace="acme") as app:
            app.run(recap, {"n": 1}, id="recap-2")
        opened.locator("td .id", has_text="recap-2").wait_for()
        opened.get_by_label("Filter", exact=True).fill("namespace:acme")
        opened.keyboard.press("Enter")
        eventually(lambda: sorted(opened.locator("td .id").all_inner_texts()) == ["recap-1", "recap-2"])
        opened.locator("td .id", has_text="recap-1").click()
        opened.locator("h1", has_text="recap-1").wait_for()
        assert "/ns/acme/tasks/recap-1" in opened.url
        opened.locator(".live:has-text('Live')").wait_for()
        opened.get_by_role("link", name="Inbox").first.click()
        opened.locator("text=Inbox is empty").wait_for()
        opened.get_by_role("link", name="all namespaces").click()
        opened.locator("td .sub", has_text="blue").first.wait_for()

"""The tabs of a task: conversation, decisions and facts, artifacts, failures, events; large values, saved safely."""

import base64
import json
import re

import pytest

import holdfast
from holdfast import Task, agent
from holdfast.core.errors import InvalidValue
from tests.web.browser import tab
from tests.web.trip import PDF, booked
from tests.web.world import crm_import, fill, page_of

OVER = ("sqlite", "postgres")
TRIP = "/tasks/trip-oslo-14"


@agent
def breaks(task: Task, how: str) -> None:
    raise ValueError(how)


@pytest.fixture(scope="module")
def page(shared_address):
    with holdfast.open(shared_address) as app:
        fill(app)
        booked(app)
        app.run(crm_import, id="import-crm-772")
        with page_of(shared_address) as opened:
            opened.app = app
            yield opened


# The API


def test_a_large_value_is_saved_and_never_shown_by_the_browser(page):
    made = {one["type"]: one for one in page.get(f"{TRIP}/artifacts")["artifacts"]}
    assert (made["text/html"]["step"], made["text/html"]["bytes"]) == ("model#1", 3_029)
    status, headers, text = page.raw("GET", f"/api/v1/blobs/trip-oslo-14/{made['text/html']['seq']}/data")
    assert status == 200 and text.startswith("<script>alert(1)</script>")
    assert headers["content-type"] == "text/plain; charset=utf-8", "markup is text, whatever its type says"
    assert headers["content-disposition"].startswith("attachment") and headers["x-content-type-options"] == "nosniff"
    assert "script-src 'self'" in headers["content-security-policy"] and headers["cache-control"] == "no-store"


def test_an_artifact_of_bytes_is_saved_as_these_bytes(page):
    made = next(one for one in page.get(f"{TRIP}/artifacts")["artifacts"] if one["type"] == "application/pdf")
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
    connection.request(
        "GET", f"/api/v1/blobs/trip-oslo-14/{made['seq']}/data", headers={"Authorization": f"Bearer {page.token}"}
    )
    answer = connection.getresponse()
    assert answer.read() == PDF and answer.headers["content-type"] == "application/octet-stream"
    connection.close()
    assert base64.b64decode(page.app.artifact("trip-oslo-14", made["id"]).data) == PDF


@pytest.mark.parametrize("place", ["0/data", "x/data", "1/nothing", "1/__class__", "1/input%2Fnope", "99999/data"])
def test_a_place_that_is_not_there_is_refused(page, place):
    status, told = page.ask("GET", f"/api/v1/blobs/trip-oslo-14/{place}")
    assert status in (400, 404) and told["code"] in ("invalid-value", "seq-out-of-range"), told
    assert "Traceback" not in json.dumps(told)


def test_what_is_larger_than_two_kilobytes_comes_as_its_beginning_and_an_address(page):
    system = page.get(f"{TRIP}/messages")["messages"][0]
    assert isinstance(system["parts"][0]["text"], str), "1.3 KB are sent whole"
    step = page.get(f"{TRIP}/steps/1%2Fmodel%231")
    assert step["input"]["window"]["$messages"]["to"] == 2 and step["result"]["role"] == "assistant"


def test_the_conversation_and_decisions_are_those_of_the_moment(page):
    decided = next(one.seq for one in page.app.events("trip-oslo-14") if one.kind == "decision_made")
    assert page.get(f"{TRIP}/decisions?upto={decided - 1}")["decisions"] == []
    found = page.get(f"{TRIP}/decisions?upto={decided}")["decisions"]
    assert [(one["question"], one["choice"], one["seq"]) for one in found] == [("which flight?", "SK4035", decided)]
    assert len(page.get(f"{TRIP}/messages?upto=8")["messages"]) == 2
    first = page.get(f"{TRIP}/messages?limit=3")
    rest = page.get(f"{TRIP}/messages?after={first['next']}")
    assert [one["seq"] for one in first["messages"] + rest["messages"]] == [
        one["seq"] for one in page.get(f"{TRIP}/messages")["messages"]
    ]


def test_a_result_in_json_is_summarised_and_its_whole_text_is_at_its_address(page):
    calls = [call for one in page.get(f"{TRIP}/messages")["messages"] for call in one["calls"]]
    assert [call["brief"] for call in calls] == ["3 items, each with euros, flight"] * 2 + [""]
    for call in calls:
        _, _, whole = page.raw("GET", f"/api/v1{call['href']}")
        assert whole == call["result"]


def test_the_same_failure_is_looked_for_among_all_that_failed(tmp_path):
    """More tasks than one answer looks at have failed in another way since."""
    with holdfast.open(tmp_path / "s.db", durability="process") as app:
        for number in range(2):
            app.run(breaks, {"how": "so"}, id=f"so-{number}")
        for number in range(52):
            app.run(breaks, {"how": "other"}, id=f"other-{number}")
        with page_of(tmp_path / "s.db") as opened:
            first = opened.get("/tasks/so-1/same-failure")
            assert (first["tasks"], first["looked_at"]) == ([], 50)
            rest = opened.get(f"/tasks/so-1/same-failure?after={first['next']}")
            assert rest == {"tasks": ["so-0"], "looked_at": 4, "next": None}


def test_a_failure_has_every_try_and_the_tasks_that_failed_so_too(page):
    found = page.get("/tasks/import-crm-771/steps/search%231")
    assert [one["message"] for one in found["tries"]][:2] == ["503 from api.air"] * 2
    frames = page.get("/tasks/import-crm-771/steps/write_rows%231")["failure"]["frames"]
    assert re.match(r"[^/]*(tests/web/)?world\.py:\d+ in <lambda>", frames[-1]), "no folder of this machine"
    same = page.get("/tasks/import-crm-771/same-failure")
    assert same == {"tasks": ["import-crm-772"], "looked_at": 2, "next": None}


def test_digests_are_those_of_the_log(page):
    found = dict(page.get(f"{TRIP}/digests")["digests"])
    assert found == {one.seq: one.digest.hex()[:12] for one in page.app.events("trip-oslo-14")}


def test_a_value_of_an_event_by_its_place():
    from holdfast.engine.reading.describe import value_in

    with holdfast.open("memory:") as app:
        app.run(crm_import, id="c")
        record = next(one for one in app.events("c") if one.kind == "step_completed")
        assert value_in(record, "result/1", app.fetch) == "DY641"
        assert value_in(record, "input/to", app.fetch) == "OSL"
        with pytest.raises(InvalidValue, match="has no value at 'result/9'"):
            value_in(record, "result/9", app.fetch)


# In the browser


@pytest.mark.page
def test_the_conversation_shows_markdown_as_elements_and_a_call_in_one_frame(page, browser):
    with tab(browser, page, f"{TRIP}?tab=conversation") as opened:
        body = opened.locator(".msg .body")
        body.locator("strong", has_text="look").wait_for()
        assert body.locator("code", has_text="hotels").count() == 1 and body.locator("ul.md li").count() == 2
        assert "a list (https://air.example/x)" in body.locator("li").nth(1).inner_text()
        assert opened.locator("main a[href*='air.example'], .msg b", has_text="in time").count() == 0
        assert body.locator("[role=heading]", has_text="My choice").count() == 1
        opened.get_by_text("<b>in time</b>").wait_for()
        frame = opened.locator("[data-call=c1]")
        assert (
            "503 from api.air" in frame.locator(".bad").inner_text()
            and "3 items, each with euros, flight" in frame.locator(".res").inner_text()
        )
        assert "approved by ana" in opened.locator("[data-call=c3] .ask").inner_text()
        opened.locator(".msg", has_text="Window or aisle?").wait_for()
        opened.locator(".msg.user", has_text="aisle").last.wait_for()
        opened.keyboard.press("Home")
        opened.get_by_text("This task has no messages").wait_for()


@pytest.mark.page
def test_decisions_facts_and_open_questions_lead_to_their_moment(page, browser):
    with tab(browser, page, f"{TRIP}?tab=knowledge") as opened:
        decision = opened.locator(".decision", has_text="which flight?")
        decision.wait_for()
        assert decision.locator("dd").all_inner_texts() == [
            "arrives before the meeting",
            "not taken · arrives 23:10 the day before",
            "not taken · one stop",
        ]
        opened.locator(".kv", has_text="cheapest_fare").wait_for()
        opened.locator(".open-questions", has_text="does the office need an invoice?").wait_for()
        decision.get_by_role("button", name=re.compile("seq")).click()
        opened.locator(".notice.past", has_text="just after the event decided").wait_for()


@pytest.mark.page
def test_an_artifact_opens_as_text_and_is_saved(page, browser):
    with tab(browser, page, f"{TRIP}?tab=artifacts") as opened:
        row = opened.locator("tr", has_text="A page")
        row.get_by_role("button", name="Open as text").click()
        opened.locator("dialog pre", has_text="<script>alert(1)</script>").wait_for()
        assert opened.locator("dialog script").count() == 0
        with opened.expect_download() as saved:
            opened.locator("dialog").get_by_role("button", name="Save").click()
        assert saved.value.path().read_text().startswith("<script>")
        opened.get_by_role("button", name="Close").click()
        with opened.expect_download() as saved:
            opened.locator("tr", has_text="Hotel Bryggen").get_by_role("button", name="Save").click()
        assert saved.value.path().read_bytes() == PDF


@pytest.mark.page
def test_failures_show_tries_the_traceback_and_the_same_failure(page, browser):
    with tab(browser, page, "/tasks/import-crm-771?tab=failures") as opened:
        opened.locator(".failure pre", has_text="KeyError: 'email'").wait_for()
        opened.locator("td", has_text="ConnectionError: 503 from api.air").nth(1).wait_for()
        opened.get_by_role("link", name="import-crm-772").click()
        opened.locator("h1", has_text="import-crm-772").wait_for()


@pytest.mark.page
def test_each_event_has_its_digest_and_is_proven_after_a_walk(page, browser):
    with tab(browser, page, f"{TRIP}?tab=events") as opened:
        digest = next(one.digest.hex()[:7] for one in page.app.events("trip-oslo-14") if one.seq == 9)
        row = opened.locator("tr[data-seq='9']")
        row.locator("td", has_text=digest).wait_for()
        row.locator("td", has_text="✓").wait_for()
        row.get_by_role("button", name="9").click()
        opened.locator("aside pre", has_text='"kind": "step_completed"').wait_for()


@agent(loop=True, max_turns=600)
def chatter(task: Task, turns: int) -> int | None:
    task.message({"role": "user", "content": f"question of turn {task.turn}"})
    return task.turn if task.turn == turns else None


@pytest.mark.page
def test_of_five_hundred_turns_the_first_and_the_last_are_open(tmp_path, browser):
    store = tmp_path / "store.db"
    with holdfast.open(store, durability="process") as app:
        app.run(chatter, {"turns": 500}, id="talks")
    with page_of(store) as page, tab(browser, page, "/tasks/talks?tab=conversation") as opened:
        opened.locator(".msg", has_text="question of turn 500").wait_for()
        assert opened.locator(".msg").count() == 4
        opened.get_by_role("button", name=re.compile("turn 2 … 497")).click()
        opened.get_by_role("button", name=re.compile(r"^▸ turn 250\b")).click()
        opened.locator(".msg", has_text="question of turn 250").wait_for()

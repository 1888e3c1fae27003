"""The API that reads: the same facts as the command line, by index and in pages; streams that resume exactly."""

import gzip
import itertools
import json
import re
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

import holdfast
from holdfast.web.access.gate import Person
from holdfast.web.asgi import API, ROUTES
from holdfast.web.reading import inbox
from holdfast.web.requests.filters import filters_of
from holdfast.web.requests.shapes import PageCall
from holdfast.web.requests.site import Settings, Site
from tests.waiting import until
from tests.web.world import fill, page_of, recap

OVER = ("sqlite", "postgres")
WAITING = "refund-A1093"


def cli(store, *words):
    ran = subprocess.run(
        [sys.executable, "-m", "holdfast", *words, "--store", str(store)], capture_output=True, text=True, check=True
    )
    return json.loads(ran.stdout)


def test_the_list_tells_what_the_command_line_tells(page, store):
    told = page.get("/tasks")["tasks"]
    wanted = cli(store, "list", "--json")
    assert told == [{name: value for name, value in row.items() if name != "why"} for row in wanted]


def test_rows_tell_what_the_log_tells(page, store):
    told = page.get(f"/tasks/{WAITING}/rows")["rows"]
    wanted = cli(store, "log", WAITING, "--json")
    assert [row[:1] + row[2:5] for row in told] == [[w["seq"], w["kind"], w["verb"], w["about"]] for w in wanted]
    assert [row[11] for row in told] == [one["by"] for one in wanted]


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ("status:failed", ["import-crm-771"]),
        ("status:doubt", ["wire-0098"]),
        ("status:interrupted", []),
        ("agent:refunds", [WAITING]),
        ("agent:refunds status:failed", []),
        ("user:ben", ["trip-rome-02"]),
        ("thread:standup", ["recap-standup-1117"]),
        ("waiting:approval agent:refunds", [WAITING]),
        ("id:wire-*", ["wire-0098"]),
        ("scrape-docs/40#", ["scrape-docs/40#1~a"]),
        ("stage:telling changed<1h", ["recap-standup-1117"]),
        ("status:waiting agent!=refunds agent!=treasury", ["triage-inc-5521", "trip-rome-02"]),
        ("status:waiting agent≠refunds user!=ben agent!=treasury", ["triage-inc-5521"]),
        ("status!=waiting status!=pending status!=cancelled", ["import-crm-771", "recap-standup-1117"]),
    ],
)
def test_the_filter_finds_by_index(page, asked, ids):
    from urllib.parse import quote

    assert [row["id"] for row in page.get(f"/tasks?q={quote(asked)}")["tasks"]] == ids


@pytest.mark.parametrize(
    "asked",
    [
        "cost>0.5",
        "facts.customer=acme",
        "colour:red",
        "status:",
        "agent:'x",
        "status:odd",
        "status!=odd",
        "id!=a",
        "parent!=b",
    ],
)
def test_what_no_index_serves_is_refused_with_what_would_do(page, asked):
    from urllib.parse import quote

    status, told = page.ask("GET", f"/api/v1/tasks?q={quote(asked)}")
    assert status == 400 and told["code"] == "invalid-value" and told["hint"]


def test_filters_are_read_with_quotes():
    found = filters_of("agent:'my agent' id:a* queue!='slow mail'")
    assert found.asked == {"agent": "my agent", "prefix": "a"} and found.without == (("queue", "slow mail"),)


def test_what_is_left_out_is_passed_over_up_to_a_limit_and_the_next_page_begins_behind_it(monkeypatch):
    from holdfast.web.requests import filters

    monkeypatch.setattr(filters, "MOST_PASSED", 4)
    with holdfast.open("memory:") as app:
        for number in range(10):
            app.start("wanted" if number in (0, 8) else "heartbeat", id=f"t{number}")
        asked, pages, after = filters_of("agent!=heartbeat"), [], None
        while not pages or after is not None:
            part = filters.page_of(app, asked, after, 50)
            pages.append(([row.id for row in part.rows], part.looked_at))
            after = part.next
    assert pages == [(["t8"], 4), ([], 4), (["t0"], 2)]


def test_pages_follow_each_other_without_a_gap(page):
    whole = [row["id"] for row in page.get("/tasks?limit=500")["tasks"]]
    found, after = [], ""
    while True:
        part = page.get(f"/tasks?limit=2&after={after.replace('#', '%23')}")
        found += [row["id"] for row in part["tasks"]]
        after = part["next"]
        if after is None:
            break
    assert found == whole


@pytest.mark.parametrize(
    "path",
    ["/tasks?limit=0", "/tasks?limit=501", "/tasks?limit=x", "/tasks?limit=-1", "/tasks/wire-0098/rows?after=1e3"],
)
def test_numbers_out_of_range_are_refused(page, path):
    status, told = page.ask("GET", API + path)
    assert status == 400 and told["code"] == "invalid-value"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/tasks/nobody", 404, "task-not-found"),
        ("/tasks/nobody/rows", 404, "task-not-found"),
        ("/tasks/nobody/steps", 404, "task-not-found"),
        ("/tasks/wire-0098?at=999", 404, "seq-out-of-range"),
        ("/tasks/wire-0098/events/999", 404, "seq-out-of-range"),
        ("/tasks/wire-0098/events/zero", 400, "invalid-value"),
        ("/tasks/wire-0098/steps/nothing%231", 404, "step-not-found"),
        ("/audit?after=odd", 400, "invalid-value"),
    ],
)
def test_what_is_not_there_is_said_with_its_code(page, path, status, code):
    given, told = page.ask("GET", API + path)
    assert (given, told["code"]) == (status, code) and told["detail"]


def test_an_id_with_any_character_is_one_part_of_the_path(page):
    told = page.get("/tasks/scrape-docs%2F40%231~a")
    assert told["id"] == "scrape-docs/40#1~a" and told["status"] == "cancelled"


def test_counts_are_those_of_the_store(page):
    told = page.get("/tasks/counts")
    assert told["by_status"] == {"cancelled": 1, "completed": 1, "failed": 1, "pending": 1, "waiting": 4}
    assert told["in_doubt"] == 1 and told["interrupted"] == 0 and told["tasks"] == 8


def test_the_waterfall_has_tries_pauses_waits_doubts_and_who_held_the_task(page):
    steps = {one["key"]: one for one in page.get("/tasks/import-crm-771/steps")["steps"]}
    assert [bar[0] for bar in steps["search#1"]["bars"]] == ["failed", "pause", "failed", "pause", "done"]
    assert steps["search#1"]["attempts"] == 3 and steps["write_rows#1"]["status"] == "failed"
    asked = page.get(f"/tasks/{WAITING}/steps")
    by_key = {one["key"]: one for one in asked["steps"]}
    assert [bar[0] for bar in by_key["refund#1"]["bars"]] == ["wait"] and by_key["refund#1"]["bars"][0][2] is None
    assert asked["stages"] == ["checking", "approving", "telling"]
    assert [lane["end"] for lane in asked["lanes"]] == ["released"]
    doubt = page.get("/tasks/wire-0098/steps")["steps"][0]
    assert doubt["status"] == "in doubt" and doubt["bars"][-1][0] == "doubt" and doubt["bars"][-1][2] is None


def test_strips_say_how_tasks_went(page):
    told = page.get("/strips?id=import-crm-771&id=wire-0098&id=nobody")["strips"]
    assert set(told) == {"import-crm-771", "wire-0098"}
    assert [kind for kind, _ in told["import-crm-771"]["pieces"]] == [
        *("failed", "pause", "failed", "pause", "done", "failed")
    ]
    assert "bank_transfer#1 is in doubt" in told["wire-0098"]["came"]


def test_state_and_deltas_lead_from_any_seq_to_any_later_one(page, store):
    import jsonpatch

    with holdfast.open(store) as app:
        head = app.head("recap-standup-1117")
        for start in range(head):
            doc = page.get(f"/tasks/recap-standup-1117/state?at={start}")["doc"] if start else {}
            for seq, ops in page.get(f"/tasks/recap-standup-1117/deltas?after={start}")["deltas"]:
                doc = jsonpatch.JsonPatch(ops).apply(doc)
                wanted = app.at("recap-standup-1117", seq).to_dict(sections=list(doc))
                assert doc == json.loads(json.dumps(wanted, default=str))


def test_a_state_is_given_in_the_sections_that_are_asked_for(page):
    told = page.get("/tasks/recap-standup-1117/state?at=5&sections=state,facts")
    assert set(told["doc"]) == {"state", "facts"} and told["seq"] == 5
    assert page.ask("GET", "/api/v1/tasks/recap-standup-1117/state?sections=state,odd")[0] == 400


def test_of_many_entries_the_inbox_shows_those_of_the_oldest_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(inbox, "MOST_INBOX", 3)
    with holdfast.open(tmp_path / "store.db") as app:
        fill(app)
        every = [one.task for one in app.inbox(order="oldest")]
        assert every[:4] == ["refund-A1093", "wire-0098", "trip-rome-02", "triage-inc-5521"]
        assert every[:4] == [one.task for one in app.inbox()][3::-1]
        call = PageCall(Site(app, Settings(), None), Person("ana"), {}, {})
        told = inbox.entries(call).body
        assert told["more"] and [one["task"] for one in told["entries"]] == every[:3]
        with pytest.raises(holdfast.InvalidValue, match="order"):
            next(app.inbox(order="changed"))


@pytest.mark.parametrize("path", ["recap-standup-1117/state?at=5", "recap-standup-1117?at=5", "recap-standup-1117"])
def test_an_answer_that_has_not_changed_is_not_sent_again(page, path):
    _, headers, _ = page.raw("GET", f"/api/v1/tasks/{path}")
    assert page.raw("GET", f"/api/v1/tasks/{path}", headers={"If-None-Match": headers["etag"]})[0] == 304
    assert page.raw("GET", f"/api/v1/tasks/{path}", headers={"If-None-Match": '"another"'})[0] == 200


def test_tasks_are_counted_by_agent_and_stage_and_by_when_they_started_if_asked_for(page, store):
    told = page.get("/tasks/counts?by=agent")
    with holdfast.open(store) as app:
        rows = app.list(limit=1_000)
        assert told["by_agent"] == Counter(row.agent for row in rows) and told["looked_at"] == len(rows)
        assert told["by_stage"]["recap"] == Counter(row.stage for row in rows if row.agent == "recap" and row.stage)
        since_us = app.clock.now_us() - 3_600_000_000
    assert sum(page.get("/rates?also=started")["started"]) == sum(row.created_us > since_us for row in rows)
    assert "started" not in page.get("/rates") and "by_agent" not in page.get("/tasks/counts")


def test_files_and_long_answers_are_sent_compressed_to_who_takes_that(page):
    _, _, shell = page.raw("GET", "/")
    sheet = re.search(r'href="([^"]*holdfast.css)"', shell).group(1)
    font = sheet.replace("holdfast.css", "jetbrains-mono.woff2")
    for path, packs in ((sheet, True), (font, False), ("/api/v1/about", False)):
        status, headers, _ = page.bytes("GET", path, {"Accept-Encoding": "br, gzip"})
        assert (status, headers.get("content-encoding")) == (200, "gzip" if packs else None), path
    plain = page.bytes("GET", "/api/v1/openapi.json", {})
    packed = page.bytes("GET", "/api/v1/openapi.json", {"Accept-Encoding": "gzip"})
    assert packed[1]["content-encoding"] == "gzip" and gzip.decompress(packed[2]) == plain[2]
    assert len(packed[2]) * 4 < len(plain[2])


def test_an_export_is_saved_and_never_shown(page):
    status, headers, text = page.raw("GET", "/api/v1/tasks/wire-0098/export")
    assert status == 200 and headers["content-disposition"].startswith("attachment")
    assert headers["content-type"] == "application/octet-stream" and headers["x-content-type-options"] == "nosniff"
    assert len(text.splitlines()) > 3


def test_the_description_is_of_exactly_these_routes(page):
    told = page.get("/openapi.json")
    described = {(method.upper(), path) for path, methods in told["paths"].items() for method in methods}
    assert described == {(one.method, one.path.removeprefix(API)) for one in ROUTES if one.path.startswith(API)}
    assert told["paths"]["/tasks/{id}/approve"]["post"]["requestBody"]["content"]["application/json"]["schema"]


def test_verify_names_a_chain_that_is_intact(page):
    assert page.get("/tasks/wire-0098/verify")["ok"] is True


def test_the_inbox_is_oldest_first_with_what_an_approval_is_bound_to(page, store):
    told = page.get("/inbox")["entries"]
    assert [one["kind"] for one in told] == ["approval", "doubt", "question", "budget", "no_worker"]
    with holdfast.open(store) as app:
        asked = next(one for one in app.inbox() if one.kind == "approval")
    assert told[0]["bound"] == asked.bound and told[0]["arguments"] == asked.arguments


# Streams


def rows_in(frames, upto):
    """The seqs that a stream gives until one of them is there, and the id of the last frame."""
    seqs = []
    for kind, data, place in frames:
        if kind == "rows":
            seqs += [row[0] for row in data["rows"]]
            if seqs[-1] >= upto:
                return seqs, place
    raise AssertionError(seqs)


def test_a_stream_begins_after_its_last_id_and_gives_each_event_once(own):
    head = own.app.head("trip-rome-02")
    seqs, place = rows_in(own.stream("/tasks/trip-rome-02/stream"), head)
    assert seqs == list(range(1, head + 1)) and place == str(head)
    own.app.answer("trip-rome-02", "stop", "yes", by="ben")
    again, _ = rows_in(own.stream("/tasks/trip-rome-02/stream", last=head - 1), own.app.head("trip-rome-02"))
    assert again == list(range(head, own.app.head("trip-rome-02") + 1))


def test_a_stream_of_a_task_that_is_not_there_says_so(own):
    kinds = [kind for kind, _, _ in itertools.islice(own.stream("/tasks/nobody/stream"), 1)]
    assert kinds == ["gone"]


def test_the_list_is_told_of_changes_of_other_processes(own):
    heard = {}
    frames = own.stream("/stream")
    assert next(frames)[0] == "counts"
    own.app.cancel("trip-rome-02", by="ben")
    while set(heard) != {"changed", "counts"}:  # either may be first
        kind, heard[kind], _ = next(frames)
    assert heard["counts"]["by_status"]["cancelled"] == 2
    assert heard["changed"]["tasks"][0]["id"] == "trip-rome-02"


def test_fifty_tabs_on_one_task_read_the_store_as_one(tmp_path, monkeypatch):
    """Counted at the store's own methods, in one process, over as long as it takes to hear of five events."""
    import asyncio

    from holdfast.web.feed import Feeds
    from holdfast.web.requests.site import Settings, Site

    def reads(tabs):
        counted = [0]
        with holdfast.open(tmp_path / f"{tabs}.db") as app:
            fill(app)
            events = app.events

            def counting(*args, **kwargs):
                counted[0] += 1
                return events(*args, **kwargs)

            monkeypatch.setattr(app, "events", counting)

            async def watch():
                feeds = Feeds(Site(app, Settings(), None))
                head = app.head("trip-rome-02")

                async def one(number):
                    async for part in feeds.task(f"tab-{number}", "trip-rome-02", head):
                        if b"event: rows" in part and b'"signal"' in part:
                            return

                listening = [asyncio.create_task(one(number)) for number in range(tabs)]
                await asyncio.sleep(0.3)
                await asyncio.to_thread(app.signal, "trip-rome-02", "go", 1, by="ben")
                await asyncio.wait_for(asyncio.gather(*listening), 10)

            asyncio.run(watch())
        return counted[0]

    assert reads(50) == reads(1)


def test_while_no_one_watches_nothing_is_read(own):
    """No thread wakes up, but for the one that runs the server's own loop."""
    next(own.stream("/tasks/trip-rome-02/stream"))
    tasks = Path(f"/proc/{own.process.pid}/task")

    def wakes():
        others = [one for one in tasks.iterdir() if one.name != str(own.process.pid)]
        return {
            one.name: re.search(r"^voluntary_ctxt_switches:\s*(\d+)", (one / "status").read_text(), re.M)[1]
            for one in others
        }

    def quiet():
        before = wakes()
        threading.Event().wait(2.0)
        return wakes() == before

    # On a machine that is busy, the end of the stream is noticed late. From then on nothing is done.
    until(quiet, 30, "threads wake up")
    assert quiet(), "it is quiet, and stays so"


@pytest.mark.parametrize("option", ["--read-only"])
def test_a_page_that_is_read_only_shows_everything_and_does_nothing(tmp_path, option):
    store = tmp_path / "store.db"
    with holdfast.open(store) as app:
        app.run(recap, id="done")
    with page_of(store, option) as page:
        assert page.get("/about")["read_only"] is True and page.get("/about")["rights"] == ["look"]
        assert page.get("/tasks")["tasks"][0]["id"] == "done"
        status, told = page.act("/tasks/done/cancel", {})
        assert (status, told["code"]) == (403, "not-allowed")

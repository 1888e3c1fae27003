"""The page inside another program, and over every store: mounts are apart, people come from `authorize`."""

import asyncio
import json

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

import holdfast
from holdfast import web
from holdfast.web import Person
from tests.web.world import fill, recap

STORES = ("memory", "sqlite", "postgres")


def ask(app, method, path, body=None, **headers):
    """Status, headers and body of one request, without a socket."""
    sent = {"host": "tasks.example", **{name.replace("_", "-"): value for name, value in headers.items()}}
    data = b"" if body is None else json.dumps(body).encode()
    if body is not None:
        sent.setdefault("content-type", "application/json")
    got = {}
    parts = []

    async def receive():
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message):
        if message["type"] == "http.response.start":
            got.update(status=message["status"], headers={k.decode(): v.decode() for k, v in message["headers"]})
        else:
            parts.append(message.get("body", b""))

    where, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": where,
        "raw_path": where.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "https",
        "http_version": "1.1",
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
    }
    asyncio.run(app(scope, receive, send))
    return got["status"], got["headers"], b"".join(parts).decode()


def who(scope):
    """People by a header that an outer program would set."""
    name = dict(scope["headers"]).get(b"x-person", b"").decode()
    return Person(name, ("look", "answer")) if name else None


@pytest.fixture
def app(url):
    with holdfast.open(url) as opened:
        fill(opened)
        yield opened


def test_under_a_prefix_its_links_and_routes_have_the_prefix(app):
    outer = Starlette(routes=[Mount("/holdfast", web.asgi(app, authorize=who))])
    status, _, text = ask(outer, "GET", "/holdfast/tasks/wire-0098")
    assert status == 200 and 'data-base="/holdfast"' in text and 'src="/holdfast/static/' in text
    file = text.partition('src="')[2].partition('"')[0]
    assert ask(outer, "GET", file)[0] == 200
    status, _, told = ask(outer, "GET", "/holdfast/api/v1/tasks/wire-0098", x_person="ben")
    assert status == 200 and json.loads(told)["id"] == "wire-0098"
    assert ask(outer, "GET", "/holdfast/api/v1/tasks/scrape-docs%2F40%231~a", x_person="ben")[0] == 200


def test_people_come_from_authorize_and_the_request_can_not_say_otherwise(app):
    page = web.asgi(app, authorize=who)
    assert ask(page, "GET", "/api/v1/tasks")[0] == 401
    body = {"question": "stop", "value": "yes"}
    status, _, told = ask(page, "POST", "/api/v1/tasks/trip-rome-02/answer", body, x_person="ben", idempotency_key="1")
    assert status == 200, told
    ended = next(one.event for one in app.events("trip-rome-02") if one.kind == "wait_ended")
    assert ended.by == "ben"
    assert ask(page, "POST", "/api/v1/tasks/wire-0098/cancel", {}, x_person="ben", idempotency_key="2")[0] == 403


def test_another_origin_is_refused_inside_a_program_too(app):
    page = web.asgi(app, authorize=who)
    assert ask(page, "GET", "/api/v1/tasks", x_person="ben", origin="https://evil.example")[0] == 403
    assert ask(page, "GET", "/api/v1/tasks", x_person="ben", origin="https://tasks.example")[0] == 200


def test_two_pages_of_two_stores_in_one_process_are_apart(app):
    with holdfast.open("memory:") as other:
        other.run(recap, id="only-here")
        one, two = web.asgi(app, authorize=who), web.asgi(other, authorize=who)
        assert [row["id"] for row in json.loads(ask(two, "GET", "/api/v1/tasks", x_person="b")[2])["tasks"]] == [
            "only-here"
        ]
        assert ask(one, "GET", "/api/v1/tasks/only-here", x_person="b")[0] == 404


def test_every_store_gives_the_same_facts(app):
    page = web.asgi(app, authorize=who)

    def told(path):
        status, _, text = ask(page, "GET", f"/api/v1{path}", x_person="b")
        assert status == 200, text
        return json.loads(text)

    assert told("/tasks/counts")["by_status"] == {
        "cancelled": 1,
        "completed": 1,
        "failed": 1,
        "pending": 1,
        "waiting": 4,
    }
    assert [one["kind"] for one in told("/inbox")["entries"]] == [
        "approval",
        "doubt",
        "question",
        "budget",
        "no_worker",
    ]
    steps = told("/tasks/import-crm-771/steps")["steps"]
    assert [[bar[0] for bar in one["bars"]] for one in steps] == [
        ["failed", "pause", "failed", "pause", "done"],
        ["failed"],
    ]
    assert told("/tasks/recap-standup-1117/deltas")["deltas"] and told("/audit")["acts"] and told("/workers")["queues"]


@pytest.mark.parametrize("prefix", ["/holdfast", "/deep/down"])
def test_in_fastapi_under_a_prefix_beside_a_second_one(tmp_path, prefix):
    with holdfast.open(tmp_path / "a.db") as one, holdfast.open(tmp_path / "b.db") as two:
        one.run(recap, {"n": 1}, id="of-one")
        two.run(recap, {"n": 1}, id="of-two")
        api = FastAPI()
        api.mount(prefix, web.asgi(one, authorize=lambda scope: Person("ana")))
        api.mount("/second", web.asgi(two, authorize=lambda scope: Person("ben")))
        status, _, text = ask(api, "GET", f"{prefix}/tasks/of-one")
        assert status == 200 and f'src="{prefix}/static/' in text
        for at, own, other, by in ((prefix, "of-one", "of-two", "ana"), ("/second", "of-two", "of-one", "ben")):
            assert json.loads(ask(api, "GET", f"{at}/api/v1/tasks/{own}")[2])["id"] == own
            assert ask(api, "GET", f"{at}/api/v1/tasks/{other}")[0] == 404
            assert json.loads(ask(api, "GET", f"{at}/api/v1/about")[2])["by"] == by

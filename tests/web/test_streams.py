"""Streams when something is odd: a place of another store, a listener that leaves at once, a server that ends."""

import contextlib
import http.client
import select
import signal
import subprocess
import sys

import pytest

import holdfast
from tests.waiting import until
from tests.web.world import page_of

OVER = ("sqlite", "postgres")


def first(own, path, **more):
    """The first frame of a stream, which is closed then."""
    with contextlib.closing(own.stream(path, **more)) as frames:
        return next(frames)


@pytest.mark.parametrize("cursor", ["odd", "-1", "1:2", "9" * 18 + ".5"])
def test_a_place_that_is_none_of_this_store_begins_anew_and_says_so(own, cursor):
    kind, told, place = first(own, "/stream", last=cursor)
    assert (kind, told) == ("reset", {}) and place, "and names the place where it begins now"
    assert first(own, "/stream", last=place)[0] == "counts"


def test_an_odd_place_of_one_listener_ends_no_other_stream(own):
    with contextlib.closing(own.stream("/stream")) as frames:
        assert next(frames)[0] == "counts"
        assert first(own, "/stream", last="odd")[0] == "reset"
        own.app.cancel("trip-rome-02", by="ben")
        assert next(frames)[0] in ("changed", "counts")


def test_a_stream_that_is_opened_while_the_store_is_gone_says_why(tmp_path):
    store = tmp_path / "store.db"
    with holdfast.open(store) as app:
        app.start("x", {}, id="one")
    with page_of(store) as page:
        place = page.get("/tasks")["place"]
        store.rename(tmp_path / "elsewhere.db")
        for last in (None, place):
            kind, told, _ = first(page, "/stream", last=last)
            assert kind == "failed" and "was removed or replaced" in told["detail"]


def test_numbers_come_after_a_listener_that_left_while_they_were_counted(own):
    for _ in range(3):
        connection = http.client.HTTPConnection("127.0.0.1", own.port, timeout=60)
        connection.request("GET", "/api/v1/stream", headers={"Authorization": f"Bearer {own.token}"})
        connection.getresponse().readline()
        connection.close()
    assert first(own, "/stream")[0] == "counts"


def test_a_stream_from_the_place_of_a_list_misses_nothing(own):
    place = own.get("/tasks")["place"]
    own.app.cancel("trip-rome-02", by="ben")
    with contextlib.closing(own.stream("/stream", last=place)) as frames:
        changed = next(data for kind, data, _ in frames if kind == "changed")
    assert [one["id"] for one in changed["tasks"]] == ["trip-rome-02"]


EMBEDDED = """
import sys, holdfast, uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from holdfast.web import Person, asgi

app = holdfast.open(sys.argv[1])
outer = Starlette(routes=[Mount("/holdfast", asgi(app, authorize=lambda scope: Person("ana")))])

class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)

Server(uvicorn.Config(outer, port=0, log_level="error")).run()
"""


def test_a_server_with_open_streams_ends_when_it_is_told_to(tmp_path):
    """uvicorn waits for answers that are under way, and an app that is mounted gets no word of its end."""
    store = tmp_path / "store.db"
    with holdfast.open(store) as app:
        app.start("x", {}, id="one")
    server = subprocess.Popen([sys.executable, "-c", EMBEDDED, str(store)], stdout=subprocess.PIPE, text=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(server)
        stack.callback(server.kill)
        assert select.select([server.stdout], [], [], 60)[0], "it did not start"
        port = int(server.stdout.readline())
        streams = []
        for path in ("/stream", "/tasks/one/stream"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            stack.callback(connection.close)
            connection.request("GET", f"/holdfast/api/v1{path}")
            streams.append(stack.enter_context(connection.getresponse()))
            assert streams[-1].readline() == b"retry: 1000\n"
        server.send_signal(signal.SIGTERM)
        assert all(b"event: end" in one.read() for one in streams), "and each says so"
        server.wait(30)


@pytest.mark.page
def test_what_changes_while_the_server_is_gone_is_on_the_list_when_it_is_back(address, browser):
    env = {"HOLDFAST_UI_TOKEN": "a-token-for-this-test"}
    with holdfast.open(address) as app, contextlib.ExitStack() as stack:
        app.start("x", {}, id="before")
        with page_of(address, env=env, login=False) as page:
            context = browser.new_context()
            stack.callback(context.close)
            opened = context.new_page()
            opened.goto(f"{page.url}/#code={env['HOLDFAST_UI_TOKEN']}")
            opened.locator("tr", has_text="before").first.wait_for()
            opened.locator(".live:not(.lost)", has_text="Live").wait_for()
            page.process.kill()
            page.process.wait()
            opened.locator(".live.lost").wait_for()
            app.cancel("before", by="ben")
            app.start("x", {}, id="meanwhile")
        with page_of(address, "--port", str(page.port), env=env, login=False):
            opened.locator("tr", has_text="meanwhile").first.wait_for()
            cancelled = opened.locator("tr", has_text="before").locator(".st.cancelled")
            until(lambda: cancelled.count() == 1, 20, lambda: opened.locator("tbody").inner_text())

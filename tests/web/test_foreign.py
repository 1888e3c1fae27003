"""What reaches a handler: a random tenth of all combinations against an oracle on every route, and another site's page.

Handlers are not executed here. An app that notes which of them would be is asked instead.
"""

import asyncio
import contextlib
import functools
import http.server
import random
import threading

import pytest
import uvicorn
from starlette.responses import Response

import holdfast
from holdfast.web.access.gate import RIGHTS, Gate, Person, own_hosts
from holdfast.web.access.sessions import Sessions
from holdfast.web.asgi import API, ROUTES, PageApp
from holdfast.web.requests.site import Settings, Site
from tests.web.test_gate import path_of

pytestmark = pytest.mark.page
PORT = 7433
OWN = f"127.0.0.1:{PORT}"
EACH = 400

HOSTS = ([OWN], [f"localhost:{PORT}"], ["evil.example"], [f"evil.example:{PORT}"], ["127.0.0.1"], [], [OWN, OWN])
ORIGINS = ([], [f"http://{OWN}"], ["null"], ["https://evil.example"], ["http://127.0.0.1:1"], [f"http://{OWN}"] * 2)
TYPES = (["application/json"], ["application/json; charset=utf-8"], ["text/plain"], ["multipart/form-data"], [])
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
SITES = ([], ["same-origin"], ["none"], ["same-site"], ["cross-site"])


class Noting(PageApp):
    """The app, except that a handler which would be executed is noted."""

    def __init__(self, *args):
        super().__init__(*args)
        self.reached = []

    async def _handled(self, handler, call, request):
        self.reached.append(request.url.path)
        return Response(status_code=204)

    def _stream(self, request, call):
        self.reached.append(request.url.path)
        return Response(status_code=204)


@pytest.fixture
def app():
    with holdfast.open("memory:") as opened:
        yield opened


def asked(page, method, path, headers):
    """The status of one request, without a socket."""
    got = []

    async def receive():
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message):
        if message["type"] == "http.response.start":
            got.append(message["status"])

    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"root_path": "", "scheme": "http", "http_version": "1.1"}
    scope["headers"] = [(name.encode(), one.encode()) for name, values in headers.items() for one in values]
    return page(scope, receive, send), got


def allowed(route, method, token, good, headers):
    """Whether the specification lets this request reach its handler, told without the gate's code."""
    host, origin, kind = headers["host"], headers["origin"], headers["content-type"]
    if len(token) > 1 or len(host) != 1 or host[0] not in (OWN, f"localhost:{PORT}"):
        return False
    if origin and origin != [f"http://{host[0]}"]:
        return False
    if headers["sec-fetch-site"] not in ([], ["same-origin"], ["none"]):
        return False
    asked = "GET" if method == "HEAD" else method
    route = next((one for one in ROUTES if (one.method, one.path) == (asked, route.path)), None)
    if route is None:
        return False
    if method not in ("GET", "HEAD") and not (kind and kind[0].startswith("application/json")):
        return False
    return route.right == "public" or token == [f"Bearer {good}"]


@pytest.mark.parametrize("route", ROUTES, ids=lambda one: f"{one.method} {one.path}")
def test_exactly_what_the_specification_allows_reaches_a_handler(app, route):
    sessions = Sessions(Person("ana", RIGHTS))
    good = sessions.exchange(sessions.code())
    tokens = ([], [f"Bearer {good}"], ["Bearer guess"], ["Basic YTpi"], [f"Bearer {good}"] * 2)
    chance = random.Random(f"{route.method} {route.path}")
    plain = (METHODS[0], HOSTS[0], ORIGINS[0], TYPES[0], SITES[0], tokens[1])
    cases = [[chance.choice(one) for one in (METHODS, HOSTS, ORIGINS, TYPES, SITES, tokens)] for _ in range(EACH)]
    cases += [[route.method, *plain[1:]]]
    for number, values in enumerate((HOSTS, ORIGINS, TYPES, SITES, tokens), start=1):  # one thing wrong at a time
        cases += [[route.method, *plain[1:number], one, *plain[number + 1 :]] for one in values]

    async def all_of_them():
        found = set()
        for method, host, origin, kind, site, token in cases:
            page = Noting(Site(app, Settings(), sessions), Gate(sessions, None, own_hosts("127.0.0.1", PORT)))
            headers = {"host": host, "origin": origin, "content-type": kind, "sec-fetch-site": site}
            answered, got = asked(page, method, path_of(route), {**headers, "authorization": token})
            await answered
            wanted = allowed(route, method, token, good, headers)
            reached = bool(page.reached) if route.right != "public" or route.handler else got[0] == 200
            assert reached == wanted, (method, host, origin, kind, site, token, got)
            assert (got[0] < 300) == wanted, got
            found.add(wanted)
        return found

    assert asyncio.run(all_of_them()) == {True, False}


@pytest.mark.parametrize("route", [one for one in ROUTES if one.right != "public"], ids=lambda one: one.path)
def test_each_route_is_reached_with_exactly_the_rights_of_its_row(app, route):
    """In a program: every set of rights a person can have."""

    async def each():
        for number in range(2 ** len(RIGHTS)):
            rights = tuple(right for place, right in enumerate(RIGHTS) if number >> place & 1)
            page = Noting(Site(app, Settings(), None), Gate(None, lambda scope, has=rights: Person("ana", has), None))
            headers = {"host": ["tasks.example"], "content-type": ["application/json"]}
            answered, got = asked(page, route.method, path_of(route), headers)
            await answered
            assert bool(page.reached) == (route.right in rights) and got[0] == (204 if route.right in rights else 403)

    asyncio.run(each())


def test_every_route_has_a_right_and_every_act_needs_more_than_to_look():
    for route in ROUTES:
        assert route.right in ("public", *RIGHTS), route
        if route.path.startswith(API) and route.method == "POST" and route.right != "public":
            assert route.right != "look" and route.body is not None, route
        if route.method == "GET":
            assert route.right in ("public", "look", "admin"), route
    assert len({(one.method, one.path) for one in ROUTES}) == len(ROUTES)


# Another site's page

ATTACKS = """<!doctype html><title>evil</title><body><form method=post target=_blank></form><script>
const page = location.search.slice(1);
const paths = PATHS;
const tries = [];
const attempt = (name, made) => tries.push(Promise.resolve().then(made).then(
  (got) => [name, String(got.status) + got.type], () => [name, "refused"]));
const waits = (target, good, bad) => new Promise((done, fail) => {
  target[good] = () => done({status: "opened", type: ""});
  target[bad] = () => fail(new Error("refused"));
  setTimeout(() => fail(new Error("silent")), 2000);
});
for (const path of paths) {
  const url = page + path;
  attempt("fetch " + path, () => fetch(url));
  attempt("fetch without cors " + path, () => fetch(url, {mode: "no-cors", credentials: "include"}));
  attempt("post " + path, () => fetch(url, {method: "POST", mode: "no-cors", body: "{}"}));
  attempt("post json " + path, () => fetch(url, {method: "POST", body: "{}", headers: {
    "content-type": "application/json", "idempotency-key": "1"}}));
  attempt("with a token " + path, () => fetch(url, {headers: {authorization: "Bearer guess"}}));
}
attempt("event source", () => waits(new EventSource(page + "/api/v1/stream"), "onopen", "onerror"));
attempt("web socket", () => waits(new WebSocket(page.replace("http", "ws") + "/api/v1/stream"), "onopen", "onerror"));
attempt("worker", () => waits(new Worker(page + "/static/x/main.js"), "onmessage", "onerror"));
const elements = {img: "src", script: "src", iframe: "src", link: "href", object: "data"};
for (const tag in elements) {
  const one = document.createElement(tag);
  if (tag === "link") one.rel = "stylesheet";
  one[elements[tag]] = page + "/api/v1/tasks";
  document.body.append(one);
}
const form = document.forms[0];
form.action = page + "/api/v1/tasks/refund-A1093/cancel";
form.enctype = "text/plain";
form.submit();
window.opened = window.open(page + "/", "_blank");
Promise.all(tries).then((found) => { window.found = found; document.title = "done"; });
</script>"""


TOUCH = "() => { try { return String(opened && opened.document) } catch (error) { return 'refused' } }"


@contextlib.contextmanager
def noting_page(app):
    """A page that notes which handlers would be executed, on a real port."""
    sessions = Sessions(Person("ana", RIGHTS))
    config = uvicorn.Config(None, port=0, host="127.0.0.1", log_level="critical", lifespan="off")
    listening = config.bind_socket()
    port = listening.getsockname()[1]
    made = Noting(Site(app, Settings(), sessions), Gate(sessions, None, own_hosts("127.0.0.1", port)))
    config.app = made
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
    thread.start()
    try:
        yield made, port
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()


@contextlib.contextmanager
def evil_site():
    """A page of another program on this machine."""
    paths = sorted({path_of(one) for one in ROUTES if one.path.startswith(API)})
    text = ATTACKS.replace("PATHS", repr(paths)).encode()

    class Evil(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(text)

        log_message = functools.partialmethod(lambda *_: None)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_page_of_another_site_reaches_no_handler_however_it_tries(app, browser, name):
    """By fetch, form, EventSource, WebSocket, worker, elements, iframe and a window of its own, on each route."""
    with noting_page(app) as (made, port), evil_site() as evil:
        context = browser.new_context()
        attacker = context.new_page()
        attacker.goto(f"http://{name}:{evil}/?http://127.0.0.1:{port}")
        attacker.wait_for_function("document.title === 'done'", timeout=20_000)
        found = dict(attacker.evaluate("window.found"))
        assert len(found) == 5 * len({path_of(one) for one in ROUTES if one.path.startswith(API)}) + 3
        assert {how for how in found.values() if how not in ("refused", "0opaque")} == set(), "no answer was readable"
        assert attacker.frames[-1].evaluate("document.body ? document.body.innerText : ''").find("task") < 0
        assert attacker.evaluate(TOUCH) in ("refused", "null"), "its window is out of reach"
        assert made.reached == []
        context.close()

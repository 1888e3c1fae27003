"""Who is let in: every route against hosts, origins, methods, types and tokens; logging in; where a page may listen."""

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast import web
from holdfast.web.access.gate import Gate, Person, own_hosts
from holdfast.web.access.sessions import Sessions
from holdfast.web.asgi import ROUTES
from holdfast.web.page import POLICY
from holdfast.web.serving import address_file, check_host
from tests.web.world import page_of

SAMPLES = {"id": "refund-A1093", "seq": "1", "key": "read_order%231", "version": "x", "name": "main.js"}
PRIVATE = [route for route in ROUTES if route.right != "public"]
PUBLIC = [route for route in ROUTES if route.right == "public"]


def path_of(route):
    path = route.path
    for name in ("id", "seq", "key", "version", "name", "a", "b", "task", "kind"):
        path = path.replace(f"{{{name}}}", SAMPLES.get(name, "x"))
    return path


def sample(route):
    return None if route.method == "GET" else {}


def ids(route):
    return f"{route.method} {route.path}"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Basic YTpi"}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost/health?"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 403),
    ],
    ids=str,
)
def test_no_handler_is_reached_by_what_is_not_allowed(page, headers, status):
    for route in PRIVATE:
        given, told = page.ask(route.method, path_of(route), sample(route), headers)
        assert given == status, route
        assert set(told) >= {"type", "code", "title", "detail", "hint", "status"}


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_what_a_form_can_send_is_not_taken(page, kind):
    for route in ROUTES:
        if route.method == "POST":
            status, told = page.ask("POST", path_of(route), b"{}", {"Content-Type": kind})
            assert (status, told["code"]) == (415, "not-json"), route


@pytest.mark.parametrize("name", ["Host", "Origin", "Authorization"])
def test_a_doubled_header_is_refused(page, name):
    value = {"Host": f"127.0.0.1:{page.port}", "Origin": page.url, "Authorization": f"Bearer {page.token}"}[name]
    twice = [(name, value)] if name != "Origin" else [(name, value), (name, value)]
    for route in ROUTES:
        body = None if name == "Host" else sample(route)  # the server's parser refuses it, and reads no body
        status, _, text = page.raw(route.method, path_of(route), body, twice)
        assert status == 400 and (not text or "there twice" in text or name == "Host"), route


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_every_route_refuses_other_methods_and_carries_the_policy(page, method):
    for route in ROUTES:
        status, headers, _ = page.raw(method, path_of(route), {})
        assert status == 405, route
        assert headers["content-security-policy"] == POLICY and headers["x-content-type-options"] == "nosniff"
        assert not [one for one in headers if one.lower().startswith("access-control")]


def test_the_public_routes_are_the_shell_files_health_and_logging_in():
    others = [route.path for route in PUBLIC if route.method == "POST" or route.handler is not None]
    assert others == ["/healthz", "/api/v1/session", "/api/v1/link"]
    assert all(not route.path.startswith("/api/") for route in PUBLIC if route.method == "GET")


@pytest.mark.parametrize("route", [route for route in PUBLIC if route.method == "GET"], ids=ids)
def test_what_is_public_holds_nothing_of_the_store(page, route):
    status, headers, text = page.raw("GET", path_of(route), token="")
    assert status == 200 and headers["content-security-policy"] == POLICY
    for secret in ("refund-A1093", "store.db", page.token, page.code):
        assert secret not in text


@pytest.mark.parametrize("path", ["/nothing", "/api/v1/nothing", "/api/v1", "/api", "//api/v1/tasks"])
def test_what_is_not_in_the_table_is_not_found_and_not_even_that_without_a_session(page, path):
    assert page.ask("GET", path)[0] == 404
    assert page.ask("GET", path, token="")[0] == 401


@pytest.mark.parametrize(
    "path", ["/static/x/..%2f..%2f__init__.py", "/static/x/%2e%2e", "/static/x/../gate.py", "/static/x/gate.py"]
)
def test_only_files_of_the_front_end_are_served(page, path):
    assert page.ask("GET", path)[0] == 404


def test_another_page_may_link_to_the_shell_and_to_nothing_else(page):
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert page.raw("GET", "/", headers=visit, token="")[0] == 200
    assert page.raw("GET", "/", headers={**visit, "Sec-Fetch-Dest": "iframe"}, token="")[0] == 403
    assert page.raw("GET", "/static/x/main.js", headers=visit, token="")[0] == 403


def test_a_code_logs_in_once(own):
    assert own.login() == 401
    status, told = own.ask("POST", "/api/v1/link", {"code": own.key}, token="")
    assert status == 200 and own.login(told["code"]) == 200
    assert own.login(told["code"]) == 401
    assert own.ask("POST", "/api/v1/link", {"code": "guess"}, token="")[0] == 403


def test_codes_and_tokens_end(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    sessions = Sessions(Person("ana"))
    code = sessions.code()
    token = sessions.exchange(code)
    assert sessions.exchange(code) is None and sessions.person(token).id == "ana"
    late = sessions.code()
    now[0] += 5 * 60 + 1
    assert sessions.exchange(late) is None
    now[0] += 12 * 60 * 60
    assert sessions.person(token) is None


def test_the_file_beside_the_store_is_for_its_owner_and_goes_with_the_page(tmp_path):
    store = tmp_path / "store.db"
    holdfast.open(store).close()
    with page_of(store):
        file = Path(f"{store}-page")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        again = subprocess.run(
            [sys.executable, "-m", "holdfast", "ui", "--link", "--store", str(store)], capture_output=True, text=True
        )
        assert again.returncode == 0 and "/#code=" in again.stdout
    assert not file.exists()
    gone = subprocess.run(
        [sys.executable, "-m", "holdfast", "ui", "--link", "--store", str(store)], capture_output=True, text=True
    )
    assert gone.returncode == 2 and "no page of this store is running" in gone.stderr


@pytest.mark.parametrize(
    ("host", "token", "behind_proxy", "told"),
    [
        ("0.0.0.0", "", False, "no token"),
        ("0.0.0.0", "short", True, "5 characters"),
        ("192.168.1.2", "a-long-enough-token", False, "does not encrypt"),
        ("::", "", True, "no token"),
        ("127.0.0.1", "short", False, "5 characters"),
    ],
)
def test_it_does_not_listen_where_others_reach_it_without_authorisation(host, token, behind_proxy, told):
    with pytest.raises(holdfast.WebOpen, match=told) as refused:
        check_host(host, token, behind_proxy=behind_proxy)
    assert refused.value.code == "web-open" and refused.value.hint


def test_the_command_refuses_to_listen_off_loopback(tmp_path):
    store = tmp_path / "store.db"
    holdfast.open(store).close()
    command = [sys.executable, "-m", "holdfast", "ui", "--store", str(store), "--host", "0.0.0.0", "--no-open"]
    env = {name: value for name, value in os.environ.items() if name != "HOLDFAST_UI_TOKEN"}
    ended = subprocess.run(command, capture_output=True, text=True, env=env, timeout=20)
    assert ended.returncode == 2 and "error[web-open]" in ended.stderr


def test_only_a_proxy_that_one_named_says_under_which_path_people_see_the_page(tmp_path):
    store = tmp_path / "store.db"
    holdfast.open(store).close()

    def shell(page, given):
        status, _, text = page.raw("GET", "/", headers={"X-Forwarded-Prefix": given})
        assert status == 200
        return text

    with page_of(store) as page:
        assert 'data-base=""' in shell(page, "/tools/holdfast")
    with page_of(store, "--behind-proxy") as page:
        told = shell(page, "/tools/holdfast/")
        assert 'data-base="/tools/holdfast"' in told and 'src="/tools/holdfast/static/' in told
        status, _, _ = page.raw("GET", "/api/v1/tasks", headers={"X-Forwarded-Prefix": "/tools/holdfast"})
        assert status == 200
        for odd in ("//evil.example", "/../x", '/"><script>', "https://evil.example", "/a//b"):
            assert 'data-base=""' in shell(page, odd), odd


def test_localhost_is_this_page_whichever_address_it_means(tmp_path):
    store = tmp_path / "store.db"
    holdfast.open(store).close()
    try:
        with socket.socket(socket.AF_INET6) as six:
            six.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no ::1")
    with page_of(store) as page, socket.create_connection(("::1", page.port), timeout=20) as six:
        six.sendall(f"GET /healthz HTTP/1.1\r\nHost: localhost:{page.port}\r\nConnection: close\r\n\r\n".encode())
        assert six.makefile("rb").readline().startswith(b"HTTP/1.1 200")
    command = [sys.executable, "-m", "holdfast", "ui", "--store", str(store), "--host", "[::1]", "--port", "0"]
    told = subprocess.run([*command, "--no-open", "--for", "10ms"], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0 and told.stdout.startswith("http://[::1]:"), told.stderr


def test_a_page_of_a_namespace_is_found_whatever_the_namespace_is_called(tmp_path):
    store = tmp_path / "store.db"
    assert address_file(str(store), "a/../b").parent == tmp_path
    assert address_file(str(store), "a/b") != address_file(str(store), "a-b")


def test_a_page_in_a_program_needs_authorize():
    with holdfast.open("memory:") as app, pytest.raises(holdfast.WebOpen, match="authorize"):
        web.asgi(app, authorize=None)


def test_the_port_is_7433_or_the_next_one_that_is_free(tmp_path):
    store = tmp_path / "store.db"
    holdfast.open(store).close()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.listen()
        command = [sys.executable, "-m", "holdfast", "ui", "--store", str(store), "--port", str(port), "--no-open"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert ended.returncode == 2 and "can't listen" in ended.stderr


def test_names_of_hosts_have_their_port():
    assert own_hosts("127.0.0.1", 7433) == {"127.0.0.1:7433", "localhost:7433", "[::1]:7433"}
    assert own_hosts("10.0.0.1", 80, ("tasks.example:443",)) == {"10.0.0.1:80", "tasks.example:443"}


def test_a_person_acts_only_so_often():
    gate = Gate(None, lambda scope: Person("ana"), None)
    scope = {"method": "POST", "headers": [(b"content-type", b"application/json")]}
    for _ in range(20):
        gate.person(scope, "steer", is_shell=False, now=5.0)
    with pytest.raises(Exception, match="More than 20 acts"):
        gate.person(scope, "steer", is_shell=False, now=5.5)
    gate.person(scope, "steer", is_shell=False, now=6.1)

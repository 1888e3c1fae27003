"""HTTP with real sockets: who is let in, what is refused, that answers are not crossed and the server stays alive."""

import asyncio
import concurrent.futures
import contextlib
import http.client
import json
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import holdfast
from holdfast import InvalidValue
from holdfast.mcp import server
from holdfast.mcp.transports import MOST_BODY_BYTES, http_app, is_loopback
from tests.mcp.world import fill, http_server, said

TOKEN = "a-secret-of-many-letters"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("http") / "store.db"
    with holdfast.open(path) as app:
        fill(app)
        for number in range(50):
            app.start("recap", {"n": number}, id=f"t{number}")
    return path


@pytest.fixture(scope="module")
def address(store):
    with http_server(store) as (found, process):
        yield found
        assert process.poll() is None, "it is alive after all of this"


@pytest.fixture(scope="module")
def guarded(store):
    with http_server(store, "--token-env", "T", env={"T": TOKEN}) as (found, process):
        yield found
        assert process.poll() is None


def post(address, body, headers=None, method="POST", path=None):
    """Status and body of one request, with exactly these headers."""
    at = urlsplit(address)
    connection = http.client.HTTPConnection(at.hostname, at.port, timeout=20)
    with contextlib.closing(connection):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path or at.path, raw, {**HEADERS, **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read(2000)


def test_a_foreign_host_or_origin_is_refused(address):
    port = urlsplit(address).port
    for headers, status in (
        ({"host": "evil.example"}, 421),
        ({"host": f"evil.example:{port}"}, 421),
        ({"host": f"127.0.0.1.evil.example:{port}"}, 421),
        ({"host": "localhost/health?"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": f"http://localhost.evil.example:{port}"}, 403),
    ):
        assert post(address, HELLO, headers)[0] == status, headers
    assert post(address, HELLO)[0] == 200
    assert post(address, HELLO, {"host": f"localhost:{port}", "origin": f"http://localhost:{port}"})[0] == 200


def test_without_its_token_nothing_is_answered(guarded):
    right = {"authorization": f"Bearer {TOKEN}"}
    assert post(guarded, HELLO, right)[0] == 200
    for wrong in (None, "", f"bearer {TOKEN}", TOKEN, "Bearer ", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer \xff"):
        headers = {} if wrong is None else {"authorization": wrong}
        for method in ("POST", "GET", "DELETE", "OPTIONS", "PUT"):
            assert post(guarded, HELLO, headers, method)[0] == 401, (wrong, method)
    for path in ("/", "/health", "/mcp/health", "//mcp"):
        assert post(guarded, HELLO, path=path)[0] == 401
    assert post(guarded, HELLO, {**right, "host": "evil.example"})[0] == 421


def test_a_client_with_the_token_works(guarded):
    async def check():
        async with (
            httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}) as http_client,
            Client(streamable_http_client(guarded, http_client=http_client)) as client,
        ):
            assert (await said(client, "get_task", task="job/1"))["task_id"] == "job/1"

    asyncio.run(check())


def test_oversized_malformed_and_half_sent_requests_are_refused_and_the_server_lives(address):
    at = urlsplit(address)
    assert post(address, b"x" * (MOST_BODY_BYTES + 1))[0] == 413
    for body in (b"", b"{", b"[]", b"\xff", b"null", b"[" * 100_000, {"jsonrpc": "2.0"}):
        assert 400 <= post(address, body)[0] < 500, body[:20]
    for raw in (
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 500\r\n\r\n{",
        b"POST /mcp HTTP/1.1\r\nHost",
        b"nonsense\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    ):
        with socket.create_connection((at.hostname, at.port), timeout=20) as connection:
            connection.sendall(raw)
    assert post(address, HELLO)[0] == 200


def test_fifty_clients_with_equal_request_ids_get_their_own_answers(address):
    """The official client numbers its requests from the same id."""

    async def one(number):
        mode = "auto" if number % 2 else "legacy"
        async with Client(address, mode=mode) as client:
            for _ in range(3):
                state = await said(client, "get_task", task=f"t{number}")
                assert state["input"] == {"n": number}

    async def check():
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(one(number))

    asyncio.run(check())


def test_the_same_id_on_many_connections_at_once(address):
    def ask(number):
        params = {"uri": f"state://agents/recap/tasks/t{number}"}
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        body = {"jsonrpc": "2.0", "id": 7, "method": "resources/read", "params": {**params, "_meta": meta}}
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "resources/read", "mcp-name": params["uri"]}
        status, text = post(address, body, headers)
        assert status == 200, text
        return f'\\"task_id\\":\\"t{number}\\"' in text.decode()

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        assert all(pool.map(ask, range(50)))


def test_a_request_about_a_handle_names_it_in_its_header_too(address):
    """Proxies route by the header, so what they saw must be what is answered."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    }
    params = {"taskId": "t1", "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 7, "method": "tasks/get", "params": params}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tasks/get"}
    status, text = post(address, body, {**headers, "mcp-name": "t1"})
    assert status == 200 and b'"taskId":"t1"' in text
    for wrong in ({}, {"mcp-name": "t2"}, {"mcp-name": ""}):
        status, text = post(address, body, {**headers, **wrong})
        assert status == 400 and b"-32020" in text


def test_off_loopback_a_token_is_required(store):
    with holdfast.open(store) as app:
        made = server(app)
        for host in ("0.0.0.0", "::", "192.168.1.2", "example.org"):
            with pytest.raises(InvalidValue, match="no token"):
                http_app(made, host=host)
        with pytest.raises(InvalidValue, match="has 5 characters"):
            http_app(made, host="127.0.0.1", token="short")
    assert (
        is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost") and not is_loopback("localhost.")
    )


def outside_address():
    """An address of this machine that other machines may reach; None if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # nothing is sent: it only chooses a way out
        except OSError:
            return None
        found = probe.getsockname()[0]
    return None if is_loopback(found) else found


def test_a_real_address_off_loopback_is_served_with_a_token_and_not_without(store):
    address = outside_address()
    if address is None:
        pytest.skip("THIS MACHINE HAS NO ADDRESS BUT LOOPBACK: serving off loopback was not tested")
    done = holdfast_mcp("--store", str(store), "--http", "0", "--host", address)
    assert done.returncode == 2 and "no token" in done.stderr and "--token-env" in done.stderr
    with http_server(store, "--host", address, "--token-env", "T", env={"T": TOKEN}) as (served, process):
        assert urlsplit(served).hostname == address
        right = {"authorization": f"Bearer {TOKEN}"}
        assert post(served, HELLO)[0] == 401 and post(served, HELLO, right)[0] == 200
        assert post(served, HELLO, {**right, "host": "evil.example"})[0] == 421
        assert post(served, HELLO, {**right, "origin": "http://evil.example"})[0] == 403

        async def check():
            async with (
                httpx2.AsyncClient(headers=right) as http_client,
                Client(streamable_http_client(served, http_client=http_client)) as client,
            ):
                assert (await said(client, "get_task", task="job/1"))["task_id"] == "job/1"

        asyncio.run(check())
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", urlsplit(served).port), timeout=2)
        assert process.poll() is None


def holdfast_mcp(*options):
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "mcp", *options], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def test_odd_options_of_the_command_are_refused(store):
    at = ("--store", str(store))
    for options, why in (
        (("--http", "0", "--host", "0.0.0.0"), "no token"),
        (("--http", "0", "--token-env", "NOT_THERE"), "NOT_THERE is not set"),
        (("--token-env", "T"), "needs --http"),
        (("--allow-host", "x"), "needs --http"),
        (("--http", "99999"), "can't listen"),
        (("--as", "a/b"), "is not a name"),
        (("config", "emacs"), "is not understood"),
        (("config", "claude", "--http", "0"), "another port each time"),
        (("serve",), "is not understood"),
    ):
        done = holdfast_mcp(*at, *options)
        assert done.returncode == 2 and why in done.stderr, (options, done.stderr)


def test_the_settings_of_each_host_have_absolute_paths(store, tmp_path):
    for host, inside in (
        ("claude", "mcpServers"),
        ("vscode", "servers"),
        ("cursor", "mcpServers"),
        ("windsurf", "mcpServers"),
    ):
        done = holdfast_mcp("config", host, "--store", str(store), "--allow-writes", "--as", "ana", "--agent", "recap")
        entry = json.loads(done.stdout)[inside]["holdfast"]
        assert entry["command"].startswith("/") and entry["args"][:3] == ["mcp", "--store", str(store)]
        assert entry["args"][3:] == ["--allow-writes", "--as", "ana", "--agent", "recap"]
        done = holdfast_mcp("config", host, "--store", str(store), "--http", "7777", "--token-env", "T")
        entry = json.loads(done.stdout)[inside]["holdfast"]
        assert entry["serverUrl" if host == "windsurf" else "url"] == "http://127.0.0.1:7777/mcp"
        variable = "T" if host == "claude" else "env:T"
        assert entry["headers"] == {"Authorization": f"Bearer ${{{variable}}}"}


def test_the_address_in_settings_is_one_that_the_server_answers_to(store):
    at = ("config", "cursor", "--store", str(store), "--http", "7777")
    for options, address in (
        (("--host", "0.0.0.0"), "http://127.0.0.1:7777/mcp"),
        (("--host", "0.0.0.0", "--allow-host", "agents.example.org"), "http://agents.example.org:7777/mcp"),
        (("--host", "::1"), "http://[::1]:7777/mcp"),
        (("--host", "192.0.2.7"), "http://192.0.2.7:7777/mcp"),
    ):
        entry = json.loads(holdfast_mcp(*at, *options).stdout)["mcpServers"]["holdfast"]
        assert entry["url"] == address
    with http_server(store, "--host", "0.0.0.0", "--token-env", "T", env={"T": TOKEN}) as (served, _):
        assert post(served, HELLO, {"authorization": f"Bearer {TOKEN}"})[0] == 200


def test_the_settings_that_are_printed_start_a_server(store):
    from mcp import StdioServerParameters

    entry = json.loads(holdfast_mcp("config", "claude", "--store", str(store)).stdout)["mcpServers"]["holdfast"]

    async def check():
        async with Client(StdioServerParameters(command=entry["command"], args=entry["args"], cwd="/")) as client:
            assert (await said(client, "get_task", task="job/1"))["task_id"] == "job/1"

    asyncio.run(check())

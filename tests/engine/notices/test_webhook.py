"""The webhook: signed, over https only, to the address that was checked; bounded in time and tries; off by default."""

import contextlib
import hashlib
import hmac
import http.server
import ipaddress
import json
import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest
import trustme

import holdfast
from holdfast import InvalidValue, Retry, Secret, Webhook, agent, tool
from holdfast.core import limits
from holdfast.engine.notices.watch import Notice
from holdfast.engine.notices.webhook import NotDelivered, is_public
from holdfast.engine.reading.inbox import InboxItem
from tests.waiting import until

STORES = ("memory", "sqlite", "postgres")
SECRET = "very-secret-0123456789"
AT_ONCE = Retry(5, first=0)
NOTICE = Notice(
    "n1", InboxItem(task="t", agent="shop", kind="approval", key="pay#1", name="pay", bound="abc", since_us=1)
)
LONG = 20
HOOK = "hooks.example.test"


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(limits, "NOTICE_SECONDS", 0.05)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def trusted(authority, tmp_path_factory):
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


class Receiver:
    """An https server on loopback that keeps what it is sent, and answers as it is told: 200 if it is told nothing."""

    def __init__(self, authority, *names):
        self.got = []
        self.answers = []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.path, dict(self.headers), body))
                answer = receiver.answers.pop(0) if receiver.answers else 200
                status, headers = answer if isinstance(answer, tuple) else (answer, {})
                if callable(status):
                    status(self)
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, request, address):
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(*names).configure_cert(context)
        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def tasks(self):
        return [json.loads(body)["task"] for _, _, body in self.got]

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(LONG)


@pytest.fixture
def receiver(authority):
    made = Receiver(authority, "localhost", "127.0.0.1", HOOK)
    yield made
    made.close()


@pytest.fixture
def hook(receiver, trusted):
    """A webhook to the receiver. Only tests may connect to loopback, and they say so."""

    def make(path="/inbox?token=1", host="localhost", **options):
        options = {"retry": AT_ONCE, "certificates": trusted, "_allowed": lambda address: address.is_loopback} | options
        return Webhook(f"https://{host}:{receiver.port}{path}", SECRET, **options)

    return make


@tool(effect="once", risk="money", redact=["token"])
def pay(cents: int, token: str) -> str:
    return "receipt"


@agent(required_for_risk_levels=["money"])
def shop(task, cents: int):
    return task.call(pay, cents=cents, token="sk-hidden")


@agent
def asker(task):
    return task.ask("is the code 4711 right?", name="code")


# What is sent


def test_a_request_is_signed_over_its_time_and_its_body(hook, receiver):
    hook().send(NOTICE)
    ((path, headers, body),) = receiver.got
    at = headers["Holdfast-Timestamp"]
    right = hmac.new(SECRET.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert (path, headers["Holdfast-Signature"]) == ("/inbox?token=1", f"v1={right}")
    assert abs(int(at) - time.time()) < 10 and headers["Content-Type"] == "application/json"
    assert headers["Host"] == f"localhost:{receiver.port}"
    assert json.loads(body) == {
        "id": "n1",
        "type": "inbox",
        "task": "t",
        "agent": "shop",
        "kind": "approval",
        "key": "pay#1",
        "tool": "",
        "since": "1970-01-01T00:00:00.000001Z",
        "until": None,
        "command": "holdfast approve t 'pay#1' --bound abc",
    }


def test_what_tasks_say_and_secrets_are_not_sent(url, hook, receiver):
    with holdfast.open(url, webhook=hook()) as app:
        app.run(shop, {"cents": 4400}, id="paying")
        app.run(asker, id="asking")
        until(lambda: len(receiver.got) == 2)
    sent = b"".join(body for _, _, body in receiver.got)
    for hidden in (b"4711", b"4400", b"sk-hidden", SECRET.encode()):
        assert hidden not in sent
    assert receiver.tasks == ["paying", "asking"]


def test_nothing_is_sent_unless_it_is_asked_for(url, receiver):
    with holdfast.open(url, on_wait=lambda state: None) as app:
        app.run(asker, id="t")
    assert receiver.got == []


OTHER = """
import sys
import holdfast
from holdfast import agent

@agent
def asker(task):
    return task.ask("which?", name="code")

with holdfast.open(sys.argv[1]) as app:
    for id in sys.argv[2:]:
        app.run(asker, id=id)
"""


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_notices_come_from_any_process_once_each_and_have_one_id(url, hook, receiver):
    with holdfast.open(url) as before:
        before.run(asker, id="old")
    with holdfast.open(url, webhook=hook("/one")) as app, holdfast.open(url, webhook=hook("/two")):
        subprocess.run([sys.executable, "-c", OTHER, url, "a", "b"], check=True, timeout=60)
        app.run(asker, id="c")
        until(lambda: len(receiver.got) == 6)
    ids = {}
    for path, _, body in receiver.got:
        ids.setdefault(path, {})[json.loads(body)["task"]] = json.loads(body)["id"]
    assert ids["/one"] == ids["/two"] and sorted(ids["/one"]) == ["a", "b", "c"], "a receiver knows what it has"
    assert len(set(ids["/one"].values())) == 3


# Where it is sent


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "0.0.0.0", "10.0.0.1"),
        *("172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255", "[::1]"),
        *("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]"),
        *("[fe80::1]", "[fc00::1]", "[::]", "[64:ff9b::a9fe:a9fe]"),
    ],
)
def test_addresses_of_this_machine_and_of_private_networks_are_refused(receiver, trusted, host):
    url = f"https://{host}:{receiver.port}/"
    if host != "localhost":
        with pytest.raises(InvalidValue, match="is not an address of the public internet"):
            Webhook(url, SECRET, certificates=trusted)
    once_allowed = iter([True])  # as if it were a name, which is looked up before each request
    hook = (
        Webhook(url, SECRET, certificates=trusted, timeout="5s")
        if host == "localhost"
        else Webhook(
            url, SECRET, certificates=trusted, timeout="5s", _allowed=lambda address: next(once_allowed, False)
        )
    )
    with pytest.raises(NotDelivered) as refused:
        hook.send(NOTICE)
    assert receiver.got == []
    assert refused.value.permanent or "not found" in refused.value.message or "could not" in refused.value.message


@pytest.mark.parametrize(
    ("address", "public"),
    [
        *(
            (one, True)
            for one in ("93.184.215.14", "1.1.1.1", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::ffff:1.1.1.1")
        ),
        *((one, False) for one in ("127.0.0.1", "127.255.0.1", "10.1.2.3", "172.31.0.1", "192.168.0.1", "169.254.1.1")),
        *((one, False) for one in ("0.0.0.0", "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1")),
        *((one, False) for one in ("::1", "::", "fe80::1", "fc00::1", "fd12::1", "ff02::1", "2001:db8::1")),
        *(
            (one, False)
            for one in ("::ffff:10.0.0.1", "::10.0.0.1", "64:ff9b::10.0.0.1", "2002:a00:1::", "64:ff9b:1::1")
        ),
        *((one, False) for one in ("2001:0:4136:e378:8000:63bf:f5ff:fffe", "::ffff:169.254.169.254")),
    ],
)
def test_an_address_is_public_or_not_however_it_is_written(address, public):
    assert is_public(ipaddress.ip_address(address)) is public


@pytest.fixture
def names(monkeypatch):
    """What names stand for, one answer after the other; and how often they were looked up."""
    right, table, asked = socket.getaddrinfo, {}, []

    def look_up(host, port, *args, **options):
        if host not in table:
            return right(host, port, *args, **options)
        asked.append(host)
        answers = table[host]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return table, asked


def test_the_connection_goes_to_the_very_address_that_was_checked(hook, receiver, names):
    """A name that is public when it is checked, and private when it is connected to."""
    table, asked = names
    table[HOOK] = [["127.0.0.1"], ["10.255.255.1"]]
    hook(host=HOOK).send(NOTICE)
    assert asked == [HOOK] and len(receiver.got) == 1, "it was looked up once"


def test_a_name_with_any_private_address_is_refused(receiver, trusted, names):
    table, _ = names
    table[HOOK] = [["93.184.215.14", "127.0.0.1"]]
    with pytest.raises(NotDelivered) as refused:
        Webhook(f"https://{HOOK}:{receiver.port}/", SECRET, certificates=trusted).send(NOTICE)
    assert refused.value.permanent and "127.0.0.1" in refused.value.message and receiver.got == []


def test_a_server_that_can_not_prove_its_name_gets_nothing(authority, trusted, names, tmp_path):
    table, _ = names
    table["other.example.test"] = [["127.0.0.1"]]
    allowed = {"_allowed": lambda address: address.is_loopback, "timeout": "5s"}
    named = Receiver(authority, HOOK)
    stranger = Receiver(trustme.CA(), "other.example.test")
    try:
        for server in (named, stranger):
            url = f"https://other.example.test:{server.port}/"
            hook = Webhook(url, SECRET, certificates=trusted, **allowed)
            with pytest.raises(NotDelivered) as refused:
                hook.send(NOTICE)
            assert "certificate" in refused.value.message.lower() and server.got == []
    finally:
        named.close()
        stranger.close()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(hook, receiver, status):
    receiver.answers = [(status, {"Location": f"https://localhost:{receiver.port}/elsewhere"})]
    with pytest.raises(NotDelivered) as refused:
        hook().deliver(NOTICE, threading.Event())
    assert refused.value.permanent and [path for path, _, _ in receiver.got] == ["/inbox?token=1"]


# How often, and how long


def test_what_may_help_is_tried_again_and_signed_anew(hook, receiver):
    receiver.answers = [503, (429, {"Retry-After": "1"}), 500]
    begun = time.monotonic()
    hook().deliver(NOTICE, threading.Event())
    assert len(receiver.got) == 4 and time.monotonic() - begun >= 1.0
    assert len({headers["Holdfast-Signature"] for _, headers, _ in receiver.got}) > 1, "each has the time of its own"
    assert len({body for _, _, body in receiver.got}) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422])
def test_what_was_refused_for_good_is_not_tried_again(hook, receiver, status):
    receiver.answers = [status]
    with pytest.raises(NotDelivered) as refused:
        hook().deliver(NOTICE, threading.Event())
    assert refused.value.details["status"] == status and len(receiver.got) == 1


def test_tries_are_bounded(hook, receiver):
    receiver.answers = [500] * 20
    with pytest.raises(NotDelivered):
        hook(retry=Retry(3, first=0)).deliver(NOTICE, threading.Event())
    assert len(receiver.got) == 3


def hangs(handler):
    """For as long as the other side waits for more."""
    handler.connection.settimeout(2 * LONG)
    with contextlib.suppress(OSError):
        handler.connection.recv(1)


def drips(handler):
    with contextlib.suppress(OSError):
        for letter in "HTTP/1.1 200 OK\r\nX: " + "y" * 1_000:
            handler.wfile.write(letter.encode())
            time.sleep(0.05)


@pytest.mark.parametrize("slow", [hangs, drips])
def test_a_receiver_that_takes_too_long_is_given_up_on_in_time(hook, receiver, slow):
    receiver.answers = [(slow, {})]
    begun = time.monotonic()
    with pytest.raises(NotDelivered) as refused:
        hook(timeout="500ms").send(NOTICE)
    assert 0.4 <= time.monotonic() - begun < limits.WEBHOOK_SECONDS and "0.5 s" in refused.value.message


def test_a_server_that_says_nothing_at_all_is_given_up_on_in_time(trusted):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        hook = Webhook(url, SECRET, timeout="300ms", certificates=trusted, _allowed=lambda address: True)
        begun = time.monotonic()
        with pytest.raises(NotDelivered):
            hook.send(NOTICE)
        assert time.monotonic() - begun < limits.WEBHOOK_SECONDS


def test_a_receiver_that_is_away_holds_nothing_up_and_is_told_when_it_is_back(url, hook, receiver, caplog):
    receiver.answers = [500] * 4
    with holdfast.open(url, webhook=hook(retry=Retry(2, first=0))) as app:
        for number in range(3):
            begun = time.monotonic()
            app.run(asker, id=f"t{number}")
            assert time.monotonic() - begun < 2, "a task does not wait for it"
            until(lambda number=number: caplog.text.count("answered 500") == number + 1)
        assert receiver.tasks == ["t0", "t0", "t1", "t2"], "while it is away each is tried once"
        app.run(asker, id="back")
        until(lambda: "back" in receiver.tasks)
        assert [one.task for one in app.inbox()] == ["back", "t2", "t1", "t0"], "what was not sent is in the inbox"
    assert SECRET not in caplog.text and "token=1" not in caplog.text


def test_closing_does_not_wait_for_a_receiver_that_is_away(url, hook, receiver):
    receiver.answers = [500] * 9
    app = holdfast.open(url, webhook=hook(retry=Retry(5, first=30)))
    app.run(asker, id="t")
    until(lambda: receiver.got)
    begun = time.monotonic()
    app.close()
    assert time.monotonic() - begun < LONG, "the next attempt is due in half a minute"


# What is refused


@pytest.mark.parametrize(
    ("url", "options"),
    [
        *(
            (url, {})
            for url in ("http://example.com/", "ftp://example.com", "https://", "example.com", "https:///x", "")
        ),
        *((url, {}) for url in ("https://user:word@example.com/", "https://example.com/#x", "https://exa mple.com/")),
        *(
            (url, {})
            for url in (
                "https://example.com:99999/",
                "https://example.com/\r\nX: y",
                "https://bücher.example/",
                None,
                7,
            )
        ),
        *(
            (url, {})
            for url in ("https://10.0.0.1/", "https://2130706433/", "https://[::1]/", "https://example.com:0/")
        ),
        ("https://example.com/", {"secret": " " * 20}),
        ("https://example.com/", {"secret": "short"}),
        ("https://example.com/", {"secret": None}),
        ("https://example.com/", {"secret": Secret("")}),
        ("https://example.com/", {"timeout": 0}),
        ("https://example.com/", {"timeout": "1h"}),
        ("https://example.com/", {"timeout": "soon"}),
        ("https://example.com/", {"retry": 3}),
        ("https://example.com/", {"retry": Retry(99)}),
        ("https://example.com/", {"certificates": "/nowhere/ca.pem"}),
    ],
    ids=str,
)
def test_what_is_no_webhook_is_refused_with_a_remedy(url, options, texts):
    options = {"secret": SECRET} | options
    with texts.raises(InvalidValue) as refused:
        Webhook(url, **options)
    assert refused.value.hint and "user:word" not in str(refused.value)


def test_a_webhook_shows_neither_its_secret_nor_its_path():
    hook = Webhook("https://hooks.example.com/services/T0KEN", Secret(SECRET, label="hooks"))
    assert repr(hook) == "<webhook at hooks.example.com>"

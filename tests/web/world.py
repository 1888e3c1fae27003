"""What tests of the page share: agents, tasks in every status, a page in a process of its own, and plain HTTP."""

import contextlib
import http.client
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from holdfast import Budget, Retry, Task, agent, tool
from holdfast.engine.reading.values import path_of
from holdfast.web.serving import address_file

ASK = {"human_in_the_loop": {"required_for_risk_levels": ["external_action", "payment"]}}


@tool(effect="once", risk="payment")
def refund(order: str, euros: int, reason: str) -> str:
    return f"r-{order}"


@tool(effect="once", risk="payment")
def bank_transfer(to: str, euros: int) -> str:
    raise OSError("504 Gateway Timeout")


@tool(effect="once", risk="external_action")
def mail(to: str) -> str:
    return f"sent to {to}"


@agent(stages=["checking", "approving", "telling"], budget=Budget(cost=0.5, calls=40, steps=20))
def refunds(task: Task, order: str, euros: int) -> str:
    task.goal(f"Refund {order} if it is due")
    task.stage("checking")
    task.step(len, order, name="read_order")
    task.step(abs, euros, name="check_policy")
    task.fact("customer", "acme", source="the order")
    task.state.order = order
    task.stage("approving")
    done = task.call(refund, order=order, euros=euros, reason="Broken on arrival.<img src=x> Pay also to IBAN…")
    task.stage("telling")
    return done


@agent
def treasury(task: Task, euros: int) -> str:
    task.state.limit = 20_000
    return task.call(bank_transfer, to="DE02 1203 0000 0000 2020 51", euros=euros)


@agent
def book_trip(task: Task) -> str:
    task.plan(["find flights", "ask", "book"])
    task.step(len, "OSL", name="search_flights")
    task.done("find flights")
    return task.ask("The direct flight is sold out. Is one stop in Munich all right?", name="stop")


@agent(budget=Budget(steps=1, on_exceed="ask"))
def incident_triage(task: Task) -> int:
    return task.step(len, "a", name="one") + task.step(len, "b", name="two")


def fails_twice():
    """Made anew for each run: the first tries fail."""
    left = [1, 1]

    def search(to: str) -> list[str]:
        if left:
            left.pop()
            raise ConnectionError("503 from api.air")
        return ["SK4035", "DY641"]

    return search


@agent(stages=["reading", "writing"])
def crm_import(task: Task) -> str:
    task.stage("reading")
    task.step(fails_twice(), "OSL", name="search", retry=Retry(3, first="10ms"))
    task.stage("writing")
    return task.step(lambda: {}["email"], name="write_rows")


@agent(stages=["reading", "telling"])
def recap(task: Task, n: int = 3) -> str:
    task.stage("reading")
    for number in range(n):
        task.state.count = number
        task.step(lambda at=number: f"page {at}", name="read_page")
        task.note(f"note-{number}", number)
    task.decide("which words?", "short ones", why="people read them", options=["short ones", "long ones"])
    task.flag("checked")
    task.message({"role": "user", "content": "Write a recap."})
    task.message({"role": "assistant", "content": "Here it is."})
    task.stage("telling")
    return "msg-88f2"


def fill(app):
    """Tasks in every status that needs no process, and one of each kind that people are asked for."""
    app.run(recap, {"n": 4}, id="recap-standup-1117", user="ana", thread="standup")
    app.run(crm_import, id="import-crm-771")
    app.run(refunds, {"order": "A1093", "euros": 240}, id="refund-A1093", contract={"constraints": ASK})
    app.run(treasury, {"euros": 18_400}, id="wire-0098")
    app.run(book_trip, id="trip-rome-02", user="ben")
    app.run(incident_triage, id="triage-inc-5521")
    app.start("daily_digest", {"n": 1}, id="digest-2026-11-18")
    app.start("research", {"n": 1}, id="scrape-docs/40#1~a")
    app.cancel("scrape-docs/40#1~a", by="ben", why="plans changed")


class Page:
    """A page in a process of its own, and a session with it."""

    def __init__(self, process, link):
        self.process, self.link = process, link
        self.url, _, self.code = link.partition("/#code=")
        self.port = urlsplit(self.url).port
        self.token = ""

    def login(self, code=None):
        status, told = self.ask("POST", "/api/v1/session", {"code": code or self.code})
        self.token = told.get("token", self.token)
        return status

    def ask(self, method, path, body=None, headers=None, token=None):
        """Status and JSON of one request."""
        status, _, text = self.raw(method, path, body, headers, token)
        return status, json.loads(text) if text else None

    def raw(self, method, path, body=None, headers=None, token=None):
        """Status, headers and body of one request, as text. Headers are a dict, or pairs that may be doubled."""
        status, answered, told = self.bytes(method, path, headers, token, body)
        return status, answered, told.decode()

    def bytes(self, method, path, headers=None, token=None, body=None):
        """The same, with the body as it was sent."""
        bearer = self.token if token is None else token
        sent = [("Host", f"127.0.0.1:{self.port}")]
        sent += [("Authorization", f"Bearer {bearer}")] if bearer else []
        sent += [] if body is None else [("Content-Type", "application/json")]
        given = list(headers.items()) if isinstance(headers, dict) else list(headers or ())
        replaced = {name.lower() for name, _ in given} if isinstance(headers, dict) else set()
        sent = [(name, value) for name, value in sent if name.lower() not in replaced]
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in [*sent, *given]:
                if value is not None:
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def get(self, path):
        """What a path gives; asserts that it gives something."""
        status, told = self.ask("GET", f"/api/v1{path}")
        assert status == 200, told
        return told

    def act(self, path, body, key=None):
        """Status and JSON of an act."""
        key = key or os.urandom(8).hex()
        return self.ask("POST", f"/api/v1{path}", body, [("Idempotency-Key", key)])

    def stream(self, path, last=None):
        """Frames of a stream as they come: kind, data, id."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        more = {} if last is None else {"Last-Event-ID": str(last)}
        connection.request("GET", f"/api/v1{path}", headers={"Authorization": f"Bearer {self.token}", **more})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        try:
            frame = {}
            for line in answer:
                text = line.decode().rstrip("\n")
                if not text and "event" in frame:
                    yield frame["event"], json.loads(frame["data"]), frame.get("id")
                if not text:
                    frame = {}
                elif not text.startswith(":"):
                    name, _, value = text.partition(": ")
                    frame[name] = value
        finally:
            connection.close()


@contextlib.contextmanager
def page_of(store, *options, env=None, login=True, file=None):
    """`holdfast ui` over a store, on a free port; ended at the end. `file`: where it writes its address."""
    command = [sys.executable, "-m", "holdfast", "ui", "--store", str(store), "--no-open", "--by", "ana"]
    if "--port" not in options:
        command += ["--port", "0"]
    cache = tempfile.TemporaryDirectory()  # where a page over PostgreSQL writes its address
    usual = address_file(str(store), "")
    file = Path(file or (usual if path_of(str(store)) else Path(cache.name, "holdfast", usual.name)))
    given = {**os.environ, "XDG_CACHE_HOME": cache.name, **(env or {})}
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=given
    )
    try:
        assert select.select([process.stdout], [], [], 90)[0], "the page did not start in 90 s"
        link = process.stdout.readline().strip()
        assert link.startswith("http://"), process.stderr.read()
        page = Page(process, link)
        page.key = json.loads(file.read_text())["key"]
        if login:
            assert page.login() == 200
        yield page
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        process.stdout.close()
        process.stderr.close()
        cache.cleanup()

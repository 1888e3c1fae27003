"""The service of the page on web services, as a real server: driven over HTTP, stopped, killed, started again."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import holdfast
from tests.docs.typist import blocks
from tests.waiting import until

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "web-service.md"
SECONDS = 60


@pytest.fixture
def folder(tmp_path):
    for block in blocks(PAGE):
        if block.title:
            (tmp_path / block.title).write_text(block.text, "utf-8")
    return tmp_path


class Service:
    """A server on a free port, and requests to it."""

    def __init__(self, folder, target):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = ["--host", "127.0.0.1", "--port", str(self.port), "--timeout-graceful-shutdown", "2"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        self.log = (folder / "server.log").open("a+")
        given = {"cwd": folder, "env": environment, "stdout": self.log, "stderr": self.log}
        self.process = subprocess.Popen([sys.executable, "-m", "uvicorn", target, *options], **given)
        until(lambda: self.process.poll() is not None or self._answers(), SECONDS, why=self._told)
        assert self.process.poll() is None, self._told()

    def _answers(self):
        with suppress(OSError):
            return self.get("/tasks")[0] == 200

    def _told(self):
        self.log.seek(0)
        return self.log.read()

    def get(self, path, **headers):
        return self.request("GET", path, None, headers)

    def post(self, path, **body):
        return self.request("POST", path, json.dumps(body), {"content-type": "application/json"})

    def request(self, method, path, body, headers):
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            link.request(method, path, body, headers)
            answer = link.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            link.close()

    def events(self, path, until, **headers):
        """Server-sent events as (id, kind), up to and with one of this kind."""
        link, found = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS), []
        try:
            link.request("GET", path, headers=headers)
            answer = link.getresponse()
            assert answer.getheader("content-type").startswith("text/event-stream")
            while line := answer.readline().decode():
                name, _, value = line.rstrip("\n").partition(": ")
                if name == "id":
                    found.append([int(value)])
                elif name == "event":
                    found[-1].append(value)
                elif name == "data":
                    assert json.loads(value)["seq"] == found[-1][0]
                    if found[-1][1] == until:
                        return [tuple(one) for one in found]
            return [tuple(one) for one in found]
        finally:
            link.close()

    def inbox(self, task, kind):
        """The entry of a task, as soon as it is there."""

        def entries():
            return [one for one in self.get("/inbox")[1] if (one["task"], one["kind"]) == (task, kind)]

        return until(entries, SECONDS, why=lambda: self.get("/inbox"))[0]

    def end(self, how):
        self.process.send_signal(how)
        try:
            return self.process.wait(SECONDS)
        finally:
            self.log.close()


@contextmanager
def serving(folder, target="service:api"):
    service = Service(folder, target)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.end(signal.SIGKILL)


def test_a_service_starts_lists_streams_answers_and_approves_and_stops_when_told(folder):
    with serving(folder) as service:
        order = {"number": "7", "item": "lamp"}
        assert service.post("/orders", **order) == (202, {"id": "order-7", "status": "pending"})
        assert service.post("/orders", **order)[0] == 202, "sent twice, it is one task"
        status, refused = service.post("/orders", number="7", item="desk")
        assert (status, refused["code"]) == (409, "input-conflict") and refused["hint"]
        assert service.get("/tasks/nobody")[0] == 404 and service.get("/tasks/nobody/events")[0] == 404
        assert service.get("/tasks?status=odd")[0] == 422
        first = service.events("/tasks/order-7/events", "task_suspended")
        assert [seq for seq, _ in first] == list(range(1, len(first) + 1)) and first[0][1] == "task_created"
        assert service.inbox("order-7", "question")["asks"] == "question: colour: Which colour for the lamp?"
        assert {"id": "order-7", "status": "waiting"} in service.get("/tasks?status=waiting")[1]
        service.post("/tasks/order-7/answer", question="colour", value="red", by="ana")
        wanted = service.inbox("order-7", "approval")
        assert service.post("/tasks/order-7/approve", call="charge#1", bound="0" * 12, by="ana")[0] == 409
        assert service.post("/tasks/order-7/approve", call="charge#1", bound=wanted["bound"], by="ana")[0] == 200
        rest = service.events("/tasks/order-7/events", "task_completed", **{"Last-Event-ID": str(first[-1][0])})
        assert rest[0][0] == first[-1][0] + 1 and rest[-1][1] == "task_completed", "nothing is missed, nothing repeated"
        assert service.get("/tasks/order-7")[1]["result"] == "receipt for 7: red lamp"
        service.post("/orders", number="8", item="desk")
        service.inbox("order-8", "question")
        assert service.end(signal.SIGTERM) in (0, -signal.SIGTERM)
    assert (folder / "charges.txt").read_text() == "7 40\n"
    with holdfast.open(folder / "holdfast.db") as app:
        assert app.verify().ok and app.get("order-8").holder is None and app.workers() == []
    log = (folder / "server.log").read_text()
    assert "Traceback" not in log and "Finished server process" in log


def test_a_service_killed_at_once_goes_on_when_it_is_started_again(folder):
    with serving(folder) as service:
        service.post("/orders", number="7", item="lamp")
        service.inbox("order-7", "question")
        service.end(signal.SIGKILL)
    with serving(folder) as service:
        service.post("/tasks/order-7/answer", question="colour", value="red", by="ana")
        bound = service.inbox("order-7", "approval")["bound"]
        service.post("/tasks/order-7/approve", call="charge#1", bound=bound, by="ana")
        service.end(signal.SIGKILL)  # somewhere between the approval and the end
    with serving(folder) as service:

        def completed():
            if any(one["kind"] == "doubt" for one in service.get("/inbox")[1]):
                happened = (folder / "charges.txt").exists()  # it was killed while it charged: only a person can tell
                with holdfast.open(folder / "holdfast.db") as app:
                    app.settle("order-7", "charge#1", happened=happened, result="receipt for 7", by="ana")
            return service.get("/tasks/order-7")[1]["status"] == "completed"

        until(completed, SECONDS)
        assert service.get("/tasks/order-7")[1]["result"] == "receipt for 7: red lamp"
        assert service.end(signal.SIGTERM) in (0, -signal.SIGTERM)
    assert (folder / "charges.txt").read_text() == "7 40\n"


def test_an_open_stream_does_not_keep_the_service_from_stopping(folder):
    with serving(folder) as service:
        service.post("/orders", number="7", item="lamp")
        service.inbox("order-7", "question")
        link = http.client.HTTPConnection("127.0.0.1", service.port, timeout=SECONDS)
        link.request("GET", "/tasks/order-7/events")
        assert link.getresponse().readline() == b"id: 1\n"
        began = time.monotonic()
        service.end(signal.SIGTERM)
        assert time.monotonic() - began < 20
        link.close()


def test_flask_starts_a_task_that_a_worker_takes(folder):
    """In a process of its own: the module of the page opens its store where it is imported."""
    program = (
        "import shop, threading\n"
        "client = shop.api.test_client()\n"
        "answer = client.post('/orders', json={'number': '9', 'item': 'lamp'})\n"
        "assert (answer.status_code, answer.json) == (202, {'id': 'order-9', 'status': 'pending'}), answer.json\n"
        "assert client.post('/orders', json={'number': '9', 'item': 'lamp'}).status_code == 202\n"
        "print(shop.app.get('order-9').status)\n"
        "shop.app.close()\n"
    )
    given = {"cwd": folder, "capture_output": True, "text": True, "timeout": SECONDS}
    done = subprocess.run([sys.executable, "-c", program], **given)
    assert (done.returncode, done.stdout) == (0, "pending\n"), done.stderr
    block = next(block for block in blocks(PAGE) if block.title == "shop.py")
    code = block.text.partition("import holdfast\n")[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    worked = subprocess.run([sys.executable, "-m", "holdfast", "worker", "shop.py", "--drain"], **given)
    assert worked.returncode == 0, worked.stderr
    with holdfast.open(folder / "holdfast.db") as app:
        assert app.get("order-9").waiting.on[0]["name"] == "colour"

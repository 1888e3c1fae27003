"""A real Phoenix shows a task that was killed three times as one trace, and exporting twice doubles nothing."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request

import pytest

import holdfast
from holdfast import tracing
from holdfast.tracing import Otlp
from tests.tracing.killed_agent import ID
from tests.tracing.test_killed import TREE, killed_three_times, tree
from tests.waiting import until

PHOENIX = os.environ.get("HOLDFAST_PHOENIX", "")

pytestmark = pytest.mark.skipif(not PHOENIX, reason="make test-traces installs a Phoenix")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def asked(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


@pytest.fixture
def phoenix(tmp_path):
    """The address of a server that begins with nothing, in a folder of its own."""
    port = free_port()
    given = {"PHOENIX_WORKING_DIR": str(tmp_path / "phoenix"), "PHOENIX_PORT": str(port), "PHOENIX_HOST": "127.0.0.1"}
    given |= {"PHOENIX_GRPC_PORT": str(free_port()), "PHOENIX_TELEMETRY_ENABLED": "false"}
    with open(tmp_path / "phoenix.log", "wb") as log:
        server = subprocess.Popen(
            [os.path.abspath(PHOENIX), "serve"], env=os.environ | given, stdout=log, stderr=log, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: server.poll() is not None or is_up(url), seconds=180, why=(tmp_path / "phoenix.log").read_text)
        assert server.poll() is None, (tmp_path / "phoenix.log").read_text()
        yield url
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def is_up(url):
    with contextlib.suppress(OSError):
        return asked(f"{url}/healthz") is not None


def shown(url, least):
    """The spans that Phoenix shows, when there are so many: it writes them a while after it took them."""
    until(lambda: len(spans_of(url)) >= least, seconds=60, why=lambda: spans_of(url))
    return spans_of(url)


def spans_of(url):
    return json.loads(asked(f"{url}/v1/projects/default/spans?limit=1000"))["data"] if _is_there(url) else []


def _is_there(url):
    return any(one["name"] == "default" for one in json.loads(asked(f"{url}/v1/projects"))["data"])


def test_phoenix_shows_one_trace_with_right_parents_and_doubles_nothing(tmp_path, phoenix):
    store = tmp_path / "holdfast.db"
    killed_three_times(store, phoenix)
    with holdfast.open(store) as app:
        for _ in range(2):
            assert tracing.export(app, to=Otlp(endpoint=phoenix)).spans == len(TREE)
        other = tracing.export(app, [ID], to=Otlp(endpoint=phoenix, service="after"))  # behind it, all is written
        assert other.spans == len(TREE)
        trace = tracing.trace_id(app, ID)
    found = shown(phoenix, len(TREE))
    time.sleep(5)  # what would be doubled would be written by now
    found = shown(phoenix, len(TREE))
    assert tree([(one["context"]["span_id"], one["parent_id"], one["name"]) for one in found]) == TREE
    assert {one["context"]["trace_id"] for one in found} == {trace}
    kinds = {one["name"].partition(" ")[0]: one["span_kind"] for one in found}
    assert kinds["invoke_agent"] == "AGENT" and kinds["execute_tool"] == "TOOL" and kinds["chat"] == "LLM"
    assert kinds["holdfast.life"] == kinds["holdfast.step"] == kinds["holdfast.wait"] == "CHAIN"

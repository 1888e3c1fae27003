"""The official conformance suite and inspector against a real server: `make test-mcp`. They need Node 22 or newer."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import holdfast
from tests.mcp.world import fill, http_server, served

TASKS = (
    *("tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal", "tasks-mrtr-input"),
    *("tasks-request-headers", "tasks-dispatch-and-envelope"),
)
"""Scenarios of the tasks extension that must pass against our fixtures."""

FIXTURES = (sys.executable, "-m", "tests.mcp.conformance.fixtures")
EXPECTED = Path(__file__).with_name("expected-failures.yaml")
METHODS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")


def main(tools):
    """Run both; `tools` is the folder of their programs."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store.db"
        with holdfast.open(store) as app:
            fill(app)
        with http_server(store, "--allow-writes", "--allow-decisions") as (address, _):
            conformance(tools, address, "--suite", "all", "--expected-failures", EXPECTED)
            for method in METHODS:
                assert inspected(tools, address, "--transport", "http", "--method", method)
        with served([*FIXTURES, str(Path(folder) / "tasks.db")]) as (address, _):
            for scenario in TASKS:
                conformance(tools, address, "--scenario", scenario)
            conformance(tools, address, "--scenario", "tasks-lifecycle", "--expected-failures", EXPECTED)
        command = [sys.executable, "-m", "holdfast", "mcp", "--store", str(store)]
        for method in METHODS:
            assert inspected(tools, *command, "--method", method)
        call = ("--method", "tools/call", "--tool-name", "get_task", "--tool-arg", "task=asks")
        assert inspected(tools, *command, *call)["structuredContent"]["task_id"] == "asks"
        read = ("--method", "resources/read", "--uri", "state://agents/recap/tasks/job%2F1")
        assert json.loads(inspected(tools, *command, *read)["contents"][0]["text"])["task_id"] == "job/1"
    print(f"inspector: {2 * len(METHODS) + 2} calls answered")


def conformance(tools, address, *words):
    """Run scenarios of the suite. It fails if one fails that is not expected to."""
    subprocess.run([tools / "conformance", "server", "--url", address, *words], check=True, timeout=300)


def inspected(tools, *words):
    """What the inspector prints."""
    done = subprocess.run([tools / "mcp-inspector", "--cli", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())

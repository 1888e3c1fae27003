"""Real processes, both transports: one agent writes progress, another process reads, is told, patches, continues."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from mcp import Client

import holdfast
from holdfast import StatePatch
from holdfast.mcp.changes import INTERVAL_SECONDS
from tests.mcp.world import MODES, fill, http_server, refused, said, stdio

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

URI = "state://agents/recap/tasks/job%2F1"
WRITER = """
import sys, holdfast
with holdfast.open(sys.argv[1]) as app:
    print(app.patch("job/1", holdfast.StatePatch(increment={"progress": 1}), by="writer").seq)
"""


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "store.db"
    with holdfast.open(path) as app:
        fill(app)
    return path


def write(store):
    """Another process makes progress."""
    subprocess.run([sys.executable, "-c", WRITER, str(store)], check=True, stdout=subprocess.DEVNULL)


async def told(client, uri, change, mode, heard):
    """How long it takes until a client is told of a change."""
    if mode == "auto":
        async with client.listen(resource_subscriptions=[uri]) as events:
            await asyncio.to_thread(change)
            begun = time.monotonic()
            with anyio.fail_after(10):
                async for event in events:
                    assert event.uri == uri
                    return time.monotonic() - begun
    await client.subscribe_resource(uri)
    await asyncio.to_thread(change)
    begun = time.monotonic()
    with anyio.fail_after(10):
        await heard.wait()
    return time.monotonic() - begun


async def work(client, store, mode, heard):
    """Everything one agent does with the work of another."""
    assert "job/1" in [one.name for one in (await client.list_resources()).resources]
    state = json.loads((await client.read_resource(URI)).contents[0].text)
    assert await told(client, URI, lambda: write(store), mode, heard) < 3 * INTERVAL_SECONDS
    lost = await refused(client, "patch_task", task="job/1", patch={"set": {"progress": 9}}, expect=state["seq"])
    assert "patch-conflict" in lost
    state = json.loads((await client.read_resource(URI)).contents[0].text)
    assert state["state"]["progress"] == 1
    patch = {"set": {"progress": 2}}
    assert (await said(client, "patch_task", task="job/1", patch=patch, expect=state["seq"]))["seq"] > state["seq"]
    await said(client, "signal", task="job/1", name="reviewed", value={"by": "ana"})


def listening():
    heard = asyncio.Event()

    async def hear(message):
        if getattr(message, "method", "") == "notifications/resources/updated":
            heard.set()

    return heard, hear


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_two_processes_share_one_state_and_a_killed_server_loses_nothing(store, transport, mode):
    options = ("--allow-writes", "--as", "ana")

    async def first(server):
        heard, hear = listening()
        async with Client(server, mode=mode, message_handler=hear) as client:
            await work(client, store, mode, heard)

    async def second(server):
        async with Client(server, mode=mode) as client:
            state = await said(client, "get_task", task="job/1")
            assert state["state"] == {"progress": 2}
            new = await said(client, "continue_task", task="job/1", agent="editor")
            assert new["continues"] == URI

    if transport == "stdio":
        asyncio.run(first(stdio(store, *options)))
        asyncio.run(second(stdio(store, *options)))
    else:
        with http_server(store, *options) as (address, process):
            asyncio.run(first(address))
            process.send_signal(signal.SIGKILL)
            process.wait()
        with http_server(store, *options) as (address, _):
            asyncio.run(second(address))
    with holdfast.open(store) as app:
        assert app.get("job/1.editor").state["progress"] == 2 and app.verify().ok
        assert [one.event.by for one in app.events("job/1") if one.kind == "signal_received"] == ["mcp:mcp/ana"]


class Wire:
    """`holdfast mcp` spoken to line by line, without the SDK."""

    def __init__(self, store, *options):
        command = [sys.executable, "-m", "holdfast", "mcp", "--store", str(store), *options]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}
        )

    def send(self, raw):
        self.process.stdin.write(raw if isinstance(raw, bytes) else json.dumps(raw).encode())
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def receive(self, id):
        while True:
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read()
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            if message.get("id") == id:
                return message

    def begin(self, version="2025-06-18"):
        hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "wire", "version": "1"}}
        self.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
        answer = self.receive(1)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_older_revisions_of_the_protocol_are_spoken(store, version):
    with Wire(store) as wire:
        assert wire.begin(version)["result"]["protocolVersion"] == version
        wire.send({"jsonrpc": "2.0", "id": 2, "method": "resources/read", "params": {"uri": URI}})
        assert json.loads(wire.receive(2)["result"]["contents"][0]["text"])["task_id"] == "job/1"
        wire.process.stdin.close()
        assert wire.process.wait(20) == 0


def test_malformed_frames_are_refused_and_the_server_lives(store):
    with Wire(store) as wire:
        wire.begin()
        deep = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
        for raw in (b"{", b"not json", b"\xff\xfe\x00", b"[]", b"null", b'{"jsonrpc":"1.0"}', deep, b""):
            wire.send(raw)
        wire.send({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": 5}})
        assert "error" in wire.receive(3)
        wire.send({"jsonrpc": "2.0", "id": 4, "method": "no/such"})
        assert wire.receive(4)["error"]["code"] == -32601
        wire.send({"jsonrpc": "2.0", "id": 5, "method": "ping"})
        assert wire.receive(5)["result"] == {}


def test_what_a_killed_server_has_acknowledged_is_there(store):
    patch = {"name": "patch_task", "arguments": {"task": "job/1", "patch": {"increment": {"n": 1}}, "expect": 1}}
    for life in (1, 2, 3):
        with Wire(store, "--allow-writes") as wire:
            wire.begin()
            wire.send({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": patch})
            assert not wire.receive(2)["result"].get("isError")
            wire.process.send_signal(signal.SIGKILL)
        with holdfast.open(store) as app:
            assert app.get("job/1").state["n"] == life and app.verify().ok


def test_nothing_but_the_protocol_is_on_stdout(store):
    with Wire(store, "--allow-writes") as wire:
        wire.begin()
        for id, name in ((2, "no_such_tool"), (3, "list_tasks")):
            wire.send({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": {}}})
            wire.receive(id)
        wire.process.stdin.close()
        assert wire.process.stdout.read() == b"" and wire.process.wait(20) == 0


def test_a_thousand_subscriptions_cost_one_watcher(tmp_path):
    """An idle server with a thousand subscriptions uses little CPU, and a change among them arrives."""
    with holdfast.open(tmp_path / "store.db") as app:
        uris = []
        for number in range(1000):
            app.start("recap", id=f"t{number}")
            uris.append(f"state://agents/recap/tasks/t{number}")

        async def check(address, pid):
            async with Client(address) as client, client.listen(resource_subscriptions=uris) as events:
                shares = []
                while not shares or (min(shares) > 0.01 and len(shares) < 3):  # a busy machine makes all work dearer
                    begun, cpu = time.monotonic(), cpu_seconds(pid)
                    await asyncio.sleep(4)
                    shares.append((cpu_seconds(pid) - cpu) / (time.monotonic() - begun))
                await app.aio.patch("t500", StatePatch(set={"x": 1}))
                with anyio.fail_after(10):
                    async for event in events:
                        assert event.uri == uris[500]
                        break
            return min(shares)

        with http_server(tmp_path / "store.db") as (address, process):
            share = asyncio.run(check(address, process.pid))
        print(f"{share:.1%} CPU")
        assert share <= 0.01


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

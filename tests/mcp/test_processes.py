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
import httpx2
import pytest
from mcp import Client, MCPError

import holdfast
from holdfast import StatePatch
from holdfast.mcp.changes import INTERVAL_SECONDS
from tests.mcp.world import MODES, KnowsHandles, about, answering, fill, http_server, refused, said, started, stdio

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


DYING = """
import os, signal
from holdfast import failpoints
from holdfast.cli.main import main

def stop(name):
    if name == os.environ["PLACE"] and os.path.exists(os.environ["ARMED"]):
        os.kill(os.getpid(), signal.SIGKILL)

with failpoints.armed(stop):
    main()
"""


def dying_server(store, place, armed, *options):
    """A server that is killed at a place of its work, as soon as the file `armed` is there."""
    where = {"PLACE": place, "ARMED": str(armed)}
    return http_server(store, *options, env=where, command=(sys.executable, "-c", DYING))


@pytest.mark.parametrize("place", ["commit.before", "commit.after"])
@pytest.mark.parametrize("mode", MODES)
def test_a_server_killed_while_it_serves_a_request_leaves_the_store_clean(store, tmp_path, mode, place):
    """The client gets an error, what was committed is there, and the next server continues."""
    armed = tmp_path / "armed"

    async def broken(address):
        async with Client(address, mode=mode, read_timeout_seconds=20) as client:
            seq = (await said(client, "get_task", task="job/1"))["seq"]
            armed.touch()
            with anyio.fail_after(20):
                await client.call_tool("patch_task", {"task": "job/1", "patch": {"set": {"x": 1}}, "expect": seq})

    async def working(address):
        async with Client(address, mode=mode) as client:
            seen = await said(client, "get_task", task="job/1")
            assert seen["state"] == ({"x": 1} if place == "commit.after" else {})
            done = await said(client, "patch_task", task="job/1", patch={"increment": {"n": 1}}, expect=seen["seq"])
            assert done["seq"] == seen["seq"] + 1

    with dying_server(store, place, armed, "--allow-writes") as (address, process):
        with pytest.raises((MCPError, httpx2.HTTPError, ExceptionGroup)):
            asyncio.run(broken(address))
        assert process.wait(20) == -signal.SIGKILL
    with holdfast.open(store) as app:
        assert app.verify().ok
    with http_server(store, "--allow-writes") as (address, _):
        asyncio.run(working(address))
    with holdfast.open(store) as app:
        assert app.verify().ok and app.get("job/1").state["n"] == 1


AGENTS = """
from holdfast import Task, agent

@agent
def writer(task: Task, n: int) -> str:
    seat = task.ask("seat?", name="seat")
    return f"{seat} {n}"
"""


def work_once(store, agents):
    """A worker process takes what there is, and ends."""
    command = [sys.executable, "-m", "holdfast", "worker", str(agents), "--store", str(store), "--drain"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def handles(address):
    return Client(address, extensions=[KnowsHandles()], elicitation_callback=answering())


@pytest.mark.parametrize("place", [None, "commit.before", "commit.after"])
def test_a_handle_is_durable_before_it_is_given_and_works_with_the_next_server(store, tmp_path, place):
    """Each life of the server is ended by SIGKILL; the call is repeated if its answer was lost, and starts one task."""
    options, armed = ("--allow-writes", "--allow-decisions"), tmp_path / "armed"
    (tmp_path / "agents.py").write_text(AGENTS)
    call = {"agent": "writer", "input": {"n": 7}, "id": "job/2"}

    async def start(address):
        async with handles(address) as client:
            armed.touch()
            return await started(client, "start_task", **call)

    async def ask(address):
        async with handles(address) as client:
            shown = await about(client, "tasks/get", "job/2")
            assert shown["status"] == "input_required"
            return list(shown["inputRequests"])

    async def answer(address, keys):
        async with handles(address) as client:
            response = {keys[0]: {"action": "accept", "content": {"answer": "aisle"}}}
            await about(client, "tasks/update", "job/2", inputResponses=response)

    async def result(address):
        async with handles(address) as client:
            shown = await about(client, "tasks/get", "job/2")
            return shown["status"], shown["result"]["structuredContent"]["result"]

    def life(doing, *more):
        with http_server(store, *options) as (address, _):
            return asyncio.run(doing(address, *more))

    if place is not None:
        with dying_server(store, place, armed, *options) as (address, process):
            with pytest.raises((MCPError, httpx2.HTTPError, ExceptionGroup)):
                asyncio.run(start(address))
            assert process.wait(20) == -signal.SIGKILL
        with holdfast.open(store) as app:
            assert (app.row("job/2") is not None) == (place == "commit.after") and app.verify().ok
    assert life(start).task_id == "job/2"
    work_once(store, tmp_path / "agents.py")
    keys = life(ask)
    life(answer, keys)
    work_once(store, tmp_path / "agents.py")
    assert life(result) == ("completed", "aisle 7")
    with holdfast.open(store) as app:
        kinds = [one.kind for one in app.events("job/2")]
        assert kinds.count("task_created") == kinds.count("wait_ended") == 1 and app.verify().ok


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

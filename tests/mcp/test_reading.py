"""What clients read: resources by URI, lists with cursors, completion, tools that read, limits of size."""

import asyncio
import json
import subprocess
import sys

import mcp_types as types
import pytest
from mcp import Client, MCPError

from holdfast import InvalidValue, StatePatch
from holdfast.mcp import server
from holdfast.mcp.reading.documents import MOST_BYTES
from holdfast.mcp.reading.uris import parse, task_uri
from tests.mcp.world import MODES, fill, refused, said

STORES = ("memory", "sqlite", "postgres")


def served(app, check, *, mode="auto", **options):
    async def run():
        async with Client(server(app, **options), mode=mode) as client:
            await check(client)

    asyncio.run(run())


async def body(client, uri):
    return json.loads((await client.read_resource(uri)).contents[0].text)


@pytest.mark.parametrize("mode", MODES)
def test_a_task_is_read_by_its_uri_as_it_is_now_and_as_it_was(app, mode):
    fill(app)
    app.patch(
        "job/1",
        StatePatch(
            set={"city": "Oslo"},
            append_facts=[{"key": "pop", "value": 7, "source": "census"}],
            replace_plan=["look", "write"],
            complete_plan_step="look",
            add_questions=["which year?"],
            add_artifacts=[{"artifact_id": "a1", "type": "text", "summary": "a draft", "bytes": 5}],
        ),
    )

    async def check(client):
        uri = "state://agents/recap/tasks/job%2F1"
        read = (await client.read_resource(uri)).contents[0]
        assert read.mime_type == "application/json" and read.meta["holdfast/content"] == "data"
        state = json.loads(read.text)
        assert (state["uri"], state["agent_id"], state["task_id"]) == (uri, "recap", "job/1")
        assert state["state"] == {"city": "Oslo"} and state["seq"] == app.head("job/1")
        assert state["plan"] == [{"step": "look", "done": True}, {"step": "write", "done": False}]
        assert state["facts"] == {"pop": {"value": 7, "source": "census"}}
        assert state["questions"] == ["which year?"] and state["status"] == "pending"
        assert state["artifacts"][0]["uri"] == f"{uri}/artifacts/a1"
        assert state["position"]["pending"] == ["write"] and state["budget"]["used"]["steps"] == 0
        assert (await body(client, f"{uri}/at/1"))["state"] == {}
        assert (await body(client, f"{uri}/artifacts/a1"))["summary"] == "a draft"
        asked = await body(client, task_uri("asker", "asks"))
        assert asked["waiting"]["kind"] == "person" and asked["waiting"]["on"][0]["name"] == "seat"

    served(app, check, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_lists_are_newest_first_and_cursors_lead_through_all_of_them(app, mode):
    ids = [f"t{number}" for number in range(120)]
    for id in ids:
        app.start("recap", id=id)

    async def check(client):
        found, cursor, pages = [], None, 0
        while pages == 0 or cursor is not None:
            page = await client.list_resources(cursor=cursor)
            found += [one.name for one in page.resources]
            cursor, pages = page.next_cursor, pages + 1
        assert pages == 3 and sorted(found) == sorted(ids) and len(set(found)) == 120
        assert found == [row.id for row in app.list(limit=200)]
        with pytest.raises(MCPError, match="list again"):
            await client.list_resources(cursor="nonsense")
        first = await said(client, "list_tasks", limit=7)
        second = await said(client, "list_tasks", limit=7, cursor=first["next_cursor"])
        assert [one["task_id"] for one in first["tasks"] + second["tasks"]] == found[:14]
        forms = [one.uri_template for one in (await client.list_resource_templates()).resource_templates]
        assert "state://agents/{agent}/tasks/{task}/log{?after,limit}" in forms and not any("users" in f for f in forms)

    served(app, check, mode=mode)


def test_agents_and_tasks_are_completed(app):
    fill(app)

    async def check(client):
        form = types.ResourceTemplateReference(uri="state://agents/{agent}/tasks/{task}")
        agents = await client.complete(form, {"name": "agent", "value": "p"})
        assert agents.completion.values == ["payer"]
        tasks = await client.complete(form, {"name": "task", "value": ""}, context_arguments={"agent": "recap"})
        assert tasks.completion.values == ["job/1"]
        assert (await client.complete(form, {"name": "seq", "value": ""})).completion.values == []

    served(app, check)


def test_the_log_is_read_in_pages(app):
    app.start("recap", id="t")
    for number in range(30):
        app.patch("t", StatePatch(set={"n": number}), by="ana")

    async def check(client):
        first = await body(client, "state://agents/recap/tasks/t/log?limit=20")
        assert [one["seq"] for one in first["events"]] == list(range(1, 21)) and first["next_after"] == 20
        rest = await said(client, "get_log", task="t", after=20)
        assert [one["seq"] for one in rest["events"]] == list(range(21, 32)) and rest["next_after"] is None
        assert rest["events"][0]["by"] == "ana"

    served(app, check)


def test_a_read_is_never_larger_than_the_limit_and_says_how_to_get_the_rest(app):
    app.start("recap", id="big")
    text = "é" * 100_000
    app.patch("big", StatePatch(set={"long": text, "short": 1, **{f"k/{n}": "x" * 2000 for n in range(60)}}))

    async def check(client):
        read = (await client.read_resource("state://agents/recap/tasks/big")).contents[0].text
        assert len(read.encode()) <= MOST_BYTES
        state = json.loads(read)
        assert state["state"]["short"] == 1 and state["state"]["long"]["cut"] is True
        more, pieces = state["state"]["long"]["more"], []
        while more:
            piece = await body(client, more)
            assert len(json.dumps(piece, ensure_ascii=False).encode()) <= MOST_BYTES
            pieces.append(piece["text"])
            more = piece.get("more")
        assert json.loads("".join(pieces)) == text
        slow = await said(client, "get_task", task="big", path="/state/k~13")
        assert slow["value"] == "x" * 2000
        log = (await client.read_resource("state://agents/recap/tasks/big/log")).contents[0].text
        assert len(log.encode()) <= MOST_BYTES
        shown = await client.call_tool("get_task", {"task": "big"})
        assert len(shown.content[0].text.encode()) <= MOST_BYTES + 200

    served(app, check)


def test_what_is_not_there_or_not_understood_is_refused_with_its_reason(app):
    fill(app)
    wrong = {
        "state://agents/recap/tasks/none": "no task 'none'",
        "state://agents/other/tasks/job%2F1": "not one of agent 'other'",
        "state://agents/recap/tasks/job%2F1/at/x": "seq='x' is not a whole number",
        "state://agents/recap/tasks/job%2F1/at/99": "99",
        "state://agents/recap/tasks/job%2F1/log?limit=0": "limit=0 is out of range",
        "state://agents/recap/tasks/job%2F1?nope=1": "takes no 'nope'",
        "state://agents/recap/tasks/job%2F1?path=/no/where": "nothing at",
        "state://agents/recap/tasks/../../x": "is not a resource",
        "file:///etc/passwd": "is not a resource",
        "state://users/ana": "does not serve users",
        "state://agents/recap/tasks/job%2F1/artifacts/none": "no artifact 'none'",
    }

    async def check(client):
        for uri, why in wrong.items():
            with pytest.raises(MCPError, match=why) as told:
                await client.read_resource(uri)
            assert "Traceback" not in str(told.value) and told.value.error.data["uri"] == uri
        assert "get_task takes no 'nope'" in await refused(client, "get_task", task="asks", nope=1)
        assert "needs 'task'" in await refused(client, "get_task")
        assert "not of type integer" in await refused(client, "get_task", task="asks", at=True)
        assert "no tool 'drop_database'" in await refused(client, "drop_database")
        assert "task-not-found" in await refused(client, "get_log", task="none")
        assert "limit=0" in await refused(client, "list_tasks", limit=0)

    served(app, check)


def test_the_tools_that_read(app):
    fill(app)
    app.patch("job/1", StatePatch(set={"city": "Oslo"}))

    async def check(client):
        inbox = (await said(client, "list_inbox"))["waiting"]
        assert {one["task"]: one["kind"] for one in inbox if one["kind"] != "no_worker"} == {
            "pays": "approval",
            "mails": "approval",
            "lost": "doubt",
            "asks": "question",
            "spends": "budget",
        }
        assert next(one for one in inbox if one["task"] == "pays")["command"].startswith("holdfast approve pays")
        found = (await said(client, "search", text="oslo"))["tasks"]
        assert [(one["task_id"], one["found_in"]) for one in found] == [("job/1", ["state"])]
        changed = await said(client, "diff", task="job/1", a=1, b=app.head("job/1"))
        assert {"op": "add", "path": "/state/city", "value": "Oslo"} in changed["patch"]
        why = await said(client, "explain_failure", task="lost")
        assert why["needs"][0]["kind"] == "doubt" and "has not failed" in why["explanation"]
        assert [one["task_id"] for one in (await said(client, "list_tasks", agent="payer"))["tasks"]] == ["pays"]
        thread = await body(client, "state://threads/chat")
        assert thread["thread_id"] == "chat" and thread["messages"] == []

    served(app, check)


def test_a_server_for_some_agents_shows_nothing_of_the_others(app):
    fill(app)
    app.thread("chat").message({"role": "user", "content": "hello"})

    async def check(client):
        assert [one.name for one in (await client.list_resources()).resources] == ["asks", "pays"]
        assert "task-not-found" in await refused(client, "get_task", task="lost")
        assert "task-not-found" in await refused(client, "explain_failure", task="mails")
        assert {one["task"] for one in (await said(client, "list_inbox"))["waiting"]} == {"asks", "pays"}
        assert (await said(client, "list_tasks", agent="loser"))["tasks"] == []
        assert (await said(client, "search", text="e"))["looked_at"] == 2
        assert "does not serve agent 'loser'" in await refused(client, "start_task", agent="loser")
        with pytest.raises(MCPError, match="no task 'lost'"):
            await client.read_resource("state://agents/loser/tasks/lost")

    served(app, check, agents=["asker", "payer"], writes=True)


def test_users_are_served_only_if_asked_for(app):
    app.user("ana").patch(StatePatch(set={"seat": "aisle"}))

    async def check(client):
        assert (await body(client, "state://users/ana"))["state"] == {"seat": "aisle"}

    served(app, check, users=True)


def test_prompts_carry_the_state_as_a_resource(app):
    fill(app)

    async def check(client):
        assert [one.name for one in (await client.list_prompts()).prompts] == ["debug_task", "continue_task"]
        asked, shown = (await client.get_prompt("debug_task", {"task": "lost"})).messages
        assert "explain_failure" in asked.content.text
        assert json.loads(shown.content.resource.text)["task_id"] == "lost"
        with pytest.raises(MCPError, match="needs 'task'"):
            await client.get_prompt("debug_task")
        with pytest.raises(MCPError, match="no prompt 'x'"):
            await client.get_prompt("x", {"task": "lost"})

    served(app, check)


def test_odd_options_of_a_server_are_refused(app):
    for options in ({"actor": ""}, {"actor": "a/b"}, {"agents": "recap"}, {"agents": []}):
        with pytest.raises(InvalidValue):
            server(app, **options)


def test_uris_are_read_as_they_are_written():
    for agent, task in (("a", "job/1"), ("a b", "x?y#z"), ("ü", "a%2Fb")):
        assert parse(task_uri(agent, task)).ids == (agent, task)
    for uri in ("state://agents//tasks/x", "state://agents/a/tasks", "state://", "state://agents/a/tasks/x/log/"):
        with pytest.raises(InvalidValue):
            parse(uri)


def test_without_the_sdk_the_extra_is_named():
    script = "import sys; sys.modules['mcp'] = None; from holdfast.cli.main import main; main()"
    options = ["mcp", "--allow-writes", "--store", "memory:"]
    done = subprocess.run([sys.executable, "-c", script, *options], capture_output=True, text=True)
    assert done.returncode == 5 and "holdfast[mcp]" in done.stderr and "Traceback" not in done.stderr

"""What a server must not show: other namespaces, by any verb, URI or handle; and secrets, which no log has either."""

import asyncio
import json

import mcp_types as types
import pytest
from mcp import Client, MCPError

import holdfast
from holdfast import Secret, StatePatch, Task, agent, tool
from holdfast.mcp import server
from holdfast.mcp.changes import ChangeFeed
from holdfast.mcp.reading.scope import Scope
from holdfast.mcp.reading.uris import TEMPLATES, USER_TEMPLATES
from tests.mcp.test_roles import CALLS, FORMS, ROLES, breaker
from tests.mcp.world import ASK, KnowsHandles, about, answering, fill, refused, said, stdio
from tests.waiting import auntil

STORES = ("sqlite", "postgres")
HIDDEN = "of-another-tenant"
SECRET = "tok-4242-4242"


@pytest.fixture
def theirs(url):
    """Tasks of another tenant of the same store, with the ids that all calls of tests name."""
    with holdfast.open(url, namespace="theirs") as app:
        fill(app)
        app.run(breaker, id="broken")
        app.patch("job/1", StatePatch(set={"note": HIDDEN}, add_artifacts=[{"artifact_id": "a1", "type": "text"}]))
        app.thread("chat").message({"role": "user", "content": HIDDEN})
        app.user("ana").patch(StatePatch(set={"note": HIDDEN}))
        yield app


@pytest.fixture
def ours(url, theirs):
    with holdfast.open(url, namespace="ours") as app:
        yield app


def logs(app):
    return {row.id: app.head(row.id) for row in app.list()} | {"@chat": app.thread("chat").seq}


def serving(app, **options):
    return Client(
        server(app, **ROLES["trusted"], **options),
        extensions=[KnowsHandles()],
        elicitation_callback=answering(
            {**FORMS["approve"], **FORMS["settle"], **FORMS["raise_budget"], "reject": True}
        ),
    )


@pytest.mark.parametrize("verb", [verb for verb in CALLS if {"task", "thread"} & {*CALLS[verb]}])
def test_no_verb_reaches_a_task_of_another_namespace(ours, theirs, verb):
    async def check():
        before = logs(theirs)
        async with serving(ours) as client:
            if verb == "add_message":  # it begins a thread of that name, which is ours
                await said(client, verb, **CALLS[verb])
            else:
                assert "task-not-found" in await refused(client, verb, **CALLS[verb])
        assert logs(theirs) == before
        assert HIDDEN in str(list(theirs.thread("chat").events())[-1].event)

    asyncio.run(check())


def test_no_list_search_inbox_or_completion_tells_of_another_namespace(ours, theirs):
    ours.start("recap", id="own")

    async def check():
        async with serving(ours) as client:
            assert [one.name for one in (await client.list_resources()).resources] == ["own"]
            assert [one["task_id"] for one in (await said(client, "list_tasks"))["tasks"]] == ["own"]
            assert (await said(client, "search", text=HIDDEN))["tasks"] == []
            assert {one["task"] for one in (await said(client, "list_inbox"))["waiting"]} == {"own"}
            form = types.ResourceTemplateReference(uri="state://agents/{agent}/tasks/{task}")
            assert (await client.complete(form, {"name": "task", "value": ""})).completion.values == ["own"]
            assert (await client.complete(form, {"name": "agent", "value": ""})).completion.values == ["recap"]
            with pytest.raises(MCPError, match="list again"):
                await client.list_resources(cursor="job/1")
            for prompt in ("debug_task", "continue_task"):
                with pytest.raises(MCPError, match="no task 'job/1'"):
                    await client.get_prompt(prompt, {"task": "job/1"})

    asyncio.run(check())


@pytest.mark.parametrize("template", [*TEMPLATES, *USER_TEMPLATES])
def test_no_uri_shows_another_namespace(ours, theirs, template):
    names = {"agent": "recap", "task": "job%2F1", "seq": "1", "id": "a1", "thread": "chat", "user": "ana"}
    uri = template.partition("{?")[0].format(**names)

    async def check():
        async with serving(theirs, users=True) as client:
            assert (await client.read_resource(uri)).contents, "it is there, for those whose it is"
        async with serving(ours, users=True) as client:
            if "/tasks/" in uri:
                with pytest.raises(MCPError, match="no task 'job/1'"):
                    await client.read_resource(uri)
            else:
                assert HIDDEN not in (await client.read_resource(uri)).contents[0].text

    asyncio.run(check())


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_no_handle_reaches_another_namespace(ours, theirs, method):
    async def check():
        before = logs(theirs)
        async with serving(theirs) as client:
            keys = (await about(client, "tasks/get", "pays"))["inputRequests"]
        yes = {key: {"action": "accept", "content": {"decision": "approve"}} for key in keys}
        async with serving(ours) as client:
            with pytest.raises(MCPError, match="no task 'pays'") as told:
                await about(client, method, "pays", **({"inputResponses": yes} if method == "tasks/update" else {}))
            assert told.value.error.code == -32602
        assert logs(theirs) == before

    asyncio.run(check())


def test_a_subscription_hears_nothing_of_another_namespace(ours, theirs):
    ours.start("recap", id="own")

    async def check():
        feed, told = ChangeFeed(Scope(app=ours), interval=0.01), []

        async def tell(uris):
            told.extend(uris)

        own, other = "state://agents/recap/tasks/own", "state://agents/recap/tasks/job%2F1"
        assert await feed.watch([own, other, "state://threads/chat", "list"]) == [own, "state://threads/chat", "list"]
        running = asyncio.create_task(feed.run(tell))
        await theirs.aio.patch("job/1", StatePatch(set={"x": 1}))
        await theirs.aio.thread("chat").message({"role": "user", "content": "more"})
        await theirs.aio.start("recap", id="another")
        await ours.aio.patch("own", StatePatch(set={"x": 1}))
        async with asyncio.timeout(10):
            await auntil(lambda: told)
        assert told == [own]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(check())


def test_the_command_serves_the_namespace_it_is_given(tmp_path):
    store = tmp_path / "store.db"
    with holdfast.open(store, namespace="theirs") as theirs, holdfast.open(store, namespace="ours") as ours:
        theirs.start("recap", id="hidden")
        ours.start("recap", id="own")

    async def check():
        async with Client(stdio(store, "--namespace", "ours", "--allow-writes")) as client:
            assert [one.name for one in (await client.list_resources()).resources] == ["own"]
            assert "task-not-found" in await refused(client, "cancel_task", task="hidden")
            assert (await said(client, "start_task", agent="recap", id="hidden"))["task_id"] == "hidden"

    asyncio.run(check())
    with holdfast.open(store, namespace="theirs") as theirs, holdfast.open(store, namespace="ours") as ours:
        assert theirs.head("hidden") == ours.head("hidden") == 1 and len(ours.list()) == 2


# Secrets


@tool(effect="once", risk="payment", redact=["token"])
def charge(euros: int, token: str, card: str) -> dict:
    return {"used": token, "card": card}


@tool(effect="once", redact=["token"])
def fail(token: str) -> None:
    raise OSError(f"refused {token}")


@agent
def charges(task: Task) -> dict:
    return task.call(charge, euros=3, token=SECRET, card=Secret(f"{SECRET}-card", label="card …42"))


@agent
def fails(task: Task) -> None:
    task.call(fail, token=SECRET)


def everything(client, tasks):
    """Every answer that tells of these tasks, as text."""

    async def ask():
        for task, agent_name in tasks.items():
            uri = f"state://agents/{agent_name}/tasks/{task}"
            for one in (uri, f"{uri}/log", f"{uri}/at/2"):
                yield (await client.read_resource(one)).contents[0].text
            for name in ("get_task", "get_log", "explain_failure"):
                yield str(await client.call_tool(name, {"task": task}))
            yield str(await client.call_tool("diff", {"task": task, "a": 1, "b": 3}))
            yield str(await client.get_prompt("debug_task", {"task": task}))
            yield json.dumps(await about(client, "tasks/get", task))
        for name, arguments in (("list_inbox", {}), ("list_tasks", {}), ("search", {"text": "tok"})):
            yield str(await client.call_tool(name, arguments))

    return ask()


def test_secrets_are_kept_out_of_everything_as_they_are_kept_out_of_the_log(app):
    tasks = {"asks": "charges", "paid": "charges", "unsure": "fails"}
    forms = []
    app.run(charges, id="asks", contract={"constraints": ASK})
    app.run(charges, id="paid")
    app.run(fails, id="unsure")

    async def check():
        host = answering({"approve": False}, seen=forms)
        extensions = [KnowsHandles()]
        async with Client(server(app, decisions=True), extensions=extensions, elicitation_callback=host) as client:
            answers = [one async for one in everything(client, tasks)]
            await said(client, "approve", task="asks", call="charge#1")
        assert len(answers) == 30 and not [one for one in answers if SECRET in one]
        assert any("card …42" in one for one in answers), "the label is shown"
        assert SECRET not in forms[0].message and "card …42" in forms[0].message

    asyncio.run(check())

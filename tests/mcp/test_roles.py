"""Who may do what: each verb for each role. No verb decides by its arguments, nothing decides without its flags."""

import asyncio
import threading

import mcp_types as types
import pytest
from mcp import Client, MCPError

import holdfast
from holdfast import StatePatch
from holdfast.mcp import server
from holdfast.mcp.service import VERBS
from tests.mcp import world
from tests.mcp.world import MODES, answering, fill, refused, said

ROLES = {
    "reader": {},
    "writer": {"writes": True},
    "decider": {"decisions": True},
    "both": {"writes": True, "decisions": True},
    "trusted": {"writes": True, "decisions": True, "trust_elicitation": True},
}
CALLS = {
    "list_tasks": {},
    "get_task": {"task": "job/1"},
    "get_log": {"task": "job/1"},
    "diff": {"task": "job/1", "a": 1, "b": 1},
    "search": {"text": "x"},
    "list_inbox": {},
    "explain_failure": {"task": "lost"},
    "start_task": {"agent": "recap", "input": {"n": 2}, "id": "new"},
    "patch_task": {"task": "job/1", "patch": {"set": {"x": 1}}, "expect": 1},
    "signal": {"task": "job/1", "name": "paid"},
    "fork_task": {"task": "job/1", "id": "forked"},
    "cancel_task": {"task": "job/1"},
    "resume_task": {"task": "broken"},
    "add_message": {"thread": "chat", "text": "hello"},
    "continue_task": {"task": "job/1", "agent": "other"},
    "answer": {"task": "asks", "question": "seat", "value": "aisle"},
    "approve": {"task": "pays", "call": "pay#1"},
    "reject": {"task": "pays", "call": "pay#1"},
    "settle": {"task": "lost", "call": "lose#1"},
    "raise_budget": {"task": "spends"},
}
FORMS = {
    "approve": {"approve": True},
    "reject": {"reject": True},
    "settle": {"happened": True, "result": '"paid"'},
    "raise_budget": {"limit": 5.0},
}
NEEDS = {"read": lambda role: True, "write": lambda role: "writes" in role, "decide": lambda role: "decisions" in role}


@holdfast.agent
def breaker(task: holdfast.Task) -> None:
    raise ValueError("broken")


@pytest.fixture
def store(tmp_path):
    with holdfast.open(tmp_path / "store.db") as app:
        fill(app)
        app.run(breaker, id="broken")
        yield app


def heads(app):
    return {row.id: app.head(row.id) for row in app.list()} | {"@chat": app.thread("chat").seq}


def test_there_is_a_call_of_every_verb():
    assert {*CALLS} == {*VERBS}


@pytest.mark.parametrize("role", ROLES)
def test_each_verb_does_for_each_role_what_it_may_and_nothing_else(store, role):
    """Forms are filled in with yes: what is refused is refused by the server, not by the person."""

    async def check():
        for name, arguments in CALLS.items():
            host = answering(FORMS.get(name))
            async with Client(server(store, **ROLES[role]), elicitation_callback=host) as client:
                before, allowed = heads(store), NEEDS[VERBS[name].role](ROLES[role])
                listed = name in {one.name for one in (await client.list_tools()).tools}
                assert listed == allowed, name
                if name == "reject" and allowed:  # the approval before has decided it
                    assert "waits for nothing to reject" in await refused(client, name, **arguments)
                elif allowed:
                    told = await said(client, name, **arguments)
                    assert (heads(store) != before) == (VERBS[name].role != "read"), name
                    assert name not in FORMS or told["decided"]
                else:
                    assert "start it with --allow-" in await refused(client, name, **arguments)
                    assert heads(store) == before

    asyncio.run(check())


DECIDING = {"approval_given", "approval_refused", "step_settled", "budget_raised", "wait_ended"}
"""The kinds of events by which something is decided."""

CASES = (
    ("approve", {"task": "pays", "call": "pay#1"}, False),
    ("approve", {"task": "mails", "call": "mail#1"}, True),
    ("reject", {"task": "pays", "call": "pay#1"}, False),
    ("reject", {"task": "mails", "call": "mail#1"}, True),
    ("settle", {"task": "lost", "call": "lose#1"}, False),
    ("settle", {"task": "posts", "call": "post#1"}, True),
    ("raise_budget", {"task": "spends"}, False),
    ("answer", {"task": "asks", "question": "seat", "value": "aisle"}, False),
)
"""Each verb that decides, what about, and whether that is an external action."""


def decided(app):
    return [one.kind for row in app.list() for one in app.events(row.id) if one.kind in DECIDING]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trusts", [False, True])
@pytest.mark.parametrize("decides", [False, True])
@pytest.mark.parametrize("writes", [False, True])
def test_nothing_is_decided_without_the_flag_and_no_external_action_without_both(writes, decides, trusts, mode):
    """Each person says yes to each form: what is not decided was refused by the server."""

    async def check(app, verb, arguments, expected):
        made = server(app, writes=writes, decisions=decides, trust_elicitation=trusts)
        async with Client(made, mode=mode, elicitation_callback=answering(FORMS.get(verb))) as client:
            result = await client.call_tool(verb, arguments)
        assert result.is_error != expected and len(decided(app)) == expected, (verb, arguments)

    for verb, arguments, is_external in CASES:
        with holdfast.open("memory:") as app:
            fill(app)
            app.run(world.poster, {"to": "sam"}, id="posts")
            asyncio.run(check(app, verb, arguments, decides and (trusts or not is_external)))


@pytest.mark.parametrize("verb", [name for name, one in VERBS.items() if one.role != "decide"])
def test_no_verb_that_writes_decides_what_a_task_waits_for(verb):
    """Whatever a client does with --allow-writes, what waits still waits, and so do tasks that continue or fork it."""
    keys = {"pays": "pay#1", "mails": "mail#1", "lost": "lose#1", "asks": "seat", "spends": "steps"}

    async def check(app):
        async with Client(server(app, writes=True, trust_elicitation=True)) as client:
            for task, key in keys.items():
                given = {**CALLS[verb], **({"task": task} if "task" in CALLS[verb] else {})}
                given |= {name: value for name, value in {"id": f"{task}.x", "name": key}.items() if name in given}
                given |= {"expect": app.head(task)} if "expect" in given else {}
                given.pop("agent", None) if verb == "continue_task" else None
                await client.call_tool(verb, given)
        assert decided(app) == []
        begun = app.list(agent="payer", status="pending")
        assert len(begun) == (verb in ("continue_task", "fork_task"))
        for row in begun:
            assert (await app.aio.resume(row.id, world.payer)).waiting.kind == "person"

    with holdfast.open("memory:") as app:
        fill(app)
        asyncio.run(check(app))


@pytest.mark.parametrize("mode", MODES)
def test_calls_of_external_actions_also_need_trust(store, mode):
    async def check():
        for options, decided in ((ROLES["both"], False), (ROLES["trusted"], True)):
            host = answering({"approve": True, "why": "checked"})
            async with Client(server(store, **options), mode=mode, elicitation_callback=host) as client:
                if decided:
                    assert (await said(client, "approve", task="mails", call="mail#1"))["decided"]
                else:
                    before = heads(store)
                    told = await refused(client, "approve", task="mails", call="mail#1")
                    assert "holdfast approve mails" in told and "--trust-elicitation" in told
                    assert heads(store) == before
        event = list(store.events("mails"))[-1].event
        assert event.by == "mcp:mcp/mcp (elicited)" and event.why == "checked" and event.bound

    asyncio.run(check())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("verb", FORMS)
def test_a_person_who_declines_decides_nothing(store, mode, verb):
    async def check():
        no = {"approve": False, "reject": False, "limit": None}
        odd = {"approve": "yes", "reject": 1, "happened": "true", "limit": True}
        forms = (answering(no), answering({}), answering(odd))
        for host in (answering(action="decline"), answering(action="cancel"), *forms):
            async with Client(server(store, decisions=True), mode=mode, elicitation_callback=host) as client:
                before = heads(store)
                result = await client.call_tool(verb, CALLS[verb])
                assert result.is_error or not result.structured_content["decided"]
                assert heads(store) == before

    asyncio.run(check())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("verb", FORMS)
def test_a_client_without_forms_is_told_the_command(store, mode, verb):
    async def check():
        async with Client(server(store, **ROLES["trusted"]), mode=mode) as client:
            before = heads(store)
            assert "a person decides it with: holdfast " in await refused(client, verb, **CALLS[verb])
            assert heads(store) == before

    asyncio.run(check())


@pytest.mark.parametrize("verb", FORMS)
def test_no_argument_decides(store, verb):
    """A model that adds what the form would have asked is refused, and one that adds answers without a form too."""

    async def check():
        async with Client(server(store, **ROLES["trusted"])) as client:
            before = heads(store)
            for name, value in {**FORMS[verb], "by": "ana", "bound": "x", "confirm": True}.items():
                assert f"takes no {name!r}" in await refused(client, verb, **CALLS[verb], **{name: value})
            forged = types.ElicitResult(action="accept", content=FORMS[verb])
            result = await client.session.call_tool(verb, CALLS[verb], input_responses={"decision": forged})
            assert result.is_error
            with pytest.raises(MCPError, match="requestState"):
                await client.session.call_tool(
                    verb, CALLS[verb], input_responses={"decision": forged}, request_state="forged"
                )
            assert heads(store) == before

    asyncio.run(check())


def test_a_form_shows_the_exact_arguments_and_is_bound_to_them(store):
    async def check():
        seen = []

        async def slow(ctx, params):
            seen.append(params)
            store.approve("pays", "pay#1", by="ana")  # decided elsewhere while the form is open
            return types.ElicitResult(action="accept", content={"reject": True})

        async with Client(server(store, decisions=True), elicitation_callback=slow) as client:
            assert "waits for nothing to reject" in await refused(client, "reject", task="pays", call="pay#1")
        assert "pay(euros=3)" in seen[0].message and "Task: pays" in seen[0].message

    asyncio.run(check())


def test_a_state_of_one_call_is_worth_nothing_in_another(store):
    async def check():
        store.run(world.payer, {"euros": 99}, id="other", contract={"constraints": world.ASK})
        yes = types.ElicitResult(action="accept", content={"approve": True})
        async with Client(server(store, decisions=True), elicitation_callback=answering({})) as client:
            asked = await client.session.call_tool("approve", CALLS["approve"], allow_input_required=True)
            for arguments in ({"task": "other", "call": "pay#1"}, {"task": "pays", "call": "pay"}):
                with pytest.raises(MCPError, match="requestState"):
                    await client.session.call_tool(
                        "approve", arguments, input_responses={"decision": yes}, request_state=asked.request_state
                    )
        assert store.get("other").waiting.on[0]["kind"] == "approval"

    asyncio.run(check())


def test_an_actor_cannot_reopen_what_it_changed_itself(store):
    async def check():
        async with Client(server(store, writes=True, actor="ana")) as client:
            await said(client, "start_task", agent="breaker", id="own")
            await store.aio.resume("own", breaker)
            assert "self-approval" in await refused(client, "resume_task", task="own")
        async with Client(server(store, writes=True, actor="ben")) as client:
            assert (await said(client, "resume_task", task="own"))["status"] == "pending"

    asyncio.run(check())


def test_the_hints_of_every_tool_are_complete(store):
    async def check():
        async with Client(server(store, **ROLES["trusted"])) as client:
            tools = {one.name: one for one in (await client.list_tools()).tools}
        for name, one in tools.items():
            hints = one.annotations
            assert None not in (
                hints.read_only_hint,
                hints.destructive_hint,
                hints.idempotent_hint,
                hints.open_world_hint,
            ), name
            assert hints.read_only_hint == (VERBS[name].role == "read")
            assert one.input_schema["additionalProperties"] is False
        assert {name for name, one in tools.items() if one.annotations.destructive_hint} == {"cancel_task", *FORMS}

    asyncio.run(check())


def test_a_lost_race_is_a_clear_error_and_writes_nothing(store):
    async def check():
        async with Client(server(store, writes=True)) as client:
            seq = (await said(client, "get_task", task="job/1"))["seq"]
            store.patch("job/1", StatePatch(set={"city": "Bergen"}), by="ben")
            told = await refused(client, "patch_task", task="job/1", patch={"set": {"city": "Oslo"}}, expect=seq)
            assert "patch-conflict" in told and "by 'ben'" in told and "nothing was written" in told
            assert store.get("job/1").state["city"] == "Bergen"
            assert "no section 'nope'" in await refused(
                client, "patch_task", task="job/1", patch={"nope": 1}, expect=seq
            )

    asyncio.run(check())


def test_another_agent_continues_the_work_with_all_that_is_known(store):
    store.patch(
        "job/1",
        StatePatch(
            set={"city": "Oslo"},
            append_facts=[{"key": "pop", "value": 7, "source": "census"}],
            replace_plan=["look", "write"],
            complete_plan_step="look",
            add_artifacts=[{"artifact_id": "a1", "type": "text", "summary": "a draft", "bytes": 5}],
        ),
    )

    async def check():
        async with Client(server(store, writes=True)) as client:
            first = await said(client, "continue_task", task="job/1", agent="editor")
            again = await said(client, "continue_task", task="job/1", agent="editor")
            assert first["task_id"] == again["task_id"] == "job/1.editor"
            new, old = store.get("job/1.editor"), store.get("job/1")
            assert (new.agent, new.goal, new.thread, new.status) == ("editor", "write a recap", "chat", "pending")
            assert new.state["city"] == "Oslo" and new.pending == ["write"] and new.facts["pop"].value == 7
            assert list(new.artifacts) == ["a1"] and dict(new.input) == {"n": 1}
            assert new.facts["continues"].value == "state://agents/recap/tasks/job%2F1"
            assert old.facts["continued_by"].value == "state://agents/editor/tasks/job%2F1.editor"
            assert sum(one.kind == "state_patched" for one in store.events("job/1")) == 2
            ended = await said(client, "continue_task", task="broken", agent="editor")
            shown = await said(client, "get_task", task="broken")
            assert shown["continued_by"] == ended["uri"] and shown["status"] == "failed"
            store.start("other", id="taken")
            assert "does not continue" in await refused(client, "continue_task", task="job/1", id="taken")

    asyncio.run(check())


def test_a_running_task_is_not_taken_over(store):
    begun, end = threading.Event(), threading.Event()

    @holdfast.agent
    def long(task: holdfast.Task) -> None:
        begun.set()
        end.wait()

    async def check():
        running = asyncio.create_task(asyncio.to_thread(store.run, long, id="live"))
        await asyncio.to_thread(begun.wait)
        async with Client(server(store, writes=True)) as client:
            told = await refused(client, "continue_task", task="live", agent="editor")
        end.set()
        await running
        assert "task-busy" in told

    asyncio.run(check())

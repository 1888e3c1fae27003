"""once_hooks: a `once` tool whose call is done or in doubt is refused, by the real Claude Code and a scripted model."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import uuid

import pytest

pytest.importorskip("claude_agent_sdk", reason="make test-adapters")

from claude_agent_sdk import HookMatcher, create_sdk_mcp_server, tool

import holdfast
from holdfast import InvalidValue
from holdfast.adapters.claude_agent_sdk import HoldfastSessionStore, once_hooks
from tests.adapters.claude_agent_sdk.scripted import options_of, scripted, told
from tests.adapters.orders import lines

STORES = ("memory", "sqlite")
CHARGE = "mcp__shop__charge"


class Hooks:
    """The hooks as the SDK calls them, for calls of `charge`."""

    def __init__(self, app, **options):
        hooks = once_hooks(app, **{"effects": {CHARGE: "once"}, **options})
        self._hooks = {event: matchers[-1].hooks[0] for event, matchers in hooks.items()}

    async def say(self, event, id, session="s1", tool=CHARGE, euros=5, **more):
        given = {"session_id": session, "tool_name": tool, "tool_input": {"euros": euros}, "tool_use_id": id, **more}
        return await self._hooks[event]({"hook_event_name": event, **given}, id, {"signal": None})

    async def before(self, id, **more):
        """Why the call is refused; None if it may be made."""
        return (await self.say("PreToolUse", id, **more)).get("hookSpecificOutput", {}).get("permissionDecisionReason")

    async def call(self, id, **more):
        assert await self.before(id, **more) is None
        await self.say("PostToolUse", id, tool_response={"charge": "c-7"}, **more)


def run(work):
    return asyncio.run(work)


def test_a_call_that_is_done_is_refused_with_its_result(app):
    async def talk(hooks):
        await hooks.call("toolu_1")
        return await hooks.before("toolu_2"), await Hooks(app).before("toolu_3")

    for refused in run(talk(Hooks(app))):
        assert "called with these arguments before" in refused and "c-7" in refused


def test_other_arguments_and_other_sessions_are_other_calls_and_other_tools_are_left_alone(app):
    async def talk(hooks):
        await hooks.call("toolu_1")
        await hooks.call("toolu_2", euros=6)
        await hooks.call("toolu_3", session="s2")
        await hooks.call("toolu_4", tool="Bash")
        await hooks.call("toolu_5", tool="Bash")

    run(talk(Hooks(app)))
    assert len(app.list()) == 3


def test_a_unique_key_is_one_call_in_all_sessions(app):
    async def talk(hooks):
        await hooks.call("toolu_1")
        return await hooks.before("toolu_2", session="s2")

    assert "c-7" in run(talk(Hooks(app, unique={CHARGE: "order-{euros}"})))


@pytest.mark.parametrize("how", ["failed", "unanswered"])
def test_a_call_in_doubt_is_refused_until_it_is_settled(app, how):
    async def talk(hooks):
        assert await hooks.before("toolu_1") is None
        if how == "failed":
            await hooks.say("PostToolUseFailure", "toolu_1", error="the answer was lost")
        else:
            await hooks.say("Stop", "toolu_1")
        return await hooks.before("toolu_2")

    assert "until a person has settled that call: holdfast inbox" in run(talk(Hooks(app)))
    (item,) = app.inbox()
    assert item.kind == "doubt" and item.arguments == {"euros": 5}
    app.settle(item.task, item.key, happened=True, result="c-9", by="ana")
    assert '"c-9"' in run(Hooks(app).before("toolu_3"))


def test_a_call_that_was_never_made_is_made_when_a_person_has_said_so(app):
    async def talk(hooks):
        assert await hooks.before("toolu_1") is None
        await hooks.say("Stop", "toolu_1")
        await hooks.before("toolu_2")

    run(talk(Hooks(app)))
    (item,) = app.inbox()
    app.settle(item.task, item.key, happened=False, by="ana")
    run(Hooks(app).call("toolu_3"))


def test_a_tool_that_can_be_repeated_is_never_in_doubt(app):
    async def talk(hooks):
        assert await hooks.before("toolu_1") is None
        await hooks.say("Stop", "toolu_1")
        await hooks.call("toolu_2")

    run(talk(Hooks(app, effects={CHARGE: "idempotent"})))


def test_a_call_that_cannot_be_recorded_is_refused(app):
    refused = run(Hooks(app, unique={CHARGE: "order-{order}"}).before("toolu_1"))
    assert "the call can't be recorded" in refused and "its arguments are euros" in refused


def test_hooks_of_ones_own_stay_and_come_first(app):
    async def mine(given, id, context):
        return {}

    own = {"PreToolUse": [HookMatcher(hooks=[mine])], "Notification": [HookMatcher(hooks=[mine])]}
    made = once_hooks(app, effects={CHARGE: "once"}, hooks=own)
    assert made["PreToolUse"][0].hooks == [mine] and len(made["PreToolUse"]) == 2 and len(own["PreToolUse"]) == 1
    assert set(made) == {"PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop", "Notification"}


def test_bad_input_is_refused_by_name(app):
    for wrong, text in (
        (lambda: once_hooks("holdfast.db", effects={}), r"'holdfast.db' is not an app \(give once_hooks"),
        (lambda: once_hooks(app, effects={CHARGE: "twice"}), "twice"),
        (lambda: once_hooks(app, effects={}, unique={CHARGE: "x"}), "which effects= does not"),
        (lambda: once_hooks(app, effects={CHARGE: "once"}, unique={CHARGE: "order-{"}), "can't be read"),
    ):
        with pytest.raises(InvalidValue, match=text):
            wrong()


# The real Claude Code


def test_claude_code_makes_a_call_once_and_is_refused_the_second_time(tmp_path):
    done = []

    @tool("charge", "Charge the card.", {"euros": int})
    async def charge(given):
        done.append(given["euros"])
        return {"content": [{"type": "text", "text": "charged"}]}

    shop = create_sdk_mcp_server("shop", tools=[charge])
    calls = [(CHARGE, {"euros": 5}), (CHARGE, {"euros": 5}), (CHARGE, {"euros": 6})]
    with holdfast.open("memory:") as app, scripted(*calls) as server:
        hooks = once_hooks(app, effects={CHARGE: "once"})
        options = options_of(server, tmp_path / "home", mcp_servers={"shop": shop}, allowed_tools=[CHARGE], hooks=hooks)
        run(told("one book", options))
        first, second, third = server.results()
    assert done == [5, 6] and "charged" in first and "called with these arguments before" in second
    assert "charged" in third


def test_claude_code_resumes_a_session_from_the_store_on_another_machine(tmp_path):
    id = str(uuid.uuid4())
    for number, more in enumerate(({"session_id": id}, {"resume": id})):
        with holdfast.open(str(tmp_path / "holdfast.db")) as app, scripted() as server:
            options = options_of(server, tmp_path / f"home-{number}", session_store=HoldfastSessionStore(app), **more)
            options.cwd = str(tmp_path)  # the project: its key is made of this
            run(told(f"message {number}", options))
            seen = str(server.seen[-1])
    assert "message 0" in seen and "message 1" in seen


def life(place):
    """Run the killed shop once; gives its status and what it printed. Its Claude Code may outlive it: it is ended."""
    command = [sys.executable, "-m", "tests.adapters.claude_agent_sdk.killed_shop", str(place)]
    with (place / "printed").open("w+") as printed:
        process = subprocess.Popen(command, stdout=printed, start_new_session=True)
        try:
            return process.wait(60), (place / "printed").read_text()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_a_process_that_is_killed_in_the_tool_does_not_call_it_again(tmp_path):
    assert life(tmp_path) == (-signal.SIGKILL, "")
    status, printed = life(tmp_path)
    assert status == 0 and "holdfast inbox" in printed and lines(tmp_path / "charge") == ["5"]
    with holdfast.open(str(tmp_path / "holdfast.db")) as app:
        (item,) = app.inbox()
        app.settle(item.task, item.key, happened=True, result="c-7", by="ana")
    status, printed = life(tmp_path)
    assert status == 0 and '"c-7"' in printed and lines(tmp_path / "charge") == ["5"]

"""HoldfastPlugin: tool calls of ADK agents are made once, and what is in doubt is asked."""

import asyncio

import pytest

pytest.importorskip("google.adk", reason="make test-adapters")

from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext
from google.genai import types

from holdfast import InvalidValue, Suspended
from holdfast.adapters.google_adk import HoldfastPlugin, HoldfastSessionService
from tests.adapters.google_adk.shop import NAMES, WHERE, Replies, run, runner_of
from tests.adapters.killing import trials
from tests.conftest import ALL

STORES = ("memory", "sqlite")
ONCE = {"charge": 1, "ship": 1, "mail": 1}


class Shop:
    """An agent around one tool, `charge`, which does what a test says."""

    def __init__(self, app, act, *more, replies=((("charge", {"euros": 5}),), ()), wrap=lambda fn: fn, **options):
        self.app, self.done = app, []
        self.service = HoldfastSessionService(app)

        def charge(euros: int, tool_context: ToolContext) -> object:
            """Charge the card."""
            self.done.append(euros)
            return act(tool_context)

        self.model = Replies(replies=replies, asked=[], seen=[])
        self.runner = runner_of(self.model, [wrap(charge)], self.service, *more, HoldfastPlugin(app, **options))

    def run(self):
        return asyncio.run(run(self.runner, self.service))

    def again(self):
        """Run it once more from where the model has just replied, as after a crash."""
        session = asyncio.run(self.service.get_session(**NAMES))
        first = next(n for n, one in enumerate(session.events) if one.get_function_calls())
        kept = session.events[: first + 1]
        asyncio.run(self.service.delete_session(**NAMES))
        session = asyncio.run(self.service.create_session(**NAMES))
        for one in kept:
            asyncio.run(self.service.append_event(session, one))
        return self.run()

    def state(self):
        return asyncio.run(self.service.get_session(**NAMES)).state


def fail(context):
    raise ConnectionResetError("the answer was lost")


def test_a_call_is_recorded_and_a_replayed_one_is_not_made_again(app):
    shop = Shop(app, lambda context: {"charged": 5})
    assert shop.run() == "done" and shop.done == [5] and shop.model.seen == [{"charged": 5}]
    assert shop.again() == "done" and shop.done == [5] and shop.model.seen == [{"charged": 5}]
    (task,) = app.list()
    assert task.id.startswith("call.charge.adk:shop:ana:order-7:") and task.status == "completed"


@pytest.mark.parametrize("result", [{"charged": 5}, "charged", 7, None, [1, 2], {}])
def test_what_a_tool_returns_reaches_the_model_alike_both_times(app, result):
    shop = Shop(app, lambda context: result)
    shop.run()
    first = list(shop.model.seen)
    shop.again()
    assert shop.model.seen == first and shop.done == [5]


def test_state_and_actions_of_a_call_are_set_again_on_a_replay(app):
    def act(context):
        context.state["paid"] = 5
        context.state["user:customer"] = True
        context.state["temp:x"] = 1
        context.actions.skip_summarization = True
        return "charged"

    shop = Shop(app, act)
    shop.run()
    assert shop.state() == {"paid": 5, "user:customer": True} and shop.model.asked == [0]
    shop.again()
    assert shop.state() == {"paid": 5, "user:customer": True} and shop.model.asked == [0] and shop.done == [5]


def test_a_declared_tool_that_raises_is_in_doubt_and_its_settled_result_reaches_the_model(app):
    shop = Shop(app, fail, effects={"charge": "once"})
    for _ in range(2):
        with pytest.raises(Suspended, match="holdfast inbox"):
            shop.run()
    (item,) = app.inbox()
    assert item.kind == "doubt" and item.arguments == {"euros": 5} and "the answer was lost" in item.prompt
    app.settle(item.task, item.key, happened=True, result={"charge": "c-7"}, by="ana")
    assert shop.run() == "done" and shop.done == [5] and shop.model.seen == [{"charge": "c-7"}]


def test_a_call_that_raised_and_did_not_happen_is_told_to_the_model_as_an_error(app):
    shop = Shop(app, fail, effects={"charge": "once"})
    with pytest.raises(Suspended):
        shop.run()
    (item,) = app.inbox()
    app.settle(item.task, item.key, happened=False, by="ana")
    assert shop.run() == "done" and shop.done == [5]
    assert "the answer was lost" in shop.model.seen[0]["error"] and list(app.inbox()) == []


def test_an_undeclared_tool_that_raises_fails_as_in_adk_and_is_asked_about_when_it_is_replayed(app):
    shop = Shop(app, fail)
    with pytest.raises(ConnectionResetError):
        shop.run()
    assert list(app.inbox()) == []
    with pytest.raises(Suspended):
        shop.again()
    assert shop.done == [5] and [item.kind for item in app.inbox()] == ["doubt"]


def test_an_agents_own_error_callback_still_decides(app):
    shop = Shop(app, fail)
    agent = shop.runner.agent
    agent.on_tool_error_callback = lambda tool, args, tool_context, error: {"error": "try later"}
    assert shop.run() == "done" and shop.model.seen == [{"error": "try later"}]


def test_a_tool_that_needs_a_confirmation_asks_as_in_adk_and_runs_once(app):
    shop = Shop(app, lambda context: "charged", wrap=lambda fn: FunctionTool(fn, require_confirmation=True))
    shop.run()
    assert shop.done == []

    async def confirm():
        session = await shop.service.get_session(**NAMES)
        asked = next(
            call
            for one in session.events
            for call in one.get_function_calls()
            if call.name == "adk_request_confirmation"
        )
        answer = types.FunctionResponse(id=asked.id, name=asked.name, response={"confirmed": True})
        message = types.Content(role="user", parts=[types.Part(function_response=answer)])
        invocation = next(one.invocation_id for one in session.events)
        async for _ in shop.runner.run_async(**WHERE, invocation_id=invocation, new_message=message):
            pass

    asyncio.run(confirm())
    assert shop.done == [5]


def test_a_unique_key_makes_one_call_of_two_in_a_session(app):
    replies = ((("charge", {"euros": 5}),), (("charge", {"euros": 5}),), ())
    shop = Shop(app, lambda context: f"charge {len(shop.done)}", replies=replies, unique={"charge": "order-{euros}"})
    assert shop.run() == "done" and shop.done == [5]
    assert shop.model.seen == [{"result": "charge 1"}, {"result": "charge 1"}]


def test_a_tool_that_only_reads_is_read_again_after_a_crash_and_never_in_doubt(app):
    shop = Shop(app, fail, effects={"charge": "read"})
    with pytest.raises(ConnectionResetError):
        shop.run()
    assert list(app.inbox()) == []


def test_parallel_calls_of_one_reply_are_recorded_each(app):
    replies = ((("charge", {"euros": 5}), ("charge", {"euros": 6})), ())
    shop = Shop(app, lambda context: "charged", replies=replies)
    assert shop.run() == "done" and sorted(shop.done) == [5, 6]
    assert shop.again() == "done" and sorted(shop.done) == [5, 6] and len(app.list()) == 2


def test_a_long_running_tool_starts_once(app):
    shop = Shop(app, lambda context: {"ticket": 1}, wrap=LongRunningFunctionTool)
    shop.run()
    shop.again()
    assert shop.done == [5]


def test_a_plugin_before_ours_may_answer_a_call_itself(app):
    class Canned(BasePlugin):
        async def before_tool_callback(self, *, tool, tool_args, tool_context):
            return {"canned": True}

    shop = Shop(app, lambda context: "charged", Canned("canned"))
    assert shop.run() == "done" and shop.done == [] and shop.model.seen == [{"canned": True}] and app.list() == []


def test_a_cancelled_run_leaves_its_call_in_doubt(app):
    started = asyncio.Event()

    async def charge(euros: int) -> str:
        """Charge the card."""
        started.set()
        await asyncio.sleep(60)
        return "charged"

    service = HoldfastSessionService(app)
    model = Replies(replies=((("charge", {"euros": 5}),), ()), asked=[], seen=[])
    runner = runner_of(model, [charge], service, HoldfastPlugin(app, effects={"charge": "once"}))

    async def cancelled():
        working = asyncio.create_task(run(runner, service))
        await started.wait()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    asyncio.run(cancelled())
    with pytest.raises(Suspended):
        asyncio.run(run(runner, service))
    assert [item.kind for item in app.inbox()] == ["doubt"]


def test_bad_input_is_refused_by_name(app):
    for wrong, text in (
        (lambda: HoldfastPlugin("holdfast.db"), r"'holdfast.db' is not an app \(give HoldfastPlugin"),
        (lambda: HoldfastPlugin(app, effects={"charge": "twice"}), "twice"),
        (lambda: HoldfastPlugin(app, default="twice"), "twice"),
        (lambda: HoldfastPlugin(app, unique={"charge": "order-{"}), "can't be read"),
    ):
        with pytest.raises(InvalidValue, match=text):
            wrong()


@pytest.mark.parametrize("seed", [7, 8, 9] if ALL else [7])
def test_every_effect_happens_once_however_often_the_process_is_killed(seed):
    """Thirty trials in all; an attempt waits two seconds before it asks about a call in doubt."""
    found = trials("tests.adapters.google_adk.killed_shop", "plugin", seed=seed, count=10 if ALL else 3, kills=4)
    for one in found:
        assert {name: one.get(name) for name in ONCE} == ONCE, one
        assert 3 <= one["model"] <= 3 + one["killed"], one  # the model is asked again only if its reply was not saved
    assert sum(one["killed"] for one in found) >= len(found)


def test_without_the_plugin_effects_are_repeated():
    found = trials("tests.adapters.google_adk.killed_shop", "control", seed=7, count=12 if ALL else 6, kills=4)
    assert any(one.get(name, 0) > 1 for one in found for name in ONCE), found

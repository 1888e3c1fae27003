"""Runs of the OpenAI Agents SDK as tasks: what is recorded, what comes back, and what people decide."""

import asyncio

import pytest
from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    RunContextWrapper,
    Runner,
    Usage,
    function_tool,
    handoff,
)
from agents.testing import assistant_message, function_call

from holdfast import Budget, InvalidValue
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, effect

STORES = ("memory", "sqlite")


class Replies(Model):
    """A model that gives these replies in turn: lists of tool calls, or a text. `seen` is its last input."""

    def __init__(self, *replies, ids="call"):
        self.replies, self.asked, self.seen, self.ids = replies, 0, [], ids

    async def get_response(self, system_instructions, input, *args, **kwargs):
        reply, self.seen = self.replies[min(self.asked, len(self.replies) - 1)], input
        self.asked += 1
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, str):
            output = [assistant_message(reply)]
        else:
            ids = (f"{self.ids}_{self.asked}_{number}" for number in range(len(reply)))
            output = [function_call(name, args, call_id=next(ids)) for name, args in reply]
        return ModelResponse(output=output, usage=Usage(requests=1, input_tokens=10, output_tokens=5), response_id="r")

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


class Shop:
    """An agent around one tool, `charge`, which does what a test says."""

    def __init__(self, app, act, *replies, declare=lambda tool: tool, tool_options=None, **options):
        self.app, self.done = app, []
        shop = self

        async def charge(euros: int) -> str:
            """Charge the card."""
            shop.done.append(euros)
            return act(euros)

        self.model = Replies(*(replies or ([("charge", {"euros": 5})], "done")))
        self.tool = declare(function_tool(**(tool_options or {}))(charge))
        self.inner = Agent(name="shop", model=self.model, tools=[self.tool])
        self.runner = DurableRunner(self.inner, app, **options)

    def run(self, id="order-7", **more):
        return self.runner.run_sync("one book", id=id, **more)

    def result(self):
        return [one["output"] for one in self.model.seen if isinstance(one, dict) and "output" in one]


def fail(euros):
    raise ConnectionResetError("the answer was lost")


def test_a_finished_task_asks_and_does_nothing_again(app):
    shop = Shop(app, lambda euros: f"charged {euros}")
    first, second = shop.run(), shop.run()
    assert first.status == second.status == "completed" and first.result == second.result == "done"
    assert shop.model.asked == 2 and shop.done == [5] and shop.result() == ["charged 5"]
    assert [*app.get("order-7").steps] == ["model:1", "call:call_1_0", "model:2"]


def test_the_users_agent_and_tools_stay_as_they_are(app):
    shop = Shop(app, lambda euros: "charged")
    before = dict(vars(shop.tool))
    shop.run()
    assert shop.inner.model is shop.model and shop.inner.tools == [shop.tool] and vars(shop.tool) == before
    asyncio.run(Runner.run(shop.inner, "again", run_config=RunConfig(tracing_disabled=True)))
    assert len(app.list()) == 1


def test_a_run_that_failed_goes_on_where_it_was(app):
    shop = Shop(app, lambda euros: "charged", [("charge", {"euros": 5})], ConnectionError("away"), "done")
    assert shop.run().status == "failed" and shop.done == [5]
    assert asyncio.run(shop.runner.resume("order-7")).result == "done" and shop.done == [5]


def test_a_declared_tool_that_raises_is_in_doubt_and_its_settled_result_reaches_the_model(app):
    """The SDK makes text of exceptions; they are seen before that."""
    shop = Shop(app, fail, declare=effect("once"))
    waiting = shop.run()
    assert waiting.status == "waiting" and waiting.waiting.kind == "doubt"
    app.settle("order-7", "call:call_1_0", happened=True, result="charge-7", by="ana")
    assert shop.run().result == "done" and shop.done == [5] and shop.result() == ["charge-7"]


def test_an_undeclared_tool_that_raises_is_told_to_the_model_as_the_sdk_tells_it(app):
    shop = Shop(app, fail)
    assert shop.run().result == "done" and shop.done == [5]
    (told,) = shop.result()
    assert "error" in told.lower()


def test_a_tool_whose_errors_are_not_handled_fails_the_task(app):
    shop = Shop(app, fail, tool_options={"failure_error_function": None})
    failed = shop.run()
    assert failed.status == "failed" and "the answer was lost" in failed.failure.message


def test_effects_can_be_given_by_name(app):
    shop = Shop(app, fail, effects={"charge": "once"})
    assert shop.run().waiting.kind == "doubt"


def test_a_tool_that_needs_an_approval_waits_for_a_person_and_runs_once(app):
    shop = Shop(app, lambda euros: "charged", tool_options={"needs_approval": True})
    waiting = shop.run()
    (item,) = app.inbox("order-7")
    assert waiting.status == "waiting" and shop.done == [] and "charge" in str(item.prompt)
    app.approve("order-7", item.key, by="ana")
    assert shop.run().result == "done" and shop.done == [5]
    assert shop.run().result == "done" and shop.done == [5]


def test_a_refused_tool_is_told_to_the_model(app):
    shop = Shop(app, lambda euros: "charged", tool_options={"needs_approval": True})
    shop.run()
    (item,) = app.inbox("order-7")
    app.reject("order-7", item.key, by="ana")
    assert shop.run().result == "done" and shop.done == [] and len(shop.result()) == 1


def test_a_risky_call_waits_for_an_approval(app):
    shop = Shop(app, lambda euros: "charged", declare=effect("once", risk="money"), required_for_risk_levels=["money"])
    shop.run()
    (item,) = app.inbox("order-7")
    assert item.kind == "approval" and shop.done == []
    app.approve("order-7", item.key, bound=item.bound, by="ana")
    assert shop.run().result == "done" and shop.done == [5]


def test_a_unique_key_makes_one_call_of_several_tasks(app):
    shop = Shop(app, lambda euros: f"charged {len(shop.done)}", declare=effect("once", unique="order-{euros}"))
    shop.run()
    shop.model.asked = 0
    shop.run(id="order-8")
    assert shop.done == [5] and shop.result() == ["charged 1"]


@pytest.mark.parametrize("wrap", [lambda agent: agent, handoff])
def test_an_agent_that_is_handed_over_to_works_in_the_same_task(app, wrap):
    done = []

    @effect("once")
    @function_tool
    def refund(euros: int) -> str:
        """Refund."""
        done.append(euros)
        return "refunded"

    billing = Agent(name="billing", model=Replies([("refund", {"euros": 5})], "done"), tools=[refund])
    triage = Agent(name="triage", model=Replies([("transfer_to_billing", {})], ids="hand"), handoffs=[wrap(billing)])
    for _ in range(2):
        assert DurableRunner(triage, app).run_sync("refund me", id="t-1").result == "done"
    assert done == [5] and triage.model.asked == 1 and billing.model.asked == 2
    assert len(app.get("t-1").steps) == 4 and triage.handoffs != []


def test_usage_feeds_budgets(app):
    shop = Shop(app, lambda euros: "charged")
    shop.run()
    usage = app.get("order-7").budget.usage
    assert (usage.input_tokens, usage.output_tokens) == (20, 10)
    shop.model.asked = 0
    poor = app.run(shop.runner.agent, {"input": "one book"}, id="poor", budget=Budget(tokens=15))
    assert poor.status == "failed"


def test_a_session_is_read_and_added_to_once(app):
    session = HoldfastSession(app, "ana's session")
    shop = Shop(app, lambda euros: "charged")
    shop.run(session=session)
    items = asyncio.run(session.get_items())
    assert [one.get("type", one.get("role")) for one in items] == [
        "user",
        "function_call",
        "function_call_output",
        "message",
    ]
    shop.run(session=session)
    assert asyncio.run(session.get_items()) == items
    shop.model.asked = 1
    shop.run(id="order-8", session=session)
    assert shop.model.seen[:4] == items and len(asyncio.run(session.get_items())) == 6


def test_the_context_reaches_tools_and_is_never_recorded(app):
    seen = []

    @function_tool
    def look(wrapper: RunContextWrapper[str]) -> str:
        """Look."""
        seen.append(wrapper.context)
        return "seen"

    looker = Agent(name="looker", model=Replies([("look", {})], "done"), tools=[look])
    DurableRunner(looker, app, context="secret-db").run_sync("look", id="l-1")
    assert seen == ["secret-db"]
    assert "secret-db" not in "".join(event.to_json() for event in app.events("l-1"))


def test_bad_input_is_refused_by_name(app, texts):
    for wrong in (
        lambda: DurableRunner(Agent(name="x"), "store.db"),
        lambda: DurableRunner("agent", app),
        lambda: effect("once")(lambda euros: 5),
        lambda: Shop(app, fail, declare=effect("twice")),
        lambda: Shop(app, fail, effects={"charge": "twice"}),
        lambda: HoldfastSession("store.db", "ana"),
    ):
        with texts.raises(InvalidValue):
            wrong()


def test_an_agent_as_a_tool_is_one_call(app):
    helper = Agent(name="helper", model=Replies("helped", ids="help"))
    tool = helper.as_tool("ask_helper", "Ask the helper.")
    boss = Agent(name="boss", model=Replies([("ask_helper", {"input": "help"})], "done"), tools=[tool])
    for _ in range(2):
        assert DurableRunner(boss, app).run_sync("go", id="b-1").result == "done"
    assert helper.model.asked == 1 and [*app.get("b-1").steps] == ["model:1", "call:call_1_0", "model:2"]

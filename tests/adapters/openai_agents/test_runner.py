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
    set_trace_processors,
    set_tracing_disabled,
)
from agents.mcp import MCPServer
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tracing import TracingProcessor
from mcp.types import CallToolResult, TextContent, Tool as McpTool

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

    async def stream_response(self, *args, **kwargs):
        whole = await self.get_response(*args, **kwargs)
        async for event in ScriptedModel([whole]).stream_response(*args, **kwargs):
            yield event


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

    refund = refund_into(done)
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
        lambda: HoldfastSession(app, 7),
        lambda: asyncio.run(HoldfastSession(app, "ana").get_items("3")),
        lambda: DurableRunner(Agent(name="x"), app, max_turns=0),
        lambda: DurableRunner(Agent(name="x"), app, max_turns="3"),
        lambda: DurableRunner(Agent(name="x"), app, effects="once"),
        lambda: DurableRunner(Agent(name="x"), app, run_config={"tracing_disabled": True}),
        lambda: DurableRunner(Agent(name="x"), app).run_sync(7, id="x-1"),
        lambda: DurableRunner(Agent(name="x"), app).run_sync("x", id="x-1", session="ana"),
        lambda: DurableRunner(Agent(name="x"), app).run_streamed(None, id="x-1"),
    ):
        with texts.raises(InvalidValue):
            wrong()


# Agents inside of agents


def refund_into(done):
    """A tool that refunds at most once, and notes each time in a list."""

    @effect("once")
    @function_tool
    def refund(euros: int) -> str:
        """Refund."""
        done.append(euros)
        return "refunded"

    return refund


def helper_of(*replies, name="helper", tools=(), ids="help"):
    return Agent(name=name, model=Replies(*replies, ids=ids), tools=list(tools))


def test_what_an_agent_that_is_a_tool_does_is_recorded_in_the_same_task(app):
    done = []

    refund = refund_into(done)
    helper = helper_of([("refund", {"euros": 5})], ConnectionError("away"), "helped", tools=[refund])
    tool = helper.as_tool("ask_helper", "Ask the helper.", failure_error_function=None)
    boss = Agent(name="boss", model=Replies([("ask_helper", {"input": "help"})], "done"), tools=[tool])
    runner = DurableRunner(boss, app)
    assert runner.run_sync("go", id="b-1").status == "failed"
    assert asyncio.run(runner.resume("b-1")).result == "done"
    assert runner.run_sync("go", id="b-1").result == "done"
    assert done == [5] and helper.model.asked == 3 and boss.model.asked == 2
    within = "call_1_0."
    steps = ["model:1", f"model:{within}1", f"call:{within}help_1_0", f"model:{within}2", "model:2"]
    assert [*app.get("b-1").steps] == steps and boss.tools == [tool] and helper.tools == [refund]


def test_two_agents_that_are_tools_at_the_same_time_get_their_own_replies(app):
    """Which of them asks its model first differs from life to life; the keys do not."""
    order = ["a", "b"]

    class Slow(Replies):
        async def get_response(self, *args, **kwargs):
            await asyncio.sleep(0.02 * order.index(self.ids))
            return await super().get_response(*args, **kwargs)

    tools = [
        Agent(name=name, model=Slow(f"from {name}", ids=name)).as_tool(f"ask_{name}", "Ask.") for name in ("a", "b")
    ]
    calls = [("ask_a", {"input": "x"}), ("ask_b", {"input": "x"})]
    boss = Agent(name="boss", model=Replies(calls, ConnectionError("away"), "done"), tools=tools)
    runner = DurableRunner(boss, app)
    assert runner.run_sync("go", id="b-1").status == "failed"
    order.reverse()
    assert asyncio.run(runner.resume("b-1")).result == "done"
    outputs = [one["output"] for one in boss.model.seen if "output" in one]
    assert outputs == ["from a", "from b"] and len(app.get("b-1").steps) == 4


def test_an_approval_inside_of_an_agent_that_is_a_tool_is_asked_for_and_its_call_is_made_once(app):
    done = []

    @function_tool(needs_approval=True)
    def refund(euros: int) -> str:
        """Refund."""
        done.append(euros)
        return "refunded"

    helper = helper_of([("refund", {"euros": 5})], "helped", tools=[refund])
    tool = helper.as_tool("ask_helper", "Ask the helper.")
    boss = Agent(name="boss", model=Replies([("ask_helper", {"input": "help"})], "done"), tools=[tool])
    assert DurableRunner(boss, app).run_sync("go", id="b-1").status == "waiting"
    (item,) = app.inbox("b-1")
    app.approve("b-1", item.key, by="ana")
    for _ in range(2):
        assert DurableRunner(boss, app).run_sync("go", id="b-1").result == "done" and done == [5]
    assert helper.model.asked == 2 and boss.model.asked == 2


def test_agents_that_are_tools_of_each_other_are_copied_once(app):
    a, b = helper_of("a", name="a"), helper_of("b", name="b")
    a.tools, b.tools = [b.as_tool("ask_b", "Ask.")], [a.as_tool("ask_a", "Ask.")]
    assert DurableRunner(a, app).run_sync("go", id="c-1").result == "a"


def test_a_handoff_survives_a_failure_after_it(app):
    done = []

    refund = refund_into(done)
    billing = helper_of([("refund", {"euros": 5})], ConnectionError("away"), "done", name="billing", tools=[refund])
    triage = Agent(name="triage", model=Replies([("transfer_to_billing", {})], ids="hand"), handoffs=[billing])
    runner = DurableRunner(triage, app)
    assert runner.run_sync("refund me", id="t-1").status == "failed"
    assert asyncio.run(runner.resume("t-1")).result == "done"
    assert done == [5] and triage.model.asked == 1 and billing.model.asked == 3


class Server(MCPServer):
    """An MCP server with one tool, which does what a test says."""

    def __init__(self, act):
        super().__init__()
        self.act, self.done = act, []

    @property
    def name(self):
        return "bank"

    async def connect(self):
        pass

    async def cleanup(self):
        pass

    async def list_tools(self, run_context=None, agent=None):
        return [McpTool(name="refund", description="Refund.", inputSchema={"type": "object", "properties": {}})]

    async def call_tool(self, tool_name, arguments, meta=None):
        self.done.append(arguments)
        return self.act()

    async def list_prompts(self):
        raise NotImplementedError

    async def get_prompt(self, name, arguments=None):
        raise NotImplementedError


def test_tools_of_mcp_servers_are_calls_too(app):
    server = Server(lambda: CallToolResult(content=[TextContent(type="text", text="refunded")]))
    model = Replies([("refund", {})], ConnectionError("away"), "done")
    desk = Agent(name="desk", model=model, mcp_servers=[server])
    runner = DurableRunner(desk, app)
    assert runner.run_sync("go", id="d-1").status == "failed"
    assert asyncio.run(runner.resume("d-1")).result == "done"
    assert server.done == [{}] and "call:call_1_0" in app.get("d-1").steps and "get_mcp_tools" not in vars(desk)


def test_a_tool_of_an_mcp_server_that_raises_is_in_doubt_if_it_is_declared(app):
    def fail():
        raise ConnectionResetError("the answer was lost")

    server = Server(fail)
    desk = Agent(name="desk", model=Replies([("refund", {})], "done"), mcp_servers=[server])
    runner = DurableRunner(desk, app, effects={"refund": "once"})
    assert runner.run_sync("go", id="d-1").waiting.kind == "doubt"
    app.settle("d-1", "call:call_1_0", happened=True, result="refund-7", by="ana")
    assert runner.run_sync("go", id="d-1").result == "done" and len(server.done) == 1


# What the SDK would do by itself


@pytest.mark.parametrize("declare", [effect("once"), lambda tool: tool])
def test_a_tool_that_takes_too_long_is_in_doubt_and_the_model_is_not_told_to_try_again(app, declare):
    done = []

    @declare
    @function_tool(timeout=0.1)
    async def charge(euros: int) -> str:
        """Charge the card."""
        done.append(euros)
        await asyncio.sleep(30)
        return "charged"

    model = Replies([("charge", {"euros": 5})], "done")
    runner = DurableRunner(Agent(name="shop", model=model, tools=[charge]), app)
    assert runner.run_sync("one book", id="order-7").waiting.kind == "doubt" and model.asked == 1
    app.settle("order-7", "call:call_1_0", happened=True, result="charge-7", by="ana")
    assert runner.run_sync("one book", id="order-7").result == "done" and done == [5]


class Traces(TracingProcessor):
    """Keeps the names of traces that are begun."""

    def __init__(self):
        self.names = []

    def on_trace_start(self, trace):
        self.names.append(trace.name)

    def on_trace_end(self, trace):
        pass

    def on_span_start(self, span):
        pass

    def on_span_end(self, span):
        pass

    def shutdown(self):
        pass

    def force_flush(self):
        pass


def test_nothing_is_traced_unless_the_run_config_turns_it_on(app):
    traces = Traces()
    set_trace_processors([traces])
    try:
        Shop(app, lambda euros: "charged").run()
        asyncio.run(read_all(Shop(app, lambda euros: "charged").runner.run_streamed("x", id="streamed")))
        assert traces.names == []
        set_tracing_disabled(False)
        config = RunConfig(tracing_disabled=False, workflow_name="mine")
        Shop(app, lambda euros: "charged", run_config=config).run(id="traced")
        assert traces.names == ["mine"]
    finally:
        set_trace_processors([])


async def read_all(stream):
    async for _ in stream.stream_events():
        pass


def test_a_tool_that_runs_an_agent_has_no_effect_of_its_own(app, texts):
    tool = helper_of("helped").as_tool("ask_helper", "Ask.")
    for wrong in (
        lambda: DurableRunner(Agent(name="boss", tools=[effect("once")(tool)]), app),
        lambda: DurableRunner(Agent(name="boss", tools=[tool]), app, effects={"ask_helper": "once"}),
    ):
        with texts.raises(InvalidValue):
            wrong()

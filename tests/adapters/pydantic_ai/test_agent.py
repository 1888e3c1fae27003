"""Pydantic AI agents as tasks: what is recorded, what comes back, and what people decide."""

import asyncio
from dataclasses import dataclass

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RequestUsage

from holdfast import AsyncTask, Budget, InvalidValue, agent
from holdfast.adapters.pydantic_ai import HoldfastAgent, HoldfastDurability, durable

STORES = ("memory", "sqlite")


class Shop:
    """A Pydantic AI agent around one tool, `charge`, which does what a test says."""

    def __init__(self, app, act, *, replies=None, metadata=None, capable=True, **options):
        self.app, self.done, self.asked, self.seen = app, [], 0, []
        shop = self

        async def charge(ctx: RunContext[str], euros: int) -> str:
            """Charge the card."""
            shop.done.append(euros)
            return act(euros) if not asyncio.iscoroutinefunction(act) else await act(euros)

        def reply(messages, info):
            shop.asked += 1
            turn = sum(isinstance(one, ModelResponse) for one in messages)
            shop.seen = [part for one in messages for part in one.parts]
            said = (replies or ([("charge", {"euros": 5})], "done"))[turn]
            parts = (
                [ToolCallPart(n, a, tool_call_id=f"call_{turn}_{i}") for i, (n, a) in enumerate(said)]
                if isinstance(said, list)
                else [TextPart(said)]
            )
            return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=10, output_tokens=5))

        tools = FunctionToolset(id="tools")
        tools.add_function(charge, metadata=metadata)
        more = {"capabilities": [HoldfastDurability()]} if capable else {}
        self.model = reply
        self.inner = Agent(FunctionModel(self.reply), name="shop", deps_type=str, toolsets=[tools], **more)
        self.agent = HoldfastAgent(self.inner, app, deps="deps", **options)

    def reply(self, messages, info):
        return self.model(messages, info)

    def run(self, **more):
        return self.agent.run_sync("one book", id="order-7", **more)

    def result(self):
        return [part.content for part in self.seen if isinstance(part, ToolReturnPart)]


def fail(euros):
    raise ConnectionResetError("the answer was lost")


def test_a_finished_task_asks_and_does_nothing_again(app):
    shop = Shop(app, lambda euros: f"charged {euros}")
    first, second = shop.run(), shop.run()
    assert first.status == second.status == "completed" and first.result == second.result == "done"
    assert shop.asked == 2 and shop.done == [5] and shop.result() == ["charged 5"]
    assert [*app.get("order-7").steps] == ["model:1", "call:call_0_0", "model:2"]


def test_a_run_that_failed_goes_on_where_it_was(app):
    shop = Shop(app, lambda euros: "charged")
    real, calls = shop.model, []

    def broken(messages, info):
        calls.append(1)
        if len(calls) == 2:
            raise ConnectionError("the provider is away")
        return real(messages, info)

    shop.model = broken
    first = shop.run()
    assert first.status == "failed" and shop.done == [5]
    second = app.resume("order-7", shop.agent.agent)
    assert second.status == "completed" and shop.done == [5] and len(calls) == 3


def test_the_capability_is_added_to_an_agent_that_has_none_and_the_agent_stays_as_it_is(app):
    shop = Shop(app, lambda euros: "charged", capable=False)
    shop.run()
    assert [*app.get("order-7").steps] == ["model:1", "call:call_0_0", "model:2"]
    assert HoldfastDurability.from_agent(shop.inner) is None


def test_outside_of_a_task_the_capability_does_nothing(app):
    shop = Shop(app, lambda euros: "charged")
    assert asyncio.run(shop.inner.run("one book", deps="x")).output == "done"
    assert app.list() == [] and shop.done == [5]


def test_a_declared_tool_that_raises_is_in_doubt_and_its_settled_result_reaches_the_model(app):
    shop = Shop(app, fail, metadata={"holdfast": {"effect": "once"}})
    waiting = shop.run()
    assert waiting.status == "waiting" and waiting.waiting.kind == "doubt"
    app.settle("order-7", "call:call_0_0", happened=True, result={"charge": 7}, by="ana")
    assert shop.run().result == "done" and shop.done == [5] and shop.result() == [{"charge": 7}]


def test_an_undeclared_tool_that_raises_fails_the_task(app):
    shop = Shop(app, fail)
    failed = shop.run()
    assert failed.status == "failed" and "the answer was lost" in failed.failure.message and shop.done == [5]


@pytest.mark.parametrize("of_toolset", [True, False])
def test_a_tool_that_takes_too_long_is_in_doubt_and_the_model_is_not_asked_to_try_again(app, of_toolset):
    done, tools = [], FunctionToolset(id="tools", timeout=0.1 if of_toolset else None)

    @tools.tool_plain(timeout=None if of_toolset else 0.1, metadata={"holdfast": {"effect": "once"}})
    async def charge(euros: int) -> str:
        """Charge the card."""
        done.append(euros)
        await asyncio.sleep(30)
        return "charged"

    def reply(messages, info):
        first = not any(isinstance(one, ModelResponse) for one in messages)
        return ModelResponse(
            parts=[ToolCallPart("charge", {"euros": 5}, tool_call_id="c") if first else TextPart("done")]
        )

    shop = HoldfastAgent(Agent(FunctionModel(reply), name="shop", toolsets=[tools]), app)
    assert shop.run_sync("one book", id="order-7").waiting.kind == "doubt"
    app.settle("order-7", "call:c", happened=True, result="charge-7", by="ana")
    assert shop.run_sync("one book", id="order-7").result == "done" and done == [5]


def test_asking_the_model_to_try_again_is_a_value_and_not_a_failure(app):
    def act(euros):
        if euros == 5:
            raise ModelRetry("too little")
        return "charged"

    replies = ([("charge", {"euros": 5})], [("charge", {"euros": 6})], "done")
    shop = Shop(app, act, replies=replies, metadata={"holdfast": {"effect": "once"}})
    assert shop.run().result == "done" and shop.done == [5, 6]
    assert shop.run().result == "done" and shop.done == [5, 6]


def test_a_tool_that_needs_an_approval_waits_for_a_person(app):
    def act(euros):
        if not shop.approved:
            raise ApprovalRequired
        return "charged"

    shop = Shop(app, act, metadata={"holdfast": {"effect": "once"}})
    shop.approved = False
    waiting = shop.run()
    (item,) = app.inbox("order-7")
    assert waiting.status == "waiting" and "charge(euros=5)" in str(item.prompt)
    shop.approved = True
    app.approve("order-7", item.key, by="ana")
    assert shop.run().result == "done" and shop.result() == ["charged"]


def test_a_refused_tool_is_told_to_the_model(app):
    def act(euros):
        raise ApprovalRequired

    shop = Shop(app, act)
    shop.run()
    (item,) = app.inbox("order-7")
    app.reject("order-7", item.key, by="ana")
    assert shop.run().result == "done" and "refused" in str(shop.result())


def test_a_deferred_call_waits_for_a_signal(app):
    def act(euros):
        raise CallDeferred

    shop = Shop(app, act)
    assert shop.run().waiting.kind == "signal"
    app.signal("order-7", "deferred:call_0_0", "charged elsewhere")
    assert shop.run().result == "done" and shop.result() == ["charged elsewhere"] and shop.done == [5]


def test_a_risky_call_waits_and_a_refusal_reaches_the_model(app):
    shop = Shop(
        app, lambda euros: "charged", metadata={"holdfast": {"risk": "money"}}, required_for_risk_levels=["money"]
    )
    shop.run()
    (item,) = app.inbox("order-7")
    assert item.kind == "approval" and shop.done == []
    app.reject("order-7", item.key, bound=item.bound, by="ana", why="too much")
    assert shop.run().result == "done" and shop.done == [] and "too much" in str(shop.result())


def test_a_unique_key_makes_one_call_of_several_tasks(app):
    shop = Shop(app, lambda euros: f"charged {len(shop.done)}", metadata={"holdfast": {"unique": "order-{euros}"}})
    shop.run()
    shop.agent.run_sync("again", id="order-8")
    assert shop.done == [5] and shop.result() == ["charged 1"]


def test_a_tool_that_opts_out_runs_inline(app):
    shop = Shop(app, lambda euros: "charged", metadata={"holdfast": False})
    shop.run()
    assert [*app.get("order-7").steps] == ["model:1", "model:2"]


def test_usage_counts_once_and_feeds_budgets(app):
    shop = Shop(app, lambda euros: "charged")
    shop.run()
    usage = app.get("order-7").budget.usage
    assert (usage.input_tokens, usage.output_tokens) == (20, 10)
    poor = app.run(shop.agent.agent, {"prompt": "one book"}, id="poor", budget=Budget(tokens=15))
    assert poor.status == "failed" and "budget" in poor.failure.message.lower()


class Receipt(BaseModel):
    euros: int


def test_a_typed_output_is_the_tasks_result(app):
    def reply(messages, info):
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {"euros": 5}, tool_call_id="out")])

    receipts = Agent(FunctionModel(reply), name="receipts", output_type=Receipt)
    assert HoldfastAgent(receipts, app).run_sync("one", id="r-1").result == {"euros": 5}


@dataclass
class Connection:
    name: str


def test_deps_reach_the_tools_and_are_never_recorded(app):
    seen = []
    tools = FunctionToolset(id="tools")

    @tools.tool
    def look(ctx: RunContext[Connection]) -> str:
        """Look."""
        seen.append(ctx.deps.name)
        return "seen"

    def reply(messages, info):
        first = not any(isinstance(one, ModelResponse) for one in messages)
        return ModelResponse(parts=[ToolCallPart("look", {}, tool_call_id="c") if first else TextPart("done")])

    inner = Agent(FunctionModel(reply), name="looker", deps_type=Connection, toolsets=[tools])
    asyncio.run(HoldfastAgent(inner, app).run("look", id="l-1", deps=Connection("secret-db")))
    assert seen == ["secret-db"]
    assert "secret-db" not in "".join(event.to_json() for event in app.events("l-1"))


def test_an_earlier_conversation_is_part_of_the_input(app):
    shop = Shop(app, lambda euros: "charged")
    history = asyncio.run(shop.inner.run("one book", deps="x")).all_messages()
    done = shop.agent.run_sync("thanks", id="second", message_history=history[:1])
    assert done.status == "completed"
    assert [type(one).__name__ for one in shop.seen][:2] == ["UserPromptPart", "UserPromptPart"]


def test_the_task_api_can_be_used_around_it(app):
    shop = Shop(app, lambda euros: "charged")

    @agent
    async def support(task: AsyncTask, question: str) -> str:
        task.stage("asking")
        with durable(task):
            first = await shop.inner.run(question, deps="x")
        return await task.step(str.upper, first.output)

    assert app.run(support, {"question": "one book"}, id="s-1").result == "DONE"
    assert [*app.get("s-1").steps] == ["model:1", "call:call_0_0", "model:2", "upper#1"]


def test_bad_input_is_refused_by_name(app, texts):
    inner = Agent(FunctionModel(lambda messages, info: None), name="x")
    for wrong in (
        lambda: HoldfastAgent(inner, "store.db"),
        lambda: HoldfastAgent(Agent(FunctionModel(lambda messages, info: None)), app),
        lambda: HoldfastDurability(effects={"charge": "twice"}),
        lambda: durable("task").__enter__(),
        lambda: HoldfastAgent("agent", app),
        lambda: HoldfastAgent(inner, app, effects="once"),
        lambda: HoldfastAgent(inner, app).run_sync("x", id="x-1", message_history=["x"]),
    ):
        with texts.raises(InvalidValue):
            wrong()
    for number, wrong in enumerate(("once", {"effects": "once"})):
        shop = Shop(app, lambda euros: "charged", metadata={"holdfast": wrong})
        texts.check(shop.agent.run_sync("x", id=f"wrong-{number}").failure.message)

"""Streamed runs: their events as they happen, what a replay gives of them, and what is recorded."""

import asyncio

from agents import Agent, ModelBehaviorError, Usage, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from openai.types.responses import ResponseErrorEvent

from holdfast import Chunk, InvalidValue
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, effect

STORES = ("memory", "sqlite", "postgres")
CALL = [function_call("charge", {"euros": 5}, call_id="call_1")]
DONE = [assistant_message("Thank you.")]


class Shop:
    """An agent around one tool, with a model that replies in turn."""

    def __init__(self, app, *replies, act=lambda euros: f"charged {euros}", tool_options=None, **options):
        self.app, self.done = app, []

        @effect("once")
        @function_tool(**(tool_options or {}))
        def charge(euros: int) -> str:
            """Charge the card."""
            self.done.append(euros)
            return act(euros)

        self.model = ScriptedModel(list(replies or (CALL, DONE)))
        self.agent = Agent(name="shop", model=self.model, tools=[charge])
        self.runner = DurableRunner(self.agent, app, **options)

    async def stream(self, id="order-7", **more):
        """All events of a streamed run, and its task."""
        stream = self.runner.run_streamed("one book", id=id, **more)
        events = [event async for event in stream.stream_events()]
        return events, await stream.done()


def kinds(events):
    """The kinds of events, those of the model by their own."""
    return [event.data.type if event.type == "raw_response_event" else getattr(event, "name", "") for event in events]


def deltas(events):
    return [one for one in kinds(events) if one.endswith(".delta")]


def test_events_come_as_the_sdk_gives_them_and_the_result_is_the_tasks(app):
    shop = Shop(app)
    events, done = asyncio.run(shop.stream())
    assert done.status == "completed" and done.result == "Thank you." and shop.done == [5]
    found = kinds(events)
    assert deltas(events) and found.count("response.completed") == 2
    assert [one for one in found if "." not in one] == ["", "tool_called", "tool_output", "message_output_created"]
    assert [*app.get("order-7").steps] == ["model:1", "call:call_1", "model:2"]


def test_a_completed_task_gives_the_last_events_of_its_requests_and_does_nothing(app):
    shop = Shop(app)
    asyncio.run(shop.stream())
    events, done = asyncio.run(shop.stream())
    assert kinds(events) == ["response.completed"] * 2 and done.result == "Thank you."
    assert shop.done == [5] and len(shop.model.calls) == 2
    (call, said) = (event.data.response.output[0] for event in events)
    assert call.call_id == "call_1" and said.content[0].text == "Thank you."


def test_a_run_that_is_resumed_gives_recorded_replies_whole_and_new_ones_as_they_come(app):
    shop = Shop(app, CALL, ConnectionError("away"), DONE)
    _, failed = asyncio.run(shop.stream())
    assert failed.status == "failed" and "away" in failed.failure.message
    app.reopen("order-7", by="ana")
    events, done = asyncio.run(shop.stream())
    assert done.result == "Thank you." and shop.done == [5]
    first = kinds(events).index("response.completed")
    assert not deltas(events[:first])  # recorded: its last event only
    assert deltas(events[first:]) and kinds(events[first:]).count("response.completed") == 2


def test_a_task_that_began_streamed_is_ended_by_a_worker_and_the_other_way_round(app):
    for number, (first, second) in enumerate((("stream", "run"), ("run", "stream"))):
        shop = Shop(app, CALL, ConnectionError("away"), DONE)
        ways = {
            "stream": lambda id, shop=shop: asyncio.run(shop.stream(id))[1],
            "run": lambda id, shop=shop: shop.runner.run_sync("one book", id=id),
        }
        id = f"order-{number}"
        assert ways[first](id).status == "failed"
        app.reopen(id, by="ana")
        assert ways[second](id).result == "Thank you." and shop.done == [5] and len(shop.model.calls) == 3


def test_a_call_in_doubt_ends_the_stream_and_waits(app):
    def fail(euros):
        raise ConnectionResetError("the answer was lost")

    shop = Shop(app, act=fail)
    events, waiting = asyncio.run(shop.stream())
    assert waiting.waiting.kind == "doubt" and kinds(events).count("response.completed") == 1
    app.settle("order-7", "call:call_1", happened=True, result="charge-7", by="ana")
    events, done = asyncio.run(shop.stream())
    assert done.result == "Thank you." and shop.done == [5] and "tool_output" in kinds(events)


def test_an_approval_ends_the_stream_and_the_next_one_has_the_rest(app):
    shop = Shop(app, tool_options={"needs_approval": True})
    _, waiting = asyncio.run(shop.stream())
    (item,) = app.inbox("order-7")
    assert waiting.status == "waiting" and shop.done == []
    app.approve("order-7", item.key, by="ana")
    events, done = asyncio.run(shop.stream())
    assert done.result == "Thank you." and shop.done == [5] and "message_output_created" in kinds(events)


def test_a_reader_that_stops_does_not_stop_the_run(app):
    shop = Shop(app)

    async def read_one():
        stream = shop.runner.run_streamed("one book", id="order-7")
        async for _ in stream.stream_events():
            break
        return await stream.done()

    assert asyncio.run(read_one()).result == "Thank you." and shop.done == [5]


def test_what_is_said_is_held_back_until_it_is_durable(app):
    """The SDK calls tools when it has the last event of a reply. By then the reply must be recorded."""
    shop = Shop(app)
    recorded = []

    async def watch():
        async for event in shop.runner.run_streamed("one book", id="order-7").stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.completed":
                steps = await app.aio.get("order-7")
                recorded.append([key for key, step in steps.steps.items() if step.status == "completed"])

    asyncio.run(watch())
    assert recorded[0][0] == "model:1" and "model:2" in recorded[1]


def test_other_processes_can_watch_the_pieces_of_a_reply(app):
    shop = Shop(app, DONE)

    async def watch():
        app.start(shop.runner.agent, {"input": "one book"}, id="order-7")
        run = asyncio.create_task(shop.stream())
        return [one async for one in app.aio.follow("order-7", chunks=True)], await run

    watched, _ = asyncio.run(watch())
    assert any("delta" in one.data for one in watched if isinstance(one, Chunk))


def test_a_reply_that_ends_with_an_error_fails_the_step(app):
    wrong = ResponseErrorEvent(type="error", code="x", message="overloaded", param=None, sequence_number=0)
    shop = Shop(app, ModelStep.stream([wrong]))
    _, failed = asyncio.run(shop.stream())
    assert failed.status == "failed" and "overloaded" in failed.failure.message
    assert failed.failure.cause.type == ModelBehaviorError.__name__
    _, ended = asyncio.run(Shop(app, ModelStep.stream([])).stream(id="order-8"))
    assert ended.status == "failed" and "response.completed" in ended.failure.message


def test_a_session_is_added_to_once(app):
    shop, session = Shop(app), HoldfastSession(app, "ana")
    for _ in range(2):
        asyncio.run(shop.stream(session=session))
    items = asyncio.run(session.get_items())
    assert [one.get("type", one.get("role")) for one in items] == [
        *("user", "function_call", "function_call_output", "message")
    ]


def test_usage_of_a_streamed_reply_counts(app):
    shop = Shop(app, ModelStep(DONE, usage=Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)))
    asyncio.run(shop.stream())
    usage = app.get("order-7").budget.usage
    assert (usage.input_tokens, usage.output_tokens) == (10, 5)


def test_an_agent_that_takes_over_is_named_as_the_user_knows_it(app):
    billing = Agent(name="billing", model=ScriptedModel([DONE]))
    triage = Agent(
        name="triage",
        model=ScriptedModel([[function_call("transfer_to_billing", {}, call_id="hand_1")]]),
        handoffs=[billing],
    )

    async def agents():
        stream = DurableRunner(triage, app).run_streamed("bill me", id="t-1")
        return [one.new_agent async for one in stream.stream_events() if one.type == "agent_updated_stream_event"]

    assert asyncio.run(agents()) == [triage, billing]


def test_events_are_read_once(app, texts):
    async def twice():
        stream = Shop(app).runner.run_streamed("one book", id="order-7")
        for _ in range(2):
            async for _ in stream.stream_events():
                pass

    with texts.raises(InvalidValue):
        asyncio.run(twice())

"""once_calls: a tool call is made once, whatever makes its node run again; people decide through interrupts."""

import asyncio
import time
from typing import Annotated

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import StructuredTool, ToolException, tool
from langgraph.prebuilt import InjectedState
from langgraph.types import Command, interrupt

from holdfast import InvalidValue, StepChanged, StepFailed, StoreBusy
from holdfast.adapters.langgraph import HoldfastSaver, once_calls
from tests.adapters.langgraph.shop import agent_of, graph_of, lines

STORES = ("memory", "sqlite")
CLOCK = None  # the real one: questions are told apart by when they came up
AT = {"configurable": {"thread_id": "order-7"}}
ASK = {"messages": [("user", "one book")]}


class Replies:
    """A model that gives these replies in turn: lists of tool calls, or a text."""

    def __init__(self, *replies):
        self._replies = replies

    def invoke(self, messages):
        reply = self._replies[sum(isinstance(one, AIMessage) for one in messages)]
        if isinstance(reply, str):
            return AIMessage(reply)
        turn = sum(isinstance(one, AIMessage) for one in messages)
        calls = [{"name": name, "args": args, "id": f"call_{turn}_{n}"} for n, (name, args) in enumerate(reply)]
        return AIMessage("", tool_calls=calls)


class Shop:
    """A graph around one tool, `charge`, which does what a test says."""

    def __init__(self, app, act, *replies, options=None, **declared):
        self.app, self.done = app, []
        shop = self

        @tool
        def charge(euros: int) -> str:
            """Charge the card."""
            shop.done.append(euros)
            return act(euros)

        self.tool = charge
        self.calls = once_calls(app, **declared)
        replies = replies or ([("charge", {"euros": 5})], "done")
        wrapped = {"wrap_tool_call": self.calls, "awrap_tool_call": self.calls.awrap_tool_call}
        self.graph = graph_of(None, app, [charge], Replies(*replies), **wrapped, **(options or {}))

    def invoke(self, given=ASK, **more):
        return self.graph.invoke(given, AT, **more)

    def asked(self, state):
        return state["__interrupt__"][0].value


def last(state):
    return [one for one in state["messages"] if isinstance(one, ToolMessage)][-1]


def fail(euros):
    raise ConnectionResetError("the answer was lost")


def test_a_call_is_made_once_when_its_node_runs_again(app):
    shop = Shop(app, lambda euros: f"charged {euros}")
    shop.invoke()
    before = next(one for one in shop.graph.get_state_history(AT) if one.next == ("tools",))
    again = shop.graph.invoke(None, before.config)
    assert shop.done == [5] and last(again).content == "charged 5"
    (task,) = app.list()
    assert task.id == "langgraph:order-7:call_0_0" and app.get(task.id).status == "completed"


def test_a_message_comes_back_from_the_log_as_it_was_the_first_time(app):
    first = Shop(app, lambda euros: f"charged {euros}")
    message = last(first.invoke())
    second = Shop(app, lambda euros: "other")
    before = next(one for one in first.graph.get_state_history(AT) if one.next == ("tools",))
    again = last(second.graph.invoke(None, before.config))
    assert second.done == []
    assert again.model_dump(exclude={"id"}) == message.model_dump(exclude={"id"})


def test_a_call_in_doubt_interrupts_the_graph_and_is_settled_by_resuming_it(app):
    shop = Shop(app, fail, effects={"charge": "once"})
    asked = shop.asked(shop.invoke())
    assert asked["kind"] == "doubt" and asked["tool"] == "charge" and asked["arguments"] == {"euros": 5}
    state = shop.invoke(Command(resume={**asked, "happened": True, "result": "charge-7", "by": "ana"}))
    assert last(state).content == "charge-7" and state["messages"][-1].content == "done" and shop.done == [5]


def test_a_call_that_was_settled_elsewhere_goes_on_without_an_answer(app):
    shop = Shop(app, fail, effects={"charge": "once"})
    shop.invoke()
    app.settle("langgraph:order-7:call_0_0", "charge#1", happened=True, result={"id": 7}, by="ana")
    assert last(shop.invoke(None)).content == '{"id":7}' and shop.done == [5]


def test_a_call_that_did_not_happen_fails_with_what_it_raised_and_can_be_made_again(app):
    shop = Shop(app, lambda euros: fail(euros) if len(shop.done) == 1 else "charged", effects={"charge": "once"})
    asked = shop.asked(shop.invoke())
    with pytest.raises(StepFailed, match="the answer was lost"):
        shop.invoke(Command(resume={**asked, "happened": False, "by": "ana"}))
    assert last(shop.invoke(None)).content == "charged" and shop.done == [5, 5]


def test_an_answer_to_an_earlier_question_is_not_taken_for_one_to_a_later_question(app):
    """The second attempt is in doubt too. What was said of the first must not decide it."""
    shop = Shop(app, fail, effects={"charge": "once"})
    first = shop.asked(shop.invoke())
    with pytest.raises(StepFailed):
        shop.invoke(Command(resume={**first, "happened": False, "by": "ana"}))
    second = shop.asked(shop.invoke(None))
    assert second["ask"] != first["ask"] and shop.done == [5, 5]
    third = shop.asked(shop.invoke(Command(resume={**first, "happened": False, "by": "ana"})))
    assert third["ask"] == second["ask"] and shop.done == [5, 5]
    assert last(shop.invoke(Command(resume={**second, "happened": True, "result": "ok"}))).content == "ok"


@pytest.mark.parametrize("given", ["yes", {"happened": True}, {"happened": "perhaps", "ask": ...}, {"ask": ...}])
def test_an_answer_that_does_not_fit_is_asked_for_again(app, given):
    shop = Shop(app, fail, effects={"charge": "once"})
    asked = shop.asked(shop.invoke())
    answer = {**given, "ask": asked["ask"]} if "ask" in given else given
    assert shop.asked(shop.invoke(Command(resume=answer)))["ask"] == asked["ask"]
    assert shop.done == [5]


def test_a_risky_call_waits_for_an_approval(app):
    shop = Shop(app, lambda euros: "charged", effects={"charge": "once"}, risks={"charge": "money"})
    asked = shop.asked(shop.invoke())
    assert asked["kind"] == "approval" and asked["risk"] == "money" and shop.done == []
    state = shop.invoke(Command(resume={**asked, "approved": True, "by": "ana"}))
    assert last(state).content == "charged" and shop.done == [5]
    assert [row.by for row in app.audit() if row.by] == ["ana"] or "ana" in str([*app.audit()])


def test_a_rejected_call_is_never_made(app):
    shop = Shop(app, lambda euros: "charged", risks={"charge": "money"}, options={"handle_tool_errors": True})
    asked = shop.asked(shop.invoke())
    state = shop.invoke(Command(resume={**asked, "approved": False, "by": "ana", "why": "too much"}))
    assert last(state).status == "error" and "too much" in last(state).content and shop.done == []


def test_two_calls_in_doubt_in_one_node_are_asked_about_one_after_the_other(app):
    shop = Shop(app, fail, [("charge", {"euros": 5}), ("charge", {"euros": 6})], "done", effects={"charge": "once"})
    state, asked = shop.invoke(), []
    while "__interrupt__" in state:
        question = shop.asked(state)
        asked.append(question["arguments"]["euros"])
        state = shop.invoke(Command(resume={**question, "happened": True, "result": f"r{asked[-1]}"}))
    results = [one.content for one in state["messages"] if isinstance(one, ToolMessage)]
    assert sorted(asked) == [5, 6] and results == ["r5", "r6"] and sorted(shop.done) == [5, 6]


def test_an_undeclared_tool_that_raises_fails_as_it_would_without_us(app):
    shop = Shop(app, fail)
    with pytest.raises(ConnectionResetError):
        shop.invoke()
    shop = Shop(app, lambda euros: 1 / 0, [("charge", {"euros": 6})], "done", options={"handle_tool_errors": True})
    state = shop.graph.invoke(ASK, {"configurable": {"thread_id": "order-8"}})
    assert last(state).status == "error" and "division by zero" in last(state).content


def test_errors_that_langgraph_makes_messages_of_are_seen_first(app):
    """With handle_tool_errors, ToolNode hides exceptions. A declared tool is in doubt all the same."""
    shop = Shop(app, fail, effects={"charge": "once"}, options={"handle_tool_errors": True})
    assert shop.asked(shop.invoke())["kind"] == "doubt"


def test_an_error_that_the_tool_itself_would_make_text_of_is_seen_first(app):
    def charge(euros: int) -> str:
        """Charge."""
        raise ToolException("card declined")

    made = StructuredTool.from_function(charge, handle_tool_error=True)
    calls = once_calls(app, effects={"charge": "once"})
    graph = graph_of(None, app, [made], Replies([("charge", {"euros": 5})], "done"), wrap_tool_call=calls)
    assert graph.invoke(ASK, AT)["__interrupt__"][0].value["kind"] == "doubt"
    assert made.handle_tool_error is True and "_run" not in vars(made)


def test_arguments_that_do_not_fit_are_no_doubt(app):
    shop = Shop(app, lambda euros: "charged", [("charge", {"euros": "many"})], "done", effects={"charge": "once"})
    state = shop.invoke()
    assert last(state).status == "error" and "euros" in last(state).content and shop.done == []


def test_a_tool_that_interrupts_the_graph_itself_is_no_doubt(app):
    def act(euros):
        return f"charged {euros} for {interrupt('which card?')}"

    shop = Shop(app, act, effects={"charge": "once"})
    assert shop.invoke()["__interrupt__"][0].value == "which card?"
    assert last(shop.invoke(Command(resume="visa"))).content == "charged 5 for visa"
    before = next(one for one in shop.graph.get_state_history(AT) if one.next == ("tools",))
    shop.graph.invoke(None, before.config)
    assert shop.done == [5, 5]  # LangGraph's way: once until the interrupt, once with the answer, and never again


def test_a_tool_may_give_a_command_and_see_the_state(app):
    @tool
    def note(text: str, state: Annotated[dict, InjectedState]) -> Command:
        """Note."""
        message = ToolMessage(f"{text} after {len(state['messages'])}", tool_call_id="call_0_0")
        return Command(update={"messages": [message]})

    calls = once_calls(app)
    graph = graph_of(None, app, [note], Replies([("note", {"text": "x"})], "done"), wrap_tool_call=calls)
    state = graph.invoke(ASK, AT)
    before = next(one for one in graph.get_state_history(AT) if one.next == ("tools",))
    assert last(state).content == "x after 2" == last(graph.invoke(None, before.config)).content


def test_a_unique_key_makes_one_call_of_several_threads(app):
    shop = Shop(app, lambda euros: f"charged {len(shop.done)}", unique={"charge": "order-{euros}"})
    assert last(shop.invoke()).content == "charged 1"
    other = shop.graph.invoke(ASK, {"configurable": {"thread_id": "another"}})
    assert last(other).content == "charged 1" and shop.done == [5]


def test_a_call_whose_unique_key_is_in_doubt_elsewhere_waits_for_that_one(app, texts):
    shop = Shop(app, fail, effects={"charge": "once"}, unique={"charge": "order-{euros}"})
    asked = shop.asked(shop.invoke())
    other = {"configurable": {"thread_id": "another"}}
    with texts.raises(StoreBusy):
        shop.graph.invoke(ASK, other)
    shop.invoke(Command(resume={**asked, "happened": True, "result": "charge-7"}))
    assert last(shop.graph.invoke(None, other)).content == "charge-7" and shop.done == [5]


def test_many_async_calls_at_once_do_not_wait_for_each_other_for_ever(app):
    """Each waits for its tool, which needs a thread of the event loop's executor, of which there are few."""
    many = [("charge", {"euros": n}) for n in range(40)]
    shop = Shop(app, lambda euros: f"charged {euros}", many, "done")
    state = asyncio.run(asyncio.wait_for(shop.graph.ainvoke(ASK, AT), 60))
    assert sorted(shop.done) == [*range(40)] and state["messages"][-1].content == "done"


def test_a_tool_is_not_called_before_the_models_reply_is_durable(app):
    """LangGraph saves checkpoints in the background. A slow one would let the tool begin first."""

    class Slow(HoldfastSaver):
        def put(self, *given):
            time.sleep(0.05)
            return super().put(*given)

    def act(euros):
        state = HoldfastSaver(app).get_tuple(AT).checkpoint["channel_values"]["messages"]
        return str(bool(state[-1].tool_calls))

    shop = Shop(app, act)
    shop.graph.checkpointer = Slow(app)
    assert last(shop.invoke(durability="async")).content == "True"


def test_a_graph_that_saves_only_at_its_end_is_refused(app, texts):
    shop = Shop(app, lambda euros: "charged")
    with texts.raises(InvalidValue):
        shop.invoke(durability="exit")
    assert shop.done == []


def test_a_call_id_that_is_used_for_another_call_is_refused(app):
    shop = Shop(app, lambda euros: "charged", [("charge", {"euros": 5})], "done")
    shop.invoke()
    HoldfastSaver(app).delete_thread("order-7")  # what its calls did to the world is not undone by that
    other = Shop(app, lambda euros: "charged", [("charge", {"euros": 6})], "done")
    with pytest.raises(StepChanged):
        other.invoke()
    assert other.done == []


def test_create_agent_takes_it_as_middleware_sync_and_async(app, tmp_path):
    for mode in ("sync", "async"):
        log, at = tmp_path / mode, {"configurable": {"thread_id": mode}}
        log.mkdir()
        graph = agent_of(log, app)
        state = graph.invoke(ASK, at) if mode == "sync" else asyncio.run(graph.ainvoke(ASK, at))
        assert state["messages"][-1].content == "done"
        assert [lines(log / name) for name in ("charge", "ship", "mail")] == [["5"], ["book"], ["ana"]]


def test_bad_declarations_are_refused_before_a_graph_runs(app, texts):
    for wrong in (
        {"effects": {"charge": "twice"}},
        {"default": "never"},
        {"effects": {"charge": "read"}, "unique": {"charge": "order-{euros}"}},
        {"risks": {"charge": 7}},
        {"effects": "once"},
        {"risks": ["charge"]},
        {"unique": "order-{order}"},
    ):
        with texts.raises(InvalidValue):
            once_calls(app, **wrong)
    with texts.raises(InvalidValue):
        once_calls("store.db")


def test_a_call_without_a_thread_is_refused(app, texts):
    shop = Shop(app, lambda euros: "charged")
    shop.graph.checkpointer = None
    with texts.raises(InvalidValue):
        shop.graph.invoke(ASK)
    assert shop.done == []

"""HoldfastChatMessageHistory: what comes back, after restarts and repetitions, in chains and in classic memory."""

import asyncio
import inspect

import pytest
from langchain_classic.memory import (
    ConversationBufferMemory,
    ConversationBufferWindowMemory,
    ConversationSummaryBufferMemory,
    ConversationSummaryMemory,
)
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import ConfigurableFieldSpec, RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

import holdfast
from holdfast import InvalidId, InvalidValue, NotSerializable, Retry, agent
from holdfast.adapters.langchain import HoldfastChatMessageHistory
from tests.adapters.killing import trials
from tests.adapters.langchain.chat import chain_of, config_of
from tests.conftest import ALL

STORES = ("memory", "sqlite", "postgres")
pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")
MESSAGES = [
    SystemMessage("be kind"),
    HumanMessage([{"type": "text", "text": "hello ä€"}], id="m-1", additional_kwargs={"from": "ana"}),
    AIMessage("", tool_calls=[{"name": "look", "args": {"at": "it"}, "id": "c1"}], usage_metadata=None),
    ToolMessage("seen", tool_call_id="c1", artifact={"rows": [1, 2]}),
    AIMessage("done", response_metadata={"model": "m"}),
]


@pytest.fixture
def history(app):
    return HoldfastChatMessageHistory(app, "ana")


def texts_of(history):
    return [str(one.content) for one in history.messages]


def counting(messages):
    return AIMessage(f"seen {len(messages)}")


def test_messages_come_back_as_they_were_and_in_order(history):
    assert isinstance(history, BaseChatMessageHistory)
    history.add_messages(MESSAGES[:2])
    history.add_messages(MESSAGES[2:])
    history.add_messages([])
    assert history.messages == MESSAGES
    assert [type(one) for one in history.messages] == [type(one) for one in MESSAGES]


def test_changing_the_list_that_was_read_changes_nothing(history):
    history.add_messages(MESSAGES[:1])
    history.messages.append("more")
    history.messages[0].content = "changed"
    assert history.messages == MESSAGES[:1]


def test_the_async_methods_do_the_same(history):
    async def talk():
        await history.aadd_messages(MESSAGES)
        found = await history.aget_messages()
        await history.aclear()
        return found

    assert asyncio.run(talk()) == MESSAGES and history.messages == []


def test_a_history_that_was_cleared_begins_again(history, app):
    history.add_messages([MESSAGES[1]])
    history.clear()
    history.clear()
    assert history.messages == []
    history.add_messages([MESSAGES[1]])
    assert history.messages == [MESSAGES[1]] and app.verify().ok


def test_sessions_are_apart_and_any_text_is_an_id(app):
    ids = ("a", "a/b", "with space", "ünï!", "messages/a", "x" * 1_000)
    for id in ids:
        HoldfastChatMessageHistory(app, id).add_user_message(HumanMessage(id, id="same id"))
    assert all(texts_of(HoldfastChatMessageHistory(app, id)) == [id] for id in ids)
    HoldfastChatMessageHistory(app, "a").clear()
    assert all(texts_of(HoldfastChatMessageHistory(app, id)) == [id] for id in ids[1:])


def test_a_chain_remembers_what_was_said(app):
    chain = chain_of(app, counting)
    assert chain.invoke("hello", config_of("ana")).content == "seen 1"
    assert chain.invoke("hello", config_of("ana")).content == "seen 3"
    assert asyncio.run(chain.ainvoke("hello", config_of("ana"))).content == "seen 5"
    assert chain.invoke("hello", config_of("ben")).content == "seen 1"
    assert texts_of(HoldfastChatMessageHistory(app, "ana")) == ["hello", "seen 1", "hello", "seen 3", "hello", "seen 5"]


def test_it_is_there_after_a_restart(tmp_path):
    for count in (1, 3, 5):
        with holdfast.open(str(tmp_path / "holdfast.db")) as app:
            assert chain_of(app, counting).invoke("hello", config_of("ana")).content == f"seen {count}"


# Repeated calls


def test_a_message_with_an_id_is_added_once_and_its_answer_too(app, history):
    chain = chain_of(app, counting)
    for _ in range(3):
        chain.invoke([HumanMessage("hello", id="turn-1")], config_of("ana"))
    assert texts_of(history) == ["hello", "seen 1"]
    chain.invoke([HumanMessage("hello", id="turn-2")], config_of("ana"))
    assert texts_of(history) == ["hello", "seen 1", "hello", "seen 3"]


def test_a_call_that_is_named_adds_its_messages_once(app, history):
    def history_of(session_id, call):
        return HoldfastChatMessageHistory(app, session_id, call=call)

    fields = [ConfigurableFieldSpec(id=id, annotation=str) for id in ("session_id", "call")]
    chain = RunnableWithMessageHistory(RunnableLambda(counting), history_of, history_factory_config=fields)
    for call in ("turn-1", "turn-1", "turn-2", "turn-2"):
        chain.invoke("hello", {"configurable": {"session_id": "ana", "call": call}})
    assert texts_of(history) == ["hello", "seen 1", "hello", "seen 3"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_step_that_is_repeated_adds_its_messages_once(app, history, is_async):
    """Two calls in one step are two, however alike, and the same two when the step is repeated."""
    chain, lives = chain_of(app, counting), []

    async def twice():
        for _ in range(2):
            await chain.ainvoke("yes", config_of("ana"))
        return fail_twice()

    def twice_sync():
        for _ in range(2):
            chain.invoke("yes", config_of("ana"))
        return fail_twice()

    def fail_twice():
        lives.append(1)
        if len(lives) < 3:
            raise ConnectionError("away")
        return "done"

    @agent
    async def chat(task):
        return await task.step(twice, name="talk", retry=Retry(2, first=0))

    @agent
    def chat_sync(task):
        return task.step(twice_sync, name="talk", retry=Retry(2, first=0))

    talk = chat if is_async else chat_sync
    assert app.run(talk, id="t").status == "failed"  # after two attempts
    assert app.resume("t", talk).result == "done"
    assert texts_of(history) == ["yes", "seen 1", "yes", "seen 3"] and len(lives) == 3


def test_the_turns_of_a_loop_are_not_taken_for_repetitions(app, history):
    chain = chain_of(app, counting)

    @agent(loop=True)
    def chat(task):
        task.step(lambda: chain.invoke("yes", config_of("ana")).content, name="talk")
        return "done" if task.turn == 3 else None

    assert app.run(chat, id="t").status == "completed" and len(history.messages) == 6


def test_a_process_that_is_killed_leaves_each_pair_once():
    """Six killed at random moments; without a step, what was said is said again."""
    program, count = "tests.adapters.langchain.killed_chat", 30 if ALL else 4
    for one in trials(program, "steps", seed=3, count=count, kills=3):
        assert (one["human"], one["ai"]) == (3, 3), one
    control = trials(program, "control", seed=3, count=count, kills=3)
    assert any(one["human"] > 3 for one in control), control


# Classic memory


def test_classic_memory_keeps_its_pairs_here(tmp_path):
    for number in range(3):
        with holdfast.open(str(tmp_path / "holdfast.db")) as app:
            memory = ConversationBufferMemory(chat_memory=HoldfastChatMessageHistory(app, "ana"))
            memory.save_context({"input": f"question {number}"}, {"output": f"answer {number}"})
            known = memory.load_memory_variables({})["history"]
    assert known.splitlines() == [
        *(
            "Human: question 0",
            "AI: answer 0",
            "Human: question 1",
            "AI: answer 1",
            "Human: question 2",
            "AI: answer 2",
        ),
    ]


def test_window_memory_shows_the_newest_pairs_and_keeps_them_all(app, history):
    memory = ConversationBufferWindowMemory(k=1, chat_memory=history, return_messages=True)
    for number in range(3):
        memory.save_context({"input": f"question {number}"}, {"output": f"answer {number}"})
    shown = ConversationBufferWindowMemory(k=1, chat_memory=history, return_messages=True).load_memory_variables({})
    assert [one.content for one in shown["history"]] == ["question 2", "answer 2"] and len(history.messages) == 6


def test_summary_memory_is_made_again_from_the_messages_after_a_restart(app, history):
    model = FakeListChatModel(responses=["one thing", "two things"])
    memory = ConversationSummaryMemory(llm=model, chat_memory=history)
    for number in range(2):
        memory.save_context({"input": f"question {number}"}, {"output": f"answer {number}"})
    assert memory.load_memory_variables({}) == {"history": "two things"}
    again = ConversationSummaryMemory.from_messages(
        FakeListChatModel(responses=["one thing", "two things"]), HoldfastChatMessageHistory(app, "ana")
    )
    assert again.load_memory_variables({}) == {"history": "two things"}


def test_summary_buffer_memory_summarises_and_loses_no_message(app, history):
    class Counted(FakeListChatModel):
        def get_num_tokens_from_messages(self, messages, tools=None):
            return len(messages)

    memory = ConversationSummaryBufferMemory(
        llm=Counted(responses=["a summary"]), chat_memory=history, max_token_limit=2
    )
    for number in range(2):
        memory.save_context({"input": f"question {number}"}, {"output": f"answer {number}"})
    assert "a summary" in memory.load_memory_variables({})["history"] and len(history.messages) == 4


def test_classic_memory_in_a_step_that_is_repeated_does_not_double_the_pair(app, history):
    memory, lives = ConversationBufferMemory(chat_memory=history), []

    @agent
    def chat(task):
        def talk():
            memory.save_context({"input": "hello"}, {"output": "hello, Ana"})
            lives.append(1)
            if len(lives) == 1:
                raise ConnectionError("away")

        task.step(talk, name="talk", retry=Retry(2, first=0))

    assert app.run(chat, id="t").status == "completed" and len(lives) == 2 and len(history.messages) == 2


# What is refused


class Custom(BaseMessage):
    type: str = "custom"


def test_bad_input_is_refused_by_name_and_adds_nothing(app, history, texts):
    for wrong, error in (
        (lambda: HoldfastChatMessageHistory("holdfast.db", "ana"), InvalidValue),
        (lambda: HoldfastChatMessageHistory(app, ""), InvalidValue),
        (lambda: HoldfastChatMessageHistory(app, 7), InvalidValue),
        (lambda: HoldfastChatMessageHistory(app, "ana", call=""), InvalidValue),
        (lambda: HoldfastChatMessageHistory(app, "ana", call=7), InvalidValue),
        (lambda: HoldfastChatMessageHistory(app, "x" * 2_000), InvalidId),
        (lambda: history.add_messages([HumanMessage("hello"), "hello"]), InvalidValue),
        (lambda: history.add_messages([HumanMessage("hello"), Custom(content="x")]), InvalidValue),
        (lambda: history.add_messages([HumanMessage("x", additional_kwargs={"a": threading_lock()})]), NotSerializable),
    ):
        with texts.raises(error):
            wrong()
    assert history.messages == []


def threading_lock():
    class Lock:
        pass

    return Lock()


def test_langchain_has_deprecated_histories_and_we_hide_nothing_of_it(app):
    from langchain_core._api import LangChainDeprecationWarning

    with pytest.warns(LangChainDeprecationWarning):
        chain_of(app, counting)
    assert "deprecated" in inspect.getdoc(inspect.getmodule(HoldfastChatMessageHistory))

"""adopt: threads of the stock savers, brought into a Holdfast store."""

import operator
import sqlite3
from typing import Annotated, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from holdfast import InvalidValue
from holdfast.adapters.langgraph import HoldfastSaver, adopt
from tests.adapters.langgraph.checkpoints import talk


class State(TypedDict):
    log: Annotated[list, operator.add]


def graph(saver):
    builder = StateGraph(State)
    builder.add_node("add", lambda state: {"log": [interrupt("who?") if len(state["log"]) > 2 else "added"]})
    builder.add_edge(START, "add")
    return builder.compile(checkpointer=saver)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def stock(request, tmp_path):
    if request.param == "memory":
        yield InMemorySaver()
    elif request.param == "sqlite":
        with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.sqlite")) as saver:
            yield saver
    elif request.config.option.quick:
        pytest.skip("--quick starts no server")
    else:
        with PostgresSaver.from_conn_string(request.getfixturevalue("postgres_url")) as saver:
            saver.setup()
            yield saver


def test_every_thread_is_there_and_goes_on(stock, app):
    before, at = graph(stock), [{"configurable": {"thread_id": name}} for name in ("a", "b")]
    for one in at:
        before.invoke({"log": ["one"]}, one)
    assert before.invoke({"log": ["two"]}, at[0])["__interrupt__"][0].value == "who?"
    adopted = adopt(stock, app)
    assert adopted.threads == 2 and adopted.checkpoints == len([*stock.list(None)]) and adopted.known == 0
    after = graph(HoldfastSaver(app))
    for one in at:
        assert [(s.values, s.next, s.config) for s in after.get_state_history(one)] == [
            (s.values, s.next, s.config) for s in before.get_state_history(one)
        ]
    assert after.invoke(Command(resume="ana"), at[0])["log"] == ["one", "added", "two", "ana"]


def test_adopting_twice_brings_in_only_what_is_new(stock, app):
    run, at = graph(stock), {"configurable": {"thread_id": "a"}}
    run.invoke({"log": ["one"]}, at)
    first = adopt(stock, app)
    run.invoke({"log": []}, at)
    second = adopt(stock, app)
    assert second.known == first.checkpoints and second.checkpoints > 0
    assert graph(HoldfastSaver(app)).get_state(at).values == run.get_state(at).values


def test_a_conversation_takes_a_fraction_of_the_room(app, tmp_path, url):
    connection = sqlite3.connect(tmp_path / "checkpoints.sqlite", check_same_thread=False)
    _, messages = talk(SqliteSaver(connection), 100)
    connection.execute("pragma wal_checkpoint(truncate)")
    adopt(SqliteSaver(connection), app)
    connection.close()
    (size,) = {(tmp_path / "checkpoints.sqlite").stat().st_size}
    found = HoldfastSaver(app).get_tuple({"configurable": {"thread_id": "t", "checkpoint_ns": ""}})
    assert found.checkpoint["channel_values"]["messages"] == messages
    assert app.stats().bytes < size / 10


def test_what_is_not_a_saver_is_refused(app, texts):
    with texts.raises(InvalidValue):
        adopt("checkpoints.sqlite", app)

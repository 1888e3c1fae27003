"""What the conformance suite does not ask: sync methods, order, forks, growth, other processes, and bad input."""

import asyncio
import operator
import threading
from dataclasses import dataclass
from typing import Annotated, TypedDict

import pytest
from langchain_core.messages import HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

import holdfast
from holdfast import InvalidId, InvalidValue, NotSerializable
from holdfast.adapters.langgraph import HoldfastSaver
from tests.adapters.langgraph.checkpoints import checkpoint, config, put, talk, turn

STORES = ("memory", "sqlite", "postgres")


@pytest.fixture
def saver(app):
    return HoldfastSaver(app)


def ids(found):
    return [one.config["configurable"]["checkpoint_id"] for one in found]


def test_values_come_back_as_they_were_put(saver):
    values = {"text": "ä\u20ac", "none": None, "bytes": b"\x00\xff", "list": [1, "two", None, b"3", [4]], "empty": []}
    at = put(saver, {**values, "large": "x" * 100_000, "larges": ["y" * 9_000, "z"], "messages": turn(1)})
    found = saver.get_tuple(at)
    assert {name: found.checkpoint["channel_values"][name] for name in values} == values
    assert found.checkpoint["channel_values"]["large"] == "x" * 100_000
    assert found.checkpoint["channel_values"]["larges"] == ["y" * 9_000, "z"]
    assert found.checkpoint["channel_values"]["messages"] == turn(1)


def test_a_store_that_is_opened_again_has_every_checkpoint(tmp_path):
    path = str(tmp_path / "store.db")
    with holdfast.open(path) as app:
        at, messages = talk(HoldfastSaver(app), 5)
        HoldfastSaver(app).put_writes(at, [("messages", turn(9))], "task-1")
    with holdfast.open(path) as app:
        found = [*HoldfastSaver(app).list(config())]
        assert len(found) == 5 and found[0].checkpoint["channel_values"]["messages"] == messages
        assert [len(one.checkpoint["channel_values"]["messages"]) for one in found] == [10, 8, 6, 4, 2]
        assert found[0].pending_writes == [("task-1", "messages", turn(9))]
        assert app.verify().ok


def test_lists_that_shrink_change_in_the_middle_and_fork_are_kept_exactly(saver, app):
    said = []
    forks = [[*turn(1)], [*turn(1), *turn(2)], [turn(1)[0], *turn(3)], [], turn(4), [*turn(4), *turn(1)], [turn(1)[1]]]
    first = None
    for messages in forks:
        at = put(saver, {"messages": messages, "other": "same"}, after=first)
        first = first or at
        said.append((at, messages))
    for at, messages in said:
        assert saver.get_tuple(at).checkpoint["channel_values"]["messages"] == messages
    assert [one.checkpoint["channel_values"]["messages"] for one in HoldfastSaver(app).list(config())] == [
        messages for _, messages in reversed(said)
    ]


def test_a_message_that_is_changed_in_place_is_stored_as_it_is_then(saver):
    message = HumanMessage("one", id="m")
    first = put(saver, {"messages": [message]})
    message.content = "two"
    second = put(saver, {"messages": [message]}, after=first)
    assert saver.get_tuple(first).checkpoint["channel_values"]["messages"][0].content == "one"
    assert saver.get_tuple(second).checkpoint["channel_values"]["messages"][0].content == "two"


def test_two_forks_with_the_same_version_number_keep_their_own_values(saver):
    """Savers of others number versions 1, 2, 3: two forks then have the same number for two values."""
    metadata = {"source": "loop", "step": 1, "parents": {}}
    first = saver.put(config(), checkpoint({"m": ["a"]}, {"m": 1}), metadata, {"m": 1})
    forks = [saver.put(first, checkpoint({"m": ["a", one]}, {"m": 2}), metadata, {"m": 2}) for one in ("left", "right")]
    third = saver.put(forks[0], checkpoint({"m": ["a", "left", "c"]}, {"m": 3}), metadata, {"m": 3})
    values = [saver.get_tuple(at).checkpoint["channel_values"]["m"] for at in (*forks, third)]
    assert values == [["a", "left"], ["a", "right"], ["a", "left", "c"]]


def test_pending_writes_are_in_the_order_of_langgraph(saver):
    at = put(saver, {"x": 1})
    saver.put_writes(at, [("x", 5)], "task-a", "~2")
    saver.put_writes(at, [("x", 1), ("x", 2)], "task-z", "~1")
    saver.put_writes(at, [("x", 9), ("x", 9)], "task-z", "~1")  # the same writes again: the first stay
    saver.put_writes(at, [("__error__", "one")], "task-a", "~2")
    saver.put_writes(at, [("__error__", "two")], "task-a", "~2")  # special ones are replaced
    assert WRITES_IDX_MAP["__error__"] == -1
    assert saver.get_tuple(at).pending_writes == [
        ("task-z", "x", 1),
        ("task-z", "x", 2),
        ("task-a", "__error__", "two"),
        ("task-a", "x", 5),
    ]


def test_all_threads_are_listed_newest_first(saver):
    made = [
        put(saver, {"x": n}, thread=thread, ns=ns)
        for n, (thread, ns) in enumerate((("a", ""), ("b", "sub"), ("a", "sub")))
    ]
    newest_first = [one["configurable"]["checkpoint_id"] for one in reversed(made)]
    assert ids(saver.list(None)) == newest_first
    assert ids(saver.list(None, limit=2)) == newest_first[:2] and ids(saver.list(None, limit=0)) == []
    assert ids(saver.list(None, before=made[2])) == newest_first[1:]
    assert ids(saver.list({"configurable": {"thread_id": "a"}})) == [newest_first[0], newest_first[2]]
    assert ids(saver.list(config("a", "sub"))) == [newest_first[0]]
    assert ids(saver.list(made[1])) == [newest_first[1]]
    assert ids(saver.list(None, filter={"step": 1, "source": "loop"})) == newest_first
    assert ids(saver.list(None, filter={"step": 2})) == []


def test_a_deleted_thread_can_be_used_again(saver):
    talk(saver, 3)
    saver.delete_thread("t")
    assert saver.get_tuple(config()) is None and [*saver.list(config())] == []
    at, messages = talk(saver, 2)
    assert len([*saver.list(config())]) == 2
    assert saver.get_tuple(at).checkpoint["channel_values"]["messages"] == messages


def test_another_process_sees_and_continues_a_thread(url, saver, app):
    """Two apps stand for two processes: they share nothing but the store. Memory has none to share."""
    if url == "memory:":
        pytest.skip("a store in memory has one process")
    at, messages = talk(saver, 3)
    with holdfast.open(url) as other_app:
        other = HoldfastSaver(other_app)
        for number in range(10, 16):
            messages = messages + turn(number)
            at = put(other if number % 2 else saver, {"messages": messages}, after=at)
        for one in (saver, other):
            assert one.get_tuple(config()).checkpoint["channel_values"]["messages"] == messages
        other.prune(["t"])
        messages = messages + turn(20)
        at = put(saver, {"messages": messages}, after=at)  # builds on what the other has just rewritten
        assert other.get_tuple(at).checkpoint["channel_values"]["messages"] == messages
        assert len([*other.list(config())]) == 2
    assert app.verify().ok


def test_a_put_that_races_with_pruning_keeps_its_values(url, app):
    """One app prunes for ever while another puts: no checkpoint that was acknowledged loses a message."""
    if url == "memory:":
        pytest.skip("a store in memory has one process")
    stop = threading.Event()

    def prune_for_ever():
        with holdfast.open(url) as other:
            pruner = HoldfastSaver(other)
            while not stop.is_set():
                pruner.prune(["t"])

    pruning = threading.Thread(target=prune_for_ever)
    pruning.start()
    try:
        saver, messages, at = HoldfastSaver(app), [], None
        for number in range(60):
            messages = messages + turn(number, 20)
            at = put(saver, {"messages": messages}, after=at, changed=["messages"])
            assert saver.get_tuple(config()).checkpoint["channel_values"]["messages"] == messages
    finally:
        stop.set()
        pruning.join()
    assert app.verify().ok


def test_pruning_keeps_the_newest_checkpoint_whole_and_takes_the_rest_from_the_disk(saver, app):
    at, messages = talk(saver, 30)
    saver.put_writes(at, [("messages", turn(99))], "task-1", "~1")
    put(saver, {"x": 1}, ns="sub")
    before = len(app.records("langgraph").read("t"))
    saver.prune(["t", "unknown"])
    (sub, newest) = saver.list({"configurable": {"thread_id": "t"}})
    assert sub.checkpoint["channel_values"] == {"x": 1}
    assert newest.checkpoint["channel_values"]["messages"] == messages
    assert newest.pending_writes == [("task-1", "messages", turn(99))]
    assert before == 32 and len(app.records("langgraph").read("t")) == 4
    assert app.verify().ok


def test_deleting_runs_keeps_what_others_built_on_them(saver):
    at, messages = talk(saver, 3, run_id="first")
    at = put(saver, {"messages": messages + turn(7)}, after=at, run_id="second")
    saver.delete_for_runs(["first"])
    (left,) = saver.list(None)
    assert left.checkpoint["channel_values"]["messages"] == messages + turn(7)


def test_a_threads_history_and_what_is_saved_in_all_can_be_asked_for(saver):
    assert saver.history("unknown") == [] and saver.stats() == (0, 0, 0, 0)
    at, _ = talk(saver, 3)
    saver.put_writes(at, [("messages", turn(9)), ("x", 1)], "task-1")
    put(saver, {"x": 1}, thread="other", ns="sub", source="update", step=7)
    history = saver.history("t")
    assert [one.id for one in history] == ids(saver.list(config()))
    assert [one.writes for one in history] == [2, 0, 0] and history[0].parent == history[1].id
    (other,) = saver.history("other")
    assert (other.checkpoint_ns, other.source, other.step) == ("sub", "update", 7) and other.at.startswith("2026")
    stats = saver.stats()
    assert stats[:3] == (2, 4, 2) and stats.bytes > 3_000
    assert asyncio.run(saver.ahistory("t")) == history and asyncio.run(saver.astats()) == stats


def test_a_copied_thread_is_whole_and_its_own(saver, app):
    at, _ = talk(saver, 4)
    saver.put_writes(at, [("messages", ["large" * 2_000])], "task-1", "~1")
    saver.copy_thread("t", "copy")
    saver.copy_thread("t", "copy")
    saver.delete_thread("t")
    found = [*saver.list(config("copy"))]
    assert [len(one.checkpoint["channel_values"]["messages"]) for one in found] == [8, 6, 4, 2]
    assert found[0].pending_writes == [("task-1", "messages", ["large" * 2_000])]
    assert app.verify().ok


def test_storage_grows_with_what_is_new(tmp_path):
    sizes = []
    for turns in (50, 100):
        with holdfast.open(str(tmp_path / f"{turns}.db")) as app:
            talk(HoldfastSaver(app), turns)
            sizes.append(app.stats().bytes)
    assert sizes[1] < 2.3 * sizes[0]


def test_a_store_full_of_checkpoints_verifies_copies_and_exports(url, saver, app, tmp_path):
    at, messages = talk(saver, 5)
    put(saver, {"large": "x" * 50_000}, thread="other")
    assert app.verify().ok
    app.records("langgraph").export("t", tmp_path / "t.jsonl")
    app.copy_to(str(tmp_path / "copy.db"))
    with holdfast.open(str(tmp_path / "copy.db")) as copy:
        found = HoldfastSaver(copy).get_tuple(at)
        assert found.checkpoint["channel_values"]["messages"] == messages
        assert copy.verify().ok


def test_one_saver_serves_two_event_loops_and_threads_at_once(saver):
    def work(thread):
        async def talk_for_a_while():
            at, messages = None, []
            for number in range(10):
                messages = messages + turn(number, 20)
                version = saver.get_next_version(None, None)
                made = checkpoint({"messages": messages}, {"messages": version})
                at = await saver.aput(at or config(thread), made, {"source": "loop", "step": 1}, {"messages": version})
                await saver.aput_writes(at, [("messages", turn(number))], f"task-{number}")
            found = [one async for one in saver.alist(config(thread))]
            assert found[0] == await saver.aget_tuple(config(thread))
            return [len(one.checkpoint["channel_values"]["messages"]) for one in found]

        results.append(asyncio.run(talk_for_a_while()))

    results = []
    workers = [threading.Thread(target=work, args=(f"t{n % 2}",)) for n in range(2)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert results == [[*range(20, 0, -2)]] * 2


class State(TypedDict):
    total: Annotated[int, operator.add]
    log: Annotated[list, operator.add]


def adder(saver):
    def add(state):
        answer = interrupt("how much?") if state["total"] == 2 else 1
        return {"total": answer, "log": [f"+{answer}"]}

    builder = StateGraph(State)
    builder.add_node("add", add)
    builder.add_edge(START, "add")
    return builder.compile(checkpointer=saver)


def test_a_graph_pauses_resumes_and_travels_in_time(saver):
    graph, at = adder(saver), {"configurable": {"thread_id": "g"}}
    assert graph.invoke({"total": 0, "log": []}, at)["total"] == 1
    assert graph.invoke({"total": 1, "log": []}, at)["__interrupt__"][0].value == "how much?"
    assert graph.invoke(Command(resume=40), at) == {"total": 42, "log": ["+1", "+40"]}
    past = next(one for one in graph.get_state_history(at) if one.values["total"] == 1)
    forked = graph.update_state(past.config, {"total": 100, "log": ["edited"]})
    assert graph.invoke(None, forked)["log"] == ["+1", "edited"]
    assert graph.get_state(past.config).values == {"total": 1, "log": ["+1"]}


def test_delta_channels_survive_pruning(saver):
    class Deltas(TypedDict):
        log: Annotated[
            list, DeltaChannel(lambda state, writes: [*state, *(x for w in writes for x in w)], snapshot_frequency=7)
        ]

    builder = StateGraph(Deltas)
    builder.add_node("add", lambda state: {"log": [f"seen {len(state['log'])}"]})
    builder.add_edge(START, "add")
    graph, at = builder.compile(checkpointer=saver), {"configurable": {"thread_id": "d"}}
    for number in range(20):
        whole = graph.invoke({"log": [number]}, at)["log"]
    before = len([*saver.list(at)])
    saver.prune(["d"])
    assert graph.get_state(at).values["log"] == whole and len(whole) == 40
    assert len([*saver.list(at)]) < before / 2
    assert graph.invoke({"log": ["more"]}, at)["log"] == [*whole, "more", "seen 41"]


@dataclass
class Order:
    number: int


def test_a_value_that_would_come_back_as_a_dict_is_refused(saver, texts):
    at = put(saver, {"x": 1})
    for wrong in (
        lambda: put(saver, {"order": Order(7)}, after=at),
        lambda: put(saver, {"orders": [1, Order(7)]}, after=at),
        lambda: put(saver, {"nested": {"deep": [Order(7)]}}, after=at),
        lambda: saver.put_writes(at, [("order", Order(7))], "task-1"),
    ):
        with texts.raises(NotSerializable):
            wrong()
    assert len([*saver.list(config())]) == 1 and saver.get_tuple(at).pending_writes == []


def test_types_that_are_allowed_come_back(app):
    saver = HoldfastSaver(app, serde=JsonPlusSerializer(allowed_msgpack_modules=[Order]))
    at = put(saver, {"order": Order(7), "orders": [Order(8)]})
    assert saver.get_tuple(at).checkpoint["channel_values"] == {"order": Order(7), "orders": [Order(8)]}


def test_bad_input_is_refused_by_name(saver, texts):
    with texts.raises(InvalidValue):
        HoldfastSaver("store.db")
    with texts.raises(InvalidValue):
        saver.get_tuple({"configurable": {}})
    for not_a_config in (None, "t", {"configurable": None}, {"configurable": {"thread_id": None}}):
        with texts.raises(InvalidValue):
            saver.get_tuple(not_a_config)
    with texts.raises(InvalidValue):
        saver.prune(["t"], strategy="keep_some")
    with texts.raises(InvalidValue):
        saver.prune("t")
    with texts.raises(InvalidValue):
        saver.delete_for_runs("run-1")
    with texts.raises(InvalidId):
        saver.get_tuple(config(""))
    assert saver.get_tuple(config(17)) is None  # LangGraph takes any id that can be text


def test_a_wrong_list_is_refused_before_the_first_checkpoint_is_asked_for(saver, texts):
    async def first(given):
        return await anext(saver.alist(**given))

    put(saver, {"n": 1})
    for wrong in ({"limit": "x"}, {"limit": -1}, {"limit": True}, {"before": "x"}, {"filter": "x"}, {"config": "t"}):
        given = {"config": None, **wrong}
        with texts.raises(InvalidValue):
            saver.list(**given)
        with pytest.raises(InvalidValue):
            asyncio.run(first(given))
    assert len([*saver.list(None, limit=1)]) == 1 and [*saver.list(None, limit=0)] == []


def test_more_threads_than_fit_into_memory_are_read_anew(app, monkeypatch):
    monkeypatch.setattr("holdfast.adapters.langgraph.saver.MEMORY_BYTES", 20_000)
    saver = HoldfastSaver(app)
    last = {name: talk(saver, 5, thread=name) for name in "abcdef"}
    for name, (at, messages) in last.items():
        assert saver.get_tuple(at).checkpoint["channel_values"]["messages"] == messages, name

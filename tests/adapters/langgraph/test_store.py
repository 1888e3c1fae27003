"""HoldfastStore: LangGraph's long-term memory."""

import asyncio
from dataclasses import dataclass

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import GetOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

import holdfast
from holdfast import InvalidValue, NotSerializable
from holdfast.adapters.langgraph import HoldfastStore

STORES = ("memory", "sqlite", "postgres")


@pytest.fixture
def store(app):
    return HoldfastStore(app)


def keys(found):
    return [one.key for one in found]


def test_a_memory_comes_back_and_goes(store, clock):
    store.put(("users", "ana"), "diet", {"likes": ["figs"], "age": 7})
    first = store.get(("users", "ana"), "diet")
    clock.advance(5)
    store.put(("users", "ana"), "diet", {"likes": []})
    found = store.get(("users", "ana"), "diet")
    assert first.value == {"likes": ["figs"], "age": 7} and found.value == {"likes": []}
    assert found.created_at == first.created_at < found.updated_at
    assert (found.namespace, found.key) == (("users", "ana"), "diet")
    store.delete(("users", "ana"), "diet")
    store.delete(("users", "ana"), "diet")
    assert store.get(("users", "ana"), "diet") is None and store.search(("users",)) == []


def test_names_may_have_any_characters(store):
    for namespace, key in ((("a/b", "c=d"), "e/f=g%2F"), (("a",), "b/c=d"), (("ä", "%2F"), "="), (("x",), "!\"'")):
        store.put(namespace, key, {"is": key})
        assert store.get(namespace, key).value == {"is": key}
        assert [(one.namespace, one.key) for one in store.search(namespace)] == [(namespace, key)]


def test_a_prefix_is_made_of_whole_labels(store):
    for namespace in (("user",), ("users",), ("users", "ana"), ("users", "anatol")):
        store.put(namespace, "k", {"n": list(namespace)})
    assert {one.namespace for one in store.search(("users",))} == {("users",), ("users", "ana"), ("users", "anatol")}
    assert {one.namespace for one in store.search(("users", "ana"))} == {("users", "ana")}
    assert len(store.search(())) == 4


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"age": 7}, {"b"}),
        ({"age": {"$gte": 7}}, {"b", "c"}),
        ({"age": {"$gt": 3, "$lt": 9}}, {"b"}),
        ({"age": {"$lte": 3}}, {"a"}),
        ({"age": {"$ne": 7}}, {"a", "c", "d"}),
        ({"age": {"$eq": None}}, {"d"}),
        ({"home": {"city": "Oslo"}}, {"a"}),
        ({"home": {"city": {"$ne": "Oslo"}}}, {"b"}),
        ({"age": 7, "home": {"city": "Oslo"}}, set()),
    ],
)
def test_filters_compare(store, filter, expected):
    store.put(("p",), "a", {"age": 3, "home": {"city": "Oslo"}})
    store.put(("p",), "b", {"age": 7, "home": {"city": "Rome"}})
    store.put(("p",), "c", {"age": 9})
    store.put(("p",), "d", {"age": None})
    assert set(keys(store.search(("p",), filter=filter))) == expected


def test_searches_are_paged_newest_first(store, clock):
    for number in range(25):
        store.put(("p",), f"k{number}", {"n": number})
        clock.advance(1)
    assert keys(store.search(("p",), limit=3)) == ["k24", "k23", "k22"]
    assert keys(store.search(("p",), limit=2, offset=23)) == ["k1", "k0"]
    assert len(store.search(("p",))) == 10


def test_namespaces_are_listed_as_langgraph_lists_them(store):
    other = InMemoryStore()
    for namespace in (("a", "b", "c"), ("a", "b", "d"), ("a", "x"), ("z",)):
        for one in (store, other):
            one.put(namespace, "k", {"v": 1})
    for asked in (
        {},
        {"prefix": ("a",)},
        {"prefix": ("a", "*", "c")},
        {"suffix": ("d",)},
        {"max_depth": 2},
        {"prefix": ("a",), "max_depth": 2, "limit": 1, "offset": 1},
    ):
        assert store.list_namespaces(**asked) == other.list_namespaces(**asked), asked


def test_a_memory_expires_and_reading_renews_it(store, clock, app):
    store.put(("p",), "short", {"v": 1}, ttl=1)
    store.put(("p",), "long", {"v": 1})
    clock.advance(50)
    assert store.get(("p",), "short") is not None  # it lives for another minute now
    clock.advance(50)
    assert keys(store.search(("p",), refresh_ttl=False)) == ["long", "short"] or len(store.search(("p",))) == 2
    clock.advance(61)
    assert store.get(("p",), "short") is None and keys(store.search(("p",))) == ["long"]
    assert store.list_namespaces() == [("p",)]
    assert store.sweep_ttl() == 1 and store.sweep_ttl() == 0
    assert app.records("langgraph-store").keys() == ["p/=long"]


def test_a_time_to_live_can_be_the_default(app, clock):
    store = HoldfastStore(app, ttl={"default_ttl": 1, "refresh_on_read": False})
    store.put(("p",), "k", {"v": 1})
    clock.advance(59)
    assert store.get(("p",), "k") is not None
    clock.advance(2)
    assert store.get(("p",), "k") is None


def test_a_batch_reads_first_and_writes_all_or_nothing(store):
    store.put(("p",), "a", {"v": 1})
    results = store.batch(
        [PutOp(("p",), "a", {"v": 2}), GetOp(("p",), "a"), SearchOp(("p",)), PutOp(("p",), "b", {"v": 3})]
    )
    assert results[0] is results[3] is None and results[1].value == {"v": 1} and len(results[2]) == 1
    with pytest.raises(NotSerializable):
        store.batch([PutOp(("p",), "c", {"v": 1}), PutOp(("p",), "d", {"v": Odd()})])
    assert store.get(("p",), "c") is None and store.get(("p",), "a").value == {"v": 2}


@dataclass
class Odd:
    n: int = 1


def test_async_does_the_same(store):
    async def work():
        await store.aput(("p",), "a", {"v": 1})
        await store.adelete(("p",), "zzz")
        return await store.aget(("p",), "a"), await store.asearch(("p",)), await store.alist_namespaces()

    item, found, namespaces = asyncio.run(work())
    assert item.value == {"v": 1} and keys(found) == ["a"] and namespaces == [("p",)]


def test_a_large_memory_and_many_changes_leave_little_behind(store, app):
    for number in range(100):
        store.put(("p",), "k", {"text": f"{number}" * 5_000})
    assert store.get(("p",), "k").value["text"] == "99" * 5_000
    assert len(app.records("langgraph-store").read("p/=k")) <= 16
    assert app.verify().ok


def embed(texts):
    """Vectors of how often a text has each of a few letters."""
    return [[text.count(letter) + 0.01 for letter in "abc"] for text in texts]


async def aembed(texts):
    return embed(texts)


@pytest.mark.parametrize("embedder", [embed, aembed])
def test_search_by_meaning_with_an_embedder(app, embedder):
    store = HoldfastStore(app, index={"dims": 3, "embed": embedder, "fields": ["text"]})

    async def work():
        await store.aput(("p",), "a", {"text": "aaaa"})
        await store.aput(("p",), "b", {"text": "bbbb"})
        await store.aput(("p",), "none", {"text": "aaaa"}, index=False)
        return await store.asearch(("p",), query="bb"), await store.asearch(("p",), query="aa", limit=1)

    both, one = asyncio.run(work())
    assert keys(both) == ["b", "a", "none"] and both[0].score > 0.9 > both[1].score and both[2].score is None
    assert keys(one) == ["a"]


def test_bad_input_is_refused_by_name(store, texts):
    for wrong in (
        lambda: HoldfastStore("store.db"),
        lambda: store.search(("p",), query="what does ana like?"),
        lambda: store.search(("p",), filter={"age": {"$near": 7}}) if store.put(("p",), "k", {"age": 1}) is None else 0,
    ):
        with texts.raises(InvalidValue):
            wrong()


def test_a_value_that_is_not_a_dict_is_refused_and_nothing_is_saved(store, texts):
    for value in ("figs", "", [("likes", "figs")], [], 7, 0):
        wrong = PutOp(("users", "ana"), "diet", value)
        with texts.raises(InvalidValue):
            store.put(*wrong[:3])
        with pytest.raises(InvalidValue):
            asyncio.run(store.aput(*wrong[:3]))
        with pytest.raises(InvalidValue):
            store.batch([PutOp(("users", "ben"), "diet", {"likes": "plums"}), wrong])
    assert store.search(()) == []


def test_a_text_as_namespace_is_refused_and_nothing_is_saved(store, texts):
    for wrong in (
        lambda: store.put("users", "diet", {"likes": "figs"}),
        lambda: store.get("users", "diet"),
        lambda: store.delete("users", "diet"),
        lambda: store.search("users"),
        lambda: asyncio.run(store.aput("users", "diet", {"likes": "figs"})),
    ):
        with texts.raises(InvalidValue):
            wrong()
    assert store.search(()) == []


def test_a_wrong_ttl_is_refused_and_nothing_is_saved(store, texts):
    for ttl in ("5", -1, True, float("nan"), float("inf")):
        with texts.raises(InvalidValue):
            store.put(("users", "ana"), "diet", {"likes": "figs"}, ttl=ttl)
    assert store.search(()) == []


def test_a_graph_remembers_across_threads(app):
    def remember(state, *, store):
        store.put(("users", "ana"), "last", {"said": state["messages"][-1].content})
        return {}

    builder = StateGraph(MessagesState)
    builder.add_node("remember", remember)
    builder.add_edge(START, "remember")
    builder.compile(store=HoldfastStore(app)).invoke({"messages": [("user", "hello")]})
    assert HoldfastStore(app).get(("users", "ana"), "last").value == {"said": "hello"}
    assert app.verify().ok and isinstance(app, holdfast.App)

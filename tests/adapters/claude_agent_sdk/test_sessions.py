"""HoldfastSessionStore: the SDK's own harness, and what it does not ask."""

import asyncio

import pytest

pytest.importorskip("claude_agent_sdk", reason="make test-adapters")

from claude_agent_sdk.testing import run_session_store_conformance

import holdfast
from holdfast import InvalidValue, NotSerializable
from holdfast.adapters.claude_agent_sdk import HoldfastSessionStore

STORES = ("memory", "sqlite", "postgres")
KEY = {"project_key": "proj", "session_id": "s1"}


def wait(work):
    return asyncio.run(work)


def entries(*uuids, **more):
    return [{"type": "user", "uuid": uuid, **more} for uuid in uuids]


def test_it_passes_the_sdks_conformance_suite(url):
    """It asks for a new store for each of its contracts: namespaces of one store."""
    opened = []

    def make():
        opened.append(holdfast.open(url, namespace=f"contract-{len(opened)}"))
        return HoldfastSessionStore(opened[-1])

    try:
        wait(run_session_store_conformance(make))
    finally:
        for app in opened:
            app.close()
    assert len(opened) >= 14


def test_a_batch_that_is_sent_again_is_not_added_again(app):
    first, other = HoldfastSessionStore(app), HoldfastSessionStore(app)  # as in two processes
    wait(first.append(KEY, entries("a", "b")))
    wait(other.append(KEY, entries("b", "c")))
    wait(first.append(KEY, entries("a", "b", "c", "d")))
    wait(first.append(KEY, [{"type": "title"}, {"type": "title"}]))
    assert [one.get("uuid") for one in wait(first.load(KEY))] == ["a", "b", "c", "d", None, None]
    assert wait(other.load(KEY)) == wait(first.load(KEY))


def test_appends_at_once_lose_nothing_and_double_nothing(app):
    stores = [HoldfastSessionStore(app) for _ in range(4)]

    async def race():
        batches = [entries(f"{n}", "shared") for n in range(20)]
        await asyncio.gather(*(stores[n % 4].append(KEY, batch) for n, batch in enumerate(batches)))

    wait(race())
    found = [one["uuid"] for one in wait(stores[0].load(KEY))]
    assert sorted(found) == sorted([*map(str, range(20)), "shared"])


def test_a_batch_is_added_whole_or_not_at_all(app):
    store = HoldfastSessionStore(app)
    with pytest.raises(NotSerializable, match="an entry of the transcript"):
        wait(store.append(KEY, [*entries("a"), {"type": "x", "uuid": "b", "value": object()}]))
    assert wait(store.load(KEY)) is None
    wait(store.append(KEY, entries("a")))
    assert wait(store.load(KEY)) == entries("a")


def test_entries_come_back_equal_and_summaries_stay_few(app):
    store = HoldfastSessionStore(app)
    odd = {"type": "user", "uuid": "x", "message": {"content": "ä€\u0000 \U0001f600"}, "n": 1.5, "deep": [[{}]]}
    wait(store.append(KEY, [odd]))
    for number in range(70):
        wait(store.append(KEY, entries(f"u{number}", customTitle=f"title {number}")))
    assert wait(store.load(KEY))[0] == odd
    (summary,) = wait(store.list_session_summaries("proj"))
    assert "title 69" in str(summary["data"])
    assert len(app.records("claude-agent-sdk").read("summary/proj/s1")) <= 40 and app.verify().ok


def test_names_may_be_any_text_and_a_deleted_one_is_free(app):
    store = HoldfastSessionStore(app)
    for name in ("a/b", "a", "with space", "ünï", "a%2Fb"):
        wait(store.append({"project_key": name, "session_id": name}, entries(name)))
        wait(store.append({"project_key": name, "session_id": name, "subpath": "sub/x/1"}, entries(name)))
    for name in ("a/b", "a", "with space", "ünï", "a%2Fb"):
        assert [one["session_id"] for one in wait(store.list_sessions(name))] == [name]
        assert wait(store.list_subkeys({"project_key": name, "session_id": name})) == ["sub/x/1"]
    wait(store.delete({"project_key": "a", "session_id": "a"}))
    wait(store.append({"project_key": "a", "session_id": "a"}, entries("a")))
    assert len(wait(store.load({"project_key": "a", "session_id": "a"}))) == 1


def test_more_sessions_than_a_page_are_all_listed(app):
    store = HoldfastSessionStore(app)
    for number in range(120):
        wait(store.append({"project_key": "proj", "session_id": f"s{number}"}, entries("a")))
    assert len(wait(store.list_sessions("proj"))) == 120


def test_it_is_there_after_a_restart(tmp_path):
    for count in (1, 2, 2):
        with holdfast.open(str(tmp_path / "holdfast.db")) as app:
            store = HoldfastSessionStore(app)
            wait(store.append(KEY, entries(f"u{count}")))
            assert len(wait(store.load(KEY))) == count


def test_bad_input_is_refused_by_name(app):
    with pytest.raises(InvalidValue, match=r"'holdfast.db' is not an app \(give HoldfastSessionStore"):
        HoldfastSessionStore("holdfast.db")
    with pytest.raises(InvalidValue, match="subpath of a session is empty"):
        wait(HoldfastSessionStore(app).append({**KEY, "subpath": ""}, entries("a")))

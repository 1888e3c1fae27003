"""Threads from outside: ids, times, pages, metadata, items as they were given, what is taken out, and deleting."""

import asyncio
import json
import threading

import pytest

import holdfast
from holdfast import (
    Conflict,
    InvalidEvent,
    InvalidId,
    InvalidMessage,
    InvalidValue,
    NotSerializable,
    PatchConflict,
    StateMutated,
    StatePatch,
    agent,
)

STORES = ("memory", "sqlite", "postgres")


def user(text):
    return {"role": "user", "content": text}


def texts(messages):
    return [one["content"] for one in messages]


def reply(messages):
    return {"role": "assistant", "content": f"I have read {len(messages)}"}


@agent
def answering(task, question: str) -> str:
    task.message(user(question))
    answer = task.step(reply, task.messages)
    task.message(answer)
    return answer["content"]


ITEMS = [
    {"role": "user", "content": "hi", "z": 1, "a": 2},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"b":1, "a":2}', "id": "fc_1"},
    {"type": "function_call_output", "call_id": "c1", "output": "91 %"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    {"$blob": "x", "bytes": 1, "text": "ünï ☃ \u2028 \\u0041", "deep": [[{"": None}], 1.0, 1e300, -0.0, 2**70, True]},
    {"large": "long " * 5_000, "b": {}, "a": []},
]


def test_a_thread_is_created_without_an_id_and_found_in_the_list(app):
    first, second = app.thread().create(), app.thread().create(metadata={"topic": "lamps"})
    assert first.id != second.id and first.exists and second.metadata == {"topic": "lamps"}
    app.thread("named").message(user("hello"))
    listed = [one.id for one in app.threads()]
    assert sorted([first.id, second.id, "named"]) == listed
    assert [one.id for one in app.threads(limit=1)] == listed[:1]
    assert [one.id for one in app.threads(after=listed[0], limit=5)] == listed[1:]
    assert not app.thread("other").exists and app.thread("other").created_at is None


def test_creating_a_thread_twice_keeps_what_was_said(app):
    thread = app.thread("t").create(metadata={"a": 1})
    thread.message(user("hello"))
    again = app.thread("t").create(metadata={"b": [2]})
    assert again.metadata == {"a": 1, "b": [2]} and len(again) == 1
    assert app.verify().ok


def test_metadata_is_changed_by_name_and_none_deletes(app):
    thread = app.thread("t")
    thread.update(metadata={"topic": "lamps", "priority": 3}, by="ana")
    thread.update(metadata={"priority": None, "open": True})
    assert thread.metadata == {"topic": "lamps", "open": True}
    for wrong in ("text", {1: 2}, {"": 1}, {"x": float("nan")}):
        with pytest.raises((InvalidValue, NotSerializable)):
            thread.update(metadata=wrong)
    assert thread.metadata == {"topic": "lamps", "open": True}


def test_messages_have_ids_and_times_and_are_paged_both_ways(app, clock):
    thread = app.thread("t")
    for number in range(7):
        thread.add([user(f"m{number}")], by="ana")
        clock.advance(1)
    page = thread.page(limit=3)
    assert texts(one.message for one in page) == ["m0", "m1", "m2"] and page[0].by == "ana"
    assert page[0].at < page[1].at < page[2].at
    more = thread.page(after=page[-1].id, limit=3)
    assert texts(one.message for one in more) == ["m3", "m4", "m5"]
    back = thread.page(before=more[0].id, limit=2, newest_first=True)
    assert texts(one.message for one in back) == ["m2", "m1"]
    newest = thread.page(limit=2, newest_first=True)
    assert texts(one.message for one in newest) == ["m6", "m5"]
    assert thread.find(page[1].id) == page[1] and thread.find("msg_9999") is None
    assert texts(one.message for one in thread.page(after=page[0].id, before=more[0].id)) == ["m1", "m2"]
    for wrong in ({"after": "m1"}, {"before": 3}, {"limit": 0}, {"limit": True}, {"after": "msg_"}):
        with pytest.raises(InvalidValue):
            thread.page(**wrong)


def test_raw_items_come_back_byte_for_byte(app):
    thread = app.thread("t")
    ids = thread.add(ITEMS, raw=True)
    assert len(ids) == len(set(ids)) == len(ITEMS)
    assert json.dumps(thread.messages) == json.dumps(ITEMS)
    assert [json.dumps(one.message) for one in thread.page()] == [json.dumps(one) for one in ITEMS]
    assert [one.id for one in thread.page()] == ids


def test_raw_items_that_are_messages_are_part_of_the_conversation(app):
    app.thread("t").add(ITEMS, raw=True)
    window = app.thread("t").window()
    assert [one["role"] for one in window] == ["user", "assistant", "tool"]
    done = app.run(answering, {"question": "and now?"}, id="a", thread="t")
    assert done.result == "I have read 5", "what no provider's form can read is left out"


def test_items_are_added_only_if_nothing_has_happened_since_the_thread_was_looked_at(app):
    thread = app.thread("t-9")
    assert thread.add([user("one")], expect=0) and thread.seq == 2
    with pytest.raises(Conflict):
        thread.add([user("late")], expect=0)
    (id,) = thread.add([user("two")], raw=True, expect=2)
    assert thread.find(id).message == user("two")
    thread.state.topic = "lamps"
    with pytest.raises(Conflict):
        thread.add([user("late")], expect=3)
    assert texts(thread.messages) == ["one", "two"]
    thread.delete()
    with pytest.raises(Conflict):
        thread.add([user("late")], expect=4)
    thread.add([user("again")], expect=0)
    assert texts(thread.messages) == ["again"] and app.verify().ok


def test_of_many_that_expect_the_same_seq_one_adds(app):
    won, barrier = [], threading.Barrier(4)

    def race(number):
        for at in (0, 2, 3, 4):
            barrier.wait()
            try:
                app.thread("t-9").add([user(f"{at}")], expect=at)
                won.append(at)
            except Conflict:
                pass
            barrier.wait()

    racers = [threading.Thread(target=race, args=(number,)) for number in range(4)]
    for one in racers:
        one.start()
    for one in racers:
        one.join()
    assert won == [0, 2, 3, 4] and texts(app.thread("t-9").messages) == ["0", "2", "3", "4"]


@pytest.mark.parametrize("wrong", [-1, "2", True, 2.0, 2**70])
def test_what_is_expected_must_be_a_seq(app, wrong):
    with pytest.raises(InvalidValue, match=r"thread\.seq"):
        app.thread("t-9").add([user("one")], expect=wrong)
    assert not app.thread("t-9").exists


def test_a_list_of_items_is_added_whole_or_not_at_all(app):
    thread = app.thread("t")
    for bad in (float("nan"), {1: 2}, ("tuple",), b"bytes", {"x"}, "\ud800"):
        with pytest.raises((NotSerializable, InvalidValue)):
            thread.add([user("one"), {"item": bad}], raw=True)
    for items in ("text", user("alone"), [user("one"), "two"], [], [None]):
        with pytest.raises(InvalidValue):
            thread.add(items, raw=True)
    with pytest.raises(InvalidMessage) as refused:
        thread.add([user("one"), {"role": "tool", "tool_call_id": "x", "content": "orphan"}])
    assert refused.value.details["path"] == "items[1]"
    assert not thread.exists and thread.messages == []
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    thread.add([asked, {"role": "tool", "tool_call_id": "c1", "content": "91 %"}])
    assert len(thread) == 2, "a result may follow its call in one list"


def test_many_processes_of_items_stay_whole(url, clock):
    with holdfast.open(url, clock=clock) as app:
        thread = app.thread("t").create()

        def add(name):
            for number in range(5):
                thread.add([{"by": name, "n": number, "part": part} for part in range(3)], raw=True)

        workers = [threading.Thread(target=add, args=(name,)) for name in "abc"]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        found = thread.messages
        assert len(found) == 45
        for at in range(0, 45, 3):
            assert len({(one["by"], one["n"]) for one in found[at : at + 3]}) == 1, "a list lies together"
            assert [one["part"] for one in found[at : at + 3]] == [0, 1, 2]


def test_pop_gives_the_newest_message_once(app):
    thread = app.thread("t")
    assert thread.pop() is None and not thread.exists
    thread.add([user("one"), user("two"), user("three")])
    assert thread.pop(by="ana")["content"] == "three" and thread.pop()["content"] == "two"
    thread.add([{"z": 1, "a": 2}], raw=True)
    assert json.dumps(thread.pop()) == '{"z": 1, "a": 2}'
    assert texts(thread.messages) == ["one"] and len(thread) == 1 and texts(thread.window()) == ["one"]
    assert thread.pop()["content"] == "one" and thread.pop() is None
    thread.message(user("again"))
    assert texts(thread.messages) == ["again"] and app.verify().ok


def test_two_who_pop_at_once_get_different_messages(app):
    thread = app.thread("t")
    thread.add([user(str(number)) for number in range(20)])
    popped = []

    def pop():
        while (one := app.thread("t").pop()) is not None:
            popped.append(one["content"])

    workers = [threading.Thread(target=pop) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(popped, key=int) == [str(number) for number in range(20)]


def test_clear_takes_out_messages_and_keeps_state_and_metadata(app):
    thread = app.thread("t").create(metadata={"topic": "lamps"})
    thread.state.count = 3
    thread.add([user("one"), user("two")])
    assert thread.clear() == 2 and thread.clear() == 0
    assert thread.messages == [] and thread.page() == [] and thread.window() == [] and thread.context_tokens == 0
    assert thread.metadata == {"topic": "lamps"} and thread.state.count == 3
    thread.message(user("three"))
    assert texts(thread.messages) == ["three"]
    assert app.run(answering, {"question": "four"}, id="a", thread="t").result == "I have read 2"


def test_a_task_under_way_sees_what_it_saw_until_its_next_turn(app):
    seen = []

    @agent
    def listening(task):
        seen.append(texts(task.messages))
        task.wait("go")
        seen.append(texts(task.messages))
        task.message(user("mine"))
        task.step(reply, task.messages)
        return texts(task.messages)

    thread = app.thread("t")
    thread.add([user("one"), user("two")])
    app.run(listening, id="l", thread="t")
    assert thread.pop()["content"] == "two"
    app.signal("l", "go")
    done = app.resume("l", listening)
    assert seen == [["one", "two"]] * 3
    assert done.result == ["one", "mine"], "after its own message it sees the thread as it is there"
    assert app.run(answering, {"question": "next"}, id="n", thread="t").result == "I have read 3"


def test_a_deleted_thread_is_gone_and_its_id_can_be_used_again(app):
    thread = app.thread("t").create(metadata={"a": 1})
    app.run(answering, {"question": "one"}, id="a", thread="t")
    thread.state.count = 1
    before = thread.page()[-1].id
    assert thread.delete(why="asked to") is True and thread.delete() is False
    assert not thread.exists and thread.messages == [] and thread.metadata == {} and thread.state.all() == {}
    assert app.threads() == [] and list(thread.events()) == [] and app.verify().ok
    assert app.get("a").result == "I have read 1", "the task stays"
    done = app.run(answering, {"question": "two"}, id="b", thread="t")
    assert done.result == "I have read 1" and texts(thread.messages) == ["two", "I have read 1"]
    assert before not in [one.id for one in thread.page()], "no id of a message is used twice"
    thread.state.count = 2
    assert thread.state.count == 2 and app.verify().ok


def test_a_task_that_has_not_ended_keeps_its_thread_from_being_deleted(app):
    @agent
    def waiting(task):
        task.wait("go")

    app.run(waiting, id="w", thread="t")
    with pytest.raises(InvalidEvent) as refused:
        app.thread("t").delete()
    assert "app.cancel('w')" in refused.value.hint
    app.cancel("w")
    assert app.thread("t").delete()


def test_copies_bring_deleted_and_begun_again_threads_along(app, tmp_path):
    thread = app.thread("t")
    thread.add(ITEMS, raw=True)
    to = str(tmp_path / "copy.db")
    app.copy_to(to)
    thread.delete()
    gone = str(tmp_path / "gone.db")
    app.copy_to(gone)
    with holdfast.open(gone) as copy:
        assert copy.threads() == [] and copy.verify().ok
    thread.add(ITEMS[:2], raw=True)
    thread.state.topic = "lamps"
    thread.update(metadata={"a": 1}, expire="1h")
    app.copy_to(to)
    app.copy_to(gone)
    for place in (to, gone):
        with holdfast.open(place) as copy:
            found = copy.thread("t")
            assert json.dumps(found.messages) == json.dumps(ITEMS[:2]) and copy.verify().ok
            assert (found.metadata, found.state.all()) == ({"a": 1}, {"topic": "lamps"})
            assert found.expires_at == thread.expires_at and found.page() == thread.page()
            found.message(user("more"))
            assert len(found) == 3


def test_threads_of_tenants_are_apart(url, clock):
    if url == "memory:":
        pytest.skip("each memory store is one tenant's")
    with holdfast.open(url, clock=clock, namespace="acme") as acme, holdfast.open(url, clock=clock) as plain:
        acme.thread("t").create(metadata={"whose": "acme"})
        assert plain.threads() == [] and not plain.thread("t").exists
        plain.thread("t").message(user("plain"))
        assert acme.thread("t").delete() and len(plain.thread("t")) == 1
        acme.thread("t").message(user("acme"))
        assert texts(acme.thread("t").messages) == ["acme"] and [one.id for one in acme.threads()] == ["t"]
        assert plain.verify().ok


def test_a_thread_tells_its_window_and_how_many_tokens_it_has(app):
    thread = app.thread("t")
    assert thread.window() == [] and thread.context_tokens == 0 and not thread.exists
    thread.add([user("word " * 50) for _ in range(10)])
    whole = thread.context_tokens
    assert whole == thread.window().tokens > 500
    short = thread.window(max_tokens=200)
    assert 0 < len(short) < 10 and short.tokens <= 200 < whole and short.left_out


def test_the_state_of_a_thread_is_changed_by_paths_and_never_in_silence(app):
    thread = app.thread("t")
    thread.state.preferences = {"seat": "aisle", "likes": ["trains"]}
    thread.state.set("preferences.seat", "window")
    thread.state.append("preferences.likes", "ferries")
    thread.state.increment("visits")
    assert thread.state.update("visits", lambda visits: visits + 1) == 2
    with pytest.raises(StateMutated):
        thread.state.preferences["seat"] = "lost"
    assert thread.state.all() == {"preferences": {"seat": "window", "likes": ["trains", "ferries"]}, "visits": 2}
    assert "preferences.seat" in thread.state and thread.state.get("other", 7) == 7
    del thread.state["visits"]
    with pytest.raises(AttributeError, match="the thread's state has no 'visits'"):
        _ = thread.state.visits


def test_two_writers_of_one_thread_get_a_conflict(app):
    thread = app.thread("t")
    thread.state.city = "Oslo"
    seen = thread.seq
    assert thread.patch(StatePatch(set={"city": "Bergen"}), expect=seen, by="ana") == {"city": "Bergen"}
    with pytest.raises(PatchConflict) as clash:
        thread.patch(StatePatch(set={"city": "Tromsø"}), expect=seen, by="ben")
    assert clash.value.details["thread"] == "t" and "thread 't'" in clash.value.message
    assert thread.state.city == "Bergen"


def test_everything_can_be_awaited(app):
    async def program():
        thread = app.aio.thread("t")
        await thread.create(metadata={"a": 1})
        ids = await thread.add(ITEMS[:2], raw=True)
        assert [one.id for one in await thread.page()] == ids
        assert (await thread.find(ids[0])).message == ITEMS[0]
        await thread.update(metadata={"b": 2}, expire="1d")
        await thread.patch(StatePatch(set={"x": 1}))
        assert await thread.metadata() == {"a": 1, "b": 2} and await thread.context_tokens() > 0
        assert await thread.pop() == ITEMS[1] and await thread.clear() == 1
        assert [one.id for one in await app.aio.threads()] == ["t"]
        assert await thread.delete() is True and not await thread.exists()

    asyncio.run(program())


def test_what_is_no_id_is_refused(app):
    for wrong in ("a b", "", 7):
        with pytest.raises(InvalidId):
            app.thread(wrong)
        with pytest.raises(InvalidId):
            app.threads(after=wrong)
    with pytest.raises(InvalidValue):
        app.threads(limit=0)
    with pytest.raises(InvalidValue):
        app.thread("t").update(expire="soon")

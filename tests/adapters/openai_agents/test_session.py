"""HoldfastSession: conversations of the OpenAI Agents SDK."""

import asyncio
import threading

import pytest
from agents import Agent, RunConfig, Runner, Session, SessionSettings
from agents.testing import ScriptedModel, assistant_message

import holdfast
from holdfast import InvalidId, NotSerializable
from holdfast.adapters.openai_agents import HoldfastSession
from holdfast.adapters.openai_agents.session import _thread_id

STORES = ("memory", "sqlite", "postgres")
ITEMS = [
    {"role": "user", "content": "hello ä\u20ac"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "AAA=="},
    {"type": "function_call", "call_id": "c1", "name": "charge", "arguments": '{"euros": 5}'},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "charged"}]},
]


@pytest.fixture
def session(app):
    return HoldfastSession(app, "ana")


def wait(work):
    return asyncio.run(work)


def test_it_is_a_session(session):
    assert isinstance(session, Session) and session.session_id == "ana"


def test_items_come_back_exactly_and_in_order(session):
    wait(session.add_items(ITEMS[:2]))
    wait(session.add_items(ITEMS[2:]))
    wait(session.add_items([]))
    found = wait(session.get_items())
    assert found == ITEMS and [[*one] for one in found] == [[*one] for one in ITEMS]
    assert (
        wait(session.get_items(2)) == ITEMS[2:]
        and wait(session.get_items(0)) == []
        and len(wait(session.get_items(99))) == 4
    )


def test_popping_and_clearing(session, app):
    wait(session.add_items(ITEMS))
    assert wait(session.pop_item()) == ITEMS[-1] and wait(session.get_items()) == ITEMS[:-1]
    wait(session.clear_session())
    assert wait(session.get_items()) == [] and wait(session.pop_item()) is None
    wait(session.clear_session())
    wait(session.add_items(ITEMS[:1]))
    assert wait(session.get_items()) == ITEMS[:1] and app.verify().ok


def test_a_list_is_added_whole_or_not_at_all(session):
    with pytest.raises(NotSerializable):
        wait(session.add_items([ITEMS[0], {"role": "user", "content": object()}]))
    assert wait(session.get_items()) == []


def test_a_session_is_a_thread(app, session):
    wait(session.add_items(ITEMS))
    assert app.thread("ana").messages == ITEMS and [one.id for one in app.threads()] == ["ana"]
    app.thread("ana").add([{"role": "user", "content": "from outside"}])
    assert wait(session.pop_item())["content"] == "from outside" and len(app.thread("ana")) == 4


def test_more_items_than_a_page_are_read(session, monkeypatch):
    monkeypatch.setattr("holdfast.adapters.openai_agents.session.PAGE", 3)
    items = [{"role": "user", "content": str(number)} for number in range(10)]
    wait(session.add_items(items))
    assert wait(session.get_items(8)) == items[2:] and wait(session.get_items(10)) == items


def test_items_of_a_run_are_added_once_whatever_others_add_meanwhile(url, app, session):
    seq = session.read()["seq"]
    others = [threading.Thread(target=add_many, args=(app, number)) for number in range(3)]
    runs = [threading.Thread(target=session.add_once, args=(ITEMS, "order-7", seq)) for _ in range(4)]
    for one in (*others, *runs):
        one.start()
    for one in (*others, *runs):
        one.join()
    found = wait(session.get_items())
    assert len(found) == 30 + len(ITEMS) and found.count(ITEMS[1]) == 1
    session.add_once(ITEMS, "order-7", seq)
    session.add_once(ITEMS[:1], "order-8", seq)
    assert len(wait(session.get_items())) == 31 + len(ITEMS)


def add_many(app, number):
    for at in range(10):
        wait(HoldfastSession(app, "ana").add_items([{"role": "user", "content": f"{number}-{at}"}]))


def test_two_ids_are_never_the_same_thread():
    ids = ["ana", "ana's", "ana=27s", "'a", "x'a", "x=27a", "x==27a", "~a", "x=~a", "x~a", "a b", "a=20b", "\ud800"]
    assert len({_thread_id(id) for id in ids}) == len(ids)


def test_sessions_are_apart_and_any_text_is_an_id(app):
    for id in ("a", "a/b", "with space", "ünï!", "items/a"):
        wait(HoldfastSession(app, id).add_items([{"role": "user", "content": id}]))
    for id in ("a", "a/b", "with space", "ünï!", "items/a"):
        assert wait(HoldfastSession(app, id).get_items()) == [{"role": "user", "content": id}]
    with pytest.raises(InvalidId):
        HoldfastSession(app, "x" * 2_000)


def test_the_settings_limit_what_is_read(app):
    limited = HoldfastSession(app, "ana", session_settings=SessionSettings(limit=1))
    wait(limited.add_items(ITEMS))
    assert wait(limited.get_items()) == ITEMS[-1:] and wait(limited.get_items(3)) == ITEMS[1:]


def test_the_sdks_own_runner_remembers_with_it(app, session):
    model = ScriptedModel([[assistant_message("hello")], [assistant_message("again")]])
    shop, config = Agent(name="shop", model=model), RunConfig(tracing_disabled=True)

    async def talk():
        await Runner.run(shop, "one", session=session, run_config=config)
        await Runner.run(shop, "two", session=session, run_config=config)

    wait(talk())
    assert [one.get("role") for one in wait(session.get_items())] == ["user", "assistant", "user", "assistant"]
    assert len(model.calls[1].input) == 3


def test_it_is_there_after_opening_again(tmp_path):
    path = str(tmp_path / "store.db")
    with holdfast.open(path) as app:
        wait(HoldfastSession(app, "ana").add_items(ITEMS))
    with holdfast.open(path) as app:
        assert wait(HoldfastSession(app, "ana").get_items()) == ITEMS

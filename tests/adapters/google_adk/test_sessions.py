"""HoldfastSessionService: what ADK expects of every session service, and more than one writer."""

import asyncio
import subprocess
import sys
import time

import pytest

pytest.importorskip("google.adk", reason="make test-adapters")

from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.genai import types

import holdfast
from holdfast import InvalidValue
from holdfast.adapters.google_adk import HoldfastSessionService

STORES = ("memory", "sqlite", "postgres")


class Shop:
    """A service with the app and the user that tests do not care about."""

    def __init__(self, app):
        self.service = HoldfastSessionService(app)

    def create(self, id="s1", user="ana", app="shop", **more):
        return wait(self.service.create_session(app_name=app, user_id=user, session_id=id, **more))

    def get(self, id="s1", user="ana", app="shop", **config):
        config = GetSessionConfig(**config) if config else None
        return wait(self.service.get_session(app_name=app, user_id=user, session_id=id, config=config))

    def append(self, session, **fields):
        return wait(self.service.append_event(session, event(**fields)))

    def delete(self, id="s1", user="ana"):
        wait(self.service.delete_session(app_name="shop", user_id=user, session_id=id))

    def list(self, user=None, app="shop"):
        return wait(self.service.list_sessions(app_name=app, user_id=user)).sessions


def wait(work):
    return asyncio.run(work)


def event(text=None, state=None, **fields):
    content = None if text is None else types.Content(role="user", parts=[types.Part(text=text)])
    actions = EventActions(state_delta=state or {})
    return Event(**{"author": "user", "invocation_id": "i1", "content": content, "actions": actions, **fields})


def texts_of(session):
    return [one.content.parts[0].text for one in session.events]


@pytest.fixture
def shop(app):
    return Shop(app)


def test_a_session_comes_back_as_it_was_created(shop):
    assert isinstance(shop.service, BaseSessionService)
    created = shop.create(state={"key": "value"})
    assert created.state == {"key": "value"} and created.events == [] and created.last_update_time <= time.time()
    assert shop.get() == created
    assert shop.get("other") is None and shop.get(user="ben") is None and shop.get(app="office") is None


def test_a_session_without_an_id_gets_one_and_a_padded_one_is_trimmed(shop):
    assert shop.create(id=None).id != shop.create(id="  ").id
    assert shop.create(id=" padded ").id == "padded"
    assert shop.get(id="padded ").id == "padded"
    shop.delete(id=" padded")
    assert shop.get(id="padded") is None


def test_an_id_that_is_taken_is_refused_for_that_user_only(shop):
    shop.create()
    with pytest.raises(AlreadyExistsError):
        shop.create()
    assert shop.create(user="ben").user_id == "ben"


def test_events_come_back_complete_and_in_order(shop):
    session = shop.create()
    whole = Event(
        invocation_id="i1",
        author="user",
        content=types.Content(role="user", parts=[types.Part.from_bytes(data=b"\0\xff", mime_type="image/png")]),
        turn_complete=True,
        partial=False,
        actions=EventActions(artifact_delta={"file": 0}, transfer_to_agent="agent", escalate=True),
        long_running_tool_ids={"tool1"},
        error_code="error_code",
        error_message="error_message",
        interrupted=True,
        grounding_metadata=types.GroundingMetadata(search_entry_point=types.SearchEntryPoint(sdk_blob=b"blob")),
        usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=1, total_token_count=2),
        citation_metadata=types.CitationMetadata(),
        custom_metadata={"custom_key": "custom_value"},
        timestamp=1700000000.123,
    )
    wait(shop.service.append_event(session, whole))
    shop.append(session, text="hello ä€")
    assert shop.get() == session and [one.author for one in session.events] == ["user", "user"]


def test_state_has_four_scopes(shop):
    session = shop.create(state={"app:a": 1, "user:u": 2, "s": 3, "temp:t": 4})
    shop.append(session, state={"app:b": 10, "user:v": 20, "r": 30, "temp:x": 40, "s": None})
    assert session.state["temp:x"] == 40 and "temp:x" not in session.events[0].actions.state_delta
    assert shop.get().state == {"app:a": 1, "app:b": 10, "user:u": 2, "user:v": 20, "s": None, "r": 30}
    assert shop.create("s2").state == {"app:a": 1, "app:b": 10, "user:u": 2, "user:v": 20}
    assert shop.create("s3", user="ben").state == {"app:a": 1, "app:b": 10}
    assert shop.create("s4", app="office").state == {}
    assert wait(shop.service.get_user_state(app_name="shop", user_id="ana")) == {"u": 2, "v": 20}


def test_state_that_changes_often_is_read_whole(shop, app):
    session = shop.create()
    for number in range(200):
        shop.append(session, state={"n": number, f"k{number % 3}": number, "app:n": number})
        if number % 70 == 0:
            shop.get()
    assert shop.get().state == {"n": 199, "k0": 198, "k1": 199, "k2": 197, "app:n": 199}
    assert len(app.records("google-adk").read("state/session/shop/ana/s1")) < 150 and app.verify().ok


def test_a_config_leaves_out_events_and_never_state(shop):
    session = shop.create()
    for number in range(1, 6):
        shop.append(session, timestamp=number, state={f"k{number}": number})
    assert [one.timestamp for one in shop.get(num_recent_events=3).events] == [3, 4, 5]
    assert shop.get(num_recent_events=0).events == [] and len(shop.get(num_recent_events=0).state) == 5
    assert len(shop.get(num_recent_events=99).events) == 5
    assert [one.timestamp for one in shop.get(after_timestamp=4.0).events] == [4, 5]
    assert shop.get(after_timestamp=50).events == []
    assert [one.timestamp for one in shop.get(num_recent_events=3, after_timestamp=4).events] == [4, 5]
    shop.append(shop.get(num_recent_events=1), text="it can be appended to")
    assert len(shop.get().events) == 6


def test_lists_have_state_and_no_events_the_oldest_change_first(shop):
    for number, (id, user) in enumerate([("b", "ana"), ("a", "ana"), ("a", "ben")]):
        session = shop.create(id, user=user, state={"key": id})
        shop.append(session, text="hi", timestamp=time.time() + 10 - number)
    assert [(one.user_id, one.id) for one in shop.list()] == [("ben", "a"), ("ana", "a"), ("ana", "b")]
    assert [(one.id, one.state, one.events) for one in shop.list("ana")] == [
        ("a", {"key": "a"}, []),
        ("b", {"key": "b"}, []),
    ]
    assert shop.list("") == [] and shop.list(app="office") == []


def test_more_sessions_than_a_page_are_all_listed(shop):
    for number in range(120):
        shop.create(f"s{number}")
    assert len({one.id for one in shop.list("ana")}) == 120


def test_names_may_be_any_text(shop):
    names = ("a/b", "a", "with space", "ünï€", "100%", "a%2Fb", "session/a")
    for name in names:
        shop.create(name, user=name, state={"user:me": name})
    for name in names:
        assert shop.get(name, user=name).state == {"user:me": name} and [one.id for one in shop.list(name)] == [name]


def test_a_deleted_session_is_gone_and_its_name_is_free(shop):
    session = shop.create(state={"s": 1, "user:u": 2})
    shop.append(session, text="hello")
    shop.delete()
    shop.delete()
    assert shop.get() is None and shop.list() == []
    with pytest.raises(SessionNotFoundError):
        shop.append(session, text="too late")
    assert shop.create().state == {"user:u": 2} and shop.get().events == []
    with pytest.raises(StaleSessionError):
        shop.append(session, text="of the one before")


def test_a_stale_session_is_refused_and_changes_nothing(shop):
    first = shop.create()
    shop.append(first, text="one", state={"a": 1})
    second = shop.get()
    shop.append(second, text="two", state={"b": 2})
    with pytest.raises(StaleSessionError, match="modified in storage"):
        shop.append(first, text="three", state={"c": 3, "app:c": 3})
    assert texts_of(shop.get()) == ["one", "two"] and shop.get().state == {"a": 1, "b": 2}
    assert texts_of(first) == ["one"]
    shop.append(shop.get(), text="three")
    assert len(shop.get().events) == 3


def test_equal_times_are_not_taken_for_one_revision(shop):
    """Order comes from the log: two writers in one tick of the clock are two."""
    first, second = shop.create(), shop.get()
    shop.append(first, text="one", timestamp=5.0)
    with pytest.raises(StaleSessionError):
        shop.append(second, text="two", timestamp=5.0)


def test_of_writers_at_once_one_wins(shop):
    async def race(copies):
        appends = [shop.service.append_event(one, event(text=str(number))) for number, one in enumerate(copies)]
        return await asyncio.gather(*appends, return_exceptions=True)

    shop.create()
    for turn in range(1, 5):
        found = wait(race([shop.get() for _ in range(4)]))
        assert sum(isinstance(one, StaleSessionError) for one in found) == 3
        assert len(shop.get().events) == turn


def test_parallel_branches_append_to_one_session_object(shop):
    async def branches(session):
        await asyncio.gather(*(shop.service.append_event(session, event(text=str(n))) for n in range(20)))

    session = shop.create()
    wait(branches(session))
    assert sorted(texts_of(shop.get()), key=int) == [str(n) for n in range(20)]
    assert len(session.events) == 20


def test_a_session_object_without_a_mark_is_judged_by_its_time(shop):
    session = shop.create()
    shop.append(session, text="one", timestamp=session.last_update_time + 10)
    session._storage_update_marker = None
    session.last_update_time -= 0.0001
    shop.append(session, text="two", timestamp=session.last_update_time + 20)
    stale = shop.get()
    shop.append(session, text="three", timestamp=session.last_update_time + 30)
    stale._storage_update_marker = None
    with pytest.raises(StaleSessionError):
        shop.append(stale, text="four")


def test_an_event_that_is_delivered_again_is_not_added_again(shop):
    session, one = shop.create(), event(text="once", state={"n": 1})
    for _ in range(3):
        wait(shop.service.append_event(session, one))
    wait(shop.service.append_event(shop.get(), one))
    assert len(shop.get().events) == len(session.events) == 1


def test_partial_events_are_not_stored(shop):
    session = shop.create()
    shop.append(session, text="par", partial=True)
    assert session.events == [] and shop.get().events == []


def test_an_event_for_a_session_that_was_never_created_is_refused(shop):
    session = shop.create()
    session.id = "never"
    with pytest.raises(SessionNotFoundError):
        shop.append(session, text="hello")


def test_changing_what_was_read_changes_nothing(shop):
    shop.create(state={"list": [1]})
    shop.get().state["list"].append(2)
    assert shop.get().state == {"list": [1]}


def test_it_is_there_after_a_restart(tmp_path):
    with holdfast.open(str(tmp_path / "holdfast.db")) as app:
        shop = Shop(app)
        shop.append(shop.create(), text="hello", state={"user:u": 1})
    with holdfast.open(str(tmp_path / "holdfast.db")) as app:
        found = Shop(app).get()
        assert texts_of(found) == ["hello"] and found.state == {"user:u": 1}
        Shop(app).append(found, text="again")


WRITER = """
import asyncio, sys
import holdfast
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.events import Event, EventActions
from holdfast.adapters.google_adk import HoldfastSessionService

async def write(service):
    for number in range(25):
        while True:
            session = await service.get_session(app_name="shop", user_id="ana", session_id="s1")
            delta = {"n": session.state.get("n", 0) + 1}
            try:
                event = Event(author="user", actions=EventActions(state_delta=delta))
                await service.append_event(session, event)
                break
            except StaleSessionError:
                continue

with holdfast.open(sys.argv[1]) as app:
    asyncio.run(write(HoldfastSessionService(app)))
"""


@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_two_processes_that_read_and_write_lose_nothing(place, tmp_path, request):
    url = str(tmp_path / "holdfast.db") if place == "sqlite" else request.getfixturevalue("postgres_url")
    with holdfast.open(url) as app:
        shop = Shop(app)
        shop.create()
        writers = [subprocess.Popen([sys.executable, "-c", WRITER, url]) for _ in range(2)]
        assert [one.wait(120) for one in writers] == [0, 0]
        assert shop.get().state == {"n": 50} and len(shop.get().events) == 50


def test_bad_input_is_refused_by_name():
    with pytest.raises(InvalidValue, match=r"'holdfast.db' is not an app \(give HoldfastSessionService"):
        HoldfastSessionService("holdfast.db")

"""The document on state of agents: conversation, task, user; patterns, their limits, and the questions that follow."""

import dataclasses
import threading
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

import holdfast
from holdfast import (
    InvalidState,
    InvalidTransition,
    Machine,
    PatchConflict,
    StateMutated,
    StatePatch,
    StepFailed,
    UserModel,
    agent,
)
from holdfast.threads import Threads

STORES = ("memory", "sqlite", "postgres")
DOCS = Path(__file__).parents[2] / "docs"


def said(text, role="user"):
    return {"role": role, "content": text}


def answer(messages):
    return said(f"{len(messages)} so far", "assistant")


@agent
def chat(task, text: str) -> str:
    task.message(said(text))
    reply = task.step(answer, task.messages)
    task.message(reply)
    return reply["content"]


def test_a_conversation_tells_how_many_tokens_it_has(app):
    """165"""
    app.run(chat, {"text": "hello " * 40}, id="a", thread="t")
    thread = app.thread("t")
    assert thread.context_tokens == thread.window().tokens > 40


def test_a_task_has_its_id_goal_status_and_data(app):
    """166"""

    @agent
    def booking(task):
        task.state.city = "Oslo"
        return task.id

    done = app.run(booking, id="b", goal="a trip")
    assert (done.id, done.goal, done.status, dict(done.state)) == ("b", "a trip", "completed", {"city": "Oslo"})


def test_one_nested_preference_of_a_user_is_changed(app):
    """168"""
    ana = app.user("ana")
    ana.state.preferences = {"seat": "aisle", "meal": "vegan"}
    ana.state.set("preferences.seat", "window")
    assert ana.state.preferences == {"seat": "window", "meal": "vegan"}
    with pytest.raises(StateMutated):
        ana.state.preferences["seat"] = "lost"


def test_the_history_of_a_user_grows_inside_of_an_object(app):
    """169"""
    ana = app.user("ana")
    ana.state.append("history.past_bookings", "OSL")
    ana.state.append("history.past_bookings", "FCO")
    assert ana.state["history.past_bookings"] == ["OSL", "FCO"]


@dataclasses.dataclass
class Profile:
    name: str
    seat: str = "aisle"


@dataclasses.dataclass
class Named:
    full_name: str


def test_the_state_of_a_user_is_validated_versioned_and_rolled_back(app):
    """170"""
    app.logs.users = UserModel(Profile)
    ana = app.user("ana")
    ana.state.name = "Ana"
    with pytest.raises(InvalidState):
        ana.state.seat = 7
    newer = UserModel(Named, version=2)
    newer.upcast(1, 2)(lambda old: {"full_name": old["name"]})
    app.logs.users = newer
    assert app.user("ana").state.model == Named("Ana")
    app.user("ana").state.full_name = "Ana B"
    assert dict(app.user("ana").rollback(versions=1).state) == {"full_name": "Ana"}


def test_a_call_without_state_needs_no_store():
    """171"""
    with holdfast.open("memory:") as app:
        assert app.run(chat, {"text": "hi"}).result == "1 so far"


def test_an_agent_in_memory_keeps_its_conversation():
    """172"""
    with holdfast.open("memory:") as app:
        app.run(chat, {"text": "one"}, thread="t")
        assert app.run(chat, {"text": "two"}, thread="t").result == "3 so far"


def test_what_is_appended_to_a_list_in_the_state_is_kept_or_refused(app):
    """173"""

    @agent
    def talking(task):
        task.state.conversation = []
        with pytest.raises(StateMutated):
            task.state["conversation"].append("lost")
        task.state.append("conversation", "kept")
        return list(task.state.conversation)

    assert app.run(talking, id="t").result == ["kept"]


def test_state_survives_a_restart(url, clock):
    """174"""
    if url == "memory:":
        pytest.skip("memory ends with the process")
    with holdfast.open(url, clock=clock) as app:
        app.run(chat, {"text": "one"}, id="a", thread="t", user="ana")
        app.user("ana").state.city = "Oslo"
    with holdfast.open(url, clock=clock) as app:
        assert app.run(chat, {"text": "two"}, id="b", thread="t", user="ana").result == "3 so far"
        assert app.user("ana").state.city == "Oslo"


def test_tasks_of_a_session_share_keys_and_values(app):
    """175"""

    @agent
    def counting(task):
        task.thread.state.increment("visits")
        task.thread.state.set("last.task", task.id)
        return task.thread.state.visits

    assert [app.run(counting, id=id, thread="session-1").result for id in ("a", "b")] == [1, 2]
    assert app.thread("session-1").state.all() == {"visits": 2, "last": {"task": "b"}}


def test_each_message_is_processed_in_turn(app):
    """176"""

    @agent(loop=True, max_turns=5)
    def processing(task):
        text = task.wait("message")
        task.state.append("seen", text)
        return list(task.state.seen) if text == "bye" else None

    app.run(processing, id="p")
    for text in ("hello", "bye"):
        app.signal("p", "message", text)
        done = app.resume("p", processing)
    assert done.result == ["hello", "bye"]


def test_replaying_the_events_gives_the_state_at_each(app):
    """177"""
    done = app.run(chat, {"text": "hello"}, id="c")
    assert [app.at("c", seq).seq for seq in range(1, done.seq + 1)] == list(range(1, done.seq + 1))
    assert app.at("c", done.seq).to_dict() == done.to_dict()


def test_the_hot_tier_is_memory(app):
    """179"""
    app.run(chat, {"text": "hello"}, id="c")
    before = app.logs.cache.counts.hits
    app.get("c")
    app.get("c")
    assert app.logs.cache.counts.hits > before


def test_the_docs_say_what_lies_in_the_warm_tier():
    """180: short tasks leave nothing there, by design."""
    tiers = (DOCS / "tiers.md").read_text("utf-8")
    assert "folded states of longer tasks" in tiers and "32 events" in tiers


def test_the_cold_tier_is_the_store(url, clock):
    """181"""
    with holdfast.open(url, clock=clock, cache_bytes=0) as app:
        app.run(chat, {"text": "hello"}, id="c")
        assert app.get("c").result == "1 so far" and app.verify().ok


def test_the_context_joins_recent_messages_session_and_user(app):
    """182"""

    @agent
    def gathering(task):
        task.message(said("now"))
        recent = [one["content"] for one in task.messages.window(max_tokens=1_000)]
        return [recent, task.thread.state.all(), task.user.state.all()]

    app.thread("t").message(said("before"))
    app.thread("t").state.topic = "lamps"
    app.user("ana").state.seat = "aisle"
    done = app.run(gathering, id="g", thread="t", user="ana")
    assert done.result == [["before", "now"], {"topic": "lamps"}, {"seat": "aisle"}]


def test_the_last_ten_messages_are_at_hand(app):
    """183"""
    app.thread("t").add([said(str(number)) for number in range(15)])

    @agent
    def recent(task):
        return [one["content"] for one in list(task.messages)[-10:]]

    assert app.run(recent, id="r", thread="t").result == [str(number) for number in range(5, 15)]


def test_a_cache_that_is_away_stops_nothing(url, clock):
    """184"""
    with holdfast.open(url, clock=clock, cache="redis://127.0.0.1:1/0") as app:
        assert app.run(chat, {"text": "hello"}, id="c").result == "1 so far"


def test_a_machine_of_ones_own_refuses_what_its_table_does_not_have(app):
    """185, 189"""
    moves = {"idle": ["planning"], "planning": ["planning", "done"], "done": []}
    machine = Machine(moves, start="idle", events={"begin": {"idle": "planning"}, "finish": {"planning": "done"}})

    @agent(phases=machine)
    def moving(task):
        task.phase(on="begin")
        task.phase("planning")
        with pytest.raises(InvalidTransition) as refused:
            task.phase("idle")
        task.phase(on="finish")
        return str(refused.value)

    done = app.run(moving, id="m")
    assert done.phase == "done" and "planning" in done.result and "idle" in done.result


def test_a_bounded_context_drops_the_oldest(app):
    """190"""
    thread = app.thread("t")
    thread.add([said(f"{number} " + "word " * 50) for number in range(10)])
    window = thread.window(max_tokens=200)
    assert 0 < len(window) < 10 and window[-1]["content"].startswith("9 ")


def test_a_bounded_context_summarises_the_oldest_once(app):
    """191, 192"""
    calls = []

    @agent
    def long_talk(task):
        for number in range(12):
            task.message(said(f"{number} " + "word " * 50))

        def short(text, **_):
            calls.append(1)
            if len(calls) == 1:
                raise RuntimeError("down")
            return "They talked."

        try:
            task.summarise(short, max_tokens=400, retry=1)
        except StepFailed:
            task.state.fallback = len(task.messages.window(max_tokens=400))
        task.wait("go")
        return task.state.fallback

    app.run(long_talk, id="l")
    app.signal("l", "go")
    assert app.resume("l", long_talk).result > 0 and len(calls) == 1


def test_several_writers_update_one_field_and_none_is_lost(app):
    """193"""

    def update():
        for _ in range(10):
            app.user("ana").state.update("n", lambda n: (n or 0) + 1)

    threads = [threading.Thread(target=update) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert app.user("ana").state.n == 30


def test_what_is_not_used_for_an_hour_expires(app, clock):
    """194"""
    app.thread("t").create(expire="1h")
    app.user("ana").update(expire="1h")
    app.records("s").append("k", b"1", expire="1h")
    clock.advance(3601)
    found = app.gc()
    assert (found.expired_threads, found.expired_users, found.expired_records) == (1, 1, 1)


def test_a_version_is_a_checkpoint_that_one_can_look_at_and_go_back_to(app):
    """195, 197"""

    @agent
    def versions(task):
        task.state.city = "Oslo"
        task.checkpoint("v1")
        task.state.city = "Rome"
        return task.wait("go")

    app.run(versions, id="v")
    seq = app.get("v").checkpoints["v1"]
    assert dict(app.at("v", seq).state) == {"city": "Oslo"}
    assert dict(app.rollback("v", to="v1").state) == {"city": "Oslo"}


def test_threads_messages_and_runs_as_hosted_assistants_have_them(app):
    """198"""
    threads = Threads(app, [chat])
    thread = threads.create(messages=[said("hello")], metadata={"plan": "gold"})
    run = threads.runs.create_and_wait(thread.id, "chat", input={"text": "again"})
    assert run.status == "completed" and threads.messages.list(thread.id).data[0].content == "2 so far"
    assert threads.runs.steps(run.id, thread_id=thread.id)[0].name == "answer"


def test_no_state_is_global(app):
    """200"""

    @agent
    def own(task, name: str):
        task.state.name = name
        return [task.state.name, task.thread.state.get("name")]

    found = [app.run(own, {"name": name}, id=name, thread=name).result for name in ("a", "b")]
    assert found == [["a", None], ["b", None]]


@dataclasses.dataclass
class Payment:
    payee: str
    amount: Annotated[float, msgspec.Meta(gt=0)] = 1.0


def test_an_amount_that_is_not_one_is_refused(app):
    """201"""

    @agent(state=Payment)
    def paying(task):
        refused = 0
        for wrong in (None, 0, -1, "much", float("nan")):
            with pytest.raises((InvalidState, holdfast.NotSerializable)):
                task.state.amount = wrong
            refused += 1
        return refused

    assert app.run(paying, id="p").result == 5


def test_a_field_that_is_missing_is_named(app):
    """202"""

    @agent(state=Payment)
    def paying(task):
        with pytest.raises(InvalidState) as missing:
            _ = task.state.model
        return str(missing.value)

    assert "payee" in app.run(paying, id="p").result


def test_the_docs_say_when_to_use_which():
    """203, 206"""
    assert "memory:" in (DOCS / "tiers.md").read_text("utf-8")
    assert (DOCS / "comparison.md").stat().st_size > 1_000


def test_a_stored_task_is_read_under_a_newer_model(app):
    """204"""

    @agent(name="paying", state=Payment)
    def first(task):
        task.state.payee = "ana"
        return task.wait("go")

    @dataclasses.dataclass
    class Paid:
        to: str

    @agent(name="paying", state=Paid, state_version=2)
    def second(task):
        task.wait("go")
        return task.state.to

    second.upcast(1, 2)(lambda old: {"to": old["payee"]})
    app.run(first, id="p")
    app.signal("p", "go")
    assert app.resume("p", second).result == "ana"


def test_outside_writers_with_equal_values_are_told_of_each_other(app):
    """207"""

    @agent
    def trip(task):
        task.state.city = "Oslo"
        return task.wait("go")

    seen = app.run(trip, id="t")
    app.patch("t", StatePatch(set={"city": "Rome"}), expect=seen.seq, by="ana")
    with pytest.raises(PatchConflict):
        app.patch("t", StatePatch(set={"city": "Rome"}), expect=seen.seq, by="ben")


def test_two_tasks_of_one_user_lose_no_update_in_silence(app):
    """208"""

    @agent
    def spending(task, points: int):
        left = task.user.state.points
        task.wait("go")
        task.user.state.points = left - points
        task.step(len, "spend")

    app.user("ana").state.points = 10
    for id, points in (("a", 3), ("b", 4)):
        app.run(spending, {"points": points}, id=id, user="ana")
    done = []
    for id in ("a", "b"):
        app.signal(id, "go")
        done.append(app.resume(id, spending))
    assert [one.status for one in done] == ["completed", "failed"]
    assert done[1].failure.code == "patch-conflict" and app.user("ana").state.points == 7


def test_two_users_at_once_stay_apart(app):
    """209"""

    @agent
    def counting(task):
        task.user.state.increment("n")
        task.step(len, "work")

    def run(user):
        for number in range(4):
            app.run(counting, id=f"{user}-{number}", user=user)

    threads = [threading.Thread(target=run, args=(user,)) for user in ("ana", "ben")]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (app.user("ana").state.n, app.user("ben").state.n) == (4, 4)


def test_a_flight_is_booked_across_sessions_and_threads(app):
    """210"""

    @agent
    def booking(task, city: str):
        task.thread.state.city = city
        seat = task.user.state.get("seat", "any")
        task.user.state.append("history.bookings", city)
        return f"{seat} seat to {task.thread.state.city}"

    app.user("ana").state.seat = "aisle"
    found = [
        app.run(booking, {"city": city}, id=city, user="ana", thread=f"t-{city}").result for city in ("OSL", "FCO")
    ]
    assert found == ["aisle seat to OSL", "aisle seat to FCO"]
    assert app.user("ana").state["history.bookings"] == ["OSL", "FCO"]

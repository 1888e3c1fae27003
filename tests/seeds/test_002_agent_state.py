"""Document 002, rows 118 to 164: what an agent's state is made of, and how it moves, is cut, saved and resumed."""

import asyncio
import copy
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

import pytest

import holdfast
from holdfast import (
    InvalidInput,
    InvalidMessage,
    InvalidState,
    InvalidTransition,
    InvalidValue,
    StateMutated,
    TaskNotFound,
    WindowTooSmall,
    agent,
    tool,
    window,
)
from holdfast.core.phases import PHASES
from holdfast.llm import ScriptedModel, ask_person, loop_agent, say, use
from holdfast.testing import crash_everywhere
from tests.engine.both import Crash

STORES = ("sqlite",)


class Mood(StrEnum):
    CALM = "calm"
    BUSY = "busy"


@dataclass
class Memory:
    goal: str = ""
    notes: dict[str, str] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)


@dataclass
class LessonState:
    iteration: int = 0
    mood: Mood = Mood.CALM
    since: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    memory: Memory = field(default_factory=Memory)
    final_answer: str = ""


# Five kinds of state


def test_a_conversation_is_kept_whole(app):
    """Row 118."""

    @agent
    def talks(task):
        task.message({"role": "user", "content": "hi"})
        task.message({"role": "assistant", "content": "hello"})

    assert [one["content"] for one in app.run(talks).messages] == ["hi", "hello"]
    app.run(talks, thread="th")
    assert len(app.thread("th").messages) == 2


def test_a_working_memory_is_written_and_read(app):
    """Row 119, 133 and 136."""

    @agent
    def works(task):
        task.goal("tidy up")
        task.plan(["look", "clean"])
        task.note("where", "attic")
        now = task.current
        return [now.goal, now.pending, now.notes["where"]]

    done = app.run(works)
    assert done.result == ["tidy up", ["look", "clean"], "attic"] and done.notes["where"] == "attic"


def test_an_agent_reads_its_phase(app):
    """Row 120."""

    @agent
    def plans(task):
        task.phase("planning")
        return task.current.phase

    assert app.run(plans).result == "planning"


@tool(effect="read")
def grep(pattern: str) -> list[str]:
    if pattern == "bad":
        raise ValueError("no such pattern")
    return [pattern]


@agent
def greps(task, pattern: str = "x"):
    return task.call(grep, pattern=pattern)


def test_every_call_of_a_tool_is_logged(app):
    """Row 121, 130 and 137."""
    call = app.run(greps).calls["grep#1"]
    assert (call.key, call.tool, dict(call.input), call.result) == ("grep#1", "grep", {"pattern": "x"}, ["x"])
    assert call.failure is None and call.started_at <= call.ended_at
    assert app.run(greps, {"pattern": "bad"}).calls["grep#1"].failure.message == "no such pattern"


def test_what_is_known_of_a_user_lasts(app):
    """Row 122."""

    @agent
    def learns(task):
        task.user.state.seat = "aisle"

    app.run(learns, user="ana")
    assert app.user("ana").state.seat == "aisle"


def test_a_state_of_dataclasses_comes_back_as_it_was(app):
    """Row 123."""
    seen = []

    @agent(state=LessonState)
    def lesson(task):
        task.state.mood = Mood.BUSY
        task.state.memory = Memory("learn", {"a": "b"})
        task.step(lambda: 1, name="one")
        seen.append(copy.deepcopy(task.state.model))
        task.wait("go")

    app.run(lesson, id="t")
    app.signal("t", "go")
    app.run(lesson, id="t")
    assert seen[0] == seen[1] == LessonState(mood=Mood.BUSY, memory=Memory("learn", {"a": "b"}))


def test_a_value_of_another_type_is_refused_when_it_is_written(app):
    """Row 124."""

    @agent(state=LessonState)
    def wrong(task):
        task.state.iteration = "one"

    failure = app.run(wrong).failure
    assert failure.type == InvalidState.__name__ and "iteration" in failure.message


def test_a_misspelt_field_is_refused(app):
    """Row 125."""

    @agent(state=LessonState)
    def wrong(task):
        task.state.final_anser = "x"

    assert "final_answer" in app.run(wrong).failure.message


def test_json_can_be_made_of_a_state(app):
    """Row 126."""

    @agent
    def knows(task):
        task.state.city = "Oslo"
        task.state.seats = [1, {"row": 2}]

    done = app.run(knows)
    assert json.loads(json.dumps(done.state)) == {"city": "Oslo", "seats": [1, {"row": 2}]}
    assert done.state == {"city": "Oslo", "seats": [1, {"row": 2}]} and {**done.state}["city"] == "Oslo"
    for change in (
        lambda: done.state.update(city="Rome"),
        lambda: done.state.__setitem__("city", "Rome"),
        lambda: setattr(done.state, "city", "Rome"),
        lambda: done.state["seats"].append(3),
        lambda: done.state.pop("city"),
    ):
        with pytest.raises(StateMutated, match=r"app\.patch"):
            change()


# Messages and calls


def test_a_role_that_no_provider_knows_is_refused(app):
    """Row 127."""

    @agent
    def talks(task):
        task.message({"role": "bot", "content": "hi"})

    assert app.run(talks).failure.type == InvalidMessage.__name__


def test_a_message_is_kept_as_it_was_given(app):
    """Row 128."""
    given = {"role": "assistant", "content": "hi", "model": "m", "usage": {"prompt_tokens": 1}}

    @agent
    def talks(task):
        task.message(given)

    assert app.run(talks).messages == [given]


def test_a_message_knows_when_it_came(app, clock):
    """Row 129."""

    @agent
    def talks(task):
        task.message({"role": "user", "content": "hi"})
        task.step(lambda: clock.advance(60), name="think")
        task.message({"role": "assistant", "content": "hello"})

    first, second = app.run(talks, id="t").messages
    assert (second.at - first.at).total_seconds() == pytest.approx(60, abs=0.1)
    assert app.at("t", first.seq).messages == [first] == [{"role": "user", "content": "hi"}]
    assert json.loads(json.dumps(first)) == first and type(copy.copy(first)) is dict


def test_a_call_knows_how_long_it_took_and_whether_it_succeeded(app, clock):
    """Row 131."""

    @tool(effect="read")
    def slow() -> None:
        clock.advance(1.5)

    @agent
    def waits(task):
        task.call(slow)
        task.call(grep, pattern="bad")

    calls = app.run(waits).calls
    assert calls["slow#1"].duration_ms == pytest.approx(1500, abs=1)
    assert (calls["slow#1"].succeeded, calls["grep#1"].succeeded) == (True, False)


def test_a_model_is_told_of_an_error_by_the_name_of_the_tool(app):
    """Row 132 and 146."""

    @agent
    def acts(task):
        reply = {"role": "assistant", "content": None, "tool_calls": []}
        for n, pattern in enumerate(("x", "bad")):
            function = {"name": "grep", "arguments": json.dumps({"pattern": pattern})}
            reply["tool_calls"].append({"id": f"c{n}", "type": "function", "function": function})
        task.message(reply)
        return [one["content"] for one in task.call_tools(reply, [grep])]

    assert app.run(acts).result == ['["x"]', "error: 'grep' failed after 1 attempt: ValueError: no such pattern"]


# Working memory


@pytest.mark.parametrize("given", ["input", "verb", "start", "contract"])
def test_a_goal_is_one_goal_however_it_is_given(app, given):
    """Row 133."""

    @agent
    def works(task, goal: str = ""):
        if given == "verb":
            task.goal("tidy up")
        return [task.current.goal, task.render("{goal}"), task.context("look", max_bytes=500).goal]

    done = app.run(
        works,
        {"goal": "tidy up"} if given == "input" else {},
        goal="tidy up" if given == "start" else "",
        contract={"goal": "tidy up"} if given == "contract" else None,
    )
    assert done.result == ["tidy up"] * 3
    assert done.goal == done.contract()["goal"] == "tidy up"


def test_an_agent_that_needs_a_goal_gets_the_one_its_task_has(app):
    """Row 133."""
    talker = loop_agent("talker", ScriptedModel([say("hello")]))
    for given in ({"goal": "say hello"}, {"contract": {"goal": "say hello"}}):
        done = app.run(talker, **given)
        assert (done.input["goal"], done.goal, done.messages[0]["content"]) == ("say hello",) * 3
    first = app.run(talker, id="t", goal="say hello")
    assert app.run(talker, {"goal": "say hello"}, id="t").seq == first.seq
    with pytest.raises(holdfast.InputConflict):
        app.run(talker, id="t", goal="say bye")
    with pytest.raises(InvalidInput, match="needs 'goal'"):
        app.run(talker)


def test_a_plan_tells_what_is_done_and_what_is_pending(app):
    """Row 134, and 167 of document 003."""

    @agent
    def works(task):
        task.plan(["look", "clean", "report"])
        task.done("look")

    done = app.run(works)
    assert (done.steps_completed, done.steps_remaining, done.current_step) == (1, 2, "clean")
    assert done.pending == ["clean", "report"]
    assert app.run(greps).current_step is None


def test_what_is_done_stays_done_in_a_new_plan(app):
    """Row 135."""

    @agent
    def replans(task):
        task.plan(["a", "b"])
        task.done("a")
        task.step(lambda: 1, name="one")
        task.plan(["a", "c"])
        task.patch({"replace_plan": ["c", "a", "d"]})
        task.wait("go")

    app.run(replans, id="t")
    assert [(one.text, one.done) for one in app.get("t").plan] == [("c", False), ("a", True), ("d", False)]
    app.patch("t", {"replace_plan": ["e", "a"]})
    assert [(one.text, one.done) for one in app.get("t").plan] == [("e", False), ("a", True)]
    app.signal("t", "go")
    assert app.run(replans, id="t").steps_completed == 1


def test_a_change_in_place_is_refused_with_the_verb_that_makes_it(app):
    """Row 138."""

    @agent(state=LessonState)
    def mutates(task):
        task.state.memory.notes["a"] = "b"
        task.step(lambda: 1, name="one")

    failure = app.run(mutates).failure
    assert failure.type == StateMutated.__name__ and "memory" in failure.message

    @agent
    def appends(task):
        task.state.history = []
        task.state.history.append("hi")

    failure = app.run(appends).failure
    assert failure.type == StateMutated.__name__ and "append" in failure.message

    @agent(state=LessonState)
    def by_path(task):
        task.state.set("memory.notes", {"a": "b"})
        task.state.append("memory.history", "hi")
        return task.state.memory.history

    assert app.run(by_path).result == ["hi"]


def test_a_task_has_what_the_lessons_agent_state_has(app):
    """Row 139 and 141."""
    done = app.run(loop_agent("talker", ScriptedModel([say("hello")])), {"goal": "say hello"}, id="t")
    assert done.id == "t" and done.created_at < done.updated_at
    assert (done.turn, len(done.messages), done.result, done.failure) == (1, 2, "hello", None)
    seqs = [one.seq for one in app.events("t")]
    assert seqs == list(range(1, done.seq + 1))


# Phases


def test_what_a_user_says_begins_a_task_in_one_call(app):
    """Row 140."""

    @agent
    def begins(task, text: str):
        task.begin(text)
        now = task.current
        return [now.phase, now.goal, [dict(one) for one in now.messages]]

    done = app.run(begins, {"text": "tidy up"})
    assert done.result == ["planning", "tidy up", [{"role": "user", "content": "tidy up"}]]

    kept = app.run(begins, {"text": "tidy up"}, goal="clean the house")
    assert kept.result[1] == "clean the house"


@pytest.mark.parametrize("before", PHASES)
@pytest.mark.parametrize("after", PHASES)
def test_only_the_moves_of_the_table_are_made(before, after):
    """Row 142, 148 and 149."""
    way = {"idle": [], "planning": ["planning"], "executing": ["planning", "executing"]}
    way["reflecting"] = [*way["executing"], "reflecting"]
    way["waiting_feedback"] = [*way["executing"], "waiting_feedback"]
    way["done"], way["error"] = [*way["executing"], "done"], ["error"]

    @agent
    def moves(task):
        for phase in way[before]:
            task.phase(phase)
        task.phase(after)
        return "moved"

    with holdfast.open("memory:") as app:
        done = app.run(moves)
    assert (done.result == "moved") is (after in PHASES[before])
    assert done.failure is None or done.failure.type == InvalidTransition.__name__


def test_a_task_that_returns_is_done_with_its_answer_as_a_message(app):
    """Row 143."""

    @agent
    def answers(task):
        task.begin("what is 6 times 7?")
        return task.reply("42")

    done = app.run(answers)
    assert (done.phase, done.result, done.messages[-1]) == ("done", "42", {"role": "assistant", "content": "42"})


def test_a_task_that_raises_is_in_error_with_its_message(app):
    """Row 144."""

    @agent
    def fails(task):
        task.phase("planning")
        raise ValueError("no")

    done = app.run(fails)
    assert (done.phase, done.failure.message) == ("error", "no")


def test_error_is_final_and_a_reopened_task_is_where_it_was(app):
    """Row 145."""
    with pytest.raises(InvalidTransition, match="final"):
        holdfast.core.phases.check_move(None, "error", "planning", "")
    tries = []

    @agent
    def once_more(task):
        task.phase("planning")
        task.phase("executing")
        task.step(lambda: tries.append(1) or 1 / (len(tries) - 1), name="work")
        task.phase("reflecting")
        return task.current.phase

    assert app.run(once_more, id="t").phase == "error"
    assert app.reopen("t", by="ana").phase == "executing"
    done = app.run(once_more, id="t")
    assert (done.result, done.phase) == ("reflecting", "done")


def test_what_was_read_before_is_not_changed_by_a_transition(app):
    """Row 147."""

    @agent
    def waits(task):
        task.phase("planning")
        task.wait("go")

    before = app.run(waits, id="t")
    app.signal("t", "go")
    after = app.run(waits, id="t")
    assert (before.phase, after.phase) == ("planning", "done")
    assert app.at("t", before.seq).phase == "planning"


def test_nothing_runs_in_a_task_that_is_done(app):
    """Row 150."""
    done = app.run(greps, id="t")
    assert app.run(greps, id="t").seq == done.seq


# Windows


def talk(turns, words=30):
    messages = [{"role": "system", "content": "You are kind."}]
    for n in range(turns):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        messages += [
            {"role": "user", "content": f"question {n} " + "word " * words},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"result {n} " + "word " * words},
            {"role": "assistant", "content": f"answer {n}"},
        ]
    return messages


def test_messages_are_sent_in_the_form_of_the_provider(app):
    """Row 151."""

    @agent
    def talks(task):
        for message in talk(1):
            task.message(message)
        sent = task.messages.window()
        return [sent[3]["tool_call_id"], len(sent.render("anthropic"))]

    assert app.run(talks).result == ["c0", 4]


@pytest.mark.parametrize("limit", range(200, 1_400, 100))
def test_a_plain_list_is_cut_from_its_oldest_and_never_between_a_call_and_its_result(limit):
    """Row 152, 153 and 157."""
    messages = talk(12)
    sent = window(messages, max_tokens=limit)
    assert sent[0] == messages[0] and sent.tokens <= limit and len(sent) > 1
    kept = [one for one in sent if "left out" not in (one["content"] or "")]
    assert [one for one in messages if one in kept] == kept
    called = {call["id"] for one in sent for call in one.get("tool_calls") or ()}
    assert called == {one["tool_call_id"] for one in sent if one["role"] == "tool"}
    assert sent[-1] == messages[-1] and sent.left_out


def test_a_plain_list_that_fits_is_given_back_as_it_is():
    """Row 157."""
    assert window(talk(3)) == talk(3) and window([]) == []
    with pytest.raises(InvalidMessage):
        window({"role": "user", "content": "hi"})
    with pytest.raises(InvalidMessage):
        window([{"role": "bot", "content": "hi"}])
    with pytest.raises(InvalidValue):
        window(talk(1), max_tokens=0)


def test_tokens_are_counted_by_a_counter_of_ones_own():
    """Row 154."""
    counter = len
    sent = window(talk(12), max_tokens=2_000, counter=counter)
    assert sent.basis == "exact" and sum(counter(one["content"] or "") for one in sent) <= 2_000


@pytest.mark.parametrize("turns", [1, 4, 6])
def test_the_last_turns_are_kept_or_the_window_is_refused(turns):
    """Row 155."""
    messages = talk(12)
    sent = window(messages, max_tokens=1_600, keep_turns=turns)
    assert list(sent)[-2 * turns :] == messages[-2 * turns :]
    with pytest.raises(WindowTooSmall):
        window(talk(12, words=2_000), max_tokens=300, keep_turns=6)


def test_what_is_pinned_stays():
    """Row 156."""
    messages = talk(12)
    assert messages[1] in window(messages, max_tokens=500, pinned=[1])


# Checkpoints


def test_a_task_is_saved_to_a_file_and_read_from_it(app, tmp_path):
    """Row 158 and 160."""
    done = app.run(loop_agent("talker", ScriptedModel([use("grep", pattern="x"), say("done")]), [grep]), {"goal": "go"})
    app.export(done.id, tmp_path / "task.jsonl")
    with holdfast.open(tmp_path / "other.db") as other:
        other.import_(tmp_path / "task.jsonl")
        assert other.get(done.id).to_dict() == done.to_dict()


def test_a_checkpoint_that_is_not_there_is_said_to_be_missing(app):
    """Row 159."""
    with pytest.raises(TaskNotFound) as missing:
        app.get("none")
    assert missing.value.hint


def test_tasks_at_the_same_time_do_not_overwrite_each_other(tmp_path):
    """Row 161."""

    @agent
    async def counts(task, n: int):
        task.state.n = n
        await task.step(lambda: n, name="work")
        return task.state.n

    async def all_of_them(app):
        return await asyncio.gather(*(app.arun(counts, {"n": n}, id=f"t{n}") for n in range(20)))

    with holdfast.open(tmp_path / "x.db") as app:
        assert [one.result for one in asyncio.run(all_of_them(app))] == list(range(20))


def test_a_loop_is_resumed_in_the_turn_it_was_in(tmp_path):
    """Row 162 and 163."""
    searched, crashed = [], []

    @agent(loop=True, max_turns=20)
    def orchestrates(task):
        task.step(lambda: searched.append(task.turn), name="search")
        if task.turn == 2 and not crashed:
            crashed.append(True)
            raise Crash
        return "done" if task.turn == 3 else None

    with holdfast.open(tmp_path / "x.db") as app:
        with pytest.raises(Crash):
            app.run(orchestrates, id="t")
        assert app.get("t").turn == 2
        assert app.run(orchestrates, id="t").result == "done"
        assert searched == [1, 2, 3]

        @agent(loop=True, max_turns=20)
        def endless(task):
            task.step(lambda: 1, name="work")

        done = app.run(endless)
        assert (done.failure.code, done.turn) == ("turn-limit", 20)


def test_the_loop_survives_a_crash_anywhere(tmp_path):
    """Row 162."""
    model = ScriptedModel([use("grep", pattern="x"), say("done")])
    report = crash_everywhere(loop_agent("talker", model, [grep]), {"goal": "go"}, sample=6, directory=tmp_path)
    assert report.survived == report.tried > 0


def test_a_task_has_an_answer_or_the_reason_why_not(app):
    """Row 164."""
    told = [
        one.result or (one.failure and one.failure.message)
        for one in (app.run(greps), app.run(greps, {"pattern": "bad"}))
    ]
    assert told[0] == ["x"] and "no such pattern" in told[1]


# A person


def test_a_model_asks_a_person_and_waits_for_the_answer(app):
    """The tool beside row 188 of document 003."""
    model = ScriptedModel([use("ask_person", question="Which seat?"), lambda messages: say(messages[-1]["content"])])
    booker = loop_agent("booker", model, [ask_person, grep])
    waiting = app.run(booker, {"goal": "book"}, id="t")
    assert (waiting.status, waiting.waiting.kind, waiting.phase) == ("waiting", "person", "waiting_feedback")
    [asked] = app.inbox("t")
    assert asked.prompt == "Which seat?"
    assert app.answer("t", asked.key, "aisle", by="ana").phase == "executing"
    done = app.run(booker, {"goal": "book"}, id="t")
    assert (done.result, done.phase) == ("aisle", "done")


def test_the_ready_tools_are_for_models(app, texts):
    @agent
    def wrong(task):
        return task.call(ask_person, question="Which seat?")

    texts.check(app.run(wrong).failure.message)
    with texts.raises(InvalidValue):
        ask_person(question="Which seat?")

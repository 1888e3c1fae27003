"""Asking a destination once more, from outside: the call is settled if it knows, and stays in doubt if it does not."""

import asyncio

import pytest

import holdfast
from holdfast import Call, DidNotHappen, Happened, InvalidValue, Task, Unknown, agent, tool
from holdfast.core.errors import InvalidEvent

BANK = {"says": Unknown(), "asked": []}


def ask_bank(call: Call):
    BANK["asked"].append((call.step, call.arguments, call.idempotency_key))
    if isinstance(BANK["says"], Exception):
        raise BANK["says"]
    return BANK["says"]


async def ask_slowly(call: Call):
    await asyncio.sleep(0)
    return ask_bank(call)


@tool(effect="once", reconcile=ask_bank, reconcile_after="0s")
def pay(euros: int) -> str:
    raise OSError("504 Gateway Timeout")


@tool(effect="once", reconcile=ask_slowly, reconcile_after="0s")
def pay_slowly(euros: int) -> str:
    raise OSError("504 Gateway Timeout")


@tool(effect="once")
def blind(euros: int) -> str:
    raise OSError("504 Gateway Timeout")


@tool(effect="once", reconcile=ask_bank, reconcile_after="1h")
def patient(euros: int) -> str:
    raise OSError("504 Gateway Timeout")


@agent(tools=[pay])
def payer(task: Task, which: str) -> str:
    return task.call({"pay": pay, "slow": pay_slowly, "blind": blind, "patient": patient}[which], euros=44)


def in_doubt(app, which="pay", id="t"):
    BANK.update(says=Unknown(), asked=[])
    task = app.run(payer, {"which": which}, id=id, hold=0)
    assert task.waiting is not None and task.waiting.kind in ("doubt", "timer"), task.waiting
    BANK["asked"].clear()


@pytest.mark.parametrize(("says", "happened"), [(Happened("r-1"), True), (DidNotHappen(), False)])
def test_a_destination_that_knows_settles_the_call(url, says, happened):
    with holdfast.open(url, agents=[payer]) as app:
        in_doubt(app)
        BANK["says"] = says
        app.reconcile("t", "pay#1", by="ana")
        settled = next(one.event for one in app.events("t") if one.kind == "step_settled")
        assert (settled.happened, settled.by, settled.why) == (happened, "reconcile", "ana asked the destination")
        assert [one[:2] for one in BANK["asked"]] == [("pay#1", {"euros": 44})] and BANK["asked"][0][2]


def test_a_destination_that_can_not_tell_leaves_it_in_doubt(url):
    with holdfast.open(url, agents=[payer]) as app:
        in_doubt(app)
        before = app.head("t")
        assert app.reconcile("t", "pay#1").waiting.kind == "doubt"
        BANK["says"] = ConnectionError("no route to the bank")
        with pytest.raises(InvalidEvent, match="could not be asked: ConnectionError: no route to the bank"):
            app.reconcile("t", "pay#1")
        assert app.head("t") == before, "nothing is written"


def test_an_async_reconcile_is_awaited_and_the_verb_can_be_awaited_too(url):
    with holdfast.open(url) as app:
        in_doubt(app, "slow")
        BANK["says"] = Happened("r-2")
        task = asyncio.run(app.aio.reconcile("t", "pay_slowly#1", pay_slowly, by="ana"))
        assert task.steps["pay_slowly#1"].result == "r-2"


@pytest.mark.parametrize(
    ("which", "call", "given", "told"),
    [
        ("pay", "nope#1", pay, "call 'nope#1' is not in doubt"),
        ("slow", "pay_slowly#1", None, "the tool 'pay_slowly' is not known here"),
        ("blind", "blind#1", blind, "declares no reconcile="),
        ("patient", "patient#1", patient, "may still be on its way"),
    ],
)
def test_what_can_not_be_asked_is_refused_with_a_remedy(tmp_path, which, call, given, told):
    with holdfast.open(tmp_path / "store.db") as app:
        in_doubt(app, which)
    with holdfast.open(tmp_path / "store.db") as app:  # which has run no agent, so it knows no tool
        with pytest.raises((InvalidEvent, InvalidValue), match=told) as refused:
            app.reconcile("t", call, given)
        assert refused.value.hint and BANK["asked"] == []


def test_a_result_that_the_tool_can_not_have_is_refused():
    with holdfast.open("memory:", agents=[payer]) as app:
        in_doubt(app)
        BANK["says"] = Happened(7)
        with pytest.raises(InvalidValue, match="'pay' can't have given 7"):
            app.reconcile("t", "pay#1")

"""Calls that were open when their task was taken over: what is believed of them, and from when on."""

import pytest

import holdfast
from holdfast import DidNotHappen, Happened, Unknown, events as ev, tool
from holdfast.core.limits import LEASE_SECONDS
from holdfast.failpoints import armed
from tests.engine.both import declarer

STORES = ("memory", "sqlite", "postgres")


class Died(BaseException):
    """The worker is gone."""


def dies(app, bank):
    """Run a task up to its first call, which is announced. From there on whatever goes on meets its end."""
    agent, passed = payer(declarer("def"), bank), set()

    def die(name):
        passed.add(name)
        if "act.before" in passed:
            raise Died

    with pytest.raises(Died), armed(die):
        app.run(agent, id="t")


class Bank:
    """A destination that knows what it has seen, and notes when it was asked."""

    def __init__(self, clock):
        self._clock = clock
        self.paid, self.asked = [], []
        self.answer = DidNotHappen()

    def find(self, call):
        self.asked.append(self._clock.now_us())
        return self.answer

    def pay(self):
        self.paid.append(self._clock.now_us())
        return f"paid-{len(self.paid)}"


@pytest.fixture
def bank(clock):
    return Bank(clock)


def payer(either, bank, **declared):
    @tool(name="pay", effect="once", **{"reconcile": bank.find, "reconcile_after": 0, **declared})
    def pay() -> str:
        return bank.pay()

    @either(name="payer")
    def agent(task):
        return (yield task.call(pay))

    return agent


@pytest.fixture
def cut_off(app, bank, monkeypatch):
    """Leave a call announced and unanswered, and make the next one who runs the task another worker."""

    def leave(loss):
        dies(app, bank)
        monkeypatch.setattr(app.store, "holder", lambda: "another")
        monkeypatch.setattr(app.store, "loss", lambda holder, lease=None: loss)

    return leave


def doubts(app):
    return [one.event for one in app.events("t") if isinstance(one.event, ev.StepDoubted)]


def claims(app):
    return [one.event.taken for one in app.events("t") if isinstance(one.event, ev.TaskClaimed)]


def test_after_a_proven_take_over_a_call_that_did_not_happen_is_made_again_at_once(app, bank, either, cut_off):
    agent = payer(either, bank)
    cut_off("proven")
    done = app.run(agent, id="t", hold=0)
    assert (done.status, done.result, len(bank.paid)) == ("completed", "paid-1", 1)
    assert claims(app) == ["", "proven"] and [one.until_us for one in doubts(app)] == [0]


@pytest.mark.parametrize(("declared", "seconds"), [({"timeout": "10s"}, 10), ({}, LEASE_SECONDS)])
def test_after_a_presumed_one_it_is_not_believed_undone_before_its_time_limit(
    app, clock, bank, either, cut_off, declared, seconds
):
    agent = payer(either, bank, **declared)
    cut_off("presumed")
    taken_us = clock.now_us()
    waits = app.run(agent, id="t", hold=0)
    assert (waits.status, waits.waiting.kind, bank.paid) == ("waiting", "doubt", [])
    assert len(bank.asked) == 1, "that it happened would be believed at once"
    assert claims(app) == ["", "presumed"]
    (doubt,) = doubts(app)
    assert doubt.until_us - taken_us == pytest.approx(seconds * 1_000_000, abs=1_000)
    clock.advance(seconds - 0.1)
    assert app.run(agent, id="t", hold=0).status == "waiting" and bank.paid == []
    clock.advance(0.2)
    done = app.run(agent, id="t", hold=0)
    assert (done.status, done.result) == ("completed", "paid-1")
    assert len(bank.asked) >= 2 and bank.asked[-1] >= doubt.until_us, "it was asked again before it was made again"


def test_what_the_living_worker_still_did_is_found_when_the_time_limit_is_over(app, clock, bank, either, cut_off):
    agent = payer(either, bank, timeout="10s")
    cut_off("presumed")
    assert app.run(agent, id="t", hold=0).status == "waiting"
    bank.answer = Happened("by the other")
    clock.advance(10.1)
    done = app.run(agent, id="t", hold=0)
    assert (done.result, bank.paid) == ("by the other", [])


def test_a_call_that_happened_is_believed_at_once_after_any_take_over(app, bank, either, cut_off):
    agent = payer(either, bank)
    cut_off("presumed")
    bank.answer = Happened("found")
    done = app.run(agent, id="t", hold=0)
    assert (done.status, done.result, bank.paid) == ("completed", "found", [])


@pytest.mark.parametrize("answer", [None, Unknown()])
def test_a_call_that_may_be_repeated_is_not_before_its_time_limit(app, clock, bank, either, cut_off, answer):
    given = {"reconcile": None} if answer is None else {}
    bank.answer = answer
    agent = payer(either, bank, on_doubt="retry", timeout="10s", **given)
    cut_off("presumed")
    assert app.run(agent, id="t", hold=0).status == "waiting" and bank.paid == []
    clock.advance(10.1)
    done = app.run(agent, id="t", hold=0)
    assert (done.status, len(bank.paid)) == ("completed", 1)


@pytest.mark.parametrize(("policy", "status"), [("ask", "waiting"), ("fail", "failed")])
def test_what_is_neither_believed_nor_repeated_waits_for_nothing(app, bank, either, cut_off, policy, status):
    bank.answer = Unknown()
    agent = payer(either, bank, on_doubt=policy)
    cut_off("presumed")
    done = app.run(agent, id="t", hold=0)
    assert (done.status, bank.paid) == (status, [])
    assert status != "waiting" or done.waiting.kind == "doubt"


def test_whoever_takes_it_next_obeys_the_same_time(app, clock, bank, either, cut_off, monkeypatch):
    agent = payer(either, bank, timeout="10s")
    cut_off("presumed")
    assert app.run(agent, id="t", hold=0).status == "waiting"
    monkeypatch.setattr(app.store, "holder", lambda: "a third")
    monkeypatch.setattr(app.store, "loss", lambda holder, lease=None: "proven")
    clock.advance(5)
    assert app.run(agent, id="t", hold=0).status == "waiting" and bank.paid == []
    clock.advance(5.1)
    assert app.run(agent, id="t", hold=0).status == "completed" and len(bank.paid) == 1


def test_a_call_announced_after_the_take_over_is_the_new_workers_own(app, bank, either, monkeypatch):
    """It was presumed once; when the next worker dies for certain, its own call is asked about at once."""
    agent = payer(either, bank)
    app.start(agent, id="t")
    app.append("t", ev.TaskClaimed(holder="silent", taken=""))
    monkeypatch.setattr(app.store, "loss", lambda holder, lease=None: "presumed")
    dies(app, bank)
    monkeypatch.setattr(app.store, "holder", lambda: "another")
    monkeypatch.setattr(app.store, "loss", lambda holder, lease=None: "proven")
    done = app.run(agent, id="t", hold=0)
    assert claims(app) == ["", "presumed", "proven"]
    assert (done.status, len(bank.paid)) == ("completed", 1)


@pytest.mark.parametrize(("word", "is_waited_for"), [("dead", False), ("lease", True)])
def test_claims_of_older_logs_keep_their_meaning(app, bank, either, cut_off, word, is_waited_for):
    agent = payer(either, bank)
    cut_off("proven")
    app.append("t", ev.TaskClaimed(holder="another", taken=word))
    done = app.run(agent, id="t", hold=0)
    assert (done.status == "waiting", bank.paid == []) == (is_waited_for, is_waited_for)


def test_a_task_of_a_worker_that_counts_as_alive_is_busy(app, bank, either, cut_off):
    agent = payer(either, bank)
    cut_off(None)
    with pytest.raises(holdfast.TaskBusy):
        app.run(agent, id="t")
    assert bank.paid == [] and claims(app) == [""]

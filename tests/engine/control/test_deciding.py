"""People decide, about what they saw: `bound=`, SelfApproval, one approval for one attempt."""

import pytest

from holdfast import Budget, InvalidEvent, NotDone, Retry, SelfApproval, StatePatch, tool

STORES = ("memory", "sqlite", "postgres")


def refunder(either, paid, cents, **options):
    @tool(effect="once", risk="money")
    def refund(cents: int) -> str:
        paid.append(cents)
        return f"refunded {cents}"

    @either(required_for_risk_levels=["money"], **{"on_change": "rerun", **options})
    def worker(task):
        return (yield task.call(refund, cents=cents[-1]))

    return worker


def test_one_whose_screen_is_stale_approves_nothing(app, either):
    """One person approves 44; the code then asks for 440 under the same key; a second one still sees 44."""
    paid, cents = [], [44]
    worker = refunder(either, paid, cents)
    app.run(worker, id="t")
    screen = next(app.inbox())
    assert screen.arguments == {"cents": 44} and screen.bound
    app.approve("t", screen.key, bound=screen.bound, by="ana")
    cents.append(440)
    assert app.run(worker, id="t").status == "waiting"
    for decide in (app.approve, app.reject):
        for given in ({"bound": screen.bound}, {}):
            with pytest.raises(InvalidEvent) as refused:
                decide("t", screen.key, by="ben", **given)
            assert "holdfast inbox" in refused.value.hint
    assert app.run(worker, id="t").status == "waiting" and paid == []
    now = next(app.inbox())
    app.approve("t", now.key, bound=now.bound, by="ben")
    assert app.run(worker, id="t").result == "refunded 440" and paid == [440]


def test_a_digest_of_anything_else_is_refused(app, either):
    worker = refunder(either, [], [44])
    app.run(worker, id="t")
    for wrong in ("", "0" * 12, "refund#1"):
        with pytest.raises(InvalidEvent):
            app.approve("t", "refund#1", bound=wrong, by="ana")
    assert app.get("t").status == "waiting"


def test_the_digest_covers_what_the_agent_itself_asks(app, either):
    @either()
    def worker(task):
        return (yield task.approve("Delete 3 files?"))

    app.run(worker, id="t")
    item = next(app.inbox())
    app.approve("t", item.key, bound=item.bound, by="ana")
    assert app.run(worker, id="t").result is True


# An agent can't decide


@pytest.mark.parametrize("verb", ["approve", "reject", "settle", "raise_budget"])
@pytest.mark.parametrize("place", ["body", "step", "tool"])
def test_no_agent_decides_from_its_code(app, either, verb, place):
    app.run(refunder(either, [], [44]), id="other")
    decisions = {
        "approve": lambda: app.approve("other", "refund#1", by="ana"),
        "reject": lambda: app.reject("other", "refund#1", by="ana"),
        "settle": lambda: app.settle("other", "refund#1", happened=True, by="ana"),
        "raise_budget": lambda: app.raise_budget("other", Budget(tokens=10), by="ana"),
    }
    refused = []

    def decide():
        try:
            decisions[verb]()
        except SelfApproval as error:
            refused.append(error)

    @tool(effect="idempotent")
    def sly() -> None:
        decide()

    @either()
    def worker(task):
        if place == "body":
            decide()
        elif place == "step":
            yield task.step(decide, name="sly")
        else:
            yield task.call(sly)
        return 1

    app.run(worker, id="t")
    assert [error.code for error in refused] == ["self-approval"] and app.get("other").status == "waiting"


def test_whoever_acts_for_the_task_cannot_decide(app, either):
    worker = refunder(either, [], [44])
    app.run(worker, id="t", by="mcp:desktop/ana")
    app.patch("t", StatePatch(set={"n": 1}), by="mcp:editor/ben")
    for by in ("worker", "mcp:desktop/ana", "mcp:editor/ben"):
        with pytest.raises(SelfApproval) as refused:
            app.approve("t", "refund#1", by=by)
        assert repr(by) in refused.value.message
    app.approve("t", "refund#1", by="mcp:desktop/ana (elicited)")
    assert app.get("t").status == "pending"


def test_the_actors_of_a_parent_cannot_decide_either(app, either):
    child = refunder(either, [], [44])

    @either(name="boss")
    def parent(task):
        return (yield task.spawn(child, name="child"))

    app.run(parent, id="t", by="mcp:desktop/ana")
    for by in ("boss", "mcp:desktop/ana"):
        with pytest.raises(SelfApproval):
            app.approve("t/child#1", "refund#1", by=by)


def test_a_fork_keeps_the_actors_of_its_past(app, either):
    worker = refunder(either, [], [44])
    app.run(worker, id="t", by="mcp:desktop/ana")
    app.fork("t", id="f", by="mcp:other/eve")
    app.run(worker, id="f")
    for by in ("mcp:desktop/ana", "mcp:other/eve"):
        with pytest.raises(SelfApproval):
            app.approve("f", "refund#1", by=by)


# One approval, one attempt


def test_an_approval_covers_one_attempt_that_may_have_had_an_effect(app, either):
    """One approval covered three attempts over two resumes."""
    paid = []

    @tool(effect="once", risk="money", on_doubt="retry")
    def refund(cents: int) -> str:
        paid.append(cents)
        if len(paid) < 3:
            raise ConnectionResetError
        return "refunded"

    @either(required_for_risk_levels=["money"], retries=Retry(attempts=3, first=0))
    def worker(task):
        return (yield task.call(refund, cents=44))

    app.run(worker, id="t")
    for times in (1, 2, 3):
        assert app.get("t").waiting.kind == "person" and len(paid) == times - 1
        item = next(app.inbox())
        app.approve("t", item.key, bound=item.bound, by="ana")
        app.run(worker, id="t")
    assert app.get("t").result == "refunded" and len(paid) == 3


def test_an_attempt_that_surely_did_nothing_leaves_the_approval(app, either):
    paid = []

    @tool(effect="once", risk="money")
    def refund(cents: int) -> str:
        paid.append(cents)
        if len(paid) == 1:
            raise NotDone("no connection")
        return "refunded"

    @either(required_for_risk_levels=["money"], retries=Retry(attempts=3, first=0))
    def worker(task):
        return (yield task.call(refund, cents=44))

    app.run(worker, id="t")
    app.approve("t", "refund#1", by="ana")
    assert app.run(worker, id="t").result == "refunded" and len(paid) == 2


def test_a_resumed_task_asks_again_for_a_call_that_may_have_happened(app, either):
    paid = []

    @tool(effect="once", risk="money", on_doubt="fail")
    def refund(cents: int) -> str:
        paid.append(cents)
        raise ConnectionResetError

    @either(required_for_risk_levels=["money"])
    def worker(task):
        return (yield task.call(refund, cents=44))

    app.run(worker, id="t")
    app.approve("t", "refund#1", by="ana")
    assert app.run(worker, id="t").status == "failed"
    refund.on_doubt = refund.on_raise = "retry"
    app.resume("t", worker)
    assert len(paid) == 1 and app.get("t").waiting.kind == "person"


def test_an_approval_is_not_used_after_its_expiry(app, either, clock):
    paid = []

    @tool(effect="once", risk="money", retry=Retry(attempts=2, first=3600, most=3600))
    def refund(cents: int) -> str:
        paid.append(cents)
        raise NotDone("try later")

    @either(required_for_risk_levels=["money"])
    def worker(task):
        return (yield task.call(refund, cents=44))

    app.run(worker, id="t")
    app.approve("t", "refund#1", by="ana", expires="30m")
    assert app.run(worker, id="t").waiting.kind == "timer" and len(paid) == 1
    clock.advance(4000)
    waiting = app.run(worker, id="t")
    assert waiting.waiting.kind == "person" and len(paid) == 1

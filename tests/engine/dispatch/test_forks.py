"""Forks and rollbacks: what is inherited, what is asked again, and what is never touched."""

import contextlib

import pytest

import holdfast
from holdfast import DidNotHappen, Happened, StatePatch, agent, events as ev, tool
from holdfast.testing.crash.everywhere import MovableClock
from tests.engine.both import Crash, declarer, events, kinds

CLOCK = MovableClock


def shop_on(either, did, **options):
    """An agent that looks, pays and ships, on a world that remembers."""

    def tool_of(name, effect, **more):
        def fn(order: int, *, idempotency_key: str) -> str:
            did.append((name, idempotency_key))
            return f"{name} {len(did)}"

        return tool(effect=effect, name=name, **more)(fn)

    look, pay, ship = tool_of("look", "read"), tool_of("pay", "once", **options), tool_of("ship", "idempotent")

    @either(name="shop")
    def shop(task):
        found = yield task.call(look, order=1)
        price = yield task.step(lambda: did.append(("price", "")) or 3, name="price")
        paid = yield task.call(pay, order=task.state.get("order", 1))
        return [found, price, paid, (yield task.call(ship, order=1))]

    return shop


def names(did):
    return [name for name, _ in did]


def test_a_fork_inherits_what_was_done_and_does_nothing_of_it_again(app, either):
    did = []
    shop = shop_on(either, did)
    done = app.run(shop, id="t")
    fork = app.fork("t", id="f")
    assert fork.status == "pending" and fork.result is None
    again = app.run(shop, id="f")
    assert (again.status, again.result) == ("completed", done.result) and len(did) == 4
    assert app.get("t").to_dict() == done.to_dict(), "the parent is as it was"


def test_by_default_a_fork_asks_before_it_makes_a_once_call(app, either):
    did = []
    shop = shop_on(either, did)
    app.run(shop, id="t")
    app.fork("t", at=app.step("t", "look#1").after, id="f")
    waiting = app.run(shop, id="f")
    assert (waiting.status, waiting.waiting.kind) == ("waiting", "person")
    assert names(did) == ["look", "price", "pay", "ship", "price"], "steps go on, the payment does not"
    app.approve("f", "pay#1", by="ana")
    assert app.run(shop, id="f").status == "completed"
    assert names(did)[-2:] == ["pay", "ship"] and did[2][1] != did[-2][1], "it is another call, with another key"


def test_a_refused_call_of_a_fork_fails_it_and_leaves_the_parent_alone(app, either):
    did = []
    shop = shop_on(either, did)
    done = app.run(shop, id="t")
    app.fork("t", at=2, id="f")
    app.run(shop, id="f")
    app.reject("f", "pay", by="bob")
    assert app.run(shop, id="f").failure.code == "approval-denied"
    assert names(did).count("pay") == 1 and app.get("t").seq == done.seq


def test_a_live_fork_makes_its_calls(app, either):
    did = []
    shop = shop_on(either, did)
    app.run(shop, id="t")
    app.fork("t", at=2, id="f", effects="live")
    assert app.run(shop, id="f").status == "completed" and names(did).count("pay") == 2


def test_a_recorded_fork_touches_nothing(app, either):
    did = []
    shop = shop_on(either, did)
    done = app.run(shop, id="t")
    app.fork("t", at=2, id="f", effects="recorded")
    replayed = app.run(shop, id="f")
    assert replayed.status == "completed", replayed.failure
    assert replayed.result == done.result
    assert names(did) == ["look", "price", "pay", "ship", "price"]
    assert {event.source for event in events(app, "step_completed", "f") if event.tool} == {
        "t/look#1",
        "t/pay#1",
        "t/ship#1",
    }


def test_a_recorded_fork_fails_as_its_parent_did(app, either):
    made = []

    @tool(effect="once", definite=[ValueError])
    def pay() -> None:
        made.append(1)
        raise ValueError("declined")

    @either()
    def worker(task):
        yield task.call(pay)

    failed = app.run(worker, id="t")
    app.fork("t", at=2, id="f", effects="recorded")
    assert app.run(worker, id="f").failure.message == failed.failure.message and made == [1]


def test_a_recorded_fork_uses_mocks_and_says_what_it_does_not_know(app, either):
    did = []

    @tool(effect="once", mock="pretended")
    def with_value() -> str:
        did.append("real")
        return "real"

    @tool(effect="once", mock=lambda n: f"pretended {n}")
    def with_function(n: int) -> str:
        did.append("real")
        return "real"

    @tool(effect="read")
    def without() -> str:
        did.append("real")
        return "real"

    @either()
    def worker(task):
        yield task.wait("go", timeout=0)
        mocked = [(yield task.call(with_value)), (yield task.call(with_function, n=3))]
        task.state.mocked = mocked
        yield task.call(without)

    app.start(worker, id="t")
    app.fork("t", id="f", effects="recorded")
    failed = app.run(worker, id="f")
    assert failed.failure.code == "not-recorded" and "without#1" in failed.failure.message
    assert failed.state["mocked"] == ["pretended", "pretended 3"] and did == []


def test_a_recorded_fork_fails_as_its_mock_does(app, either):
    def broken(n):
        raise ValueError(f"no {n}")

    @tool(effect="once", mock=broken)
    def pay(n: int) -> str:
        pytest.fail("nothing is touched")

    @either()
    def worker(task):
        yield task.wait("go", timeout=0)
        yield task.call(pay, n=3)

    app.start(worker, id="t")
    app.fork("t", id="f", effects="recorded")
    failed = app.run(worker, id="f")
    assert failed.status == "failed" and "ValueError: no 3" in failed.failure.message
    assert app.run(worker, id="f").failure == failed.failure


def test_an_open_call_that_was_inherited_fails_as_it_did_for_the_parent(app, either):
    @tool(effect="once", retry_on=[], reconcile=lambda call: pytest.fail("the parent knows"), reconcile_after=0)
    def pay() -> str:
        raise holdfast.NotDone("no money")

    @either()
    def worker(task):
        return (yield task.call(pay))

    failed = app.run(worker, id="t")
    assert failed.status == "failed"
    (announced,) = [record.seq for record in app.events("t") if record.kind == "step_started"]
    app.fork("t", at=announced, id="f", effects="live")
    assert app.run(worker, id="f").failure.message == failed.failure.message


def test_a_recorded_fork_does_not_answer_for_another_call(app):
    """Patched, it comes to pay for another order; its parent never did."""
    did = []
    shop = shop_on(declarer("def"), did)
    app.run(shop, id="t")
    app.fork("t", at=2, id="f", effects="recorded", patch=StatePatch(set={"order": 2}))
    failed = app.run(shop, id="f")
    assert failed.status == "failed" and failed.failure.code in ("not-recorded", "step-changed")


def test_a_recorded_fork_of_a_loop_replays_each_turn_with_its_own_record(app):
    made = []

    @tool(effect="once")
    def tick() -> int:
        made.append(1)
        return len(made)

    @agent(loop=True)
    def clock(task):
        task.state.append("ticks", task.call(tick))
        return task.state.ticks if task.turn == 3 else None

    app.run(clock, id="t")
    app.fork("t", at=2, id="f", effects="recorded")
    assert app.run(clock, id="f").result == [1, 2, 3] and len(made) == 3


def test_a_patch_changes_what_the_fork_sees_where_it_begins(app, either):
    did = []
    seen = []

    @tool(effect="once")
    def pay(order: int) -> int:
        did.append(order)
        return order

    @either()
    def worker(task):
        yield task.step(lambda: 1, name="one")
        seen.append(task.state.get("order", 1))
        return (yield task.call(pay, order=task.state.get("order", 1)))

    app.run(worker, id="t")
    app.fork("t", at=app.step("t", "one#1").after, id="f", effects="live", patch=StatePatch(set={"order": 2}))
    assert app.run(worker, id="f").result == 2 and did == [1, 2] and seen == [1, 2]
    assert "order" not in app.get("t").state


@pytest.mark.parametrize("loop", [False, True])
def test_a_patch_is_seen_by_a_fork_from_a_place_where_nothing_was_done_yet(app, loop):
    seen = []

    @agent(loop=loop)
    def worker(task):
        seen.append(task.state.get("order", 1))
        task.step(lambda: 1, name="one")
        return "done"

    app.run(worker, id="t")
    place = [record.seq for record in app.events("t") if record.kind in ("task_claimed", "turn_started")][-1]
    app.fork("t", at=place, id="f", patch=StatePatch(set={"order": 2}))
    app.run(worker, id="f")
    assert seen == [1, 2]


def test_a_fork_does_not_inherit_approvals(app):
    made = []

    @tool(effect="idempotent", risk="money")
    def pay() -> int:
        made.append(1)
        return 1

    @agent(required_for_risk_levels=["money"])
    def worker(task):
        return task.call(pay)

    app.run(worker, id="t")
    app.approve("t", "pay#1")
    app.fork("t", id="f", effects="live")
    assert app.run(worker, id="f").waiting.kind == "person" and made == []
    assert app.run(worker, id="t").result == 1


def test_a_fork_does_not_inherit_what_is_to_be_undone_nor_the_deadline(app, clock):
    undone, mood = [], ["wait"]

    def undo(call):
        undone.append(call.task_id)

    @tool(effect="once", compensate=undo)
    def book() -> int:
        return 1

    @agent(deadline="10m")
    def worker(task):
        task.call(book)
        if mood[-1] == "fail":
            raise ValueError("no")
        task.wait("go")

    app.run(worker, id="t")
    clock.advance(601)
    app.fork("t", id="f")
    mood.append("fail")
    failed = app.run(worker, id="f")
    assert failed.failure.type == "ValueError" and undone == []


@pytest.mark.parametrize("effects", ["ask", "live"])
def test_an_open_call_that_was_inherited_is_asked_of_the_parents_log_first(app, either, effects):
    did = []

    @tool(effect="once", reconcile=lambda call: pytest.fail("the parent knows"), reconcile_after=0)
    def pay() -> str:
        did.append("pay")
        return "paid"

    @either()
    def worker(task):
        return (yield task.call(pay))

    app.run(worker, id="t")
    (announced,) = [record.seq for record in app.events("t") if record.kind == "step_started"]
    app.fork("t", at=announced, id="f", effects=effects)
    assert app.run(worker, id="f").result == "paid" and did == ["pay"]


def test_an_open_call_that_was_inherited_and_is_open_there_too_is_in_doubt(app, either):
    did, asked = [], []

    def find(call):
        asked.append(call.idempotency_key)
        return Happened("found")

    @tool(effect="once", reconcile=find, reconcile_after=0)
    def pay(*, idempotency_key: str) -> str:
        did.append(idempotency_key)
        raise Crash

    @either()
    def worker(task):
        return (yield task.call(pay))

    with contextlib.suppress(Crash):
        app.run(worker, id="t")
    app.fork("t", id="f", effects="live")
    assert app.run(worker, id="f").result == "found"
    assert asked == did, "it is asked about under the key it was made with"


def test_an_inherited_call_that_did_not_happen_is_made_under_its_own_old_key(app):
    """The parent may still make it: with the same key, the destination sees one call."""
    did = []

    @tool(effect="once", reconcile=lambda call: DidNotHappen(), reconcile_after=0)
    def pay(*, idempotency_key: str) -> str:
        did.append(idempotency_key)
        if len(did) == 1:
            raise Crash
        return "paid"

    @agent
    def worker(task):
        return task.call(pay)

    with contextlib.suppress(Crash):
        app.run(worker, id="t")
    app.fork("t", id="f", effects="live")
    assert app.run(worker, id="f").result == "paid"
    assert did[1] == did[0]


def test_an_inherited_open_idempotent_call_keeps_its_key(app):
    did = []

    @tool(effect="idempotent", unique="user-{name}")
    def create(name: str, *, idempotency_key: str) -> str:
        did.append(idempotency_key)
        if len(did) == 1:
            raise Crash
        return name

    @agent
    def worker(task):
        return task.call(create, name="ana")

    with contextlib.suppress(Crash):
        app.run(worker, id="t")
    app.fork("t", id="f", effects="live")
    app.run(worker, id="t")
    assert app.run(worker, id="f").result == "ana"
    assert len(set(did)) == 1


def test_a_call_left_open_that_a_patched_fork_does_not_come_to_can_be_settled(app):
    @tool(effect="once")
    def pay() -> None:
        raise Crash

    @agent
    def worker(task):
        task.step(lambda: 1, name="one")
        if not task.state.get("skip"):
            task.call(pay)
        return "skipped"

    with contextlib.suppress(Crash):
        app.run(worker, id="t")
    app.fork("t", id="f", patch=StatePatch(set={"skip": True}))
    waiting = app.run(worker, id="f")
    assert waiting.waiting.kind == "doubt"
    app.settle("f", "pay#1", happened=False)
    assert app.run(worker, id="f").result == "skipped"


def test_a_fork_of_a_fork_goes_back_as_far_as_it_must(app, either):
    did = []
    shop = shop_on(either, did)
    done = app.run(shop, id="t")
    app.fork("t", at=app.step("t", "look#1").after, id="f", effects="recorded")
    app.run(shop, id="f")
    app.fork("f", at=app.step("f", "price#1").after, id="g", effects="recorded")
    assert app.run(shop, id="g").result == done.result and names(did).count("pay") == 1


# Rollbacks


def test_a_rollback_is_refused_while_a_call_is_in_doubt(app, texts):
    @tool(effect="once")
    def pay() -> None:
        raise Crash

    @agent
    def worker(task):
        task.step(lambda: 1, name="one")
        task.call(pay)

    with contextlib.suppress(Crash):
        app.run(worker, id="t")
    app.run(worker, id="t")
    with texts.raises(holdfast.InvalidEvent):
        app.rollback("t")


def test_a_rollback_stops_whoever_works_on_the_task(app):
    made = []

    @agent
    def worker(task):
        task.step(lambda: 1, name="one")
        task.step(lambda: app.rollback("t", to=2) and None, name="two")
        made.append("after")

    with pytest.raises(holdfast.LeaseLost):
        app.run(worker, id="t")
    assert made == [] and "two#1" not in app.get("t").steps


def test_an_idempotent_call_that_was_tried_again_and_rolled_back_is_not_made_again(app):
    made = []

    @tool(effect="idempotent", retry=holdfast.Retry(2, first=0))
    def create() -> int:
        made.append(1)
        if len(made) == 1:
            raise ConnectionError("503")
        return len(made)

    @agent
    def worker(task):
        return task.call(create)

    assert app.run(worker, id="t").result == 2
    app.rollback("t", to=2)
    assert app.run(worker, id="t").result == 2 and len(made) == 2


def test_a_rollback_to_a_checkpoint_goes_on_from_there(app, either):
    made = []

    @either()
    def worker(task):
        first = yield task.step(lambda: made.append("first") or len(made), name="first")
        yield task.checkpoint("half")
        return [first, (yield task.step(lambda: made.append("second") or len(made), name="second"))]

    app.run(worker, id="t")
    app.rollback("t", to="half")
    assert app.run(worker, id="t").result == [1, 3] and made == ["first", "second", "second"]


# Resuming what failed


def test_resuming_tries_the_step_afresh_that_ended_the_task(app):
    tries = []

    def broken(which):
        tries.append(which)
        if tries.count(which) == 1:
            raise ValueError(which)
        return which

    @agent
    def worker(task):
        kept = None
        try:
            first = task.step(broken, "a", name="a")
        except holdfast.StepFailed as error:
            kept = error
        with contextlib.suppress(holdfast.StepFailed):
            task.step(broken, "b", name="b")
        if kept is not None:
            raise kept
        return first

    assert "'a#1'" in app.run(worker, id="t").failure.message
    assert app.resume("t", worker).result == "a"
    assert tries == ["a", "b", "a"], "what the code caught stays as it was"


def test_resuming_a_map_of_which_two_failed_tries_the_one_that_ended_it(app):
    tries = []

    def broken(n):
        tries.append(n)
        if tries.count(n) == 1:
            raise ValueError(str(n))
        return n

    @agent
    def worker(task):
        return task.map(broken, [0, 1], limit=1)

    assert "~1/broken#1" in app.run(worker, id="t").failure.message
    resumed = app.resume("t", worker)
    assert tries == [0, 1, 0], "the first is tried afresh"
    assert resumed.status == "failed" and "~2/broken#1" in resumed.failure.message
    assert app.resume("t", worker).result == [0, 1]


def test_a_zombie_makes_no_further_call_whatever_it_catches(app, either):
    did = []

    @tool(effect="once")
    def pay() -> None:
        did.append("paid")

    @either()
    def worker(task):
        try:
            yield task.step(lambda: app.append("t", ev.TaskClaimed(holder="1-other")) and None, name="overtaken")
        except BaseException:
            task.note("after", 1)
        finally:
            yield task.call(pay)
        return "done"

    with contextlib.suppress(holdfast.LeaseLost):
        app.run(worker, id="t")
    assert did == [] and app.get("t").holder == "1-other"
    assert kinds(app)[-1] in ("task_claimed", "step_observed")

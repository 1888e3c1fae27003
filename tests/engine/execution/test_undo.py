"""Undoing: what was done is taken back, last things first, whatever happens in between."""

import asyncio
import os

import pytest

import holdfast
from holdfast import DidNotHappen, Happened, Retry, agent, tool
from holdfast.testing.crash.everywhere import MovableClock
from tests.engine.both import KINDS, Crash, declarer, events, kinds

CLOCK = MovableClock


class Trip:
    """Bookings that can be taken back."""

    def __init__(self, fails=()):
        self.did = []
        self._fails = list(fails)

        def cancel_flight(call):
            return self._undo(f"undo flight {call.result} {call.arguments['to']}", call)

        def cancel_hotel(call):
            return self._undo(f"undo hotel {call.result}", call)

        def refund(amount):
            return self._undo(f"refund {amount}")

        self.refund = refund
        self.flight = tool(effect="once", name="flight", compensate=cancel_flight)(self._flight)
        self.hotel = tool(effect="idempotent", name="hotel", compensate=cancel_hotel)(self._hotel)

    def _flight(self, to: str) -> str:
        self.did.append("flight")
        return "F1"

    def _hotel(self) -> str:
        self.did.append("hotel")
        return "H1"

    def _undo(self, what, call=None):
        assert call is None or call.idempotency_key
        if self._fails and self._fails[0] in what:
            self._fails.pop(0)
            raise ConnectionError("503")
        self.did.append(what)


def traveller(either, trip, **options):
    @either(name="traveller", **options)
    def worker(task):
        yield task.call(trip.flight, to="Oslo")
        task.compensate(trip.refund, amount=7)
        yield task.call(trip.hotel)
        raise ValueError("no museum")

    return worker


ALL = os.environ.get("HOLDFAST_TEST_ALL") == "1"
UNDONE = ["flight", "hotel", "undo hotel H1", "refund 7", "undo flight F1 Oslo"]


def test_a_failed_task_undoes_what_it_did_last_things_first(app, either):
    trip = Trip()
    failed = app.run(traveller(either, trip), id="t")
    assert (failed.status, failed.failure.type, failed.failure.message) == ("failed", "ValueError", "no museum")
    assert trip.did == UNDONE
    assert app.run(traveller(either, trip), id="t").status == "failed" and trip.did == UNDONE


def test_a_completed_task_undoes_nothing(app, either):
    trip = Trip()

    @either()
    def worker(task):
        return (yield task.call(trip.flight, to="Oslo"))

    assert app.run(worker, id="t").result == "F1" and trip.did == ["flight"]


def test_what_failed_is_not_undone(app, either):
    undone = []

    def undo(call):
        undone.append(call.step)

    @tool(effect="idempotent", compensate=undo, definite=[ValueError])
    def broken() -> None:
        raise ValueError("no")

    @either()
    def worker(task):
        yield task.call(broken)

    assert app.run(worker, id="t").status == "failed" and undone == []


def test_undoing_is_tried_again(app, either):
    trip = Trip(fails=["refund"] * 2)
    retry = Retry(3, first=0)

    @tool(effect="idempotent", retry=retry, name="refund")
    def refund(amount: int) -> None:
        trip.refund(amount)

    @either()
    def worker(task):
        task.compensate(refund, amount=7)
        yield task.call(trip.flight, to="Oslo")
        raise ValueError("no museum")

    assert app.run(worker, id="t").status == "failed"
    assert trip.did == ["flight", "undo flight F1 Oslo", "refund 7"]


def test_what_cannot_be_undone_is_noted_and_the_rest_is(app, either):
    undone = []

    def broken(n):
        raise ConnectionError("503")

    fast = tool(effect="idempotent", retry=Retry(2, first=0), name="broken")(broken)

    def works(n):
        undone.append(n)

    @either()
    def worker(task):
        task.compensate(works, n=1)
        task.compensate(fast, n=2)
        task.compensate(works, n=3)
        yield task.step(lambda: 1, name="one")
        raise ValueError("no museum")

    failed = app.run(worker, id="t")
    assert undone == [3, 1]
    assert any("broken" in note and "503" in note for note in failed.failure.notes), failed.failure


def test_a_cancelled_task_undoes_what_it_did(app, either):
    trip = Trip()

    @either()
    def worker(task):
        yield task.call(trip.flight, to="Oslo")
        yield task.wait("go")

    app.run(worker, id="t")
    app.cancel("t", by="ana", why="ill")
    done = app.run(worker, id="t")
    assert done.status == "cancelled" and trip.did == ["flight", "undo flight F1 Oslo"]
    cancelled = events(app, "task_cancelled")[0]
    assert (cancelled.by, cancelled.why) == ("ana", "ill")


def test_what_was_undone_is_not_reopened(app, either, texts):
    trip = Trip()
    worker = traveller(either, trip)
    app.run(worker, id="t")
    with texts.raises(holdfast.InvalidEvent) as refused:
        app.resume("t", worker)
    assert refused.value.hint and trip.did == UNDONE


def test_an_undoing_that_takes_the_form_of_async_functions(app, either):
    undone = []

    async def take_back(call):
        await asyncio.sleep(0)
        undone.append(call.result)

    async def refund(amount):
        undone.append(amount)

    @tool(effect="once", compensate=take_back)
    async def book() -> str:
        return "B1"

    @either()
    def worker(task):
        task.compensate(refund, amount=7)
        yield task.call(book)
        raise ValueError("no")

    assert app.run(worker, id="t").status == "failed" and undone == ["B1", 7]


def test_a_transaction_is_undone_too(app, either):
    undone = []

    def unbook(call):
        undone.append(call.result)

    @tool(effect="transaction", compensate=unbook)
    def book(*, connection) -> int:
        return 7

    @either()
    def worker(task):
        yield task.call(book)
        raise ValueError("no")

    assert app.run(worker, id="t").status == "failed" and undone == [7]


def test_a_call_in_doubt_is_settled_before_anything_is_undone(app, either):
    trip = Trip()
    crashes = [Crash]

    def undo_pay(call):
        trip.did.append(f"undo pay {call.result}")

    @tool(effect="once", compensate=undo_pay)
    def pay() -> str:
        if crashes:
            raise crashes.pop()
        return "never"

    @either()
    def worker(task):
        yield task.call(trip.flight, to="Oslo")
        yield task.call(pay)
        yield task.step(lambda: trip.did.append("more"), name="more")

    with pytest.raises(Crash):
        app.run(worker, id="t")
    app.cancel("t")
    waiting = app.run(worker, id="t")
    assert (waiting.status, waiting.waiting.kind, trip.did) == ("waiting", "doubt", ["flight"])
    app.settle("t", "pay#1", happened=True, result="P1")
    assert app.run(worker, id="t").status == "cancelled"
    assert trip.did == ["flight", "undo pay P1", "undo flight F1 Oslo"]


def test_a_call_in_doubt_that_can_be_asked_about_holds_up_no_cancellation(app, either):
    undone = []

    def undo_pay(call):
        undone.append(call.result)

    crashes = [Crash]

    @tool(effect="once", compensate=undo_pay, reconcile=lambda call: Happened("found"), reconcile_after=0)
    def pay() -> str:
        raise crashes.pop()

    @either()
    def worker(task):
        yield task.call(pay)
        yield task.step(lambda: undone.append("more"), name="more")

    with pytest.raises(Crash):
        app.run(worker, id="t")
    app.cancel("t")
    assert app.run(worker, id="t").status == "cancelled" and undone == ["found"]


def test_a_loop_undoes_what_it_did_in_earlier_turns(url, clock):
    trip = Trip()

    def declare(tools):
        @agent(name="looper", loop=True, tools=tools)
        def looper(task):
            if task.turn == 1:
                task.call(trip.flight, to="Oslo")
                return
            task.wait("go")
            raise ValueError("no")

        return looper

    with holdfast.open(url, clock=clock) as app:
        app.run(declare([trip.flight]), id="t")
        app.signal("t", "go")
        failed = app.run(declare([trip.flight]), id="t")
        assert failed.status == "failed" and trip.did == ["flight", "undo flight F1 Oslo"]


def test_an_undoing_that_nobody_knows_is_named_with_a_remedy_and_can_be_made_up_for(app, texts):
    trip = Trip()

    def declare(tools):
        @agent(name="looper", loop=True, tools=tools)
        def looper(task):
            if task.turn == 1:
                task.call(trip.flight, to="Oslo")
                return
            task.wait("go")
            raise ValueError("no")

        return looper

    app.run(declare([]), id="t")
    app.signal("t", "go")
    with texts.raises(holdfast.InvalidValue):
        app.run(declare([]), id="t")
    assert app.get("t").status != "failed"
    assert app.run(declare([trip.flight]), id="t").status == "failed"
    assert trip.did == ["flight", "undo flight F1 Oslo"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_a_crash_in_the_middle_of_undoing_is_survived(crash_everywhere, kind, end):
    either = declarer(kind)
    did = []

    def undo(call):
        did.append((call.idempotency_key, "undone"))

    found = {
        "reconcile": lambda call: Happened("B") if (call.idempotency_key, "done") in did else DidNotHappen(),
        "reconcile_after": 0,
    }

    @tool(effect="once", compensate=undo, **found)
    def book(n: int, *, idempotency_key: str) -> str:
        did.append((idempotency_key, "done"))
        return "B"

    @either(name="booker")
    def worker(task):
        for n in range(2):
            yield task.call(book, n=n)
        if end == "cancelled":
            yield task.wait("go")
        raise ValueError("no")

    def check(state, world):
        assert state.status == end
        keys = list(dict.fromkeys(key for key, what in did if what == "done"))
        assert [what for _, what in did].count("done") == 2
        undone = [key for key, what in did if what == "undone"]
        assert list(dict.fromkeys(undone)) == keys[::-1]
        assert len(undone) <= 3, "at most the one under way at the crash is repeated"

    def finish(app, state):
        app.cancel(state.id)

    crash_everywhere(
        worker,
        check=check,
        setup=lambda app: did.clear(),
        finish=finish if end == "cancelled" else None,
        store="memory:",
        sample=None if ALL else 40,
    )


def test_undoing_leaves_its_own_steps_in_the_log(app, either):
    trip = Trip()
    app.run(traveller(either, trip), id="t")
    assert kinds(app).count("undo_started") == 1
    undone = [step.key for step in app.steps("t") if step.key.startswith("~undo/")]
    assert undone == ["~undo/cancel_hotel#1", "~undo/refund#1", "~undo/cancel_flight#1"]
    assert app.verify("t").ok


def test_a_rollback_does_not_forget_what_would_have_to_be_undone(app):
    trip = Trip()
    mood = ["go on"]

    @agent
    def worker(task):
        task.call(trip.flight, to="Oslo")
        if mood[-1] == "fail":
            raise ValueError("no")
        return "done"

    app.run(worker, id="t")
    app.rollback("t")
    mood.append("fail")
    assert app.run(worker, id="t").status == "failed"
    assert trip.did == ["flight", "undo flight F1 Oslo"]

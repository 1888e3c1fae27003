"""What calls do to the world: once, in doubt, under unique keys, in transactions, and without telling secrets."""

import asyncio
import contextlib
import json
import threading
import time
from datetime import timedelta

import msgspec
import pytest

import holdfast
from holdfast import DidNotHappen, Happened, NotDone, Retry, Secret, Unknown, agent, tool
from holdfast.failpoints import armed
from holdfast.testing.crash.everywhere import MovableClock
from tests.engine.both import KINDS, Crash, declarer, events, kinds
from tests.waiting import until

STORES = ("memory", "sqlite", "postgres")
CLOCK = MovableClock

FAST = Retry(3, first=0)
TOKEN = "hunter2-very-secret"
pytestmark = pytest.mark.usefixtures("impatient")


def payer(paid, **options):
    """A tool that pays once, and a list of what was paid."""

    @tool(effect="once", **options)
    def pay(order: int, amount: int = 3) -> str:
        paid.append((order, amount))
        return f"receipt {len(paid)}"

    return pay


def crashed(work):
    """The process dies in the middle of something."""
    with contextlib.suppress(Crash):
        work()


def together(*works):
    """Do things at once in threads; gives what each returned, or its exception."""
    outcomes = [None] * len(works)
    start = threading.Barrier(len(works))

    def run(index, work):
        start.wait()
        try:
            outcomes[index] = work()
        except BaseException as error:
            outcomes[index] = error

    threads = [threading.Thread(target=run, args=one) for one in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


# Retries


def test_a_call_with_arguments_that_was_tried_again_is_found_on_replay(app, either):
    tries = []

    def flaky(city, *, units="C"):
        tries.append(city)
        if len(tries) < 3:
            raise ConnectionError("503")
        return f"{city} 3{units}"

    @either()
    def worker(task):
        found = yield task.step(flaky, "Oslo", units="F", retry=FAST)
        yield task.wait("go")
        return found

    waiting = app.run(worker, id="t")
    assert waiting.status == "waiting", waiting.failure
    assert dict(waiting.steps["flaky#1"].input) == {"city": "Oslo", "units": "F"}
    app.signal("t", "go")
    assert app.run(worker, id="t").result == "Oslo 3F"
    assert tries == ["Oslo"] * 3


@pytest.mark.parametrize("effect", ["read", "idempotent", "transaction"])
def test_a_tool_that_was_tried_again_keeps_its_key_and_its_kind(app, either, effect):
    keys = []

    @tool(effect=effect, retry=FAST)
    def look(city: str, *, idempotency_key: str, connection) -> str:
        keys.append(idempotency_key)
        if len(keys) < 3:
            raise ConnectionError("503")
        return city

    @either()
    def worker(task):
        return (yield task.call(look, city="Oslo"))

    done = app.run(worker, id="t")
    assert done.result == "Oslo" and len(set(keys)) == 1 and len(keys) == 3
    call = done.calls["look#1"]
    assert (call.effect, call.attempts, call.idempotency_key, dict(call.input)) == (
        effect,
        3,
        keys[0],
        {"city": "Oslo"},
    )


def test_a_long_wait_before_the_next_try_releases_the_task(app, clock, either):
    tries = []

    def flaky(n):
        tries.append(n)
        if len(tries) == 1:
            raise ConnectionError("503")
        return n

    @either()
    def worker(task):
        return (yield task.step(flaky, 7, retry=Retry(2, first=3600, most=3600)))

    waiting = app.run(worker, id="t")
    assert (waiting.status, waiting.waiting.kind, waiting.holder) == ("waiting", "timer", None)
    assert app.run(worker, id="t").status == "waiting" and tries == [7]
    clock.advance(3601)
    assert app.run(worker, id="t").result == 7


@pytest.mark.parametrize("end", ["cancel", "deadline"])
def test_a_task_can_end_while_a_once_call_waits_for_its_next_try(app, clock, end):
    @tool(effect="once", retry=Retry(3, first=3600, most=3600))
    def pay() -> None:
        raise NotDone("the reader is off")

    @agent(deadline="10m")
    def worker(task):
        task.call(pay)

    assert app.run(worker, id="t").waiting.kind == "timer"
    if end == "cancel":
        app.cancel("t")
    clock.advance(3601)
    assert app.run(worker, id="t").status == ("cancelled" if end == "cancel" else "failed")


def test_retry_on_lets_a_once_tool_be_repeated_for_the_errors_it_names(app, either):
    tries = []

    @tool(effect="once", retry=FAST, retry_on=[ConnectionRefusedError])
    def pay(amount: int) -> str:
        tries.append(amount)
        if len(tries) == 1:
            raise ConnectionRefusedError("nobody there")
        if len(tries) == 2:
            raise ConnectionResetError("gone in the middle")
        return "paid"

    @either()
    def worker(task):
        return (yield task.call(pay, amount=3))

    waiting = app.run(worker, id="t")
    assert waiting.status == "waiting" and waiting.waiting.kind == "doubt" and tries == [3, 3]


# In doubt


def test_a_crash_between_the_announcement_and_the_record_is_asked_about(app, either):
    asked, paid = [], []

    def find(call):
        asked.append((call.tool, call.arguments, call.idempotency_key, call.task_id, call.step))
        return Happened("found")

    @tool(effect="once", reconcile=find, reconcile_after=0)
    def pay(order: int, *, idempotency_key: str) -> str:
        paid.append(idempotency_key)
        raise Crash

    @either()
    def worker(task):
        return (yield task.call(pay, order=17))

    crashed(lambda: app.run(worker, id="t"))
    done = app.run(worker, id="t")
    assert done.result == "found"
    assert asked == [("pay", {"order": 17}, paid[0], "t", "pay#1")] and len(paid) == 1
    assert kinds(app).count("step_doubted") == 1
    assert events(app, "step_settled")[0].by == "reconcile"


def test_a_destination_is_not_asked_before_a_while_after_the_announcement(app, either, late):
    times = []

    def find(call):
        times.append((time.time(), call.announced_at))
        return Happened("found")

    @tool(effect="once", timeout="20ms", reconcile=find, reconcile_after="300ms")
    def pay() -> str:
        late.wait(20)
        return "late"

    @either()
    def worker(task):
        return (yield task.call(pay))

    assert app.run(worker, id="t").result == "found"
    assert times[0][0] - times[0][1] >= 0.299


def test_a_second_call_in_doubt_is_not_asked_about_too_early_either(app, late):
    """What matters is when the call was announced last: that one may still be on the wire."""
    times = []

    def find(call):
        times.append((time.time(), call.announced_at))
        return DidNotHappen() if len(times) == 1 else Happened("second")

    @tool(effect="once", timeout="80ms", reconcile=find, reconcile_after="300ms", abandoned_after="100ms")
    def pay() -> str:
        late.wait(20)
        return "late"

    @agent
    def worker(task):
        return task.call(pay)

    assert app.run(worker, id="t").result == "second"
    (first, _), (second, announced), *_ = times  # a late answer in between has it asked once more
    assert second - announced >= 0.299
    assert first <= announced, "it was announced again after the first answer"


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("kind", ["def", "async"])
def test_a_reconcile_may_be_async(app, kind, late):
    either = declarer(kind)

    async def find(call):
        await asyncio.sleep(0)
        return Happened("found")

    @tool(effect="once", timeout="20ms", reconcile=find, reconcile_after=0)
    def pay() -> str:
        late.wait(20)
        return "late"

    @either()
    def worker(task):
        return (yield task.call(pay))

    assert app.run(worker, id="t").result == "found"


@pytest.mark.parametrize("answer", [Unknown(), None, "yes", True, ValueError("down")])
def test_an_answer_that_is_none_leaves_it_to_a_person(app, either, answer, late):
    def find(call):
        if isinstance(answer, Exception):
            raise answer
        return answer

    @tool(effect="once", timeout="20ms", reconcile=find, reconcile_after=0)
    def pay() -> str:
        late.wait(20)
        return "late"

    @either()
    def worker(task):
        return (yield task.call(pay))

    waiting = app.run(worker, id="t")
    assert (waiting.status, waiting.waiting.kind, waiting.calls["pay#1"].status) == ("waiting", "doubt", "doubt")
    app.settle("t", "pay#1", happened=True, result="seen", by="ana", why="it is on the statement")
    assert app.run(worker, id="t").result == "seen"
    settled = events(app, "step_settled")[0]
    assert (settled.by, settled.why) == ("ana", "it is on the statement")


def test_a_call_that_a_person_says_did_not_happen_is_made_again(app, either, late):
    paid = []

    @tool(effect="once", timeout="200ms")
    def pay(order: int) -> str:
        paid.append(order)
        if len(paid) == 1:
            late.wait(20)
        return f"receipt {len(paid)}"

    @either()
    def worker(task):
        return (yield task.call(pay, order=17))

    assert app.run(worker, id="t").waiting.kind == "doubt"
    app.settle("t", "pay#1", happened=False, by="ana")
    assert app.run(worker, id="t").result == "receipt 2" and len(paid) == 2


def test_only_a_call_in_doubt_is_settled(app, late, texts):
    @tool(effect="once", timeout="20ms")
    def pay() -> str:
        late.wait(20)
        return "late"

    @agent
    def worker(task):
        task.step(lambda: 1, name="one")
        return task.call(pay)

    app.run(worker, id="t")
    before = app.get("t").seq
    for call in ("one#1", "pay#2", "nothing"):
        with texts.raises(holdfast.InvalidEvent):
            app.settle("t", call, happened=True)
    assert app.get("t").seq == before
    app.settle("t", "pay#1", happened=True, result="seen")
    assert app.run(worker, id="t").result == "seen"
    with pytest.raises(holdfast.HoldfastError):
        app.settle("t", "pay#1", happened=False)


def test_a_call_of_a_loop_is_settled_by_its_key_with_the_turn_or_without(app, late):
    @tool(effect="once", timeout="20ms")
    def pay() -> str:
        late.wait(20)
        return "late"

    @agent(loop=True, max_turns=5)
    def worker(task):
        paid = task.call(pay)
        return [task.turn, paid] if task.turn == 2 else None

    assert app.run(worker, id="t").waiting.kind == "doubt"
    app.settle("t", "pay#1", happened=True, result="first")
    assert app.run(worker, id="t").turn == 2
    app.settle("t", "2/pay#1", happened=True, result="second")
    assert app.run(worker, id="t").result == [2, "second"]


@pytest.mark.parametrize("tool_kind", KINDS)
def test_a_time_limit_leaves_a_once_call_in_doubt_and_its_late_answer_is_only_observed(app, either, tool_kind, late):
    if tool_kind == "def":

        def pay(order: int) -> str:
            late.wait(20)
            return "late"
    else:

        async def pay(order: int) -> str:
            await asyncio.sleep(0.15)
            return "late"

    once = tool(effect="once", timeout="30ms")(pay)

    @either()
    def worker(task):
        return (yield task.call(once, order=17))

    assert app.run(worker, id="t").waiting.kind == "doubt"
    late.set()
    if tool_kind == "def":
        until(lambda: events(app, "step_observed"))
        assert [json.loads(bytes(one.result)) for one in events(app, "step_observed")] == ["late"]
    assert app.get("t").calls["pay#1"].status == "doubt", "a late answer is no result"
    app.settle("t", "pay#1", happened=True, result="settled")
    assert app.run(worker, id="t").result == "settled"


def test_a_late_answer_may_come_after_the_end(app, late):
    @tool(effect="once", timeout="20ms", on_doubt="fail")
    def pay() -> str:
        late.wait(20)
        return "late"

    @agent
    def worker(task):
        return task.call(pay)

    failed = app.run(worker, id="t")
    assert failed.status == "failed" and "InDoubt" in failed.failure.message
    late.set()
    until(lambda: kinds(app)[-1] == "step_observed")
    assert app.get("t").status == "failed" and app.verify("t").ok


def test_a_plain_step_that_takes_too_long_is_tried_again(app, either, late):
    tries = []

    def slow(n):
        tries.append(n)
        if len(tries) == 1:
            late.wait(20)
        return n

    @either()
    def worker(task):
        return (yield task.step(slow, 7, timeout="200ms", retry=Retry(2, first=0)))

    done = app.run(worker, id="t")
    assert done.result == 7 and done.steps["slow#1"].failures[0].type == "TimeLimit"


def test_a_task_left_by_a_call_in_doubt_can_still_be_settled(app):
    """The code took another way after the crash, so nobody comes by that call again; a person can still tell."""
    ways = ["pay", "other"]

    @tool(effect="once")
    def pay() -> None:
        raise Crash

    @agent
    def worker(task):
        if ways.pop(0) == "pay":
            task.call(pay)
        return "another way"

    crashed(lambda: app.run(worker, id="t"))
    waiting = app.run(worker, id="t")
    assert (waiting.status, waiting.waiting.kind) == ("waiting", "doubt")
    ways.append("other")
    app.settle("t", "pay#1", happened=False, by="ana")
    assert app.run(worker, id="t").result == "another way"


@pytest.mark.parametrize("how", ["wait_for", "TaskGroup"])
def test_a_once_call_that_its_agent_gave_up_waiting_for_can_be_settled(app, how):
    @tool(effect="once", reconcile=lambda call: Happened("found"), reconcile_after=0)
    async def pay() -> str:
        await asyncio.sleep(0.2)
        return "paid"

    async def broken():
        await asyncio.sleep(0.02)
        raise ValueError("no")

    @agent
    async def worker(task):
        try:
            if how == "wait_for":
                return await asyncio.wait_for(task.call(pay), 0.05)
            async with asyncio.TaskGroup() as group:
                group.create_task(task.call(pay))
                group.create_task(task.step(broken))
        except* (TimeoutError, holdfast.StepFailed):
            task.note("gave up", True)
        return "went on"

    key = "pay#1" if how == "wait_for" else "~1/pay#1"
    state = app.run(worker, id="t")
    if state.status == "waiting":
        assert state.waiting.kind == "doubt"
        app.settle("t", key, happened=True, result="seen")
        state = app.run(worker, id="t")
    assert state.status == "completed" and state.calls[key].status == "completed"


# Unique keys


def unique_agent(either, paid, name="shop", **options):
    pay = payer(paid, unique="order-{order}", **options)

    @either(name=name)
    def shop(task, order: int, amount: int = 3, times: int = 1):
        receipts = []
        for _ in range(times):
            receipts.append((yield task.call(pay, order=order, amount=amount)))  # noqa: PERF401
        return receipts

    return shop


def test_a_unique_call_is_made_once_in_a_task_and_across_tasks(app, either):
    paid = []
    shop = unique_agent(either, paid)
    assert app.run(shop, {"order": 17, "times": 2}, id="t").result == ["receipt 1"] * 2
    assert app.run(shop, {"order": 17}, id="u").result == ["receipt 1"]
    assert app.run(shop, {"order": 18}, id="v").result == ["receipt 2"]
    assert paid == [(17, 3), (18, 3)]
    assert events(app, "step_completed", "u")[0].source == "t/pay#1"


def test_a_unique_call_is_made_once_across_turns(app):
    paid = []
    pay = payer(paid, unique="order-{order}")

    @agent(loop=True)
    def shop(task):
        receipt = task.call(pay, order=17)
        return [task.turn, receipt] if task.turn == 3 else None

    assert app.run(shop, id="t").result == [3, "receipt 1"] and len(paid) == 1


def test_a_unique_key_with_other_arguments_is_a_conflict_that_names_the_owner(app, either):
    paid = []
    shop = unique_agent(either, paid)
    app.run(shop, {"order": 17}, id="t")
    failed = app.run(shop, {"order": 17, "amount": 4}, id="u")
    assert failed.failure.code == "effect-conflict" and len(paid) == 1
    for word in ("order-17", "pay#1", "'t'"):
        assert word in failed.failure.message


def test_two_tasks_at_once_in_two_threads_make_one_unique_call(app, clock):
    paid = []

    @tool(effect="once", unique="order-{order}")
    def pay(order: int) -> str:
        time.sleep(0.03)
        paid.append(order)
        return "receipt"

    @agent
    def shop(task):
        return task.call(pay, order=17)

    together(*(lambda id=id: app.run(shop, id=id) for id in "abcd"))
    clock.advance(10)
    assert [app.run(shop, id=id).result for id in "abcd"] == ["receipt"] * 4
    assert paid == [17]


def test_two_branches_at_once_make_one_unique_call(app):
    paid = []
    pay = payer(paid, unique="order-{order}")

    @agent
    async def shop(task):
        return await asyncio.gather(*(task.call(pay, order=17) for _ in range(5)))

    @agent
    def mapped(task):
        return task.map(pay, [{"order": 18}] * 5)

    assert app.run(shop, id="t").result == ["receipt 1"] * 5
    assert app.run(mapped, id="u").result == ["receipt 2"] * 5
    assert len(paid) == 2


def test_a_second_caller_waits_while_the_first_is_open_or_in_doubt_and_gets_its_result(app, clock, either):
    paid = []

    @tool(effect="once", unique="order-{order}")
    def pay(order: int) -> str:
        paid.append(order)
        raise Crash

    @either()
    def shop(task):
        return (yield task.call(pay, order=17))

    crashed(lambda: app.run(shop, id="t"))
    assert app.get("t").calls["pay#1"].status == "running"
    assert app.run(shop, id="u").status == "waiting"
    assert app.run(shop, id="t").waiting.kind == "doubt"
    clock.advance(10)
    assert app.run(shop, id="u").status == "waiting", "in doubt is open too"
    app.settle("t", "pay#1", happened=True, result="found")
    clock.advance(10)
    assert app.run(shop, id="u").result == "found"
    assert app.run(shop, id="t").result == "found" and len(paid) == 1


def test_settling_that_it_did_not_happen_frees_the_key(app, clock):
    paid = []

    @tool(effect="once", unique="order-{order}")
    def pay(order: int) -> str:
        paid.append(order)
        if len(paid) == 1:
            raise Crash
        return "second"

    @agent
    def shop(task):
        return task.call(pay, order=17)

    crashed(lambda: app.run(shop, id="t"))
    app.run(shop, id="t")
    assert app.run(shop, id="u").status == "waiting"
    app.settle("t", "pay#1", happened=False)
    clock.advance(10)
    assert app.run(shop, id="u").result == "second"
    assert app.run(shop, id="t").result == "second", "the first one finds the key taken, and has that result too"
    assert len(paid) == 2


def test_not_done_frees_the_key(app, either):
    paid = []

    @tool(effect="once", unique="order-{order}")
    def pay(order: int, amount: int) -> str:
        if amount < 0:
            raise NotDone("less than nothing")
        paid.append(amount)
        return "receipt"

    @either()
    def shop(task, amount: int):
        return (yield task.call(pay, order=17, amount=amount))

    assert app.run(shop, {"amount": -1}, id="t").status == "failed"
    assert app.run(shop, {"amount": 5}, id="u").result == "receipt", "other arguments: the key was free"


@pytest.mark.parametrize("happened", [True, False])
def test_a_unique_call_that_raised_is_waited_for_by_the_next_caller(app, clock, happened, texts):
    """It may have happened: it is not made again before it is settled."""
    paid = []

    @tool(effect="once", unique="order-{order}")
    def pay(order: int) -> str:
        paid.append(order)
        if len(paid) == 1:
            raise ConnectionError("lost")
        return "paid"

    @agent
    def shop(task):
        return task.call(pay, order=17)

    assert [app.run(shop, id=id).waiting.kind for id in ("t", "u")] == ["doubt", "doubt"] and len(paid) == 1
    texts.check(app.get("u").waiting.why)
    app.settle("t", "pay#1", happened=happened, result="receipt" if happened else None, by="ana")
    clock.advance(3600)
    results = [app.run(shop, id=id).result for id in ("t", "u")]
    assert results == (["receipt", "receipt"] if happened else [None, "paid"]) and len(paid) == 2 - happened


def test_a_unique_key_outlives_its_owner(app, clock, texts):
    paid = []
    shop = unique_agent(declarer("def"), paid)
    app.run(shop, {"order": 17}, id="t")
    clock.advance(100)
    assert app.gc(older_than=timedelta(seconds=1)).tasks
    failed = app.run(shop, {"order": 17}, id="u")
    assert failed.failure.code == "effect-conflict" and len(paid) == 1
    texts.check(failed.failure.message)


def test_a_unique_call_in_a_fork_is_the_parents(app):
    paid = []
    pay = payer(paid, unique="order-{order}")

    @agent
    def shop(task):
        task.step(lambda: 1, name="one")
        return task.call(pay, order=17)

    app.run(shop, id="t")
    before = app.step("t", "pay#1").before
    app.fork("t", at=before, id="f", effects="live")
    assert app.run(shop, id="f").result == "receipt 1" and len(paid) == 1


def test_a_unique_call_that_was_rolled_back_counts_for_everybody(app):
    paid, places = [], ["here"]
    pay = payer(paid, unique="order-{order}")

    @agent
    def shop(task):
        if places[-1] == "elsewhere":
            task.step(lambda: 1, name="something first")
        return task.call(pay, order=17)

    app.run(shop, id="t")
    app.rollback("t")
    assert app.run(shop, id="u").result == "receipt 1", "another task"
    places.append("elsewhere")
    assert app.run(shop, id="t").result == "receipt 1" and len(paid) == 1


def test_a_unique_call_that_was_rolled_back_is_not_made_with_other_arguments(app):
    paid, amounts = [], [3]
    pay = payer(paid, unique="order-{order}")

    @agent
    def shop(task):
        return task.call(pay, order=17, amount=amounts[-1])

    app.run(shop, id="t")
    app.rollback("t")
    amounts.append(4)
    failed = app.run(shop, id="t")
    assert paid == [(17, 3)]
    assert failed.failure.code == "effect-conflict"


def test_an_idempotent_call_may_have_a_unique_key(app, either):
    tries = []

    @tool(effect="idempotent", unique="user-{name}")
    def create(name: str, *, idempotency_key: str) -> str:
        tries.append(idempotency_key)
        if len(tries) == 1:
            raise Crash
        return f"{name} {len(tries)}"

    @either()
    def worker(task):
        return (yield task.call(create, name="ana"))

    crashed(lambda: app.run(worker, id="t"))
    assert app.run(worker, id="t").result == "ana 2", "it is simply made again, with the same key"
    assert app.run(worker, id="u").result == "ana 2"
    assert len(set(tries)) == 1 and len(tries) == 2


def test_a_unique_key_that_cannot_be_made_is_refused_before_anything_happens(app):
    paid = []

    @tool(effect="once", unique="order-{order[number]}")
    def pay(order: int) -> None:
        paid.append(order)

    @agent
    def worker(task):
        task.call(pay, order=17)

    failed = app.run(worker, id="t")
    assert failed.status == "failed" and not paid


def test_defaults_count_as_arguments_in_a_unique_key(app):
    @tool(effect="once", unique="{currency}-{order}")
    def pay(order: int, currency: str = "NOK") -> str:
        return "paid"

    @agent
    def worker(task):
        return task.call(pay, order=17)

    assert app.run(worker, id="t").result == "paid"


# Transactions


def ledger_of(app, sql="select id from ledger order by id"):
    """What the tool's own table holds, read by a tool."""

    @tool(effect="transaction")
    def read(*, connection) -> list:
        connection.execute("create table if not exists ledger (id integer primary key)")
        return [row[0] for row in connection.execute(sql)]

    return app.run(agent(name="reader")(lambda task: task.call(read)), id=f"read-{time.monotonic_ns()}").result


def booker(**options):
    then = options.pop("then", lambda: None)

    @tool(effect="transaction", **options)
    def book(id: int, *, connection) -> int:
        connection.execute("create table if not exists ledger (id integer primary key)")
        connection.execute(f"insert into ledger values ({'?' if connection.dialect == 'sqlite' else '%s'})", (id,))
        then()
        return id

    return book


def test_a_transactions_writes_and_its_record_are_one(app, either):
    book = booker()

    @either()
    def worker(task):
        first = yield task.call(book, id=1)
        yield task.wait("go")
        return [first, (yield task.call(book, id=2))]

    app.run(worker, id="t")
    app.signal("t", "go")
    done = app.run(worker, id="t")
    assert done.result == [1, 2] and ledger_of(app) == [1, 2]
    assert done.calls["book#1"].effect == "transaction" and "step_started" not in kinds(app)


def test_an_error_in_a_transaction_rolls_it_back_and_may_be_tried_again(app, either):
    tries = []

    def fail():
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("no")

    book = booker(then=fail, retry=FAST)

    @either()
    def worker(task):
        return (yield task.call(book, id=1))

    done = app.run(worker, id="t")
    assert done.result == 1, done.failure
    assert done.calls["book#1"].attempts == 3 and ledger_of(app) == [1]


def test_a_transaction_that_fails_for_good_leaves_nothing(app, either):
    def fail():
        raise ValueError("no")

    book = booker(then=fail)

    @either()
    def worker(task):
        yield task.call(book, id=1)

    failed = app.run(worker, id="t")
    assert failed.status == "failed" and "ValueError: no" in failed.failure.message and ledger_of(app) == []


@pytest.mark.parametrize("place", ["commit.before", "commit.after"])
def test_a_crash_at_a_transactions_commit_leaves_both_or_neither(url, clock, either, place):
    book = booker()
    made = []

    @either()
    def worker(task):
        yield task.step(lambda: made.append(1), name="one")
        return (yield task.call(book, id=1))

    def crash(name):
        if name == place and booking.is_set():
            booking.clear()
            raise Crash

    booking = threading.Event()
    watched = booker(then=booking.set)
    book = watched
    with holdfast.open(url, clock=clock) as app:
        with armed(crash), contextlib.suppress(Crash):
            app.run(worker, id="t")
        recorded = "book#1" in app.get("t").steps
        assert ledger_of(app) == ([1] if recorded else [])
        assert recorded == (place == "commit.after")
        assert app.run(worker, id="t").result == 1 and ledger_of(app) == [1] and made == [1]


def test_a_signal_that_comes_during_a_transaction_does_not_repeat_its_writes(app, either):
    sent = []

    def poke():
        if not sent:
            sent.append(threading.Thread(target=app.signal, args=("t", "hello", 1)))
            sent[0].start()
            time.sleep(0.03)

    book = booker(then=poke)

    @either()
    def worker(task):
        booked = yield task.call(book, id=1)
        return [booked, (yield task.wait("hello", timeout=5))]

    app.run(worker, id="t")
    sent[0].join()
    assert app.run(worker, id="t").result == [1, 1]
    assert ledger_of(app) == [1]


def test_a_transaction_is_decided_again_when_the_log_moved_before_it(app, either):
    book = booker()
    pokes = []

    def poke():
        pokes.append(threading.Thread(target=app.signal, args=("t", "hello")))
        pokes[0].start()
        pokes[0].join()

    @either()
    def worker(task):
        poke()  # the log moves, and nobody here has read it
        return (yield task.call(book, id=1))

    assert app.run(worker, id="t").result == 1 and ledger_of(app) == [1]


def test_a_transaction_has_a_time_limit(app, either):
    @tool(effect="transaction", timeout="100ms")
    def endless(*, connection) -> None:
        connection.execute("create table ledger (id integer primary key)")
        connection.execute(
            "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
        ).fetchall()

    @either()
    def worker(task):
        yield task.call(endless)

    began = time.monotonic()
    failed = app.run(worker, id="t")
    assert failed.status == "failed" and "TimeLimit" in failed.failure.message
    assert time.monotonic() - began < 60 and ledger_of(app) == []


def test_a_transaction_may_have_a_unique_key(app, either):
    book = booker(unique="entry-{id}")

    @either()
    def worker(task):
        return (yield task.call(book, id=1))

    assert app.run(worker, id="t").result == 1
    assert app.run(worker, id="u").result == 1, "the second would violate the primary key"
    assert ledger_of(app) == [1]


def test_everything_said_before_a_transaction_is_durable_before_it(app):
    seen = []
    book = booker(then=lambda: seen.append(True))

    @agent(checkpoint="every_iteration")
    def worker(task):
        task.step(lambda: 1, name="one")
        task.fact("before", 1)
        return task.call(book, id=1)

    app.run(worker, id="t")
    assert kinds(app).index("fact_learned") < kinds(app).index("step_completed", kinds(app).index("fact_learned"))


# Secrets


def spied(app, url):
    """Everything a reader could find of the tasks: events, states, and the bytes of the file."""
    found = []
    for summary in app.list():
        found += [msgspec.json.encode(record.event).decode() for record in app.events(summary.id)]
        found.append(json.dumps(app.get(summary.id).to_dict(), default=str))
        found += [repr(step.to_dict()) for step in app.steps(summary.id)]
    text = "\n".join(found).encode()
    if url != "memory:":
        app.close()
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError), open(url + suffix, "rb") as file:
                text += file.read()
    return text


SENDERS = {
    "returns it": lambda token: {"echo": [f"Bearer {token}"]},
    "raises it": lambda token: (_ for _ in ()).throw(ValueError(f"bad token {token}")),
    "raises its repr": lambda token: (_ for _ in ()).throw(KeyError(token)),
    "chains it": lambda token: _chained(token),
    "notes it": lambda token: _noted(token),
}


def _chained(token):
    try:
        raise ValueError(f"bad token {token}")
    except ValueError as error:
        raise RuntimeError("could not send") from error


def _noted(token):
    error = ValueError("no")
    error.add_note(f"with {token}")
    raise error


@pytest.mark.parametrize("how", ["redact", "Secret"])
@pytest.mark.parametrize("what", list(SENDERS))
def test_a_secret_is_nowhere_to_be_found(app, url, either, how, what):
    @tool(effect="once", redact=["token"] if how == "redact" else [])
    def send(to: str, token: str) -> dict:
        assert token == TOKEN, "the tool itself gets it"
        return SENDERS[what](token)

    @either()
    def worker(task):
        try:
            sent = yield task.call(send, to="sam", token=TOKEN if how == "redact" else Secret(TOKEN))
            task.fact("sent", sent)
        except holdfast.StepFailed as error:
            task.note("error", str(error))
        yield task.wait("go")

    waiting = app.run(worker, id="t")
    assert waiting.status == "waiting", waiting.failure
    assert TOKEN.encode() not in spied(app, url)


def test_a_secret_with_letters_that_need_escaping_is_hidden_too(app, url):
    token = 'pa\\ss"wörd\n'

    @tool(effect="once", redact=["token"])
    def send(token: str) -> dict:
        raise KeyError(token)

    @agent
    def worker(task):
        with contextlib.suppress(holdfast.StepFailed):
            task.call(send, token=token)
        return 1

    app.run(worker, id="t")
    text = spied(app, url)
    assert token.encode() not in text and b"wxrd".replace(b"x", "ö".encode()) not in text and rb"w\xf6rd" not in text


@pytest.mark.parametrize("secret", [{"user": "ana", "password": TOKEN}, [TOKEN], {"deep": [{"er": TOKEN}]}])
def test_a_secret_inside_a_redacted_value_is_hidden_too(app, url, secret):
    @tool(effect="once", redact=["credentials"])
    def send(credentials: dict | list) -> dict:
        raise ValueError(f"refused: {credentials}")

    @agent
    def worker(task):
        task.call(send, credentials=secret)

    assert app.run(worker, id="t").status == "waiting"
    assert TOKEN.encode() not in spied(app, url)


def test_a_secret_in_a_late_answer_is_hidden(app, url, late):
    @tool(effect="once", redact=["token"], timeout="20ms")
    def send(token: str) -> str:
        late.wait(20)
        return f"sent with {token}"

    @agent
    def worker(task):
        task.call(send, token=TOKEN)

    app.run(worker, id="t")
    late.set()
    until(lambda: "step_observed" in kinds(app))
    assert TOKEN.encode() not in spied(app, url)


def test_a_unique_key_does_not_tell_a_secret(app, url):
    @tool(effect="once", redact=["token"], unique="with-{token}")
    def send(token: str) -> str:
        return "sent"

    @agent
    def worker(task, label: str):
        return task.call(send, token=Secret(TOKEN, label=label))

    refused = app.run(worker, {"label": ""}, id="t")
    assert refused.failure.code == "invalid-value" and "Secret(…, label=" in refused.failure.message
    assert app.run(worker, {"label": "card …42"}, id="u").result == "sent"
    assert app.store.owner_of_key("with-card …42").log == "u"
    assert TOKEN.encode() not in spied(app, url)


def test_a_rotated_secret_finds_its_step(app, either):
    tokens = [TOKEN, TOKEN, "another-secret"]
    sent = []

    @tool(effect="once", redact=["token"])
    def send(token: str) -> int:
        sent.append(token)
        return len(sent)

    @either()
    def worker(task):
        number = yield task.call(send, token=tokens.pop(0))
        yield task.wait("go")
        yield task.wait("go")
        return number

    app.run(worker, id="t")
    app.signal("t", "go")
    assert app.run(worker, id="t").status == "waiting" and len(sent) == 1
    app.signal("t", "go")
    done = app.run(worker, id="t")
    assert (done.status, done.result, len(sent)) == ("completed", 1, 1)


def test_a_fork_finds_the_steps_that_were_given_a_secret(app):
    sent = []

    @tool(effect="once", redact=["token"])
    def send(token: str) -> int:
        sent.append(token)
        return len(sent)

    @agent
    def worker(task):
        return [task.call(send, token=TOKEN), task.wait("go")]

    app.run(worker, id="t")
    app.fork("t", id="f")
    app.signal("f", "go", 7)
    assert app.run(worker, id="f").result == [1, 7] and len(sent) == 1


def test_a_unique_call_with_the_same_secret_is_the_same_call_in_every_task(app):
    sent = []

    @tool(effect="once", redact=["token"], unique="mail-{number}")
    def send(number: int, token: str) -> int:
        sent.append(token)
        return len(sent)

    @agent
    def worker(task):
        return task.call(send, number=1, token=TOKEN)

    assert app.run(worker, id="t").result == 1
    assert app.run(worker, id="u").result == 1 and len(sent) == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda task: task.step(lambda token: 1, Secret(TOKEN), name="step"),
        lambda task: task.fact("token", Secret(TOKEN)),
        lambda task: task.note("token", {"deep": Secret(TOKEN)}),
        lambda task: setattr(task.state, "token", Secret(TOKEN)),
        lambda task: task.message({"role": "user", "content": Secret(TOKEN)}),
        lambda task: task.step(lambda: Secret(TOKEN), name="step"),
        lambda task: Secret(TOKEN),
    ],
)
def test_a_secret_anywhere_else_is_refused_with_a_remedy(app, url, use, texts):
    failed = app.run(agent(name="worker")(lambda task: use(task)), id="t")
    assert failed.status == "failed"
    texts.check(failed.failure.message)
    assert TOKEN.encode() not in spied(app, url)


def test_a_secret_as_input_is_refused_before_anything_is_written(app):
    @agent
    def worker(task, token: str):
        return 1

    for input in ({"token": Secret(TOKEN)}, {"token": [Secret(TOKEN)]}):
        with pytest.raises(holdfast.HoldfastError) as refused:
            app.run(worker, input, id="t")
        assert TOKEN not in str(refused.value) and refused.value.hint
    assert app.list() == []


def test_a_secret_does_not_show_itself():
    secret = Secret(TOKEN)
    assert TOKEN not in f"{secret} {secret!r} {[secret]}" and secret.reveal() == TOKEN
    assert secret == Secret(TOKEN) != Secret("x")


# Replies of models


def reply_with(*calls):
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for n, (name, arguments) in enumerate(calls, start=1)
        ],
    }


def test_the_tool_calls_of_a_reply_are_made_at_once_and_become_messages_in_order(app, either, texts):
    at_once = threading.Barrier(2)

    @tool(effect="read")
    def slow(n: int) -> dict:
        at_once.wait(5)
        time.sleep(0.05 / n)
        return {"n": n}

    @tool(effect="once", definite=[ValueError])
    def broken() -> str:
        raise ValueError("no such thing")

    reply = reply_with(
        ("slow", '{"n": 1}'),
        ("slow", '{"n": 2}'),
        ("broken", "{}"),
        ("nothing", "{}"),
        ("slow", '{"n": '),
        ("slow", "{}"),
    )

    @either()
    def worker(task):
        said = yield task.step(lambda: reply, name="model")
        task.message(said)
        given = yield task.call_tools(said, [slow, broken])
        yield task.wait("go")
        return [given, task.messages]

    app.run(worker, id="t")
    before = len([kind for kind in kinds(app) if kind in ("message_added", "step_completed", "step_failed")])
    app.signal("t", "go")
    given, messages = app.run(worker, id="t").result
    assert before == 2 + 7 + 3 - 1, "and nothing is added on replay"
    assert messages[1:] == given and [one["tool_call_id"] for one in given] == ["c1", "c2", "c3", "c4", "c5", "c6"]
    contents = [one["content"] for one in given]
    assert [json.loads(one) for one in contents[:2]] == [{"n": 1}, {"n": 2}]
    for said in contents[2:]:
        texts.check(said)


def test_calls_without_an_id_of_their_own_are_refused(app, texts):
    reply = reply_with(("x", "{}"), ("x", "{}"))
    reply["tool_calls"][1]["id"] = "c1"

    @agent
    def worker(task):
        task.call_tools(reply, [])

    texts.check(app.run(worker, id="t").failure.message)


def test_a_message_made_of_a_steps_result_is_stored_once(app, either):
    text = "a long reply " * 20

    @either()
    def worker(task):
        reply = yield task.step(lambda: {"role": "assistant", "content": text}, name="model")
        task.message(reply)
        other = yield task.step(lambda: {"role": "assistant", "content": "x"}, name="model")
        task.message({**other, "content": "edited"})
        return task.messages

    done = app.run(worker, id="t")
    first, second = events(app, "message_added")
    assert first.step == "model#1" and first.message is msgspec.UNSET
    assert not second.step
    assert done.messages == done.result
    assert [one["content"] for one in done.messages] == [text, "edited"]
    stored = [msgspec.json.encode(record.event).count(text.encode()) for record in app.events("t")]
    assert sum(stored) == 2, "with the step, and in the task's own result"

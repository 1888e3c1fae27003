"""The harness that crashes agents everywhere: it passes for good ones, and catches bad agents and broken engines."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import DidNotHappen, Happened, agent, events as ev, tool
from holdfast.core import codec, limits
from holdfast.testing import CrashFailed, World
from holdfast.testing.crash import everywhere as harness
from tests.waiting import until

ALL = os.environ.get("HOLDFAST_TEST_ALL") == "1"
FEW = None if ALL else 12
EVERYWHERE = [("process", "memory:", None), ("process", "sqlite", None), ("kill", "sqlite", FEW)]
every_way = pytest.mark.parametrize(("mode", "store", "sample"), EVERYWHERE, ids=["memory", "sqlite", "kill"])


def shop_on(world, *, reconciled=True, **options):
    """Three steps: one that may be repeated, one that must not be, one that the destination recognises."""

    def find(call):
        found = world.find(call.idempotency_key)
        return Happened(found.receipt) if found else DidNotHappen()

    known = {"reconcile": find, "reconcile_after": 0} if reconciled else {}

    @tool(effect="once", **known, **options)
    def pay(amount: int, *, idempotency_key: str) -> str:
        return world.request("pay", key=idempotency_key, amount=amount)["receipt"]

    @tool(effect="idempotent")
    def ship(order: int, *, idempotency_key: str) -> str:
        return world.request("ship", key=idempotency_key, order=order)["receipt"]

    @agent
    def shop(task, order: int):
        task.state.increment("visits")
        price = task.step(lambda: world.request("price", order=order) and 3, name="price")
        task.fact("price", price)
        paid = task.call(pay, amount=price)
        return [paid, task.call(ship, order=order), task.state.visits]

    return shop


def paid_once(state, world):
    assert state.status == "completed" and state.state["visits"] == 1
    assert len(world.requests("pay")) == 1
    assert len({request.receipt for request in world.requests("ship")}) == 1


@every_way
def test_a_good_agent_survives_a_crash_anywhere(crash_everywhere, world, tmp_path, mode, store, sample):
    options = {"mode": mode, "store": store, "sample": sample}
    report = crash_everywhere(shop_on(world), {"order": 17}, world=world, check=paid_once, **options)
    assert report.survived + report.missed == report.tried == (sample or report.points) and report.points > 30
    assert {"append.before", "commit.after", "claim.after", "world.before", "world.after"} <= set(report.by_name)
    assert (report.in_doubt, report.duplicates) == (0, 0) and report.missed < 3 and report.doubts >= 1
    assert f"{report.survived} of {report.tried} " in str(report) and "world.after" in str(report)
    assert list(tmp_path.iterdir()) == [], "what was survived leaves nothing behind"


@every_way
def test_a_call_that_nobody_can_ask_about_ends_in_doubt(crash_everywhere, world, mode, store, sample):
    def not_twice(state, world):
        assert len(world.requests("pay")) <= 1

    shop = shop_on(world, reconciled=False)
    report = crash_everywhere(
        shop, {"order": 17}, world=world, check=not_twice, mode=mode, store=store, sample=sample and 20
    )
    assert report.in_doubt == report.doubts > 0


@every_way
def test_waits_are_finished_by_the_callback_and_crash_points_lie_in_it_too(
    crash_everywhere, world, mode, store, sample
):
    @agent
    def trip(task):
        seat = task.ask("window or aisle?", name="seat")
        task.sleep("2h")
        return [seat, task.step(lambda: world.request("book", seat=seat) and "booked", name="book"), task.wait("go")]

    def finish(app, state):
        if state.waiting.kind == "person":
            app.answer(state.id, "seat", "window", by="ana")
        else:
            app.signal(state.id, "go", 7)

    def booked(state, world):
        assert state.result == ["window", "booked", 7]

    report = crash_everywhere(
        trip, world=world, finish=finish, check=booked, mode=mode, store=store, sample=sample and 16
    )
    assert report.by_name["claim.before"] >= (1 if sample else 4)


def test_a_second_crash_while_recovering_is_survived_too(crash_everywhere, world):
    report = crash_everywhere(shop_on(world), {"order": 17}, world=world, check=paid_once, crashes=3, store="memory:")
    assert report.survived == report.points and report.doubts > 6


def test_a_task_that_waits_has_come_to_its_end_without_a_callback(crash_everywhere, texts):
    @agent
    def trip(task):
        return task.ask("window or aisle?", name="seat")

    report = crash_everywhere(trip, check=lambda state, world: state.waiting.on[0]["name"] == "seat")
    with pytest.raises(CrashFailed) as failed:
        crash_everywhere(trip, check=lambda state, world: state.status == "completed")
    check_problems(failed.value, texts)
    assert report.survived == report.points > 10


def test_loops_failures_and_snapshots_are_survived_too(crash_everywhere, world, monkeypatch):
    monkeypatch.setattr(limits, "SNAPSHOT_MIN_BYTES", 200)
    find = {
        "reconcile": lambda call: Happened(1) if world.find(call.idempotency_key) else DidNotHappen(),
        "reconcile_after": 0,
    }

    @tool(effect="once", **find)
    def tick(*, idempotency_key: str) -> int:
        world.request("tick", key=idempotency_key)
        return 1

    @agent(loop=True, max_turns=3)
    def clock(task):
        task.state.increment("total", task.call(tick))
        task.message({"role": "user", "content": "x" * 100})

    def ticked(state, world):
        assert (state.failure.code, state.state["total"], len(state.messages)) == ("turn-limit", 3, 3)
        assert len(world.requests("tick")) == 3

    report = crash_everywhere(clock, world=world, check=ticked, store="memory:")
    assert report.by_name["snapshot.before"] == report.by_name["snapshot.after"] > 1


def test_threads_and_their_late_requests_die_with_the_process(crash_everywhere, world):
    @tool(effect="once", timeout="200ms")
    def pay(*, idempotency_key: str) -> str:
        return world.request("pay", key=idempotency_key)["receipt"]

    @agent
    def shop(task):
        return task.call(pay)

    def finish(app, state):
        found = world.find(state.calls["pay#1"].idempotency_key)
        app.settle(state.id, "pay#1", happened=found is not None, result=found and found.receipt)

    report = crash_everywhere(shop, world=world, finish=finish, check=lambda state, world: state.result == "pay-1")
    assert report.duplicates == 0 and report.doubts > 3


def payments_on(world):
    """A tool for `def` agents and one for async ones; both must act once."""

    def find(call):
        found = world.find(call.idempotency_key)
        return Happened(found.receipt) if found else DidNotHappen()

    def refund(call):
        world.request("refund", key=call.idempotency_key)

    @tool(effect="once", reconcile=find, reconcile_after=0, compensate=refund)
    def pay(amount: int, *, idempotency_key: str) -> str:
        return world.request("pay", key=idempotency_key)["receipt"]

    @tool(effect="once", reconcile=find, reconcile_after=0)
    async def apay(amount: int, *, idempotency_key: str) -> str:
        await asyncio.sleep(0)
        return world.request("pay", key=idempotency_key)["receipt"]

    return pay, apay


def in_parallel(pay, apay):
    @agent
    async def in_parallel(task):
        async def both(amount):
            await task.call(apay, amount=amount)
            task.state.increment("paid")
            return await task.step(lambda: amount, name="amount")

        return await asyncio.gather(*map(both, (1, 2))), await task.ask("enough?", name="ok")

    return {"agent": in_parallel, "finish": lambda app, state: app.answer(state.id, "ok", "yes")}


def with_a_child_that_asks(pay, apay):
    @agent
    def child(task, amount: int):
        return [task.call(pay, amount=amount), task.ask("ok?", name="ok")]

    @agent
    def parent(task):
        return [task.spawn(child, {"amount": 1}), task.call(pay, amount=2)]

    return {"agent": parent, "finish": lambda app, state: app.answer(state.id, "ok", "yes"), "agents": [child]}


def that_is_undone(pay, apay):
    @agent(tools=[pay])
    def undone(task):
        task.call(pay, amount=1)
        task.call(pay, amount=2)
        raise ValueError("no")

    return {"agent": undone}


def in_a_block(pay, apay):
    def program(app):
        with app.task("triage", {"ticket": 7}, id="mine") as task:
            for turn in task.turns(max=3):
                task.call(pay, amount=turn)
                if turn == 2:
                    break
            task.finish(turn)

    return {"drive": program, "id": "mine"}


def that_writes_behind(pay, apay):
    @agent(checkpoint="before_effects")
    def behind(task):
        counted = [task.step(lambda n=n: n, name="count") for n in range(3)]
        return [task.call(pay, amount=1), task.call(pay, amount=2), *counted]

    return {"agent": behind}


@pytest.mark.parametrize(
    "kind",
    [in_parallel, with_a_child_that_asks, that_is_undone, in_a_block, that_writes_behind],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize(("mode", "store", "sample"), [("process", "memory:", None), ("kill", "sqlite", FEW and 6)])
def test_agents_of_every_kind_survive_and_act_once(crash_everywhere, world, monkeypatch, kind, mode, store, sample):
    monkeypatch.setattr(limits, "SNAPSHOT_MIN_BYTES", 300)

    def acted_once(state, world):
        assert len(world.requests("pay")) == 2

    given = {**kind(*payments_on(world)), "world": world, "check": acted_once}
    report = crash_everywhere(**given, mode=mode, store=store, sample=sample, crashes=2)
    assert report.survived + report.missed == report.tried and report.missed < report.tried / 2


def test_a_sample_is_the_same_for_a_seed_and_takes_some_of_each_failpoint():
    points = harness._points(["a", "b", "a", "a", "c", "a", "a", "a"] * 10, False)
    assert harness._sample(points, 9, seed=1) == harness._sample(points, 9, seed=1) != harness._sample(points, 9, 2)
    assert {point.name for point in harness._sample(points, 3, seed=1)} == {"a", "b", "c"}
    assert harness._sample(points, 999, seed=1) == points


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"agent": agent(name="x")(lambda task: None), "drive": print},
        {"agent": agent(name="x")(lambda task: None), "mode": "kill", "store": "memory:"},
        {"agent": agent(name="x")(lambda task: None), "mode": "maim"},
    ],
)
def test_what_cannot_be_crashed_is_refused(crash_everywhere, given):
    with pytest.raises(holdfast.InvalidValue):
        crash_everywhere(**given)


# Bad agents


def check_problems(error, texts):
    """Check what a failure says, but not at which points: there are others with every change of the engine."""
    texts.check(error.args[0].partition("\n")[0], failures=len(error.failures), points=error.failures[0].point.of)
    for problem in (problem for failure in error.failures for problem in failure.problems):
        texts.check(re.sub(r"\b[0-9a-f]{16}(-\d+)?\b", "<digest>", problem))


def test_a_tool_that_only_says_that_it_may_be_repeated_is_caught(crash_everywhere, world, texts):
    @tool(effect="idempotent")
    def pay(*, idempotency_key: str) -> str:
        return world.request("pay", key=idempotency_key)["receipt"]

    @agent
    def shop(task):
        return task.call(pay)

    def paid_once(state, world):
        assert len(world.requests("pay")) == 1, f"paid {len(world.requests('pay'))} times"

    with pytest.raises(CrashFailed) as failed:
        crash_everywhere(shop, world=world, check=paid_once)
    check_problems(failed.value, texts)
    first, kept = failed.value.failures[0], failed.value.failures[0].kept
    assert (first.point.name, first.point.hit) == ("world.after", 1)
    assert "1 task_created · 2 task_claimed · ✂ crash · 3 task_claimed" in first.timeline[0]
    with holdfast.open(kept) as app:
        assert app.get("crash-test").status == "completed"


def test_a_wrong_check_is_told_with_the_line_that_failed(crash_everywhere, world, texts):
    def wrong(state, world):
        assert state.result == "something else"

    with pytest.raises(CrashFailed) as failed:
        crash_everywhere(shop_on(world), {"order": 17}, world=world, check=wrong)
    check_problems(failed.value, texts)
    assert len(failed.value.failures) == 1 and "something else" in str(failed.value)


def test_only_the_first_five_of_many_failures_are_told_in_full(crash_everywhere, world):
    def no_doubts(state, world):
        claims = [record for record in holdfast_events(state) if record.kind == "task_claimed"]
        assert len(claims) == 1

    def holdfast_events(state):
        return state._logs.rows_of_kind(state.id, "task_claimed")

    with pytest.raises(CrashFailed) as failed:
        crash_everywhere(shop_on(world), {"order": 17}, world=world, check=no_doubts, store="memory:")
    text = str(failed.value)
    assert len(failed.value.failures) > 10 and text.count("log of crash-test") == 5
    assert text.count("and at crash point") == len(failed.value.failures) - 5


@pytest.mark.parametrize("mode", ["process", "kill"])
def test_an_agent_that_never_finishes_is_caught(crash_everywhere, mode, monkeypatch, texts):
    @agent
    def waiter(task):
        task.wait("go")

    with pytest.raises(CrashFailed) as failed:
        crash_everywhere(waiter, finish=lambda app, state: app.signal(state.id, "stop"), mode=mode)
    check_problems(failed.value, texts)

    @agent(loop=True)
    def spinner(task):
        task.step(lambda: 1, name="spin")

    monkeypatch.setattr("holdfast.testing.crash.lives.MAX_HITS", 500)
    with pytest.raises(CrashFailed) as failed:
        crash_everywhere(spinner, mode=mode)
    check_problems(failed.value, texts)


def test_an_agent_that_hangs_is_killed(crash_everywhere, texts):
    @agent
    def sleeper(task):
        task.step(time.sleep, 60)

    with pytest.raises(CrashFailed) as failed:
        crash_everywhere(sleeper, mode="kill", timeout=0.5)
    check_problems(failed.value, texts)


def test_an_agent_that_depends_on_what_it_cannot_know_has_another_result(crash_everywhere, world, texts):
    @agent
    def counter(task):
        asked = task.step(lambda: world.request("look")["number"], name="look")
        return {"looked": asked, "sure": True}

    with pytest.raises(CrashFailed) as failed:
        crash_everywhere(counter, world=world, store="memory:")
    check_problems(failed.value, texts)
    assert crash_everywhere(counter, world=world, same_result=False, store="memory:").survived > 0
    sure = crash_everywhere(counter, world=world, same_result=lambda state: state.result["sure"], store="memory:")
    assert sure.survived == sure.tried


def test_a_crash_cannot_be_swallowed(crash_everywhere, world):
    """Code that catches everything, and cleans up, writes nothing more and reaches nobody."""

    @agent
    def stubborn(task):
        for n in range(3):
            try:
                task.step(lambda n=n: world.request(f"try {n}")["receipt"], name=f"try {n}")
            except BaseException as error:
                if isinstance(error, harness.Crash):
                    task.state.swallowed = True
            finally:
                world.request("clean up", key=f"{n}")
        return task.state.get("swallowed")

    def whole(state, world):
        assert state.result is None and "swallowed" not in state.state

    crash_everywhere(stubborn, world=world, check=whole, store="memory:")


# Broken engines


def attempts(monkeypatch, broken):
    monkeypatch.setattr("holdfast.core.flows.step._attempt", broken)


def events_of(key, request, state):
    from holdfast.core.flows import step

    same = {"key": key, "name": request.name, "tool": request.tool, "effect": request.effect, "input": request.input}
    return {**same, "idempotency_key": step.idempotency_key(state, key, request)}


def test_an_engine_that_records_before_it_acts_is_caught(crash_everywhere, world, monkeypatch, texts):
    from holdfast.core.flows.requests import Append, Invoke

    def eager(surroundings, key, attempt, known, request, turn):
        same = events_of(key, request, surroundings.state)
        promised = {"price": 3, "pay": "pay-1", "ship": "ship-1"}[request.name]
        yield Append((ev.StepCompleted(**same, result=codec.pack(promised)),))
        yield Invoke(key, request, 1, same["idempotency_key"])

    attempts(monkeypatch, eager)
    with pytest.raises(CrashFailed) as failed:
        crash_everywhere(shop_on(world), {"order": 17}, world=world, store="memory:")
    check_problems(failed.value, texts)


def test_an_engine_that_does_not_announce_is_caught(crash_everywhere, world, monkeypatch, texts):
    from holdfast.core.flows.requests import Append, Invoke

    def silent(surroundings, key, attempt, known, request, turn):
        same = events_of(key, request, surroundings.state)
        outcome = yield Invoke(key, request, 1, same["idempotency_key"])
        yield Append((ev.StepCompleted(**same, result=outcome.value),))

    attempts(monkeypatch, silent)
    with pytest.raises(CrashFailed) as failed:
        crash_everywhere(shop_on(world), {"order": 17}, world=world, store="memory:")
    check_problems(failed.value, texts)


def test_an_engine_that_takes_a_new_key_for_each_try_is_caught(crash_everywhere, world, monkeypatch, texts):
    from holdfast.core.flows import step

    tries = iter(range(10**6))
    right = step.idempotency_key
    monkeypatch.setattr(
        step,
        "idempotency_key",
        lambda state, key, request: request.tool and f"{right(state, key, request)}-{next(tries)}",
    )
    with pytest.raises(CrashFailed) as failed:
        crash_everywhere(shop_on(world), {"order": 17}, world=world, same_result=False, store="memory:")
    check_problems(failed.value, texts)


def test_an_engine_that_repeats_a_call_in_doubt_is_caught(crash_everywhere, world, monkeypatch, texts):
    from holdfast.core.flows import step
    from holdfast.core.flows.requests import Append, Invoke

    def bold(surroundings, known, request):
        """Makes the call again as if it had never been announced."""
        same = events_of(known.key, request, surroundings.state)
        outcome = yield Invoke(known.key, request, 1, same["idempotency_key"])
        yield Append((ev.StepCompleted(**same, result=outcome.value),))

    monkeypatch.setattr(step, "settle", bold)
    with pytest.raises(CrashFailed) as failed:
        crash_everywhere(shop_on(world), {"order": 17}, world=world, store="memory:")
    check_problems(failed.value, texts)


def test_an_engine_that_finishes_early_is_caught(crash_everywhere, world, monkeypatch, texts):
    """The list says completed as soon as the task is claimed."""
    from holdfast.engine.logs.log import Log

    summarise, begin = holdfast.engine.logs.log.summarise, Log.begin

    def early(row):
        return codec.load(codec.dump(row).replace(b'"status":"running"', b'"status":"completed"'), type(row))

    def begun(self, events):
        write, state = begin(self, events)
        return replace(write, summary=early(write.summary)), state

    monkeypatch.setattr("holdfast.engine.logs.log.summarise", lambda *given: early(summarise(*given)))
    monkeypatch.setattr(Log, "begin", begun)
    with pytest.raises(CrashFailed) as failed:
        crash_everywhere(shop_on(world), {"order": 17}, world=world, store="memory:")
    check_problems(failed.value, texts)


def test_an_engine_that_keeps_a_wrong_snapshot_is_caught(crash_everywhere, world, monkeypatch, texts):
    from holdfast.engine.logs.log import Log

    monkeypatch.setattr(limits, "SNAPSHOT_MIN_BYTES", 200)
    right = Log._snapshot

    def wrong(self, at_us):
        self.state.bag["visits"] = codec.pack(99)
        return right(self, at_us)

    monkeypatch.setattr(Log, "_snapshot", wrong)
    with pytest.raises(CrashFailed) as failed:
        crash_everywhere(shop_on(world), {"order": 17}, world=world, store="memory:")
    check_problems(failed.value, texts)


def test_an_engine_that_loses_what_it_acknowledged_is_caught(crash_everywhere, world, monkeypatch):
    """A commit that is rolled back, but told as done. Without a crash nobody would notice before the next append."""
    from holdfast.store.memory.store import MemoryStore

    right = MemoryStore.append_event

    def forgetful(self, log, expect, draft):
        digest = right(self, log, expect, draft)
        if draft.kind == "step_completed" and b"ship" in draft.body and isinstance(digest, bytes):
            self._logs[log].rows.pop()
        return digest

    monkeypatch.setattr(MemoryStore, "append_event", forgetful)
    with pytest.raises(CrashFailed):
        crash_everywhere(shop_on(world), {"order": 17}, world=world, store="memory:")


# The world


def test_the_world_records_every_request_and_gives_the_same_receipt_for_the_same_key(world):
    assert world.request("pay", key="a", amount=3) == {"number": 1, "receipt": "pay-1"}
    assert world.request("pay", key="b") == {"number": 2, "receipt": "pay-2"}
    assert world.request("pay", key="a", amount=3) == {"number": 3, "receipt": "pay-1"}
    assert [world.request("look")["receipt"] for _ in range(2)] == ["look-1", "look-2"]
    assert [request.number for request in world.requests("pay")] == [1, 2, 3]
    assert world.find("a").data == {"amount": 3} and world.find("c") is None
    world.reset()
    assert world.requests() == []


def test_the_world_refuses_and_hangs_when_it_is_told_to(world, texts):
    world.refuse("pay", times=2)
    for _ in range(2):
        with texts.raises(ConnectionError):
            world.request("pay")
    assert world.requests() == []
    world.hang("pay", 3)
    began = time.monotonic()
    slow = threading.Thread(target=world.request, args=("pay",))
    slow.start()
    until(lambda: world.requests("pay"))
    assert slow.is_alive(), "it is recorded at once, and others are served meanwhile"
    slow.join()
    assert time.monotonic() - began >= 3
    world.request("pay")


def test_the_world_is_used_by_many_threads_at_once(world):
    threads = [threading.Thread(target=world.request, args=("pay", f"{n}")) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(request.number for request in world.requests()) == list(range(1, 41))


def test_the_world_survives_a_client_that_is_killed(world):
    world.hang("pay", 60)
    code = "import sys; from holdfast.testing import World; World.at(sys.argv[1]).request('pay', key='k')"
    client = subprocess.Popen([sys.executable, "-c", code, world.address])
    try:
        until(lambda: world.find("k") is not None, seconds=20)
        client.send_signal(signal.SIGKILL)
    finally:
        client.kill()
        client.wait()
    assert client.returncode == -signal.SIGKILL
    assert world.request("pay", key="l")["number"] == 2


def test_the_world_ends_with_its_context_and_with_its_parent(texts):
    with World() as world:
        address = world.address
        assert World.at(address).request("pay")["number"] == 1
    assert not listens(address)
    with texts.raises(ConnectionError):
        world.requests()
    code = "import time; from holdfast.testing import World; w = World().__enter__(); print(w.address, flush=True)"
    parent = subprocess.Popen([sys.executable, "-c", f"{code}; time.sleep(60)"], stdout=subprocess.PIPE, text=True)
    try:
        address = parent.stdout.readline().strip()
        assert listens(address)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    until(lambda: not listens(address), seconds=10)


def listens(address):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except ConnectionError:
        return False
    return True


def test_importing_the_test_kit_is_light():
    code = "import sys; import holdfast.testing, holdfast.testing.plugin; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"apsw", "holdfast.testing.crash", "holdfast.testing.crash.world", "socketserver"} & set(loaded)

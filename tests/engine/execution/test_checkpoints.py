"""When things become durable, what a long step shows, and which tasks may be resumed."""

import asyncio
import threading
import time

import pytest

import holdfast
from holdfast import agent, tool
from holdfast.core import limits
from holdfast.testing.crash.everywhere import MovableClock
from tests.engine.both import declarer, events, kinds
from tests.waiting import auntil, until

CLOCK = MovableClock

STRATEGIES = ("every_step", "every_iteration", "on_state_change", "before_effects")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("effect", ["idempotent", "once", "transaction"])
def test_all_that_came_before_is_durable_when_a_call_that_changes_something_begins(app, either, strategy, effect):
    seen = []

    @tool(effect=effect)
    def act(*, connection) -> None:
        if effect == "transaction":
            seen.append(("step_completed", "fact_learned"))  # the store is busy with this very transaction
        else:
            seen.append(kinds(app))

    @either(checkpoint=strategy)
    def worker(task):
        yield task.step(lambda: 1, name="one")
        task.fact("said", 1)
        yield task.call(act)
        return 1

    assert app.run(worker, id="t").status == "completed"
    assert "step_completed" in seen[0] and "fact_learned" in seen[0]
    order = [record.kind for record in app.events("t")]
    assert order.index("fact_learned") < len(order) - 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_gives_the_same_result_and_the_same_replay(app, either, strategy):
    did, seen = [], []

    @tool(effect="read")
    def look(n: int) -> int:
        did.append(n)
        return n

    @either(checkpoint=strategy)
    def worker(task):
        looks = []
        for n in range(3):
            task.state.increment("n")
            looks.append((yield task.call(look, n=n)))
            looks.append((yield task.step(lambda n=n: n * 10, name="ten")))
            looks.append(task.state.n)
        seen.append(looks)
        yield task.wait("go")
        return looks

    assert app.run(worker, id="t").status == "waiting"
    app.signal("t", "go")
    done = app.run(worker, id="t")
    assert done.result == [0, 0, 1, 1, 10, 2, 2, 20, 3] and seen[0] == seen[1] and did == [0, 1, 2]
    assert app.verify("t").ok


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_crash_anywhere_is_survived_under_every_strategy(crash_everywhere, strategy):
    paid = []

    @tool(
        effect="once",
        reconcile=lambda call: holdfast.Happened("p") if call.idempotency_key in paid else holdfast.DidNotHappen(),
        reconcile_after=0,
    )
    def pay(*, idempotency_key: str) -> str:
        paid.append(idempotency_key)
        return "p"

    @agent(loop=True, checkpoint=strategy)
    def worker(task):
        task.step(lambda: 1, name="one")
        task.state.increment("n")
        task.step(lambda: 2, name="two")
        task.call(pay)
        return task.state.n if task.turn == 2 else None

    def check(state, world):
        assert state.result == 2 and len(paid) == len(set(paid)) == 2

    crash_everywhere(worker, check=check, setup=lambda app: paid.clear(), store="memory:", sample=30)


def test_steps_are_written_together_once_a_turn(app):
    sizes = []

    @agent(loop=True, checkpoint="every_iteration")
    def worker(task):
        for n in range(3):
            task.step(lambda n=n: n, name="one")
            sizes.append(app.head("t"))
        return "done" if task.turn == 2 else None

    app.run(worker, id="t")
    assert sizes[0] == sizes[2] and sizes[3] == sizes[5] > sizes[0]


def test_a_state_change_is_written_with_the_next_step(app):
    seen = []

    @agent(checkpoint="on_state_change")
    def worker(task):
        task.step(lambda: 1, name="quiet")
        seen.append(app.head("t"))
        task.state.n = 1
        task.step(lambda: 1, name="loud")
        seen.append(app.head("t"))

    app.run(worker, id="t")
    assert seen[0] == 2 and seen[1] == 5


def test_a_checkpoint_makes_everything_before_it_durable(app, either):
    seen = []

    @either(checkpoint="every_iteration")
    def worker(task):
        yield task.step(lambda: 1, name="one")
        task.fact("said", 1)
        yield task.checkpoint("half")
        seen.append([row.kind for row in app.store.read("t")])
        return 1

    done = app.run(worker, id="t")
    assert {"step_completed", "fact_learned", "checkpoint_made"} <= set(seen[0])
    assert list(done.checkpoints) == ["half"]


def test_a_step_that_takes_long_announces_itself_and_what_was_said(app, either, monkeypatch):
    monkeypatch.setattr(limits, "ANNOUNCE_SECONDS", 0.2)
    seen = []

    def slow():
        until(lambda: "slow#1" in app.get("t").steps)
        seen.append((app.get("t").steps["slow#1"].status, dict(app.get("t").notes)))
        return "done"

    @either()
    def worker(task):
        task.note("before", 1)
        return (yield task.step(slow))

    done = app.run(worker, id="t")
    assert done.result == "done" and seen == [("running", {"before": 1})]
    assert kinds(app).count("step_started") == 1 and done.steps["slow#1"].status == "completed"


def test_a_long_step_with_arguments_is_found_on_replay(app, either, monkeypatch):
    monkeypatch.setattr(limits, "ANNOUNCE_SECONDS", 0.2)
    did = []

    async def slow(n, unit="s"):
        did.append(n)
        await auntil(lambda: "step_started" in kinds(app))
        return [n, unit]

    @either()
    def worker(task):
        value = yield task.step(slow, 3)
        yield task.wait("go")
        return value

    app.run(worker, id="t")
    assert "step_started" in kinds(app)
    app.signal("t", "go")
    assert app.run(worker, id="t").result == [3, "s"] and did == [3]


# Resuming


def test_a_task_that_nobody_touched_for_too_long_is_not_resumed(app, clock, either, texts):
    @either(resume_within="1h")
    def worker(task):
        yield task.step(lambda: 1, name="one")
        return (yield task.wait("go"))

    app.run(worker, id="t")
    clock.advance(3500)
    app.signal("t", "go", 1)
    clock.advance(3601)
    before = app.get("t").seq
    for attempt in (lambda: app.run(worker, id="t"), lambda: app.resume("t", worker)):
        with texts.raises(holdfast.ResumeExpired):
            attempt()
    assert app.get("t").seq == before
    assert app.resume("t", worker, anyway=True).result == 1


def test_a_task_that_has_done_nothing_yet_is_never_too_old(app, clock, either):
    @either(resume_within="1h")
    def worker(task):
        return (yield task.step(lambda: 1, name="one"))

    app.start(worker, id="t")
    clock.advance(999_999)
    assert app.run(worker, id="t").result == 1


def test_a_changed_signature_is_noticed_before_anything_is_written(app, texts):
    @agent(name="worker")
    def first(task, notes: str):
        task.wait("go")

    app.run(first, {"notes": "x"}, id="t")
    app.signal("t", "go")
    before = app.get("t").seq

    @agent(name="worker")
    def more(task, notes: str, recipient: str):
        return 1

    @agent(name="worker")
    def other(task, notes: int):
        return 1

    @agent(name="worker")
    def fewer(task):
        return 1

    for changed in (more, other, fewer):
        with texts.raises(holdfast.InvalidInput) as refused:
            app.resume("t", changed)
        assert refused.value.hint
    assert app.get("t").seq == before

    @agent(name="worker")
    def optional(task, notes: str, recipient: str = "sam"):
        task.wait("go")
        return recipient

    assert app.resume("t", optional).result == "sam"


def test_resuming_by_id_needs_an_agent_the_app_was_given(url, clock, texts):
    @agent
    def worker(task):
        return task.wait("go")

    with holdfast.open(url, clock=clock) as app:
        app.start("worker", id="t")
        with texts.raises(holdfast.InvalidValue):
            app.resume("t")
        assert app.resume("t", worker).status == "waiting"
        app.signal("t", "go", 1)
        assert app.resume("t").result == 1, "now it knows"


def test_the_wrong_agent_is_refused(app, texts):
    @agent
    def worker(task):
        return 1

    @agent
    def other(task):
        return 2

    app.start(worker, id="t")
    for attempt in (lambda: app.resume("t", other), lambda: app.run(other, id="t")):
        with texts.raises(holdfast.InvalidValue):
            attempt()
    assert app.get("t").seq == 1


def test_a_cancelled_or_unknown_task_is_not_resumed_and_a_completed_one_is_given_back(app):
    @agent
    def worker(task):
        return 1

    app.run(worker, id="done")
    app.start(worker, id="cancelled")
    app.cancel("cancelled")
    events = app.head("done")
    assert app.resume("done", worker).result == 1 and app.head("done") == events
    with pytest.raises(holdfast.TaskFinished) as refused:
        app.resume("cancelled", worker)
    assert refused.value.hint
    with pytest.raises(holdfast.TaskNotFound) as missing:
        app.resume("nobody", worker)
    assert missing.value.hint


# Endings


def test_a_failure_shows_the_users_own_frames_and_its_cause(app, either):
    def inner():
        raise KeyError("missing")

    @either()
    def worker(task):
        yield task.step(lambda: 1, name="one")
        try:
            inner()
        except KeyError as error:
            raise ValueError("could not") from error

    failed = app.run(worker, id="t")
    failure = failed.failure
    assert (failure.type, failure.message, failure.cause.type) == ("ValueError", "could not", "KeyError")
    frames = [*failure.traceback, *failure.cause.traceback]
    assert all("holdfast/" not in frame or "tests/engine" in frame for frame in frames), frames
    assert "inner" in failure.cause.traceback[-1]
    assert events(app, "task_failed") and failed.seq == len(kinds(app))


@pytest.mark.parametrize("kind", ["def", "async"])
def test_a_failure_has_no_cause_that_is_not_the_users(app, kind):
    @declarer(kind)()
    def worker(task):
        yield task.step(lambda: 1, name="one")
        raise ValueError("no")

    assert app.run(worker, id="t").failure.cause is None


def test_cancelling_a_running_task_from_another_thread_keeps_the_step_under_way(app, either):
    did = []
    began = threading.Event()

    def slow():
        began.set()
        time.sleep(0.1)
        return "kept"

    @either()
    def worker(task):
        yield task.step(slow)
        yield task.step(lambda: did.append(1), name="next")

    def cancel():
        began.wait(5)
        app.cancel("t", by="ana", why="enough")

    other = threading.Thread(target=cancel)
    other.start()
    stopped = app.run(worker, id="t")
    other.join()
    assert stopped.status == "cancelled" and stopped.steps["slow#1"].result == "kept" and did == []


@pytest.mark.parametrize("wait", ["ask", "wait", "sleep"])
def test_cancelling_a_waiting_task_ends_it_at_once(app, either, wait):
    @either()
    def worker(task):
        yield task.sleep("2h") if wait == "sleep" else getattr(task, wait)("go")

    app.run(worker, id="t")
    assert app.cancel("t").status == "cancelled"
    assert app.run(worker, id="t").status == "cancelled"
    with pytest.raises(holdfast.TaskFinished):
        app.cancel("t")


@pytest.mark.parametrize("kind", ["def", "async"])
def test_a_swallowed_cancellation_does_not_complete_the_task(app, kind):
    either = declarer(kind)
    did = []

    @either()
    def worker(task):
        yield task.step(lambda: app.cancel("t") and None, name="one")
        try:
            yield task.step(lambda: did.append(1), name="two")
        except BaseException:
            task.note("caught", True)
        return "finished?"

    assert app.run(worker, id="t").status == "cancelled" and did == []


def test_a_cancellation_inside_a_task_group_cancels(app):
    async def cancel():
        await asyncio.to_thread(app.cancel, "t")

    @agent
    async def worker(task):
        await task.step(cancel)
        async with asyncio.TaskGroup() as group:
            for n in range(3):
                group.create_task(task.step(asyncio.sleep, 0, name=f"nap {n}"))

    assert app.run(worker, id="t").status == "cancelled"


@pytest.mark.parametrize("wait", ["ask", "wait", "sleep", "approve"])
def test_a_deadline_passes_in_a_wait(app, clock, either, wait):
    @either(deadline="10m")
    def worker(task):
        yield task.sleep("2h") if wait == "sleep" else getattr(task, wait)("go")

    assert app.run(worker, id="t").status == "waiting"
    clock.advance(601)
    failed = app.run(worker, id="t")
    assert (failed.status, failed.failure and failed.failure.code) == ("failed", "time-limit")


def test_fifty_async_tasks_at_once(app):
    @agent
    async def worker(task, n: int):
        first = await task.step(asyncio.sleep, 0.01, n, name="nap")
        return first + await task.step(lambda: 1, name="one")

    async def all():
        return await asyncio.gather(*(app.arun(worker, {"n": n}, id=f"t{n}") for n in range(50)))

    assert [state.result for state in asyncio.run(all())] == list(range(1, 51))


def test_each_kind_of_agent_runs_either_way(app, either):
    @either()
    def worker(task):
        return (yield task.step(lambda: 1, name="one"))

    assert app.run(worker, id="t").result == 1
    assert asyncio.run(app.arun(worker, id="u")).result == 1


def test_running_an_async_agent_inside_a_loop_is_refused_with_a_remedy(app, texts):
    @agent
    async def worker(task):
        return 1

    async def wrong():
        with texts.raises(holdfast.InvalidValue):
            app.run(worker, id="t")
        return await app.arun(worker, id="t")

    assert asyncio.run(wrong()).result == 1

"""Time that ends things: a deadline, a limit of wall time and a cancel cut what is under way, and the task ends."""

import asyncio
import gc
import json
import threading
import time

import pytest

import holdfast
from holdfast import Budget, DidNotHappen, Happened, LeaseLost, Retry, agent, tool
from holdfast.engine.definitions import call
from holdfast.engine.drivers.abandonable import ABANDONED
from holdfast.engine.execution.watch import Watch
from holdfast.failpoints import armed
from tests.clocks import HeldClock
from tests.engine.both import KINDS, declarer, events, kinds
from tests.engine.workers.test_worker import working
from tests.waiting import auntil, until, until_past

STORES = ("memory", "sqlite", "postgres")
CLOCK = HeldClock  # as good as the real one: threads do not wait for another
SOON = 0.3
"""When the time of these tasks is over, by a clock that stands still until they are where it should find them."""

LONG = 60
"""How long what hangs would take, if nothing ended it."""


class Late(threading.Event):
    """What hangs waits for this. Time passes from when the first does."""

    def __init__(self, clock):
        super().__init__()
        self._clock = clock
        clock.hold()

    def wait(self, timeout=None):
        self._clock.go()
        return super().wait(timeout)


@pytest.fixture
def late(clock):
    """It ends with the test, and so do all threads that were abandoned."""
    said = Late(clock)
    yield said
    said.set()
    until(lambda: not len(ABANDONED))


@pytest.fixture
def hung(late, clock):
    """Functions that hang, by the kind of step they make."""

    def in_thread():
        late.wait(LONG)
        return "late"

    async def on_loop():
        clock.go()
        end = time.monotonic() + LONG
        while not late.is_set() and time.monotonic() < end:
            await asyncio.sleep(0.01)
        return "late"

    return {"def step": in_thread, "async step": on_loop}


class Stopwatch:
    def __enter__(self):
        self._began = time.monotonic()
        return self

    def __exit__(self, *raised):
        self.seconds = time.monotonic() - self._began

    @property
    def in_time(self):
        return self.seconds < LONG / 3


def timed(work):
    with Stopwatch() as watch:
        found = work()
    assert watch.in_time, f"it took {watch.seconds:.1f} s"
    return found


def in_thread(work):
    found = []

    def run():
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


def go_after(app, clock, kind):
    """Hold the clock until an event of a kind is on record."""
    clock.hold()

    def look(log, events):
        if any(isinstance(one.event, kind) for one in events):
            clock.go()

    app.on_events(look)


def type_of(state):
    return state.status, state.failure and state.failure.type


# Deadlines


@pytest.mark.parametrize("step", ["def step", "async step"])
def test_a_step_that_hangs_ends_at_the_deadline(app, either, hung, step):
    went_on = []

    @either(deadline=SOON)
    def worker(task):
        yield task.step(hung[step], name="hang")
        went_on.append(1)

    done = timed(lambda: app.run(worker, id="t"))
    assert type_of(done) == ("failed", "TimeLimit") and "deadline" in done.failure.message and not went_on
    assert kinds(app)[-1] == "task_failed"


@pytest.mark.parametrize("effect", ["read", "idempotent"])
@pytest.mark.parametrize("step", ["def step", "async step"])
def test_a_tool_that_hangs_ends_at_the_deadline(app, either, hung, step, effect):
    slow = tool(hung[step], name="slow", effect=effect)

    @either()
    def worker(task):
        return (yield task.call(slow))

    assert type_of(timed(lambda: app.run(worker, id="t", deadline=SOON))) == ("failed", "TimeLimit")


def test_a_loop_that_hangs_in_a_later_turn_ends_at_the_deadline(app, either, late):
    @either(loop=True, deadline=SOON)
    def worker(task):
        if task.turn < 3:
            yield task.step(int, task.turn, name="quick")
            return None
        yield task.step(late.wait, LONG, name="hang")
        return None

    done = timed(lambda: app.run(worker, id="t"))
    assert type_of(done) == ("failed", "TimeLimit") and done.turn == 3


def test_tool_calls_of_a_reply_end_at_the_deadline(app, either, late):
    @tool(effect="read")
    def slow(n: int) -> int:
        if n:
            until(lambda: events(app, "step_completed"))
            late.wait(LONG)
        return n

    @either(deadline=SOON)
    def worker(task):
        calls = [{"id": str(n), "type": "function"} for n in range(3)]
        for n, one in enumerate(calls):
            one["function"] = {"name": "slow", "arguments": json.dumps({"n": n})}
        reply = {"role": "assistant", "content": None, "tool_calls": calls}
        task.message({"role": "user", "content": "go"})
        task.message(reply)
        yield task.call_tools(reply, [slow])

    done = timed(lambda: app.run(worker, id="t"))
    assert type_of(done) == ("failed", "TimeLimit")
    assert [one.key for one in events(app, "step_completed")] == ["~1/slow#1"], "the quick one is on record"


def test_a_map_that_hangs_ends_at_the_deadline(app, either, late):
    def slow(n):
        if n:
            until(lambda: events(app, "step_completed"))
            late.wait(LONG)

    @either(deadline=SOON)
    def worker(task):
        yield task.map(slow, [0, 1, 1], name="some")

    assert type_of(timed(lambda: app.run(worker, id="t"))) == ("failed", "TimeLimit")
    assert len(events(app, "step_completed")) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_hangs_outside_of_steps_ends_at_the_deadline(app, clock, late, kind):
    @agent(deadline=SOON)
    def plain(task):
        late.wait(LONG)

    @agent(deadline=SOON)
    async def looping(task):
        clock.go()
        await asyncio.sleep(LONG)

    done = timed(lambda: app.run(plain if kind == "def" else looping, id="t"))
    assert type_of(done) == ("failed", "TimeLimit")


@pytest.mark.parametrize("how", ["own_thread=False", "async, blocking its loop", "block"])
def test_a_body_without_verbs_that_returns_after_its_deadline_does_not_complete(app, clock, how):
    clock.hold()

    def take_long():
        clock.go()
        time.sleep(2 * SOON)

    @agent(deadline=SOON, own_thread=False)
    def plain(task):
        take_long()
        return "late"

    @agent(deadline=SOON)
    async def looping(task):
        take_long()
        return "late"

    def block():
        with app.task("triage", id="t", deadline=SOON) as task:
            take_long()
            task.finish("late")

    if how == "block":
        with pytest.raises(holdfast.TimeLimit):
            block()
    else:
        app.run(plain if how == "own_thread=False" else looping, id="t")
    done = app.get("t")
    assert type_of(done) == ("failed", "TimeLimit") and done.result is None


def test_a_deadline_that_is_kept_changes_nothing(app, either):
    @either(deadline="1m")
    def worker(task):
        first = yield task.step(lambda: 1, name="one")
        task.state.seen = first
        return first + (yield task.step(lambda: 2, name="two"))

    done = app.run(worker, id="t")
    assert (done.result, done.state["seen"]) == (3, 1) and app.run(worker, id="t").result == 3


def test_a_step_that_was_cut_is_done_when_the_task_is_resumed(app, either, late):
    tried = []

    @either(deadline=SOON)
    def worker(task):
        first = yield task.step(lambda: "kept", name="first")
        return [first, (yield task.step(lambda: tried.append(1) or late.wait(LONG), name="hang"))]

    assert timed(lambda: app.run(worker, id="t")).status == "failed"
    late.set()
    done = app.resume("t", worker, deadline="1m")
    assert done.result == ["kept", True] and len(tried) == 2
    assert [one.key for one in events(app, "step_completed")] == ["first#1", "hang#1"]


def test_every_branch_that_was_cut_goes_on_when_the_task_is_resumed(app, late):
    @agent(deadline=SOON)
    async def worker(task):
        async def one(n):
            return await task.step(late.wait, LONG, name=f"hang{n}")

        return await asyncio.gather(*(one(n) for n in range(3)))

    assert type_of(timed(lambda: app.run(worker, id="t"))) == ("failed", "TimeLimit")
    late.set()
    assert app.resume("t", worker, deadline="1m").result == [True] * 3


# What an abandoned thread can do


def test_an_abandoned_body_cannot_write_and_its_late_answer_is_an_observation(app, late):
    met, said = [], threading.Event()

    @agent(deadline=SOON)
    def worker(task):
        try:
            task.step(lambda: late.wait(LONG) and "late", name="hang")
        except BaseException as error:
            met.append(type(error))
        for verb in (lambda: task.step(lambda: 1, name="more"), lambda: task.fact("a", 1), lambda: task.sleep(0)):
            try:
                verb()
            except BaseException as error:
                met.append(type(error))
        said.set()

    timed(lambda: app.run(worker, id="t"))
    before = kinds(app)
    late.set()
    assert said.wait(LONG) and met == [LeaseLost] * 4
    assert kinds(app) == [*before, "step_observed"]
    (observed,) = events(app, "step_observed")
    assert observed.key == "hang#1" and observed.ended and holdfast.App is type(app)
    assert app.get("t").status == "failed" and "more#1" not in app.get("t").steps


def test_what_was_done_before_the_deadline_is_written_whatever_the_checkpoints(app, late):
    @agent(deadline=SOON, checkpoint="every_iteration")
    def worker(task):
        task.step(lambda: "kept", name="first")
        task.fact("learned", 7)
        task.step(late.wait, LONG, name="hang")

    done = timed(lambda: app.run(worker, id="t"))
    assert done.status == "failed" and done.steps["first#1"].result == "kept" and done.facts["learned"].value == 7


def test_an_abandoned_body_that_swallows_everything_does_not_run_for_ever(app, late):
    ended = threading.Event()

    @agent(deadline=SOON)
    def worker(task):
        try:
            while True:
                try:
                    task.step(late.wait, LONG, name="hang")
                except BaseException:
                    continue
        finally:
            ended.set()

    timed(lambda: app.run(worker, id="t"))
    late.set()
    assert ended.wait(LONG)


def test_a_body_that_was_abandoned_makes_no_other_code_look_like_a_part_of_it(app, late, recwarn, monkeypatch):
    monkeypatch.setattr(call, "_bodies", set())  # those of other tests may hang for a while

    @tool(effect="once")
    def send(to: str) -> str:
        return to

    @agent(deadline=SOON)
    def worker(task):
        task.step(late.wait, LONG, name="hang")

    timed(lambda: app.run(worker, id="t"))
    assert send("ana") == "ana" and not recwarn.list, "no agent is running that would record it"


def test_the_body_of_a_limited_agent_runs_in_a_thread_of_its_own(app):
    def here(task):
        return [threading.get_ident(), task.step(threading.get_ident, name="step")]

    mine = threading.get_ident()
    own, _ = found = app.run(agent(here, name="limited"), deadline="1m").result
    assert own != mine and found == [own, own], "steps run inline in that thread"
    assert app.run(agent(here, name="plain")).result == [mine, mine]
    assert app.run(agent(here, name="shared", own_thread=False), deadline="1m").result == [mine, mine]
    assert app.run(agent(here, name="budget", budget=Budget(wall_time="1m"))).result[0] != mine


@pytest.mark.parametrize("wrong", ["no", None, 2])
def test_an_own_thread_that_is_neither_true_nor_false_is_refused(wrong, texts):
    with texts.raises(holdfast.InvalidValue):
        agent(lambda task: None, name="a", own_thread=wrong)


def test_an_async_agent_has_no_thread_to_share(texts):
    async def looping(task): ...

    with texts.raises(holdfast.InvalidValue):
        agent(looping, own_thread=False)


# Where only steps with a time limit are cut


@pytest.mark.parametrize("how", ["block", "own_thread=False"])
def test_a_step_with_a_time_limit_is_cut_at_the_deadline_where_the_thread_is_shared(app, late, how):
    @agent(deadline=SOON, own_thread=False)
    def worker(task):
        task.step(late.wait, LONG, name="hang", timeout=LONG)

    def block():
        with pytest.raises(holdfast.TimeLimit), app.task("triage", id="t", deadline=SOON) as task:
            task.step(late.wait, LONG, name="hang", timeout=LONG)

    timed(block if how == "block" else lambda: app.run(worker, id="t"))
    assert type_of(app.get("t")) == ("failed", "TimeLimit")
    assert not events(app, "step_failed"), "it did not fail: its task had no more time"


@pytest.mark.parametrize("how", ["block", "own_thread=False"])
def test_a_step_without_a_time_limit_goes_on_where_the_thread_is_shared(app, clock, how):
    clock.hold()

    def slow():
        clock.go()
        time.sleep(2 * SOON)

    @agent(deadline=SOON, own_thread=False)
    def worker(task):
        task.step(slow)

    if how == "block":
        with pytest.raises(holdfast.TimeLimit), app.task("triage", id="t", deadline=SOON) as task:
            task.step(slow)
    else:
        app.run(worker, id="t")
    done = app.get("t")
    assert done.steps["slow#1"].status == "completed" and type_of(done) == ("failed", "TimeLimit")


def test_a_time_limit_of_its_own_that_comes_first_fails_the_step_alone(app, either, late):
    @either(deadline="1m")
    def worker(task):
        try:
            yield task.step(late.wait, LONG, name="hang", timeout=0.1)
        except holdfast.StepFailed as error:
            return error.details["step"]

    assert timed(lambda: app.run(worker, id="t")).result == "hang#1"


# Time left


def test_a_step_knows_how_long_it_may_take(app, either):
    found = {}

    def look(name):
        found[name] = holdfast.current_call().time_left

    @either()
    def worker(task):
        yield task.step(look, "free")
        yield task.step(look, "timeout", timeout=500)

    app.run(worker, id="free")
    assert found["free"] is None and 400 < found["timeout"] <= 500
    app.run(worker, id="deadline", deadline=300)
    assert 200 < found["free"] <= 300 and 200 < found["timeout"] <= 300
    app.run(worker, id="budget", deadline=3_000, budget=Budget(wall_time=200))
    assert 100 < found["free"] <= 200 and 100 < found["timeout"] <= 200


def test_the_time_left_grows_less(app):
    def look():
        first = holdfast.current_call().time_left
        time.sleep(0.05)
        return first - holdfast.current_call().time_left

    @agent
    def worker(task):
        return [task.step(look, name="own", timeout=5), task.step(look, name="task")]

    assert all(less >= 0.05 for less in app.run(worker, deadline=30).result)


# Back-offs and waits


def broken():
    raise ConnectionError


@pytest.mark.parametrize("how", ["agent", "own_thread=False", "block"])
def test_a_back_off_is_cut_by_the_deadline(app, clock, either, how):
    retry = Retry(5, first=LONG)
    go_after(app, clock, holdfast.events.AttemptFailed)

    if how == "own_thread=False":

        @agent(deadline=SOON, own_thread=False)
        def worker(task):
            task.step(broken, retry=retry)
    else:

        @either(deadline=SOON)
        def worker(task):
            yield task.step(broken, retry=retry)

    def block():
        with pytest.raises(holdfast.TimeLimit), app.task("triage", id="t", deadline=SOON) as task:
            task.step(broken, retry=retry)

    timed(block if how == "block" else lambda: app.run(worker, id="t"))
    assert type_of(app.get("t")) == ("failed", "TimeLimit") and len(events(app, "attempt_failed")) == 1


@pytest.mark.parametrize("how", ["agent", "own_thread=False"])
def test_a_back_off_and_a_sleep_are_cut_by_the_wall_time(app, clock, either, how):
    declared = {"budget": Budget(wall_time=SOON)}
    if how == "own_thread=False":

        @agent(**declared, own_thread=False)
        def worker(task, sleeps: bool):
            task.sleep(LONG) if sleeps else task.step(broken, retry=Retry(5, first=LONG))
    else:

        @either(**declared)
        def worker(task, sleeps: bool):
            yield task.sleep(LONG) if sleeps else task.step(broken, retry=Retry(5, first=LONG))

    for sleeps, begun in ((False, holdfast.events.AttemptFailed), (True, holdfast.events.WaitStarted)):
        go_after(app, clock, begun)
        assert type_of(timed(lambda s=sleeps: app.run(worker, {"sleeps": s}))) == ("failed", "BudgetExceeded")


def test_a_long_back_off_that_suspends_the_task_ends_with_the_deadline(app, either):
    @either(deadline=50)  # the next attempt is due in a minute
    def worker(task):
        yield task.step(broken, retry=Retry(5, first=3_600))

    waiting = app.run(worker, id="t", hold=0)
    assert waiting.status == "waiting"
    assert app.row("t").wake_us == app.row("t").deadline_us, "it is not left asleep beyond it"


def test_a_retry_within_the_time_is_made(app, either):
    tried = []

    def flaky():
        tried.append(1)
        if len(tried) < 3:
            raise ConnectionError
        return "done"

    @either(deadline="1m")
    def worker(task):
        return (yield task.step(flaky, retry=Retry(5, first=0.01)))

    assert app.run(worker, id="t").result == "done"


# Wall time


@pytest.mark.parametrize("step", ["def step", "async step"])
def test_a_step_that_hangs_ends_when_the_wall_time_is_over(app, either, hung, step):
    @either(budget=Budget(wall_time=SOON))
    def worker(task):
        yield task.step(hung[step], name="hang")

    done = timed(lambda: app.run(worker, id="t"))
    assert type_of(done) == ("failed", "BudgetExceeded") and "wall_time" in done.failure.message


def test_a_step_that_was_cut_waits_for_a_larger_budget_and_is_done_again(app, either, late):
    tried = []

    @either(budget=Budget(wall_time=SOON, on_exceed="ask"))
    def worker(task):
        return (yield task.step(lambda: tried.append(1) or late.wait(LONG), name="hang"))

    waiting = timed(lambda: app.run(worker, id="t"))
    assert (waiting.status, waiting.waiting.kind) == ("waiting", "budget") and len(tried) == 1
    late.set()
    app.raise_budget("t", Budget(wall_time="1m"), by="ana")
    assert app.run(worker, id="t").result is True and len(tried) == 2


def test_a_body_that_hangs_outside_of_steps_waits_for_a_larger_budget(app, clock, late):
    @agent(budget=Budget(wall_time=SOON, on_exceed="ask"))
    async def looping(task):
        clock.go()
        await auntil(lambda: late.is_set())
        return "done"

    @agent(budget=Budget(wall_time=SOON, on_exceed="ask"))
    def plain(task):
        late.wait(LONG)
        return "done"

    for one in (looping, plain):
        clock.hold()
        assert timed(lambda a=one: app.run(a, id=a.name)).waiting.kind == "budget"
    late.set()
    for one in (looping, plain):
        app.raise_budget(one.name, Budget(wall_time="1m"), by="ana")
        assert app.run(one, id=one.name).result == "done"


def test_the_deadline_ends_a_task_that_waits_for_a_larger_budget(app, clock, either, late):
    @either(budget=Budget(wall_time=SOON, on_exceed="ask"))
    def worker(task):
        yield task.step(late.wait, LONG, name="hang")

    assert timed(lambda: app.run(worker, id="t", deadline="1h")).waiting.kind == "budget"
    clock.advance(3_600)
    until(lambda: app.run(worker, id="t").status == "failed")
    assert type_of(app.get("t")) == ("failed", "TimeLimit")


def test_a_deadline_that_passes_while_a_suspension_is_written_comes_after_it(app, either, late):
    """The body fails with TimeLimit while the wait for a larger budget is on its way to the log."""

    @either(budget=Budget(wall_time=SOON, on_exceed="ask"))
    def worker(task):
        yield task.step(late.wait, LONG, name="hang")

    def slowly(name):
        if name == "commit.before":
            time.sleep(0.15)

    with armed(slowly):
        for number in range(4):
            id = f"t{number}"
            timed(lambda id=id, number=number: app.run(worker, id=id, deadline=SOON + 0.04 * (number + 1)))
            until(lambda id=id: app.run(worker, id=id).status == "failed")
            assert type_of(app.get(id)) == ("failed", "TimeLimit")


# Calls that can be made once only


@pytest.mark.parametrize("step", ["def step", "async step"])
@pytest.mark.parametrize("end", ["deadline", "cancel"])
def test_a_once_call_under_way_is_in_doubt_and_settled_before_the_end(app, either, hung, step, end):
    begun = threading.Event()

    def call_def():
        begun.set()
        return hung["def step"]()

    async def call_async():
        begun.set()
        return await hung["async step"]()

    pay = tool(call_def if step == "def step" else call_async, name="pay", effect="once")

    @either()
    def worker(task):
        return (yield task.call(pay))

    thread, found = in_thread(lambda: app.run(worker, id="t", deadline=SOON if end == "deadline" else "1h"))
    assert begun.wait(LONG)
    if end == "cancel":
        app.cancel("t")
    thread.join(LONG / 2)
    assert found and (found[0].status, found[0].waiting.kind) == ("waiting", "doubt"), "it has not ended"
    assert "step_doubted" in kinds(app) and not {"task_failed", "task_cancelled"} & set(kinds(app))
    app.settle("t", "pay#1", happened=True, result="paid", by="ana")
    done = app.run(worker, id="t")
    assert done.status == ("failed" if end == "deadline" else "cancelled")
    assert done.steps["pay#1"].result == "paid"


def test_the_destination_is_asked_about_a_call_that_was_cut(app, either, late):
    sent, undone = [], []

    @tool(effect="once", reconcile=lambda call: Happened("paid"), reconcile_after=0, compensate=undone.append)
    def pay() -> str:
        sent.append(1)
        late.wait(LONG)
        return "late"

    @either(deadline=SOON)
    def worker(task):
        yield task.call(pay)

    done = timed(lambda: app.run(worker, id="t"))
    assert type_of(done) == ("failed", "TimeLimit") and len(sent) == 1
    assert done.steps["pay#1"].result == "paid" and [call.result for call in undone] == ["paid"]


def test_while_the_thread_of_a_cut_call_may_be_sending_it_is_not_believed_undone(app, either, late):
    @tool(effect="once", reconcile=lambda call: DidNotHappen(), reconcile_after=0)
    def pay() -> str:
        late.wait(LONG)
        return "late"

    @either(deadline=SOON)
    def worker(task):
        yield task.call(pay)

    thread, found = in_thread(lambda: app.run(worker, id="t"))
    until(lambda: app.head("t") and "step_doubted" in kinds(app))
    time.sleep(SOON)
    assert not found and events(app, "step_doubted")[0].until_us > 0, "its thread is alive"
    late.set()
    thread.join(LONG)
    assert type_of(found[0]) == ("failed", "TimeLimit")
    observed = events(app, "step_observed")
    assert observed and observed[0].ended and kinds(app).index("step_observed") < kinds(app).index("step_settled")


def test_a_call_that_may_have_happened_is_undone(app, either, late):
    """An idempotent call is not announced; when it is cut, the process that made it knows of it."""
    undone = []

    def release(call):
        undone.append(call.maybe_done)

    @tool(effect="idempotent", compensate=release)
    def reserve(seat: str) -> str:
        late.wait(LONG)
        return seat

    @either(deadline=SOON)
    def worker(task):
        yield task.call(reserve, seat="12A")

    done = timed(lambda: app.run(worker, id="t"))
    assert type_of(done) == ("failed", "TimeLimit") and undone == [True]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_transaction_that_takes_too_long_writes_nothing_and_is_made_when_the_task_is_resumed(app, clock, either):
    clock.hold()
    pauses = [2 * SOON, 0]

    @tool(effect="transaction")
    def transfer(connection: holdfast.Connection) -> int:
        connection.execute("create table if not exists paid (n int)")
        connection.execute("insert into paid values (1)")
        clock.go()
        time.sleep(pauses.pop(0))
        return connection.execute("select count(*) from paid").fetchone()[0]

    @either(deadline=SOON)
    def worker(task):
        return (yield task.call(transfer))

    assert type_of(timed(lambda: app.run(worker, id="t"))) == ("failed", "TimeLimit")
    assert app.resume("t", worker, deadline="1m").result == 1


def test_a_call_that_was_only_announced_when_the_time_was_over_is_not_made(app, clock):
    """Its announcement took so long that its task was stopped meanwhile."""
    clock.hold()
    made = []

    @tool(effect="once")
    async def pay() -> None:
        made.append(1)

    @agent(deadline=SOON)
    async def worker(task):
        await task.call(pay)

    def slow(log, events):
        if any(isinstance(one.event, holdfast.events.StepStarted) for one in events):
            clock.go()
            time.sleep(3 * SOON)

    app.on_events(slow)
    done = timed(lambda: app.run(worker, id="t"))
    assert type_of(done) == ("failed", "TimeLimit") and not made
    assert [one.happened for one in events(app, "step_settled")] == [False], "nobody is asked about it"


# Children


@pytest.mark.parametrize("child_kind", KINDS)
@pytest.mark.parametrize("own", ["", "1h"])
def test_a_child_that_hangs_ends_with_its_parent_at_the_deadline(app, either, late, child_kind, own):
    @declarer(child_kind)(**({"deadline": own} if own else {}))
    def child(task):
        yield task.step(late.wait, LONG, name="hang")

    @either(deadline=SOON)
    def parent(task):
        yield task.spawn(child, name="child")

    done = timed(lambda: app.run(parent, id="p"))
    assert type_of(done) == ("failed", "TimeLimit")
    until(lambda: app.get("p/child#1").status == "failed")
    assert type_of(app.get("p/child#1")) == ("failed", "TimeLimit")


@pytest.mark.parametrize("child_kind", KINDS)
def test_a_deadline_of_a_child_ends_the_child_alone(app, either, late, child_kind):
    @declarer(child_kind)(deadline=SOON)
    def child(task):
        yield task.step(late.wait, LONG, name="hang")

    @either(deadline="1h")
    def parent(task):
        try:
            yield task.spawn(child, name="child")
        except holdfast.StepFailed as error:
            return error.message

    assert "TimeLimit" in timed(lambda: app.run(parent, id="p")).result


@pytest.fixture
def paying(late):
    """A child that hangs and then pays, and what it paid."""
    paid = []

    @tool(effect="once")
    def pay() -> str:
        paid.append(1)
        return "paid"

    def child(task):
        yield task.step(late.wait, LONG, name="hang")
        return (yield task.call(pay))

    return child, paid


@pytest.mark.parametrize("child_kind", KINDS)
def test_a_child_fails_with_its_parent_whose_wall_time_is_over_and_goes_on_with_it(
    app, either, late, child_kind, paying
):
    child, paid = declarer(child_kind)()(paying[0]), paying[1]

    @either(budget=Budget(wall_time=SOON))
    def parent(task):
        return (yield task.spawn(child, name="child"))

    found = timed(lambda: app.run(parent, id="p"))
    assert type_of(found) == ("failed", "BudgetExceeded")
    until(lambda: app.get("p/child#1").status == "failed")
    late.set()
    with working(app, parent, child):
        assert type_of(app.get("p/child#1")) == ("failed", "BudgetExceeded") and not paid
    app.raise_budget("p", Budget(wall_time="1m"), by="ana")
    assert until(lambda: _resumed(app, "p", parent)).result == "paid" and paid == [1]


def _resumed(app, id, parent):
    """The abandoned thread may be about to release the child."""
    done = app.resume(id, parent) if app.get(id).status == "failed" else app.run(parent, id=id)
    return done if done.status == "completed" else None


@pytest.mark.parametrize("child_kind", KINDS)
def test_a_child_waits_with_its_parent_for_a_larger_budget(app, either, late, child_kind, paying):
    child, paid = declarer(child_kind)()(paying[0]), paying[1]

    @either(budget=Budget(wall_time=SOON, on_exceed="ask"))
    def parent(task):
        return (yield task.spawn(child, name="child"))

    assert timed(lambda: app.run(parent, id="p")).waiting.kind == "budget"
    until(lambda: app.get("p/child#1").status == "pending")
    late.set()
    with working(app, parent, child):
        until(lambda: app.get("p/child#1").status == "waiting")
        assert [(one.owner, one.key) for one in app.inbox("p/child#1")] == [("p", "wall_time")] and not paid
        app.raise_budget("p", Budget(wall_time="1m"), by="ana")
        until(lambda: app.get("p").status == "completed")
    assert app.get("p").result == "paid" and paid == [1]


# Cancelling


@pytest.mark.parametrize("step", ["def step", "async step"])
@pytest.mark.parametrize("limited", [False, True])
def test_cancel_reaches_a_step_under_way(app, either, hung, step, limited):
    begun, went_on = threading.Event(), []

    @either(**({"deadline": "1h"} if limited else {}))
    def worker(task):
        yield task.step(begun.set, name="first")
        yield task.step(hung[step], name="hang")
        went_on.append(1)

    thread, _ = in_thread(lambda: app.run(worker, id="t"))
    assert begun.wait(LONG)
    until(lambda: any(one.key == "hang#1" for one in app.under_way("t")))
    with Stopwatch() as watch:
        app.cancel("t", by="ana", why="enough")
        until(lambda: app.get("t").status == "cancelled", LONG / 3)
    assert watch.seconds < 10, "it is noticed within half a second; the rest is for a busy machine"
    assert events(app, "task_cancelled")[0].why == "enough"
    del thread


@pytest.mark.parametrize("limited", [False, True])
def test_what_is_left_behind_by_a_cancel_cannot_write(app, late, limited):
    begun, met = threading.Event(), []

    @agent(**({"deadline": "1h"} if limited else {}))
    def worker(task):
        try:
            task.step(lambda: begun.set() or late.wait(LONG), name="hang")
        except BaseException as error:
            met.append(type(error))
            raise

    thread, found = in_thread(lambda: app.run(worker, id="t"))
    assert begun.wait(LONG)
    app.cancel("t")
    until(lambda: app.get("t").status == "cancelled")
    late.set()
    thread.join(LONG)
    assert found[0].status == "cancelled", "whoever called run is told how the task ended"
    until(lambda: met)
    assert met == [LeaseLost]
    until(lambda: kinds(app)[-1] == "step_observed")


def test_cancel_reaches_a_body_that_hangs_outside_of_steps(app, late):
    begun = threading.Event()

    @agent
    def plain(task):
        begun.set()
        late.wait(LONG)

    @agent
    async def looping(task):
        begun.set()
        await asyncio.sleep(LONG)

    for one in (plain, looping):
        in_thread(lambda a=one: app.run(a, id=a.name))
        assert begun.wait(LONG)
        begun.clear()
        app.cancel(one.name)
        until(lambda a=one: app.get(a.name).status == "cancelled", LONG / 3)


def test_cancel_undoes_what_was_done_before_the_step_under_way(app, either, late):
    begun, undone = threading.Event(), []

    def release(call):
        undone.append(call.result)

    @tool(effect="idempotent", compensate=release)
    def reserve(seat: str) -> str:
        return seat

    @either()
    def worker(task):
        yield task.call(reserve, seat="12A")
        yield task.step(lambda: begun.set() or late.wait(LONG), name="hang")

    in_thread(lambda: app.run(worker, id="t"))
    assert begun.wait(LONG)
    app.cancel("t")
    until(lambda: app.get("t").status == "cancelled", LONG / 3)
    assert undone == ["12A"]


@pytest.mark.parametrize("child_kind", KINDS)
def test_cancel_reaches_a_step_of_a_child(app, either, late, child_kind):
    begun = threading.Event()

    @declarer(child_kind)()
    def child(task):
        yield task.step(lambda: begun.set() or late.wait(LONG), name="hang")

    @either()
    def parent(task):
        yield task.spawn(child, name="child")

    in_thread(lambda: app.run(parent, id="p"))
    assert begun.wait(LONG)
    app.cancel("p")
    for id in ("p", "p/child#1"):
        until(lambda id=id: app.get(id).status == "cancelled", LONG / 3)
    kinds = [one.kind for one in app.events("p")]
    told = kinds.index("wait_ended") if "wait_ended" in kinds else len(kinds)
    assert kinds.index("cancel_requested") < told, "it knows that it is cancelled before its child's end reaches it"


@pytest.mark.parametrize("ended_by", ["itself", "another"])
def test_run_returns_what_became_of_a_task_that_was_cut_while_its_thread_was_stuck(url, late, ended_by):
    """A `def` agent without a limit runs in the caller's thread, which comes back when its step does."""
    begun = threading.Event()

    @tool(effect="once")
    def pay() -> str:
        begun.set()
        late.wait(LONG)
        return "paid"

    @agent
    def worker(task):
        return task.call(pay)

    if url == "memory:" and ended_by == "another":
        pytest.skip("two apps have two stores in memory")
    with holdfast.open(url) as app:
        thread, found = in_thread(lambda: app.run(worker, id="t"))
        assert begun.wait(LONG)
        app.cancel("t")
        until(lambda: app.get("t").status == "waiting")
        app.settle("t", "pay#1", happened=True, result="paid", by="ana")
        if ended_by == "another":
            with holdfast.open(url) as other:
                assert other.run(worker, id="t").status == "cancelled"
        else:
            with pytest.raises(holdfast.TaskBusy, match="was cancelled: it ends after the current step") as busy:
                app.run(worker, id="t")
            assert "cancel the task" not in busy.value.hint
        late.set()
        thread.join(LONG)
        assert found[0].status == app.get("t").status == "cancelled"


@pytest.mark.parametrize("how", ["block", "own_thread=False"])
def test_cancel_cuts_a_step_with_a_time_limit_where_the_thread_is_shared(app, late, how):
    begun = threading.Event()

    @agent(own_thread=False)
    def worker(task):
        task.step(lambda: begun.set() or late.wait(LONG), name="hang", timeout=LONG)

    def block():
        with app.task("triage", id="t") as task:
            task.step(lambda: begun.set() or late.wait(LONG), name="hang", timeout=LONG)

    thread, _ = in_thread(block if how == "block" else lambda: app.run(worker, id="t"))
    assert begun.wait(LONG)
    app.cancel("t")
    thread.join(LONG / 3)
    assert app.get("t").status == "cancelled"


def test_cancel_cuts_a_back_off(app, either):
    @either()
    def worker(task):
        yield task.step(broken, retry=Retry(5, first=LONG))

    thread, found = in_thread(lambda: app.run(worker, id="t"))
    until(lambda: app.head("t") and "attempt_failed" in kinds(app))
    app.cancel("t")
    thread.join(LONG / 3)
    assert found[0].status == "cancelled"


def test_a_cancel_by_another_app_is_noticed(url, either, late):
    """Another app stands for another process: nothing tells this one but the log."""
    if url == "memory:":
        pytest.skip("one process only")
    begun = threading.Event()

    @either()
    def worker(task):
        yield task.step(lambda: begun.set() or late.wait(LONG), name="hang")

    with holdfast.open(url) as app, holdfast.open(url) as other:
        in_thread(lambda: app.run(worker, id="t"))
        assert begun.wait(LONG)
        other.cancel("t")
        until(lambda: other.get("t").status == "cancelled", LONG / 3)
        late.set()


def test_what_others_write_meanwhile_cuts_nothing(app, either, late):
    begun = threading.Event()

    @either()
    def worker(task):
        return (yield task.step(lambda: begun.set() or late.wait(LONG), name="slow"))

    thread, found = in_thread(lambda: app.run(worker, id="t"))
    assert begun.wait(LONG)
    app.patch("t", holdfast.StatePatch(set={"seen": 1}))
    time.sleep(0.8)
    assert not found
    late.set()
    thread.join(LONG)
    assert found[0].result is True and found[0].state["seen"] == 1


# Replays after the time


def test_a_task_whose_deadline_passed_while_nobody_held_it_is_ended_by_the_next_claim(app, either):
    done = []

    @either()
    def worker(task):
        yield task.step(lambda: done.append(1), name="act")

    app.start(worker, id="t", deadline=0.05)
    until_past(app.get("t").deadline)
    assert type_of(app.run(worker, id="t")) == ("failed", "TimeLimit") and not done


@pytest.mark.parametrize("end", ["deadline", "cancel"])
def test_a_replay_after_the_time_still_finds_out_how_things_are_undone(app, clock, either, end):
    undone = []

    def release():
        undone.append(1)

    @either()
    def worker(task):
        yield task.step(lambda: "seat", name="reserve")
        task.compensate(release)
        yield task.ask("who?", name="who")

    assert app.run(worker, id="t", deadline="1h" if end == "deadline" else None).waiting.kind == "person"
    if end == "deadline":
        clock.advance(3_600)
    else:
        app.cancel("t")
    done = timed(lambda: app.run(worker, id="t"))
    assert done.status == ("failed" if end == "deadline" else "cancelled") and undone == [1]


def test_a_replay_that_hangs_after_the_time_is_ended_too(app, clock, late):
    lives = []

    @agent
    def worker(task):
        task.step(lambda: 1, name="one")
        if lives:
            late.wait(LONG)
        lives.append(1)
        task.ask("who?", name="who")

    assert app.run(worker, id="t", deadline="1h").status == "waiting"
    clock.advance(3_600)
    assert type_of(timed(lambda: app.run(worker, id="t"))) == ("failed", "TimeLimit")


def test_a_new_deadline_is_for_a_task_that_has_failed(app):
    @agent
    def asker(task):
        return task.ask("who?")

    app.run(asker, id="t")
    with pytest.raises(holdfast.InvalidValue, match="deadline= is for a task that has failed; task 't' is waiting"):
        app.resume("t", asker, deadline="1m")
    assert app.get("t").deadline is None


def test_a_deadline_that_has_passed_names_what_resumes_the_task(app, either, late):
    @either(deadline=SOON)
    def worker(task):
        yield task.step(late.wait, LONG, name="hang")

    message = app.run(worker, id="a1").failure.message
    assert message == (
        "the deadline of task 'a1' has passed (resume it with a new one: app.resume('a1', agent, deadline=\"10m\"))"
    )


class Running:
    """A task under way."""

    def __init__(self, execution):
        self.execution = execution

    def cut(self):
        raise AssertionError("its time is not over")


def test_tasks_that_begin_while_the_watch_looks_do_not_end_it():
    with holdfast.open("memory:") as app, app.task("watched", id="t") as task:
        watch = Watch(app.logs)
        watch._awake = True  # its thread is not needed: this one looks

        class Garbage:
            left = 500

            def __init__(self):
                self.cycle = self

            def __del__(self):
                watch.begin_task(Running(task._execution), is_limited=False)
                if Garbage.left:
                    Garbage.left -= 1
                    Garbage()

        for _ in range(5_000):
            watch.begin_task(Running(task._execution), is_limited=False)
        before = gc.get_threshold()
        try:
            gc.set_threshold(1)
            Garbage()
            watch._cut_ended(time.monotonic())
        finally:
            gc.set_threshold(*before)
        assert len(watch._tasks) > 5_000, "the collector let tasks begin"
        task.finish(None)

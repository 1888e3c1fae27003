"""Bugs about time that does not end things, planted one by one; each is caught by a check."""

import asyncio
import threading
import time

import pytest

import holdfast
from holdfast import Retry, agent, tool
from holdfast.core.flows import lifecycle, step as flows
from holdfast.engine.dispatch.runner import Runner
from holdfast.engine.drivers.abandonable import ABANDONED
from holdfast.engine.execution.execution import Execution
from holdfast.engine.execution.loop_execution import LoopExecution
from holdfast.engine.execution.replay import LiveCalls
from holdfast.engine.execution.watch import Watch
from tests.clocks import HeldClock
from tests.crash.test_planted_bugs import Bench, Bug
from tests.waiting import until

SOON, LONG = 0.2, 6.0


def a_hanging_step_ends_at_the_deadline(bench):
    @agent(deadline=SOON)
    def plain(task):
        task.step(time.sleep, LONG, name="hang")

    @agent(deadline=SOON)
    async def looping(task):
        await task.step(asyncio.sleep, LONG, name="hang")

    for one in (plain, looping):
        with holdfast.open("memory:") as app:
            began = time.monotonic()
            app.run(one, id="t")
            assert time.monotonic() - began < LONG / 2, "it outlasted its deadline"


def deadlines_are_looked_at_between_steps(patch):
    """Nothing is cut while it runs."""
    patch.setattr(Watch, "_cut_ended", lambda self, now: 0.25)


def bodies_are_waited_for(patch):
    """The body of a def agent is never abandoned."""
    patch.setattr(Runner, "cut", lambda self: None)


def async_steps_are_waited_for(patch):
    """A step on an event loop is never cancelled."""
    patch.setattr(LoopExecution, "cut", lambda self: None)


def an_abandoned_body_writes_nothing(bench):
    late, ended, clock = threading.Event(), threading.Event(), HeldClock()

    def hang():
        clock.go()
        late.wait(LONG)

    @agent(deadline=SOON)
    def worker(task):
        try:
            task.step(hang)
            task.step(lambda: "zombie", name="more")
        finally:
            ended.set()

    clock.hold()
    with holdfast.open("memory:", clock=clock) as app:
        app.run(worker, id="t")
        before = [one.kind for one in app.events("t")]
        late.set()
        assert ended.wait(20) and before[-1] == "task_failed"
        assert [one.kind for one in app.events("t")] == [*before, "step_observed"], "a zombie wrote"


def abandoned_bodies_are_not_fenced(patch):
    """What an abandoned thread does is written as if nothing had happened."""

    def take(self, take_over):
        take_over()
        return True

    patch.setattr(Execution, "abandon_body", take)


def what_comes_after_the_deadline_is_no_result(bench):
    @agent(deadline=SOON, own_thread=False)
    def worker(task):
        time.sleep(2 * SOON)
        return "late"

    with holdfast.open("memory:") as app:
        assert app.run(worker, id="t").status == "failed", "it completed after its deadline"


def endings_look_at_no_clock(patch):
    """A body that returns has completed, whenever that is."""
    patch.setattr(lifecycle, "is_limited", lambda state: False)


def a_back_off_ends_with_the_deadline(bench):
    def broken():
        raise ConnectionError

    @agent(deadline=SOON, own_thread=False)
    def worker(task):
        task.step(broken, retry=Retry(2, first=LONG))

    with holdfast.open("memory:") as app:
        began = time.monotonic()
        app.run(worker, id="t")
        assert time.monotonic() - began < LONG / 2, "the back-off outlasted the deadline"


def back_offs_are_slept_through(patch):
    """Before the next attempt all of the time is let pass."""

    def sleep(surroundings, branch, known):
        yield from flows.until(known.retry_us)

    patch.setattr(flows, "_back_off", sleep)


def a_cancel_is_noticed(bench):
    late, begun = threading.Event(), threading.Event()

    @agent
    def worker(task):
        task.step(lambda: begun.set() or late.wait(LONG), name="hang")

    path = f"{bench.directory}/cancel-{time.monotonic_ns()}.db"
    with holdfast.open(path) as app, holdfast.open(path) as other:
        thread = threading.Thread(target=app.run, args=(worker,), kwargs={"id": "t"})
        thread.start()
        assert begun.wait(20)
        other.cancel("t")
        end = time.monotonic() + LONG / 2
        while other.get("t").status == "running" and time.monotonic() < end:
            time.sleep(0.01)
        status = other.get("t").status
        late.set()
        thread.join(20)
        assert status == "cancelled", "the step went on"


def nobody_looks_for_cancels(patch):
    """A process learns of a cancel with its next write, and none comes of a step that takes long."""
    patch.setattr(Watch, "_look_for_cancels", lambda self, now: None)
    patch.setattr(Execution, "announce", lambda self, step: None)


def a_cut_call_may_still_be_sent(bench):
    late, sent, clock = threading.Event(), [], HeldClock()

    @tool(effect="once", reconcile=lambda call: holdfast.DidNotHappen(), reconcile_after=0)
    def pay() -> None:
        clock.go()
        late.wait(LONG)
        sent.append(1)

    @agent(deadline=SOON)
    def worker(task):
        task.call(pay)

    clock.hold()
    with holdfast.open("memory:", clock=clock) as app:
        state = app.run(worker, id="t", hold=0)
        late.set()
        until(lambda: sent, 20)
        assert state.status == "waiting", "it was believed undone while its thread was sending"


def threads_of_bodies_are_forgotten(patch):
    """Whoever takes over knows nothing of the thread that may be sending."""
    patch.setattr(LiveCalls, "inherit", lambda self, left: None)


BUGS = [
    Bug(deadlines_are_looked_at_between_steps, a_hanging_step_ends_at_the_deadline, "outlasted its deadline"),
    Bug(bodies_are_waited_for, a_hanging_step_ends_at_the_deadline, "outlasted its deadline"),
    Bug(async_steps_are_waited_for, a_hanging_step_ends_at_the_deadline, "outlasted its deadline"),
    Bug(abandoned_bodies_are_not_fenced, an_abandoned_body_writes_nothing, "a zombie wrote"),
    Bug(endings_look_at_no_clock, what_comes_after_the_deadline_is_no_result, "completed after its deadline"),
    Bug(back_offs_are_slept_through, a_back_off_ends_with_the_deadline, "outlasted the deadline"),
    Bug(nobody_looks_for_cancels, a_cancel_is_noticed, "the step went on"),
    Bug(threads_of_bodies_are_forgotten, a_cut_call_may_still_be_sent, "believed undone"),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_caught(bug, tmp_path):
    bug.assert_caught(Bench(None, tmp_path))
    until(lambda: not len(ABANDONED), 20)

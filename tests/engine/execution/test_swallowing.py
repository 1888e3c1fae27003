"""Agents that catch everything, and go on: a task that was stopped ends all the same, and nothing spins for ever."""

import asyncio
import contextlib
import sys
import threading
import time

import pytest

import holdfast
from holdfast import Budget, agent, events as ev
from holdfast.core import codec, errors
from tests.waiting import until

STORES = ("memory", "sqlite", "postgres")


def work():
    return 1


def bare(act):
    while True:
        try:  # noqa: SIM105 — what this is about
            act()
        except:  # noqa: E722, S110
            pass


def nested(act):
    while True:
        try:
            while True:
                try:
                    act()
                except BaseException:
                    continue
        except BaseException:  # noqa: S110
            pass


def suppressing(act):
    while True:
        with contextlib.suppress(BaseException):
            act()


def keeping(act):
    kept = []
    while True:
        try:
            try:
                act()
            except BaseException as error:
                kept.append(error)
        except BaseException as error:
            kept.append(error)


def retrying(act):
    def again():
        while True:
            try:
                return act()
            except BaseException as error:
                last = error
                assert last is not None

    while True:
        try:
            again()
        except BaseException:
            continue


LOOPS = {"bare": bare, "nested": nested, "suppressing": suppressing, "keeping": keeping, "retrying": retrying}


async def bare_async(act):
    while True:
        try:  # noqa: SIM105
            await act()
        except:  # noqa: E722, S110
            pass


async def nested_async(act):
    while True:
        try:
            while True:
                try:
                    await act()
                except BaseException:
                    continue
        except BaseException:
            await asyncio.sleep(0)


async def suppressing_async(act):
    while True:
        with contextlib.suppress(BaseException):
            await act()


LOOPS_ASYNC = {"bare": bare_async, "nested": nested_async, "suppressing": suppressing_async}
KINDS = ("def", "async def")
AGENTS = [*(("def", loop) for loop in LOOPS), *(("async def", loop) for loop in LOOPS_ASYNC)]


def swallower(kind, loop, stop, also=lambda task: None):
    """An agent that does one step, in which it is stopped, and then swallows everything."""

    @agent(name="swallower")
    def one(task):
        task.step(stop, name="stop")
        LOOPS[loop](lambda: (also(task), task.step(work)))

    @agent(name="swallower")
    async def other(task):
        await task.step(stop, name="stop")

        async def act():
            also(task)
            await task.step(work)

        await LOOPS_ASYNC[loop](act)

    return one if kind == "def" else other


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    before = sys.gettrace(), sys.getprofile()
    began = time.process_time()
    yield
    assert (sys.gettrace(), sys.getprofile()) == before and sys.exc_info() == (None, None, None)
    assert time.process_time() - began < 20, "it spun"


@pytest.mark.parametrize(("kind", "loop"), AGENTS)
@pytest.mark.timeout(60)
def test_whatever_the_loop_looks_like_it_is_left(kind, loop):
    with holdfast.open("memory:") as app:
        done = app.run(swallower(kind, loop, lambda: app.cancel("t") and None), id="t")
        assert (done.status, list(done.steps)) == ("cancelled", ["stop#1"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(60)
def test_a_cancelled_task_is_cancelled(app, kind):
    done = app.run(swallower(kind, "bare", lambda: app.cancel("t", why="enough") and None), id="t")
    assert (done.status, list(done.steps)) == ("cancelled", ["stop#1"])
    assert app.verify().ok


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(60)
def test_a_task_past_its_deadline_fails(app, clock, kind):
    done = app.run(swallower(kind, "bare", lambda: clock.advance(100)), id="t", deadline=50)
    assert (done.status, done.failure.type) == ("failed", "TimeLimit")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(60)
def test_a_task_that_another_has_taken_is_left_to_it(app, kind):
    def taken():
        app.store.append([codec_group("t", ev.TaskClaimed(holder="another", taken="lease"))])

    with pytest.raises(holdfast.LeaseLost):
        app.run(swallower(kind, "bare", taken), id="t")
    assert app.get("t").holder == "another"
    assert [record.kind for record in app.events("t")][-1] in ("task_claimed", "step_observed")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(60)
def test_a_task_that_waits_is_suspended_and_resumed(app, kind):
    asks = [True]

    @agent(name="asker")
    def one(task):
        if not asks:
            return task.ask("?", name="ask")
        return LOOPS["bare"](lambda: task.ask("?", name="ask"))

    @agent(name="asker")
    async def other(task):
        if not asks:
            return await task.ask("?", name="ask")
        return await LOOPS_ASYNC["bare"](lambda: task.ask("?", name="ask"))

    asker = one if kind == "def" else other
    waiting = app.run(asker, id="t")
    assert (waiting.status, waiting.waiting.kind) == ("waiting", "person")
    app.answer("t", "ask#1", "yes")
    asks.clear()
    assert app.resume("t", asker).result == "yes"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(60)
def test_a_task_without_a_budget_left_fails(app, kind):
    done = app.run(swallower(kind, "bare", work), id="t", budget=Budget(steps=3))
    assert (done.status, done.failure.type) == ("failed", "BudgetExceeded")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(60)
def test_verbs_that_only_say_something_count_as_well(app, kind):
    said = swallower(kind, "bare", lambda: app.cancel("t") and None, also=lambda task: task.log("still here"))
    assert app.run(said, id="t").status == "cancelled"
    assert app.get("t").seq < 1_100, "and what it said does not grow for ever"


@pytest.mark.timeout(60)
def test_so_is_a_block(app):
    with pytest.raises(errors.Cancelled), app.task("by hand", id="t") as task:  # noqa: PT012
        task.step(lambda: app.cancel("t") and None, name="stop")
        bare(lambda: task.step(work))
    assert app.get("t").status == "cancelled"


@pytest.mark.timeout(60)
def test_an_agent_that_rests_between_its_tries_is_given_a_few_seconds(app, monkeypatch):
    monkeypatch.setattr(holdfast.core.limits, "STOP_SECONDS", 0.2)

    def restless(task):
        task.step(lambda: app.cancel("t") and None, name="stop")
        while True:
            try:
                task.step(work)
            except:  # noqa: E722
                time.sleep(0.02)

    assert app.run(agent(name="restless")(restless), id="t").status == "cancelled"


@pytest.mark.timeout(60)
def test_what_an_agent_cleans_up_is_cleaned_up(app):
    cleaned = []

    def careful(task):
        task.step(lambda: app.cancel("t") and None, name="stop")
        try:
            bare(lambda: task.step(work))
        finally:
            cleaned.append("one")
            cleaned.append("two")
            cleaned.append("all")

    assert app.run(agent(name="careful")(careful), id="t").status == "cancelled"
    assert cleaned == ["one", "two", "all"]


@pytest.mark.timeout(60)
def test_the_event_loop_goes_on_for_others(app):
    ticks = []

    async def main():
        stopped = swallower("async def", "bare", lambda: app.cancel("t") and None)
        working = asyncio.create_task(app.arun(stopped, id="t"))
        while not working.done():
            await asyncio.sleep(0.01)
            ticks.append(1)
        return await working

    assert asyncio.run(main()).status == "cancelled"
    assert asyncio.run(app.arun(agent(name="next")(lambda task: task.step(work)), id="u")).status == "completed"


@pytest.mark.timeout(60)
def test_a_branch_of_an_async_agent_that_swallows_is_ended_too(app):
    @agent
    async def branching(task):
        async def branch():
            await bare_async(lambda: task.step(work))

        await task.step(lambda: app.cancel("t") and None, name="stop")
        await asyncio.gather(branch(), branch())

    assert app.run(branching, id="t").status == "cancelled"


@pytest.mark.timeout(60)
def test_a_worker_goes_on_with_other_tasks(app):
    stopped = swallower("def", "bare", lambda: app.cancel("t") and None)

    @agent
    def other(task):
        return task.step(work)

    app.start(stopped, id="t")
    app.start(other, id="u")
    worker = app.worker([stopped, other])
    thread = threading.Thread(target=worker.run)
    thread.start()
    until(lambda: {app.get(id).status for id in "tu"} == {"cancelled", "completed"}, 40)
    worker.stop()
    thread.join(10)
    assert (app.get("t").status, app.get("u").status) == ("cancelled", "completed") and not thread.is_alive()


def codec_group(log, event):
    return codec.Group((codec.Write(log, (codec.draft(event, 1)[0],)),))

"""Branches: whatever order they finish in, whatever lands in between, wherever it crashes, replay is right."""

import asyncio
import contextlib
import os
import threading
import time
from collections import Counter

import pytest
from hypothesis import given, settings, strategies as st

import holdfast
from holdfast import Retry, agent, events as ev, pack, tool
from holdfast.core import limits
from holdfast.failpoints import armed
from tests.engine.programs import ID, STRATEGIES, FilePlace, FlyingPlace, PeekedPlace, Story, programs, walk
from tests.waiting import auntil, until

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # a crash awaits nothing any more
]
MANY = int(os.environ.get("HOLDFAST_TEST_MANY", 40 if os.environ.get("HOLDFAST_TEST_ALL") == "1" else 1))


@pytest.fixture(autouse=True)
def _many_snapshots(monkeypatch):
    monkeypatch.setattr(limits, "SNAPSHOT_MIN_BYTES", 700)


def lived(program, crashes, new_place, **options):
    """Live a program once without a crash, then again with some."""
    whole = Story(program, place=new_place(), **options)
    hits = whole.live().hits
    check_end(whole)
    story = Story(program, place=new_place(), **options)
    for crash in crashes:
        story.live(_spot(hits, crash))
    story.live()
    check_end(story)


def _spot(hits, share):
    """The failpoint passed after that share of a life, and which of its hits it is."""
    index = min(int(share * len(hits)), len(hits) - 1)
    return hits[index], hits[: index + 1].count(hits[index])


def check_end(story):
    assert not story.problems, "\n".join(map(str, story.problems))
    with story.look() as app:
        end = app.get(ID)
        assert end.status == "completed", f"{end.status} {end.waiting}\n" + "\n".join(told(end.failure))
        check_said(story.program, end)
        folded = end.to_dict()
        app.store.drop_snapshots()
        assert app.get(ID).to_dict() == folded
        assert app.verify(ID).ok
        assert app.run(story.agent, id=ID).to_dict() == folded
    calls = [place for place, operation in walk(story.program) if operation[:2] == ("call", "once")]
    assert sorted(story.sent) == sorted(calls)


def told(failure, indent=""):
    """A failure and all that it is made of, line by line: pytest would cut it short."""
    if failure is not None:
        yield f"{indent}{failure.type}: {failure.message} {failure.traceback}"
        for one in (failure.cause, *failure.group):
            yield from told(one, f"{indent}  ")


def check_said(program, end):
    """Everything was said once, however often it was replayed."""
    said = {}
    for place, operation in walk(program):
        if operation[0] in ("say", "reply"):
            said.setdefault("message" if operation[0] == "reply" else operation[1], []).append(place)
    assert end.state.get("n", 0) == len(said.get("increment", ()))
    assert Counter(end.state.get("list", ())) == Counter(said.get("append", ()))
    assert Counter(one["content"] for one in end.messages) == Counter(said.get("message", ()))
    assert Counter(one["choice"] for one in end.decisions) == Counter(said.get("decide", ()))
    assert set(end.flags) == set(said.get("flag", ()))


CRASHES = st.lists(st.floats(0, 1), min_size=1, max_size=3)


@pytest.mark.parametrize("checkpoint", STRATEGIES)
@settings(max_examples=12 * MANY, print_blob=True)
@given(program=programs("async"), crashes=CRASHES, at_once=st.booleans())
def test_branches_replay_what_they_read_and_find_every_step(checkpoint, program, crashes, at_once):
    lived(program, crashes, PeekedPlace if at_once else FlyingPlace, checkpoint=checkpoint)


@pytest.mark.parametrize("checkpoint", STRATEGIES)
@settings(max_examples=20 * MANY, print_blob=True)
@given(program=programs("def"), crashes=CRASHES)
def test_a_plain_agent_with_threads_replays_what_it_read_and_finds_every_step(checkpoint, program, crashes):
    lived(program, crashes, FlyingPlace, kind="def", checkpoint=checkpoint)


@pytest.mark.parametrize("kind", ["def", "async"])
@settings(max_examples=4 * MANY, print_blob=True)
@given(data=st.data(), crashes=CRASHES, checkpoint=st.sampled_from(STRATEGIES))
def test_the_same_holds_on_a_file(tmp_path_factory, kind, data, crashes, checkpoint):
    program = data.draw(programs(kind))
    lived(program, crashes, lambda: FilePlace(tmp_path_factory.mktemp("file")), kind=kind, checkpoint=checkpoint)


# Each of these was found by the programs above, or while they were written


def replayed(app, worker):
    """Work on a task that waits at its end, then replay all of it."""
    assert app.run(worker, id=ID).status == "waiting"
    app.signal(ID, "go")
    return app.run(worker, id=ID)


def nap(seconds):
    async def sleep():
        await asyncio.sleep(seconds)

    return sleep


@pytest.fixture
def did():
    return []


def test_a_branch_belongs_to_the_one_that_started_it_whoever_uses_a_verb_first(app, did):
    @agent
    async def worker(task):
        async def leaf(who):
            async def work():
                await asyncio.sleep(0.05 if who == "x" and not did else 0)
                did.append(f"leaf of {who}")

            await task.step(work, name="leaf")

        async def line(who):
            await asyncio.gather(leaf(who))
            return await task.step(lambda: did.append(f"sum of {who}") or who, name="sum")

        found = await asyncio.gather(line("x"), line("y"))
        await task.wait("go")
        return found

    assert replayed(app, worker).result == ["x", "y"]
    assert len(did) == 4


@pytest.mark.parametrize("limit", [30, None, 0])
def test_what_wait_for_waits_for_is_no_branch_whatever_the_python(app, did, limit):
    """Until Python 3.12 it makes an asyncio task of it, and a task that was begun before then goes on after."""

    @agent
    async def worker(task):
        def step(name):
            return task.step(lambda: did.append(name), name=name)

        async def reader():
            await step("d")
            return task.state.seen

        async def both():
            await asyncio.wait_for(step("b"), 30)
            task.state.seen = 1
            await asyncio.wait_for(step("b"), 30)
            return await asyncio.gather(step("c"), reader())

        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(step("a"), limit)
        found = await asyncio.wait_for(asyncio.wait_for(both(), 30), 40)
        await asyncio.gather(step("e"))
        await asyncio.wait_for(task.wait("go"), 30)
        return found

    state = replayed(app, worker)
    assert state.status == "completed" and state.result == [None, 1]
    skipped = 1 if limit == 0 else 0
    keys = ["a#1"] * (1 - skipped) + ["b#1", "b#2", *(f"~{n + skipped}/{name}#1" for n, name in enumerate("cde", 1))]
    assert sorted(state.steps) == sorted([*keys, "go#1"])
    assert sorted(did) == sorted(key.partition("#")[0][-1] for key in keys), "nothing was done again"


def test_a_branch_in_the_background_keeps_its_number_when_nothing_lets_it_begin(app, did):
    @agent
    async def worker(task):
        async def background():
            await task.step(lambda: did.append("poll"), name="poll")

        started = asyncio.create_task(background())
        await task.step(lambda: did.append("plan"), name="plan")
        await task.map(did.append, ["m1", "m2"], name="fetch")
        await started
        await task.wait("go")

    replayed(app, worker)
    assert sorted(did) == ["m1", "m2", "plan", "poll"]


def test_a_group_that_fails_sooner_on_replay_shifts_no_numbers(app, did):
    def broken():
        time.sleep(0.01)
        raise ValueError

    @agent
    async def worker(task):
        async def late():
            await asyncio.sleep(0)
            await task.step(nap(1), name="late")

        async def after(number):
            return await task.step(lambda: did.append(number) or number, name="after")

        with contextlib.suppress(BaseExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(task.step(broken))
                group.create_task(late())
        found = await asyncio.gather(after(1), after(2))
        await task.wait("go")
        return found

    assert replayed(app, worker).result == [1, 2]
    assert sorted(did) == [1, 2]


def test_what_the_engine_itself_starts_takes_no_number(app, did):
    @tool(effect="transaction")
    def book(n: int, *, connection) -> int:
        return n

    @agent
    async def worker(task):
        async def after(number):
            return await task.step(lambda: did.append(number) or number, name="after")

        await task.call(book, n=1)
        found = await asyncio.gather(after(1), after(2))
        await task.wait("go")
        return found

    assert replayed(app, worker).result == [1, 2]
    assert sorted(did) == [1, 2]


def test_a_branch_that_outlives_its_turn_says_nothing_in_the_next(app):
    @agent(loop=True)
    async def worker(task):
        async def count(seconds):
            await asyncio.sleep(seconds)
            return task.state.increment("n")

        if task.turn == 1:
            asyncio.create_task(count(0.05))  # noqa: RUF006 — an agent may forget what it started
            return None
        await task.step(nap(0.15), name="nap")
        found = await asyncio.create_task(count(0))
        await task.wait("go")
        return found

    end = replayed(app, worker)
    assert (end.result, end.state["n"]) == (1, 1)


def test_a_branch_begins_with_what_its_creator_saw_also_after_a_failure(app):
    def broken():
        app.append(ID, ev.StateSet(name="outside", value=pack(1)))
        raise ValueError

    @agent
    async def worker(task):
        async def child():
            return task.state.all()

        with contextlib.suppress(holdfast.StepFailed):
            await task.step(broken)
        return [task.state.all(), await asyncio.create_task(child())]

    assert app.run(worker, id=ID).result == [{"outside": 1}] * 2


@pytest.mark.parametrize("checkpoint", STRATEGIES)
def test_a_step_that_was_tried_twice_shows_the_same_state_on_replay(app, checkpoint, did):
    def flaky():
        if holdfast.current_call().attempt == 1:
            raise ConnectionError
        app.append(ID, ev.StateSet(name="outside", value=pack(1)))

    @agent(checkpoint=checkpoint)
    def worker(task):
        task.step(flaky, retry=Retry(2, first=0))
        did.append(task.state.all())
        task.wait("go")

    replayed(app, worker)
    assert did[0] == did[1]


def test_what_was_refused_is_refused_again_and_counts_for_nothing(app, did):
    @agent
    def worker(task):
        task.state.n = "text"
        with pytest.raises(holdfast.InvalidEvent):
            task.state.increment("n")
        task.state.n = 0
        did.append(task.state.increment("n"))
        task.step(lambda: None, name="x")
        task.wait("go")

    assert replayed(app, worker).state["n"] == 1
    assert did == [1, 1]


@contextlib.contextmanager
def slow_commits(seconds, *, of=lambda: True):
    """A store that takes its time over each commit, or some."""

    def wait(name):
        if name == "commit.before" and of():
            time.sleep(seconds)

    with armed(wait):
        yield


def test_a_slow_step_that_goes_behind_is_not_announced_after_its_end(tmp_path, monkeypatch, did):
    monkeypatch.setattr(limits, "ANNOUNCE_SECONDS", 0.1)

    @agent(checkpoint="every_iteration")
    async def worker(task):
        async def slow():
            did.append("slow")
            await asyncio.sleep(0.2)

        async def fails():
            await asyncio.sleep(0.05)
            raise ValueError

        await asyncio.gather(task.step(slow), task.step(fails), return_exceptions=True)
        await task.wait("go")

    with holdfast.open(tmp_path / "a.db") as app, slow_commits(0.2):
        assert replayed(app, worker).status == "completed"
    assert did == ["slow"]


def test_a_wait_ends_while_a_call_of_another_branch_goes_on(tmp_path, did):
    @tool(effect="idempotent")
    async def slow() -> None:
        await asyncio.sleep(0.6)
        did.append("called")

    @agent
    async def worker(task):
        async def step(seconds):
            await asyncio.sleep(seconds)
            await task.step(nap(0), name="step")

        async def call():
            await step(0.01)
            await task.call(slow)

        async def wait():
            await asyncio.sleep(0.02)
            await task.wait("go")
            did.append("waited")

        await asyncio.gather(step(0), call(), wait(), step(0.07))

    with holdfast.open(tmp_path / "a.db") as app, slow_commits(0.05):
        app.start(worker, id=ID)
        app.signal(ID, "go")
        assert app.run(worker, id=ID).status == "completed"
    assert did == ["waited", "called"]


@pytest.mark.parametrize("kind", ["def", "async"])
def test_a_reply_that_was_written_behind_becomes_a_message(app, kind):
    def model():
        return {"role": "assistant", "content": "hi"}

    @agent(checkpoint="before_effects")
    async def flies(task):
        reply = await task.step(model)
        await asyncio.sleep(0.1)
        task.message(reply)

    @agent(checkpoint="before_effects")
    def plods(task):
        reply = task.step(model)
        time.sleep(0.1)
        task.message(reply)

    end = app.run(flies if kind == "async" else plods, id=ID)
    assert [one["content"] for one in end.messages] == ["hi"], end.failure


def test_an_async_function_in_a_plain_agent_knows_the_call_it_is_in(app):
    async def work():
        return holdfast.current_call().step

    @agent
    def worker(task):
        return task.step(work)

    assert app.run(worker, id=ID).result == "work#1"


@pytest.mark.parametrize("kind", ["def", "async"])
def test_a_map_does_not_hide_a_broken_store_behind_a_failed_step(app, kind, did):
    def work(number):
        if number == 0:
            raise ValueError
        did.append("broken")

    def breaks(name):
        if "broken" in did and name == "commit.before":
            raise holdfast.StoreError("the disk is full", hint="make room")

    @agent
    async def flies(task):
        with contextlib.suppress(holdfast.StepFailed):
            await task.map(work, [0, 1], limit=1)
            return
        did.append("thinks that all else was recorded")

    @agent
    def plods(task):
        with contextlib.suppress(holdfast.StepFailed):
            task.map(work, [0, 1], limit=1)
            return
        did.append("thinks that all else was recorded")

    with armed(breaks), pytest.raises(holdfast.StoreError):
        app.run(flies if kind == "async" else plods, id=ID)
    assert did == ["broken"]


# Control flow that user code cannot swallow (law 11)


def no_matter(task):
    """Verbs that must do nothing any more."""
    for verb in (lambda: task.fact("late", 1), lambda: task.state.increment("late"), lambda: task.stage("late")):
        with pytest.raises(holdfast.Suspended):
            verb()


def never(*given):
    raise AssertionError("this must not run")


@pytest.mark.parametrize("how", ["exception", "raised again", "finally", "swallowed", "returned"])
def test_a_plain_agent_cannot_swallow_its_suspension(app, how, did):
    @agent
    def worker(task):
        task.step(lambda: did.append("first"), name="first")
        try:
            value = task.wait("go")
        except Exception:
            return "swallowed"
        except BaseException:
            if how == "raised again":
                raise
            if how == "returned":
                return "returned"
            if how == "exception":
                raise ValueError from None
            no_matter(task)
            with pytest.raises(holdfast.Suspended):
                task.step(never)
            with pytest.raises(holdfast.Suspended):
                task.map(never, [1, 2], name="map")
            value = "nothing"
        finally:
            if how == "finally" and "second" not in did:
                no_matter(task)
                did.append("second")
        return value

    check_suspension(app, worker)
    assert did.count("first") == 1


def check_suspension(app, worker):
    waiting = app.run(worker, id=ID)
    assert (waiting.status, app.store.read(ID)[-1].kind) == ("waiting", "task_suspended"), waiting.failure
    app.signal(ID, "go", 7)
    end = app.run(worker, id=ID)
    assert (end.status, end.result) == ("completed", 7)
    assert "late" not in end.facts and "late" not in end.state and end.stage != "late"
    assert app.verify(ID).ok


@pytest.mark.parametrize("how", ["exception", "raised again", "finally", "swallowed", "returned"])
@pytest.mark.parametrize("where", ["root", "gather", "group"])
def test_an_async_agent_cannot_swallow_its_suspension(app, how, where, did):
    @agent
    async def worker(task):
        async def line():
            try:
                value = await task.wait("go")
            except Exception:
                return "swallowed"
            except BaseException:
                if how == "raised again":
                    raise
                if how == "returned":
                    return "returned"
                if how == "exception":
                    raise ValueError from None
                no_matter(task)
                with pytest.raises(holdfast.Suspended):
                    await task.step(never)
                with pytest.raises(holdfast.Suspended):
                    await task.map(never, [1, 2], name="map")
                value = "nothing"
            finally:
                if how == "finally" and "second" not in did:
                    did.append("second")
                    no_matter(task)
            return value

        await task.step(lambda: did.append("first"), name="first")
        if where == "root":
            return await line()
        if where == "gather":
            return (await asyncio.gather(line()))[0]
        async with asyncio.TaskGroup() as group:
            found = group.create_task(line())
        return found.result()

    check_suspension(app, worker)
    assert did.count("first") == 1


def test_branches_that_work_end_their_work_before_the_task_is_suspended_for_one_that_waits(app, did):
    @agent
    async def worker(task):
        async def works(name, how):
            for number in range(3):

                async def slowly(what):
                    did.append(f"{what} begins")
                    await asyncio.sleep(0.02)
                    did.append(f"{what} ends")

                def in_thread(what):
                    did.append(f"{what} begins")
                    time.sleep(0.02)
                    did.append(f"{what} ends")

                await task.step(slowly if how == "loop" else in_thread, f"{name}{number}", name="work")

        async def waits():
            return await task.wait("go")

        found = await asyncio.gather(waits(), works("a", "loop"), works("b", "thread"))
        return found[0]

    waiting = app.run(worker, id=ID)
    kinds = [row.kind for row in app.store.read(ID)]
    assert (waiting.status, kinds[-1], kinds.count("step_completed")) == ("waiting", "task_suspended", 6)
    assert len(did) == 12
    app.signal(ID, "go", 7)
    assert app.run(worker, id=ID).result == 7
    assert len(did) == 12


def test_nothing_said_on_the_way_to_a_suspension_is_written_after_it(tmp_path, did):
    @agent(checkpoint="before_effects")
    async def worker(task):
        async def talks():
            await task.step(nap(0), name="one")
            await asyncio.sleep(0.005)
            did.append("quiet")
            await auntil(lambda: did == ["quiet", "suspending"])
            task.state.late = 1
            await asyncio.sleep(1)

        await asyncio.gather(task.wait("go"), talks())

    def suspending():
        if did == ["quiet"]:
            did.append("suspending")
            return True
        return False

    with holdfast.open(tmp_path / "a.db") as app, slow_commits(0.1, of=suspending):
        assert app.run(worker, id=ID).status == "waiting"
        assert app.store.read(ID)[-1].kind == "task_suspended"


def test_a_plain_agent_is_not_suspended_while_one_of_its_threads_has_a_step_under_way(app, did):
    def slow():
        did.append("began")
        time.sleep(0.1)
        did.append("ended")

    @agent
    def worker(task):
        thread = threading.Thread(target=lambda: task.step(slow, name="slow"))
        thread.start()
        until(lambda: did)
        task.wait("go")
        thread.join()

    assert replayed(app, worker).status == "completed"
    assert did == ["began", "ended"]


@pytest.mark.parametrize("checkpoint", STRATEGIES)
@pytest.mark.parametrize("kind", ["def", "async"])
def test_an_agent_that_swallows_the_loss_of_its_task_does_nothing_more(app, kind, checkpoint, did):
    def overtaken():
        app.append(ID, ev.TaskClaimed(holder="1-other"))

    def before(number):
        did.append("lost, and ran" if "lost" in did else "ran")
        return number

    @agent(checkpoint=checkpoint)
    def plods(task):
        for number in range(4):
            with contextlib.suppress(holdfast.LeaseLost):
                task.step(before if number else overtaken, *[number][:number], name="step")
                continue
            did.append("lost")
        return "done"

    @agent(checkpoint=checkpoint)
    async def flies(task):
        for number in range(4):
            with contextlib.suppress(holdfast.LeaseLost, asyncio.CancelledError):
                await task.step(before if number else overtaken, *[number][:number], name="step")
                continue
            did.append("lost")
        return "done"

    with pytest.raises(holdfast.LeaseLost):
        app.run(plods if kind == "def" else flies, id=ID)
    assert "lost, and ran" not in did
    kinds = [row.kind for row in app.store.read(ID)]
    after = kinds[len(kinds) - kinds[::-1].index("task_claimed") :]
    assert set(after) <= {"step_observed"}

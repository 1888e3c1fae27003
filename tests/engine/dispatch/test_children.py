"""Child tasks: a log and a result of their own, and a parent that waits for them."""

import asyncio

import pytest

import holdfast
from holdfast import DidNotHappen, Happened, agent, tool
from holdfast.testing.crash.everywhere import MovableClock
from tests.engine.both import KINDS, declarer, kinds

CLOCK = MovableClock


@agent
def asker(task):
    return task.ask("who?")


def spawning(either):
    @either()
    def parent(task):
        return (yield task.spawn(asker))

    return parent


@pytest.fixture(params=KINDS)
def child_kind(request):
    return declarer(request.param)


def test_a_child_has_a_log_and_a_result_of_its_own(app, either, child_kind):
    did = []

    @child_kind()
    def double(task, n: int) -> int:
        return (yield task.step(lambda: did.append(n) or 2 * n, name="double"))

    @either()
    def parent(task):
        return [(yield task.spawn(double, {"n": 3})), (yield task.spawn(double, {"n": 4}))]

    done = app.run(parent, id="p", user="ana")
    assert done.result == [6, 8] and did == [3, 4]
    child = app.get("p/double#2")
    assert (child.parent, child.result, child.user, child.agent) == ("p", 8, "ana", "double")
    assert app.run(parent, id="p", user="ana").result == [6, 8] and did == [3, 4]


def test_a_child_that_fails_is_a_failed_step_of_its_parent(app, either, child_kind):
    @child_kind()
    def broken(task):
        yield task.step(lambda: 1, name="one")
        raise ValueError("no")

    @either()
    def parent(task):
        try:
            yield task.spawn(broken)
        except holdfast.StepFailed as error:
            return str(error)

    done = app.run(parent, id="p")
    assert "ValueError" in done.result and "no" in done.result and app.get("p/broken#1").status == "failed"


def test_a_child_that_waits_lets_its_parent_wait_for_it(app, either, child_kind):
    @child_kind()
    def asker(task):
        return (yield task.ask("who?"))

    @either()
    def parent(task):
        return (yield task.spawn(asker))

    waiting = app.run(parent, id="p")
    assert (waiting.status, waiting.waiting.kind, app.get("p/asker#1").status) == ("waiting", "child", "waiting")
    assert app.run(parent, id="p").status == "waiting"
    app.answer("p/asker#1", "ask", "Ana")
    assert app.run(parent, id="p").result == "Ana"


def test_a_child_that_ends_by_itself_wakes_its_parent(app, either):
    parent = spawning(either)
    app.run(parent, id="p")
    app.answer("p/asker#1", "ask", "Ana")
    assert app.run(asker, id="p/asker#1").status == "completed"
    assert app.get("p").status == "pending"
    assert app.run(parent, id="p").result == "Ana"


def test_cancelling_a_parent_cancels_its_children(app, either):
    parent = spawning(either)
    app.run(parent, id="p")
    app.cancel("p", by="ana", why="enough")
    assert (app.get("p").status, app.get("p/asker#1").status) == ("cancelled", "cancelled")


def test_a_cancelled_parent_has_not_ended_before_its_child_has_undone_what_it_did(app, either):
    undone = []

    def undo(call):
        undone.append(call.step)

    @tool(effect="once", compensate=undo)
    def book() -> int:
        return 1

    @agent
    def child(task):
        task.call(book)
        task.wait("go")

    @either()
    def parent(task):
        yield task.spawn(child)

    app.run(parent, id="p")
    app.cancel("p")
    app.run(parent, id="p")
    assert undone == ["book#1"]
    assert (app.get("p").status, app.get("p/child#1").status) == ("cancelled", "cancelled")


def test_a_cancelled_child_is_a_failed_step_of_its_parent(app, either):
    @either()
    def parent(task):
        try:
            return (yield task.spawn(asker))
        except holdfast.StepFailed as error:
            return str(error)

    app.run(parent, id="p")
    app.cancel("p/asker#1")
    assert "cancelled" in app.run(parent, id="p").result


def test_a_cancelled_child_stays_so_when_its_parent_is_resumed(app, either, texts):
    parent = spawning(either)
    app.run(parent, id="p")
    app.cancel("p/asker#1")
    failed = app.run(parent, id="p")
    assert failed.status == "failed"
    texts.check(failed.failure.message)
    again = app.resume("p", parent)
    assert (again.status, again.failure.message) == ("failed", failed.failure.message)
    assert app.get("p/asker#1").status == "cancelled"


@pytest.fixture
def family(app):
    """A parent that fails while its child, and the child of that, wait for a person; once."""
    broken = [True]

    @agent
    async def middle(task):
        return await task.spawn(asker)

    @agent
    async def parent(task):
        async def fails():
            await task.sleep(0.01)
            if broken:
                broken.pop()
                raise ValueError("no")

        return (await asyncio.gather(task.spawn(middle), fails()))[0]

    return parent, "p/~1/middle#1", "p/~1/middle#1/asker#1"


def test_children_fail_with_their_parent_and_go_on_with_it(app, family):
    parent, middle, asker = family
    assert app.run(parent, id="p").status == "failed"
    for child in (middle, asker):
        found = app.get(child)
        assert (found.status, found.failure.type) == ("failed", "ValueError")
        assert found.failure.message == "its parent 'p' failed: no"
    assert not list(app.inbox())
    assert app.resume("p", parent).waiting.kind == "child"
    app.answer(asker, "ask", "Ana")
    assert app.run(parent, id="p").result == "Ana"


def test_a_fork_that_fails_ends_no_child_of_the_task_it_comes_from(app):
    @agent
    async def parent(task):
        async def fails():
            await task.wait("fail")
            raise ValueError("no")

        return (await asyncio.gather(task.spawn(asker), fails()))[0]

    app.run(parent, id="p")
    app.fork("p", id="f")
    app.signal("f", "fail")
    assert app.run(parent, id="f").status == "failed"
    assert app.get("p/~1/asker#1").status == "waiting"


def test_a_child_of_a_failed_parent_undoes_what_it_did(app):
    undone = []

    def undo(call):
        undone.append(call.step)

    @tool(effect="once", compensate=undo)
    def book() -> int:
        return 1

    @agent
    def child(task):
        task.call(book)
        task.wait("go")

    @agent
    async def parent(task):
        async def fails():
            await task.sleep(0.01)
            raise ValueError("no")

        await asyncio.gather(task.spawn(child), fails())

    assert app.run(parent, id="p").status == "failed"
    assert app.get("p/~1/child#1").status == "pending", "whoever takes it up undoes it"
    assert app.run(child, id="p/~1/child#1").failure.message == "its parent 'p' failed: no"
    assert undone == ["book#1"]


def test_children_at_once(app, child_kind):
    @child_kind()
    def double(task, n: int) -> int:
        yield task.step(lambda: 1, name="one")
        return 2 * n

    @agent
    def mapped(task):
        return task.map(double, [{"n": n} for n in range(5)], limit=3)

    @agent
    async def gathered(task):
        return await asyncio.gather(*(task.spawn(double, {"n": n}) for n in range(5)))

    for parent in (mapped, gathered):
        assert app.run(parent, id=parent.name).result == [0, 2, 4, 6, 8]
        ids = [one.id for one in app.list(agent="double") if one.id.startswith(parent.name)]
        assert sorted(ids) == [f"{parent.name}/~{n}/double#1" for n in range(1, 6)]


def test_children_at_once_that_wait_for_people(app):
    @agent
    def asker(task, n: int):
        return task.ask(f"who is {n}?")

    @agent
    def mapped(task):
        return task.map(asker, [{"n": n} for n in range(3)])

    @agent
    async def gathered(task):
        return await asyncio.gather(*(task.spawn(asker, {"n": n}) for n in range(3)))

    for parent in (mapped, gathered):
        assert app.run(parent, id=parent.name).waiting.kind == "child"
        for n in (2, 1):
            app.answer(f"{parent.name}/~{n}/asker#1", "ask", n)
        assert app.run(parent, id=parent.name).status == "waiting"
        app.answer(f"{parent.name}/~3/asker#1", "ask", 3)
        assert app.run(parent, id=parent.name).result == [1, 2, 3]


def test_a_childs_input_is_checked_before_anything_is_written(app, either):
    @agent
    def child(task, n: int):
        return n

    @either()
    def parent(task):
        yield task.spawn(child, {"n": "three"})

    failed = app.run(parent, id="p")
    assert failed.failure.code == "invalid-input" and [one.id for one in app.list()] == ["p"]
    assert "wait_started" not in kinds(app, "p")


def test_a_child_has_no_more_time_than_its_parent(app, either):
    @agent(deadline="1h")
    def child(task):
        return 1

    @either(deadline="10m")
    def parent(task):
        return (yield task.spawn(child))

    app.run(parent, id="p")
    assert app.get("p/child#1").deadline == app.get("p").deadline


def test_too_many_children_of_children_are_refused(app):
    @agent
    def endless(task):
        return task.spawn(endless)

    failed = app.run(endless, id="p")
    assert failed.status == "failed"


def test_a_child_in_a_loop_is_another_one_each_turn(app):
    @agent
    def child(task, n: int):
        return n

    @agent(loop=True)
    def parent(task):
        task.state.append("got", task.spawn(child, {"n": task.turn}))
        return task.state.got if task.turn == 3 else None

    assert app.run(parent, id="p").result == [1, 2, 3]
    assert app.get("p/2/child#1").result == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_anywhere_in_parent_or_child_is_survived(crash_everywhere, kind):
    either = declarer(kind)
    paid = []

    @tool(
        effect="once",
        reconcile=lambda call: Happened("paid") if call.idempotency_key in paid else DidNotHappen(),
        reconcile_after=0,
    )
    def pay(n: int, *, idempotency_key: str) -> str:
        paid.append(idempotency_key)
        return "paid"

    @either(name="payer")
    def child(task, n: int):
        return [n, (yield task.call(pay, n=n))]

    @either(name="boss")
    def parent(task):
        first = yield task.spawn(child, {"n": 1})
        return [first, (yield task.spawn(child, {"n": 2}))]

    def check(state, world):
        assert state.result == [[1, "paid"], [2, "paid"]]
        assert len(paid) == len(set(paid)) == 2

    crash_everywhere(parent, agents=[child], check=check, setup=lambda app: paid.clear(), store="memory:")


def test_wherever_a_failing_parent_crashes_its_children_fail_with_it(crash_everywhere):
    @agent(name="asking")
    def asker(task):
        return task.ask("who?")

    @agent(name="middling")
    async def middle(task):
        return await task.spawn(asker)

    @agent(name="failing")
    async def parent(task):
        async def fails():
            await task.step(lambda: 1, name="one")
            raise ValueError("no")

        return (await asyncio.gather(task.spawn(middle), fails()))[0]

    apps = []

    def check(state, world):
        assert state.failure.type == "ValueError"
        ids = [id for id in (f"{state.id}/~1/middling#1", f"{state.id}/~1/middling#1/asking#1") if apps[-1].head(id)]
        assert {apps[-1].get(id).status for id in ids} <= {"failed"}

    crash_everywhere(parent, agents=[middle, asker], check=check, setup=apps.append, store="memory:")


@pytest.mark.parametrize("way", ["spawn", "map"])
def test_a_parents_policy_binds_its_children(app, way):
    paid = []

    @tool(effect="once", risk="external_action")
    def pay(euros: int) -> str:
        paid.append(euros)
        return "paid"

    @agent
    def clerk(task, euros: int):
        return task.call(pay, euros=euros)

    @agent(required_for_risk_levels=["external_action"])
    def shop(task):
        if way == "map":
            return task.map(clerk, [{"euros": 3}])
        return task.spawn(clerk, {"euros": 3})

    assert app.run(shop, id="t").status == "waiting" and paid == []
    [item] = app.inbox()
    assert item.kind == "approval" and item.agent == "clerk"
    app.approve(item.task, item.key, by="ana")
    assert app.run(shop, id="t").status == "completed" and paid == [3]

"""Keys that do not depend on the scheduler: `key=`, and replays that come back to every recorded step."""

import asyncio
import threading

import pytest

from holdfast import agent, tool

STORES = ("memory", "sqlite", "postgres")


def payer(paid, **declared):
    @tool(effect="once", name="pay", **declared)
    async def pay(order: int) -> str:
        paid.append(order)
        await asyncio.sleep(0)
        return f"receipt {len(paid)}"

    return pay


# key=


def test_a_given_key_is_the_steps_key(app, either):
    made = []

    @tool(effect="once")
    def pay(order: int) -> int:
        made.append(order)
        return len(made)

    @either()
    def worker(task):
        one = yield task.call(pay, order=1, key="order-1")
        two = yield task.step(lambda n: n + 1, one, key="add", name="increase")
        again = yield task.call(pay, order=1, key="order-1")
        return [one, two, again]

    done = app.run(worker, id="t")
    assert done.result == [1, 2, 1] and made == [1]
    assert set(done.steps) == {"order-1", "add"} and done.steps["add"].name == "increase"


@pytest.mark.parametrize("verb", ["step", "call"])
def test_the_same_key_with_other_input_is_a_changed_step(app, either, verb):
    @tool(effect="once")
    def pay(order: int) -> int:
        return order

    @either()
    def worker(task):
        for order in (1, 2):
            if verb == "call":
                yield task.call(pay, order=order, key="mine")
            else:
                yield task.step(abs, order, key="mine")

    assert app.run(worker, id="t").failure.code == "step-changed"


@pytest.mark.parametrize("key", ["pay#1", "~1/pay", "3/pay", "", 7, "x" * 5000])
def test_a_key_that_could_be_another_steps_is_refused(app, either, key):
    @tool(effect="once")
    def pay(order: int) -> int:
        raise AssertionError("it must not be called")

    @either()
    def worker(task, verb: str):
        if verb == "call":
            yield task.call(pay, order=1, key=key)
        yield task.step(abs, 1, key=key)

    for verb in ("call", "step"):
        failed = app.run(worker, {"verb": verb}, id=verb)
        assert failed.failure.code == "invalid-value" and app.steps(verb) == []


def test_branches_that_use_one_key_make_one_call(app):
    paid = []
    pay = payer(paid)

    @agent
    async def worker(task):
        return await asyncio.gather(*(task.call(pay, order=7, key="order-7") for _ in range(5)))

    assert app.run(worker, id="t").result == ["receipt 1"] * 5 and paid == [7]


def test_threads_that_use_one_key_make_one_call(app):
    paid, together = [], threading.Barrier(3)

    @tool(effect="idempotent")
    def pay(order: int) -> int:
        paid.append(order)
        return len(paid)

    @agent
    def worker(task):
        found = []

        def go():
            together.wait()
            found.append(task.call(pay, order=7, key="order-7"))

        threads = [threading.Thread(target=go) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    done = app.run(worker, id="t")
    assert done.result == [1, 1, 1] and paid == [7]


def test_a_key_is_the_same_in_whatever_branch_it_is_used(app):
    paid = []
    pay = payer(paid)

    @agent
    async def worker(task, extra: int = 0):
        for _ in range(task.attempt - 1):
            await asyncio.create_task(asyncio.sleep(0))
        receipt = await asyncio.create_task(_call(task, pay, key="order-7"))
        await task.wait("go")
        return receipt

    app.run(worker, id="t")
    app.signal("t", "go")
    assert app.run(worker, id="t").result == "receipt 1" and paid == [7]


async def _call(task, pay, **options):
    return await task.call(pay, order=7, **options)


# A replay that numbers its branches in another way


@pytest.mark.parametrize("where", ["completed", "in doubt"])
def test_a_call_that_gets_another_key_is_not_made_again(app, where):
    """Three more asyncio tasks before an old call gave it a new key, and a completed call was made again."""
    paid, lives = [], []

    @tool(effect="once", name="pay")
    async def pay(order: int) -> str:
        paid.append(order)
        if where == "in doubt":
            raise ConnectionResetError
        return "receipt"

    @agent
    async def worker(task):
        lives.append(1)
        for _ in range(3 * (len(lives) - 1)):
            await asyncio.create_task(asyncio.sleep(0))
        receipt = await asyncio.create_task(_call(task, pay))
        await task.wait("go")
        return receipt

    app.run(worker, id="t")
    if where == "completed":
        app.signal("t", "go")
    failed = app.run(worker, id="t") if where == "completed" else app.resume("t", worker)
    if where == "in doubt":
        assert failed.status == "waiting" and paid == [7], "nothing woke it yet"
        app.settle("t", "~1/pay#1", happened=False)
        failed = app.run(worker, id="t")
    assert failed.failure.code == "replay-diverged" and paid == [7]
    assert "'~4/pay#1'" in failed.failure.message and "'~1/pay#1'" in failed.failure.message


def test_a_replay_that_diverged_goes_on_when_the_program_is_as_it_was(app):
    paid, extra = [], [0]
    pay = payer(paid)

    @agent
    async def worker(task):
        for _ in range(extra[0]):
            await asyncio.create_task(asyncio.sleep(0))
        receipt = await asyncio.create_task(_call(task, pay))
        await task.wait("go")
        return receipt

    app.run(worker, id="t")
    extra[0] = 3
    app.signal("t", "go")
    assert app.run(worker, id="t").status == "failed"
    extra[0] = 0
    assert app.resume("t", worker).result == "receipt 1" and paid == [7]


def test_rerun_does_it_again_as_it_says(app):
    paid, lives = [], []
    pay = payer(paid)

    @agent(on_change="rerun")
    async def worker(task):
        lives.append(1)
        for _ in range(len(lives) - 1):
            await asyncio.create_task(asyncio.sleep(0))
        receipt = await asyncio.create_task(_call(task, pay))
        await task.wait("go")
        return receipt

    app.run(worker, id="t")
    app.signal("t", "go")
    assert app.run(worker, id="t").result == "receipt 2" and paid == [7, 7]


def test_a_child_that_gets_another_key_is_not_started_again(app):
    lives, worked = [], []

    @agent
    def child(task):
        worked.append(1)
        return 1

    @agent
    async def parent(task):
        lives.append(1)
        for _ in range(len(lives) - 1):
            await asyncio.create_task(asyncio.sleep(0))
        await asyncio.create_task(_spawn(task, child))
        await task.wait("go")

    app.run(parent, id="t")
    app.signal("t", "go")
    assert app.run(parent, id="t").failure.code == "replay-diverged" and worked == [1]


async def _spawn(task, child):
    return await task.spawn(child)


def test_steps_of_other_names_may_come_and_go(app, either):
    versions = [1]

    @either()
    def worker(task):
        if versions[0] == 1:
            yield task.step(int, "1", name="removed")
        first = yield task.step(int, "2", name="first")
        if versions[0] == 2:
            yield task.step(int, "3", name="inserted")
        yield task.wait("go")
        return first

    app.run(worker, id="t")
    versions[0] = 2
    app.signal("t", "go")
    done = app.run(worker, id="t")
    assert (done.status, done.result) == ("completed", 2), done.failure


def test_more_items_of_a_map_are_new_steps_and_not_a_divergence(app, either):
    items = [[1, 2, 3]]

    @tool(effect="once")
    def pay(order: int) -> int:
        return order

    @either()
    def worker(task):
        paid = yield task.map(pay, [{"order": one} for one in items[-1]], limit=2)
        yield task.wait("go")
        return paid

    app.run(worker, id="t")
    items.append([1, 2, 3, 4, 5])
    app.signal("t", "go")
    assert app.run(worker, id="t").result == [1, 2, 3, 4, 5]


def test_a_map_that_comes_after_another_one_now_is_a_divergence(app, either):
    """The branches of a map are numbered: one that is inserted before it would have its calls made again."""
    versions, paid = [1], []

    @tool(effect="once")
    def pay(order: int) -> int:
        paid.append(order)
        return order

    @either()
    def worker(task):
        if versions[0] == 2:
            yield task.map(str, [7, 8])
        done = yield task.map(pay, [{"order": one} for one in (1, 2)])
        yield task.wait("go")
        return done

    app.run(worker, id="t")
    versions[0] = 2
    app.signal("t", "go")
    assert app.run(worker, id="t").failure.code == "replay-diverged" and sorted(paid) == [1, 2]


def test_a_branch_that_comes_late_is_waited_for(app):
    """Another branch has a step of the same name on record, and gets there after a while that is no verb."""
    paid, lives = [], []
    pay = payer(paid)

    @agent
    async def worker(task):
        lives.append(1)

        async def slow():
            await asyncio.sleep(0.15 if len(lives) > 1 else 0)
            return await task.call(pay, order=1)

        async def late():
            await task.wait("go")
            return await task.call(pay, order=2)

        return await asyncio.gather(slow(), late())

    app.run(worker, id="t")
    app.signal("t", "go")
    done = app.run(worker, id="t")
    assert done.result == ["receipt 1", "receipt 2"] and paid == [1, 2]


# The order of results


def racer(app, winners, *, how):
    @agent
    async def worker(task):
        shops = [asyncio.create_task(_shop(task, shop)) for shop in range(4)]
        if how == "wait":
            done, rest = await asyncio.wait(shops, return_when=asyncio.FIRST_COMPLETED)
            first = sorted(one.result() for one in done)
            for one in rest:
                one.cancel()
        else:
            first = [await next(asyncio.as_completed(shops))]
        winners.append(first)
        await task.step(lambda: None, name=f"buy at {first}")
        await task.wait("go")
        return first

    return worker


async def _shop(task, shop):
    return await task.step(lambda: shop, name=f"ask shop {shop}")


@pytest.mark.parametrize("how", ["wait", "as_completed"])
def test_the_winner_of_a_race_is_the_same_on_every_replay(app, how):
    winners = []
    worker = racer(app, winners, how=how)
    for n in range(8):
        app.run(worker, id=f"t{n}")
        app.signal(f"t{n}", "go")
        done = app.run(worker, id=f"t{n}")
        assert done.status == "completed", done.failure
        assert winners[-1] == winners[-2]
        assert len([step for step in app.steps(f"t{n}") if step.name.startswith("buy")]) == 1


def test_what_one_branch_does_comes_before_the_next_result(app):
    orders = []

    @agent
    async def worker(task):
        order = []

        async def line(name):
            for n in range(4):
                await task.step(lambda: None, name=f"{name}{n}")
                order.append(f"{name}{n}")

        await asyncio.gather(*(line(name) for name in "abc"))
        orders.append(order)
        await task.wait("go")

    app.run(worker, id="t")
    for _ in range(2):
        app.signal("t", "else")
        app.resume("t", worker) if app.get("t").status == "pending" else app.run(worker, id="t")
    app.signal("t", "go")
    app.run(worker, id="t")
    assert len(orders) >= 2 and all(one == orders[0] for one in orders)

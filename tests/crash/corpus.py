"""Agents of every kind, as small as they can be while real. `crash_everywhere(**one(world))` crashes one of them.

Each function gives what `crash_everywhere` takes. `cast` adds a check of its own: how the task ends, how often the
world saw each effect, and that every call that was cut off was flagged before anything came of it.
"""

import asyncio
import time
from types import SimpleNamespace

from holdfast import DidNotHappen, Happened, Retry, StepFailed, agent, current_call, events as ev, tool
from holdfast.core import limits
from holdfast.engine.reading import timeline

AT_ONCE = Retry(4, first=0)


def cast(once, *, ends="completed", result=..., also=None, **given):
    """What to crash, and what must be there in the end: `once` counts what the world saw of each effect."""

    def check(state, world):
        assert state.status == ends, (state.status, state.failure)
        assert result is ... or state.result == result, state.result
        seen = {what: len(world.requests(what)) for what in once}
        assert seen == once, f"the world saw {seen} instead of {once}"
        for log in state._logs.store.logs():
            silent = list(silently_repeated(timeline.records(state._logs, log)))
            assert silent == [], f"{silent} of {log} were cut off, and nothing flags them"
        if also is not None:
            also(state, world)

    return {"check": check, **given}


def silently_repeated(records):
    """The `once` calls of a log that were cut off and then made again, or recorded, as if nothing had been."""
    under_way, cut = set(), set()
    for record in records:
        match record.event:
            case ev.StepStarted(key=key, effect="once"):
                if key in cut:
                    yield key
                under_way.add(key)
            case ev.TaskClaimed():
                cut |= under_way
            case ev.StepDoubted(key=key) | ev.StepSettled(key=key):
                cut.discard(key)
                under_way.discard(key)
            case ev.StepCompleted(key=key) | ev.StepFailed(key=key) | ev.AttemptFailed(key=key):
                if key in cut:
                    yield key
                cut.discard(key)
                under_way.discard(key)
            case _:
                pass


def of_kind(state, kind, log=None):
    """The events of one kind in a task's log."""
    records = timeline.records(state._logs, log or state.id)
    return [record.event for record in records if record.kind == kind]


def tools_of(world):
    """What the agents do to the world: pay once, ship under a key that the destination recognises, refund, release."""

    def find(call):
        found = world.find(call.idempotency_key)
        return Happened(found.receipt) if found else DidNotHappen()

    known = {"effect": "once", "reconcile": find, "reconcile_after": 0}

    def refund(call):
        """Undoes a payment. It may be asked for twice, under the key of the payment."""
        world.request("refund", key=call.idempotency_key)

    @tool(**known)
    def release(call) -> str:
        """Undoes a reservation, once."""
        return world.request("release", key=current_call().idempotency_key)["receipt"]

    @tool(**known, compensate=refund)
    def pay(amount: int, *, idempotency_key: str) -> str:
        return world.request("pay", key=idempotency_key, amount=amount)["receipt"]

    @tool(**known, compensate=release)
    def reserve(seat: int, *, idempotency_key: str) -> str:
        return world.request("reserve", key=idempotency_key, seat=seat)["receipt"]

    def find_amount(call):
        found = world.find(call.idempotency_key)
        return Happened(found.data["amount"]) if found else DidNotHappen()

    @tool(effect="once", reconcile=find_amount, reconcile_after=0)
    async def apay(amount: int, *, idempotency_key: str) -> int:
        await asyncio.sleep(0)
        world.request("pay", key=idempotency_key, amount=amount)
        return amount

    @tool(effect="idempotent")
    def ship(order: int, *, idempotency_key: str) -> int:
        world.request("ship", key=idempotency_key, order=order)
        return order

    return SimpleNamespace(**locals())


def sync(world):
    """A step, a payment, a parcel; facts, a counter and an id made of chance."""
    use = tools_of(world)

    @agent(stages=["paying", "shipping"])
    def sync(task, order: int):
        task.state.increment("visits")
        task.stage("paying")
        price = task.step(lambda ticket: 3, str(task.uuid()), name="price")
        task.fact("price", price, source="price")
        paid = task.call(use.pay, amount=price)
        task.stage("shipping")
        return [paid, task.call(use.ship, order=order), task.state.visits]

    return cast({"pay": 1}, result=["pay-1", 17, 1], agent=sync, input={"order": 17})


def asynchronous(world):
    """The same on an event loop, with a plain function in a thread."""
    use = tools_of(world)

    async def look():
        await asyncio.sleep(0)
        return 3

    @agent
    async def asynchronous(task, order: int):
        task.state.increment("visits")
        price = await task.step(look)
        paid = await task.call(use.apay, amount=price)
        return [paid, await task.call(use.ship, order=order), await task.call(use.pay, amount=9), task.state.visits]

    return cast({"pay": 2}, result=[3, 17, "pay-2", 1], agent=asynchronous, input={"order": 17})


def loop(world):
    """Three turns; each pays, counts and talks."""
    use = tools_of(world)

    @agent(loop=True, max_turns=5)
    def loop(task):
        paid = task.call(use.pay, amount=1)
        task.message({"role": "user", "content": paid})
        total = task.state.increment("total", task.step(lambda: 1, name="one"))
        return [total, [one["content"] for one in task.messages]] if total == 3 else None

    return cast({"pay": 3}, result=[3, ["pay-1", "pay-2", "pay-3"]], agent=loop)


def parallel(world):
    """Branches by `gather`, by a TaskGroup and by `map`."""
    use = tools_of(world)

    @agent
    async def parallel(task):
        async def buy(amount):
            paid = await task.call(use.apay, amount=amount)
            task.state.increment("bought")
            return paid + await task.step(lambda: 10, name="ten")

        gathered = await asyncio.gather(buy(1), buy(2))
        async with asyncio.TaskGroup() as group:
            grouped = [group.create_task(buy(amount)) for amount in (3, 4)]
        mapped = await task.map(use.apay, [{"amount": 5}, {"amount": 6}])
        return [gathered, [one.result() for one in grouped], mapped]

    def bought(state, world):
        assert state.state["bought"] == 4

    return cast({"pay": 6}, result=[[11, 12], [13, 14], [5, 6]], also=bought, agent=parallel)


def racing(world):
    """Branches whose first verbs come in another order when the step that held one of them up is replayed."""
    use = tools_of(world)

    @agent
    async def racing(task):
        ready = asyncio.Event()

        async def late():
            await ready.wait()
            return await task.call(use.apay, amount=1)

        async def soon():
            await asyncio.sleep(0.003)
            return await task.call(use.apay, amount=2)

        async with asyncio.TaskGroup() as group:
            both = [group.create_task(one()) for one in (late, soon)]
            await task.step(asyncio.sleep, 0.01, name="nap")
            ready.set()
        return [one.result() for one in both]

    return cast({"pay": 2}, result=[1, 2], agent=racing)


def threads(world):
    """A `def` agent's `map`: calls in threads."""
    use = tools_of(world)

    @agent
    def threads(task):
        first = task.map(use.pay, [{"amount": 1}, {"amount": 2}], limit=2)
        return [len(first), task.map(lambda n: n + 1, [1, 2, 3], name="plus")]

    return cast({"pay": 2}, result=[2, [2, 3, 4]], agent=threads)


def approval(world):
    """Two calls of a risk that a person must agree to, each on its own."""
    find = tools_of(world).find

    @tool(effect="once", risk="external_action", reconcile=find, reconcile_after=0)
    def post(text: str, *, idempotency_key: str) -> str:
        return world.request("post", key=idempotency_key, text=text)["receipt"]

    @agent(required_for_risk_levels=["external_action"])
    def approval(task):
        return [task.call(post, text="hello"), task.call(post, text="hello"), task.approve("enough?", name="enough")]

    def agree(app, state):
        (asked,) = state.waiting.on
        app.approve(state.id, asked["key"], by="ana", why="fine", expires="1h")

    def agreed(state, world):
        asked, given = of_kind(state, "approval_asked"), of_kind(state, "approval_given")
        assert [one.key for one in asked] == [one.key for one in given] == ["post#1", "post#2", "enough#1"]
        assert {one.by for one in given} == {"ana"}

    return cast({"post": 2}, result=["post-1", "post-2", True], also=agreed, agent=approval, finish=agree)


def retry(world):
    """Calls that the world refuses at first, and a step that fails for good."""
    find = tools_of(world).find

    @tool(effect="once", reconcile=find, reconcile_after=0, retry=AT_ONCE, retry_on=[ConnectionError])
    def pay(*, idempotency_key: str) -> str:
        return world.request("pay", key=idempotency_key)["receipt"]

    def fail():
        world.request("fail")
        raise ValueError("never")

    @agent
    def retry(task):
        paid = task.call(pay)
        try:
            return task.step(fail, retry=AT_ONCE)
        except StepFailed as error:
            return [paid, error.details["attempts"]]

    def counted(state, world):
        assert state.steps["fail#1"].attempts == 4 and len(of_kind(state, "attempt_failed")) >= 4
        assert len(world.requests("fail")) <= 4 + len(of_kind(state, "task_claimed")) - 1, "a crash costs one try"

    def refuse(app):
        world.refuse("pay", times=2)

    return cast({"pay": 1}, result=["pay-1", 4], also=counted, agent=retry, setup=refuse)


def children(world):
    """A child that pays and asks, then two at once."""
    use = tools_of(world)

    @agent
    def asking(task, amount: int):
        return [task.call(use.pay, amount=amount), task.ask("ok?", name="ok")]

    @agent
    def paying(task, amount: int):
        task.call(use.pay, amount=amount)
        return amount

    @agent
    def children(task):
        first = task.spawn(asking, {"amount": 1})
        return [first, task.map(paying, [{"amount": 2}, {"amount": 3}]), task.call(use.ship, order=4)]

    def answer(app, state):
        app.answer(state.id, "ok", "yes", by="ana")

    wanted = [["pay-1", "yes"], [2, 3], 4]
    return cast({"pay": 3}, result=wanted, agent=children, agents=[asking, paying], finish=answer)


def async_children(world):
    """Children on their parent's event loop, at once."""
    use = tools_of(world)

    @agent
    async def buyer(task, amount: int):
        return await task.call(use.apay, amount=amount)

    @agent
    async def async_children(task):
        both = await task.map(buyer, [{"amount": 1}, {"amount": 2}])
        return [*both, await task.spawn(buyer, {"amount": 3})]

    return cast({"pay": 3}, result=[1, 2, 3], agent=async_children, agents=[buyer])


def compensation(world):
    """Fails at the end and undoes what it did, last things first: in part by a call that can be made once only."""
    use = tools_of(world)

    def call_off(name: str):
        world.request("call off", key=name)

    @agent(tools=[use.pay, use.reserve])
    def compensation(task):
        task.call(use.pay, amount=1)
        task.compensate(call_off, name="the party")
        task.call(use.reserve, seat=2)
        task.call(use.reserve, seat=3)
        raise ValueError("sold out")

    def in_reverse(state, world):
        undone = list(dict.fromkeys((one.what, one.receipt) for one in world.requests()))[3:]
        last_first = [("release", "release-1"), ("release", "release-2"), ("call off", "call off-1")]
        assert undone == [*last_first, ("refund", "refund-1")], undone
        of = [bytes(event.input["of"]) for event in of_kind(state, "step_started") if event.name == "release"]
        assert list(dict.fromkeys(of)) == [b'"reserve#2"', b'"reserve#1"'], of
        assert state.failure.type == "ValueError" and "could not be undone" not in str(state.failure)

    once = {"pay": 1, "reserve": 2, "release": 2}
    return cast(once, ends="failed", result=None, also=in_reverse, agent=compensation)


def unique(world):
    """Two tasks, one effect. Whichever is gone on with first after a crash, the order is paid for once."""
    find = tools_of(world).find

    @tool(effect="once", unique="order-{order}", reconcile=find, reconcile_after=0)
    def pay(order: int, *, idempotency_key: str) -> str:
        return world.request("pay", key=idempotency_key, order=order)["receipt"]

    @agent
    def shop(task):
        return task.call(pay, order=17)

    def unique(app):
        if {row.id for row in app.list()} == {"first"}:
            app.run(shop, id="second")  # while nobody goes on with the first, whatever became of it
        first = app.run(shop, id="first")
        assert (first.status, first.result) == ("completed", "pay-1")
        return app.run(shop, id="second")

    def wait_a_little(app, state):
        time.sleep(limits.UNIQUE_WAIT_US / 2_000_000)

    return cast({"pay": 1}, result="pay-1", drive=unique, id="second", agents=[shop], finish=wait_a_little)


def transaction(world):
    """Rows in the store's own database, each with its record or not at all."""
    use = tools_of(world)

    @tool(effect="transaction")
    def add(text: str, *, connection) -> int:
        mark = "?" if connection.dialect == "sqlite" else "%s"
        connection.execute("create table if not exists lines (text text)")
        connection.execute(f"insert into lines values ({mark})", (text,))
        return connection.execute("select count(*) from lines").fetchone()[0]

    @agent
    def transaction(task):
        task.state.increment("visits")
        return [task.call(add, text="a"), task.call(use.pay, amount=1), task.call(add, text="b"), task.state.visits]

    return cast({"pay": 1}, result=[1, "pay-1", 2, 1], agent=transaction)


def block(world):
    """Code around `with app.task`: a step before its turns, a payment in each."""
    use = tools_of(world)

    def block(app):
        with app.task("triage", {"ticket": 7}, id="triage-7") as task:
            plan = task.step(lambda: ["look", "fix"], name="plan")
            task.fact("plan", plan)
            for turn in task.turns(max=2):
                task.call(use.pay, amount=turn)
                task.state.append("did", task.step(lambda turn=turn: plan[turn - 1], name="work"))
            task.finish([plan, task.state.did])

    return cast({"pay": 2}, result=[["look", "fix"], ["look", "fix"]], drive=block, id="triage-7")


def fork(world):
    """A fork of a half-done task, which then goes on by itself: it pays no second time for what it inherits."""
    use = tools_of(world)

    @agent
    def order(task):
        paid = task.call(use.pay, amount=1)
        return [paid, task.ask("where to?", name="where"), task.call(use.reserve, seat=2)]

    def fork(app):
        known = {row.id for row in app.list()}
        if "fork" not in known:
            app.run(order, id="trunk")
            app.fork("trunk", id="fork", effects="live")
        return app.run(order, id="fork")

    def answer(app, state):
        app.answer(state.id, "where", "home")

    def trunk_waits(state, world):
        trunk = timeline.state_at(state._logs, "trunk", state._logs.head("trunk").seq)
        assert trunk.waiting.kind == "person" and trunk.steps.keys() == {"pay#1"}

    once = {"pay": 1, "reserve": 1}
    wanted = ["pay-1", "home", "reserve-1"]
    return cast(once, result=wanted, also=trunk_waits, drive=fork, id="fork", agents=[order], finish=answer)


def behind(world):
    """Results are written while the agent goes on, and are there before anything is done to the world."""
    return _late(world, "before_effects")


def iteration(world):
    """Results are written at the end of a turn, and are there before anything is done to the world."""
    return _late(world, "every_iteration")


def on_state_change(world):
    """Results are written with the next thing the agent says."""
    return _late(world, "on_state_change")


def _late(world, strategy):
    """What is chosen may be chosen again after a crash, but not once something was done because of it."""
    use = tools_of(world)

    @agent(checkpoint=strategy, loop=True, max_turns=3)
    def late(task):
        chosen = [task.step(lambda: world.request("choose")["number"], name="choose") for _ in range(2)]
        task.state.append("chosen", chosen)
        task.call(use.ship, order=chosen[1])
        task.call(use.pay, amount=chosen[0])
        task.step(lambda: 1, name="after")
        return "done" if task.turn == 2 else None

    def acted_on_what_is_recorded(state, world):
        first, second = ([pair[index] for pair in state.state["chosen"]] for index in (0, 1))
        shipped = dict.fromkeys(one.data["order"] for one in world.requests("ship"))
        assert list(shipped) == second and [one.data["amount"] for one in world.requests("pay")] == first

    return cast({"pay": 2}, result="done", also=acted_on_what_is_recorded, agent=late)


def async_behind(world):
    """The same on an event loop: branches whose results are written while they go on."""
    use = tools_of(world)

    @agent(checkpoint="before_effects")
    async def async_behind(task):
        async def buy(amount):
            chosen = await task.step(lambda: amount + 1, name="choose")
            task.state.increment("chosen")
            return await task.call(use.apay, amount=chosen) + await task.step(lambda: 10, name="after")

        return await asyncio.gather(buy(1), buy(2))

    return cast({"pay": 2}, result=[12, 13], agent=async_behind)


def signals(world):
    """Two waits for the same signal and a long sleep; each signal is taken once."""
    use = tools_of(world)

    @agent
    def signals(task):
        first = task.wait("go")
        task.sleep("2h")
        return [first, task.call(use.pay, amount=first), task.wait("go"), task.wait("never", timeout="1h")]

    def tell(app, state):
        if state.waiting.on[0]["name"] == "never":
            app.logs.clock.advance(3601)
        else:
            app.signal(state.id, "go", len(of_kind(state, "signal_received")) + 1)

    def taken_once(state, world):
        values = [event.value for event in of_kind(state, "signal_received")]
        first, second = state.result[0], state.result[2]
        assert [bytes(values[0]), bytes(values[1])] == [str(first).encode(), str(second).encode()]

    return cast({"pay": 1}, also=taken_once, result=[1, "pay-1", 2, None], agent=signals, finish=tell)


def ask(world):
    """An async agent that asks in one branch while another pays."""
    use = tools_of(world)

    @agent
    async def ask(task):
        asked, paid = await asyncio.gather(task.ask("which?", name="which"), task.call(use.apay, amount=5))
        return [asked, paid, await task.call(use.apay, amount=asked)]

    return cast({"pay": 2}, result=[7, 5, 7], agent=ask, finish=lambda app, state: app.answer(state.id, "which", 7))


def timeout(world):
    """The destination hangs: a call without an answer in time is in doubt, and its late answer changes nothing."""
    find = tools_of(world).find

    @tool(effect="once", timeout="60ms", reconcile=find, reconcile_after=0)
    def pay(*, idempotency_key: str) -> str:
        return world.request("pay", key=idempotency_key)["receipt"]

    @agent
    def timeout(task):
        return [task.call(pay), task.step(lambda: 1, name="one")]

    def hang(app):
        world.hang("pay", 0.4)

    def doubted(state, world):
        assert of_kind(state, "step_doubted") and of_kind(state, "step_settled")

    return cast({"pay": 1}, result=["pay-1", 1], also=doubted, agent=timeout, setup=hang)


def settled(world):
    """Nobody but a person can tell what became of a call: they look at the world and say."""

    @tool(effect="once")
    def pay(amount: int, *, idempotency_key: str) -> str:
        return world.request("pay", key=idempotency_key, amount=amount)["receipt"]

    @agent
    def settled(task):
        return [task.call(pay, amount=1), task.call(pay, amount=2)]

    def look(app, state):
        (call,) = (step for step in state.calls.values() if step.status == "doubt")
        found = world.find(call.idempotency_key)
        app.settle(state.id, call.key, happened=found is not None, result=found and found.receipt, by="ana")

    return cast({"pay": 2}, result=["pay-1", "pay-2"], agent=settled, finish=look)


CORPUS = [
    *(sync, asynchronous, loop, parallel, racing, threads, approval, retry, children, async_children, compensation),
    *(unique, transaction, block, fork, behind, iteration, on_state_change, async_behind, signals, ask, timeout),
    settled,
]

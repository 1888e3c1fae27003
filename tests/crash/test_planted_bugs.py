"""Engines with a bug planted in them. Each bug is caught by a check that the engine passes without it (design §9)."""

import asyncio
import contextlib
import functools
import itertools
import json
import random
import shutil
from typing import NamedTuple

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import DidNotHappen, agent, events as ev, tool
from holdfast.core import codec, limits
from holdfast.core.codec import Group
from holdfast.core.errors import LeaseLost, TaskBusy
from holdfast.core.flows import doubt, lifecycle, step as flows
from holdfast.core.flows.requests import Append, Invoke, Park
from holdfast.core.state import fold, rules
from holdfast.engine.app import App
from holdfast.engine.control import change
from holdfast.engine.definitions.tool import Tool
from holdfast.engine.dispatch import dispatcher
from holdfast.engine.drivers import driver, invocation, loop_driver
from holdfast.engine.execution import execution as runs
from holdfast.engine.execution.execution import Execution
from holdfast.engine.execution.loop_execution import LoopExecution
from holdfast.engine.logs import loading
from holdfast.engine.logs.log import Log
from holdfast.engine.verbs.task import Task
from holdfast.failpoints import armed, failpoint
from holdfast.store import acceptance
from holdfast.store.memory.store import MemoryStore
from holdfast.store.protocol import place
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing import World
from holdfast.testing.auditor import audit
from holdfast.testing.clock import FakeClock
from holdfast.testing.crash.everywhere import crash_everywhere
from holdfast.testing.crash.lives import Crash
from tests.crash import corpus


class Bench(NamedTuple):
    """What a check works with."""

    world: World
    directory: object

    def crash(self, kind, **options):
        """Crash an agent of the corpus everywhere."""
        given = {"world": self.world, "store": "memory:", "directory": self.directory, **options}
        return crash_everywhere(**kind(self.world), **given)


class Bug(NamedTuple):
    """A bug: how it is planted, what must notice it, and what that says."""

    plant: object
    check: object
    told: str | None = None

    def assert_caught(self, bench):
        """The engine passes the check without the bug, and fails it with the bug."""
        if self.check not in PASSED:  # several bugs share a check
            self.check(bench)
            PASSED.add(self.check)
        with pytest.MonkeyPatch.context() as patch:
            self.plant(patch)
            with pytest.raises(AssertionError, match=self.told):
                self.check(bench)


PASSED = set()
"""Checks that the engine has passed in this process."""


@pytest.fixture(scope="module")
def world():
    with World() as started:
        yield started


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch):
    monkeypatch.setattr(limits, "SNAPSHOT_MIN_BYTES", 300)
    monkeypatch.setattr(limits, "UNIQUE_POLL_US", 5_000)
    monkeypatch.setattr(limits, "UNIQUE_WAIT_US", 40_000)


@functools.cache
def crashing(kind, **options):
    """A check that crashes an agent of the corpus everywhere, in memory."""
    return lambda bench: bench.crash(kind, **options)


def app_on(bench, url="memory:", clock=None):
    """An app of its own, and a world that has seen nothing."""
    bench.world.reset()
    return holdfast.open(url, clock=clock)


def crashed(work, name, hit=1):
    """Let the process die at a failpoint."""
    hits = itertools.count(1)

    def blow(passed):
        if passed == name and next(hits) >= hit:
            raise Crash

    with contextlib.suppress(Crash), armed(blow):
        work()


def changes(patch, event, change):
    """Fold an event differently: `change(right, hot, event, seq, at_us)`."""
    right = fold._CHANGES[event]

    def wrong(state, event, seq, at_us):
        change(right, state, event, seq, at_us)

    patch.setitem(fold._CHANGES, event, wrong)


def counting(world):
    """Counts, and takes snapshots as it goes."""

    @agent
    def counting(task):
        for number in range(4):
            task.state.increment("total", number)
            task.step(lambda number=number: number, name="x" * 60)
        return task.state.total

    return corpus.cast({}, result=6, agent=counting)


def one_child(world):
    """A parent and its child, nothing else."""

    @agent
    def child(task):
        return task.step(lambda: 1, name="one")

    @agent
    def parent(task):
        return task.spawn(child)

    return corpus.cast({}, result=1, agent=parent, agents=[child])


# Announce, act, record


def no_announcement(patch):
    """A call made once only begins without a word in the log."""
    right = flows._announced

    def silent(surroundings, same, attempt, request):
        if request.effect == "once" and not request.unique:
            return True
        return (yield from right(surroundings, same, attempt, request))

    patch.setattr(flows, "_announced", silent)


def recorded_before_acting(patch):
    """The outcome is written first: the destination will say what it always says."""
    promised = {"price": 3, "pay": "pay-1", "ship": 17}

    def eager(surroundings, key, attempt, known, request, turn):
        same = {
            "key": key,
            "name": request.name,
            "tool": request.tool,
            "effect": request.effect,
            "input": request.input,
        }
        same["idempotency_key"] = flows.idempotency_key(surroundings.state, key, request)
        yield Append((ev.StepCompleted(**same, result=codec.pack(promised[request.name])),))
        yield Invoke(key, request, 1, same["idempotency_key"])

    patch.setattr(flows, "_attempt", eager)


def a_new_key_on_every_try(patch):
    right, tries = flows.idempotency_key, itertools.count()

    def fresh(state, key, request):
        return request.tool and f"{right(state, key, request)}-{next(tries)}"

    patch.setattr(flows, "idempotency_key", fresh)


def a_doubt_is_a_reason_to_try_again(patch):
    """A call without an outcome is made again, and nobody is told."""

    def bold(surroundings, known, request):
        yield from flows._attempt(surroundings, known.key, known.attempts, known, request, None)

    patch.setattr(flows, "settle", bold)


def not_happened_until_proven(patch):
    """Whoever cannot be asked has not seen the call."""
    patch.setattr(
        invocation, "answer", lambda given, request: given if isinstance(given, holdfast.Happened) else DidNotHappen()
    )


def an_unknown_answer_waits_for_a_person(bench):
    app = app_on(bench)

    @tool(effect="once", reconcile=lambda call: holdfast.Unknown(), reconcile_after=0)
    def pay(*, idempotency_key: str) -> str:
        return bench.world.request("pay", key=idempotency_key)["receipt"]

    @agent
    def shop(task):
        return task.call(pay)

    crashed(lambda: app.run(shop, id="shop"), "act.after")
    assert app.run(shop, id="shop").status == "waiting", "a call of which nobody knows was made again"
    assert len(bench.world.requests("pay")) == 1


def reconciled_at_once(patch):
    """The destination is asked while the request may still be on the wire."""
    patch.setattr(doubt, "until", lambda time_us: iter(()))


def a_request_on_the_wire_is_waited_for(bench):
    clock = FakeClock()
    app = app_on(bench, clock=clock)
    asked = []

    @tool(effect="once", reconcile=lambda call: asked.append(clock.now_us()) or DidNotHappen(), reconcile_after="2h")
    def pay() -> str:
        return "paid"

    @agent
    def shop(task):
        return task.call(pay)

    crashed(lambda: app.run(shop, id="shop"), "act.after")
    waiting = app.run(shop, id="shop")
    assert asked == [] and waiting.status == "waiting", "the destination was asked before its time"
    clock.advance(2 * 3600)
    assert app.run(shop, id="shop").result == "paid" and len(asked) == 1


# One holder, one log


def no_fencing(patch):
    """A holder that was replaced reads on as if nothing had happened."""
    patch.setattr(Execution, "_follow", lambda self, rows: self.log.follow(rows, self.log.name))


def a_zombie_touches_nothing(bench):
    app = app_on(bench)
    use = corpus.tools_of(bench.world)

    @agent
    def shop(task):
        task.step(lambda: app.append("shop", ev.TaskClaimed(holder="another")) and 1, name="taken over meanwhile")
        return task.call(use.pay, amount=1)

    with contextlib.suppress(LeaseLost):
        app.run(shop, id="shop")
    assert bench.world.requests("pay") == [], "a holder that was replaced went on"
    assert app.get("shop").status == "running"


def the_living_are_robbed(patch):
    """A task is taken from a holder that is alive."""
    patch.setattr(SqliteStore, "alive", lambda self, holder, lease=None: False)


def a_living_holder_keeps_its_task(bench):
    """This process holds the task; then it pretends to be another."""

    @agent
    def shop(task):
        return 1

    with holdfast.open(str(bench.directory / f"{random.random()}.db")) as app:
        app.start(shop, id="shop")
        app.logs.load("shop").claim()
        app.store.holder = lambda: "another"
        with contextlib.suppress(TaskBusy):
            app.run(shop, id="shop")
            raise AssertionError("a task was taken from a living holder")


def conflicts_ignored(patch):
    """The store appends at the head, whatever head was expected."""

    right = acceptance._follows

    def anywhere(write, known, moved):
        return right(replace(write, expect=known.head(write.log) or write.expect), known, moved)

    patch.setattr(acceptance, "_follows", anywhere)


def one_of_two_writers_is_refused(bench):
    app = app_on(bench)
    app.start("shop", id="shop")
    one, two = (app.logs.load("shop") for _ in range(2))
    one.append([ev.StageSet(stage="a")])
    with contextlib.suppress(holdfast.Conflict):
        two.append([ev.StageSet(stage="b")])
        raise AssertionError("two writers followed the same event")


def acknowledged_before_written(patch):
    """An append returns at once, and is written with the next one."""
    right, waiting = SqliteStore.append, []

    def lazy(self, groups):
        if waiting:
            right(self, [waiting.pop()])
        if any(write.origin is not None for group in groups for write in group.writes):
            return right(self, groups)
        waiting.extend(groups)
        return [tuple(place(write.expect, write.drafts) for write in group.writes) for group in groups]

    patch.setattr(SqliteStore, "append", lazy)


def what_was_acknowledged_is_in_a_copy_of_the_file(bench):
    """The auditor reads a copy, taken the moment the last append had returned, as a crash would leave it."""
    path, copy = bench.directory / f"{random.random()}.db", bench.directory / f"{random.random()}.db"
    acks = copy.with_suffix(".acks")
    with holdfast.open(str(path)) as app:
        app.start("shop", id="shop")
        for number in range(1):  # a second one would notice by itself that the first is not there
            (done,) = app.append("shop", ev.StateSet(name="n", value=codec.pack(number)))
            with acks.open("a") as file:
                file.write(json.dumps({"log": "shop", "seq": done.seq, "digest": done.digest.hex()}) + "\n")
        for ending in ("", "-wal"):
            if (left := path.with_name(path.name + ending)).exists():
                shutil.copyfile(left, copy.with_name(copy.name + ending))
        findings = audit(copy, acks)
    assert findings == [], findings


# Snapshots, sayings, branches: what a replay sees


def a_snapshot_of_the_wrong_place(patch):
    """A snapshot is filed two events too early, where the log confirms it."""
    right = Log._snapshot

    def early(self, at_us):
        taken, rows = right(self, at_us), self._logs.store.read(self.name, after=self.head.seq - 3)
        return replace(taken, seq=rows[0].seq, digest=rows[0].digest)

    patch.setattr(Log, "_snapshot", early)


def any_snapshot_is_trusted(patch):
    """A snapshot is believed whatever the log says."""

    def trusting(logs, log, part):
        if part.snapshot is None:
            return False
        log.restore(part.snapshot)
        rows = logs.store.read(part.log, after=part.snapshot.seq - 1, upto=part.upto)
        log.head = replace(log.head, digest=rows[0].digest)
        log.follow(rows[1:], part.log)
        return True

    patch.setattr(loading, "_restored", trusting)


def a_snapshot_that_the_log_does_not_confirm_is_ignored(bench):
    app = app_on(bench)
    app.start("shop", id="shop")
    app.append("shop", ev.StateSet(name="paid", value=codec.pack(False)))
    log = app.logs.load("shop")
    log.folded.bag["paid"] = codec.pack(True)
    forged = replace(log._snapshot(0), digest=b"\0" * 32)
    write = replace(app.logs.load("shop").draft([ev.StageSet(stage="a")]), snapshot=forged)
    app.store.append([Group((write,))])
    app.logs.cache.states.clear()
    assert app.get("shop").state["paid"] is False, "a snapshot was believed that no event confirms"


def sayings_are_not_recognised(patch):
    """What an agent says on a replay is taken for new."""
    right, times = runs.identity_of, itertools.count()
    patch.setattr(runs, "identity_of", lambda branch, event: f"{right(branch, event)} {next(times)}")


def chance_is_chance(patch):
    """An id made of chance is another one on a replay."""
    patch.setattr(Task, "_chance", lambda self, what: random.Random())


def branches_numbered_by_their_first_verb(patch):
    patch.setattr(LoopExecution, "born", lambda self, here: here)


def turns_share_their_steps(patch):
    """A new turn finds the steps of the last one."""

    def leaking(right, state, event, seq, at_us):
        steps = dict(state.steps)
        right(state, event, seq, at_us)
        state.steps = steps

    changes(patch, ev.TurnStarted, leaking)


def the_prelude_is_forgotten(patch):
    """A block that is entered in one of its turns does again what came before them."""

    def forgetting(right, state, event, seq, at_us):
        right(state, event, seq, at_us)
        state.prelude, state.prelude_immediates = {}, {}

    changes(patch, ev.TurnStarted, forgetting)


def everything_outside_is_seen_at_once(patch):
    """A branch sees what others wrote since its last waiting verb."""
    patch.setattr(runs.Views, "of", lambda self, branch: self._log.state)


def what_an_agent_sees_is_the_same_on_a_replay(bench):
    app = app_on(bench)
    first = []

    @agent
    def shop(task):
        task.step(lambda: 1, name="one")
        if not first:
            app.append("shop", ev.StateSet(name="seen", value=codec.pack(True)))
        first.append(task.state.get("seen"))
        task.step(lambda: 2, name="two")
        return first

    crashed(lambda: app.run(shop, id="shop"), "act.after", hit=2)
    app.run(shop, id="shop")
    assert first == [None, None], f"an agent saw {first}: something else on its replay"


# Approvals


def approvals_bound_to_the_place_alone(patch):
    """Who agreed to one call agreed to whatever is called there."""
    right = flows._approved

    def lax(surroundings, key, request):
        known = surroundings.state.approvals.get(key)
        if known is not None and known.status == "given":
            return True
        return (yield from right(surroundings, key, request))

    patch.setattr(flows, "_approved", lax)


def an_approval_is_for_its_arguments(bench):
    app = app_on(bench)

    @tool(effect="once", risk="money")
    def pay(amount: int, *, idempotency_key: str) -> str:
        return bench.world.request("pay", key=idempotency_key, amount=amount)["receipt"]

    def shop(amount):
        return agent(name="shop", required_for_risk_levels=["money"])(lambda task: task.call(pay, amount=amount))

    app.run(shop(3), id="shop")
    app.approve("shop", "pay#1", by="ana")
    assert app.run(shop(3000), id="shop").status == "waiting", "nobody agreed to that amount"
    assert bench.world.requests("pay") == []


def approvals_used_again(patch):
    """Who agreed to a call agreed to every other one with the same arguments."""
    right = flows._approved

    def lax(surroundings, key, request):
        given = [one for one in surroundings.state.approvals.values() if one.status in ("given", "used")]
        if any((one.tool, one.input) == (request.tool, request.input) for one in given):
            return True
        return (yield from right(surroundings, key, request))

    patch.setattr(flows, "_approved", lax)


def a_refusal_is_asked_about_again(patch):
    """A call that was refused asks once more."""
    right = fold._CHANGES[ev.ApprovalRefused]

    def forgetful(state, event, seq, at_us):
        right(state, event, seq, at_us)
        state.approvals.pop(event.key)

    patch.setitem(fold._CHANGES, ev.ApprovalRefused, forgetful)


def a_refused_call_stays_refused(bench):
    app = app_on(bench)

    @tool(effect="once", risk="money")
    def pay() -> str:
        return "paid"

    @agent(required_for_risk_levels=["money"])
    def shop(task):
        return task.call(pay)

    app.run(shop, id="shop")
    app.reject("shop", "pay#1", by="ana")
    done = app.run(shop, id="shop")
    assert (done.status, done.failure and done.failure.code) == ("failed", "approval-denied"), done.status


# Unique keys


def unique_keys_not_taken(patch):
    patch.setattr(Tool, "unique_key", lambda self, arguments: "")


def unique_keys_freed_by_any_failure(patch):
    """An exception is taken for a sure failure: the next caller with the same key may pay again."""
    patch.setattr(flows, "is_definite", lambda outcome, request: True)


def a_failed_payment_keeps_its_key(bench):
    app = app_on(bench)

    @tool(effect="once", unique="order-{order}")
    def pay(order: int, *, idempotency_key: str) -> str:
        bench.world.request("pay", key=idempotency_key)
        raise RuntimeError("the line went dead")

    @agent
    def shop(task):
        return task.call(pay, order=17)

    ended = [app.run(shop, id=id).status for id in ("first", "second")]
    assert ended == ["waiting", "waiting"] and len(bench.world.requests("pay")) == 1, "an order was paid for twice"


# Undoing and going back


def rollbacks_forget(patch):
    """What was done before a rollback is done again after it."""
    right = rules.restored

    def forgetful(now, past, later):
        return right(now, past, ())

    patch.setattr(rules, "restored", forgetful)


def a_rollback_repeats_no_payment(bench):
    app = app_on(bench)
    use = corpus.tools_of(bench.world)

    @agent
    def shop(task):
        return [task.call(use.pay, amount=1), task.ask("ok?", name="ok")]

    app.run(shop, id="shop")
    app.rollback("shop", to=2)
    app.run(shop, id="shop")
    app.answer("shop", "ok", "yes")
    assert app.run(shop, id="shop").result == ["pay-1", "yes"]
    assert len(bench.world.requests("pay")) == 1, "a rollback paid again"


def undone_in_the_order_it_was_done(patch):
    patch.setattr(lifecycle, "reversed", lambda things: things, raising=False)


def undone_again_after_a_crash(patch):
    """Whoever takes a task that is being undone begins anew with that."""

    def forgetting(right, state, event, seq, at_us):
        right(state, event, seq, at_us)
        state.steps = {key: step for key, step in state.steps.items() if not (step.done and key.startswith("~undo"))}

    changes(patch, ev.TaskClaimed, forgetting)


# Endings and waits


def ended_while_a_branch_works(patch):
    """A task is completed as soon as its agent returns."""

    async def not_at_all(asked, run):
        return None

    patch.setitem(driver.ANSWERS, lifecycle.AwaitIdle, lambda asked, run: None)
    patch.setitem(loop_driver._ANSWERS, lifecycle.AwaitIdle, not_at_all)


def a_branch_under_way_is_waited_for(bench):
    app = app_on(bench)

    async def slow():
        await asyncio.sleep(0.02)
        return bench.world.request("ship")["receipt"]

    @agent
    async def shop(task):
        task.keep = asyncio.create_task(task.step(slow))
        await asyncio.sleep(0.005)
        return "done"

    done = app.run(shop, id="shop")
    shipped = done.steps["~1/slow#1"].result if done.steps else None
    assert (done.result, shipped) == ("done", "ship-1"), "the task ended while a branch was under way"


def suspended_whatever_came(patch):
    """A suspension is written even if what the task waits for came at the same moment."""

    def blind(asked, run):
        run.idle()
        run.record(Append((ev.TaskSuspended(why=asked.why, wake_us=asked.wake_us, looked=True),)))
        run.suspended = True
        raise holdfast.Suspended

    patch.setitem(driver.ANSWERS, Park, blind)


def an_answer_at_the_same_moment_is_not_lost(bench):
    """Whenever something is about to be written and the question stands, somebody answers it first."""
    app = app_on(bench)
    other = App(app.store)
    answered = []

    @agent
    def shop(task):
        return task.ask("ok?", name="ok")

    def answer(passed):
        asked = passed == "append.before" and not answered and app.store.origin("shop") is not None
        if asked and "ok#1" in other.logs.load("shop").state.waits:
            answered.append("yes")
            other.answer("shop", "ok", "yes")

    with armed(answer):
        app.run(shop, id="shop")
    assert app.run(shop, id="shop").result == "yes", "the task waits for what has come"


def signals_are_not_used_up(patch):
    """A signal ends every wait for it."""

    def keeping(right, state, event, seq, at_us):
        signals = list(state.signals)
        right(state, event, seq, at_us)
        state.signals = signals

    changes(patch, ev.WaitEnded, keeping)


def tries_counted_anew_after_a_crash(patch):
    """Whoever takes a task begins with the first try."""

    def forgetting(right, state, event, seq, at_us):
        right(state, event, seq, at_us)
        for key, step in state.steps.items():
            if step.status == "retrying":
                state.steps[key] = replace(step, attempts=0)

    changes(patch, ev.TaskClaimed, forgetting)


def parents_woken_afterwards(patch):
    """A child's end is written first, its parent's wake-up in a second write."""
    right = Execution.record

    def in_two_writes(self, record):
        done, parent = right(self, record), self.state.summary.parent
        if parent is not None and record.events and isinstance(record.events[-1], ev.TaskCompleted):
            self.logs.committer.commit(Group(change.child_ended(self.logs, parent, self.log.name, record.events[-1])))
        return done

    patch.setattr(Execution, "tell_parent", lambda self, entry, draft: None)
    patch.setattr(Execution, "record", in_two_writes)
    _nobody_tells_again(patch)


def _nobody_tells_again(patch):
    """A parent that goes on would be told once more how its child ended, and hide the bug."""
    patch.setattr(dispatcher, "child_again", lambda logs, parent, child: None)


def deadlines_begin_anew(patch):
    """Whoever takes a task gives it all its time again."""

    def generous(right, state, event, seq, at_us):
        right(state, event, seq, at_us)
        if state.summary.deadline_us is not None:
            state.summary = replace(state.summary, deadline_us=at_us + 600_000_000)

    changes(patch, ev.TaskClaimed, generous)


def a_deadline_stands(bench):
    clock = FakeClock()
    app = app_on(bench, clock=clock)

    @agent(deadline="10m")
    def shop(task):
        return task.step(lambda: 1, name="one")

    crashed(lambda: app.run(shop, id="shop"), "act.before")
    clock.advance(601)
    done = app.run(shop, id="shop")
    assert (done.status, done.failure and done.failure.type) == ("failed", "TimeLimit"), "the deadline was moved"


# What is durable when


def not_flushed_before_an_effect(patch):
    """What waits to be written does not keep a call waiting."""
    right = flows._announced

    def hasty(surroundings, same, attempt, request):
        if request.effect == "idempotent" and not request.unique:
            return True
        return (yield from right(surroundings, same, attempt, request))

    patch.setattr(flows, "_announced", hasty)


def recorded_in_a_second_transaction(patch):
    """A transaction tool's rows are committed first, its record after."""

    def twice(self, work, seconds):
        with self.lock:
            groups = []

            def rows_only(connection):
                groups.append(work(connection))
                return Group(())

            self.logs.committer.transact(self.log.name, self.log.head, rows_only, seconds)
            (placed,) = self.logs.committer.commit(groups[0])
            self.log.accept(groups[0].writes[0], placed)
            return True

    patch.setattr(Execution, "transact", twice)


def half_a_group(patch):
    """Of what is written together, only the first log is durable when a crash comes."""

    def piecemeal(self, group, places):
        for key in group.freed_keys:
            self._effects.pop(key, None)
        for take in group.unique_keys:
            self._effects[take.key] = take
        for write, placed in zip(group.writes, places, strict=True):
            self._write(write, placed)
            failpoint("commit.after")

    patch.setattr(MemoryStore, "_put", piecemeal)
    _nobody_tells_again(patch)


BUGS = [
    Bug(no_announcement, crashing(corpus.sync), "was not announced"),
    Bug(recorded_before_acting, crashing(corpus.sync), "was not announced"),
    Bug(a_new_key_on_every_try, crashing(corpus.sync), "which no log knows"),
    Bug(a_doubt_is_a_reason_to_try_again, crashing(corpus.sync), "were cut off, and nothing flags them"),
    Bug(not_happened_until_proven, an_unknown_answer_waits_for_a_person, "made again"),
    Bug(reconciled_at_once, a_request_on_the_wire_is_waited_for, "before its time"),
    Bug(no_fencing, a_zombie_touches_nothing, "a holder that was replaced went on"),
    Bug(the_living_are_robbed, a_living_holder_keeps_its_task, "taken from a living holder"),
    Bug(conflicts_ignored, one_of_two_writers_is_refused, "two writers"),
    Bug(acknowledged_before_written, what_was_acknowledged_is_in_a_copy_of_the_file, "was acknowledged and is not"),
    Bug(a_snapshot_of_the_wrong_place, crashing(counting), "faults of counting were not survived"),
    Bug(any_snapshot_is_trusted, a_snapshot_that_the_log_does_not_confirm_is_ignored, "that no event confirms"),
    Bug(sayings_are_not_recognised, crashing(corpus.sync), "without a crash it is"),
    Bug(chance_is_chance, crashing(corpus.sync), "StepChanged"),
    Bug(branches_numbered_by_their_first_verb, crashing(corpus.racing), "StepChanged"),
    Bug(turns_share_their_steps, crashing(corpus.loop), "does not end well even without a crash"),
    Bug(the_prelude_is_forgotten, crashing(corpus.block), "were not survived"),
    Bug(everything_outside_is_seen_at_once, what_an_agent_sees_is_the_same_on_a_replay, "something else"),
    Bug(approvals_bound_to_the_place_alone, an_approval_is_for_its_arguments, "nobody agreed"),
    Bug(approvals_used_again, crashing(corpus.approval), "does not end well even without a crash"),
    Bug(a_refusal_is_asked_about_again, a_refused_call_stays_refused, "waiting"),
    Bug(unique_keys_not_taken, crashing(corpus.unique), "does not end well even without a crash"),
    Bug(unique_keys_freed_by_any_failure, a_failed_payment_keeps_its_key, "paid for twice"),
    Bug(rollbacks_forget, a_rollback_repeats_no_payment, "a rollback paid again"),
    Bug(undone_in_the_order_it_was_done, crashing(corpus.compensation), "does not end well even without a crash"),
    Bug(undone_again_after_a_crash, crashing(corpus.compensation), "reached the world 2 times as 'release'"),
    Bug(ended_while_a_branch_works, a_branch_under_way_is_waited_for, "while a branch was under way"),
    Bug(suspended_whatever_came, an_answer_at_the_same_moment_is_not_lost, "waits for what has come"),
    Bug(signals_are_not_used_up, crashing(corpus.signals), "does not end well even without a crash"),
    Bug(tries_counted_anew_after_a_crash, crashing(corpus.retry), "a crash costs one try"),
    Bug(parents_woken_afterwards, crashing(one_child), "were not survived"),
    Bug(deadlines_begin_anew, a_deadline_stands, "the deadline was moved"),
    Bug(not_flushed_before_an_effect, crashing(corpus.iteration), "were not survived"),
    Bug(recorded_in_a_second_transaction, crashing(corpus.transaction), "were not survived"),
    Bug(half_a_group, crashing(one_child), "were not survived"),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_caught(bug, world, tmp_path):
    bug.assert_caught(Bench(world, tmp_path))

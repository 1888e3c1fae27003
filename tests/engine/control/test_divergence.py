"""Logs that lost acknowledged events under a living process: noticed, named, frozen, and never built upon."""

import asyncio
import contextlib
import copy
import itertools
import threading

import apsw
import pytest

import holdfast
from holdfast import DidNotHappen, Diverged, Happened, agent, events as ev, tool
from holdfast.core import codec
from holdfast.engine.reading import inbox
from tests.waiting import until

CLOCK = None  # the real one

COPIES = itertools.count(1)


class Past:
    """A store that is put back to an earlier moment, once, while it is open: somebody restores a backup."""

    def __init__(self, app, url, tmp_path):
        self._app, self._url = app, url
        self._copy = str(tmp_path / f"copy-{next(COPIES)}.db")
        self._kept = None
        self._done = set()

    def keep(self):
        if "keep" in self._done:
            return
        self._done.add("keep")
        if self._url == "memory:":
            self._kept = _memory(self._app.store)
        else:
            self._app.backup(self._copy)

    def restore(self):
        if "restore" in self._done:
            return
        self._done.add("restore")
        if self._url == "memory:":
            _put_back(self._app.store, copy.deepcopy(self._kept))
            return
        source, target = apsw.Connection(self._copy), apsw.Connection(self._url)
        target.set_busy_timeout(5000)
        with target.backup("main", source, "main") as copying:
            while not copying.done:
                copying.step(-1)
        source.close()
        target.close()


def _memory(store):
    return copy.deepcopy({name: vars(store)[name] for name in ("_logs", "_blobs", "_effects", "_places", "_numbered")})


def _put_back(store, kept):
    """In place: parts of the store hold the same dictionaries."""
    store._numbered = kept.pop("_numbered")
    for name, values in kept.items():
        vars(store)[name].clear()
        vars(store)[name].update(values)


@pytest.fixture
def past(app, url, tmp_path):
    return Past(app, url, tmp_path)


class Till:
    """Somewhere payments arrive; knows each by its key."""

    def __init__(self):
        self.paid = []

    def find(self, call):
        return Happened("found") if call.idempotency_key in self.paid else DidNotHappen()

    def tool(self, **declared):
        @tool(effect="once", reconcile_after=0, **declared)
        def pay(amount: int = 1, *, idempotency_key: str) -> str:
            self.paid.append(idempotency_key)
            return "paid"

        return pay


@contextlib.contextmanager
def at_work(worker):
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(20)
        assert not thread.is_alive()


def kinds(app, id, after=0):
    return [record.kind for record in app.events(id, after=after)]


# Noticing


def test_a_holder_whose_log_moved_back_stops_at_once_and_the_task_waits_as_diverged(app, past, texts):
    worked = []

    @agent
    def worker(task):
        task.step(worked.append, "one", name="one")
        task.step(past.keep)
        task.step(worked.append, "two", name="two")
        task.step(worked.append, "three", name="three")
        task.step(past.restore)
        task.step(worked.append, "four", name="four")

    with texts.raises(Diverged) as noticed:
        app.run(worker, id="t")
    assert worked == ["one", "two", "three"], "nothing is done after it"
    assert (noticed.value.details["known_seq"], noticed.value.details["head_seq"]) == (6, 3)
    state = app.get("t")
    assert (state.status, state.waiting.kind) == ("waiting", "diverged")
    assert kinds(app, "t", after=3) == ["task_diverged"], "nothing but the mark is written over the loss"
    mark = list(app.events("t"))[-1].event
    assert (mark.known_seq, mark.head_seq, len(mark.known_digest)) == (6, 3, 64)
    assert app.verify().ok
    (entry,) = inbox.items_of(app.logs, "t")
    assert entry.kind == "diverged"
    texts.check(entry.prompt)


def test_an_async_holder_notices_too_and_its_branches_stop(app, past):
    worked = []

    @agent
    async def worker(task):
        await task.step(past.keep)
        await asyncio.gather(*(task.step(worked.append, n, name=f"n{n}") for n in range(3)))
        await task.step(past.restore)
        await asyncio.gather(*(task.step(worked.append, n, name=f"n{n}") for n in range(3, 6)))

    with pytest.raises(Diverged):
        app.run(worker, id="t")
    assert sorted(worked) == [0, 1, 2]
    assert app.get("t").waiting.kind == "diverged"
    assert kinds(app, "t") == ["task_created", "task_claimed", "task_diverged"]


@pytest.mark.parametrize("strategy", ["before_effects", "on_state_change"])
def test_a_holder_that_writes_in_the_background_notices_at_its_next_write(app, past, strategy):
    till = Till()
    pay = till.tool(reconcile=till.find)

    @agent(checkpoint=strategy)
    def worker(task):
        task.call(pay)
        task.step(past.keep)
        task.checkpoint("here")
        for n in range(20):
            task.step(int, n, name="number")
        task.checkpoint("there")
        task.step(past.restore)
        for n in range(20):
            task.step(int, n, name="number")
        task.call(pay)

    with pytest.raises(Diverged):
        app.run(worker, id="t")
    assert len(till.paid) == 1
    assert app.get("t").waiting.kind == "diverged"


def test_an_agent_that_catches_everything_cannot_go_on(app, past):
    worked = []

    @agent
    def stubborn(task):
        task.step(past.keep)
        task.step(int, "1", name="lost")
        for n in range(3):
            try:
                task.step(past.restore, name=f"restore{n}")
                task.step(worked.append, n, name=f"work{n}")
            except Exception:
                continue
        return "fine"

    with pytest.raises(Diverged):
        app.run(stubborn, id="t")
    assert worked == [] and app.get("t").waiting.kind == "diverged"
    assert kinds(app, "t").count("task_diverged") == 1


def test_a_transaction_of_a_task_that_lost_events_is_not_made(app, past):
    @tool(effect="transaction")
    def book(*, connection) -> int:
        connection.execute("create table if not exists bookings (n int)")
        connection.execute("insert into bookings values (1)")
        return 1

    @agent
    def worker(task):
        task.step(past.keep)
        task.step(int, "1", name="lost")
        task.step(int, "2", name="lost")
        past.restore()
        task.call(book)

    with pytest.raises(Diverged):
        app.run(worker, id="t")
    assert app.get("t").waiting.kind == "diverged"
    assert "step_completed" not in kinds(app, "t", after=3)


def test_whoever_only_told_the_task_something_notices_before_telling_it_more(app, past, texts):
    app.start("worker", id="t")
    past.keep()
    app.signal("t", "one", 1)
    app.signal("t", "two", 2)
    past.restore()
    with texts.raises(Diverged):
        app.signal("t", "three", 3)
    assert kinds(app, "t") == ["task_created", "task_diverged"]
    assert app.get("t").waiting.kind == "diverged"


def test_others_writing_to_a_log_is_no_loss(app, url):
    @agent
    def worker(task):
        for n in range(5):
            task.step(lambda n=n: app.signal("t", f"s{n}", n) and None, name="tell")
        return "done"

    for _ in range(2):
        assert app.run(worker, id="t").status == "completed"
        assert "task_diverged" not in kinds(app, "t")


# Going on


def test_a_frozen_task_is_refused_until_somebody_says_anyway(app, past, texts):
    @agent
    def worker(task):
        task.step(past.keep)
        task.step(int, "1", name="lost")
        task.step(past.restore)
        return task.step(int, "7", name="last")

    with pytest.raises(Diverged):
        app.run(worker, id="t")
    for refused in (lambda: app.run(worker, id="t"), lambda: app.resume("t", worker)):
        with texts.raises(Diverged):
            refused()
    app.signal("t", "news", 1)
    assert app.get("t").waiting.kind == "diverged", "no signal wakes it"
    with pytest.raises(holdfast.HoldfastError):
        app.append("t", ev.TaskClaimed(holder="me"))
    done = app.resume("t", worker, anyway=True, by="ana", why="looked at it")
    assert (done.status, done.result) == ("completed", 7)
    accepted = next(record.event for record in app.events("t") if record.kind == "divergence_accepted")
    assert (accepted.by, accepted.why) == ("ana", "looked at it")
    assert app.verify().ok


def test_a_frozen_task_is_reopened_for_workers_only_if_somebody_says_anyway(app, past, texts):
    @agent
    def worker(task):
        task.step(past.keep)
        task.step(int, "1", name="lost")
        task.step(past.restore)
        return task.step(int, "7", name="last")

    with pytest.raises(Diverged):
        app.run(worker, id="t")
    before = app.head("t")
    with pytest.raises(Diverged):
        app.reopen("t", by="ana")
    with texts.raises(holdfast.InvalidValue):
        app.reopen("t", by="ana", anyway=True, deadline="1h")
    assert app.head("t") == before
    assert app.reopen("t", by="ana", why="looked at it", anyway=True).status == "pending"
    accepted = list(app.events("t"))[-1].event
    assert (accepted.by, accepted.why) == ("ana", "looked at it")
    with at_work(app.worker([worker])):
        until(lambda: app.get("t").status == "completed")
    assert app.get("t").result == 7
    with pytest.raises(holdfast.HoldfastError):
        app.reopen("t", by="ana", anyway=True)
    assert app.verify().ok


def lost_call(app, past, pay, till):
    """A task that paid, and whose log lost everything about that."""

    @agent
    def shop(task):
        task.step(past.keep, name="keep")
        answer = task.call(pay)
        task.step(past.restore, name="restore")
        return answer

    with pytest.raises(Diverged) as noticed:
        app.run(shop, id="t")
    assert noticed.value.details["calls"] == ["pay#1"]
    return shop


def test_a_lost_call_is_reconciled_and_not_made_again(app, past):
    till = Till()
    shop = lost_call(app, past, till.tool(reconcile=till.find), till)
    mark = next(record.event for record in app.events("t") if record.kind == "task_diverged")
    assert [(call.key, call.tool, call.status) for call in mark.calls] == [("pay#1", "pay", "completed")]
    assert mark.calls[0].idempotency_key == till.paid[0]
    done = app.resume("t", shop, anyway=True)
    assert (done.status, done.result) == ("completed", "found")
    assert len(till.paid) == 1


def test_a_lost_call_that_nobody_can_reconcile_waits_for_a_person(app, past):
    till = Till()
    shop = lost_call(app, past, till.tool(), till)
    assert app.get("t").steps["pay#1"].status == "doubt"
    waiting = app.resume("t", shop, anyway=True)
    assert (waiting.status, waiting.waiting.kind, len(till.paid)) == ("waiting", "doubt", 1)
    app.settle("t", "pay#1", happened=True, result="seen", by="ana")
    assert app.run(shop, id="t").result == "seen"
    assert len(till.paid) == 1


def test_a_lost_call_that_is_settled_while_the_task_is_frozen_does_not_wake_it(app, past):
    till = Till()
    shop = lost_call(app, past, till.tool(), till)
    app.settle("t", "pay#1", happened=False, by="ana")
    assert app.get("t").waiting.kind == "diverged"
    assert app.resume("t", shop, anyway=True).result == "paid"
    assert len(till.paid) == 2, "a person said that the first did not happen"


def test_a_lost_unique_call_takes_its_key_again(app, past):
    till = Till()
    lost_call(app, past, till.tool(unique="order-{amount}"), till)
    assert app.store.owner_of_key("order-1").step == "pay#1"


def test_a_lost_call_with_a_large_argument_is_restored_whole(app, past):
    seen = []

    def find(call):
        seen.append(call.arguments)
        return Happened("found")

    @tool(effect="once", reconcile=find, reconcile_after=0)
    def send(text: str) -> str:
        return "sent"

    @agent
    def post(task):
        task.step(past.keep, name="keep")
        answer = task.call(send, text="x" * 9000)
        task.step(past.restore, name="restore")
        return answer

    with pytest.raises(Diverged):
        app.run(post, id="t")
    assert app.verify().ok
    assert app.resume("t", post, anyway=True).result == "found"
    assert seen[0]["text"] == "x" * 9000


def test_calls_of_lost_turns_are_in_doubt_before_they_are_made_again(app, past):
    till = Till()
    pay = till.tool(reconcile=till.find)

    @agent(loop=True)
    def looping(task):
        task.call(pay, amount=task.turn)
        if task.turn == 1:
            task.step(past.keep, name="keep")
        if task.turn == 3:
            task.step(past.restore, name="restore")
        return "done" if task.turn == 5 else None

    with pytest.raises(Diverged):
        app.run(looping, id="t")
    assert len(till.paid) == 3
    done = app.resume("t", looping, anyway=True)
    assert done.result == "done"
    assert len(till.paid) == len(set(till.paid)) == 5
    doubts = [record.event.key for record in app.events("t") if record.kind == "step_doubted"]
    assert len(doubts) == 2, "those of turns 2 and 3; turns 4 and 5 were never lost"


def test_a_process_that_finished_a_task_which_is_gone_later_does_not_do_it_again(app, past):
    till = Till()
    pay = till.tool()

    @agent
    def shop(task):
        return task.call(pay)

    app.start(shop, id="t")
    past.keep()
    assert app.run(shop, id="t").result == "paid"
    past.restore()
    assert app.get("t").status == "pending", "looking changes nothing"
    with pytest.raises(Diverged):
        app.run(shop, id="t")
    waiting = app.resume("t", shop, anyway=True)
    assert (waiting.waiting.kind, len(till.paid)) == ("doubt", 1)
    app.settle("t", "pay#1", happened=True, result="it was", by="ana")
    assert app.run(shop, id="t").result == "it was" and len(till.paid) == 1


@pytest.mark.parametrize("noticed", ["while it works", "afterwards"])
def test_a_task_of_which_nothing_is_left_does_not_begin_anew(app, past, noticed, texts):
    till = Till()
    pay = till.tool()

    @agent
    def shop(task, order: int):
        task.call(pay)
        if noticed == "while it works":
            task.step(past.restore)
        return order

    app.start("another", id="other")
    past.keep()
    if noticed == "while it works":
        with texts.raises(Diverged):
            app.run(shop, {"order": 17}, id="t")
    else:
        app.run(shop, {"order": 17}, id="t")
        past.restore()
    with pytest.raises(Diverged):
        app.run(shop, {"order": 17}, id="t")
    assert (app.get("t").waiting.kind, app.get("t").input) == ("diverged", {"order": 17})
    assert len(till.paid) == 1
    assert app.resume("t", shop, anyway=True).waiting.kind == "doubt"
    assert len(till.paid) == 1 and app.verify().ok


@pytest.mark.parametrize("way", ["cancelled", "rolled back", "forked"])
def test_a_frozen_task_can_be_cancelled_rolled_back_or_forked(app, past, way):
    @agent
    def worker(task):
        task.step(int, "1", name="safe")
        task.step(past.keep)
        task.step(int, "2", name="lost")
        task.step(past.restore)
        return "done"

    with pytest.raises(Diverged):
        app.run(worker, id="t")
    if way == "cancelled":
        assert app.cancel("t").status == "cancelled"
    elif way == "rolled back":
        app.rollback("t", to=3)
        assert app.run(worker, id="t").result == "done"
    else:
        app.fork("t", at=3, id="fork")
        assert app.run(worker, id="fork").result == "done"
        assert app.get("t").waiting.kind == "diverged"


def test_a_block_notices_and_goes_on_when_somebody_accepts_it(app, past):
    def work():
        with app.task("job", id="t") as task:
            task.step(past.keep, name="keep")
            task.step(int, "2", name="lost")
            task.step(past.restore, name="restore")
            task.finish("done")

    for _ in range(2):
        with pytest.raises(Diverged):
            work()
    app.append("t", ev.DivergenceAccepted(by="ana"))
    work()
    assert app.get("t").result == "done"


def test_a_child_that_lost_events_is_frozen_with_its_parent_and_both_go_on(app, past):
    @agent
    def child(task):
        task.step(past.keep)
        task.step(int, "2", name="lost")
        task.step(past.restore)
        return "grown"

    @agent
    def parent(task):
        return task.spawn(child)

    assert app.run(parent, id="p").waiting.kind == "child", "the parent has lost nothing"
    (frozen,) = [row.id for row in app.list() if row.parent == "p"]
    assert app.get(frozen).waiting.kind == "diverged"
    assert app.run(parent, id="p").waiting.kind == "child"
    assert app.resume(frozen, child, anyway=True).result == "grown"
    assert app.run(parent, id="p").result == "grown"


# Several who hold it, one after the other


def test_somebody_who_built_upon_the_loss_unawares_is_stopped_when_another_notices(app, past, url, tmp_path):
    if url == "memory:":
        pytest.skip("two apps on one store in memory are one holder")
    till = Till()
    pay = till.tool(reconcile=till.find)
    inner = {}

    @agent
    def first(task):
        task.call(pay)
        task.step(past.restore, name="restore")

    @agent(name="first")
    def second(task):
        task.step(lose, name="notice")
        task.step(int, "5", name="more")

    def lose():
        with pytest.raises(Diverged):
            app.signal("t", "anything")
        inner["noticed"] = True

    app.start(first, id="t")
    past.keep()
    real = app.logs.news
    app.logs.news = lambda log: (_ for _ in ()).throw(holdfast.StoreUnreachable("gone", hint="wait"))
    with pytest.raises(holdfast.StoreUnreachable):
        app.run(first, id="t")
    app.logs.news = real
    with holdfast.open(url) as other, pytest.raises(Diverged):
        other.run(second, id="t")
    assert inner["noticed"]
    assert kinds(app, "t")[-1] == "task_diverged" and app.get("t").waiting.kind == "diverged"


# Claims, which nobody waits for


@pytest.mark.parametrize("is_async", [False, True])
def test_a_worker_whose_claim_is_lost_lets_go_of_the_task_and_it_is_done_all_the_same(app, past, is_async):
    till, entered = Till(), []
    pay = till.tool(reconcile=till.find)

    def work():
        entered.append(1)
        past.restore()
        return len(entered)

    @agent
    def plain(task):
        return task.step(work), task.call(pay, amount=2)

    @agent
    async def on_loop(task):
        return await task.step(work), await task.call(pay, amount=2)

    worker = app.worker([on_loop if is_async else plain])
    app.start(on_loop if is_async else plain, id="t")
    past.keep()
    with at_work(worker):
        until(lambda: app.get("t").status == "completed")
    assert app.get("t").result == [2, "paid"]
    assert len(till.paid) == 1, "what can be done once only is announced first, and an announcement is waited for"
    assert kinds(app, "t").count("step_observed") == 1, "the late result is kept apart"
    assert worker.counts["lease_lost"] == 1
    assert app.verify().ok


def test_somebody_who_saw_a_claim_that_is_lost_reads_what_is_there_instead(app, past):
    app.start("nobody", id="t")
    past.keep()
    app.logs.load("t").claim()
    seen = app.logs.load("t")
    assert (seen.head.seq, seen.state.summary.status) == (2, "running")
    past.restore()
    assert seen.refresh() == []
    assert (seen.head.seq, seen.state.summary.status) == (1, "pending")
    seen.append([ev.NoteSet(key="k", value=codec.pack(1))])
    assert kinds(app, "t") == ["task_created", "note_set"]


def test_more_than_a_claim_is_lost_with_everything_that_entails(app, past, texts):
    past_of_all = app.logs.create("t", [ev.TaskCreated(agent="nobody", seed="s")])
    past.keep()
    past_of_all.append([ev.NoteSet(key="k", value=codec.pack(1))])
    app.logs.load("t").claim()
    seen = app.logs.load("t")
    past.restore()
    with texts.raises(Diverged):
        seen.refresh()

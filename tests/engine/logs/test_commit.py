"""Group commit: alone, from many threads, from an event loop."""

import asyncio
import threading

import pytest

import holdfast
from holdfast import events as ev
from holdfast.core.codec import Group
from holdfast.engine.logs.loop_commits import LoopCommits
from holdfast.failpoints import armed


class Counting:
    """A store that counts its transactions."""

    def __init__(self, store):
        self._store = store
        self.batches = []

    def append(self, groups):
        self.batches.append(len(groups))
        return self._store.append(groups)

    def append_event(self, log, expect, draft):
        self.batches.append(1)
        return self._store.append_event(log, expect, draft)

    def __getattr__(self, name):
        return getattr(self._store, name)


@pytest.fixture
def counted(app):
    for n in range(50):
        app.start("a", id=f"t{n}")
    app.store = app.logs.store = app.logs.committer._store = Counting(app.store)
    taken = app.logs.committer
    taken._append, taken._append_event = app.store.append, app.store.append_event
    taken._append_at_once = lambda group: None  # as a store does that has to wait for its disk
    return app


def test_a_lone_caller_commits_by_itself(counted):
    log = counted.logs.load("t0")
    for _ in range(5):
        log.append([ev.LogWritten(text="x")])
    assert counted.store.batches == [1] * 5
    assert counted.logs.committer._thread is None


def test_many_threads_share_commits_and_each_gets_its_own_outcome(counted):
    logs = [counted.logs.load(f"t{n}") for n in range(50)]
    starting = threading.Barrier(50)
    refused = []

    def work(n):
        starting.wait()
        for _ in range(20):
            logs[n].append([ev.LogWritten(text=str(n))])
        stale = counted.logs.load(f"t{n}")
        stale.head = type(stale.head)(1, stale.head.digest)
        try:
            stale.append([ev.LogWritten(text="too late")])
        except holdfast.Conflict:
            refused.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(refused) == list(range(50)), "one group's conflict fails it alone"
    assert all(counted.get(f"t{n}").seq == 21 for n in range(50))
    assert counted.verify().ok


def test_async_callers_share_commits_and_the_loop_never_waits_for_the_store(counted):
    async def main():
        commits = LoopCommits(counted.logs.committer)
        threads = set()

        def note_thread(name):
            threads.add(threading.current_thread().name)

        async def work(n):
            log = counted.logs.load(f"t{n}")
            for _ in range(20):
                write = log.draft([ev.LogWritten(text=str(n))])
                (placed,) = await commits.commit(Group((write,)))
                log.accept(write, placed)
            with pytest.raises(holdfast.Conflict):
                await commits.commit(Group((write,)))

        with armed(note_thread):
            await asyncio.gather(*(work(n) for n in range(50)))
        assert threads == {"holdfast-commit"}

    asyncio.run(main())
    assert len(counted.store.batches) < 50 * 21 / 2, "commits were shared"
    assert all(counted.get(f"t{n}").seq == 21 for n in range(50))


def test_a_store_that_fails_tells_everyone_who_was_in_the_batch(counted):
    def fail(groups):
        raise holdfast.StoreFull("no room", hint="make some")

    counted.logs.committer._append = fail

    async def main():
        commits = LoopCommits(counted.logs.committer)
        logs = [counted.logs.load(f"t{n}") for n in range(5)]
        writes = [log.draft([ev.LogWritten(text="x")]) for log in logs]
        return await asyncio.gather(*(commits.commit(Group((w,))) for w in writes), return_exceptions=True)

    assert [type(result) for result in asyncio.run(main())] == [holdfast.StoreFull] * 5


def test_closing_writes_what_is_queued(url):
    app = holdfast.open(url)
    app.start("a", id="t")
    settled = []
    write = app.logs.load("t").draft([ev.LogWritten(text="x")])
    app.logs.committer.submit(Group((write,)), settled.extend, None)
    app.close()
    assert settled[0].result()[0].first == 2


# At once, on the event loop


async def one(n):
    return n


@holdfast.agent
async def steps(task, n):
    for number in range(n):
        await task.step(one, number, name="one")


@pytest.mark.parametrize(("durability", "by_thread"), [("process", False), ("full", True)])
def test_an_async_step_is_written_by_its_loop_only_if_the_disk_is_not_waited_for(
    tmp_path, monkeypatch, durability, by_thread
):
    with holdfast.open(tmp_path / "a.db", durability=durability) as app:
        handed, submit = [], app.logs.committer.submit
        monkeypatch.setattr(app.logs.committer, "submit", lambda *given: handed.append(given) or submit(*given))
        asyncio.run(app.arun(steps, {"n": 20}, id="t"))
        assert len(handed) >= 20 if by_thread else not handed
        assert app.get("t").status == "completed"
        app.verify("t")


def test_nothing_is_written_at_once_while_another_thread_or_process_writes(tmp_path):
    with holdfast.open(tmp_path / "a.db", durability="process") as app:
        app.start("a", id="t")
        group = Group((app.logs.load("t").draft([ev.LogWritten(text="x")]),))
        writing, go_on = threading.Event(), threading.Event()

        def work(connection):
            writing.set()
            go_on.wait(30)
            return group

        thread = threading.Thread(target=app.store.transact, args=("t", app.store.head("t"), work))
        thread.start()
        assert writing.wait(30)
        assert app.store.append_at_once(group) is None
        go_on.set()
        thread.join()
        with holdfast.open(tmp_path / "a.db", durability="process") as other:
            head = app.store.head("t")
            with other.store._guard.turn():  # as another process does
                assert app.store.append_at_once(group) is None
            assert app.store.head("t") == head


def test_steps_that_never_wait_let_other_code_on_the_loop_run(tmp_path):
    """A loop that commits without a wait would keep a web server beside it from answering."""
    with holdfast.open(tmp_path / "a.db", durability="process") as app:
        turns = 0

        async def beside():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def both():
            other = asyncio.create_task(beside())
            await app.arun(steps, {"n": 1_000}, id="t")
            other.cancel()

        asyncio.run(both())
        assert turns >= 5

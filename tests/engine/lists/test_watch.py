"""Watching tasks: every change is given, whichever process made it, and one reader serves all who watch."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

import holdfast
from holdfast import agent
from holdfast.core import limits
from holdfast.store.memory.store import MemoryStore
from tests.waiting import PATIENCE_SECONDS, auntil, until

STORES = ("memory", "sqlite", "postgres")
CLOCK = None  # the real one


@agent
def asks(task):
    task.stage("asking")
    return task.ask("who?", name="who")


def told(app, cursor, count, **filters):
    """The next so many changes after a place."""
    found = []
    for one in app.watch(after=cursor, seconds=PATIENCE_SECONDS, **filters):
        found.append(one)
        if len(found) == count:
            break
    return found


def reading():
    return [one for one in threading.enumerate() if one.name == "holdfast-feed"]


def test_changes_are_given_with_id_seq_status_and_a_place_to_go_on_from(app):
    begin = app.watch().cursor
    app.start(asks, id="one")
    app.start(asks, id="two")
    first, second = told(app, begin, 2)
    assert [(one.id, one.seq, one.status) for one in (first, second)] == [("one", 1, "pending"), ("two", 1, "pending")]
    assert first.row == app.row("one")
    app.run(asks, id="one")
    assert told(app, first.cursor, 2)[0] == second
    last = told(app, second.cursor, 1)[0]
    assert (last.id, last.status, last.row.waiting, last.seq) == ("one", "waiting", "person", app.head("one"))


def test_a_change_is_given_while_one_watches(app):
    watch = iter(app.watch(after=app.watch().cursor, seconds=PATIENCE_SECONDS))
    seen = []
    thread = threading.Thread(target=lambda: seen.append(next(watch)))
    thread.start()
    until(lambda: len(reading()) >= 1)
    app.start(asks, id="t")
    thread.join(PATIENCE_SECONDS)
    assert [one.id for one in seen] == ["t"]


def test_what_is_not_asked_for_is_not_given(app):
    begin = app.watch().cursor
    for id, user in (("mine-1", "ana"), ("mine-2", "ben"), ("other", "ana")):
        app.run(asks, id=id, user=user)
    assert [one.id for one in told(app, begin, 1, user="ana", prefix="mine-")] == ["mine-1"]
    assert [one.id for one in told(app, begin, 3, status="waiting")] == ["mine-1", "mine-2", "other"]
    assert list(app.watch(after=begin, waiting="doubt", seconds=0.2)) == []


def test_it_is_awaited_and_the_loop_goes_on(app):
    async def program():
        begin = await asyncio.to_thread(lambda: app.watch().cursor)
        seen = []

        async def watching():
            async for one in app.aio.watch(after=begin, seconds=PATIENCE_SECONDS):
                seen.append((one.id, one.status))
                if len(seen) == 2:
                    return

        watcher = asyncio.create_task(watching())
        await app.aio.start(asks, id="t")
        await auntil(lambda: seen)
        await app.aio.cancel("t")
        await asyncio.wait_for(watcher, PATIENCE_SECONDS)
        assert seen == [("t", "pending"), ("t", "cancelled")]

    asyncio.run(program())


def test_a_watch_without_a_place_begins_when_one_begins(app):
    app.start(asks, id="before")

    async def program():
        watch = app.aio.watch(seconds=PATIENCE_SECONDS)
        first = asyncio.create_task(anext(aiter(watch)))
        await auntil(lambda: reading())
        await app.aio.start(asks, id="after")
        assert (await asyncio.wait_for(first, PATIENCE_SECONDS)).id == "after"

    asyncio.run(program())


class Counting(MemoryStore):
    """Counts how often the feed is read."""

    def __init__(self):
        super().__init__()
        self.reads = 0

    def changes(self, after, *, limit=1000):
        self.reads += 1
        return super().changes(after, limit=limit)


def test_fifty_who_watch_cost_the_store_what_one_does():
    with holdfast.App(Counting()) as app:

        def reads(watchers):
            begin = app.watch().cursor
            done = [threading.Event() for _ in range(watchers)]
            seen = [[] for _ in range(watchers)]

            def watch(number):
                for one in app.watch(after=begin, seconds=PATIENCE_SECONDS):
                    seen[number].append(one.id)
                    if len(seen[number]) == 5:
                        done[number].set()
                        return

            threads = [threading.Thread(target=watch, args=(number,)) for number in range(watchers)]
            for thread in threads:
                thread.start()
            until(lambda: len(app.feed._reader._listeners) == watchers and len(reading()) == 1)
            before, began = app.store.reads, time.monotonic()
            ids = [app.start(asks).id for _ in range(5)]
            assert all(one.wait(PATIENCE_SECONDS) for one in done) and seen == [ids] * watchers
            looks = (time.monotonic() - began) / limits.FOLLOW_SECONDS
            count = app.store.reads - before - int(looks)  # of the one reader, while nothing changes
            for thread in threads:
                thread.join()
            until(lambda: not reading(), why="somebody reads, though nobody watches")
            return count

        assert reads(50) <= 50 + 3 * max(5, reads(1)), "each may ask the store once, as it begins"


def test_nothing_is_read_while_nobody_watches():
    with holdfast.App(Counting()) as app:
        assert list(app.watch(seconds=0.1)) == []
        until(lambda: not reading())
        before = app.store.reads
        time.sleep(5 * limits.FOLLOW_SECONDS)
        assert app.store.reads == before


def test_one_who_is_far_behind_reads_on_by_itself_and_misses_nothing(app, monkeypatch):
    monkeypatch.setattr(limits, "FEED_KEPT", 3)
    begin = app.watch().cursor
    slow = iter(app.watch(after=begin, seconds=PATIENCE_SECONDS))
    ids = []
    for number in range(12):
        ids.append(app.start(asks, id=f"t{number}").id)
        if number == 0:
            assert next(slow).id == "t0"
    assert [next(slow).id for _ in range(11)] == ids[1:]


def test_whoever_leaves_costs_the_store_no_look():
    """Waits leave every few seconds, and come back."""
    with holdfast.App(Counting()) as app:
        stays = threading.Thread(target=lambda: next(iter(app.watch(seconds=PATIENCE_SECONDS))))
        stays.start()
        until(lambda: app.feed._reader is not None and app.feed._reader._floor is not None)
        before, began = app.store.reads, time.monotonic()
        for _ in range(100):
            assert list(app.watch(after=app.store.last_change(), seconds=0)) == []
            time.sleep(0.01)
        looks = (time.monotonic() - began) / limits.FOLLOW_SECONDS
        assert app.store.reads - before <= looks + 10
        app.start(asks)
        stays.join(PATIENCE_SECONDS)
        assert not stays.is_alive()


def test_a_thousand_waits_cost_the_store_what_one_does_and_leave_the_pool_of_threads_free():
    with holdfast.App(Counting()) as app:

        async def program():
            ids = [(await app.aio.start(asks)).id for _ in range(1000)]
            waits = [asyncio.create_task(app.aio.wait(id, timeout=2 * PATIENCE_SECONDS)) for id in ids]
            await auntil(lambda: len(app.feed._reader._listeners if app.feed._reader else ()) >= len(ids))
            before = app.store.reads
            began = time.monotonic()
            assert await asyncio.wait_for(app.aio.head(ids[0]), PATIENCE_SECONDS) == 1, "other verbs go on"
            for id in ids:
                await app.aio.cancel(id)
            assert {one.status for one in await asyncio.gather(*waits)} == {"cancelled"}
            looks = (time.monotonic() - began) / limits.FOLLOW_SECONDS
            assert app.store.reads - before <= looks + 2 * len(ids), "a change read is at most one more look"

        asyncio.run(program())
        until(lambda: not reading())


def test_two_apps_of_one_store_are_served_by_one_reader_and_each_outlives_the_other(tmp_path):
    path = str(tmp_path / "store.db")
    with holdfast.open(path) as first, holdfast.open(path, namespace="b") as second:
        begin = first.watch().cursor
        seen = {first: [], second: []}

        def watch(app):
            for one in app.watch(after=begin, seconds=PATIENCE_SECONDS):
                seen[app].append(one.id)

        threads = [threading.Thread(target=watch, args=(app,)) for app in seen]
        for thread in threads:
            thread.start()
        until(lambda: second.feed._reader is not None and len(second.feed._reader._listeners) == 2)
        assert first.feed._reader is second.feed._reader and len(reading()) == 1
        first.start(asks, id="of-first")
        second.start(asks, id="of-second")
        until(lambda: seen == {first: ["of-first"], second: ["of-second"]})
        first.close()
        second.start(asks, id="later")
        until(lambda: seen[second] == ["of-second", "later"])
        second.close()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert seen[first] == ["of-first"]
        until(lambda: not reading())


def test_a_copy_of_a_store_is_a_store_of_its_own(tmp_path):
    with holdfast.open(str(tmp_path / "one.db")) as one:
        one.backup(tmp_path / "two.db")
        with holdfast.open(str(tmp_path / "two.db")) as two:
            begins = {app: app.watch().cursor for app in (one, two)}
            one.start(asks, id="of-one")
            two.start(asks, id="of-two")
            for app, own in ((one, "of-one"), (two, "of-two")):
                assert [change.id for change in app.watch(after=begins[app], seconds=0.3)] == [own]


class Failing(MemoryStore):
    """Does not answer while `is_away`."""

    is_away = False

    def changes(self, after, *, limit=1000):
        if self.is_away:
            raise holdfast.StoreError("the store is away", hint="try again")
        return super().changes(after, limit=limit)


def test_a_store_that_does_not_answer_is_an_error_of_every_watcher_who_may_watch_again():
    with holdfast.App(Failing()) as app:
        begin = app.watch().cursor
        app.store.is_away = True
        for _ in range(2):
            with pytest.raises(holdfast.StoreError, match="away"):
                list(app.watch(after=begin, seconds=10))
        app.store.is_away = False
        app.start(asks, id="t")
        assert [one.id for one in told(app, begin, 1)] == ["t"]


def test_closing_the_app_ends_the_watching(app):
    ended = threading.Event()

    def watch():
        for _ in app.watch():
            pass
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    until(lambda: bool(reading()))
    app.close()
    assert ended.wait(PATIENCE_SECONDS)
    until(lambda: not reading())


@pytest.mark.parametrize(
    "odd", [{"after": "x"}, {"after": "1"}, {"status": "odd"}, {"waiting": "odd"}, {"seconds": -1}]
)
def test_what_cannot_be_watched_is_refused(app, odd, texts):
    with texts.raises(holdfast.InvalidValue):
        app.watch(**odd)


CHILD = """
import sys, holdfast
with holdfast.open(sys.argv[1]) as app:
    for number in range(int(sys.argv[3])):
        app.start("a", id=f"{sys.argv[2]}-{number}")
"""


def test_what_other_processes_write_is_given_once_each(url):
    if url.startswith("memory"):
        pytest.skip("no other process sees what is in memory")
    with holdfast.open(url) as app:
        begin = app.watch().cursor
        children = [subprocess.Popen([sys.executable, "-c", CHILD, url, name, "20"]) for name in ("a", "b")]
        seen = [one.id for one in told(app, begin, 40)]
        assert all(child.wait(PATIENCE_SECONDS) == 0 for child in children)
        assert sorted(seen) == sorted(f"{name}-{number}" for name in ("a", "b") for number in range(20))


def test_a_tenant_watches_its_own(tmp_path):
    path = str(tmp_path / "store.db")
    with holdfast.open(path, namespace="a") as a, holdfast.open(path, namespace="b") as b, holdfast.open(path) as root:
        begin = root.watch().cursor
        a.start(asks, id="of-a")
        b.start(asks, id="of-b")
        root.start(asks, id="of-root")
        for app, own in ((a, "of-a"), (b, "of-b"), (root, "of-root")):
            assert [one.id for one in app.watch(after=begin, seconds=0.3)] == [own]

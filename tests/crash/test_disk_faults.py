"""A full disk and a failing sync: what is refused, what is kept, and how it goes on."""

import itertools
import os
import random
import subprocess
import threading
import time
from contextlib import contextmanager

import pytest

import holdfast
from holdfast.testing.auditor import audit
from holdfast.testing.crash.faults import FaultyVFS, PowerCutVFS
from tests.crash.workload import assert_goes_on, assert_whole, eager_checkpoints, open_on, work
from tests.crash.writer import Acks, large, note, write_pair
from tests.waiting import until


def heads(app):
    return {name: app.store.head(name) for name in app.store.logs()}


# A full disk

DEEDS = {
    "a task": lambda app, acks: app.start("late", id="late"),
    "an event": lambda app, acks: acks.records(app.append("one", note("more"))),
    "a batch": lambda app, acks: acks.records(app.append("one", *map(note, "several"))),
    "a large value": lambda app, acks: acks.records(app.append("one", large(random.Random(1), 50_000))),
    "a pair": lambda app, acks: write_pair(app, acks, "one", "fork", "again"),
    "a fork": lambda app, acks: app.fork("one", at=2, id="late"),
    "a rollback": lambda app, acks: app.rollback("one", to=3),
}


@pytest.mark.parametrize("deed", DEEDS.values(), ids=DEEDS)
def test_a_disk_that_fills_up_in_the_middle_of_a_write_leaves_nothing_half_written(deed, acks, tmp_path):
    vfs = FaultyVFS("full")
    with open_on("full", tmp_path / "store.db") as app:
        work(app, acks)
        before, noted = heads(app), acks.count
        for room in itertools.count():
            vfs.room = room
            try:
                deed(app, acks)
            except holdfast.StoreFull:
                assert heads(app) == before
                assert app.get("one").seq == before["one"].seq
                assert acks.count == noted
            else:
                break
        vfs.room = None
        assert room >= 2, "the disk was full at least once before, and once in the middle"
        assert heads(app) != before
        app.append("one", note("there is room again"))
        assert app.verify().ok
    assert_whole(tmp_path / "store.db", acks)


def test_a_store_cannot_be_made_on_a_full_disk_but_later(tmp_path):
    vfs = FaultyVFS("full")
    for room in itertools.count():
        vfs.room = room
        try:
            app = open_on("full", tmp_path / "store.db")
        except holdfast.StoreFull:
            continue
        break
    assert room > 20, "every write of the first open failed once"
    vfs.room = None
    app.close()
    assert_goes_on(tmp_path / "store.db")


@contextmanager
def small_disk(folder, size="2m"):
    """A real file system with little room, if we may mount one."""
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(app, acks):
    """Append until the disk is full; gives the error."""
    chance = random.Random(5)
    for _ in range(10_000):
        try:
            acks.records(app.append("task", large(chance, 3_000)))
        except holdfast.StoreFull as full:
            return full
    raise AssertionError("the disk never filled up")


@pytest.mark.parametrize("durability", ["full", "process"])
def test_a_real_disk_that_is_full_refuses_writes_and_goes_on_when_there_is_room(durability, acks, tmp_path, texts):
    with small_disk(tmp_path / "disk") as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(1_200_000))
        path = disk / "store.db"
        with holdfast.open(path, durability=durability) as app:
            app.start("filler", id="task")
            app.start("other", id="other")
            full = fill(app, acks)
            texts.check(full)
            head = app.store.head("task")
            for _ in range(3):
                with pytest.raises(holdfast.StoreFull):
                    app.append("task", large(random.Random(6), 60_000))
            assert app.store.head("task") == head
            assert app.get("task").seq == head.seq == 1 + acks.count
            assert len(list(app.events("other"))) == 1
            assert app.verify().ok
            ballast.unlink()
            acks.records(app.append("task", note("there is room again")))
            acks.records(app.append("other", note("here too")))
            assert app.verify().ok
        assert_whole(path, acks)


def test_a_store_on_a_full_disk_can_be_read_by_others(acks, tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        path = disk / "store.db"
        with holdfast.open(path) as app:
            app.start("filler", id="task")
            fill(app, acks)
            with holdfast.open(path) as other:
                assert other.get("task").seq == 1 + acks.count
                assert other.verify().ok
            assert audit(path, acks.path) == []


# A failing sync


def test_after_a_failed_sync_nothing_is_written_until_the_store_is_opened_again(tmp_path, texts):
    trial = FaultyVFS("sync")
    with eager_checkpoints(), open_on("sync", tmp_path / "count.db") as app:
        work(app, Acks(tmp_path / "count.acks"))
        syncs = trial.syncs
    promises = set()
    for number in range(1, syncs + 1):
        path, acks = tmp_path / f"{number}.db", Acks(tmp_path / f"{number}.acks")
        vfs = PowerCutVFS("sync", tmp_path / f"shadow {number}")
        vfs.fail_sync_at = number
        with eager_checkpoints(), texts.raises(holdfast.StorePoisoned, path=path):
            work_until_poisoned(path, acks)
        acks.close()
        assert_whole(path, acks)
        assert_whole(vfs.shadow(path), acks)
        promises.add(acks.count)
    assert len(promises) > 10, "syncs failed at different moments"


def work_until_poisoned(path, acks):
    with open_on("sync", path) as app:
        try:
            work(app, acks)
        finally:
            assert_refuses_writes(app)


def assert_refuses_writes(app):
    refused = (
        lambda: app.start("late"),
        lambda: app.append("one", note("late")),
        lambda: app.store.drop_snapshots(),
        lambda: app.gc(keep=0),
    )
    for write in refused:
        with pytest.raises(holdfast.StorePoisoned):
            write()


def leave_room(disk, ballast, room):
    """Fill a disk up to so many bytes."""
    left = os.statvfs(disk)
    ballast.write_bytes(bytes(left.f_bavail * left.f_frsize - room))


paid: list[str] = []


@holdfast.tool(effect="once")
def pay(order: str) -> str:
    paid.append(order)
    return order + "-" + random.Random(order).randbytes(1_000).hex()


def orders(count):
    """A `def` and an `async def` agent that pay one order after the other, and say which of them were acknowledged."""

    @holdfast.agent(name="orders")
    def one(task, done):
        for number in range(count):
            task.step(lambda number=number: random.Random(number).randbytes(1_500).hex(), name="draft")
            task.call(pay, order=f"o{number}")
            acknowledged.append(number)
        return done

    @holdfast.agent(name="orders")
    async def other(task, done):
        for number in range(count):
            await task.step(lambda number=number: random.Random(number).randbytes(1_500).hex(), name="draft")
            await task.call(pay, order=f"o{number}")
            acknowledged.append(number)
        return done

    return {"def": one, "async def": other}


acknowledged: list[int] = []


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_agents_on_a_disk_that_is_full_lose_nothing_and_go_on_when_there_is_room(kind, tmp_path):
    paid.clear()
    acknowledged.clear()
    agent = orders(400)[kind]
    with small_disk(tmp_path / "disk", "12m") as disk:
        ballast, path = disk / "ballast", disk / "store.db"
        with holdfast.open(path) as app:
            app.start("other", id="other")
            leave_room(disk, ballast, 700_000)
            with pytest.raises(holdfast.StoreFull, match="nothing was written") as full:
                app.run(agent, {"done": "yes"}, id="t")
            assert "free" in full.value.hint or "room" in full.value.hint
            before = list(acknowledged)
            assert 0 < len(before) < 400, "it was full in the middle"
            known = app.get("t")
            assert {f"pay#{number + 1}" for number in before} <= {*known.steps}, "what was acknowledged is there"
            assert app.get("other").status == "pending" and app.verify().ok, "reading goes on"
            with pytest.raises(holdfast.StoreFull):
                app.run(agent, {"done": "yes"}, id="t")
            ballast.unlink()
            acknowledged.clear()
            done = app.run(agent, {"done": "yes"}, id="t")
            if done.status == "waiting":  # the call that was announced, and whose answer found no room
                assert [one["kind"] for one in done.waiting.on] == ["doubt"]
                app.settle("t", done.waiting.on[0]["key"], happened=True, result="seen at the bank")
                done = app.run(agent, {"done": "yes"}, id="t")
            assert (done.status, done.result) == ("completed", "yes")
            assert len(paid) == len({*paid}) == 400, "no order was paid twice"
            assert app.verify().ok


def test_workers_on_a_disk_that_is_full_go_on_when_there_is_room(tmp_path):
    paid.clear()
    agent = orders(12)["def"]
    with small_disk(tmp_path / "disk", "12m") as disk:
        ballast, path = disk / "ballast", disk / "store.db"
        with holdfast.open(path) as app:
            for number in range(20):
                app.start(agent, {"done": str(number)}, id=f"t{number}")
            leave_room(disk, ballast, 300_000)
            worker = app.worker([agent], concurrency=4)
            thread = threading.Thread(target=worker.run)
            thread.start()
            time.sleep(3)
            assert thread.is_alive(), "a full disk ends no worker"
            ballast.unlink()
            until(lambda: settled_all(app), seconds=60)
            worker.stop()
            thread.join(30)
            assert {row.status for row in app.list()} == {"completed"}
            assert app.verify().ok and not thread.is_alive()


def settled_all(app):
    """Whether every task is completed; calls whose answer found no room are settled first."""
    for entry in app.inbox():
        if entry.kind == "doubt":
            app.settle(entry.task, entry.key, happened=True, result="seen at the bank")
    return {row.status for row in app.list()} == {"completed"}

"""A full disk and a failing sync: what is refused, what is kept, and how it goes on."""

import itertools
import os
import random
import subprocess
from contextlib import contextmanager, suppress

import apsw
import pytest

import holdfast
from holdfast.testing.auditor import audit
from holdfast.testing.faults import FaultyVFS, PowerCutVFS
from tests.crash.workload import assert_goes_on, assert_whole, eager_checkpoints, open_on, sample, work
from tests.crash.writer import Acks, large, note, write_pair


@pytest.fixture
def acks(tmp_path):
    opened = Acks(tmp_path / "acks")
    yield opened
    opened.close()


def heads(app):
    return {name: app.store.head(name) for name in app.store.logs()}


# A full disk

DEEDS = {
    "a task": lambda app, acks: app.start("late", id="late"),
    "an event": lambda app, acks: acks.records(app.append("one", note("more"))),
    "a batch": lambda app, acks: acks.records(app.append("one", *map(note, "several"))),
    "a large value": lambda app, acks: acks.records(app.append("one", large(random.Random(1), 50_000))),
    "a pair": lambda app, acks: write_pair(app, acks, "one", "two", "both"),
    "a fork": lambda app, acks: app.fork("one", at=2, id="late"),
    "a rollback": lambda app, acks: app.rollback("one", to=3),
}


@pytest.mark.parametrize("deed", DEEDS.values(), ids=DEEDS)
def test_a_disk_that_fills_up_in_the_middle_of_a_write_leaves_nothing_half_written(deed, acks, tmp_path):
    vfs = FaultyVFS("full")
    with open_on("full", tmp_path / "store.db") as app:
        work(app, acks)
        app.start("other", id="two" if "two" not in heads(app) else "three")
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

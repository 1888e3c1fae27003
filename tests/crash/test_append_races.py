"""Many threads and processes append after the same head: one of them wins, every time."""

import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from holdfast.core.codec import Head
from holdfast.core.errors import Conflict
from holdfast.engine.logs.committer import Committer
from holdfast.store.memory.store import MemoryStore
from holdfast.store.sqlite.store import SqliteStore
from tests.crash import writer
from tests.crash.workload import THOROUGH, assert_audited
from tests.crash.writer import RACED, after, begin, run_threads

THREADS = 64
ROUNDS = {"memory": 1_000 if THOROUGH else 250, "sqlite": 1_000 if THOROUGH else 150}
PATIENCE_SECONDS = 120
pytestmark = pytest.mark.usefixtures("hasty_threads")


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    opened = MemoryStore() if request.param == "memory" else SqliteStore(str(tmp_path / "a.db"), durability="process")
    opened.rounds = ROUNDS[request.param]
    yield opened
    opened.close()


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "in a shared commit"])
def test_of_64_threads_one_wins_each_seq(store, grouped):
    heads, wins = [begin(store, RACED)], Counter()
    commit = committed(Committer(store)) if grouped else lambda group: store.append([group])[0]
    all_there, patience = threading.Barrier(THREADS), time.monotonic() + PATIENCE_SECONDS

    def compete(number):
        all_there.wait()
        for place in range(store.rounds):
            while len(heads) <= place:
                assert time.monotonic() < patience, f"nobody won round {place}"
                time.sleep(0)
            outcome = commit(after(RACED, heads[place], f"{place}.{number}"))
            if isinstance(outcome, tuple):
                wins[place] += 1
                heads.append(Head(outcome[0].first, outcome[0].digests[0]))
            else:
                assert isinstance(outcome, Conflict)

    run_threads(THREADS, compete)
    assert wins == dict.fromkeys(range(store.rounds), 1)
    rows = store.read(RACED)
    assert [Head(row.seq, row.digest) for row in rows] == heads
    assert len({row.body for row in rows}) == store.rounds + 1


def committed(committer):
    def commit(group):
        try:
            return committer.commit(group)
        except Conflict as conflict:
            return conflict

    return commit


def test_threads_of_two_processes_never_win_the_same_seq(tmp_path):
    db, upto = tmp_path / "store.db", 4_000 if THOROUGH else 800
    store = SqliteStore(str(db), durability="process")
    begin(store, RACED)
    acks = [writer.Acks(tmp_path / f"{number}.acks") for number in range(2)]
    command = [sys.executable, writer.__file__, "race", str(db)]
    processes = [
        subprocess.Popen(
            [*command, str(one.path), "8", str(upto)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for one in acks
    ]
    assert [process.stdout.readline() for process in processes] == ["ready\n", "ready\n"]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    won = [sorted(one.seqs()) for one in acks]
    assert all(won), "both processes won something"
    assert sorted(won[0] + won[1]) == list(range(2, store.head(RACED).seq + 1))
    for one in acks:
        assert_audited(db, one)
        one.close()
    store.close()

"""Three processes write to one file and are killed at a random moment, again and again."""

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import holdfast
from tests.crash import writer
from tests.crash.workload import THOROUGH, assert_audited, assert_goes_on
from tests.waiting import until

ROUNDS = 25 if THOROUGH else 4
FILES = 4
WRITERS = 3
PATIENCE_SECONDS = 60


def run(db, acks, name, chance, program="swarm"):
    command = [sys.executable, writer.__file__, program, db, acks.path, name, str(chance.getrandbits(32))]
    return subprocess.Popen([*command, chance.choice(("full", "process"))], stderr=subprocess.PIPE)


def killed(process):
    """Kill a process that should have gone on for ever."""
    process.kill()
    _, errors = process.communicate()
    assert process.returncode == -9, errors.decode()


def wait_for_work(acks, size):
    until(lambda: acks.stat().st_size > size, seconds=PATIENCE_SECONDS, why="nobody wrote anything")


@pytest.mark.parametrize("file", range(FILES))
def test_what_was_acknowledged_survives_kill_9(file, tmp_path):
    chance = random.Random(file)
    db, acks = tmp_path / "store.db", writer.Acks(tmp_path / "acks")
    for number in range(ROUNDS):
        size = Path(acks.path).stat().st_size
        processes = [run(db, acks, f"file{file}.round{number}.writer{one}", chance) for one in range(WRITERS)]
        # The first time they may be killed while they make the file; later on they have something to lose.
        if number > 0:
            wait_for_work(Path(acks.path), size)
        time.sleep(chance.uniform(0, 0.5))
        for process in processes:
            killed(process)
        if db.exists():
            assert_goes_on(db)
            assert_audited(db, acks)
            assert_pairs_are_whole(db)
    acks.close()


@pytest.mark.parametrize("file", range(FILES))
def test_what_was_acknowledged_survives_while_the_directory_is_read(file, tmp_path):
    """Every writer reads all files around it, others open and close the store, and all of them are killed."""
    chance = random.Random(f"directory {file}")
    (tmp_path / "store").mkdir()
    db, acks = tmp_path / "store" / "store.db", writer.Acks(tmp_path / "acks")
    for number in range(ROUNDS):
        size = Path(acks.path).stat().st_size
        names = [f"file{file}.round{number}.writer{one}" for one in range(WRITERS)]
        processes = [run(db, acks, name, chance, "prowling_swarm") for name in names]
        look = [sys.executable, writer.__file__, "looker", db]
        processes.append(subprocess.Popen(look, stderr=subprocess.PIPE))
        if number > 0:
            wait_for_work(Path(acks.path), size)
        time.sleep(chance.uniform(0, 1.0))
        for process in chance.sample(processes, len(processes)):
            killed(process)
            time.sleep(chance.uniform(0, 0.1))
        if db.exists():
            assert_goes_on(db)
            assert_audited(db, acks)
            assert_pairs_are_whole(db)
    acks.close()


def assert_pairs_are_whole(db):
    """Of two events and a key that were written together there are all or none, unless their log was removed."""
    with holdfast.open(db) as app:
        written = Counter(
            record.event.text
            for log in app.store.logs()
            for record in app.events(log, after=app.store.origin(log).at)
            if record.kind == "log_written" and record.event.text.startswith("pair")
        )
        taken = {take.key for take in app.store.unique_keys(limit=1_000_000)}
        removed = bool(app.store.tombstones(limit=1))
    assert written.keys() <= taken
    assert set(written.values()) <= ({1, 2} if removed else {2})
    if not removed:
        assert written.keys() == taken

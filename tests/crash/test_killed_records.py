"""Processes that work on records are killed at a random moment, again and again, on every store that outlives them."""

import random
import subprocess
import sys
import time

import pytest

import holdfast
from holdfast.core import names
from holdfast.testing.auditor import audit
from tests.crash import record_writer
from tests.crash.record_writer import SHARED, SPACE, Expected, found, read_journal
from tests.crash.workload import THOROUGH
from tests.waiting import until

STORES = ("sqlite", "postgres")
ROUNDS = 20 if THOROUGH else 3
WRITERS = 3
PATIENCE_SECONDS = 60


def kill(process):
    process.kill()
    _, errors = process.communicate()
    assert process.returncode == -9, errors.decode()


def assert_only_what_was_done(records, name, journal):
    """The keys of a writer are as its acknowledged calls left them; one under way was done, or was not."""
    done, begun = read_journal(journal)
    expected = Expected()
    for op in done:
        if op["do"] != "shared":
            expected.do(op)
    state = found(records, name)
    if state != expected.state():
        assert begun is not None and begun["do"] != "shared", "something else was done"
        expected.do(begun)
        assert state == expected.state()
    for op in done:
        if op["do"] == "shared":
            written = {one.seq: one.data.decode() for one in records.read(SHARED, after=op["seqs"][0] - 1, limit=3)}
            assert written == dict(zip(op["seqs"], op["texts"], strict=True)), "it was acknowledged"


def assert_lists_are_whole(records):
    """Of records that were appended together there are all, one after the other."""
    texts = [one.data.decode().rsplit(" ", 1) for one in records.read(SHARED)]
    assert [part for _, part in texts] == ["0", "1", "2"] * (len(texts) // 3)
    assert all(len({texts[at + part][0] for part in range(3)}) == 1 for at in range(0, len(texts), 3))


@pytest.mark.parametrize("seed", range(2))
def test_what_was_done_to_records_survives_kill_9_and_nothing_else_was(url, seed, tmp_path):
    chance = random.Random(seed)
    for turn in range(ROUNDS):
        running = {}
        for one in range(WRITERS):
            name = f"{seed}.{turn}.{one}"
            journal = tmp_path / name
            command = [sys.executable, record_writer.__file__, url, journal, name, str(chance.getrandbits(32))]
            running[name] = (subprocess.Popen(command, stderr=subprocess.PIPE), journal)
        for process, journal in running.values():
            until(
                lambda process=process, journal=journal: (
                    process.poll() is not None or (journal.exists() and read_journal(journal)[0])
                )
            )
        time.sleep(chance.uniform(0, 0.4))
        for process, _ in running.values():
            kill(process)
        with holdfast.open(url) as app:
            records = app.records(SPACE)
            for name, (_, journal) in running.items():
                assert_only_what_was_done(records, name, journal)
            assert_lists_are_whole(records)
            assert app.verify().problems == [] and app.store.check() == []
            for name in running:  # whoever comes next goes on where they were
                for key in records.keys(f"{name}/"):
                    assert records.append(key, b"goes on") == records.head(key)
            assert app.store.head(names.record_log(SPACE, SHARED)) is not None
        assert audit(url) == []

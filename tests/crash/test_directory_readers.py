"""Workers whose agents read every file of their directory are killed, while people look at the store: nothing is lost.

Reading a file and closing it drops all POSIX locks of the process on it, SQLite's and any of ours. Before there was a
guard, this lost acknowledged tasks, took living workers for dead and made payments twice.
"""

import subprocess
import sys
import time

import pytest

import holdfast
from holdfast.testing.crash.world import World
from tests.conftest import ALL
from tests.crash.postgres_audit import audited
from tests.crash.storm import Crew, assert_all_well, begin

TASKS, STEPS = 30, 4
RUNS, KILLS, SECONDS = (10, 20, 120) if ALL else (1, 6, 60)


@pytest.mark.parametrize("number", range(RUNS))
def test_workers_that_read_their_own_directory_are_killed_and_nothing_is_lost(number, tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    url = str(folder / "store.db")
    with World() as world:
        with holdfast.open(url) as app:
            begin(app, TASKS, STEPS)
        places = [{"prowls": str(folder)}] * 2
        with Crew(*places, seed=number, url=url, world=world.address, workers=1, concurrency=2, pause=0.05) as crew:
            kills = kill_until_done(crew, url)
        with holdfast.open(url) as app:
            seen = assert_all_well(app, world, TASKS, STEPS)
    assert seen["twice"] == 0, "an effect was made twice"
    assert kills >= KILLS or seen["proven take-overs"] > 0
    assert audited(url, tmp_path) == []


def kill_until_done(crew, url):
    """Kill a worker now and then, and list the tasks every second, each time in a process that is the last to close."""
    until, kills, listed = time.monotonic() + SECONDS, 0, 0.0
    while True:
        assert time.monotonic() < until, "the tasks do not end"
        if time.monotonic() - listed > 1:
            listed = time.monotonic()
            command = [sys.executable, "-m", "holdfast", "list", "--store", url, "--json", "--limit", "1000"]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            if done.stdout.count('"completed"') == TASKS:
                return kills
        if kills < KILLS:
            crew.kill()
            kills += 1
        crew.tend()
        time.sleep(0.3)
